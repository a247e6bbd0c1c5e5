"""Events to try a log with: one of each type with every field set, and short ways to make more."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from jobevents.assertions import RunChanges, RunError
from jobevents.events import (
    CancelRequested,
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
    new_event_id,
)
from jobevents.log import EventLog

AT = datetime(2026, 7, 26, 12, 0, 31, 500_000, tzinfo=UTC)
_LATER = AT + timedelta(hours=1)
_CHANGES = RunChanges(
    attempt=2, started_at=AT, finished_at=None, error=RunError(code="E", message="no space", status=507)
)


def one_of_each(job_id: str) -> list[Event]:
    """Return an event of every type, versions 1 and on, with all their fields set; no legal life of a job."""

    def common(version: int) -> dict[str, Any]:  # Any: fields of several types
        said = {"actor": "ann", "reason": "trying", "trace": "4bf92f3577b34da6a3ce929d0e0e4736"}
        return {"job_id": job_id, "version": version, "id": new_event_id(), "at": AT, **said}

    return [
        JobQueued(
            **common(1),
            name="render",
            params={"song": 7, "parts": [1.5, None, True, "ü"], "deep": {"a": {"b": []}}},
            title="Song 7",
            queue="slow",
            key="song-7",
            scheduled_at=_LATER,
            priority=-3,
            max_attempts=5,
            external=True,
            trigger="replay",
            replay_of="render-1",
            root_id="render-0",
        ),
        JobStarted(**common(2), attempt=2, worker="host-1-ab", deadline=_LATER, late=True),
        JobProgressed(**common(3), start=2, percent=12.5, message="mixing"),
        JobAnnotated(**common(4), start=2, command="mix", title="T", fields={"a": 1, "b": 1.5, "c": False, "d": None}),
        JobSucceeded(**common(5), start=2, result=["gs://bucket/a.wav", {"seconds": 181}]),
        JobFailed(
            **common(6), error="no space", start=2, retry_at=_LATER, kind="OSError", traceback="line 1", tail=("a", "b")
        ),
        JobRequeued(**common(7), cause="snooze", start=2, scheduled_at=_LATER),
        CancelRequested(**common(8)),
        JobCanceled(**common(9), start=2),
        JobSkipped(**common(10)),
        TransitionRefused(**common(11), start=2, tried="JobFailed", state="succeeded", detail="too late"),
        JobRecorded(**common(12), state="theirs", changes={"title": "T", "output_dir": "gs://bucket/a"}, run=_CHANGES),
        JobImported(
            **common(13), state="failed", record={"error": "E", "updated_at": "2026-07-26T12:00:31.123456789Z"}
        ),
        JobDeleted(**common(14), artifacts=True),
    ]


def queued(job_id: str, *, key: str = "", params: Any = None) -> JobQueued:
    """Return the first event of a job."""
    return JobQueued(job_id=job_id, version=1, id=new_event_id(), at=AT, name="render", key=key, params=params)


def note(job_id: str, version: int, title: str = "") -> JobAnnotated:
    """Return an event that fits anywhere in a log."""
    return JobAnnotated(job_id=job_id, version=version, id=new_event_id(), at=AT, title=title)


def notes(job_id: str, versions: Iterable[int]) -> list[Event]:
    """Return events that follow each other."""
    return [note(job_id, version) for version in versions]


def bare(events: Iterable[Event]) -> list[Event]:
    """Return events as they were before they were stored: without their chain."""
    return [msgspec.structs.replace(event, chain="") for event in events]


def ids_in(log: EventLog, job_id: str) -> list[str]:
    """Return the ids of a job's events."""
    return [event.id for event in log.read(job_id)]


def ids_of(events: Sequence[Event]) -> list[str]:
    """Return the ids of events."""
    return [event.id for event in events]
