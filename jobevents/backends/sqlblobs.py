"""Blobs in a table of an SQLite database file."""

import contextlib
import os
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from jobevents import errors
from jobevents.backends.sqliteerrors import translate
from jobevents.backends.sqlitefile import make_private
from jobevents.backends.sqliteschema import use_write_ahead_log
from jobevents.backends.sqlitescrub import scrub_file
from jobevents.backends.sqlitewal import take_back
from jobevents.blobs import (
    ABSENT,
    Blob,
    BlobEntry,
    by_directory,
    check_generation,
    check_metadata,
    check_name,
    check_prefix,
    utc_now,
)

_PAGE_SIZE = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS {table} (
    generation INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL,
    content_type TEXT NOT NULL,
    cache_control TEXT NOT NULL,
    metadata TEXT NOT NULL,
    stored_at TEXT NOT NULL
)
"""  # AUTOINCREMENT: a number is never given twice, also when the newest row is gone

_COLUMNS = "(name, data, content_type, cache_control, metadata, stored_at) VALUES (?, ?, ?, ?, ?, ?)"

_Row: TypeAlias = tuple[str, bytes, str, str, str, str]


class SqliteBlobs:
    """Blobs as rows of one table, each write one transaction; safe between threads, processes and forks.

    A connection is used by one thread at a time and kept for the next. ":memory:" is one database for all threads of
    the process, on one connection that they take in turn.
    """

    min_write_interval_s = 0.0

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        table: str = "blobs",
        busy_timeout_s: float = 30.0,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Open the database file, made if missing, and make the table, if missing.

        Args:
            busy_timeout_s: how long to wait for other writers of the file before Unavailable.
        """
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", table):
            raise errors.Misconfigured(f"not a table name table={table!r}; use letters, digits and _")
        self._table = table
        self._clock = clock
        self._path = Path(path)
        self._busy_timeout_s = busy_timeout_s
        self._connections = _Connections(os.fspath(path), busy_timeout_s, _SCHEMA.format(table=table))
        with self._connections.borrow():
            pass

    def scrub(self) -> list[str]:
        """Write the file anew, so that nothing of what was deleted is in it; return what is left to others."""
        return scrub_file(self._path, self._busy_timeout_s)

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        check_name(name)
        changed = "CASE WHEN generation = ? THEN NULL ELSE data END"  # unchanged data is not even read
        query = f"SELECT {changed}, generation, metadata, stored_at FROM {self._table} WHERE name = ?"  # noqa: S608
        with self._connections.borrow() as connection:
            row = connection.execute(query, (if_changed, name)).fetchone()
        if row is None:
            raise errors.NotFound(f"no such blob name={name!r}")
        data, generation, metadata, stored_at = row
        if str(generation) == if_changed:
            return None
        try:
            kept = msgspec.json.decode(metadata, type=dict[str, str])
            return Blob(bytes(data), str(generation), kept, datetime.fromisoformat(stored_at))
        except (ValueError, TypeError, RecursionError) as error:
            raise errors.Corrupt(
                f"row of a blob is unreadable name={name!r} error={error}: it was left as it is"
            ) from error

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        row = self._row(name, data, content_type, cache_control, metadata, self._now())
        with self._connections.borrow() as connection, _transaction(connection):
            if if_generation is not None:
                check_generation(name, if_generation, self._generation(connection, name))
            return self._insert(connection, row)

    def put_many(
        self,
        puts: Iterable[tuple[str, bytes, str, Mapping[str, str]]],
        *,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
    ) -> list[str | None]:
        """Put each (name, data, if_generation, metadata) in one transaction, of 20 us each.

        Returns the generations, None where another was stored than `if_generation`: that one was not written.

        Raises: as `put`, but for Conflict; nothing was written.
        """
        now = self._now()
        rows = [(self._row(put[0], put[1], content_type, cache_control, put[3], now), put[2]) for put in puts]
        with self._connections.borrow() as connection, _transaction(connection):
            return [self._insert_if(connection, row, if_generation) for row, if_generation in rows]

    def _now(self) -> str:
        return self._clock().isoformat()

    def _row(
        self,
        name: str,
        data: bytes,
        content_type: str,
        cache_control: str,
        metadata: Mapping[str, str] | None,
        stored_at: str,
    ) -> _Row:
        check_name(name)
        kept = msgspec.json.encode(check_metadata(name, metadata)).decode()
        return name, bytes(data), content_type, cache_control, kept, stored_at

    def _insert(self, connection: sqlite3.Connection, row: _Row) -> str:
        return str(connection.execute(f"INSERT OR REPLACE INTO {self._table} {_COLUMNS}", row).lastrowid)

    def _insert_if(self, connection: sqlite3.Connection, row: _Row, if_generation: str) -> str | None:
        """Insert a row in the place of a generation, and return its own; None when another is there."""
        if if_generation == ABSENT:
            cursor = connection.execute(f"INSERT OR IGNORE INTO {self._table} {_COLUMNS}", row)
            return str(cursor.lastrowid) if cursor.rowcount else None
        is_met = self._generation(connection, row[0]) == if_generation
        return self._insert(connection, row) if is_met else None

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        check_name(name)
        with self._connections.borrow() as connection, _transaction(connection):
            generation = self._generation(connection, name)
            if generation is None:
                return False
            check_generation(name, if_generation, generation)
            connection.execute(f"DELETE FROM {self._table} WHERE name = ?", (name,))  # noqa: S608
        return True

    def delete_many(self, names: Sequence[str]) -> int:
        """Remove those of the names that are there, whatever their generation, in one transaction; return how many."""
        for name in names:
            check_name(name)
        statement = f"DELETE FROM {self._table} WHERE name = ?"  # noqa: S608
        with self._connections.borrow() as connection, _transaction(connection):
            return connection.executemany(statement, [(name,) for name in names]).rowcount

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        check_prefix(prefix, start)
        return by_directory(self._entries(prefix, start), prefix, delimiter)

    def close(self) -> None:
        self._connections.close()

    def _generation(self, connection: sqlite3.Connection, name: str) -> str | None:
        query = f"SELECT generation FROM {self._table} WHERE name = ?"  # noqa: S608
        row = connection.execute(query, (name,)).fetchone()
        return str(row[0]) if row else None

    def _entries(self, prefix: str, start: str) -> Iterator[BlobEntry]:
        """Read pages of the name index, which SQLite keeps in UTF-8 byte order; no read stays open between them."""
        query = f"SELECT name, generation, length(data) FROM {self._table} WHERE name {{}} ? ORDER BY name LIMIT ?"  # noqa: S608
        after, comparison = max(prefix, start, key=str.encode), ">="
        while True:
            with self._connections.borrow() as connection:
                rows = connection.execute(query.format(comparison), (after, _PAGE_SIZE)).fetchall()
            for name, generation, size_bytes in rows:
                if not name.startswith(prefix):
                    return
                yield BlobEntry(name, str(generation), size_bytes)
            if len(rows) < _PAGE_SIZE:
                return
            after, comparison = rows[-1][0], ">"


