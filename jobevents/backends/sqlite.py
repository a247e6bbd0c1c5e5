"""The log in a SQLite file: eventsourcing's process recorder, with runs, group commit, subscriptions and typed errors.

Events, the rows that follow from them and a tracking record are one transaction. Ids of events rise in commit order and are
never given out twice.
"""
# ruff: noqa: S608  # table names are constants, values are bound

import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import Any, Self
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent, Tracking
from eventsourcing.sqlite import SQLiteDatastore, SQLiteProcessRecorder

from jobevents import codec
from jobevents.backends import sqliteerrors, sqliteschema
from jobevents.backends.sql import DEFAULT_TABLES, Tables, by_job
from jobevents.backends.sqlinbox import INBOX
from jobevents.backends.sqlitecensus import SqliteCensus
from jobevents.backends.sqliteclaims import SqliteClaims
from jobevents.backends.sqliteerasures import SqliteErasures
from jobevents.backends.sqlitefile import LOCK_TIMEOUT_S, SqliteFile, Synchronous
from jobevents.backends.sqliteinbox import SqliteInbox
from jobevents.backends.sqliteleases import SqliteLeases
from jobevents.backends.sqlitepauses import SqlitePauses
from jobevents.backends.sqliteretention import SqliteRetention
from jobevents.backends.sqliteruns import SqliteRunLogs, SqliteRuns
from jobevents.backends.sqliteschema import EVENTS, TRACKING
from jobevents.backends.sqlitewal import last_change
from jobevents.backends.tail import TailSubscription
from jobevents.backends.wake import Wake
from jobevents.desk import Desk
from jobevents.errors import JobEventsError
from jobevents.job import Job
from jobevents.limits import Limit
from jobevents.log import COLUMNS, NO_HEADS, Head, Record
from jobevents.store import LogTable, RunTable
from jobevents.workers import Leases

_INTO = f'INSERT INTO "{EVENTS}" (originator_id, originator_version, topic, state) VALUES '
_FIRST = (  # no state, which the table refuses, where later ones are there: the job was erased
    f'{_INTO} (?, ?, ?, CASE WHEN NOT EXISTS (SELECT 1 FROM "{EVENTS}" WHERE originator_id = ? AND originator_version > 1) '
    "THEN ? END)"
)
_EVENT = "originator_id, originator_version, topic, state"
_TOGETHER = 256  # rows that are tuples at once: the collector looks after 700 (gc.get_threshold)
_COLUMN = dict(zip(COLUMNS, _EVENT.split(", "), strict=True))
_FOLLOW = (  # no state, which the table refuses, unless the event before is there with its chain: one statement for both
    f'{_INTO} (?, ?, ?, (SELECT ? FROM "{EVENTS}" WHERE originator_id = ? AND originator_version = ? '
    f"AND substr(state, -{codec.TAIL}) = ?))"
)
_NEXT = f"{_INTO} (?, ?, ?, ?)"
_BY_JOB = (  # whatever somebody's UPDATE has made of the bytes: a proof must be able to say so
    "SELECT notification_id, originator_id, originator_version, topic, coalesce(CAST(state AS BLOB), x'') "
    f'FROM "{EVENTS}" '
    "WHERE (originator_id, originator_version, notification_id) > (?, ?, ?) "
    "ORDER BY originator_id, originator_version, notification_id LIMIT ?"
)
_HEADS = f'SELECT (SELECT max(notification_id) FROM "{EVENTS}"), (SELECT max("place") FROM "{INBOX}")'
_TRACK = (
    f'INSERT INTO "{TRACKING}" VALUES (?, ?) ON CONFLICT (application_name) DO UPDATE '
    "SET notification_id = excluded.notification_id WHERE notification_id < excluded.notification_id"
)


class SqliteDatastore(SQLiteDatastore):
    """What the library's recorders want to know; connections are those of a SqliteFile, and never opened here."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.single_row_tracking = True
        self.originator_id_type = "text"

    def close(self) -> None:
        """Close the file's connections."""
        self.file.close()

    def __del__(self) -> None:
        """Leave the file open: others may use it still. The library's own closes here."""


