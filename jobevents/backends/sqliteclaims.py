"""Claims on the queued runs of an SQLite file, whose workers all live on one machine: leases by its monotonic clock.

A claim is a row of a small table, so that a run is handed out without its params being written again; the write of the run
removes it. Groups are stepped through here: SQLite knows no way to skip from one to the next within a statement.
"""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from jobevents.backends import sqlclaims
from jobevents.backends.sql import Tables, json_text, time_text
from jobevents.backends.sqlclaims import CLAIMS, HISTORY_LIMIT
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqliteleases import SLACK_S, boot_id
from jobevents.backends.sqlpauses import PAUSES
from jobevents.desk import Claimed, Group
from jobevents.job import QUEUED

DDL: Final = (
    f'CREATE TABLE "{CLAIMS}" (\n'
    '    "run_id" TEXT PRIMARY KEY,\n'
    '    "token" TEXT NOT NULL,\n'
    '    "boot" TEXT NOT NULL,\n'
    '    "claimed" REAL NOT NULL,\n'
    '    "until" REAL NOT NULL\n'
    ") WITHOUT ROWID"
)

_SQL: Final = sqlclaims.ClaimStatements()

OURS: Final = f'"status" = \'{QUEUED}\' AND "external" = 0'  # word for word as in the index
_CLAIM = f'INSERT OR REPLACE INTO "{CLAIMS}" VALUES (?, ?, ?, ?, ?)'
_ALIVE = '"boot" = ? AND "claimed" <= ? AND "until" > ?'


def index_ddl(tables: Tables) -> str:
    """Return the index by which due runs are found: of equals the first by rowid, which is the order of first events."""
    return sqlclaims.index_ddl(tables, OURS)


