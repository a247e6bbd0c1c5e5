"""One reserved run, from its hand-out to its outcome: the guard, the handler, how it ended, what that means.

A handler is asked to stop when its job was canceled, when its time is over, or when its process ends. What it raises then is
how it stopped: the job is canceled, has failed, or is given back. What it returns counts as done all the same.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jobevents import boundary, runlog
from jobevents.backoff import Backoff
from jobevents.context import AioJobContext, JobContext
from jobevents.errors import (
    Abandon,
    AlreadyCanceled,
    AlreadyRunning,
    AlreadySucceeded,
    Busy,
    Canceled,
    InvalidValue,
    JobEventsError,
    QueueClosed,
    Refused,
    Snooze,
)
from jobevents.job import QUEUED
from jobevents.limits import Limit
from jobevents.queue import Reservation
from jobevents.registry import JobDefinition, Registry
from jobevents.runlog import LogPolicy

if TYPE_CHECKING:
    from jobevents.asyncloop import LoopThread
    from jobevents.attempt import Attempt
    from jobevents.ending import Ending
    from jobevents.jobs import Jobs

ACTOR = "runner"  # who cancels, skips and fails what a runner does not run
BUSY_S = 2.0  # before a run that found no slot is handed out again (behaviour M3)
STALE_S = 1.0  # before a run that was handed out early by another machine's clock is handed out again
DEADLINE_MARGIN_S = 10.0  # by which a timeout of ours comes before others take the attempt for lost
PATIENCE_S = 30.0  # how long an outcome is tried to be recorded: then the reaper gives the job back


class Stop(StrEnum):
    """Why a handler was asked to stop."""

    CANCEL = "it was canceled"
    TIMEOUT = "its time was over"
    SHUTDOWN = "its process ends"


class TimedOut(Exception):
    """A handler took longer than its job's timeout."""


class GivenUp(Exception):
    """A handler did not stop when it was asked to."""


class UnfitParams(Abandon):
    """Params do not fit the job's Struct: no other try changes that."""


class Execution:
    """A handler under way. It ends once: by its own return, or by being given up."""

    def __init__(self, definition: JobDefinition, attempt: "Attempt", began: float) -> None:
        self.definition = definition
        self.attempt = attempt
        self.began = began  # monotonic seconds
        self.why: Stop | None = None
        self.asked = 0.0  # when it was asked to stop, monotonic seconds
        self.log = runlog.RunLog(attempt.log)
        self.context: JobContext[Any] | None = None  # Any: the job's params
        self._lock = threading.Lock()
        self._has_ended = False
        self._cancel_task: Callable[[], None] | None = None

    def is_stopping(self) -> bool:
        """Tell whether the handler was asked to stop."""
        return self.why is not None

    def ask(self, why: Stop, now: float) -> None:
        """Ask the handler to stop; the first reason counts."""
        with self._lock:
            if self.why is not None or self._has_ended:
                return
            self.why, self.asked = why, now
            cancel = self._cancel_task
        if cancel is not None:
            cancel()

    def on_task(self, cancel: Callable[[], None]) -> None:
        """Take what cancels the handler's task."""
        with self._lock:
            self._cancel_task = cancel
            late = self.why is not None
        if late:
            cancel()

    def end(self) -> bool:
        """End it; False when it had ended already."""
        with self._lock:
            ended, self._has_ended = self._has_ended, True
        return not ended


class Ran(NamedTuple):
    """What came of a reserved run."""

    ending: "Ending | None" = None  # to be recorded, by itself or in a turn; None: that is done
    stays: bool = True  # its thread does: not one whose handler returned after it had been given up


DONE = Ran()