class _Connections:
    """Connections to one file, each lent to one thread at a time, and none of them over a fork."""

    def __init__(self, path: str, busy_timeout_s: float, schema: str) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._schema = schema
        self._in_memory = path == ":memory:"
        self._forked_from: list[deque[sqlite3.Connection]] = []  # kept: SQLite forbids even closing them in a child
        self._reset()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection, and raise our error for SQLite's."""
        if self._pid != os.getpid():
            if self._in_memory:
                raise errors.Misconfigured("database in memory was made before a fork; use a file")
            self._forked_from.append(self._idle)
            self._reset()
        idle = self._idle
        try:
            with self._turn:
                try:
                    connection = idle.pop()
                except IndexError:
                    connection = self._open()
                try:
                    yield connection
                finally:
                    idle.append(connection)
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        if self._pid == os.getpid():
            while self._idle:
                self._idle.pop().close()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[sqlite3.Connection] = deque()
        self._turn: contextlib.AbstractContextManager[object] = (
            threading.Lock() if self._in_memory else contextlib.nullcontext()
        )

    def _open(self) -> sqlite3.Connection:
        if not self._in_memory:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            make_private(Path(self._path))
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            use_write_ahead_log(connection, self._busy_timeout_s)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(self._schema)
        except BaseException:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock from the first read on: a lock taken later fails at once when another writer was first."""
    connection.execute("BEGIN IMMEDIATE")
    committing = False
    try:
        yield
        committing = True
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if committing and isinstance(error, sqlite3.Error):
            take_back(connection, error)
        raise
