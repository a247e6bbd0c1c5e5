"""What tests of projections share: a log with jobs, a projector whose time is moved by hand, and poisoned events."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from eventsourcing.persistence import StoredEvent

from jobevents import connect
from jobevents.blobs import Blobs, MemoryBlobs
from jobevents.errors import NotFound
from jobevents.job import DELETED, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from projections.adoption import Adoption
from projections.positions import TrackedPositions
from projections.projector import Projector
from projections.status import StatusView
from tests.fake_time import FakeTime

START = datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC)
UNKNOWN = b'{"type":"JobPaused","job_id":"a","version":2,"id":"x","at":"2026-07-26T12:00:31Z"}'


_opened: list[Jobs] = []


def close_worlds() -> None:
    """Close the jobs of every World made since the last call, so that no thread of theirs outlives its test."""
    while _opened:
        _opened.pop().close()


class World:
    """A log in memory, blobs, and one time for all of it."""

    def __init__(self, blobs: Blobs | None = None, *, url: str = "memory://", **options: Any) -> None:
        self.time = FakeTime()
        self.blobs: Blobs = MemoryBlobs(clock=self.now) if blobs is None else blobs
        self.jobs: Jobs = connect(url, blobs=self.blobs, clock=self.now, actor="ana", **options)
        _opened.append(self.jobs)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.time.now - 1000)

    def positions(self) -> TrackedPositions:
        return TrackedPositions(self.jobs.log.recorder)  # type: ignore[arg-type]  # ours track

    def view(self, blobs: Blobs | None = None, **options: Any) -> StatusView:
        """A status view of one thread, so that its calls come in one order."""
        return StatusView(
            blobs or self.blobs,
            positions=self.positions(),
            adopt=Adoption(self.jobs.emitter),
            counts=self.jobs.counts,
            monotonic=self.time.clock,
            sleep=self.time.sleep,
            **{"threads": 1, **options},
        )

    def projector(self, *views: Any, blobs: Blobs | None = None, **options: Any) -> Projector:
        return Projector(
            self.jobs.log,
            views or [self.view(blobs)],
            alarm=self.jobs.log.recorder,  # type: ignore[arg-type]  # ours wake
            blobs=blobs or self.blobs,
            counts=self.jobs.counts,
            clock=self.now,
            monotonic=self.time.clock,
            wait=self.time.sleep,
            **options,
        )

    def work(self, job_id: str) -> None:
        """Run a job to its end: three events after the one that queued it."""
        with self.jobs.attempt(job_id) as attempt:
            attempt.progress(50, "half")

    def poison(self, job_id: str, data: bytes = UNKNOWN, *, version: int | None = None) -> int:
        """Put an event into the log that nobody can fold, and return its version."""
        version = version or len(self.jobs.log.read_raw(job_id)) + 1
        self.jobs.log.recorder.insert_events([StoredEvent(job_id, version, "JobPaused", data)])
        return version

    def expected(self, job_id: str) -> bytes | None:
        """The status that the log's history folds to; None for a deleted job."""
        job = fold(self.jobs.log.read(job_id))
        return None if job.state == DELETED else status_bytes(job)

    def stored(self, job_id: str) -> bytes | None:
        return stored(self.blobs, job_id)

    def write_foreign(self, job_id: str, data: bytes) -> None:
        """Write a status as a service would that knows nothing of the log."""
        self.blobs.put(status_name(job_id), data)

    def types(self, job_id: str) -> list[str]:
        return [event.type for event in self.jobs.history(job_id)]


def stored(blobs: Blobs, job_id: str) -> bytes | None:
    """The stored status; None when there is none."""
    try:
        blob = blobs.get(status_name(job_id))
    except NotFound:
        return None
    assert blob is not None
    return blob.data


def job_ids(records: Sequence[Any]) -> list[str]:
    return sorted({record.job_id for record in records})
