"""Writes to the log of a Postgres database, one transaction at a time, so that the order of ids is the order of commits.

A reader that goes on after the highest id it has seen would pass over an event that got a lower id and was committed later.
So every transaction takes an advisory lock of the log before it takes an id, and Postgres frees that lock only after the
transaction's events can be seen. A table lock does the same, and dearer: it stops the table's vacuum, and is stopped by one.
A transaction of ours, from BEGIN to COMMIT, goes to the server in one parcel: nobody holds the lock over a network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, cast

import msgspec
import psycopg
from eventsourcing.persistence import StoredEvent
from psycopg import Cursor

from jobevents.backends import forks
from jobevents.backends.groupcommit import Call, GroupCommit
from jobevents.backends.postgresdb import BEGIN, PostgresDatabase, Row, Session
from jobevents.backends.postgreserrors import is_lost
from jobevents.errors import JobEventsError
from jobevents.job import Job
from jobevents.limits import Limit
from jobevents.log import NO_HEADS, Head

_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
NOTIFY: Final = "SELECT pg_notify(%s, %s)"

Statement: TypeAlias = tuple[str, Sequence[object]]  # with its parameters


class Insert(msgspec.Struct, frozen=True):
    """What one caller wants written, all or nothing."""

    events: Sequence[StoredEvent]
    statements: Sequence[Statement]  # what writes the rows that follow from the events, and tracking
    rows: Sequence[Job] = ()  # the jobs of these rows
    limits: Sequence[Limit] = ()  # on how many of them may run
    follows: Mapping[str, Head] = NO_HEADS  # job id -> what its events go on from

    def __call__(self, ids: Iterator[int]) -> list[int]:
        """Return the ids of the events, taken from those of all callers."""
        return list(islice(ids, len(self.events)))


Send: TypeAlias = Callable[[Session, Sequence[Insert]], Callable[[], list[int]]]
"""Send the statements of all inserts in a pipeline; the ids of their events can be had when it has ended."""
Judge: TypeAlias = Callable[[Cursor[Row], Insert, psycopg.Error], Exception]
"""Say what the error of one insert means to its caller; the cursor sees what the others of its transaction wrote."""


class PostgresWriter:
    """The inserts of all threads of this process, as many as wait in one transaction. Safe over forks."""

    def __init__(
        self, database: PostgresDatabase, *, lock: int, note: Callable[[], tuple[str, str]], send: Send, judge: Judge
    ) -> None:
        """Write nothing yet.

        Args:
            lock: key of the advisory lock that all writers of the log take.
            note: the channel that is told of every commit, and what it is told.
        """
        self._database = database
        self._lock = lock
        self._note = note
        self._send = send
        self._judge = judge
        self._group = GroupCommit(self._commit)
        forks.watch(self)

    def run(self, insert: Insert) -> list[int]:
        """Commit an insert, alone or with what other threads want, and return the ids of its events.

        Raises:
            Unsure: the reply was lost and the database did not come back: it may be written.
            Unavailable, PermissionDenied, Misconfigured: nothing was written.
            What `judge` makes of an error that is the insert's own; nothing of it was written.
        """
        return self._group.run(insert)

    def before_fork(self) -> None:
        """Nothing: a transaction under way is the parent's."""

    def after_fork(self, *, child: bool) -> None:
        """In the child, wait for no thread of the parent."""
        if child:
            self._group = GroupCommit(self._commit)

    def _commit(self, group: list[Call]) -> None:
        """Settle every call of the group."""
        try:
            self._database.write(lambda connection: self._transact(connection, group))
        except JobEventsError as error:
            for call in group:
                call.settle(error=error)

    def _transact(self, connection: Session, group: list[Call]) -> None:
        """Commit the group in one transaction; if one of its calls cannot be, each apart from the others."""
        try:
            with connection.pipeline():
                cursor = self._begin(connection)
                fetch = self._send(connection, _inserts(group))
                self._end(cursor)
            ids = iter(fetch())
        except psycopg.Error as error:
            if is_lost(error) or connection.broken:
                raise
            connection.rollback()
            self._transact_apart(connection, group)
            return
        for call in group:
            call.settle(call.work(ids))

    def _transact_apart(self, connection: Session, group: list[Call]) -> None:
        """Commit what can be committed of the group, each call behind a savepoint of its own."""
        cursor = self._begin(connection)
        answers = [self._try(connection, cursor, call) for call in group]
        if any(error is None for _, error in answers):
            self._end(cursor)
        else:
            cursor.execute("ROLLBACK")
        for call, (result, error) in zip(group, answers, strict=True):
            call.settle(result, error)

    def _try(self, connection: Session, cursor: Cursor[Row], call: Call) -> tuple[list[int] | None, Exception | None]:
        (insert,) = _inserts([call])
        try:
            with connection.pipeline():
                cursor.execute("SAVEPOINT caller")
                fetch = self._send(connection, [insert])
                cursor.execute("RELEASE caller")
            return insert(iter(fetch())), None
        except psycopg.Error as error:
            if is_lost(error) or connection.broken:
                raise
            cursor.execute("ROLLBACK TO caller")
            return None, self._judge(cursor, insert, error)

    def _begin(self, connection: Session) -> Cursor[Row]:
        cursor = connection.cursor()
        cursor.execute(BEGIN)
        cursor.execute(_LOCK, (self._lock,), prepare=True)
        return cursor

    def _end(self, cursor: Cursor[Row]) -> None:
        """Commit, and tell of it afterwards: told of within, all logs of the server would wait for each other's disk."""
        cursor.execute("COMMIT")
        cursor.execute(NOTIFY, self._note(), prepare=True)


def _inserts(group: Sequence[Call]) -> list[Insert]:
    return [cast(Insert, call.work) for call in group]
