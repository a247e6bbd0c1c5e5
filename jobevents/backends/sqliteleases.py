"""Worker leases in a SQLite file, whose workers all live on one machine: aged by its monotonic clock.

That clock runs for all processes alike, is never set, and stands still while the machine sleeps, as the workers do. It
begins anew when the machine is started, which is why each lease names the boot that it was renewed in.
"""
# ruff: noqa: S608  # the table's name is a constant, values are bound

import math
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jobevents.backends.sql import time_text
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.workers import Lease, Sighting

WORKERS: Final = "job_workers"

DDL: Final = (
    f'CREATE TABLE "{WORKERS}" (\n'
    '    "worker" TEXT PRIMARY KEY,\n'
    '    "host" TEXT NOT NULL,\n'
    '    "pid" INTEGER NOT NULL,\n'
    '    "started_at" TEXT NOT NULL,\n'
    '    "version" TEXT NOT NULL,\n'
    '    "lease_s" REAL NOT NULL,\n'
    '    "boot" TEXT NOT NULL,\n'
    '    "renewed" REAL NOT NULL\n'
    ") WITHOUT ROWID"
)

_COLUMNS = "worker, host, pid, started_at, version, lease_s, boot, renewed"
_RENEW = f"INSERT OR REPLACE INTO {WORKERS} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ALL = f"SELECT {_COLUMNS} FROM {WORKERS} ORDER BY worker"
_DEAD = "(boot <> ? OR renewed > ? OR ? - renewed >= lease_s)"
SLACK_S: Final = 1.0  # a renewal from this far ahead was not of this boot, where the system does not tell boots apart
_PAGE: Final = 500  # values bound in one statement: SQLite allows 999 in old versions


class SqliteLeases:
    """The table of leases; each renewal is one transaction, or shares one with other writers."""

    def __init__(
        self, file: SqliteFile, *, monotonic: Callable[[], float] = time.monotonic, boot: str | None = None
    ) -> None:
        """Use a file whose schema is there.

        Args:
            monotonic: one clock for all processes of the machine; Python's is on Linux, macOS and Windows.
            boot: what this run of the machine is called; by default what the system says, "" where it says nothing.
        """
        self._file = file
        self._monotonic = monotonic
        self._boot = boot_id() if boot is None else boot

    def renew(self, lease: Lease) -> None:
        told = (
            lease.worker,
            lease.host,
            lease.pid,
            time_text(lease.started_at),
            lease.version,
            lease.lease_s,
            self._boot,
        )
        self._file.write(lambda cursor: cursor.execute(_RENEW, (*told, self._monotonic())) and None)

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        wanted = sorted(workers)
        found: dict[str, Sighting] = {}
        for at in range(0, len(wanted), _PAGE):
            some = wanted[at : at + _PAGE]
            marks = ", ".join("?" * len(some))
            rows = self._file.query(f"SELECT {_COLUMNS} FROM {WORKERS} WHERE worker IN ({marks})", some)
            found |= {seen.lease.worker: seen for seen in self._sightings(rows)}
        return found

    def list(self) -> Sequence[Sighting]:
        return self._sightings(self._file.query(_ALL))

    def drop(self, worker: str, *, if_dead: bool = False) -> bool:
        def delete(cursor: sqlite3.Cursor) -> bool:
            now = self._monotonic()
            condition, values = (_DEAD, (self._boot, now + SLACK_S, now)) if if_dead else ("1", ())
            cursor.execute(f"DELETE FROM {WORKERS} WHERE worker = ? AND {condition}", (worker, *values))
            return cursor.rowcount > 0

        return self._file.write(delete)

    def _sightings(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[Sighting]:  # Any: SQLite's column values
        now = self._monotonic()
        return [self._sighting(row, now) for row in rows]

    def _sighting(self, row: tuple[Any, ...], now: float) -> Sighting:  # as above
        *told, boot, renewed = row
        worker, host, pid, started_at, version, lease_s = told
        lease = Lease(
            worker=worker,
            host=host,
            pid=pid,
            started_at=datetime.fromisoformat(started_at),
            version=version,
            lease_s=lease_s,
        )
        is_of_this_boot = boot == self._boot and renewed <= now + SLACK_S
        return Sighting(lease, max(0.0, now - renewed) if is_of_this_boot else math.inf)


def boot_id() -> str:
    """Return the name that Linux gives to this run of the machine; "" elsewhere.

    Without one, a lease of an earlier run has a renewal ahead of the clock and counts as dead, but for the `lease_s` seconds
    in which the clock passes it: its jobs wait so much longer, and no more.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
