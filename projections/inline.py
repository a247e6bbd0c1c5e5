"""Statuses written in the emitting process itself, for services that run no projector: an observer of the Emitter."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from lru import LRU

from jobevents.errors import JobEventsError
from jobevents.events import Event
from jobevents.job import DELETED, Job
from projections.statuswriter import REMEMBERED, StatusWriter

logger = logging.getLogger(__name__)


class InlineStatus:
    """Writes a job's status after each of its events.

    Coalesced to the least interval between two writes of one blob: the last state always lands, a job at rest at once or
    after its interval, before the appending call returns.
    """

    def __init__(
        self, writer: StatusWriter, interval_s: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer = writer
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._written_at: LRU[str, float] = LRU(REMEMBERED)
        self._waiting: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Write the status now if its interval has passed, soon if not; a job at rest before returning."""
        with self._lock:
            wait_s = self._written_at.get(job.job_id, -self._interval_s) + self._interval_s - self._monotonic()
            at_rest = job.is_final() or job.state == DELETED
            if wait_s > 0 and not at_rest:
                self._waiting[job.job_id] = job
                self._start()
                return
            self._waiting.pop(job.job_id, None)
        if wait_s > 0:
            time.sleep(wait_s)  # the store takes one write of a name in this time (GCS)
        self._save(job)

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._lock:
            self._closed = True
            self._wake.notify()
            thread = self._thread
            waiting = list(self._waiting.values())
            self._waiting.clear()
        if thread is not None:
            thread.join()
        for job in waiting:
            self._save(job)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jobevents-status", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Every interval, write the statuses that wait; end when none does."""
        while True:
            with self._lock:
                self._wake.wait_for(lambda: self._closed, timeout=self._interval_s)
                waiting = list(self._waiting.values())
                self._waiting.clear()
                if not waiting:
                    self._thread = None
                    return
            for job in waiting:
                self._save(job)

    def _save(self, job: Job) -> None:
        with self._lock:
            self._written_at[job.job_id] = self._monotonic()
        try:
            self._writer.save(self._writer.show(job, is_new=job.version == 1))
        except JobEventsError as error:
            logger.warning(
                "status not written, the job's next event tries again job_id=%s version=%d error=%s",
                job.job_id,
                job.version,
                error,
            )
