"""What of the tables of a Postgres database is old."""

from collections.abc import Sequence
from typing import Final

from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.sql import Tables
from jobevents.backends.sqlretention import RetentionStatements
from jobevents.store import Cutoff

MARK: Final = "%s"


class PostgresRetention:
    """Old runs found by their primary key, and old lines removed by theirs; the server's vacuum gives back their space."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        self._database = database
        self._sql = RetentionStatements(tables, MARK, lambda when: when)

    def finished(self, cutoff: Cutoff, *, after: str, limit: int) -> Sequence[str]:
        statement, values = self._sql.finished(cutoff)
        return [run_id for (run_id,) in self._database.query(statement, (after, *values, limit))]

    def drop_lines(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        """Look where the lines end, then remove the old ones up to there: a line that comes between is new."""
        statement, values = self._sql.drop_lines(cutoff)
        found = self._database.query(self._sql.line_at, (*after, limit - 1))
        end: tuple[str, int] | None = found[0] if found else None
        self._database.query(statement, (*after, *(end or self._sql.beyond), *values))
        return end
