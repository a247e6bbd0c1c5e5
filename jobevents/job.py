"""The job: TRANSITIONS says what may follow what, `check` refuses the rest, `fold` makes the state. Pure; no I/O, no clock."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from jobevents.assertions import RunError, assert_record, assert_run
from jobevents.errors import Corrupt, IllegalTransition
from jobevents.events import (
    CancelRequested,
    Cause,
    Event,
    JobAnnotated,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobImported,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.status import State, format_time

NEW = "(new)"  # no event yet; in brackets, since a record may assert any text as its state (behaviour S5.2)
DELETED = "(deleted)"  # after the tombstone
SAME = "(same)"  # the event leaves the state as it is
ASSERTED = "(asserted)"  # the event names the state itself

QUEUED, RUNNING, SUCCEEDED = State.QUEUED.value, State.RUNNING.value, State.SUCCEEDED.value
FAILED, CANCELED, SKIPPED = State.FAILED.value, State.CANCELED.value, State.SKIPPED.value

_ANYTIME: dict[type[Event], tuple[str, ...]] = {
    JobAnnotated: (SAME,),
    TransitionRefused: (SAME,),
    JobDeleted: (DELETED,),
}

TRANSITIONS: Mapping[str, Mapping[type[Event], tuple[str, ...]]] = {
    NEW: {JobQueued: (QUEUED,), JobStarted: (RUNNING,), JobRecorded: (ASSERTED,), JobImported: (ASSERTED,)},
    QUEUED: {
        JobStarted: (RUNNING,),
        JobFailed: (FAILED,),
        JobRequeued: (QUEUED,),
        CancelRequested: (SAME,),
        JobCanceled: (CANCELED,),
        JobSkipped: (SKIPPED,),
        JobRecorded: (ASSERTED,),
        **_ANYTIME,
    },
    RUNNING: {
        JobProgressed: (SAME,),
        JobSucceeded: (SUCCEEDED,),
        JobFailed: (FAILED, QUEUED),
        JobRequeued: (QUEUED,),
        CancelRequested: (SAME,),
        JobCanceled: (CANCELED,),
        JobRecorded: (ASSERTED,),
        **_ANYTIME,
    },
    SUCCEEDED: {JobRequeued: (QUEUED,), JobRecorded: (SAME,), **_ANYTIME},
    FAILED: {JobStarted: (RUNNING,), JobRequeued: (QUEUED,), JobRecorded: (ASSERTED,), **_ANYTIME},
    CANCELED: {JobRequeued: (QUEUED,), JobRecorded: (SAME,), **_ANYTIME},
    SKIPPED: {JobStarted: (RUNNING,), JobRequeued: (QUEUED,), JobRecorded: (ASSERTED,), **_ANYTIME},
    DELETED: {},
}
"""State -> event -> the states it may lead to. A state of open text (behaviour S5.2) allows what `failed` allows."""

CAUSES: Mapping[str, frozenset[Cause]] = {
    QUEUED: frozenset({"retry"}),
    RUNNING: frozenset({"shutdown", "lost", "snooze"}),
    SUCCEEDED: frozenset({"rerun"}),
    FAILED: frozenset({"retry", "rerun"}),
    CANCELED: frozenset({"rerun"}),
    SKIPPED: frozenset({"retry", "rerun"}),
}
"""State -> the causes with which JobRequeued may leave it; only a rerun leaves `succeeded` or `canceled`."""

FENCED: frozenset[type[Event]] = frozenset(
    {JobProgressed, JobSucceeded, JobFailed, JobRequeued, JobCanceled, JobAnnotated}
)
"""Events that carry `start`: from a running job only the current start's are applied."""


