"""A queue or a store of the user's own beside the log: runs are brought to it, requests to cancel are heard from it, and what
is paused in the log is not taken from it.

The log stays the truth. What could not be brought when it was written is brought by the next sweep; a queue may hand a run
out twice, since the guard lets one start win.
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from jobevents.errors import NotFound, Unavailable
from jobevents.events import Event, JobCanceled, JobDeleted, JobFailed, JobQueued, JobRecorded, JobRequeued, JobSkipped
from jobevents.job import QUEUED, Job
from jobevents.queue import JobQueue, Reservation
from jobevents.store import JobRun, JobStore, RunFilter, run_of
from jobevents.trouble import Trouble

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

SWEEP_S = 30.0  # how late a run comes that could not be brought when it was queued
PAUSED_S = 1.0  # how late it is noticed that somebody resumed what was paused
PAGE = 500  # queued runs in one read of a sweep

_BRINGS = (JobQueued, JobRequeued, JobFailed, JobRecorded)
_TAKES = (JobCanceled, JobSkipped, JobDeleted)

_Delivery: TypeAlias = tuple[str, int, object]  # id, number of the try, when it is due

logger = logging.getLogger(__name__)


class QueueFeed:
    """Brings what the log says is queued to a queue with storage of its own. An observer of Jobs; safe for threads."""

    def __init__(self, jobs: "Jobs", queue: JobQueue) -> None:
        self._jobs = jobs
        self._queue = queue
        self._brought: set[_Delivery] = set()
        self._lock = threading.Lock()
        self._trouble = Trouble("bringing runs to the queue", logger)

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Bring a job that waits now, or take out one that will not be run."""
        if job.state == QUEUED and not job.external and any(isinstance(event, _BRINGS) for event in events):
            self._try(run_of(job))
        elif any(isinstance(event, _TAKES) for event in events):
            try:
                self._queue.remove(job.job_id)
            except Exception as error:  # noqa: BLE001  # a queue of the user's: when it hands the run out, the guard refuses it
                self._trouble.came(error)

    def sweep(self) -> float:
        """Bring each queued run that this process has not brought, and return the seconds until the next sweep.

        Where the queue is empty, what has been due for long is brought again: it was lost there.
        """
        try:
            overdue = self._jobs.emitter.clock() - timedelta(seconds=SWEEP_S)
            is_empty = not len(self._queue)
            waiting = set()
            for run in self._queued():
                delivery = _delivery(run)
                waiting.add(delivery)
                if delivery not in self._brought or (is_empty and run.scheduled_at <= overdue):
                    self._bring(run)
            with self._lock:
                self._brought &= waiting
            self._trouble.went()
        except Exception as error:  # noqa: BLE001  # as above: the next sweep brings them
            return self._trouble.came(error)
        return SWEEP_S

    def _queued(self) -> Iterator[JobRun]:
        page = 1
        while found := self._jobs.runs.list(RunFilter(statuses=(QUEUED,), page=page, per_page=PAGE)).runs:
            yield from (run for run in found if not run.external)
            page += 1

    def _try(self, run: JobRun) -> None:
        try:
            self._bring(run)
        except Exception as error:  # noqa: BLE001  # as above: the sweep brings it
            self._trouble.came(error)

    def _bring(self, run: JobRun) -> None:
        self._queue.enqueue(run)
        with self._lock:
            self._brought.add(_delivery(run))


def _delivery(run: JobRun) -> _Delivery:
    return run.id, run.attempt, run.scheduled_at


class PausableQueue:
    """A queue of the user's, of which what is paused in the log is not handed out. Safe for threads.

    Each `reserve` reads the pauses twice: nothing is begun that was paused before it was handed out. A paused queue is not asked;
    a run of a paused kind goes back, and is looked at again after PAUSED_S.
    """

    shares_store = False

    def __init__(self, jobs: "Jobs", queue: JobQueue) -> None:
        """Keep nothing: what waits is in `queue`."""
        self.is_durable: bool = getattr(queue, "is_durable", True)  # a queue that does not say so may well be
        self.enqueue = queue.enqueue
        self.remove = queue.remove
        self.close = queue.close
        self._jobs = jobs
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue)

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Wait for due runs that are not paused; see `JobQueue.reserve`. None within `timeout_s` may be sooner than that."""
        paused = self._paused()
        open_ones = [name for name in queues if ("queue", name) not in paused]
        if queues and not open_ones:
            time.sleep(PAUSED_S if timeout_s is None else min(timeout_s, PAUSED_S))
            return []
        found = self._queue.reserve(open_ones, limit=limit, timeout_s=timeout_s)
        paused = self._paused() if found else paused
        if not paused:
            return found
        ours = [one for one in found if not {("queue", one.queue), ("job", one.job_name)} & paused]
        for one in found:
            if one not in ours:
                self._put_back(one)
        return ours

    def _put_back(self, reservation: Reservation) -> None:
        try:
            reservation.ack(Unavailable("the job or its queue is paused"), delay_s=PAUSED_S)
        except Exception:  # noqa: BLE001  # a queue of the user's: its lease ends by itself
            self._jobs.counts.add("acknowledgements_failed")

    def _paused(self) -> set[tuple[str, str]]:
        if self._jobs.desk is None:  # a log on which nothing can be paused
            return set()
        return {(one.kind, one.name) for one in self._jobs.paused()}


class StoreMirror:
    """Keeps a store of the user's in step with the log, and hears from it who should stop. An observer; safe for threads."""

    def __init__(self, jobs: "Jobs", store: JobStore) -> None:
        self._jobs = jobs
        self._store = store
        self._writing = threading.Lock()
        self._trouble = Trouble("keeping the store in step with the log", logger)

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Write the job's run as the log has it now; what cannot be written now is written with the job's next event."""
        if any(isinstance(event, JobDeleted) for event in events):
            return
        try:
            with self._writing:  # observers are called in any order: the last to write has the newest
                self._write(run_of(self._jobs.emitter.load(job.job_id)))
        except Exception as error:  # noqa: BLE001  # a store of the user's: the log has it
            self._trouble.came(error)
        else:
            self._trouble.went()

    def _write(self, run: JobRun) -> None:
        try:
            self._store.update(run)
        except NotFound:
            self._store.create(run)

    def pass_on_cancel(self, job_id: str) -> bool:
        """Write down in the log that somebody asked the store for a job to stop; tell whether somebody did."""
        try:
            if not self._store.is_cancel_requested(job_id):
                return False
            run = self._store.get(job_id)
            self._jobs.cancel(job_id, actor=run.canceled_by, reason=run.cancel_reason)
        except NotFound:  # it was not brought there yet
            return False
        except Exception as error:  # noqa: BLE001  # as above: the log may be asked to cancel, too
            self._trouble.came(error)
            return False
        return True
