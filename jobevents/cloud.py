"""The log on blobs, put together: `open_bucket` gives what `connect` needs of one, whatever the blobs are.

A composition root beside `wiring`: it knows the index and the statuses, which the write side of such a log reads.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobevents.backends.blobclock import StoreClock
from jobevents.backends.bloberasures import BlobErasures
from jobevents.backends.blobkeys import BlobKeys
from jobevents.backends.blobleases import BlobLeases
from jobevents.backends.bloblines import BlobRunLogs
from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.blobruns import BlobRetention, BlobRuns
from jobevents.backends.fan import Fan
from jobevents.backoff import Backoff
from jobevents.blobs import Blobs
from jobevents.desk import Desk
from jobevents.emit import Emitter
from jobevents.errors import Unavailable
from jobevents.guard import Pace
from jobevents.job import Job
from jobevents.log import EventLog

if TYPE_CHECKING:
    from jobevents.jobs import Jobs
    from projections.index import Index

# Each event and each batch of lines is a PUT, $5 a million; each look whether a job was canceled two GETs, which at two looks a
# second would be $6 an hour for a thousand running jobs.
PACE = Pace(progress_s=10.0, lines_s=2.0, cancel_s=5.0)


class ListedJobs:
    """The index as the write side reads it."""

    def __init__(self, index: "Index") -> None:
        self._index = index

    def count(self, state: str) -> int:
        """Return how many jobs are in a state; "" for all."""
        self._check()
        return self._index.counts()[state or "all"]

    def after(self, job_id: str, limit: int, state: str) -> Sequence[str]:
        """Return the ids after the place of one, newest first."""
        from projections.index import cursor_after

        self._check()
        return self._index.after(cursor_after(job_id) if job_id else "", limit, state).ids

    def page(self, state: str, page: int, per_page: int) -> Sequence[str]:
        """Return a page of ids, newest first; none past the end."""
        self._check()
        ids, meta = self._index.page(state, page, per_page)
        return ids if meta.page == page else []

    def _check(self) -> None:
        if not self._index.exists():
            raise Unavailable("there is no index of jobs yet: run `jobevents project`, which keeps it")


class Bucket:
    """A log on blobs with all that is beside it: what a recorder that keeps rows has of its own."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        once: Blobs | None = None,
        backoff: Backoff | None = None,
        patience: Backoff | None = None,
        threads: int = 16,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep everything below `prefix`.

        Args:
            once: the same store, where a `put` is one request; see BlobRecorder.
            backoff: how an append is tried again.
            patience: how to wait for the job that has just taken an idempotency key.
            threads: requests under way at once for one page, history or scan.
        """
        from projections.index import Index

        fan = self._fan = Fan(threads)
        self.recorder = BlobRecorder(blobs, prefix, once=once, backoff=backoff, fan=fan, monotonic=monotonic)
        names, floors = self.recorder.names, self.recorder.floors
        store_clock = StoreClock(blobs, prefix, monotonic=monotonic)
        index = ListedJobs(Index(blobs, prefix))
        self._blobs = blobs
        self._prefix = prefix
        self._emitter: Emitter | None = None
        self.keys = BlobKeys(blobs, names, floors, store_clock, fan, self._load, patience=patience)
        self.run_logs = BlobRunLogs(blobs, names, fan, load=self._load, cached=self._cached)
        self.recorder.at_append = (self.keys, self.run_logs)
        self.runs = BlobRuns(index, self.keys, self._load, fan, cached=self._cached, monotonic=monotonic)
        self.recorder.eraser = BlobErasures(blobs, self.recorder, store_clock, fan)
        self.retention = BlobRetention(index, self.run_logs)
        self.leases = BlobLeases(blobs, prefix, monotonic=monotonic)
        self.desk: Desk | None = None  # nothing hands out jobs here: they are delivered by a queue of the user's
        self.pace = PACE

    def jobs(self, *, clock: Callable[[], datetime], **options: Any) -> "Jobs":  # Any: as Jobs has them
        """Return jobs over this log and all that is beside it; for who has made the blobs himself.

        Args:
            options: further ones of Jobs.
        """
        from jobevents.jobs import Jobs

        emitter = Emitter(EventLog(self.recorder, self.recorder.translate), clock=clock)
        jobs = Jobs(
            emitter,
            runs=self.runs,
            run_logs=self.run_logs,
            blobs=self._blobs,
            leases=self.leases,
            retention=self.retention,
            pace=self.pace,
            prefix=self._prefix,
            **options,
        )
        self.attach(emitter)
        self.recorder.count_in(jobs.counts)
        jobs.at_close(self.close)
        return jobs

    def attach(self, emitter: Emitter) -> None:
        """Have the emitter go on from statuses and heed what others wrote, and read the jobs by it."""
        from projections.adoption import Adoption
        from projections.heads import StatusHeads

        heads = StatusHeads(self._blobs, self._prefix, emitter, adopt=Adoption(emitter), on_head=self.recorder.hint)
        emitter.recall, emitter.heed, emitter.load_each = heads.recall, heads.heed, self._load_each
        self._emitter = emitter

    def close(self) -> None:
        """End the threads; any number of times."""
        self.recorder.close()

    def _load(self, job_id: str) -> Job:
        assert self._emitter is not None  # noqa: S101  # `attach` comes before any use
        return self._emitter.load(job_id)

    def _load_each(self, job_ids: Sequence[str]) -> list[Job]:
        return self._fan.map(self._load, job_ids)

    def _cached(self, job_id: str) -> Job | None:
        assert self._emitter is not None  # noqa: S101  # as above
        return self._emitter.cached(job_id)
