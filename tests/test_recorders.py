"""The library's own test cases for recorders, run over ours."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from eventsourcing.persistence import AggregateRecorder, ProcessRecorder, StoredEvent
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)

from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.blobs import FileBlobs, MemoryBlobs


class WithoutIds(AggregateRecorder):
    """A recorder as its test case for aggregates wants it: insert_events returns nothing."""

    def __init__(self, recorder: ProcessRecorder) -> None:
        self._recorder = recorder

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        self._recorder.insert_events(stored_events, **kwargs)

    def select_events(self, originator_id: Any, **kwargs: Any) -> Sequence[StoredEvent]:
        return self._recorder.select_events(originator_id, **kwargs)


class Subscribes:
    """The library's own test of subscriptions, which it leaves to recorders that have them."""

    made: Any  # the last recorder

    def create_recorder(self) -> Any:
        self.made = super().create_recorder()  # type: ignore[misc]  # of the class beside it
        return self.made

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()
        assert 3 == self.made.max_notification_id()  # it went through to its last event

    optional_test_insert_subscribe: Callable[[], None]


class Memory:
    """Recorders in memory."""

    def create_recorder(self) -> Any:
        recorder = MemoryRecorder()
        self.addCleanup(recorder.close)
        return recorder

    def new_originator_id(self) -> str:
        return f"job-{uuid4().hex}"

    addCleanup: Callable[..., Any]


class Sqlite(Memory):
    """Recorders in a SQLite file."""

    def create_recorder(self) -> Any:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        recorder = SqliteRecorder.open(Path(directory.name, "jobs.db"))
        self.addCleanup(recorder.close)
        return recorder


class TestMemoryAggregate(Memory, AggregateRecorderTestCase):
    def create_recorder(self) -> Any:
        return WithoutIds(super().create_recorder())


class TestSqliteAggregate(Sqlite, AggregateRecorderTestCase):
    def create_recorder(self) -> Any:
        return WithoutIds(super().create_recorder())


class MemoryBlobLog(Memory):
    """Recorders of objects in memory."""

    def create_recorder(self) -> Any:
        recorder = BlobRecorder(MemoryBlobs(), "log-1")
        self.addCleanup(recorder.close)
        return recorder


class FileBlobLog(Memory):
    """Recorders of objects in files."""

    def create_recorder(self) -> Any:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        recorder = BlobRecorder(FileBlobs(directory.name))
        self.addCleanup(recorder.close)
        return recorder


class TestMemoryBlobAggregate(MemoryBlobLog, AggregateRecorderTestCase):
    pass


class TestFileBlobAggregate(FileBlobLog, AggregateRecorderTestCase):
    pass


class TestMemoryApplication(Subscribes, Memory, ApplicationRecorderTestCase):
    pass


class TestSqliteApplication(Subscribes, Sqlite, ApplicationRecorderTestCase):
    pass


class TestMemoryTracking(Memory, TrackingRecorderTestCase):
    pass


class TestSqliteTracking(Sqlite, TrackingRecorderTestCase):
    pass


class TestMemoryProcess(Memory, ProcessRecorderTestCase):
    pass


class TestSqliteProcess(Sqlite, ProcessRecorderTestCase):
    pass


class TestMemoryOrder(Memory, NonInterleavingNotificationIDsBaseCase):
    pass


class TestSqliteOrder(Sqlite, NonInterleavingNotificationIDsBaseCase):
    pass


# Imported bases are abstract: pytest must not collect them.
del AggregateRecorderTestCase, ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase
del ProcessRecorderTestCase, TrackingRecorderTestCase
