"""Counts over all runs of a Postgres database."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg import Cursor

from jobevents.backends import postgresclaims
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgresschema import EVENTS
from jobevents.backends.postgressession import Row
from jobevents.backends.sql import Statements, Tables, run_from
from jobevents.backends.sqlcensus import CensusStatements
from jobevents.census import Bar, Order, Size, Tally, Waiting
from jobevents.store import JobRun, RunFilter

MARK: Final = "%s"


_SIZES: Final = (
    "SELECT n.name, c.reltuples::bigint, pg_total_relation_size(c.oid) "
    "FROM unnest(%s::text[]) WITH ORDINALITY AS n(name, place) "
    "JOIN pg_class AS c ON c.oid = to_regclass(quote_ident(n.name)) ORDER BY n.place"
)


class PostgresCensus:
    """Each call is one read of an index; of the runs, those that match are looked at in their order."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        self._database = database
        self._tables = [EVENTS, tables.runs, tables.logs]
        self._listing = Statements(tables, EVENTS, MARK)
        self._sql = CensusStatements(tables, ours=postgresclaims.OURS, mark=MARK)
        self._ended = self._bars('"finished_at"', '"status"', 'sum("duration_ms")')
        self._created = self._bars('"created_at"', "''", "0")

    def _bars(self, column: str, state: str, duration: str) -> str:
        return (
            f"SELECT (floor(extract(epoch FROM {column}))::bigint - %s) / %s, {state}, count(*), {duration} "
            f"FROM {self._sql.runs} WHERE {column} >= %s AND {column} < %s GROUP BY 1, 2 ORDER BY 1, 2"
        )

    def tally(self) -> Sequence[Tally]:
        return [Tally(*row) for row in self._database.query(self._sql.tally)]

    def sizes(self) -> Sequence[Size]:
        rows = self._database.query(_SIZES, (self._tables,))
        total = self._database.query("SELECT pg_database_size(current_database())")[0][0]
        return [
            *(Size(name, None if count < 0 else count, taken, is_estimate=True) for name, count, taken in rows),
            Size("", None, total),
        ]

    def waiting(self, now: datetime) -> Sequence[Waiting]:
        return [Waiting(queue, due.astimezone(UTC)) for queue, due in self._database.query(self._sql.waiting, (now,))]

    def series(self, since: datetime, step_s: int, bars: int) -> Sequence[Bar]:
        asked = (int(since.timestamp()), step_s, since, since + timedelta(seconds=step_s * bars))

        def both(cursor: Cursor[Row]) -> list[Bar]:
            rows = cursor.execute(self._ended, asked).fetchall() + cursor.execute(self._created, asked).fetchall()
            return [Bar(number, state, jobs, int(duration)) for number, state, jobs, duration in rows]

        return self._database.read(both)

    def after(self, filter: RunFilter, job_id: str, limit: int) -> Sequence[JobRun]:
        statement, values = self._listing.slice(filter, job_id, lambda when: when)
        return [run_from(row) for row in self._database.query(statement, (*values, limit))]

    def page(self, filter: RunFilter, order: Order, offset: int, limit: int) -> tuple[Sequence[JobRun], int]:
        statement, count, values = self._listing.listing(filter, lambda when: when, order)

        def both(cursor: Cursor[Row]) -> tuple[Sequence[JobRun], int]:
            total: int = cursor.execute(count, values).fetchall()[0][0]
            rows = cursor.execute(statement, [*values, limit, offset]).fetchall()
            return [run_from(row) for row in rows], total

        return self._database.read(both)
