"""Deliveries: a job that somebody else's queue brings is run in this process, and who brought it is told whether to come again.

The guard lets one start win, however often a job is brought. What is said to who brings it: settled (done, already done,
canceled, or waiting for a task of its own), or again: whatever another delivery could find otherwise.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from jobevents.errors import Busy, JobEventsError
from jobevents.execution import STALE_S, Execution, Executor, Stop
from jobevents.job import CANCELED, DELETED, QUEUED, RUNNING, Job, due_at
from jobevents.queue import Reservation
from jobevents.registry import Registry
from jobevents.runlog import LogPolicy, RunLogHandler
from jobevents.store import run_of
from jobevents.trouble import Trouble
from jobevents.watch import TICK_S, Watch

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

MOST = 80  # at once: what Cloud Run sends to one instance by default
GRACE_S = 6.0  # with the second after it and the time to record, within the ten that Cloud Run leaves after SIGTERM
STOP_GRACE_S = 1.0
RECORD_S = 2.0
AGAIN_S = 5.0  # before somebody comes again, where nothing says when
PAUSED_S = 30.0  # before what is paused is looked at again
EARLY_S = 10.0  # by which a delivery may be before its job is due: two clocks
ACTOR = "delivery"

logger = logging.getLogger(__name__)


class Delivered(msgspec.Struct, frozen=True):
    """What a delivery came to."""

    job_id: str
    outcome: str  # for people
    state: str = ""  # of the job, as far as it is known
    is_settled: bool = True  # False: to be delivered again
    again_s: float = 0.0  # seconds before that


class _Waiter:
    """A delivery under way, and who waits for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.began = False
        self.error: Exception | None = None  # the log's trouble
        self.refused: BaseException | None = None  # why it was not begun
        self.again_s = 0.0

    def settle(self, error: BaseException | None, delay_s: float) -> None:
        """Take what the executor says to a queue."""
        self.refused, self.again_s = error, delay_s


