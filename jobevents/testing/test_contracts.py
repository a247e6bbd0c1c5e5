"""The contracts, over the log behind `--jobevents-url`; `conftest.py` says how to run them."""

import pytest

from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.queue import JobQueue, Reservation
from jobevents.store import JobStore
from jobevents.testing.clock import Clock
from jobevents.testing.jobqueue import JobQueueContract
from jobevents.testing.jobstore import JobStoreContract
from jobevents.testing.log import LogContract
from jobevents.testing.outages import Snapshot, reader_of
from jobevents.testing.runs import Elapse


class TestLog(LogContract):
    """The log keeps its contract."""

    @pytest.fixture
    def log(self, jobs: Jobs) -> EventLog:
        self.ordered, self.whole_calls = jobs.log.ordered, jobs.log.whole_calls
        self.keeps_rows = jobs.desk is not None
        if not self.keeps_rows:  # a log of objects: each write is a request
            self.races, self.many = 20, 600
        return jobs.log


class TestJobStore(JobStoreContract):
    """The store over the log keeps its contract."""

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        if jobs.desk is None:
            pytest.skip("this log keeps no rows: its lists are those of an index, which a projector keeps")
        return jobs.store

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, url: str) -> Snapshot:
        return reader_of(url)


class TestJobQueue(JobQueueContract):
    """The queue that is the table of runs keeps its contract."""

    lease_s = None  # claims end by the database's clock, which nobody moves

    @pytest.fixture
    def queue(self, jobs: Jobs) -> JobQueue:
        if jobs.desk is None:
            pytest.skip("this log keeps no rows, and hands out no jobs")
        self._jobs = jobs
        return jobs.queue

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, url: str) -> Snapshot:
        return reader_of(url)

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        with self._jobs.attempt(reservation.run.id):
            pass
        reservation.ack()
