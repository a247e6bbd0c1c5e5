"""What keeps a file on a disk from being used: each fault with its one remedy, told apart by looking at the disk.

SQLite and the operating system name a cause by what they happened to do when they met it: a full disk is an I/O error to the
one that maps memory, a file system mounted read-only a wrong permission to the other. What a person has to do is the same.
"""

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

from jobevents.errors import Corrupt, JobEventsError, Misconfigured, PermissionDenied, Unavailable

FULL_BELOW: Final = (
    128 * 1024
)  # bytes free to us: SQLite asks for 32 KiB at a time beside the file, and for pages in it


class Fault(NamedTuple):
    """One fault."""

    kind: type[JobEventsError]
    what: str
    remedy: str

    def error(self, path: Path | str, cause: object) -> JobEventsError:
        """Return the error that tells of it: what, where, the cause in the words of who met it, and what to do."""
        return self.kind(f"{self.what} path={path} error={cause}: {self.remedy}")


FULL: Final = Fault(Unavailable, "disk is full", "free some space, then it works again by itself")
READ_ONLY_SYSTEM: Final = Fault(
    PermissionDenied, "file system is mounted read-only", "mount it writable, or name a path elsewhere"
)
FILE: Final = Fault(PermissionDenied, "file may not be written", "let this user write it")
DIRECTORY: Final = Fault(
    PermissionDenied,
    "directory may not be written",
    "let this user write it: files are made beside those that are there",
)
UNREADABLE: Final = Fault(PermissionDenied, "file may not be read", "let this user read it, and the directories above")
GONE: Final = Fault(
    Unavailable, "file is gone", "it was moved or deleted: put it back, as a new one would know nothing of its jobs"
)
IS_DIRECTORY: Final = Fault(Misconfigured, "path is a directory", "name a file in it")
NO_DIRECTORY: Final = Fault(Misconfigured, "path cannot be", "a part of it is a file: name another path")
TOO_MANY: Final = Fault(
    Unavailable, "too many files are open", "let this process open more (ulimit -n), or have it do less at once"
)
BROKEN: Final = Fault(Unavailable, "disk or file system failed", "see what the system's log says of it")
DAMAGED: Final = Fault(
    Corrupt, "file is damaged", "it was left as it is: keep a copy of it, and put a backup in its place"
)
NO_DATABASE: Final = Fault(
    Corrupt, "file is no database", "it was left as it is: is the path right? if it was one, put a backup in its place"
)
EMPTY: Final = Fault(Misconfigured, "file is empty", "if jobs were in it, put a backup in its place")

_BY_NUMBER: Final = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EROFS: READ_ONLY_SYSTEM,
    errno.ENOENT: GONE,
    errno.EISDIR: IS_DIRECTORY,
    errno.ENOTDIR: NO_DIRECTORY,
    errno.EEXIST: NO_DIRECTORY,
    errno.EMFILE: TOO_MANY,
    errno.ENFILE: TOO_MANY,
    errno.EIO: BROKEN,
}


def of_error(error: OSError, path: Path | str) -> Fault | None:
    """Return the fault that the operating system's error is at a path; None for one that is none of these."""
    if error.errno in (errno.EACCES, errno.EPERM):
        found = look(path) if os.fspath(path) else None
        return DIRECTORY if found in (None, GONE) else found
    return _BY_NUMBER.get(error.errno or 0)


def look(path: Path | str) -> Fault | None:
    """Return what keeps a file from being read and written, as far as a look at it tells; None when nothing is seen.

    What reading meets comes first, then what writing does.
    """
    file = Path(path)
    try:
        file.stat()
    except OSError as error:
        return _BY_NUMBER.get(error.errno or 0) or (UNREADABLE if error.errno == errno.EACCES else None)
    if file.is_dir():
        return IS_DIRECTORY
    if not os.access(file, os.R_OK):
        return UNREADABLE
    found = os.statvfs(file.parent) if hasattr(os, "statvfs") else None  # not on Windows
    if found and found.f_flag & os.ST_RDONLY:
        return READ_ONLY_SYSTEM
    if found and found.f_bavail * found.f_frsize < FULL_BELOW:
        return FULL
    if not os.access(file, os.W_OK):
        return FILE
    return None if os.access(file.parent, os.W_OK) else DIRECTORY