class SqliteClaims:
    """The table of claims; each claim is one transaction, or shares one with other writers."""

    def __init__(
        self,
        file: SqliteFile,
        tables: Tables,
        announce: Callable[[], None],
        *,
        events: str,
        monotonic: Callable[[], float] = time.monotonic,
        boot: str | None = None,
    ) -> None:
        """Use a file whose schema is there.

        Args:
            announce: wakes who waits, in all processes.
            events: name of the table of events.
            monotonic: one clock for all processes of the machine.
            boot: what this run of the machine is called; by default what the system says.
        """
        self._file = file
        self._announce = announce
        self._monotonic = monotonic
        self._boot = boot_id() if boot is None else boot
        self._is_busy = False  # the last claim found something: the next one need not look before it writes
        self._get_histories = (
            f'SELECT originator_id, state FROM "{events}" WHERE originator_id IN (SELECT value FROM json_each(?)) '
            f"AND originator_version <= {HISTORY_LIMIT + 1} ORDER BY originator_id, originator_version"
        )
        runs = f'"{tables.runs}"'
        ours = (
            f'{runs} INDEXED BY "{tables.runs}_claim" WHERE {OURS}'  # unasked, SQLite takes the one by state and time
        )
        group = f'{ours} AND "queue" = ? AND "job_name" = ? AND "priority" = ?'
        is_free = f'NOT EXISTS (SELECT 1 FROM "{CLAIMS}" WHERE "run_id" = {runs}."id" AND {_ALIVE})'
        self.next_queue = f'SELECT "queue" FROM {ours} AND "queue" > ? ORDER BY "queue" LIMIT 1'
        # Not one step for both: SQLite reads on over all equals of (name, priority) > (?, ?).
        self.next_job = (
            f'SELECT "job_name", "priority" FROM {ours} AND "queue" = ? AND "job_name" > ? '
            'ORDER BY "job_name", "priority" LIMIT 1'
        )
        self.next_priority = (
            f'SELECT "job_name", "priority" FROM {ours} AND "queue" = ? AND "job_name" = ? AND "priority" > ? '
            'ORDER BY "priority" LIMIT 1'
        )
        self.due = (
            f'SELECT -"priority", "scheduled_at", rowid, "id" FROM {group} AND "scheduled_at" <= ? AND {is_free} '
            'ORDER BY "scheduled_at", rowid LIMIT ?'
        )
        self.first = f'SELECT "scheduled_at" FROM {group} AND {is_free} ORDER BY "scheduled_at" LIMIT 1'
        self.count = (
            f'SELECT (SELECT count(*) FROM {ours}) - (SELECT count(*) FROM "{CLAIMS}" '
            f'CROSS JOIN {runs} ON "id" = "run_id" WHERE {OURS} AND {_ALIVE})'
        )

    def claim(
        self,
        queues: Sequence[str],
        *,
        limit: int,
        now: datetime,
        lease_s: float,
        token: str,
        full: Collection[Group] = (),
    ) -> Sequence[Claimed]:
        def take(cursor: sqlite3.Cursor) -> list[Claimed]:
            found = self._find(cursor, queues, now, limit, full)
            tick = self._monotonic()
            cursor.executemany(_CLAIM, [(job_id, token, self._boot, tick, tick + lease_s) for job_id in found])
            return self._claimed(cursor, found)

        if not self._is_busy and not self._file.read(lambda cursor: self._find(cursor, queues, now, 1, full)):
            return []
        runs = self._file.write(take)
        self._is_busy = bool(runs)
        return runs

    def _claimed(self, cursor: sqlite3.Cursor, job_ids: list[str]) -> list[Claimed]:
        """Return the runs with their histories, all read by one statement."""
        histories: dict[str, list[bytes]] = {job_id: [] for job_id in job_ids}
        for job_id, state in cursor.execute(self._get_histories, (json_text(job_ids),)):
            histories[job_id].append(state)
        return [Claimed(job_id, found if len(found) <= HISTORY_LIMIT else ()) for job_id, found in histories.items()]

    def _find(
        self, cursor: sqlite3.Cursor, queues: Sequence[str], now: datetime, limit: int, full: Collection[Group] = ()
    ) -> list[str]:
        until = time_text(now)
        due: list[tuple[int, str, int, str]] = []
        for group in self._groups(cursor, queues, full):
            due += cursor.execute(self.due, (*group, until, *self._alive(), limit)).fetchall()
        return [job_id for _, _, _, job_id in sorted(due)[:limit]]

    def _groups(
        self, cursor: sqlite3.Cursor, queues: Sequence[str], full: Collection[Group]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield each queue, kind of job and priority of runs that wait and are not passed over: a seek or two each."""
        paused = {*full, *cursor.execute(f'SELECT "kind", "name" FROM "{PAUSES}"')}
        for queue in dict.fromkeys(queues) or self._queues(cursor):
            if ("queue", queue) in paused:
                continue
            place = cursor.execute(self.next_job, (queue, "")).fetchone()
            while place is not None:
                job_name = place[0]
                while place is not None and ("job", job_name) not in paused:
                    yield queue, *place
                    place = cursor.execute(self.next_priority, (queue, *place)).fetchone()
                place = cursor.execute(self.next_job, (queue, job_name)).fetchone()

    def _queues(self, cursor: sqlite3.Cursor) -> Iterator[str]:
        found: tuple[str] | None = ("",)
        while found is not None:
            found = cursor.execute(self.next_queue, found).fetchone()
            if found is not None:
                yield found[0]

    def release(self, job_id: str, token: str, *, delay_s: float) -> None:
        if delay_s > 0:
            statement = f'UPDATE "{CLAIMS}" SET "token" = \'\', "until" = ? WHERE "run_id" = ? AND "token" = ?'
            values: tuple[Any, ...] = (self._monotonic() + delay_s, job_id, token)  # Any: what SQLite binds
        else:
            statement = _SQL.give_back
            values = (job_id, token)
        self._file.write(lambda cursor: cursor.execute(statement, values) and None)
        self._announce()

    def is_claimed(self, job_id: str) -> bool:
        statement = f'SELECT 1 FROM "{CLAIMS}" WHERE "run_id" = ? AND {_ALIVE}'
        return bool(self._file.query(statement, (job_id, *self._alive())))

    def next_due(self, queues: Sequence[str], full: Collection[Group] = ()) -> datetime | None:
        def find(cursor: sqlite3.Cursor) -> str | None:
            firsts = [
                cursor.execute(self.first, (*group, *self._alive())).fetchone()
                for group in self._groups(cursor, queues, full)
            ]
            return min((first[0] for first in firsts if first is not None), default=None)

        found = self._file.read(find)
        return None if found is None else datetime.fromisoformat(found)

    def waiting(self) -> int:
        count: int = self._file.query(self.count, self._alive())[0][0]
        return count

    def _alive(self) -> tuple[str, float, float]:
        """Return the parameters that tell a claim which goes on from one that ran out or is of an earlier boot."""
        tick = self._monotonic()
        return self._boot, tick + SLACK_S, tick
