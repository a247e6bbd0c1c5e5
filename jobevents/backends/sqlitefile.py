"""A SQLite file: its connections, shared by threads and never by processes, and its one writer at a time.

Readers each borrow a connection and do not wait for writers (WAL). Writes go through a group commit into one connection,
with BEGIN IMMEDIATE: a transaction that reads first and writes later is refused when another process wrote in between.
"""

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from jobevents.backends import forks
from jobevents.backends.groupcommit import Call, GroupCommit
from jobevents.backends.sqliteerrors import BUSY, CANTOPEN, CONSTRAINT, READONLY, primary_code, translate
from jobevents.backends.sqlitewal import CHECKPOINT_PAGES, WriteAheadLog, take_back
from jobevents.errors import JobEventsError, Misconfigured, Unavailable

T = TypeVar("T")
Synchronous: TypeAlias = Literal["full", "normal"]
Row: TypeAlias = tuple[Any, ...]  # Any: SQLite's column values
_Identity: TypeAlias = tuple[int, int] | None  # device and inode
_Reader: TypeAlias = tuple[_Identity, sqlite3.Connection]
Work: TypeAlias = Callable[[sqlite3.Cursor], T]

LOCK_TIMEOUT_S: Final = 30.0  # how long a writer waits for those of other processes
_TRY_AGAIN_S: Final = (0.0005, 0.002)  # about as long as another process's transaction takes
_IDLE_LIMIT: Final = 8  # reading connections kept open: more threads open and close their own
_FORK_WAIT_S: Final = 5.0  # how long a fork waits for transactions under way
_INHERITED: list[sqlite3.Connection] = []  # a parent's connections that a child must neither use nor close


def real_path(path: Path | str) -> Path:
    """Return where a database file really is: what lies beside it has one place, however the path was spelled.

    Raises:
        Misconfigured: the path names no file.
    """
    if ":memory:" in str(path) or not str(path).strip():
        raise Misconfigured(f"path is no file path={str(path)!r}: for a log in memory use memory://")
    return Path(os.path.realpath(path))


