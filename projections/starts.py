"""The starts of a job, from its events: since when each was due, when it began, who worked, how it ended. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from jobevents.events import (
    CancelRequested,
    Event,
    JobAnnotated,
    JobFailed,
    JobProgressed,
    JobRecorded,
    JobRequeued,
    JobStarted,
    TransitionRefused,
)
from jobevents.job import RUNNING, Job, due_at, fold

_MS = timedelta(milliseconds=1)
_GO_ON = (JobProgressed, JobAnnotated, CancelRequested, TransitionRefused)  # neither begin a start nor end one


class Start(msgspec.Struct, kw_only=True):
    """One start of a job, and what came of it."""

    start: int  # version of its JobStarted, or of the record that asserted it
    attempt: int  # number of the try
    name: str = ""  # kind of the job
    queue: str = ""
    worker: str = ""  # identity of the worker process
    due_at: datetime | None = None  # when it could have been started; None for what nobody queued
    started_at: datetime
    deadline: datetime | None = None  # after this it may be taken for lost
    late: bool = False  # recorded after work that ran ungranted
    ended_at: datetime | None = None  # None: it has not ended, as far as the log knows
    waited_ms: int | None = None  # from due to started
    duration_ms: int | None = None  # from its start to its end; None: it has not ended
    outcome: str = (
        RUNNING  # succeeded, failed, retried, canceled, lost, shutdown, snooze, deleted, or an asserted state
    )
    ended_by: str = ""  # type of the event that ended it
    cause: str = ""  # of a JobRequeued: shutdown, lost, snooze
    error: str = ""  # what went wrong
    error_kind: str = ""  # class name of the exception
    traceback: str = ""  # start and end of the traceback
    retry_at: datetime | None = None  # when the next try was due
    progress: int | float | None = None  # the last it said
    progress_message: str = ""
    cancel_requested_at: datetime | None = None  # when somebody first asked for it to stop
    refused: str = ""  # type of an event of it that came too late


def starts_of(events: Iterable[Event]) -> list[Start]:
    """Return the starts in a job's history, the oldest first."""
    found: dict[int, Start] = {}
    current: Start | None = None
    job = Job(job_id="")
    waiting: list[Event] = []  # to be folded: one fold for several
    for event in events:
        waiting.append(event)
        if isinstance(event, _GO_ON):
            _note(event, current, found)
            continue
        before, job = job, fold(waiting, job)
        waiting.clear()
        if current is not None and not job.is_current(current.start):
            _end(current, event, job)
            current = None
        if job.state == RUNNING and job.start == event.version:
            current = found[job.start] = _began(before, job, event)
    if current is not None:
        current.name = fold(waiting, job).name or current.name
    return list(found.values())


def _began(before: Job, job: Job, event: Event) -> Start:
    due = due_at(before) if before.version else None
    return Start(
        start=job.start,
        attempt=job.attempt,
        name=job.name,
        queue=job.queue,
        worker=job.worker,
        due_at=due,
        started_at=event.at,
        deadline=job.deadline,
        late=isinstance(event, JobStarted) and event.late,
        waited_ms=None if due is None else max(0, (event.at - due) // _MS),
    )


def _note(event: Event, current: Start | None, found: dict[int, Start]) -> None:
    """Take notice of what neither begins a start nor ends one."""
    match event:
        case TransitionRefused():
            late = found.get(event.start)
            if late is not None:
                late.refused = event.tried
        case JobProgressed() if current is not None:
            current.progress, current.progress_message = event.percent, event.message
        case CancelRequested() if current is not None:
            current.cancel_requested_at = current.cancel_requested_at or event.at


def _end(one: Start, event: Event, job: Job) -> None:
    """Note when, by what and how a start ended."""
    one.ended_at, one.ended_by = event.at, event.type
    one.duration_ms = max(0, (event.at - one.started_at) // _MS)
    one.outcome = job.state.strip("()")
    one.name = job.name or one.name
    match event:
        case JobFailed():
            one.outcome = "failed" if event.retry_at is None else "retried"
            one.error, one.error_kind, one.traceback = event.error, event.kind, event.traceback
            one.retry_at = event.retry_at
        case JobRequeued():
            one.outcome = one.cause = event.cause
        case JobRecorded():
            one.error = job.error
        case JobStarted():  # nobody said how the one before it ended
            one.outcome = "lost"
