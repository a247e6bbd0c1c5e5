"""A run: the current state of a job as one row that people list, query and join, and the log lines beside it.

`run_of` makes a row from a folded job. RunTable and LogTable are what the write side and the command line need of the
place where rows and lines live: in memory, or two tables of a SQL database. JobStore is the port of the runner.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, overload

import msgspec

from jobevents.assertions import RunError as RunError  # part of a run
from jobevents.boundary import check_instant
from jobevents.errors import InvalidValue
from jobevents.job import FINAL, QUEUED, RUNNING, SUCCEEDED, Job, due_at
from jobevents.times import to_datetime

NEVER = datetime(1, 1, 1, tzinfo=UTC)  # what a record says where there is no time (behaviour S5)


def _always(
    value: Any,
) -> Any:  # Any: a field's default, of the field's type; a factory's value is never left out of the JSON
    return msgspec.field(default_factory=lambda: value)


class JobRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job as it is now; as JSON, the keys of behaviour M2 in their order, empty ones left out as it says, then our own."""

    id: str  # the job id
    job_name: str  # which kind of job
    queue: str = _always("default")  # which queue hands it out
    params: Any = None  # JSON value given to the handler
    status: str = _always(QUEUED)  # one of the six states, or the open text that a record asserted
    trigger: str = _always("manual")  # schedule, manual, retry, replay or event (behaviour M1)
    triggered_by: str = ""  # who asked for it
    idem_key: str = ""  # one unfinished run for a name and key
    attempt: int = _always(1)  # the current or last try; of a queued run, the next one
    max_attempts: int = _always(1)  # tries before it stays failed
    scheduled_at: datetime = _always(NEVER)  # not to be started before
    started_at: datetime | None = None  # of the current or last attempt
    finished_at: datetime | None = None  # None until final
    duration_ms: int = _always(0)  # from started_at to finished_at, 0 until final
    progress: int | float = _always(0)  # 0 to 100
    progress_message: str = ""  # what it is doing
    result: Any = None  # JSON value
    error: RunError | None = None  # of the last failed attempt
    worker_id: str = ""  # worker of the current or last attempt
    capture_logs: str = ""  # off, failure or always; "" leaves it to the job
    cancel_requested_at: datetime | None = None  # when somebody first asked for it to stop
    canceled_by: str = ""  # who asked
    cancel_reason: str = ""  # why
    replay_of: str = ""  # the run that this is a new run of
    root_id: str = ""  # first of a chain of replays
    created_at: datetime = _always(NEVER)  # when its first event was written
    updated_at: datetime = _always(NEVER)  # when its last event that changed anything was
    priority: int = 0  # higher goes first
    external: bool = False  # delivered by the user's own task queue: not to be handed out by ours

    def is_final(self) -> bool:
        """Tell whether it has finished: succeeded, failed, canceled or skipped."""
        return self.status in FINAL


class JobLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a run's log."""

    run_id: str  # the job id
    seq: int  # place in the run's log, ascending across attempts
    attempt: int  # which try wrote it
    at: datetime  # aware UTC, the worker's clock
    level: str  # debug, info, warn or error
    message: str  # the line
    attrs: dict[str, Any] = {}  # structured details


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list; what is empty does not restrict."""

    job: str = ""  # kind of job
    statuses: tuple[str, ...] = ()  # any of these
    trigger: str = ""
    queue: str = ""
    from_: datetime | None = None  # created then or later
    to: datetime | None = None  # created then or earlier
    prefix: str = ""  # what the job id begins with
    page: int = 1  # 1-based; below 1 is 1, past the end is empty
    per_page: int = 50  # 0 or less: all on one page


class RunPage(msgspec.Struct, frozen=True):
    """One page of a list of runs."""

    runs: list[JobRun]  # newest first
    total: int  # of all pages
    page: int  # 1-based
    per_page: int  # 0: all


class Held(NamedTuple):
    """A running job and who holds it: what the reaper looks at."""

    job_id: str
    worker: str  # identity of the worker; "" when a record said that it runs
    start: int  # version of its JobStarted
    is_overdue: bool  # its deadline has passed


class Undelivered(NamedTuple):
    """A job that may wait for a task queue of the user's: what a dispatcher looks at."""

    job_id: str
    due: datetime | None  # when it may be started; None: see its log


