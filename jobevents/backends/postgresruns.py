"""The rows of runs and their log lines in a Postgres database."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import Cursor

from jobevents.backends import postgresclaims, sqlexternal
from jobevents.backends.postgresdb import BEGIN, COMMIT, PostgresDatabase
from jobevents.backends.postgresschema import EVENTS, EXTERNAL
from jobevents.backends.postgressession import Row, Statement
from jobevents.backends.sql import (
    LOG_COLUMNS,
    OPTIONAL,
    RUN_COLUMNS,
    Kind,
    Statements,
    Tables,
    instant,
    log_from,
    log_row,
    page_of,
    row_of,
    run_from,
    time_text,
)
from jobevents.errors import Busy, InvalidValue, KeyTaken
from jobevents.job import DELETED, RUNNING, Job
from jobevents.limits import Limit
from jobevents.store import Held, JobLog, JobRun, RunFilter, RunPage, Undelivered

MARK: Final = "%s"
_MOST: Final = 2**63 - 1
_RUN_KINDS = [(name, kind, kind in ("text", "json", "time")) for name, kind in RUN_COLUMNS.items()]
_LOG_KINDS = [(name, kind, kind in ("text", "json", "time")) for name, kind in LOG_COLUMNS.items()]


class PostgresRuns:
    """The table of runs; rows are written with the events that they follow from, in their transaction."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        self._database = database
        self._sql = Statements(tables, EVENTS, MARK)
        self._undelivered = sqlexternal.undelivered(tables, EXTERNAL, MARK)
        self.key_index = f"{tables.runs}_key"

    def checks(self, limits: Sequence[Limit], jobs: Sequence[Job]) -> Iterator[Statement]:
        """Yield what fails, by a division by zero, where a running row would be one more than a limit lets run."""
        for job, limit in _pairs(limits, jobs):
            count = self._sql.count_running[limit.column]
            yield f"SELECT 1 / CASE WHEN ({count}) < %s THEN 1 ELSE 0 END", (limit.value, job.job_id, limit.most)

    def reached(self, cursor: Cursor[Row], limits: Sequence[Limit], jobs: Sequence[Job]) -> Busy | None:
        """Return the error for the first limit that is reached, as the cursor's transaction sees it."""
        for job, limit in _pairs(limits, jobs):
            count = cursor.execute(self._sql.count_running[limit.column], (limit.value, job.job_id)).fetchall()[0][0]
            if count >= limit.most:
                return Busy(job_id=job.job_id, column=limit.column, value=limit.value, most=limit.most)
        return None

    def writes(self, jobs: Sequence[Job]) -> Iterator[Statement]:
        """Yield what writes the rows, in order; one of a higher version stays, a deleted job's goes with its lines.

        Claims on the jobs end.

        Raises:
            InvalidValue: a row holds what no column can, such as a record's name that is null.
        """
        for job in jobs:
            if job.state == DELETED:
                yield self._sql.delete_run, (job.job_id,)
                yield self._sql.delete_logs, (job.job_id,)
            else:
                yield self._sql.put_run, _fit(_RUN_KINDS, row_of(job), job.job_id)
            # After the row, which a claim locks first. A run that goes on is not claimed.
            if job.version > 1 and (job.state != RUNNING or job.version == job.start):
                yield postgresclaims.SQL.end, (job.job_id,)

    def taken(self, cursor: Cursor[Row], jobs: Sequence[Job]) -> KeyTaken | None:
        """Return the error for the first of these jobs whose key another one holds, as the cursor's transaction sees it."""
        ended = {job.job_id for job in jobs if job.state == DELETED or job.is_final()}
        holders: dict[tuple[str, str], str] = {}
        for job in jobs:
            slot = (job.name, job.key)
            if not job.key or job.job_id in ended:
                continue
            found = cursor.execute(self._sql.find_active, slot).fetchone()
            other = found[0] if found is not None and found[0] not in ended else job.job_id
            holder = holders.setdefault(slot, other)
            if holder != job.job_id:
                return KeyTaken("idempotency key is taken", job_id=holder, key=job.key)
        return None

    def get(self, job_id: str) -> JobRun | None:
        """Return the row, by its primary key; None when there is no such job."""
        rows = self._database.query(self._sql.get_run, (job_id,))
        return run_from(rows[0]) if rows else None

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page and the count of all, both of one state of the database."""
        number, per_page, offset = page_of(filter)
        page, count, values = self._sql.listing(filter, time_text)

        def both(cursor: Cursor[Row]) -> RunPage:
            total: int = cursor.execute(count, values).fetchall()[0][0]
            rows = cursor.execute(page, [*values, per_page or None, offset]).fetchall()
            return RunPage([run_from(row) for row in rows], total, number, per_page)

        return self._database.read(both)

    def find_active(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds the key, by the unique index."""
        rows = self._database.query(self._sql.find_active, (name, key))
        return rows[0][0] if rows else None

    def running_ids(self, name: str) -> Sequence[str]:
        """Return the ids of the running jobs of a kind, sorted."""
        return [job_id for (job_id,) in self._database.query(self._sql.running_ids, (name,))]

    def running(self, *, after: str, limit: int, now: datetime) -> Sequence[Held]:
        """Return the next running jobs by id, by the index on their state."""
        rows = self._database.query(self._sql.running, (time_text(now), after, limit))
        return [Held(*row) for row in rows]

    def undelivered(self, *, after: str, limit: int, due: datetime) -> Sequence[Undelivered]:
        """Return the next queued external jobs that are due, by the index over these alone."""
        rows = self._database.query(self._undelivered, (after, time_text(due), limit))
        return [Undelivered(job_id, instant(when)) for job_id, when in rows]


