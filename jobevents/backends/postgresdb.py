"""A Postgres database: its connections, shared by threads and never by processes, and every loss of one healed.

A call whose connection is lost is made again on another one, with growing pauses, until it has been tried for `timeout_s`:
what is given to `query`, `read` and `write` must bear being done twice. No thread stands behind the connections.
"""

import os
import select
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import Connection, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextBinaryLoader, TextLoader

from jobevents.backends import forks
from jobevents.backends.postgreserrors import Unsure, is_lost, is_passing, translate
from jobevents.backends.postgressession import Row, Session, Statement
from jobevents.backends.postgresurl import Target, where
from jobevents.backoff import Backoff
from jobevents.errors import JobEventsError, Unavailable

T = TypeVar("T")
Work: TypeAlias = Callable[[Session], T]

BEGIN: Final[Statement] = ("BEGIN ISOLATION LEVEL READ COMMITTED", ())  # whatever the database's default is
COMMIT: Final[Statement] = ("COMMIT", ())
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_IDLE_LIMIT_S: Final = 10  # a process that stopped in a transaction has it undone after this, and its lock freed
_INHERITED: list[Session] = []  # a parent's connections that a child must not use, nor say goodbye on

_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8Dumper)  # one type for all, so that a statement has one plan
for _json in ("json", "jsonb"):
    _ADAPTERS.register_loader(_json, TextLoader)  # msgspec reads it
_ADAPTERS.register_loader("json", TextBinaryLoader)


class _Context:
    """What psycopg takes adapters from."""

    adapters = _ADAPTERS
    connection = None


