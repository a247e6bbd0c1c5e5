"""What the index is held against: a log of folded jobs, and all that the index says, read page by page."""

from datetime import UTC, datetime, timedelta

from jobevents.blobs import Blobs, MemoryBlobs
from jobevents.ids import sort_key
from jobevents.job import DELETED, Job
from projections.chunks import Chunks
from projections.index import Index
from projections.indexview import IndexView
from projections.manifest import ALL, LETTERS, OTHER, Manifest, ManifestBlob
from projections.sequences import Sizes
from tests.fake_time import FakeTime

SMALL = Sizes(least=2, fill=4, most=6)  # splits and merges all the time
HORIZON_S = 600.0


class JobLog:
    """Jobs as they were after each event; event n is at position n."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def add(self, job_id: str, state: str = "queued") -> None:
        version = 1 + sum(job.job_id == job_id for job in self.jobs)
        self.jobs.append(Job(job_id=job_id, version=version, state=state))

    def since(self, position: int, until: int | None = None) -> list[Job]:
        """The jobs that changed after `position`, as they were at `until`."""
        return list({job.job_id: job for job in self.jobs[position:until]}.values())

    def at(self, position: int) -> dict[str, str]:
        """Job id -> state, without those that were deleted."""
        return {job.job_id: job.state for job in self.since(0, position) if job.state != DELETED}


def memory(time: FakeTime) -> MemoryBlobs:
    """Blobs whose clock the test moves."""
    return MemoryBlobs(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=time.now))


def view_of(blobs: Blobs, time: FakeTime, sizes: Sizes = SMALL) -> IndexView:
    return IndexView(blobs, sizes=sizes, horizon_s=HORIZON_S, monotonic=time.clock)


def catch_up(view: IndexView, log: JobLog) -> int:
    """Bring a view to the end of the log, as a projector that has just started does."""
    view.take(log.since(view.position()), len(log.jobs))
    return view.flush(everything=True)


def newest_first(ids: list[str]) -> list[str]:
    return sorted(ids, key=lambda job_id: (sort_key(job_id), job_id), reverse=True)


def listed(index: Index, state: str = "", limit: int = 3) -> list[str]:
    """All ids of a state, from cursor to cursor."""
    ids, cursor = [], ""
    while True:
        found = index.after(cursor, limit, state)
        ids += found.ids
        cursor = found.cursor
        if not cursor:
            return ids


def told(blobs: Blobs) -> dict[str, list[str]]:
    """All that a new reader is told: the ids of every sequence, newest first."""
    index = Index(blobs)
    return {name or ALL: listed(index, name) for name in ("", *LETTERS)}


def expected(log: JobLog, position: int) -> dict[str, list[str]]:
    """All that it should be told when the index has the log up to `position`."""
    jobs = log.at(position)
    lists = {ALL: newest_first(list(jobs))}
    for name in LETTERS:
        lists[name] = newest_first(
            [job_id for job_id, state in jobs.items() if (state if state in LETTERS else OTHER) == name]
        )
    return lists


def manifest(blobs: Blobs) -> Manifest:
    return ManifestBlob(blobs, "index/v1/MANIFEST.json").load().manifest


def chunks(blobs: Blobs) -> Chunks:
    return Chunks(blobs, "index/v1/chunk/")