class PostgresRunLogs:
    """The table of log lines; a batch is a transaction of its own, and never in the way of events."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        self._database = database
        self._sql = Statements(tables, EVENTS, MARK)
        # A job that is being deleted is waited for, and one that we write lines of is not deleted until they are there.
        self._hold = f'SELECT 1 FROM "{tables.runs}" WHERE "id" = ANY(%s) ORDER BY "id" FOR KEY SHARE'

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store all lines or none; see `LogTable`."""
        if not entries:
            return
        put = self._sql.put_log
        puts = [(put, (*_fit(_LOG_KINDS, log_row(line), line.run_id), line.run_id, line.run_id)) for line in entries]
        hold = (self._hold, (sorted({line.run_id for line in entries}),))
        self._database.write(lambda connection: connection.send([BEGIN, hold, *puts, COMMIT]))

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Return lines by their primary key; see `LogTable`."""
        rows = self._database.query(self._sql.get_logs, (job_id, after_seq, limit if limit > 0 else None))
        return [log_from(row) for row in rows]


def _pairs(limits: Sequence[Limit], jobs: Sequence[Job]) -> Iterator[tuple[Job, Limit]]:
    return ((job, limit) for job in jobs if job.state == RUNNING for limit in limits)


def _fit(columns: Sequence[tuple[str, Kind, bool]], row: Row, job_id: str) -> list[Any]:  # Any: column values
    """Return a row as Postgres takes it, whose columns are stricter than SQLite's; a record may have said anything.

    Raises:
        InvalidValue: nothing stands where something must.
    """
    return [  # for every event: what is as it should be, as most is, costs no call
        value if is_text and type(value) is str and "\0" not in value else _value(name, kind, value, job_id)
        for (name, kind, is_text), value in zip(columns, row, strict=True)
    ]


def _value(name: str, kind: Kind, value: Any, job_id: str) -> Any:
    if value is None:
        if name not in OPTIONAL:
            raise InvalidValue(f"row cannot be stored job_id={job_id} column={name}: it must not be null")
        return None
    match kind:
        case "text":
            return str(value).replace("\0", "\u2400")  # its picture: Postgres has no text with NUL
        case "number":
            return float(value) if isinstance(value, int | float) else 0.0
        case "int":
            return value if type(value) is int and -_MOST <= value <= _MOST else 0
        case "bool":
            return bool(value)
    return value