class PostgresDatabase:
    """One database, for all threads of a process and over forks. Every error it raises is one of ours."""

    def __init__(self, target: Target) -> None:
        """Open nothing yet."""
        self.target = target
        self._backoff = Backoff(deadline_s=target.timeout_s, first_s=0.05, most_s=1.0)
        self._closed = False
        self._known: set[Session] = set()  # all that are open, lent or idle
        self._start_afresh()
        weakref.finalize(self, _close_all, self._known)  # what nobody closed, as a file's connections are
        forks.watch(self)

    def _start_afresh(self) -> None:
        self._pool = threading.Condition(threading.Lock())
        self._idle: list[Session] = []
        self._opening = 0
        self._known.clear()

    def open(self) -> None:
        """Connect once, to see that it can be done.

        Raises:
            Misconfigured, PermissionDenied, Unavailable: see `translate`; nothing is tried twice.
        """
        try:
            self._take_back(self._borrow(self.target.timeout_s))
        except psycopg.Error as error:
            raise translate(error, self.target) from error

    def query(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[Row]:
        """Return all rows of one statement, which is a transaction of its own; none of one that returns nothing.

        Raises:
            Unavailable, PermissionDenied, Misconfigured, Conflict: see `translate`.
        """

        def ask(connection: Session) -> list[Row]:
            cursor = connection.cursor(binary=True)
            cursor.execute(statement, parameters, prepare=True)
            return cursor.fetchall() if cursor.description else []

        return self._until_it_works(ask)

    def send(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Return the rows of each of several statements, which are one transaction; see `Session.send`.

        Raises: as `query`.
        """
        return self._until_it_works(lambda connection: connection.send(statements))

    def read(self, work: Callable[[Cursor[Row]], T]) -> T:
        """Return what `work` makes of several statements that see one state of the database.

        Raises: as `query`.
        """

        def snapshot(connection: Session) -> T:
            connection.execute(_SNAPSHOT)
            result = work(connection.cursor(binary=True))
            connection.execute("COMMIT")
            return result

        return self._until_it_works(snapshot)

    def write(self, work: Work[T]) -> T:
        """Return what `work` returned; it begins and ends its own transaction.

        Raises:
            Unsure: it may be written.
            Unavailable, PermissionDenied, Misconfigured, Conflict: see `translate`; nothing was written.
        """
        return self._until_it_works(work, writes=True)

    def connect(self, timeout_s: float) -> Session:
        """Open a connection that is not of the pool, in autocommit mode.

        Raises:
            psycopg.Error: whatever it says.
        """
        limit_s = min(timeout_s, float(self.target.conninfo["connect_timeout"]))
        wanted: dict[str, Any] = {**self.target.conninfo, "connect_timeout": max(2, round(limit_s))}  # libpq's least
        connection = Session.connect(autocommit=True, context=_Context(), **wanted)
        try:
            connection.execute(self._settings())
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close all connections, each as soon as it is idle; from any thread, any number of times.

        In a forked child only the child's own are closed.
        """
        with self._pool:
            self._closed = True
            idle = self._drop_idle()
            self._pool.notify_all()
        for connection in idle:
            connection.close()

    def before_fork(self) -> None:
        """Nothing: the parent keeps its connections."""

    def after_fork(self, *, child: bool) -> None:
        """In the child, let go of the parent's connections without a word to the server, which would end them."""
        if child:
            leave(*self._known)
            self._start_afresh()

    def _settings(self) -> bytes:
        """Return what a session is told first. A commit is durable when it has returned, also where the server is set to less."""
        return (
            f'SET search_path TO "{self.target.schema}"; SET TimeZone TO UTC; '
            f"SET lock_timeout TO {int(self.target.timeout_s * 1000)}; "
            f"SET idle_in_transaction_session_timeout TO '{_IDLE_LIMIT_S}s'; "
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        ).encode()

    def _until_it_works(self, work: Work[T], *, writes: bool = False) -> T:
        tries = self._backoff.start()
        unsure = False
        while True:
            began = False
            try:
                connection = self._borrow(tries.left_s)
                began = True
                try:
                    return _heard_out(work, connection)
                finally:
                    self._take_back(connection)
            except psycopg.Error as error:
                unsure |= began and is_lost(error)
                if is_passing(error) and tries.pause():
                    continue
                ours = translate(error, self.target)
                if writes and unsure:
                    raise Unsure(f"reply was lost, it may be written or not: {ours}") from error
                raise ours from error

    def _take_back(self, connection: Session) -> None:
        """Keep a connection for the next who borrows; one that comes back in a transaction or broken is not lent again."""
        usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
        with self._pool:
            broken = [] if not connection.broken else self._drop_idle()  # where one was lost, most are
            if usable and not self._closed:
                self._idle.append(connection)
            else:
                self._known.discard(connection)
                broken.append(connection)
            self._pool.notify()
        for one in broken:
            one.close()

    def _borrow(self, timeout_s: float) -> Session:
        with self._pool:
            if not self._pool.wait_for(self._has_room, timeout=timeout_s):
                raise self._is_busy()
            if self._closed:
                raise self._is_closed()
            while self._idle:
                connection = self._idle.pop()
                if not _has_ended(connection):
                    return connection
                self._known.discard(connection)
                connection.close()
            self._opening += 1
        try:
            connection = self.connect(timeout_s)
        except BaseException:
            with self._pool:
                self._opening -= 1
                self._pool.notify()
            raise
        with self._pool:
            self._opening -= 1
            self._known.add(connection)
        return connection

    def _has_room(self) -> bool:
        return self._closed or bool(self._idle) or len(self._known) + self._opening < self.target.pool_size

    def _drop_idle(self) -> list[Session]:
        idle, self._idle = self._idle, []
        self._known.difference_update(idle)
        return idle

    def _is_closed(self) -> JobEventsError:
        return Unavailable(f"database is closed {where(self.target)}: it was closed in this process; open it again")

    def _is_busy(self) -> JobEventsError:
        return Unavailable(
            f"all connections are in use {where(self.target)} pool_size={self.target.pool_size}: raise pool_size in the URL"
        )


def _heard_out(work: Work[T], connection: Session) -> T:
    """Return what `work` returns; an error that came with the end of the connection is the end of the connection.

    It may be that of a first try, whose reply was lost, in the way of the second: only a connection that lives can tell.
    """
    try:
        return work(connection)
    except psycopg.Error as error:
        if connection.broken and not is_lost(error):
            raise psycopg.OperationalError(f"connection was lost: {error}") from error
        raise


def leave(*connections: Session) -> None:
    """Close a parent's connections in a child: the descriptors alone, since a goodbye would end the parent's session."""
    for connection in connections:
        if isinstance(connection, Connection) and not connection.closed:
            os.close(connection.fileno())
            _INHERITED.append(connection)  # never collected, so that nothing is said later either


def _close_all(connections: set[Session]) -> None:
    while connections:
        connections.pop().close()


def _has_ended(connection: Session) -> bool:
    """Tell whether an idle connection has something to say: almost always that it ended. Costs no word with the server."""
    if connection.closed:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([connection.fileno()], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
