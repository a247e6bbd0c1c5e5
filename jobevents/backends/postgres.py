"""The log in a Postgres database: eventsourcing's process recorder, with runs, group commit, subscriptions and typed errors.

Events, the rows that follow from them and a tracking record are one transaction. Ids of events rise in commit order: no reader
that goes on after the last id it saw passes over an event (`postgreswriter` says how). Failed writes leave gaps between ids.
"""
# ruff: noqa: S608  # table names are constants, values are bound

import weakref
from collections.abc import Iterator, Sequence
from threading import Event as Flag
from typing import Any, Self
from uuid import UUID

import psycopg
from eventsourcing.persistence import IntegrityError, Notification, StoredEvent, Tracking
from eventsourcing.postgres import PostgresDatastore as LibraryDatastore
from eventsourcing.postgres import PostgresProcessRecorder
from psycopg import Cursor

from jobevents import codec
from jobevents.backends import postgreserrors, postgresschema
from jobevents.backends.postgresblobs import PostgresBlobs
from jobevents.backends.postgrescensus import PostgresCensus
from jobevents.backends.postgresclaims import PostgresClaims
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgreserasures import PostgresErasures
from jobevents.backends.postgreserrors import Unsure
from jobevents.backends.postgresinbox import PostgresInbox
from jobevents.backends.postgresinsert import EVENT, columns, writing
from jobevents.backends.postgresleases import PostgresLeases
from jobevents.backends.postgrespauses import PostgresPauses
from jobevents.backends.postgresretention import PostgresRetention
from jobevents.backends.postgresruns import PostgresRunLogs, PostgresRuns
from jobevents.backends.postgresschema import EVENTS, TRACKING
from jobevents.backends.postgressession import Row, Statement
from jobevents.backends.postgresurl import parse
from jobevents.backends.postgreswake import PostgresWake
from jobevents.backends.postgreswriter import Insert, PostgresWriter, notifying
from jobevents.backends.sql import DEFAULT_TABLES, Tables, by_job
from jobevents.backends.tail import TailSubscription
from jobevents.desk import Desk
from jobevents.errors import AppendUnknown, Corrupt, InvalidValue, JobEventsError
from jobevents.job import QUEUED, Job
from jobevents.limits import Limit
from jobevents.log import COLUMNS, NO_HEADS, Record
from jobevents.store import LogTable, RunTable
from jobevents.workers import Leases

_COLUMN = dict(zip(COLUMNS, EVENT.split(", "), strict=True))
_BY_JOB = (
    f"SELECT notification_id, {EVENT} FROM {EVENTS} "
    "WHERE (originator_id, originator_version, notification_id) > (%s, %s, %s) "
    "ORDER BY originator_id, originator_version, notification_id LIMIT %s"
)
_HEAD = f"SELECT max(notification_id) FROM {EVENTS}"
# Where the position is not beyond the last one it becomes null, which the table refuses: that undoes the transaction.
_TRACK = (
    f"INSERT INTO {TRACKING} AS known VALUES (%s, %s) ON CONFLICT (application_name) DO UPDATE SET notification_id = "
    "CASE WHEN known.notification_id < excluded.notification_id THEN excluded.notification_id END"
)


class PostgresDatastore(LibraryDatastore):
    """What the library's recorders want to know; connections are those of a PostgresDatabase, and never opened here."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self.schema = database.target.schema
        self.single_row_tracking = True
        self.originator_id_type = "text"
        self.enable_db_functions = False
        self.lock_timeout = 0
        self.db_type_names = set()

    def register_type_adapters(self) -> None:
        """Need no composite types."""

    def close(self) -> None:
        """Close the database's connections."""
        self.database.close()

    def __del__(self) -> None:
        """Leave the database open: others may use it still. The library's own closes here."""