class Executor:
    """Runs reserved runs in the calling thread. Safe for threads."""

    def __init__(
        self,
        jobs: "Jobs",
        registry: Registry,
        *,
        worker: str | None = None,
        logs: LogPolicy = "off",
        queue_limits: Mapping[str, int] | None = None,
        on_begin: Callable[[Execution], None] = lambda _: None,
        on_end: Callable[[Execution], None] = lambda _: None,
        may_begin: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float],
    ) -> None:
        """Do nothing yet.

        Args:
            logs: whether `logging` records are kept, where a job does not say.
            queue_limits: queue -> how many of its jobs may run at once, in all processes on the log.
            on_begin: told before a handler is entered, `on_end` before its outcome is recorded.
            may_begin: tells whether handlers are entered; once they are not, each run is given back.
        """
        self._jobs = jobs
        self.registry = registry
        self._worker = worker
        self._logs = logs
        self._queue_limits = {name: Limit("queue", name, most) for name, most in (queue_limits or {}).items()}
        self._on_begin = on_begin
        self._on_end = on_end
        self._may_begin = may_begin
        self._monotonic = monotonic
        self._patience = Backoff(deadline_s=PATIENCE_S)
        self._coroutines: dict[str, bool] = {}  # name of a job -> whether its handler is one
        self._loop: LoopThread | None = None
        self._loop_lock = threading.Lock()

    def execute(self, reservation: Reservation) -> bool:
        """Run a reserved run and record its end; False when its handler returned after being given up.

        Raises: as `run`.
        """
        ending, stays = self.run(reservation)
        if ending is not None and (error := ending.record()) is not None:
            raise error
        return stays

    def run(self, reservation: Reservation) -> Ran:
        """Run a reserved run, acknowledged once its start is in the log; its end is the caller's to record, before long.

        Raises:
            JobEventsError: what the log or the queue says. A run that was not acknowledged is to be handed back.
        """
        job_id = reservation.job_id
        if not self._may_begin():
            reservation.ack(QueueClosed("nothing is begun here any more"))
            return DONE
        definition = self.registry.get(reservation.job_name)
        if definition is None:
            why = f"no job of this name is registered name={reservation.job_name}"
            self._jobs.fail(job_id, why, kind="JOB_NOT_FOUND", actor=ACTOR)
            reservation.ack()
            return DONE
        attempt = self.attempt(reservation, definition)
        try:
            attempt.__enter__()
        except Busy as busy:
            self._wait_for_slot(reservation, definition, busy)
        except (AlreadySucceeded, AlreadyCanceled, AlreadyRunning):
            reservation.ack()
        except Refused as refused:
            is_early = self._jobs.emitter.load(job_id).state == QUEUED
            reservation.ack(refused if is_early else None, delay_s=STALE_S if is_early else 0)
        else:
            self.acknowledge(reservation)
            return self.handle(self.begun(definition, attempt))
        return DONE

    def acknowledge(self, reservation: Reservation) -> None:
        """Let the queue forget a run whose start is in the log: from now on our lease is what tells that it is worked on."""
        try:
            reservation.ack()
        except Exception:  # noqa: BLE001  # a queue of the user's: what it hands out again is refused by the guard
            self._jobs.counts.add("acknowledgements_failed")

    def begun(self, definition: JobDefinition, attempt: "Attempt") -> Execution:
        """Return the execution of an attempt that was entered."""
        return Execution(definition, attempt, self._monotonic())

    def limits(self, run: Reservation, definition: JobDefinition) -> list[Limit]:
        """Return how many runs like this one may go on at once, by its queue and by its kind."""
        limits = [self._queue_limits[run.queue]] if run.queue in self._queue_limits else []
        if definition.max_concurrent:
            limits.append(Limit("job_name", definition.name, definition.max_concurrent))
        return limits

    def attempt(self, run: Reservation, definition: JobDefinition) -> "Attempt":
        """Return the attempt at a run, by the rules of its kind; it is not entered yet."""
        timeout_s = definition.timeout_s
        return self._jobs.attempt(
            run.job_id,
            worker=self._worker,
            deadline_s=None if timeout_s is None else timeout_s + definition.stop_grace_s + DEADLINE_MARGIN_S,
            on_unreadable="raise",
            strict=True,
            limits=self.limits(run, definition),
            if_due=True,
            retry_in=lambda attempt: definition.retry_in(attempt, run.job_id),
            patience=self._patience,
        )

    def _wait_for_slot(self, reservation: Reservation, definition: JobDefinition, busy: Busy) -> None:
        """Have a run that found no slot handed out again, or passed over, or take the place of those that run (behaviour M8)."""
        job_id = reservation.job_id
        policy = "enqueue" if busy.column == "queue" else definition.on_busy
        if policy == "skip":
            self._jobs.skip(job_id, actor=ACTOR, reason=str(busy))
            reservation.ack()
            return
        if policy == "replace":
            for other in self._jobs.runs.running_ids(reservation.job_name):
                self._jobs.cancel(other, actor=ACTOR, reason=f"replaced by job_id={job_id}")
        reservation.ack(busy, delay_s=BUSY_S)

    def handle(self, execution: Execution) -> Ran:
        """Call the handler of a run that was begun; its end is the caller's to record, before long."""
        if not self._may_begin():
            return Ran(ending=execution.attempt.end_given_back())
        self._on_begin(execution)
        error: BaseException | None = None
        value: Any = None  # Any: what the handler returns
        try:
            value = self._call(execution)
        except BaseException as raised:  # noqa: BLE001  # whatever it is, it is recorded
            error = raised
        if not execution.end():
            with suppress(JobEventsError):
                execution.attempt.__exit__(
                    type(error) if error else None, error, None
                )  # refused by the fence, and counted
            return Ran(stays=False)
        return Ran(ending=self._end(execution, error, value))

    def _call(self, execution: Execution) -> Any:
        """Call the handler, and return what it returns (Any); raises what it raises."""
        definition, attempt = execution.definition, execution.attempt
        try:
            params = definition.decode(attempt.params)
        except InvalidValue as error:
            raise UnfitParams(str(error)) from error
        timeout_s = definition.timeout_s
        options: dict[str, Any] = {  # Any: the options of a context
            "deadline": None if timeout_s is None else self._jobs.emitter.clock() + timedelta(seconds=timeout_s),
            "trace": lambda: self._jobs.log.read(attempt.job_id, until=1)[0].trace,
        }
        policy = definition.logs or self._logs
        if not self._is_async(definition):
            execution.log.policy = policy
            execution.context = JobContext(attempt, params, execution.log, execution.is_stopping, **options)
            return self._call_here(execution)
        with self._in_loop() as loop:
            send = loop.send
            execution.log = runlog.RunLog(
                lambda message, **said: send(partial(attempt.log, message, **said)), policy=policy
            )
            execution.context = AioJobContext(
                attempt, params, execution.log, execution.is_stopping, send=send, **options
            )
            try:
                return loop.run(partial(self._call_here, execution), execution.on_task)
            finally:
                loop.drain()

    def _is_async(self, definition: JobDefinition) -> bool:
        """Tell whether the handler is a coroutine function; to find that out costs 5 us each time."""
        known = self._coroutines.get(definition.name)
        if known is None:
            known = self._coroutines[definition.name] = definition.is_async
        return known

    def _call_here(self, execution: Execution) -> Any:
        """Call the handler in this thread; of a coroutine function, that makes the coroutine."""
        runlog.enter(execution.log)
        return execution.definition.handler(execution.context)

    def _end(self, execution: Execution, error: BaseException | None, value: Any = None) -> "Ending":
        """Leave the attempt by what its handler raised or returned (Any: JSON), and return the outcome to record."""
        attempt, why = execution.attempt, execution.why
        self._on_end(execution)
        execution.log.finish(attempt.log, failed=error is not None)
        attempt.tail = execution.log.tail
        meant = error
        if error is not None and not isinstance(error, Abandon | Snooze) and why is not None:
            meant = _as_asked(execution, error)
        if value is not None and execution.context is not None and not execution.context.has_result:
            attempt.result(value)
        return attempt.end_given_back() if meant is None and error is not None else attempt.end(meant)

    def give_up(self, execution: Execution) -> None:
        """Record the end of a handler that does not stop: its thread goes on, and what it comes to is refused.

        Raises:
            JobEventsError: it could not be recorded.
        """
        after = f"did not stop within {execution.definition.stop_grace_s:g} s"
        execution.attempt.log(f"the handler was asked to stop, since {execution.why}; it {after}", level="warn")
        self._jobs.counts.add("handlers_given_up")
        if execution.definition.is_async:
            self.leave_loop()
        if (error := self._end(execution, GivenUp(after)).record()) is not None:
            raise error

    @contextmanager
    def _in_loop(self) -> "Iterator[LoopThread]":
        """Give the event loop; one that was left ends with the last who is in it."""
        from jobevents.asyncloop import LoopThread  # asyncio: only for those who have coroutines

        with self._loop_lock:
            loop = self._loop = self._loop or LoopThread()
            loop.uses += 1
        try:
            yield loop
        finally:
            with self._loop_lock:
                loop.uses -= 1
                is_left = loop is not self._loop and not loop.uses
            if is_left:
                loop.stop()

    def leave_loop(self) -> None:
        """Leave the event loop to what runs in it, which may block it; the next coroutine gets another."""
        with self._loop_lock:
            loop, self._loop = self._loop, None
            is_left = loop is not None and not loop.uses
        if loop is not None and is_left:
            loop.stop()


def _as_asked(execution: Execution, error: BaseException) -> BaseException | None:
    """Return what an error means that ended a handler which was asked to stop; None: its job is to be given back."""
    match execution.why:
        case Stop.CANCEL:
            return Canceled("the job was canceled")
        case Stop.TIMEOUT:
            how = (
                ""
                if isinstance(error, Canceled) or type(error).__name__ == "CancelledError"
                else f": {boundary.describe(error)}"
            )
            timed_out = TimedOut(f"timed out after {execution.definition.timeout_s:g} s{how}")
            timed_out.__cause__ = error
            return timed_out
        case _:
            return None