class Job(msgspec.Struct, omit_defaults=True, gc=False):
    """All that is known of one job: the fold of its events."""

    job_id: str
    version: int = 0  # version of the last event folded in
    chain: str = ""  # its chain hash
    state: str = NEW
    name: str = ""  # which kind of job
    title: str = ""
    queue: str = "default"
    key: str = ""  # idempotency key
    params: Any = None
    priority: int = 0
    max_attempts: int = 1
    external: bool = False  # delivered by the user's own task queue
    trigger: str = "manual"
    triggered_by: str = ""  # who queued it
    replay_of: str = ""
    root_id: str = ""
    created_at: datetime | None = None  # when the first event was written
    scheduled_at: datetime | None = None  # not to be started before
    started_at: datetime | None = None  # of the current or last attempt
    finished_at: datetime | None = None  # None until final
    queued_at: str = ""  # RFC 3339 text, kept as it was first given
    updated_at: str = ""  # RFC 3339 text, of the last event that changed anything
    start: int = 0  # version of the current or last JobStarted: the fence
    starts: int = 0  # how often it was started: the status's `attempts`
    attempt: int = 0  # number of the current or last try
    tries: int = 0  # tries used up; the next start is number tries + 1
    worker: str = ""  # identity of the worker of the current or last attempt
    deadline: datetime | None = None  # of the current attempt
    progress: int | float | None = None
    progress_message: str = ""
    result: Any = None
    error: str = ""
    error_kind: str = ""
    fields: dict[str, Any] = {}  # service fields, in the order they were first annotated
    cancel_requested_at: datetime | None = None
    canceled_by: str = ""
    cancel_reason: str = ""
    refused: list[int] = []  # starts whose late outcome was recorded as refused
    said_to_run: bool = False  # its current start was asserted: no lease tells whether its worker lives
    run_error: RunError | None = None  # the error as it was asserted, when `error` and `error_kind` are not all of it
    duration_ms: int | None = None  # as it was asserted; None: counted
    capture_logs: str = ""  # as it was asserted: off, failure or always

    def is_final(self) -> bool:
        """Tell whether the runner is done with it: succeeded, failed, canceled or skipped."""
        return self.state in FINAL

    def is_current(self, start: int) -> bool:
        """Tell whether `start` is the attempt that runs the job now."""
        return self.state == RUNNING and start == self.start


FINAL = frozenset({SUCCEEDED, FAILED, CANCELED, SKIPPED})


def allowed(state: str) -> Mapping[type[Event], tuple[str, ...]]:
    """Return what may follow in `state`: a row of TRANSITIONS."""
    return TRANSITIONS.get(state) or (TRANSITIONS[DELETED] if state == DELETED else TRANSITIONS[FAILED])


def check(job: Job, event: Event) -> None:
    """Refuse an event that may not follow what `job` has been through.

    Raises:
        IllegalTransition: with what was tried, in which state, by which start, and what is allowed.
    """
    row = allowed(job.state)
    targets = row.get(type(event))
    start: int = getattr(event, "start", 0) if type(event) in FENCED else 0
    if targets is None or not _fits(job, event, start, targets):
        raise IllegalTransition(
            _tried(event),
            job_id=job.job_id,
            state=job.state,
            allowed=tuple(edge(cls, job.state) for cls in row),
            start=start,
            current=job.start,
        )


def _fits(job: Job, event: Event, start: int, targets: tuple[str, ...]) -> bool:
    """Tell whether an event of the row is one for this very job: its start, its cause, the state it asserts."""
    if start and not job.is_current(start):
        return False
    match event:
        case JobRequeued():
            asked = event.cause in ("retry", "rerun")
            return event.cause in CAUSES.get(job.state, CAUSES[FAILED]) and bool(start) != asked
        case JobProgressed() | JobSucceeded():
            return bool(start)
        case JobFailed() | JobCanceled():
            may_wait = not isinstance(event, JobFailed) or event.retry_at is None or QUEUED in targets
            return may_wait and bool(start) == (job.state == RUNNING)
        case JobRecorded() | JobImported():
            return event.state not in (NEW, DELETED) and (targets != (SAME,) or event.state == job.state)
        case _:
            return True


def _tried(event: Event) -> str:
    return f"{event.type}({event.cause})" if isinstance(event, JobRequeued) else event.type


