"""Histories of jobs for tests of recorders: events made short, and written with the row that follows from them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from eventsourcing.persistence import ProcessRecorder, StoredEvent

from jobevents.events import Event, JobQueued
from jobevents.job import Job, fold

AT = datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC)
JOB = "render-20260726-120031-0123456789ab"


def make(cls: type[Event], job_id: str = JOB, version: int = 1, *, at: datetime = AT, **fields: Any) -> Event:
    """One event."""
    return cls(job_id=job_id, version=version, id=f"{job_id}/{version}", at=at, **fields)


def queued(job_id: str = JOB, *, at: datetime = AT, name: str = "render", **fields: Any) -> Event:
    """The first event of a job."""
    return make(JobQueued, job_id, name=name, at=at, **fields)


def stored(event: Event) -> StoredEvent:
    """An event as a recorder takes it."""
    return StoredEvent(event.job_id, event.version, event.type, msgspec.json.encode(event))


def blank(job_id: str = JOB, version: int = 1, topic: str = "topic") -> StoredEvent:
    """An event that says nothing."""
    return StoredEvent(job_id, version, topic, b"{}")


def write(recorder: ProcessRecorder, *events: Event, job: Job | None = None) -> Job:
    """Insert events of one job, with the row after each, and return the job after them; `job` is what was before."""
    for event in events:
        job = fold([event], job)
        recorder.insert_events([stored(event)], rows=[job])
    assert job is not None
    return job


def ids(notifications: Sequence[Any]) -> list[int]:
    """The notification ids."""
    return [notification.id for notification in notifications]
