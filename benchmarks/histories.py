"""Files that several rows read: a log of jobs of 5 or of 20 events, and the same jobs as eventsourcing's aggregates."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.aggregates import Renders, aggregates, sqlite_environment
from benchmarks.data import fill, lives
from benchmarks.model import Setting
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.log import EventLog


def of_5(setting: Setting) -> None:
    """Write a log of `size` events of jobs with 5 each."""
    _write(setting, 5)


def of_20(setting: Setting) -> None:
    """Write a log of `size` events of jobs with 20 each."""
    _write(setting, 20)


def aggregates_of_20(setting: Setting) -> None:
    """Write `size` events of aggregates with 20 each through eventsourcing's own application, on SQLite."""
    with Renders(sqlite_environment(log_path(setting.prepared))) as app:
        for aggregate in aggregates(setting.size // 20, 20):
            app.save(aggregate)


def log_path(directory: Path) -> Path:
    """Return where the log is in a prepared directory."""
    return directory / "jobs.db"


@contextmanager
def opened(path: Path) -> Iterator[EventLog]:
    """Open a log in an SQLite file, made if missing; commits are FULL."""
    recorder = SqliteRecorder.open(path)
    log = EventLog(recorder, recorder.translate)
    try:
        yield log
    finally:
        log.close()


def _write(setting: Setting, events_each: int) -> None:
    with opened(log_path(setting.prepared)) as log:
        fill(log, lives(setting.size // events_each, events_each))