def fold(events: Iterable[Event], job: Job | None = None, *, job_id: str = "") -> Job:
    """Return the job after `events`; `job` itself is left as it was.

    Events that are folded in already (their version is not above the job's) are passed over, so that a doubled delivery
    changes nothing. Legality is `check`'s business, before an append: what is in the log is a fact.

    Raises:
        Corrupt: when a version is missing between the job and an event that is no tombstone.
    """
    folded = Job(job_id=job_id) if job is None else msgspec.structs.replace(job)
    touched: datetime | None = None
    for event in events:
        if event.version != folded.version + 1:
            if event.version <= folded.version:
                continue
            if type(event) is not JobDeleted:  # what is below that one may have been erased, and does not matter
                raise Corrupt(
                    f"hole in the history job_id={event.job_id} expected version={folded.version + 1} found={event.version}"
                )
        cls = type(event)
        _APPLY[cls](folded, event)
        folded.version = event.version
        folded.chain = event.chain
        if cls is not TransitionRefused:
            touched = None if cls in _TELLING and _tells_when(event) else event.at
        if event.version == 1:
            folded.job_id = event.job_id
            folded.created_at = folded.created_at or event.at  # unless it was asserted
    if touched is not None:
        folded.updated_at = format_time(touched)
    return folded


_TELLING = frozenset({JobRecorded, JobImported})


def _tells_when(event: Event) -> bool:
    """Tell whether an event of these types says itself when the job last changed."""
    return isinstance(event, JobImported) or (
        isinstance(event, JobRecorded) and event.run is not None and event.run.updated_at is not UNSET
    )


def _queued(job: Job, event: JobQueued) -> None:
    job.state = QUEUED
    job.name, job.title, job.queue, job.key = event.name, event.title, event.queue, event.key
    job.params, job.priority, job.max_attempts = event.params, event.priority, event.max_attempts
    job.external, job.trigger, job.triggered_by = event.external, event.trigger, event.actor
    job.replay_of, job.root_id = event.replay_of, event.root_id or event.job_id
    job.scheduled_at = event.scheduled_at or event.at
    job.queued_at = format_time(event.at)


def _started(job: Job, event: JobStarted) -> None:
    if job.state == NEW:  # nobody queued it: a task of the user's queue brought it
        job.external, job.root_id = True, event.job_id
    _leave_final(job)
    job.state = RUNNING
    job.start, job.worker, job.deadline = event.version, event.worker, event.deadline
    job.attempt = event.attempt
    job.starts += 1
    job.started_at, job.finished_at = event.at, None
    job.progress, job.progress_message = None, ""
    job.result, job.duration_ms = None, None
    job.said_to_run = False
    _say_error(job, "", "")


def _progressed(job: Job, event: JobProgressed) -> None:
    job.progress, job.progress_message = event.percent, event.message


def _annotated(job: Job, event: JobAnnotated) -> None:
    job.title = event.title or job.title
    job.name = event.command or job.name
    if event.fields:
        job.fields = {**job.fields, **event.fields}


def _finish(job: Job, state: str, event: Event) -> None:
    job.state, job.finished_at, job.deadline, job.duration_ms = state, event.at, None, None


def _say_error(job: Job, error: str, kind: str) -> None:
    job.error, job.error_kind, job.run_error = error, kind, None


def _succeeded(job: Job, event: JobSucceeded) -> None:
    _finish(job, SUCCEEDED, event)
    job.tries, job.result = job.attempt, event.result
    if job.progress == 0:
        job.progress = 100  # behaviour M7
    _say_error(job, "", "")


def _failed(job: Job, event: JobFailed) -> None:
    job.tries = job.attempt
    if event.retry_at is None:
        _finish(job, FAILED, event)
    else:
        _wait(job, event.retry_at)
    _say_error(job, event.error, event.kind)
    if event.tail:
        job.run_error = RunError(code=event.kind, message=event.error, tail=list(event.tail))


def _wait(job: Job, due: datetime) -> None:
    job.state, job.scheduled_at, job.finished_at, job.deadline = QUEUED, due, None, None
    job.duration_ms = None


