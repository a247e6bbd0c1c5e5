"""The attempts of a job, from its events: when each began, who worked, how it ended. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from jobevents.events import (
    CancelRequested,
    Event,
    JobCanceled,
    JobFailed,
    JobProgressed,
    JobRecorded,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import RUNNING

_MS = timedelta(milliseconds=1)


class Start(msgspec.Struct, kw_only=True):
    """One start of a job, and what came of it."""

    start: int  # version of its JobStarted
    attempt: int  # number of the try
    worker: str  # identity of the worker process
    started_at: datetime
    deadline: datetime | None = None  # after this it may be taken for lost
    late: bool = False  # recorded after work that ran ungranted
    ended_at: datetime | None = None  # None: it has not ended, as far as the log knows
    duration_ms: int | None = None  # from its start to its end; None: it has not ended
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
    """Return the starts, the newest first."""
    found: dict[int, Start] = {}
    current: Start | None = None
    for event in events:
        if isinstance(event, JobStarted):
            _end(current, event)
            current = found[event.version] = Start(
                start=event.version,
                attempt=event.attempt,
                worker=event.worker,
                started_at=event.at,
                deadline=event.deadline,
                late=event.late,
            )
            continue
        of = found.get(getattr(event, "start", 0))
        if isinstance(event, TransitionRefused):
            if of is not None:
                of.refused = event.tried
        elif current is not None:
            current = _follow(current, event)
    return sorted(found.values(), key=lambda one: one.start, reverse=True)


def _follow(current: Start, event: Event) -> Start | None:
    """Take notice of an event while a start goes on; None when that ends with it."""
    match event:
        case JobProgressed():
            current.progress, current.progress_message = event.percent, event.message
        case CancelRequested():
            current.cancel_requested_at = current.cancel_requested_at or event.at
        case JobFailed():
            current.error, current.error_kind, current.traceback = event.error, event.kind, event.traceback
            current.retry_at = event.retry_at
            _end(current, event)
            return None
        case JobRequeued():
            current.cause = event.cause
            _end(current, event)
            return None
        case JobSucceeded() | JobCanceled():
            _end(current, event)
            return None
        case JobRecorded() if event.state != RUNNING:
            current.error = str(event.changes.get("error") or "")
            _end(current, event)
            return None
    return current


def _end(current: Start | None, event: Event) -> None:
    """Note when and by what a start ended."""
    if current is not None:
        current.ended_at, current.ended_by = event.at, event.type
        current.duration_ms = max(0, (event.at - current.started_at) // _MS)
