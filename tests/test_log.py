"""The logs in memory and in SQLite: the contract, and what only they promise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.backends.sqlitefile import Synchronous
from jobevents.log import EventLog
from jobevents.testing import LogContract


def memory_log() -> EventLog:
    """Return an empty log in memory."""
    recorder = MemoryRecorder()
    return EventLog(recorder, recorder.translate)


def sqlite_log(path: Path, synchronous: Synchronous = "normal") -> EventLog:
    """Open the log in a file."""
    recorder = SqliteRecorder.open(path, synchronous=synchronous)
    return EventLog(recorder, recorder.translate)


class TestMemoryLog(LogContract):
    """The log in memory keeps the contract."""

    @pytest.fixture
    def log(self) -> Iterator[EventLog]:  # type: ignore[override]  # a fixture's value
        log = memory_log()
        yield log
        log.close()


class TestSqliteLog(LogContract):
    """The log in a SQLite file keeps the contract, every commit on the disk."""

    synchronous: Synchronous = "full"

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:  # type: ignore[override]  # a fixture's value
        log = sqlite_log(tmp_path / "jobs.db", self.synchronous)
        yield log
        log.close()


class TestSqliteNormalLog(TestSqliteLog):
    """The log in a SQLite file keeps the contract, a commit left to the operating system."""

    synchronous = "normal"
