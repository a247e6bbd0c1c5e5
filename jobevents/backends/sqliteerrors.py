"""What an error of SQLite, or of the file system under it, means to a caller."""

import shlex
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from eventsourcing.persistence import IntegrityError

from jobevents import diskfaults
from jobevents.errors import Conflict, InvalidValue, JobEventsError, Misconfigured, Unavailable

# https://www.sqlite.org/rescode.html; the low byte of an extended code is its primary code
ERROR: Final = 1
PERM: Final = 3
BUSY: Final = 5
LOCKED: Final = 6
READONLY: Final = 8
IOERR: Final = 10
CORRUPT: Final = 11
FULL: Final = 13
CANTOPEN: Final = 14
TOOBIG: Final = 18
CONSTRAINT: Final = 19
AUTH: Final = 23
NOTADB: Final = 26
READONLY_DBMOVED: Final = READONLY | 4 << 8

_FAULTS: Final = {FULL: diskfaults.FULL, CORRUPT: diskfaults.DAMAGED, NOTADB: diskfaults.NO_DATABASE}


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's primary result code, 0 when the error carries none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translate(error: BaseException, path: Path | str) -> JobEventsError:
    """Return our error for one of sqlite3, of eventsourcing over it, or of the file system; ours comes back as it is.

    Unless it is a Conflict, nothing was written. Nothing is ever deleted or repaired here.
    """
    if isinstance(error, JobEventsError):
        return error
    root = _root(error)
    if isinstance(root, OSError):
        fault = diskfaults.of_error(root, path)
        cause = root.strerror or root
        return (
            fault.error(path, cause) if fault else Unavailable(f"database cannot be reached path={path} error={cause}")
        )
    what = f"path={path} error={root}"
    match primary_code(root):
        case code if code in (BUSY, LOCKED):
            return Unavailable(
                f"database is locked {what}: another process writes for longer than lock_timeout_s allows; try again"
            )
        case code if code in _FAULTS:
            return _FAULTS[code].error(path, root)
        case code if code in (READONLY, PERM, AUTH, CANTOPEN, IOERR):
            return _found(root, code, path).error(path, root)
        case code if code == CONSTRAINT or isinstance(error, IntegrityError):
            return Conflict(f"somebody else wrote first {what}")
        case code if code == TOOBIG:
            return InvalidValue(f"value is too large for the database {what}")
        case code if code == ERROR and "no such" in str(root):
            return Misconfigured(f"database lacks a table or column {what}: run `{migrate_command(path)}`")
        case _:
            return Unavailable(f"database failed {what}")


def migrate_command(path: Path | str) -> str:
    """Return what makes a database at a path, or brings it up to date; to be copied into a shell."""
    return f"jobevents migrate --url {shlex.quote(f'sqlite:///{quote(str(path))}')}"


def _root(error: BaseException) -> BaseException:
    """Return the error under the library's wrappers, which chain it."""
    while not isinstance(error, sqlite3.Error | OSError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _found(error: BaseException, code: int, path: Path | str) -> diskfaults.Fault:
    """Return what is seen at the file; where nothing is, what the code says by itself."""
    if getattr(error, "sqlite_errorcode", 0) == READONLY_DBMOVED:
        return diskfaults.GONE
    return diskfaults.look(path) or {IOERR: diskfaults.BROKEN, CANTOPEN: diskfaults.TOO_MANY}.get(code, diskfaults.FILE)
