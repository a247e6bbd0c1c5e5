"""Dispatch: a job that waits for a task queue of the user's is handed to that queue, and again if it was lost on the way.

The event comes first, then the task. A crash between the two, or a task queue that was away, loses nothing: what is due and
was never started is found by a pass over the jobs that wait, which one process at a time makes. A task is named from its
job and the event that had it wait, so that a task queue that knows names has each task once.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from lru import LRU

from jobevents.blobs import Blobs
from jobevents.duty import Duty
from jobevents.emit import Emitter
from jobevents.errors import JobEventsError
from jobevents.events import Event, JobFailed, JobQueued, JobRequeued
from jobevents.job import QUEUED, Job, due_at
from jobevents.pulse import Pulse
from jobevents.store import RunTable
from jobevents.tasks import Dispatch, Task
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble

ROLE = "dispatch"  # name of the lease by which one process at a time looks for what was lost
GRACE_S = 60.0  # how long a job is due before it is looked at: most tasks are delivered by then
AGAIN_S = 600.0  # between two tries for one job that waits: its task may stand in a long queue
UNTAKEN_S = 60.0  # the same, for one that the task queue did not take
PAGE = 500  # waiting jobs in one read
LOOKED_AT = 20_000  # waiting jobs in one pass: the next goes on from there
TRIED = 50_000  # jobs of which it is remembered when they were tried
KEPT = 10_000  # tasks that could not be handed over: what is beyond is found by a pass
RETRY_S = 1.0  # how often it is looked whether such may be tried again
PASS_S = 15.0  # between two passes

logger = logging.getLogger(__name__)


class Dispatcher:
    """Hands over what this process has wait, and, while it has the role, what was lost of all. An observer of the Emitter.

    Counts `dispatched`, `dispatches_failed` and `dispatches_dropped`.
    """

    def __init__(
        self,
        emitter: Emitter,
        runs: RunTable,
        dispatch: Dispatch,
        counts: Counts,
        *,
        blobs: Blobs,
        prefix: str = "",
        pass_s: float = PASS_S,
        grace_s: float = GRACE_S,
        again_s: float = AGAIN_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hand over nothing yet; `blobs` are where the role lies.

        Args:
            pass_s: between two passes of the process that has the role.
            grace_s: how long a job is due before a pass looks at it.
            again_s: between two tries of this process for one job that waits.
        """
        self._emitter = emitter
        self._runs = runs
        self._dispatch = dispatch
        self._counts = counts
        self._grace = timedelta(seconds=grace_s)
        self._again_s = again_s
        self._pass_s = pass_s
        self._monotonic = monotonic
        self._duty = Duty(ROLE, interval_s=pass_s, blobs=blobs, prefix=prefix, counts=counts, monotonic=monotonic)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._kept: dict[str, Task] = {}  # by job: the newest
        self._tried: LRU[str, tuple[datetime, float]] = LRU(TRIED)  # job -> due then, when it was tried
        self._trouble = Trouble("handing jobs to the task queue", logger, monotonic=self._monotonic)
        self._retry_at = 0.0
        self._passed_at = self._monotonic()
        self._place = ""  # where the last pass ended
        self._pulse: Pulse | None = None

    def start(self) -> None:
        """Begin to look for what was lost, in a thread of this process; nothing when it does already."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._pulse is None:
                self._pulse = Pulse("jobevents-dispatch", self.beat, min(RETRY_S, self._pass_s))
                self._pulse.start()

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Hand over a job that waits since these events."""
        if self._pid != os.getpid():  # a forked child has no thread
            self.start()
        if job.external and job.state == QUEUED:
            version = _waits_since(events)
            if version:
                self._hand_over(_task(job, version))

    def beat(self) -> float:
        """Try again what could not be handed over; make a pass when it is time. Returns the seconds until the next."""
        now = self._monotonic()
        if self._kept and now >= self._retry_at:
            self._retry()
        if now - self._passed_at >= self._pass_s:
            self._passed_at = now
            self._duty.beat(self.sweep)
        return min(RETRY_S, self._pass_s)

    def sweep(self) -> int:
        """Hand over again the jobs that are due since a while and were never started; return how many.

        Looks at no more than 20,000 in one call, and goes on from there in the next. One read a page, one of each job's
        last events; a job that was tried within `again_s` is passed over.

        Raises:
            Unavailable, PermissionDenied: what the store says; or what the task queue does: the rest is for the next pass.
        """
        count = looked = 0
        due = self._emitter.clock() - self._grace
        while looked < LOOKED_AT:
            page = self._runs.undelivered(after=self._place, limit=PAGE, due=due)
            if not page:
                self._place = ""
                break
            for waiting in page:
                self._place = waiting.job_id
                count += self._find(waiting.job_id, waiting.due, due)
            looked += len(page)
        return count

    def close(self) -> None:
        """Try once more what could not be handed over, and give the role up; what is left is found by others."""
        with self._lock:
            pulse, self._pulse = self._pulse, None
        if pulse is not None and self._pid == os.getpid():
            pulse.stop()
            if self._kept:
                self._retry()
            if self._kept:
                logger.warning(
                    "jobs are not handed to the task queue yet, which a later pass of any process does count=%d",
                    len(self._kept),
                )
        self._duty.resign()

    def _find(self, job_id: str, due: datetime | None, before: datetime) -> bool:
        """Hand over a job that may have been lost; False when it was not, or was tried lately."""
        tried = self._tried.get(job_id)
        if tried is not None and due in (None, tried[0]) and self._monotonic() - tried[1] < self._again_s:
            return False
        try:
            job = self._emitter.load(job_id)
            if job.state != QUEUED or not job.external or due_at(job) > before:
                return False
            version = _waits_since(self._emitter.log.read(job_id, after=job.start))
        except JobEventsError as error:
            self._counts.add("dispatches_failed")
            self._tried[job_id] = due or before, self._monotonic()
            logger.warning(
                "a job that waits for the task queue cannot be read, and is looked at again later job_id=%s error=%s",
                job_id,
                error,
            )
            return False
        if not version:  # a record says that it waits: who wrote that has it delivered, too
            self._tried[job_id] = due_at(job), self._monotonic()
            return False
        try:
            self._send(_task(job, version))
        except Exception:
            self._tried[job_id] = due_at(job), self._monotonic() - self._again_s + UNTAKEN_S
            raise
        return True

    def _hand_over(self, task: Task) -> None:
        if self._trouble.wait_s and self._monotonic() < self._retry_at:  # it would hold up whoever submits
            self._keep(task)
            return
        try:
            self._send(task)
        except Exception:  # noqa: BLE001  # the user's task queue: the event is in the log, whatever it says
            self._keep(task)

    def _send(self, task: Task) -> None:
        try:
            self._dispatch(task)
        except Exception as error:
            self._counts.add("dispatches_failed")
            self._retry_at = self._monotonic() + self._trouble.came(error)
            raise
        self._trouble.went()
        self._counts.add("dispatched")
        self._tried[task.job_id] = task.due, self._monotonic()

    def _keep(self, task: Task) -> None:
        with self._lock:
            if len(self._kept) < KEPT or task.job_id in self._kept:
                self._kept[task.job_id] = task
            else:
                self._counts.add("dispatches_dropped")

    def _retry(self) -> None:
        """Try what is kept, oldest first, up to the first that fails."""
        while True:
            with self._lock:
                task = next(iter(self._kept.values()), None)
            if task is None:
                return
            try:
                self._send(task)
            except Exception:  # noqa: BLE001  # as above
                with self._lock:  # one that is never taken must not be in the way of the others
                    if self._kept.get(task.job_id) is task:
                        self._kept[task.job_id] = self._kept.pop(task.job_id)
                return
            with self._lock:
                if self._kept.get(task.job_id) is task:
                    del self._kept[task.job_id]


def _waits_since(events: Sequence[Event]) -> int:
    """Return the version of the last of these events that has a job wait by a decision of ours; 0 for none."""
    for event in reversed(events):
        if isinstance(event, JobQueued | JobRequeued) or (isinstance(event, JobFailed) and event.retry_at is not None):
            return event.version
    return 0


def _task(job: Job, version: int) -> Task:
    return Task(
        job_id=job.job_id,
        version=version,
        name=job.name,
        queue=job.queue,
        due=due_at(job),
        attempt=job.tries + 1,
    )
