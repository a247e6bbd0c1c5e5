"""What was erased of a log in an SQLite file."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime

from jobevents.backends import sqlerasures
from jobevents.backends.sql import Tables, time_text
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqliteschema import EVENTS
from jobevents.backends.sqlitescrub import scrub_file
from jobevents.codec import deleted_before
from jobevents.erasure import Erased

PAGE = 500  # tombstones in one read


class SqliteErasures:
    """An Eraser over an SQLite file; each erasure is one transaction."""

    def __init__(self, file: SqliteFile, tables: Tables) -> None:
        """Use a file whose schema is there."""
        self._file = file
        self._sql = sqlerasures.ErasureStatements(tables, EVENTS)

    def get(self, job_id: str) -> int:
        """Return the version below which all was erased; 0 for none."""
        rows = self._file.query(self._sql.get, (job_id,))
        return int(rows[0][0]) if rows else 0

    def record(self, job_id: str) -> Erased | None:
        """Return what is kept of an erasure."""
        return sqlerasures.erased_from(self._file.query(self._sql.record, (job_id,)))

    def erase(self, erased: Erased) -> int:
        """Delete the events below the tombstone and what else the tables have; see `Eraser.erase`."""

        def work(cursor: sqlite3.Cursor) -> int:
            cursor.execute(self._sql.keep, sqlerasures.row_of(erased, time_text))
            count = cursor.execute(self._sql.events, (erased.job_id, erased.version)).rowcount
            for statement in self._sql.others:
                cursor.execute(statement, (erased.job_id,))
            return count

        return self._file.write(work)

    def wait_s(self, job_id: str) -> float:
        """Return 0: at once."""
        return 0.0

    def unfinished(self) -> Iterator[str]:
        """Yield nothing: an erasure is one transaction."""
        return iter(())

    def deleted(self, before: datetime) -> Iterator[str]:
        """Yield the deleted jobs, a page of tombstones at a time; see `Eraser.deleted`."""
        place = 0
        while rows := self._file.query(self._sql.tombstones, (place, PAGE)):
            place = rows[-1][0]
            yield from deleted_before((bytes(row[1]) for row in rows), before, self.get)

    def scrub(self) -> list[str]:
        """Write the file anew without what was deleted; see `scrub_file`."""
        return scrub_file(self._file.path, self._file.lock_timeout_s)
