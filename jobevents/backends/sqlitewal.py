"""The write-ahead log beside an SQLite file, held within bounds where reads never pause."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from jobevents.backends.sqliteerrors import IOERR, primary_code
from jobevents.files import STAMPED_NS

# As many as one block of the log's index has, so that reads look no further: 16 MB. At SQLite's own 1,000, pages that every
# commit writes are copied four times as often, and the disk is waited for.
CHECKPOINT_PAGES: Final = 4000
_LOG_BYTES: Final = 64 * 1024 * 1024  # checkpoints hold it at 16 MB while no reads overlap
_LOOK: Final = 64  # commits between two looks at its size: 2 us each
_WAIT_MS: Final = 200  # how long writers wait for the reads under way when it is emptied
_EVERY_S: Final = 10.0  # between two tries, where a read goes on for longer than that


def take_back(connection: sqlite3.Connection, error: sqlite3.Error) -> None:
    """Take out of the log what a COMMIT that failed with an error may have left there, by a commit of nothing in its place.

    A transaction whose sync failed is whole in the log. SQLite has put it aside, but whoever opens the file after all its
    processes were killed reads the log from its beginning, and would bring back what its caller was told is not written.
    Where this commit cannot wait for the disk either, its bytes stand there all the same.
    """
    if primary_code(error) != IOERR:
        return
    with contextlib.suppress(sqlite3.Error):  # the disk has failed, and the COMMIT's own error says so
        connection.rollback()
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute(f"PRAGMA user_version = {version}")  # writes its page, though it is the same


def last_change(path: Path) -> tuple[int, int] | None:
    """Return what changes with every commit of any process: inode and time of the last write; None while it may stand still.

    That is for as long as the clock that files are stamped by may not have moved on since; while the disk may be waited for, as
    a commit is seen only after that, and its bytes are stamped before; and where a file that is open is not stamped at all.
    Costs a stat, which is much less than a query.
    """
    if os.name == "nt":
        return None
    try:
        found = os.stat(f"{path}-wal")  # noqa: PTH116  # as below
    except OSError:
        return None
    is_settled = abs(time.time_ns() - found.st_mtime_ns) > STAMPED_NS
    return (found.st_ino, found.st_mtime_ns) if is_settled else None


class WriteAheadLog:
    """Looked at by the one thread that commits."""

    def __init__(self, path: Path) -> None:
        """Look at that of the database at a path."""
        self._name = f"{path}-wal"
        self._commits = 0
        self._empty_at = 0.0  # not before; monotonic

    def limit(self, writer: sqlite3.Connection) -> bool:
        """Empty it when it is too long, after a commit; False: the connection had trouble, and should be let go.

        SQLite begins it anew only at a moment without a reader: where reads overlap all the time it grows for ever. A
        checkpoint that holds the writers up leads new readers to the file itself, and has only those under way to wait for.
        """
        self._commits += 1
        if self._commits % _LOOK or time.monotonic() < self._empty_at:
            return True
        try:
            if os.stat(self._name).st_size > _LOG_BYTES:  # noqa: PTH116  # a third of the time of Path.stat
                self._empty(writer)
        except (
            OSError,
            sqlite3.Error,
        ):  # what was committed is kept all the same; the next transaction meets the trouble
            return False
        return True

    def _empty(self, writer: sqlite3.Connection) -> None:
        writer.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        try:
            is_read = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            self._empty_at = time.monotonic() + _EVERY_S if is_read else 0.0
        finally:
            writer.execute("PRAGMA busy_timeout = 0")
