"""The least that our promise needs, in SQLite or Postgres: each job a row, its start and its end an event each, all in order.

A start is durable before the handler is called, and an end before the next start: one transaction in a loop of one thread ends
as many jobs as run at once, and starts as many.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.queueing import Place

_POLL_S = 0.001
_TABLES = (
    "CREATE TABLE jobs (id {key}, number BIGINT NOT NULL, state TEXT NOT NULL)",
    "CREATE INDEX jobs_queued ON jobs (id) WHERE state = 'queued'",
    "CREATE TABLE events (id {key}, job BIGINT NOT NULL, type TEXT NOT NULL)",
)


def _sqlite(place: Place) -> Any:
    connection = sqlite3.connect(place.directory / "bare.db", isolation_level=None, timeout=30, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {place.durability}")
    return connection


def _postgres(place: Place) -> Any:
    import psycopg  # only where it is wanted

    return psycopg.connect(place.url, autocommit=True)


class Queue:
    """Two tables on one connection."""

    def __init__(self, place: Place) -> None:
        self._threads = place.threads
        self._is_sqlite = not place.url
        self._key = "INTEGER PRIMARY KEY" if self._is_sqlite else "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        self._mark = "?" if self._is_sqlite else "%s"
        self._begin = "BEGIN IMMEDIATE" if self._is_sqlite else "BEGIN"
        self._skip = "" if self._is_sqlite else " FOR UPDATE SKIP LOCKED"
        self._connection = _sqlite(place) if self._is_sqlite else _postgres(place)

    def prepare(self) -> None:
        """Make the tables."""
        for statement in _TABLES:
            self._connection.execute(statement.format(key=self._key))

    def submit(self, numbers: Sequence[int]) -> None:
        """Insert rows and events, in one transaction."""
        cursor = self._connection.cursor()
        cursor.execute(self._begin)
        for number in numbers:
            (job,) = self._fetch(
                cursor, f"INSERT INTO jobs (number, state) VALUES ({self._mark}, 'queued') RETURNING id", number
            )
            self._tell(cursor, "queued", [job])
        cursor.execute("COMMIT")

    def waiting(self) -> int:
        """Count the jobs that are not done."""
        (count,) = self._fetch(self._connection.cursor(), "SELECT count(*) FROM jobs WHERE state <> 'done'")
        found: int = count
        return found

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """End what was handled and start the next, in one transaction."""
        cursor = self._connection.cursor()
        started: list[tuple[int, int]] = []
        while True:
            started = self._turn(cursor, [job for job, _ in started], 0 if stop.is_set() else self._threads)
            for _, number in started:
                handle(number)
            if not started and stop.wait(_POLL_S):
                return

    def _turn(self, cursor: Any, ended: Sequence[int], most: int) -> list[tuple[int, int]]:
        find = f"SELECT id, number FROM jobs WHERE state = 'queued' ORDER BY id LIMIT {most}{self._skip}"
        if not ended and not cursor.execute(find).fetchall():
            return []
        cursor.execute(self._begin)
        self._set(cursor, "done", ended)
        found: list[tuple[int, int]] = cursor.execute(find).fetchall()
        self._set(cursor, "running", [job for job, _ in found])
        cursor.execute("COMMIT")
        return found

    def _set(self, cursor: Any, state: str, jobs: Sequence[int]) -> None:
        if jobs:
            cursor.executemany(f"UPDATE jobs SET state = '{state}' WHERE id = {self._mark}", [(job,) for job in jobs])
            self._tell(cursor, state, jobs)

    def _tell(self, cursor: Any, what: str, jobs: Sequence[int]) -> None:
        cursor.executemany(f"INSERT INTO events (job, type) VALUES ({self._mark}, '{what}')", [(job,) for job in jobs])

    def _fetch(self, cursor: Any, statement: str, *values: object) -> Any:
        return cursor.execute(statement, values).fetchone()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
