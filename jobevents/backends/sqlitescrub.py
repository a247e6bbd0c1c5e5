"""The bytes of what was deleted, made unreadable in an SQLite file itself."""

import sqlite3
import time
from pathlib import Path

from jobevents.backends.sqliteerrors import BUSY, primary_code, translate
from jobevents.backends.sqlitefile import connect

_LOOK_S = 0.05  # between two tries to empty the write-ahead log


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