class PostgresRecorder(PostgresProcessRecorder):
    """The recorder of a Postgres database, for any number of threads, processes and machines; make it with `open`.

    Errors are ours, but for the library's IntegrityError when an event's place is taken.
    """

    def __init__(self, datastore: PostgresDatastore, *, tables: Tables = DEFAULT_TABLES) -> None:
        super().__init__(datastore, events_table_name=EVENTS, tracking_table_name=TRACKING)
        database = self.database = datastore.database
        self._tables = tables
        self._rows = PostgresRuns(database, tables)
        self.runs: RunTable = self._rows
        self.run_logs: LogTable = PostgresRunLogs(database, tables)
        self.leases: Leases = PostgresLeases(database)
        channel = f"{datastore.schema}.{EVENTS}"
        offers = f"{channel}.offers"  # apart: of most commits, those who wait for runs need not hear
        self._wake = PostgresWake(database, channel=channel, head=_HEAD)
        self._offers = PostgresWake(database, channel=offers, head=_HEAD)
        self.desk = Desk(
            claims=PostgresClaims(database, tables, self._announce, events=EVENTS),
            pauses=PostgresPauses(database, self._announce),
            retention=PostgresRetention(database, tables),
            alarm=self._wake,
            census=PostgresCensus(database, tables),
            inbox=PostgresInbox(database, (channel, offers)),
            offers=self._offers,
        )
        self._writer = PostgresWriter(
            database,
            lock=postgresschema.lock_key(datastore.schema, EVENTS),
            note=lambda inserts: [wake.note for wake in self._woken(any(map(_offers, inserts)))],
            write=_writing,
            judge=self._judge,
        )
        self.eraser = self.floors = PostgresErasures(database, tables)
        self._tails: weakref.WeakSet[TailSubscription] = weakref.WeakSet()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        tables: Sequence[str] = DEFAULT_TABLES,
        schema: str = "",
        poll_interval_s: float = 0,
    ) -> Self:
        """Open the log in a database whose schema is there; nothing is ever migrated unasked.

        Args:
            url: `postgresql://user:password@host:port/database`, with libpq's options and `schema`, `poll_interval_s`,
                `timeout_s` (how long a call tries before it is Unavailable) and `pool_size` (connections).
            tables: names of the tables of runs and of their log lines, as the schema was made with; "" is the default.
            schema, poll_interval_s: win over those of the URL.

        Raises:
            Misconfigured: the schema is older, newer or not there, or an option is none.
            Unavailable, PermissionDenied: the database cannot be used.
        """
        named = Tables.named(tables)
        database = _connected(url, schema, poll_interval_s)
        try:
            postgresschema.check(database, tables=named)
        except BaseException:
            database.close()
            raise
        return cls(PostgresDatastore(database), tables=named)

    def create_table(self) -> None:
        """Make or update the schema: what `jobevents migrate` does."""
        postgresschema.migrate(self.database, tables=self._tables)

    def blobs(self) -> PostgresBlobs:
        """Return the blobs beside the log, over the same connections."""
        return PostgresBlobs(self.database)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Commit events, rows and tracking, all or none, and return the events' ids; durable when it returns.

        Args:
            stored_events: 0..n, of any jobs.
            kwargs: `rows`: Jobs as they are after these events; `limits`: on how many of those may run;
                `follows`: job id -> the Head that its events go on from, which must be there: not so when the database was
                replaced by an older copy; `tracking`: as in the library; others are passed over.

        Raises:
            IntegrityError: an event's place is taken, the one before it is not there, or the tracking is not beyond the
                last. Also when these very events are there, as after a lost reply: whoever knows their ids can tell.
            KeyTaken: an unfinished job holds the idempotency key of a row.
            Busy: as many other jobs run as a limit lets.
            AppendUnknown: the reply was lost, and the database did not come back in time.
            Unavailable, PermissionDenied: what the database says; nothing was written.
        """
        rows: Sequence[Job] = kwargs.get("rows", ())
        limits: Sequence[Limit] = kwargs.get("limits", ())
        tracking: Tracking | None = kwargs.get("tracking")
        if not stored_events and not rows and tracking is None:
            return []
        statements = [*self._rows.checks(limits, rows), *self._rows.writes(rows)]
        if tracking is not None:
            statements.append((_TRACK, (tracking.application_name, tracking.notification_id)))
        insert = Insert(stored_events, statements, rows, limits, kwargs.get("follows", NO_HEADS))
        try:
            ids = self._writer.run(insert)
        except Unsure as error:
            if not stored_events:
                raise
            first = stored_events[0]
            raise AppendUnknown(str(first.originator_id), first.originator_version, _event_id(first)) from error
        for wake in self._woken(_offers(insert)):
            wake.announce()
        return ids

    def _judge(self, cursor: Cursor[Row], insert: Insert, error: psycopg.Error) -> Exception:
        """Say what an insert's error means to its caller."""
        table, constraint = error.diag.table_name, error.diag.constraint_name
        if isinstance(error, psycopg.IntegrityError):
            if table in (EVENTS, TRACKING):
                lost = isinstance(error, psycopg.errors.NotNullViolation) and table == EVENTS  # see _UNLESS_LOST
                return _because(IntegrityError("event before is not there" if lost else str(error)), error)
            if constraint == self._rows.key_index and (taken := self._rows.taken(cursor, insert.rows)):
                return _because(taken, error)
        if error.sqlstate == postgreserrors.DIVISION_BY_ZERO:  # a limit's, see `checks`
            busy = self._rows.reached(cursor, insert.limits, insert.rows)
            if busy is not None:
                return _because(busy, error)
        ours = self.translate(error)
        if table == self._tables.runs or isinstance(ours, InvalidValue):
            names = ", ".join(sorted({str(event.originator_id) for event in insert.events}))
            ours = InvalidValue(f"row cannot be stored job_id={names:.200}: {ours}")
        return _because(ours, error)

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
        statement = f"SELECT {EVENT} FROM {EVENTS} WHERE originator_id = %s"
        values: list[Any] = [originator_id]
        if gt is not None:
            statement += " AND originator_version > %s"
            values.append(gt)
        if lte is not None:
            statement += " AND originator_version <= %s"
            values.append(lte)
        statement += f" ORDER BY originator_version {'DESC' if desc else 'ASC'}"
        if limit is not None:
            statement += " LIMIT %s"
            values.append(limit)
        return [StoredEvent(*row) for row in self.database.query(statement, values)]

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
        statement = f"SELECT {EVENT}, notification_id FROM {EVENTS} WHERE notification_id {sign} %s"
        values: list[Any] = [0 if start is None else start]
        if stop is not None:
            statement += " AND notification_id <= %s"
            values.append(stop)
        if topics:
            statement += " AND topic = ANY(%s)"
            values.append(list(topics))
        statement += " ORDER BY notification_id LIMIT %s"
        return [Notification(*row) for row in self.database.query(statement, [*values, limit])]

    def select_columns(self, position: int, limit: int, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return of the events after a position in commit order their ids and these columns: no Notification in between."""
        wanted = ", ".join(("notification_id", *map(_COLUMN.__getitem__, columns)))
        statement = f"SELECT {wanted} FROM {EVENTS} WHERE notification_id > %s ORDER BY notification_id LIMIT %s"
        return list(zip(*self.database.query(statement, (position, limit)), strict=True))

    def iter_by_job(self, start: str, batch: int) -> Iterator[Record]:
        """Yield the events of a job and of those after it, each job's together."""
        return by_job(lambda place: self.database.query(_BY_JOB, (*place, batch)), start, batch)

    def max_notification_id(self) -> int | None:
        """Return the id of the last committed event, None when there is none."""
        found: int | None = self.database.query(_HEAD)[0][0]
        return found

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> TailSubscription:
        """Return an iterator over events after `gt` that waits for new ones, whoever writes them; stop it to end it."""
        tail = TailSubscription(self, self, gt, topics)
        self._tails.add(tail)
        return tail

    def listen(self, event: Flag) -> None:
        """Set `event` after every commit, of this process at once, of others when the server tells of it."""
        self._wake.listen(event)

    def unlisten(self, event: Flag) -> None:
        """Leave `event` alone."""
        self._wake.unlisten(event)

    def _announce(self) -> None:
        """Wake who waits, in all processes, for what is no event."""
        wakes = self._woken(offers=True)
        for wake in wakes:
            wake.announce()
        self.database.send([notifying([wake.note for wake in wakes])])

    def _woken(self, offers: bool) -> Sequence[PostgresWake]:
        return (self._wake, self._offers) if offers else (self._wake,)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Commit how far an application has read.

        Raises:
            IntegrityError: it had read as far before; also when a lost reply was to this very call.
        """
        try:
            self.database.query(_TRACK, (tracking.application_name, tracking.notification_id))
        except JobEventsError as error:
            if not isinstance(error.__cause__, psycopg.IntegrityError):
                raise
            raise IntegrityError(
                f"tracking is not beyond the last application={tracking.application_name} "
                f"notification_id={tracking.notification_id}"
            ) from error

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return how far an application has read, None when it has not begun."""
        rows = self.database.query(
            f"SELECT notification_id FROM {TRACKING} WHERE application_name = %s", (application_name,)
        )
        return rows[0][0] if rows else None

    def translate(self, error: BaseException) -> JobEventsError:
        """Return our error for one of psycopg, or of eventsourcing over it."""
        return postgreserrors.translate(error, self.database.target)

    def close(self) -> None:
        """End subscriptions and close all connections, from any thread, any number of times; no thread is left."""
        for tail in list(self._tails):
            tail.stop()
        self._wake.close()
        self._offers.close()
        self.database.close()


def ddl(url: str, *, tables: Sequence[str] = DEFAULT_TABLES, schema: str = "") -> str:
    """Return the schema as SQL, for those who apply it themselves; asks no database."""
    return postgresschema.ddl(parse(url, schema=schema).schema, Tables.named(tables))


def migrate(url: str, *, tables: Sequence[str] = DEFAULT_TABLES, schema: str = "") -> list[int]:
    """Bring a database's schema up to date and return the versions applied, if any; see `postgresschema.migrate`."""
    database = _connected(url, schema)
    try:
        return postgresschema.migrate(database, tables=Tables.named(tables))
    finally:
        database.close()


def open_blobs(url: str) -> PostgresBlobs:
    """Open the blobs in a database whose schema is there.

    Raises: as `PostgresRecorder.open`.
    """
    database = _connected(url)
    try:
        postgresschema.check(database, tables=())
    except BaseException:
        database.close()
        raise
    return PostgresBlobs(database)


def _connected(url: str, schema: str = "", poll_interval_s: float = 0) -> PostgresDatabase:
    database = PostgresDatabase(parse(url, schema=schema, poll_interval_s=poll_interval_s))
    database.open()
    return database


def _writing(inserts: Sequence[Insert]) -> list[Statement]:
    stored = [columns(event, insert.follows) for insert in inserts for event in insert.events]
    rows = [statement for insert in inserts for statement in insert.statements]
    return [writing(stored), *rows] if stored else rows


def _offers(insert: Insert) -> bool:
    """Tell whether a run may wait after it that did not before."""
    return any(job.state == QUEUED and not job.external for job in insert.rows)


def _event_id(stored: StoredEvent) -> str:
    try:
        return codec.decode(stored.state).id
    except Corrupt:
        return ""


def _because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error
