"""For tests of jobs: run them in the test's own thread, see what was submitted, and state histories as given, when, then.

drain(jobs, registry)                                 # all that is due, and what that submits
drain(jobs, registry, clock=clock)                    # and what is due later: retries, delays
assert_submitted(jobs, "render", {"song": 7})
given(partial(JobQueued, name="render")).when(lambda jobs, job_id: jobs.cancel(job_id)).then(JobCanceled)
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeAlias

from jobevents.backends.memory import MemoryRecorder
from jobevents.blobs import MemoryBlobs
from jobevents.emit import By, Draft, Emitter
from jobevents.events import Event
from jobevents.execution import Executor
from jobevents.job import QUEUED, Job
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.queue import Reservation
from jobevents.registry import Registry
from jobevents.store import JobRun, RunFilter
from jobevents.testing.clock import Clock

MOST = 1000  # runs of one drain: a job that always submits another would never end

Command: TypeAlias = Callable[[Jobs, str], Any]  # Any: what it returns is of no interest
Expected: TypeAlias = type[Event] | partial[Event]
"""An event's type, or a partial of it with the fields that matter."""


def drain(jobs: Jobs, registry: Registry, *, clock: Clock | None = None, most: int = MOST) -> list[Job]:
    """Run what is due in this thread, as a runner would but for timeouts, until nothing is; return each run's job as it then was.

    Args:
        clock: that of the jobs: it is moved on to what is due later, such as retries, until nothing waits.

    Raises:
        AssertionError: there were more than `most` runs.
    """
    jobs.use(registry)
    executor = Executor(jobs, registry, monotonic=lambda: 0.0)
    done: list[Job] = []
    put_off: set[str] = set()

    def settle(run: JobRun, error: BaseException | None, _: float) -> None:
        if error is not None:  # no slot: nothing else runs here that could free one
            put_off.add(run.id)

    try:
        while (run := _next(jobs, clock, put_off)) is not None:
            if len(done) == most:
                _fail(f"{most} runs and no end; the next one is {run.job_name}: {run.id}")
            executor.execute(Reservation(run, partial(settle, run)))
            done.append(jobs.emitter.load(run.id))
    finally:
        executor.leave_loop()
    return done


def _next(jobs: Jobs, clock: Clock | None, put_off: set[str]) -> JobRun | None:
    """Return the run that is due first, moving the clock to it."""
    queued = jobs.runs.list(RunFilter(statuses=(QUEUED,), per_page=0)).runs
    waiting = [run for run in queued if not run.external and run.id not in put_off]
    now = jobs.emitter.clock()
    due = [run for run in waiting if run.scheduled_at <= now]
    if due:
        return min(due, key=lambda run: (-run.priority, run.scheduled_at, run.id))
    if not waiting or clock is None:
        return None
    first = min(waiting, key=lambda run: (run.scheduled_at, -run.priority, run.id))
    clock.move((first.scheduled_at - now).total_seconds())
    return first


def assert_submitted(
    jobs: Jobs, name: str, params: Mapping[str, Any] | None = None, *, times: int | None = None
) -> list[JobRun]:
    """Return the runs of a kind of job whose params have these values among others, newest first.

    Args:
        times: how many there must be; None: one or more, and 0: none.

    Raises:
        AssertionError: there are not so many; the message shows what was submitted.
    """
    everything = jobs.runs.list(RunFilter(per_page=0)).runs
    found = [run for run in everything if run.job_name == name and _has(run.params, params)]
    shown = "\n".join(f"  {run.job_name} {run.params!r}" for run in everything) or "  nothing"
    wanted = f"{name} with {dict(params)!r}" if params else name
    if not found if times is None else len(found) != times:
        _fail(f"{wanted}: found {len(found)}, not {'any' if times is None else times}; submitted were\n{shown}")
    return found


def _has(params: Any, wanted: Mapping[str, Any] | None) -> bool:
    if not wanted:
        return True
    return isinstance(params, dict) and all(key in params and params[key] == value for key, value in wanted.items())


def given(*events: Draft, job_id: str = "job-1", clock: Clock | None = None) -> "Given":
    """Return a job with this history, each event its type or a partial of it, in a log of its own.

    Raises:
        IllegalTransition: it is no history that a job can have.
    """
    recorder = MemoryRecorder()
    emitter = Emitter(EventLog(recorder, recorder.translate), clock=clock or Clock())
    jobs = Jobs(emitter, runs=recorder.runs, run_logs=recorder.run_logs, blobs=MemoryBlobs(), leases=recorder.leases)
    for event in events:
        emitter.change(job_id, lambda _, event=event: [event], By())  # type: ignore[misc]  # mypy: no defaults of lambdas
    return Given(jobs, job_id)


class Given:
    """A job with a history."""

    def __init__(self, jobs: Jobs, job_id: str) -> None:
        self.jobs = jobs
        self.job_id = job_id

    def when(self, command: Command) -> "When":
        """Do something with the jobs and this job's id; what it raises is kept for `raises`."""
        before = self.jobs.emitter.load(self.job_id).version
        error: Exception | None = None
        try:
            command(self.jobs, self.job_id)
        except Exception as raised:  # noqa: BLE001  # it is what `raises` is asked about, and `then` raises it
            error = raised
        events = self.jobs.log.read(self.job_id, after=before)
        return When(events, error)


class When:
    """What came of a command."""

    def __init__(self, events: list[Event], error: Exception | None) -> None:
        self.events = events
        self.error = error

    def then(self, *expected: Expected) -> list[Event]:
        """Return the events that were appended, if they are these: of a partial, the fields that it has.

        Raises:
            AssertionError: they are others. Whatever the command raised.
        """
        if self.error is not None:
            raise self.error
        wanted = [one if isinstance(one, partial) else partial(one) for one in expected]
        if [one.func for one in wanted] != [type(event) for event in self.events]:
            _fail(f"expected {[_name(one) for one in wanted]}, found {[event.type for event in self.events]}")
        for one, event in zip(wanted, self.events, strict=True):
            found = {key: getattr(event, key) for key in one.keywords}
            if found != one.keywords:
                _fail(f"{event.type} has {found}, not {one.keywords}")
        return self.events

    def raises(self, error: type[Exception]) -> Exception:
        """Return what the command raised, if it is such an error and nothing was appended.

        Raises:
            AssertionError: it is not.
        """
        if not isinstance(self.error, error) or self.events:
            _fail(f"expected {error.__name__}, found {self.error!r} and {[event.type for event in self.events]}")
        return self.error


def _name(one: "partial[Event]") -> str:
    return getattr(one.func, "__name__", str(one.func))


def _fail(message: str) -> NoReturn:
    raise AssertionError(message)