class RunTable(Protocol):
    """The rows, one for each job that is not deleted, as of the last committed event. Each call is one read."""

    def get(self, job_id: str) -> JobRun | None:
        """Return the row; None when there is no such job, or it was deleted."""
        ...

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page and the count of all: newest first by `ids.sort_key`, ids without one last, then by id descending."""
        ...

    def find_active(self, name: str, key: str) -> str | None:
        """Return the id of the unfinished job that holds an idempotency key; None for the empty key (behaviour T18)."""
        ...

    def running_ids(self, name: str) -> Sequence[str]:
        """Return the ids of the running jobs of a kind, sorted (behaviour T19)."""
        ...

    def running(self, *, after: str, limit: int, now: datetime) -> Sequence[Held]:
        """Return the next running jobs of all kinds, by id, after the id `after`; reads nothing that could be undecodable."""
        ...

    def undelivered(self, *, after: str, limit: int, due: datetime) -> Sequence[Undelivered]:
        """Return the next queued external jobs that are due by then, by id, after the id `after`.

        A log without rows may give others, too: whoever dispatches looks at each.
        """
        ...


class LogTable(Protocol):
    """The log lines of runs."""

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store all lines or none; no lines are a no-op.

        A (run, seq) that is there already is left as it is, so that a repeated call changes nothing; lines of a deleted
        job are dropped.
        """
        ...

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Return lines with a higher seq, ascending across attempts; a limit of 0 or less is all (behaviour T23)."""
        ...


class Cutoffs(NamedTuple):
    """What is old enough to be purged."""

    runs_before: datetime  # runs that finished before it
    logs_before: datetime  # log lines written before it


NO_CUTOFFS: Mapping[str, Cutoffs] = {}


class JobStore(Protocol):
    """Runs, their logs and cancel requests. Safe for threads; any method may raise Unavailable or PermissionDenied."""

    def create(self, run: JobRun) -> None:
        """Store a new run as it is given; a time that is NEVER is now, an empty `root_id` its own id.

        Raises:
            Conflict: there is a run with this id, or there was one. KeyTaken: an unfinished run holds its key.
            InvalidValue: something cannot be stored.
        """
        ...

    def update(self, run: JobRun) -> None:
        """Store the full state of a run but for its three cancel fields; `updated_at` is set to now.

        The worker's copy may be older than a request to cancel, which it must not undo.

        Raises:
            NotFound: there is no such run.
            IllegalTransition: its state may not change so. KeyTaken: an unfinished run holds its key.
            InvalidValue: something cannot be stored.
        """
        ...

    def get(self, run_id: str) -> JobRun:
        """Return a run.

        Raises:
            NotFound: there is no such run.
        """
        ...

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page of the runs that match and the count of all: newest first, equals by id descending."""
        ...

    def find_active(self, job: str, key: str) -> JobRun | None:
        """Return the unfinished run that holds an idempotency key, never a finished one; None for the empty key."""
        ...

    def running_ids(self, job: str) -> Sequence[str]:
        """Return the ids of the running runs of a kind, sorted."""
        ...

    def request_cancel(self, run_id: str, by: str, reason: str) -> None:
        """Record when, who and why a run should stop: the first request counts, and a finished run is left as it is.

        Raises:
            NotFound: there is no such run.
        """
        ...

    def is_cancel_requested(self, run_id: str) -> bool:
        """Tell whether somebody asked for a run to stop.

        Raises:
            NotFound: there is no such run.
        """
        ...

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store all lines or none; no lines are a no-op, and a line that is there already stays as it is."""
        ...

    def logs(self, run_id: str, after_seq: int = 0, limit: int = 0) -> "Sequence[JobLog]":
        """Return a run's lines with a higher seq, ascending across attempts; a limit of 0 or less is all."""
        ...

    def purge(self, runs_before: datetime, logs_before: datetime, *, but: "Mapping[str, Cutoffs]" = NO_CUTOFFS) -> int:
        """Remove the runs that finished before a time, and old log lines; return how many runs. Unfinished runs stay whole.

        In batches: after a crash, do it again.

        Args:
            but: kind of job -> its own cutoffs.
        """
        ...

    def close(self) -> None:
        """Release what the store holds; any number of times."""
        ...


