"""The events of a job as the rows of a table. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents.events import (
    Event,
    JobAnnotated,
    JobDeleted,
    JobFailed,
    JobImported,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import Job, fold
from projections.api.shapes import Unreadable
from projections.ui.words import between, json_text, one_line

SHOWN: Final = 300  # rows of a table that nobody asked to have whole


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One event, or several progress reports that follow each other."""

    version: int  # of the last of them
    first: int  # of the first
    type: str
    at: datetime | None  # None: not known, as it cannot be read
    after_ms: float | None = None  # since the event before; None for the first
    is_back: bool = False  # the clock of who wrote it was behind that of the event before
    attempt: int = 0
    worker: str = ""
    actor: str = ""
    reason: str = ""
    trace: str = ""
    detail: str = ""  # what else it says, on a line
    state: str = ""  # of the job after it
    changed: bool = False  # the state is another than before
    refused: bool = False
    json: str = ""  # all of it, where that was asked for


def rows_of(events: Iterable[Event], *, is_compact: bool, with_json: bool = False) -> list[EventRow]:
    """Return the rows, oldest first.

    Args:
        is_compact: make one row of progress reports that follow each other.
    """
    job, found, last = Job(job_id=""), list[EventRow](), None
    for event in events:
        before, job = job.state, fold([event], job)
        row = EventRow(
            version=event.version,
            first=event.version,
            type=event.type,
            at=event.at,
            after_ms=between(last, event.at),
            is_back=last is not None and event.at < last,
            attempt=job.attempt,
            worker=event.worker if isinstance(event, JobStarted) else job.worker if _is_workers(event) else "",
            actor=event.actor,
            reason=event.reason,
            trace=event.trace,
            detail=detail(event),
            state=job.state,
            changed=before != job.state,
            refused=isinstance(event, TransitionRefused),
            json=event_json(event) if with_json else "",
        )
        last = event.at
        if is_compact and isinstance(event, JobProgressed) and found and found[-1].type == row.type:
            row = msgspec.structs.replace(row, first=found[-1].first, after_ms=found[-1].after_ms)
            found.pop()
        found.append(row)
    return found


def bare_row(event: Event) -> EventRow:
    """Return the row of an event by itself, where what came before is not known."""
    return EventRow(
        version=event.version,
        first=event.version,
        type=event.type,
        at=event.at,
        actor=event.actor,
        reason=event.reason,
        trace=event.trace,
        detail=detail(event),
        refused=isinstance(event, TransitionRefused),
    )


def lost_row(event: Unreadable) -> EventRow:
    """Return the row of an event that cannot be read, which says why."""
    return EventRow(version=event.version, first=event.version, type=event.type, at=None, detail=event.why)


def event_json(event: Event) -> str:
    """Return an event as its JSON, with its chain, over several lines."""
    body = msgspec.json.encode(event)
    return json_text(msgspec.Raw(body))


def detail(event: Event) -> str:
    """Return what an event says beside who, when and why; "" for nothing more."""
    say = _DETAILS.get(type(event))
    return one_line(say(event)) if say is not None else ""


def shown_of(rows: Sequence[EventRow], *, all_of_them: bool) -> tuple[Sequence[EventRow], int]:
    """Return the rows to show, the newest of many, and how many are left out before them."""
    if all_of_them or len(rows) <= SHOWN:
        return rows, 0
    return rows[-SHOWN:], len(rows) - SHOWN


def _is_workers(event: Event) -> bool:
    return bool(getattr(event, "start", 0))


def _pairs(said: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in said.items() if value not in ("", None))


def _queued(event: JobQueued) -> str:
    later = f", not before {event.scheduled_at:%Y-%m-%d %H:%M:%S} UTC" if event.scheduled_at else ""
    return f"{event.name} on {event.queue}, {event.max_attempts} {'try' if event.max_attempts == 1 else 'tries'} at most{later}"


def _failed(event: JobFailed) -> str:
    again = "; another try follows" if event.retry_at else ""
    return (f"{event.kind}: " if event.kind and event.kind not in event.error else "") + event.error + again


def _refused(event: TransitionRefused) -> str:
    start = f" of start #{event.start}" if event.start else ""
    return f"{event.tried}{start} came when it was {event.state}. {event.detail}"


_DETAILS: Final[Mapping[type[Event], Callable[[Any], str]]] = {
    JobQueued: _queued,
    JobStarted: lambda event: "recorded after work that ran ungranted" if event.late else "",
    JobProgressed: lambda event: f"{event.percent:g} % {event.message}",
    JobAnnotated: lambda event: _pairs({"title": event.title, "command": event.command, **event.fields}),
    JobSucceeded: lambda event: "" if event.result is None else msgspec.json.encode(event.result).decode(),
    JobFailed: _failed,
    JobRequeued: lambda event: event.cause,
    JobRecorded: lambda event: f"says {event.state}: " + _pairs(event.changes),
    JobImported: lambda event: f"says {event.state}: " + _pairs(event.record),
    TransitionRefused: _refused,
    JobDeleted: lambda event: "with what it produced" if event.artifacts else "",
}
