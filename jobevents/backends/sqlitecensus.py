"""Counts over all runs of a SQLite file."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from jobevents.backends import sqliteclaims
from jobevents.backends.sql import Statements, Tables, instant, run_from, time_text
from jobevents.backends.sqlcensus import CensusStatements
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqliteschema import EVENTS
from jobevents.census import Bar, Order, Size, Tally, Waiting
from jobevents.store import NEVER, JobRun, RunFilter

_MEASURED: Final = 1024**3  # bytes of a file whose pages are all looked at, at 0.6 s of CPU a gigabyte
# Rows of a table are the cells of its leaves; an index belongs to its table. https://www.sqlite.org/dbstat.html
_SIZES: Final = (
    "SELECT m.tbl_name, sum(CASE WHEN m.type = 'table' AND s.pagetype = 'leaf' THEN s.ncell ELSE 0 END), sum(s.pgsize) "
    "FROM dbstat AS s JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
)


def _has_dbstat(cursor: sqlite3.Cursor) -> bool:
    """Tell whether this SQLite was built with the table that knows of pages."""
    return any(name == "dbstat" for (name,) in cursor.execute("SELECT name FROM pragma_module_list"))


class SqliteCensus:
    """Each call is one read of an index; of the runs, those that match are looked at in their order."""

    def __init__(self, file: SqliteFile, tables: Tables) -> None:
        self._file = file
        self._tables = (EVENTS, tables.runs, tables.logs)
        self._listing = Statements(tables, EVENTS)
        self._sql = CensusStatements(
            tables,
            ours=sqliteclaims.OURS,
            claim=f' INDEXED BY "{tables.runs}_claim"',  # unasked, it takes the one by state and time
        )
        # A statement for each bar: grouping a million rows by an expression takes it six times as long.
        self._ended = (
            f'SELECT "status", count(*), sum("duration_ms") FROM {self._sql.runs} '
            'WHERE "finished_at" >= ? AND "finished_at" < ? GROUP BY "status" ORDER BY 1'
        )
        self._created = f'SELECT count(*) FROM {self._sql.runs} WHERE "created_at" >= ? AND "created_at" < ?'

    def tally(self) -> Sequence[Tally]:
        return [Tally(*row) for row in self._file.query(self._sql.tally)]

    def sizes(self) -> Sequence[Size]:
        def measure(cursor: sqlite3.Cursor) -> list[Size]:
            pages, size = (cursor.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
            found: dict[str, tuple[int, int]] = {}
            if pages * size <= _MEASURED and _has_dbstat(cursor):
                found = {name: (rows, taken) for name, rows, taken in cursor.execute(_SIZES)}
            return [
                *(Size(name, *found.get(name, (None, None))) for name in self._tables),
                Size("", None, pages * size),
            ]

        return self._file.read(measure)

    def waiting(self, now: datetime) -> Sequence[Waiting]:
        rows = self._file.query(self._sql.waiting, (time_text(now),))
        return [Waiting(queue, instant(due) or NEVER) for queue, due in rows]

    def series(self, since: datetime, step_s: int, bars: int) -> Sequence[Bar]:
        ends = [time_text(since + timedelta(seconds=step_s * number)) for number in range(bars + 1)]
        steps = list(enumerate(pairwise(ends)))

        def both(cursor: sqlite3.Cursor) -> list[Bar]:
            ended = [Bar(number, *row) for number, step in steps for row in cursor.execute(self._ended, step)]
            created = [(number, cursor.execute(self._created, step).fetchone()[0]) for number, step in steps]
            return [*ended, *(Bar(number, "", jobs, 0) for number, jobs in created if jobs)]

        return self._file.read(both)

    def after(self, filter: RunFilter, job_id: str, limit: int) -> Sequence[JobRun]:
        statement, values = self._listing.slice(filter, job_id, time_text)
        return [run_from(row) for row in self._file.query(statement, (*values, limit))]

    def page(self, filter: RunFilter, order: Order, offset: int, limit: int) -> tuple[Sequence[JobRun], int]:
        statement, count, values = self._listing.listing(filter, time_text, order)

        def both(cursor: sqlite3.Cursor) -> tuple[Sequence[JobRun], int]:
            total: int = cursor.execute(count, values).fetchone()[0]
            return [run_from(row) for row in cursor.execute(statement, (*values, limit, offset))], total

        return self._file.read(both)