class Cutoff(NamedTuple):
    """Before which time something is old."""

    before: datetime  # aware UTC
    but: Mapping[str, datetime] = {}  # kind of job -> the time for jobs of this kind

    def of(self, job: str) -> datetime:
        """Return the time for a kind of job."""
        return self.but.get(job, self.before)


class Retention(Protocol):
    """What of a log's tables is old, found and removed a piece at a time. Each call is one read, or one transaction."""

    def finished(self, cutoff: Cutoff, *, after: str, limit: int) -> Sequence[str]:
        """Return the next old runs, by when they finished: in the order of their ids, after the id `after`."""
        ...

    def drop_lines(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        """Look at the next `limit` lines by (run, seq), and remove the old ones but for those of unfinished runs.

        Returns the last place looked at, None at the end. Lines that no run is there for are old before `cutoff.before`.
        """
        ...


def run_of(job: Job) -> JobRun:
    """Return the row of a job: its try is the current one, or the next one while it is queued; its times are UTC."""
    return JobRun(
        id=job.job_id,
        job_name=job.name,
        queue=job.queue,
        params=job.params,
        status=job.state,
        trigger=job.trigger,
        triggered_by=job.triggered_by,
        idem_key=job.key,
        attempt=current_attempt(job),
        max_attempts=job.max_attempts,
        scheduled_at=_utc(due_at(job)),
        started_at=_utc(job.started_at),
        finished_at=_utc(job.finished_at),
        duration_ms=duration_ms(job),
        progress=progress_of(job),
        progress_message=job.progress_message,
        result=job.result,
        error=error_of(job),
        worker_id=job.worker,
        capture_logs=job.capture_logs,
        cancel_requested_at=_utc(job.cancel_requested_at),
        canceled_by=job.canceled_by,
        cancel_reason=job.cancel_reason,
        replay_of=job.replay_of,
        root_id=job.root_id,
        created_at=_utc(job.created_at or NEVER),
        updated_at=updated_at(job),
        priority=job.priority,
        external=job.external,
    )


def own_run_of(job: Job) -> JobRun:
    """Return a run with which the caller may do as it likes, as with one that was read from a database."""
    run = run_of(job)
    own = {
        name: msgspec.json.decode(msgspec.json.encode(value))
        for name in ("params", "result")
        if (value := getattr(run, name)) is not None
    }
    return msgspec.structs.replace(run, **own) if own else run


def is_overdue(job: Job, now: datetime) -> bool:
    """Tell whether the attempt under way may be taken for lost, since its deadline has passed."""
    return job.state == RUNNING and job.deadline is not None and job.deadline <= now


def current_attempt(job: Job) -> int:
    """Return the number of the try that a row shows."""
    return job.tries + 1 if job.state == QUEUED else job.attempt


def error_of(job: Job) -> RunError | None:
    """Return why the last attempt failed, or the job was passed over; None when it was not."""
    return job.run_error or (RunError(code=job.error_kind, message=job.error) if job.error else None)


def progress_of(job: Job) -> int | float:
    """Return how far the job is, 0 to 100; one that succeeded without a word about it is done (behaviour M7)."""
    if job.progress is not None:
        return job.progress
    return 100 if job.state == SUCCEEDED else 0


def duration_ms(job: Job) -> int:
    """Return how long the last attempt took, in whole milliseconds; 0 while it is not final, never negative."""
    if job.duration_ms is not None:
        return job.duration_ms
    if job.started_at is None or job.finished_at is None:
        return 0
    return max(0, int((job.finished_at - job.started_at).total_seconds() * 1000))


def updated_at(job: Job) -> datetime:
    """Return when the job last changed; NEVER when a record said something that is no time."""
    try:
        return to_datetime(job.updated_at)
    except InvalidValue:
        return NEVER


@overload
def _utc(when: datetime) -> datetime: ...
@overload
def _utc(when: datetime | None) -> datetime | None: ...
def _utc(when: datetime | None) -> datetime | None:
    return when if when is None or when.tzinfo is UTC else check_instant("time", when)
