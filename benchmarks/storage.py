"""What a job of five events takes in its file, rows and indexes included."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.aggregates import recorder_in, stored_events
from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting
from jobevents.backends.sqliteschema import EVENTS

_EVENTS_EACH = 5


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """The whole file: events, chain, index of slots, the run's row and its indexes."""
    jobs = setting.size // _EVENTS_EACH
    yield lambda: lambda: _used_bytes(log_path(setting.prepared)) / jobs


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """The bytes of the stored events, and nothing else."""
    jobs = setting.size // _EVENTS_EACH

    def work() -> float:
        with closing(sqlite3.connect(log_path(setting.prepared))) as connection:
            total: int = connection.execute(f'SELECT sum(length(state)) FROM "{EVENTS}"').fetchone()[0]
        return total / jobs

    yield lambda: work


@contextmanager
def peer(setting: Setting) -> Iterator[Repeat]:
    """The file of eventsourcing's recorder with the same events as JSON; there is no row of the state."""
    jobs = setting.size // _EVENTS_EACH
    recorder_in(log_path(setting.own)).insert_events(list(stored_events(jobs, _EVENTS_EACH)))
    yield lambda: lambda: _used_bytes(log_path(setting.own)) / jobs


def _used_bytes(path: Path) -> int:
    """Return the size of the database's pages, in whichever file they are just now."""
    with closing(sqlite3.connect(path)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    used: int = (pages - free) * size
    return used