def _leave_final(job: Job) -> None:
    """Give up the idempotency key for good: the end released it, and somebody else may hold it now (IDE-07)."""
    if job.is_final():
        job.key = ""


def _requeued(job: Job, event: JobRequeued) -> None:
    _leave_final(job)
    _wait(job, event.scheduled_at or event.at)
    if event.cause == "rerun":
        job.tries = job.attempt = 0
        job.result = None
        _say_error(job, "", "")
    elif event.cause == "lost":
        job.tries = job.attempt
    elif event.cause in ("shutdown", "snooze"):  # the try is handed back
        job.tries = job.attempt - 1
    if event.cause in ("rerun", "retry"):
        job.cancel_requested_at, job.canceled_by, job.cancel_reason = None, "", ""


def _cancel_requested(job: Job, event: Event) -> None:
    if job.cancel_requested_at is None:  # the first who and why are kept (CAN-04)
        job.cancel_requested_at, job.canceled_by, job.cancel_reason = event.at, event.actor, event.reason


def _canceled(job: Job, event: JobCanceled) -> None:
    _cancel_requested(job, event)
    _finish(job, CANCELED, event)


def _skipped(job: Job, event: JobSkipped) -> None:
    _finish(job, SKIPPED, event)
    _say_error(job, event.reason, "SKIPPED")  # behaviour M8
    if not event.reason:
        job.run_error = RunError(code="SKIPPED", message="")


def _refused(job: Job, event: TransitionRefused) -> None:
    if event.start not in job.refused:
        job.refused = [*job.refused, event.start]


def _recorded(job: Job, event: JobRecorded) -> None:
    _assert_state(job, event.state, event)
    assert_record(job, event.changes)
    if event.run is not None:
        assert_run(job, event.run, waits=job.state == QUEUED)


def _imported(job: Job, event: JobImported) -> None:
    job.external, job.root_id = True, event.job_id
    _assert_state(job, event.state, event)
    assert_record(job, event.record)


def _assert_state(job: Job, state: str, event: Event) -> None:
    if job.state == NEW:
        job.external, job.root_id = True, event.job_id
    if state == job.state:
        return
    _leave_final(job)
    if job.state == RUNNING:  # an asserted end is an end: the try is used up
        job.tries = job.attempt
    job.finished_at = event.at if state in FINAL else None
    job.deadline, job.state, job.duration_ms = None, state, None
    if state == RUNNING:  # an asserted start is a start: it fences like one
        job.start, job.worker, job.attempt = event.version, "", job.tries + 1  # who wrote it down need not work
        job.starts += 1
        job.started_at = event.at
        job.said_to_run = True


def _deleted(job: Job, event: JobDeleted) -> None:
    """Keep nothing of the job but that it was there (personal data goes with it)."""
    blank = Job(job_id=job.job_id, created_at=job.created_at, refused=job.refused, start=job.start)
    for field in msgspec.structs.fields(Job):
        setattr(job, field.name, getattr(blank, field.name))
    job.state = DELETED


_APPLY: Mapping[type[Event], Callable[[Job, Any], None]] = {
    JobQueued: _queued,
    JobStarted: _started,
    JobProgressed: _progressed,
    JobAnnotated: _annotated,
    JobSucceeded: _succeeded,
    JobFailed: _failed,
    JobRequeued: _requeued,
    CancelRequested: _cancel_requested,
    JobCanceled: _canceled,
    JobSkipped: _skipped,
    TransitionRefused: _refused,
    JobRecorded: _recorded,
    JobImported: _imported,
    JobDeleted: _deleted,
}


def due_at(job: Job) -> datetime:
    """Return when a queued job may be started: aware UTC."""
    return job.scheduled_at or job.created_at or datetime.fromtimestamp(0, UTC)


def edge(cls: type[Event], state: str) -> str:
    """Return how an event that may follow in a state is named to people: with the causes that it may have there."""
    causes = CAUSES.get(state, CAUSES[FAILED])
    return f"JobRequeued({' or '.join(sorted(causes))})" if cls is JobRequeued else cls.__name__