class Deliveries:
    """Runs the jobs that are delivered to this process, each in a thread of its own. Safe for threads."""

    def __init__(
        self,
        jobs: "Jobs",
        registry: Registry,
        *,
        worker: str | None = None,
        logs: LogPolicy = "off",
        queue_limits: Mapping[str, int] | None = None,
        most: int = MOST,
        grace_s: float = GRACE_S,
        stop_grace_s: float = STOP_GRACE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet, but have `jobs.submit` use the registry; see `JobRunner` for the arguments.

        Args:
            most: how many may run at once here; what comes beyond that is to come again.
        """
        self._jobs = jobs
        self._registry = registry
        self._most = most
        self._grace_s = grace_s
        self._stop_grace_s = stop_grace_s
        self._monotonic = monotonic
        self._here = threading.local()
        self._waiters: dict[int, _Waiter] = {}  # by the identity of their execution
        self._changed = threading.Condition()
        self._under_way = 0
        self._is_closed = False
        self._looking: threading.Thread | None = None
        self._trouble = Trouble(
            "running delivered jobs", logger, again="each is asked to come again", monotonic=monotonic
        )
        self._watch = Watch(self._give_up, is_canceled=lambda one: one.attempt.canceled, monotonic=monotonic)
        self._executor = Executor(
            jobs,
            registry,
            worker=worker,
            logs=logs,
            queue_limits=queue_limits,
            on_begin=self._begin,
            on_end=self._watch.end,
            monotonic=monotonic,
        )
        self._records = RunLogHandler() if {logs, *(one.logs for one in registry)} & {"failure", "always"} else None
        if self._records is not None:
            logging.getLogger().addHandler(self._records)
        if jobs.registry is None:
            jobs.use(registry)
        jobs.observe(self._watch.noticed)

    def deliver(self, job_id: str, *, if_external: bool = False) -> Delivered:
        """Run a job, unless it need not or must not be run now, and return when it has ended, or was given up.

        Args:
            if_external: leave alone what our own queue hands out.

        Raises:
            InvalidJobId: no job can have that id.
        """
        try:
            return self._deliver(job_id, if_external)
        except JobEventsError as error:
            if isinstance(error, ValueError):
                raise
            self._trouble.came(error)
            self._jobs.counts.add("deliveries_failed")
            return _again(job_id, f"the log could not be read or written: {error!s:.200}")

    def _deliver(self, job_id: str, if_external: bool) -> Delivered:
        job = self._jobs.emitter.load(job_id)
        if not job.version:
            return _again(job_id, "there is no such job yet")
        if (settled := _settled(job)) is not None:
            return settled
        if if_external and not job.external:
            return Delivered(job_id, "it is handed out by the log's own queue", job.state)
        if self._registry.get(job.name) is None:  # the next version of this service may know it
            self._jobs.counts.add("deliveries_of_unknown_kind")
            return _again(job_id, f"no job of this name is registered here name={job.name}", job.state)
        if self._is_paused(job):
            return _again(job_id, "its kind or its queue is paused", job.state, PAUSED_S)
        waiter = _Waiter()
        if not self._take_place():
            return _again(job_id, "as much runs here as may", job.state, 1.0)
        threading.Thread(target=self._run, args=(waiter, job), name="jobevents-delivery", daemon=True).start()
        waiter.done.wait()
        if waiter.error is not None:
            raise waiter.error
        self._trouble.went()
        return self._came_to(self._jobs.emitter.load(job_id), waiter)

    def _is_paused(self, job: Job) -> bool:
        """Tell whether nothing of its kind or queue is to be begun: one read, of a log that keeps pauses."""
        if self._jobs.desk is None:
            return False
        return any((one.kind, one.name) in (("job", job.name), ("queue", job.queue)) for one in self._jobs.paused())

    def _came_to(self, job: Job, waiter: _Waiter) -> Delivered:
        if waiter.began and _settled(job):
            return Delivered(job.job_id, job.state, job.state)
        if (settled := _settled(job)) is not None:
            return settled
        if job.state == RUNNING:
            return _again(job.job_id, "it runs already", job.state)
        left_s = (due_at(job) - self._jobs.emitter.clock()) / timedelta(seconds=1)
        if isinstance(waiter.refused, Busy):
            return _again(job.job_id, "as many run as may at once", job.state, waiter.again_s)
        has_task = self._jobs.dispatcher is not None and (waiter.began or left_s > EARLY_S)
        if job.state == QUEUED and has_task:
            return Delivered(job.job_id, "it waits for its next task", job.state)
        return _again(job.job_id, "it waits for its time", job.state, max(STALE_S, left_s))

    def _run(self, waiter: _Waiter, job: Job) -> None:
        self._here.waiter = waiter
        try:
            self._executor.execute(Reservation(run_of(job), waiter.settle))
        except Exception as error:  # noqa: BLE001  # the log's trouble: it is to be delivered again
            waiter.error = error
        self._finish(waiter)

    def _begin(self, execution: Execution) -> None:
        waiter: _Waiter = self._here.waiter
        waiter.began = True
        with self._changed:
            self._waiters[id(execution)] = waiter
            if self._looking is None:
                self._looking = threading.Thread(target=self._look, name="jobevents-deliveries", daemon=True)
                self._looking.start()
        self._watch.begin(execution)

    def _look(self) -> None:
        while self._watch.wait_for_any():
            self._watch.look()
            time.sleep(TICK_S)

    def _give_up(self, execution: Execution) -> None:
        threading.Thread(
            target=self._record_given_up, args=(execution,), name="jobevents-delivery", daemon=True
        ).start()

    def _record_given_up(self, execution: Execution) -> None:
        with self._changed:
            waiter = self._waiters[id(execution)]
        try:
            self._executor.give_up(execution)
        except Exception as error:  # noqa: BLE001  # its worker's lease tells others that the job is lost
            waiter.error = error
        self._finish(waiter)

    def _take_place(self) -> bool:
        with self._changed:
            if self._is_closed or self._under_way >= self._most:
                return False
            self._under_way += 1
            return True

    def _finish(self, waiter: _Waiter) -> None:
        with self._changed:
            if not waiter.done.is_set():
                waiter.done.set()
                self._under_way -= 1
            self._waiters = {key: one for key, one in self._waiters.items() if one is not waiter}
            self._changed.notify_all()

    def close(self, *, grace_s: float | None = None) -> None:
        """Begin nothing more, wait for handlers, then ask them to stop, and give back the jobs of those that do not."""
        with self._changed:
            self._is_closed = True
        if not self._is_idle_within(self._grace_s if grace_s is None else grace_s):
            self._watch.ask_all(Stop.SHUTDOWN)
            if not self._is_idle_within(self._stop_grace_s):
                self._watch.give_up_all()
                self._is_idle_within(RECORD_S)
        self._watch.close()
        self._executor.leave_loop()
        if self._records is not None:
            logging.getLogger().removeHandler(self._records)

    def _is_idle_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, seconds)


def _settled(job: Job) -> Delivered | None:
    """Return what is said of a job that nobody has to run any more; None for any other."""
    if job.state == DELETED:
        return Delivered(job.job_id, "it was deleted", "deleted")
    if job.state == CANCELED:
        return Delivered(job.job_id, "it was canceled", job.state)
    return Delivered(job.job_id, "already done", job.state) if job.is_final() else None


def _again(job_id: str, why: str, state: str = "", seconds: float = AGAIN_S) -> Delivered:
    return Delivered(job_id, why, state, is_settled=False, again_s=seconds)