def make_private(path: Path) -> None:
    """Make an empty file for its owner alone, as SQLite then makes those beside it; one that is there stays as it is."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def connect(path: Path, mode: str = "rw", *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> sqlite3.Connection:
    """Open a connection in autocommit mode, for any thread, one at a time.

    Args:
        mode: of https://www.sqlite.org/uri.html: `rw` never makes a file, `rwc` does, `immutable` reads without a lock.
    """
    query = "immutable=1" if mode == "immutable" else f"mode={mode}"
    return sqlite3.connect(
        f"{path.as_uri()}?{query}", uri=True, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
    )


def connect_writer(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a connection whose commits are as durable as asked for, and that never waits for a lock."""
    connection = connect(path, lock_timeout_s=0)
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if synchronous == "full":
            connection.execute("PRAGMA fullfsync = 1")  # macOS: a plain fsync leaves data in the drive's cache
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteFile:
    """One database file, for all threads of a process and over forks. Every error it raises is one of ours."""

    def __init__(
        self, path: Path | str, *, synchronous: Synchronous = "full", lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        """Open nothing yet.

        Args:
            synchronous: `full`: a commit survives a power cut when it has returned; `normal`: a crash of the process.

        Raises:
            Misconfigured: an option is none, or the path names no file.
        """
        if synchronous not in ("full", "normal"):
            raise Misconfigured(f"synchronous is unknown value={synchronous!r}: use full or normal")
        self.path = real_path(path)
        self._name = str(self.path)
        self._synchronous: Synchronous = synchronous
        self.lock_timeout_s = lock_timeout_s
        self._closed = False
        self._start_afresh()
        forks.watch(self)

    def _start_afresh(self) -> None:
        """Begin with no connection and new locks."""
        self._group = GroupCommit(self._commit)
        self._writing = threading.Lock()  # held in a write transaction
        self._writer: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None  # of the writer, for all its transactions: making one costs 1 us
        self._writer_of: _Identity = None
        self._log = WriteAheadLog(self.path)
        self._pool = threading.Condition(threading.Lock())
        self._idle: list[_Reader] = []
        self._lent = 0
        self._at_rest = False  # a fork is under way: nothing is lent
        self._locked_for_fork = False

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return all rows of one statement.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Misconfigured: see `translate`.
        """
        return self._with_reader(lambda connection: connection.execute(statement, parameters).fetchall())

    def read(self, work: Work[T]) -> T:
        """Return what `work` makes of several statements that see one state of the database.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Misconfigured: see `translate`.
        """

        def snapshot(connection: sqlite3.Connection) -> T:
            cursor = connection.execute("BEGIN")
            try:
                return work(cursor)
            finally:
                connection.rollback()

        return self._with_reader(snapshot)

    def write(self, work: Work[T]) -> T:
        """Return what `work` returned, once it is committed; what it raises undoes what it wrote, and nothing else.

        Calls of several threads share a transaction. `work` may run more than once.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Misconfigured: see `translate`; nothing was written.
        """
        try:
            if self._group.is_idle and not self._writing.locked():
                return self._write_alone(work)
            return self._group.run(work)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def _write_alone(self, work: Work[T]) -> T:
        """Commit past the queue, where nobody is: several microseconds less. Who comes meanwhile finds the lock held."""
        with self._writing:
            if self._closed:
                raise self._is_closed()
            is_done = False
            try:
                cursor = self._begin(time.monotonic() + self.lock_timeout_s)
                result = work(cursor)
                is_done = True
                cursor.execute("COMMIT")
            except BaseException as error:
                if not is_done or isinstance(error, sqlite3.Error) or self._in_transaction():
                    self._undo(error, committing=is_done)
                raise  # an interrupt after the commit leaves nothing to undo
            if not self._log.limit(cursor.connection):
                self._drop_writer()
        return result

    def close(self) -> None:
        """Close all connections, each as soon as it is idle; from any thread, any number of times.

        A transaction under way is waited for. In a forked child only the child's own are closed.
        """
        with self._writing:
            self._closed = True
            self._drop_writer()
        with self._pool:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def before_fork(self) -> None:
        """Close every connection when its transaction has ended: both processes open their own afterwards.

        What does not end within 5 s is left to the parent alone.
        """
        locked = self._writing.acquire(timeout=_FORK_WAIT_S)
        if locked:
            self._drop_writer()
        with self._pool:
            self._at_rest = True
            self._pool.wait_for(lambda: not self._lent, timeout=_FORK_WAIT_S)
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()
        self._locked_for_fork = locked

    def after_fork(self, *, child: bool) -> None:
        """Let transactions begin again; in the child, with nothing of the parent's."""
        if child:
            if self._writer is not None:
                _INHERITED.append(self._writer)  # its cursor is at rest, and does nothing when it goes
            self._start_afresh()
            return
        with self._pool:
            self._at_rest = False
            self._pool.notify_all()
        if self._locked_for_fork:
            self._writing.release()

    def _with_reader(self, use: Callable[[sqlite3.Connection], T]) -> T:
        reader = self._borrow()
        try:
            result = use(reader[1])
        except sqlite3.Error as error:
            self._give_back(reader, usable=False)
            raise translate(error, self.path) from error
        except BaseException:
            self._give_back(reader, usable=False)
            raise
        self._give_back(reader, usable=True)
        return result

    def _borrow(self) -> _Reader:
        identity = self._identify()
        with self._pool:
            while self._at_rest:
                self._pool.wait()
            if self._closed:
                raise self._is_closed()
            self._lent += 1
            if self._idle:
                reader = self._idle.pop()
                if reader[0] == identity:
                    return reader
                reader[1].close()
        try:
            return identity, self._connect_reader()
        except BaseException as error:
            self._give_back(None, usable=False)
            if isinstance(error, sqlite3.Error):
                raise translate(error, self.path) from error
            raise

    def _give_back(self, reader: _Reader | None, *, usable: bool) -> None:
        with self._pool:
            self._lent -= 1
            if reader is not None and usable and not self._closed and len(self._idle) < _IDLE_LIMIT:
                self._idle.append(reader)
                reader = None
            if self._at_rest:
                self._pool.notify_all()
        if reader is not None:
            reader[1].close()

    def _identify(self) -> _Identity:
        """Return which file stands at the path now: SQLite itself would go on in one that was deleted or replaced.

        Raises:
            Unavailable: there is none.
        """
        try:
            found = os.stat(self._name)  # noqa: PTH116  # a third of the time of Path.stat, at every statement
        except OSError as error:
            raise translate(error, self.path) from error
        return found.st_dev, found.st_ino

    def _connect_reader(self) -> sqlite3.Connection:
        """Open a connection; where SQLite may not make its log files, one that sees the file as it is now."""
        connection = connect(self.path, lock_timeout_s=self.lock_timeout_s)
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except sqlite3.Error as error:
            connection.close()
            if primary_code(error) not in (CANTOPEN, READONLY) or not self._is_settled():
                raise
            return connect(self.path, "immutable")
        return connection

    def _is_settled(self) -> bool:
        """Tell whether all that was committed is in the file itself, in a directory that we cannot write."""
        log = self.path.with_name(self.path.name + "-wal")
        return (
            self.path.is_file()
            and not os.access(self.path.parent, os.W_OK)
            and not (log.exists() and log.stat().st_size)
        )

    def _is_closed(self) -> JobEventsError:
        return Unavailable(f"database is closed path={self.path}: it was closed in this process; open it again")

    def _drop_writer(self) -> None:
        writer, self._writer, self._cursor = self._writer, None, None
        if writer is not None:
            writer.close()

    def _commit(self, group: list[Call]) -> None:
        """Settle every call of the group: in one transaction, or in one each when the common one was lost."""
        with self._writing:
            if self._closed:
                for call in group:
                    call.settle(error=self._is_closed())
                return
            lost = self._transact(group)
            if lost is None:
                if self._writer is not None and not self._log.limit(self._writer):
                    self._drop_writer()
                return
            for call in group:
                # Alone, the call that broke the common transaction cannot fail the others. No call waits for a lock twice.
                error = lost if len(group) == 1 or primary_code(lost) == BUSY else self._transact([call])
                if error is not None:
                    call.settle(error=error)

    def _transact(self, group: list[Call]) -> sqlite3.Error | None:
        """Commit the group in one transaction and settle every call; or settle none and return why it was lost."""
        committing = False
        try:
            cursor = self._begin(group[0].since + self.lock_timeout_s)
            try:
                for call in group:
                    call.error = None
                    call.result = call.work(cursor)
            except Exception:
                if len(group) == 1 or not cursor.connection.in_transaction:
                    raise
                cursor.execute("ROLLBACK")  # seldom: a savepoint for each call costs more than to begin again
                cursor = self._begin(group[0].since + self.lock_timeout_s)
                for call in group:
                    self._run_apart(cursor, call)
            committing = True
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo(error, committing=committing)
            return error
        except BaseException as error:
            if not committing or self._in_transaction():
                self._undo(error)
                if len(group) > 1 or not isinstance(error, Exception):
                    raise
                group[0].settle(error=error)
                return None
            self._settle(group)  # interrupted, but after the commit
            raise
        self._settle(group)
        return None

    @staticmethod
    def _settle(group: list[Call]) -> None:
        for call in group:
            call.settled = True

    def _begin(self, deadline: float) -> sqlite3.Cursor:
        """Begin a transaction when no other process has one.

        Tries again every millisecond or two: SQLite's own wait grows to 100 ms, so that of eight processes that write
        without a pause, one waited for seconds while the others took turns.
        """
        identity = self._identify()
        if self._writer_of != identity:
            self._drop_writer()
        if self._writer is None or self._cursor is None:
            self._writer_of = identity
            self._writer = connect_writer(self.path, self._synchronous)
            self._cursor = self._writer.cursor()
        while True:
            try:
                return self._cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if primary_code(error) != BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(*_TRY_AGAIN_S))  # noqa: S311  # spreads the tries of several processes

    @staticmethod
    def _run_apart(cursor: sqlite3.Cursor, call: Call) -> None:
        """Run a call's work apart from the others of its transaction: its failure undoes only its own writes."""
        cursor.execute("SAVEPOINT caller")
        try:
            call.error = None
            call.result = call.work(cursor)
        except Exception as error:  # whatever it is, it is this caller's and is raised to it
            if not cursor.connection.in_transaction:
                raise
            cursor.execute("ROLLBACK TO caller")
            call.error = error
        cursor.execute("RELEASE caller")

    def _in_transaction(self) -> bool:
        return self._writer is not None and self._writer.in_transaction

    def _undo(self, error: BaseException, *, committing: bool = False) -> None:
        """Roll back; after an error of the file itself, with a new connection next time."""
        if self._writer is None:
            return
        if isinstance(error, sqlite3.Error) and primary_code(error) != CONSTRAINT:
            if committing:
                take_back(self._writer, error)
            self._drop_writer()
        elif self._writer.in_transaction:
            self._writer.rollback()
