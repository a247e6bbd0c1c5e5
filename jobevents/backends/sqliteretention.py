"""What of the tables of an SQLite file is old."""

import sqlite3
from collections.abc import Sequence

from jobevents.backends.sql import Tables
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqlretention import RetentionStatements
from jobevents.store import Cutoff


class SqliteRetention:
    """Old runs found by their primary key, and old lines removed by theirs."""

    def __init__(self, file: SqliteFile, tables: Tables) -> None:
        self._file = file
        self._sql = RetentionStatements(tables)

    def finished(self, cutoff: Cutoff, *, after: str, limit: int) -> Sequence[str]:
        statement, values = self._sql.finished(cutoff)
        return [run_id for (run_id,) in self._file.query(statement, (after, *values, limit))]

    def drop_lines(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        statement, values = self._sql.drop_lines(cutoff)

        def drop(cursor: sqlite3.Cursor) -> tuple[str, int] | None:
            end: tuple[str, int] | None = cursor.execute(self._sql.line_at, (*after, limit - 1)).fetchone()
            last = end or self._sql.beyond
            cursor.execute(statement, (*after, *last, *values))
            return end

        return self._file.write(drop)
