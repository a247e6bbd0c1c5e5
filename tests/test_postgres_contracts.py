"""The log, its rows, worker leases and blobs in Postgres keep every promise that those of SQLite keep."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)

from jobevents.backends.postgres import PostgresRecorder, open_blobs
from jobevents.blobs import Blobs
from jobevents.errors import InvalidValue
from jobevents.events import JobRecorded, new_event_id
from jobevents.job import fold
from jobevents.log import EventLog
from jobevents.testing import BlobsContract, LeasesContract, LogContract
from jobevents.testing.log_events import AT
from jobevents.workers import Leases
from tests import test_runs
from tests.test_recorders import Subscribes, WithoutIds

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services

# The tests of rows are plain functions over the fixture `recorder`: here they meet the one below.
globals().update({name: value for name, value in vars(test_runs).items() if name.startswith("test_")})


@pytest.fixture
def recorder(postgres_url: str) -> Iterator[PostgresRecorder]:
    """An empty log."""
    with closing(PostgresRecorder.open(postgres_url)) as made:
        yield made


class TestPostgresLog(LogContract):
    """The log in Postgres keeps the contract."""

    @pytest.fixture
    def log(self, recorder: PostgresRecorder) -> EventLog:
        """An empty log."""
        return EventLog(recorder, recorder.translate)

    def test_row_that_no_table_takes_is_invalid(self, log: EventLog) -> None:
        """A row that breaks the table's rules is no Conflict, after which a caller tries again for ever."""
        event = JobRecorded(job_id="a", version=1, id=new_event_id(), at=AT, state="failed", changes={"command": None})

        with pytest.raises(InvalidValue, match="job_id=a"):
            log.append([event], rows=[fold([event])])

        assert [] == log.read("a")


class TestPostgresLeases(LeasesContract):
    """Leases in Postgres keep the contract."""

    @pytest.fixture
    def leases(self, recorder: PostgresRecorder) -> Leases:
        """An empty table."""
        return recorder.leases

    @pytest.fixture
    def again(self, leases: Leases, postgres_url: str) -> Iterator[Leases]:
        """The same table, with connections of its own."""
        with closing(PostgresRecorder.open(postgres_url)) as made:
            yield made.leases

    @pytest.fixture
    def elapse(self, recorder: PostgresRecorder) -> Callable[[float], object]:
        """Let the database's clock, which cannot be moved, be later by making every renewal earlier."""
        move = "UPDATE job_workers SET renewed = renewed - make_interval(secs => %s)"
        return lambda seconds: recorder.database.query(move, (float(seconds),))


class TestPostgresBlobs(BlobsContract):
    """Blobs in Postgres keep the contract."""

    @pytest.fixture
    def blobs(self, postgres_url: str) -> Iterator[Blobs]:
        """An empty table."""
        with closing(open_blobs(postgres_url)) as blobs:
            yield blobs


class Postgres:
    """Recorders in Postgres, for the library's own test cases."""

    @pytest.fixture(autouse=True)
    def _given(self, postgres_url: str) -> None:
        self.url = postgres_url

    def create_recorder(self) -> Any:
        recorder = PostgresRecorder.open(self.url)
        self.addCleanup(recorder.close)
        return recorder

    def new_originator_id(self) -> str:
        return f"job-{uuid4().hex}"

    addCleanup: Callable[..., Any]


class TestPostgresAggregate(Postgres, AggregateRecorderTestCase):
    def create_recorder(self) -> Any:
        return WithoutIds(super().create_recorder())


class TestPostgresApplication(Subscribes, Postgres, ApplicationRecorderTestCase):
    pass


class TestPostgresTracking(Postgres, TrackingRecorderTestCase):
    pass


class TestPostgresProcess(Postgres, ProcessRecorderTestCase):
    pass


class TestPostgresOrder(Postgres, NonInterleavingNotificationIDsBaseCase):
    pass


# Imported bases are abstract: pytest must not collect them.
del AggregateRecorderTestCase, ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase
del ProcessRecorderTestCase, TrackingRecorderTestCase
