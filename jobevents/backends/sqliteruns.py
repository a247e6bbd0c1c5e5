"""The rows of runs and their log lines in a SQLite file."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from jobevents.backends import sqlexternal
from jobevents.backends.sql import Statements, Tables, instant, log_from, log_row, page_of, row_of, run_from, time_text
from jobevents.backends.sqlclaims import ClaimStatements
from jobevents.backends.sqlitechanges import changes
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqliteschema import EVENTS, EXTERNAL
from jobevents.errors import Busy, InvalidValue, KeyTaken
from jobevents.job import DELETED, RUNNING, Job
from jobevents.limits import Limit
from jobevents.store import Held, JobLog, JobRun, RunFilter, RunPage, Undelivered


class SqliteRuns:
    """The table of runs; rows are written with the events that they follow from, in their transaction."""

    def __init__(self, file: SqliteFile, tables: Tables) -> None:
        self._file = file
        self._sql = Statements(tables, EVENTS)
        self._undelivered = sqlexternal.undelivered(tables, EXTERNAL, indexed=True)
        self._claims = ClaimStatements()
        self._changes = changes(tables)

    def check_limits(self, cursor: sqlite3.Cursor, limits: Sequence[Limit], rows: Sequence[Job]) -> None:
        """Count the other running jobs, in the transaction that is to write the rows.

        Raises:
            Busy: a row would be one more than a limit lets run.
        """
        for job in rows:
            for limit in limits if job.state == RUNNING else ():
                asked = self._sql.count_running[limit.column], (limit.value, job.job_id)
                if cursor.execute(*asked).fetchone()[0] >= limit.most:
                    raise Busy(job_id=job.job_id, column=limit.column, value=limit.value, most=limit.most)

    def put(self, cursor: sqlite3.Cursor, job: Job, event: str = "") -> None:
        """Write a job's row in the cursor's transaction; one of a higher version stays, a deleted job's goes with its lines.

        It ends every claim on the job.

        Args:
            event: type of the job's last event, if that is all that came to the log since; "" when there may be more.

        Raises:
            KeyTaken: another unfinished job holds the idempotency key; the transaction must be rolled back.
            InvalidValue: the row holds what no column can, such as a record's name that is null; as above.
        """
        try:
            change = self._changes.get(event)
            if change is not None and cursor.execute(change.statement, change.values(job)).rowcount:
                if change.ends_claim:
                    cursor.execute(self._claims.end, (job.job_id,))
                return
            if job.version > 1:
                cursor.execute(self._claims.end, (job.job_id,))
            if job.state == DELETED:
                cursor.execute(self._sql.delete_run, (job.job_id,))
                cursor.execute(self._sql.delete_logs, (job.job_id,))
            else:
                cursor.execute(self._sql.put_run, row_of(job))
        except sqlite3.IntegrityError as error:
            there = cursor.execute(self._sql.run_version, (job.job_id,)).fetchone()
            if there is not None and there[0] > job.version:
                return
            holder = cursor.execute(self._sql.find_active, (job.name, job.key)).fetchone()
            if holder is None:
                raise InvalidValue(f"row cannot be stored job_id={job.job_id} error={error}") from error
            raise KeyTaken("idempotency key is taken", job_id=holder[0], key=job.key) from error

    def get(self, job_id: str) -> JobRun | None:
        """Return the row, by its primary key; None when there is no such job."""
        rows = self._file.query(self._sql.get_run, (job_id,))
        return run_from(rows[0]) if rows else None

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page and the count of all, both of one state of the database."""
        number, per_page, offset = page_of(filter)
        page, count, values = self._sql.listing(filter, time_text)

        def both(cursor: sqlite3.Cursor) -> RunPage:
            total: int = cursor.execute(count, values).fetchone()[0]
            rows = cursor.execute(page, [*values, per_page or -1, offset]).fetchall()
            return RunPage([run_from(row) for row in rows], total, number, per_page)

        return self._file.read(both)

    def find_active(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds the key, by the unique index."""
        rows = self._file.query(self._sql.find_active, (name, key))
        return rows[0][0] if rows else None

    def running_ids(self, name: str) -> Sequence[str]:
        """Return the ids of the running jobs of a kind, sorted."""
        return [job_id for (job_id,) in self._file.query(self._sql.running_ids, (name,))]

    def running(self, *, after: str, limit: int, now: datetime) -> Sequence[Held]:
        """Return the next running jobs by id, by the index on their state."""
        rows = self._file.query(self._sql.running, (time_text(now), after, limit))
        return [Held(job_id, worker, start, bool(overdue)) for job_id, worker, start, overdue in rows]

    def undelivered(self, *, after: str, limit: int, due: datetime) -> Sequence[Undelivered]:
        """Return the next queued external jobs that are due, by the index over these alone."""
        rows = self._file.query(self._undelivered, (after, time_text(due), limit))
        return [Undelivered(job_id, instant(when)) for job_id, when in rows]


class SqliteRunLogs:
    """The table of log lines; each batch is one transaction, or shares one with other writers."""

    def __init__(self, file: SqliteFile, tables: Tables) -> None:
        self._file = file
        self._sql = Statements(tables, EVENTS)

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store all lines or none; see `LogTable`."""
        if not entries:
            return
        rows = [(*log_row(line), line.run_id, line.run_id) for line in entries]

        def put(cursor: sqlite3.Cursor) -> None:
            cursor.executemany(self._sql.put_log, rows)

        self._file.write(put)

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Return lines by their primary key; see `LogTable`."""
        rows = self._file.query(self._sql.get_logs, (job_id, after_seq, limit if limit > 0 else -1))
        return [log_from(row) for row in rows]
