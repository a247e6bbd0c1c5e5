"""What an error of SQLite, or of the file system under it, means to a caller."""

import errno
import os
import shlex
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from eventsourcing.persistence import IntegrityError

from jobevents.errors import (
    Conflict,
    Corrupt,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    PermissionDenied,
    Unavailable,
)

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
        return _of_file_system(root, path)
    what = f"path={path} error={root}"
    match primary_code(root):
        case code if code in (BUSY, LOCKED):
            return Unavailable(f"database is locked {what}: another process holds its write lock longer than the limit")
        case code if code == FULL:
            return Unavailable(f"disk is full {what}: free some space, then it works again by itself")
        case code if code in (CORRUPT, NOTADB):
            return Corrupt(
                f"file is no readable database {what}: it was left as it is; restore a copy or name another path"
            )
        case code if code in (READONLY, PERM, AUTH, CANTOPEN):
            return _of_access(root, path)
        case code if code == CONSTRAINT or isinstance(error, IntegrityError):
            return Conflict(f"somebody else wrote first {what}")
        case code if code == TOOBIG:
            return InvalidValue(f"value is too large for the database {what}")
        case code if code == ERROR and "no such" in str(root):
            return Misconfigured(f"database lacks a table or column {what}: run `{migrate_command(path)}`")
        case code if code == IOERR:
            return Unavailable(f"database could not be read or written {what}: is the disk full or broken?")
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


def _of_access(error: BaseException, path: Path | str) -> JobEventsError:
    """Tell a file that may not be touched from one that is not there."""
    file = Path(path)
    what = f"path={path} error={error}"
    if getattr(error, "sqlite_errorcode", 0) == READONLY_DBMOVED or not os.path.exists(file):  # noqa: PTH110  # Path's raises for a name that is too long
        return _is_gone(what)
    if os.path.isdir(file):  # noqa: PTH112  # as above
        return Misconfigured(f"database path is a directory {what}: name a file in it")
    if primary_code(error) == CANTOPEN and os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK):
        return Unavailable(f"database cannot be opened now {what}: too many open files?")
    return PermissionDenied(
        f"database may not be written {what}: let this user write the file and its directory (SQLite keeps a log beside it)"
    )


def _of_file_system(error: OSError, path: Path | str) -> JobEventsError:
    what = f"path={path} error={error.strerror or error}"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return PermissionDenied(
            f"database directory may not be written {what}: let this user write it or name another path"
        )
    if isinstance(error, FileNotFoundError):
        return _is_gone(what)
    if isinstance(error, NotADirectoryError | FileExistsError | IsADirectoryError):
        return Misconfigured(f"database path cannot be {what}: a part of it is a file; name another path")
    return Unavailable(f"database cannot be reached {what}")


def _is_gone(what: str) -> Unavailable:
    return Unavailable(f"database file is gone {what}: it was moved or deleted; put it back or create a new one")
