"""The log on blobs, in memory and in files, keeps the contracts of logs and of stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.gcs import GcsBlobs
from jobevents.backoff import Backoff
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.store import JobStore, RunFilter, RunPage
from jobevents.testing import Clock, JobStoreContract, LogContract
from jobevents.testing.runs import Elapse
from jobevents.wiring import connect
from projections.indexview import IndexView
from tests.fake_time import FakeTime

pytest_plugins = ("tests.gcs",)


@pytest.fixture(params=["memory", "files"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """An empty store of each kind that needs no server."""
    return MemoryBlobs() if request.param == "memory" else FileBlobs(tmp_path)


class BlobLogContract(LogContract):
    """What the log on blobs promises, whatever the blobs are."""

    ordered = False
    whole_calls = False
    keeps_rows = False
    races = 20
    many = 600

    @pytest.fixture
    def log(self, blobs: Blobs) -> Iterator[EventLog]:
        recorder = BlobRecorder(blobs, "log-1")
        log = EventLog(recorder, recorder.translate)
        yield log
        log.close()


class TestBlobLog(BlobLogContract):
    """In memory and in files."""


class Indexed:
    """A store whose index is brought up to date before each list: on this log, lists are as late as a projector."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._view = IndexView(jobs.blobs, jobs.prefix)
        self._position = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._jobs.store, name)

    def project(self) -> None:
        """Take every job as it is now into the index."""
        self._position += 1
        seen = {record.job_id for record in self._jobs.log.scan()}
        self._view.take([self._jobs.emitter.load(job_id) for job_id in seen], self._position)
        self._view.flush(everything=True)

    def list(self, filter: RunFilter) -> RunPage:
        self.project()
        return self._jobs.store.list(filter)

    def running_ids(self, job: str) -> object:
        self.project()
        return self._jobs.store.running_ids(job)

    def purge(self, *args: object, **options: object) -> int:
        self.project()
        return self._jobs.store.purge(*args, **options)  # type: ignore[arg-type]  # what a store takes


class TestBlobStore(JobStoreContract):
    """The store over the log in memory; its lists are of the index."""

    @pytest.fixture
    def jobs(self, clock: Clock) -> Iterator[Jobs]:
        with connect("memory://?log=blobs", clock=clock) as made:
            yield made

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        return Indexed(jobs)  # type: ignore[return-value]  # by __getattr__

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move


class TestGcsLog(BlobLogContract):
    """In a bucket."""

    @pytest.fixture
    def log(self, gcs_blobs: GcsBlobs, gcs_time: FakeTime) -> Iterator[EventLog]:
        backoff = Backoff(sleep=gcs_time.sleep, clock=gcs_time.clock)
        recorder = BlobRecorder(gcs_blobs, "log-1", once=gcs_blobs.once(), backoff=backoff)
        log = EventLog(recorder, recorder.translate)
        yield log
        log.close()
