"""Projecting a log into a view, from its beginning: every event read, folded and stored, exactly once in effect."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, Tracking
from eventsourcing.popo import POPOApplicationRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteCursor, SQLiteTrackingRecorder

from benchmarks.aggregates import sqlite_environment, stored_events
from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting, Work
from jobevents import connect
from jobevents.backends.sqliteschema import EVENTS
from jobevents.events import AnyEvent
from jobevents.job import Job, fold
from jobevents.records import status_bytes
from jobevents.wiring import projector

_BATCH = 1000  # events a transaction: as in projections.projector
_EVENTS_EACH = 5


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """projections.projector with StatusView on SqliteBlobs: status.json of every job, and the position."""
    numbers = count()
    with ExitStack() as stack:

        def repeat() -> Work:
            directory = _copy_of_log(setting, next(numbers))
            url = f"sqlite:///{log_path(directory)}"
            jobs = stack.enter_context(connect(url, blobs=f"sqlite:///{directory / 'blobs.db'}"))
            statuses = projector(jobs, ["status"], leased=False)

            def work() -> int:
                statuses.run_once()
                return setting.size

            return work

        yield repeat


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """Bare SELECT, msgspec, fold, and one transaction a batch with an UPSERT of each changed status and the position."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    numbers = count()

    def repeat() -> Work:
        directory = _copy_of_log(setting, next(numbers))

        def work() -> int:
            with (
                closing(sqlite3.connect(log_path(directory))) as log,
                closing(sqlite3.connect(directory / "statuses.db", isolation_level=None)) as view,
            ):
                _prepare_view(view)
                jobs: dict[str, Job] = {}
                select = f'SELECT notification_id, state FROM "{EVENTS}" ORDER BY notification_id'
                cursor = log.execute(select)
                while rows := cursor.fetchmany(_BATCH):
                    changed: dict[str, Job] = {}
                    for _, state in rows:
                        event = decode(state)
                        job = jobs.get(event.job_id)
                        changed[event.job_id] = jobs[event.job_id] = fold([event], job)
                    _store(view, changed, rows[-1][0])
            return setting.size

        return work

    yield repeat


@contextmanager
def peer(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's ProjectionRunner, from a log in memory into a view on SQLite that counts the events of each job."""
    recorder = POPOApplicationRecorder()
    recorder.insert_events(list(stored_events(setting.size // _EVENTS_EACH, _EVENTS_EACH)))
    last = recorder.max_notification_id()
    numbers = count()

    class Kept(Application[Any]):
        """An application over events that are there already."""

        def construct_recorder(self) -> ApplicationRecorder:
            return recorder

    class Counting(Projection[Counts]):
        """Counts."""

        name = "counting"

        def process_event(self, domain_event: Any, tracking: Tracking) -> None:
            self.view.count(domain_event, tracking)
            if tracking.notification_id == last:
                finished.set()

    finished = Event()

    def repeat() -> Work:
        directory = setting.own / str(next(numbers))
        directory.mkdir()
        environment = {f"COUNTING_{k}": v for k, v in sqlite_environment(directory / "counts.db").items()}

        def work() -> int:
            finished.clear()
            runner = ProjectionRunner(
                application_class=Kept, projection_class=Counting, view_class=Counts, env=environment
            )
            with runner:
                finished.wait()
            return setting.size

        return work

    yield repeat


class Counts(SQLiteTrackingRecorder):
    """A view: how many events each job has had, and the position, in one transaction an event."""

    def construct_create_table_statements(self) -> list[str]:
        """Add our table to the library's."""
        table = "CREATE TABLE IF NOT EXISTS counts (job_id TEXT PRIMARY KEY, events INTEGER NOT NULL) WITHOUT ROWID"
        return [*super().construct_create_table_statements(), table]

    def count(self, domain_event: Any, tracking: Tracking) -> None:
        """Count an event, unless it was counted."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            self._add(cursor, domain_event.originator_id.hex)

    @staticmethod
    def _add(cursor: SQLiteCursor, job_id: str) -> None:
        cursor.execute(
            "INSERT INTO counts VALUES (?, 1) ON CONFLICT (job_id) DO UPDATE SET events = events + 1", (job_id,)
        )


def _copy_of_log(setting: Setting, number: int) -> Path:
    """Return a directory with a log of its own, into which nothing was projected yet."""
    directory = setting.own / str(number)
    directory.mkdir()
    shutil.copy(log_path(setting.prepared), log_path(directory))
    return directory


def _prepare_view(view: sqlite3.Connection) -> None:
    view.execute("PRAGMA journal_mode = WAL")
    view.execute("PRAGMA synchronous = FULL")
    view.execute("CREATE TABLE statuses (job_id TEXT PRIMARY KEY, data BLOB NOT NULL)")
    view.execute("CREATE TABLE positions (view TEXT PRIMARY KEY, position INTEGER NOT NULL)")


def _store(view: sqlite3.Connection, changed: dict[str, Job], position: int) -> None:
    view.execute("BEGIN IMMEDIATE")
    rows = [(job_id, status_bytes(job)) for job_id, job in changed.items()]
    view.executemany("INSERT OR REPLACE INTO statuses VALUES (?, ?)", rows)
    view.execute("INSERT OR REPLACE INTO positions VALUES ('status', ?)", (position,))
    view.execute("COMMIT")
