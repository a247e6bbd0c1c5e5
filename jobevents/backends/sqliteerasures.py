"""What was erased of a log in an SQLite file, and the bytes of it in the file itself."""

import sqlite3
import time
from datetime import datetime
from pathlib import Path

from jobevents.backends import sqlerasures
from jobevents.backends.sql import Tables, time_text
from jobevents.backends.sqliteerrors import BUSY, primary_code, translate
from jobevents.backends.sqlitefile import SqliteFile, connect
from jobevents.backends.sqliteschema import EVENTS
from jobevents.erasure import Erased

_LOOK_S = 0.05  # between two tries to empty the write-ahead log


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

    def ripe_at(self, job_id: str) -> datetime | None:
        """Return None: at once."""
        return None

    def scrub(self) -> list[str]:
        """Write the file anew without what was deleted; see `scrub_file`."""
        return scrub_file(self._file.path, self._file.lock_timeout_s)


def scrub_file(path: Path, lock_timeout_s: float) -> list[str]:
    """Write an SQLite file anew, so that no page of it has what was deleted, and empty its write-ahead log.

    Others wait meanwhile: about a second for each 100 MB. Needs as much room again. Earlier writes left bytes in free pages and
    within pages: `secure_delete` alone would not find those.

    Raises:
        Unavailable, PermissionDenied: the file cannot be written; what was deleted is deleted all the same.
    """
    try:
        connection = connect(path, lock_timeout_s=lock_timeout_s)
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
            return _empty_log(connection, path, lock_timeout_s)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _empty_log(connection: sqlite3.Connection, path: Path, lock_timeout_s: float) -> list[str]:
    """Bring the write-ahead log into the file and cut it to nothing, as soon as nobody reads of it."""
    deadline = time.monotonic() + lock_timeout_s
    while True:
        try:
            busy = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.OperationalError as error:
            if primary_code(error) != BUSY:
                raise
            busy = True
        if not busy:
            return []
        if time.monotonic() > deadline:
            return [
                f"somebody reads {path.name} all the time, so that {path.name}-wal still has old pages: erase once more"
            ]
        time.sleep(_LOOK_S)