class SqliteRecorder(SQLiteProcessRecorder):
    """The recorder of a SQLite file, for any number of threads and processes; make it with `open`.

    Errors are ours, but for the library's IntegrityError when an event's place is taken.
    """

    def __init__(
        self,
        datastore: SqliteDatastore,
        *,
        tables: Tables = DEFAULT_TABLES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(datastore, events_table_name=EVENTS)
        self.file = datastore.file
        self._rows = SqliteRuns(self.file, tables)
        self.runs: RunTable = self._rows
        self.run_logs: LogTable = SqliteRunLogs(self.file, tables)
        self.leases: Leases = SqliteLeases(self.file, monotonic=monotonic)
        self._tables = tables
        path = self.file.path
        self._wake = Wake(path.with_name(f"{path.name}.wake"), self._heads, partial(last_change, path))
        announce = self._wake.announce
        self.desk = Desk(
            claims=SqliteClaims(self.file, tables, announce, events=EVENTS, monotonic=monotonic),
            pauses=SqlitePauses(self.file, announce),
            retention=SqliteRetention(self.file, tables),
            alarm=self._wake,
            census=SqliteCensus(self.file, tables),
            inbox=SqliteInbox(self.file),
        )
        self.eraser = self.floors = SqliteErasures(self.file, tables)
        self._tails: weakref.WeakSet[TailSubscription] = weakref.WeakSet()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        synchronous: Synchronous = "full",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        tables: Sequence[str] = DEFAULT_TABLES,
        create: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Open the log in a file, made with its directory if missing; nothing else is ever migrated unasked.

        Args:
            synchronous: `full`: a commit survives a power cut when it has returned; `normal`: a crash of the process.
            lock_timeout_s: how long a write waits for other processes before it is Unavailable.
            tables: names of the tables of runs and of their log lines, as the file was made with; "" is the default.
            create: make the schema where there is nothing yet.
            monotonic: the clock by which leases and claims end: one for all processes of the machine.

        Raises:
            Misconfigured: the schema is older, newer or not there, or an option is none.
            Unavailable, PermissionDenied, Corrupt: the file cannot be used; it was left as it is.
        """
        file = SqliteFile(path, synchronous=synchronous, lock_timeout_s=lock_timeout_s)
        named = Tables.named(tables)
        try:
            sqliteschema.prepare(file, tables=named, create=create)
        except BaseException:
            file.close()
            raise
        return cls(SqliteDatastore(file), tables=named, monotonic=monotonic)

    def create_table(self) -> None:
        """Make or update the schema: what `jobevents migrate` does."""
        sqliteschema.migrate(self.file.path, tables=self._tables)

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        rows: Sequence[Job] = (),
        limits: Sequence[Limit] = (),
        follows: Mapping[str, Head] = NO_HEADS,
        tracking: Tracking | None = None,
        **_: Any,  # what the library's other recorders take
    ) -> Sequence[int] | None:
        """Commit events, rows and tracking, all or none, and return the events' ids; durable when it returns.

        Args:
            stored_events: 0..n, of any jobs.
            rows: jobs as they are after these events.
            limits: on how many of those may run.
            follows: job id -> the Head that its events go on from, which must be there: not so when the file was replaced
                by an older one.
            tracking: as in the library.

        Raises:
            IntegrityError: an event's place is taken, the one before it is not there, or the tracking is not beyond the last.
            KeyTaken: an unfinished job holds the idempotency key of a row.
            Busy: as many other jobs run as a limit lets.
            Unavailable, PermissionDenied, Corrupt: what the file says.
        """
        if not stored_events and not rows and tracking is None:
            return []
        ids = self.file.write(
            lambda cursor: self._insert_events(
                cursor, stored_events, rows=rows, limits=limits, follows=follows, tracking=tracking
            )
        )
        self._wake.announce()
        return ids

    def _insert_events(  # type: ignore[override]  # our cursor is sqlite3's own
        self,
        c: sqlite3.Cursor,
        stored_events: Sequence[StoredEvent],
        *,
        rows: Sequence[Job] = (),
        limits: Sequence[Limit] = (),
        follows: Mapping[str, Head] = NO_HEADS,
        tracking: Tracking | None = None,
        **_: Any,
    ) -> list[int]:
        ids: list[int] = []
        single: dict[str, str] = {}  # job id -> type of its event, if it has one here and the one before is there
        try:
            for s in stored_events:
                job_id: str = s.originator_id  # type: ignore[assignment]  # ids are text here
                version = s.originator_version
                before = follows.get(job_id)
                if before is not None and before.version == version - 1:
                    tail = codec.tail(before.chain)
                    c.execute(_FOLLOW, (job_id, version, s.topic, s.state, job_id, before.version, tail))
                    single[job_id] = s.topic
                elif version == 1:
                    c.execute(_FIRST, (job_id, version, s.topic, job_id, s.state))
                else:
                    c.execute(_NEXT, (job_id, version, s.topic, s.state))
                    single.pop(job_id, None)
                ids.append(c.lastrowid)  # type: ignore[arg-type]  # an INSERT has one
        except sqlite3.IntegrityError as error:
            raise IntegrityError(error) from error
        if limits:
            self._rows.check_limits(c, limits, rows)
        for job in rows:
            self._rows.put(c, job, single.get(job.job_id, ""))
        if tracking is not None:
            self._insert_tracking(c, tracking)
        return ids

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return a job's events in order of version."""
        statement = f'SELECT {_EVENT} FROM "{EVENTS}" WHERE originator_id = ?'
        values: list[Any] = [originator_id]
        if gt is not None:
            statement += " AND originator_version > ?"
            values.append(gt)
        if lte is not None:
            statement += " AND originator_version <= ?"
            values.append(lte)
        statement += f" ORDER BY originator_version {'DESC' if desc else 'ASC'}"
        if limit is not None:
            statement += " LIMIT ?"
            values.append(limit)
        return [StoredEvent(*row) for row in self.file.query(statement, values)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events in commit order; none is ever skipped, since writers commit one after the other."""
        sign = ">=" if inclusive_of_start else ">"
        statement = f'SELECT {_EVENT}, notification_id FROM "{EVENTS}" WHERE notification_id {sign} ?'
        values: list[Any] = [0 if start is None else start]
        if stop is not None:
            statement += " AND notification_id <= ?"
            values.append(stop)
        if topics:
            statement += f" AND topic IN ({', '.join('?' * len(topics))})"
            values += topics
        statement += " ORDER BY notification_id LIMIT ?"
        return [Notification(*row) for row in self.file.query(statement, [*values, limit])]

    def select_columns(self, position: int, limit: int, columns: Sequence[str]) -> list[list[Any]]:
        """Return of the events after a position in commit order their ids and these columns: no Notification in between."""
        wanted = ", ".join(("notification_id", *map(_COLUMN.__getitem__, columns)))
        statement = f'SELECT {wanted} FROM "{EVENTS}" WHERE notification_id > ? ORDER BY notification_id LIMIT ?'
        return self.file.read(lambda cursor: _by_column(cursor.execute(statement, (position, limit))))

    def iter_by_job(self, start: str, batch: int) -> Iterator[Record]:
        """Yield the events of a job and of those after it, each job's together."""
        return by_job(lambda place: self.file.query(_BY_JOB, (*place, batch)), start, batch)

    def max_notification_id(self) -> int | None:  # type: ignore[override]  # the library says int, and returns None
        """Return the id of the last committed event, None when there is none."""
        found: int | None = self.file.query(f'SELECT max(notification_id) FROM "{EVENTS}"')[0][0]
        return found

    def _heads(self) -> object:
        """Return what changes with every commit of a log or of a caller's transaction with a job in it."""
        return self.file.query(_HEADS)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> TailSubscription:
        """Return an iterator over events after `gt` that waits for new ones, whoever writes them; stop it to end it."""
        tail = TailSubscription(self, self, gt, topics)
        self._tails.add(tail)
        return tail

    def listen(self, event: Flag) -> None:
        """Set `event` after every commit, of this process at once, of others some milliseconds later."""
        self._wake.listen(event)

    def unlisten(self, event: Flag) -> None:
        """Leave `event` alone."""
        self._wake.unlisten(event)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Commit how far an application has read.

        Raises:
            IntegrityError: it had read as far before.
        """
        self.file.write(lambda cursor: self._insert_tracking(cursor, tracking))

    def _insert_tracking(self, c: sqlite3.Cursor, tracking: Tracking) -> None:  # type: ignore[override]  # as above
        c.execute(_TRACK, (tracking.application_name, tracking.notification_id))
        if c.rowcount < 1:
            raise IntegrityError(
                f"tracking is not beyond the last application={tracking.application_name} "
                f"notification_id={tracking.notification_id}"
            )

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return how far an application has read, None when it has not begun."""
        rows = self.file.query(
            f'SELECT notification_id FROM "{TRACKING}" WHERE application_name = ?', (application_name,)
        )
        return rows[0][0] if rows else None

    def translate(self, error: BaseException) -> JobEventsError:
        """Return our error for one of sqlite3, of eventsourcing over it, or of the file system."""
        return sqliteerrors.translate(error, self.file.path)

    def close(self) -> None:
        """End subscriptions and close all connections, from any thread, any number of times; no thread or socket is left."""
        for tail in list(self._tails):
            tail.stop()
        self._wake.close()
        self.file.close()


def _by_column(cursor: sqlite3.Cursor) -> list[list[Any]]:
    """Return all rows, column by column: so few tuples at a time that the garbage collector does not go through them."""
    columns: list[list[Any]] = [[] for _ in cursor.description]
    while rows := cursor.fetchmany(_TOGETHER):
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column += values
    return columns


def ddl(tables: Sequence[str] = DEFAULT_TABLES) -> str:
    """Return the schema as SQL, for those who apply it themselves."""
    return sqliteschema.ddl(Tables.named(tables))


def migrate(
    path: Path | str, *, tables: Sequence[str] = DEFAULT_TABLES, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> list[int]:
    """Bring a file's schema up to date and return the versions applied, if any; see `sqliteschema.migrate`."""
    return sqliteschema.migrate(path, tables=Tables.named(tables), lock_timeout_s=lock_timeout_s)
