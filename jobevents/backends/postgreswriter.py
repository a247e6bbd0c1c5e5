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
from jobevents.backends.postgresdb import BEGIN, COMMIT, PostgresDatabase
from jobevents.backends.postgreserrors import is_lost
from jobevents.backends.postgressession import Row, Session, Statement
from jobevents.errors import JobEventsError
from jobevents.job import Job
from jobevents.limits import Limit
from jobevents.log import NO_HEADS, Head

_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
_SAVEPOINT: Final[Statement] = ("SAVEPOINT caller", ())
_RELEASE: Final[Statement] = ("RELEASE caller", ())
_UNDO: Final[Statement] = ("ROLLBACK TO caller", ())
_ROLLBACK: Final[Statement] = ("ROLLBACK", ())


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


Write: TypeAlias = Callable[[Sequence[Insert]], list[Statement]]
"""Return the statements that write inserts; where these have events, the first returns the ids of all."""
Note: TypeAlias = Callable[[Sequence[Insert]], Sequence[tuple[str, str]]]
Judge: TypeAlias = Callable[[Cursor[Row], Insert, psycopg.Error], Exception]
"""Say what the error of one insert means to its caller; the cursor sees what the others of its transaction wrote."""


class PostgresWriter:
    """The inserts of all threads of this process, as many as wait in one transaction. Safe over forks."""

    def __init__(self, database: PostgresDatabase, *, lock: int, note: Note, write: Write, judge: Judge) -> None:
        """Write nothing yet.

        Args:
            lock: key of the advisory lock that all writers of the log take.
            note: the channels that are told of a commit, and what each is told.
        """
        self._database = database
        self._begin = (BEGIN, (_LOCK, (lock,)))
        self._note = note
        self._write = write
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
            _, _, first, *_ = connection.send([*self._begin, *self._write(_inserts(group)), *self._end(group)])
        except psycopg.Error as error:
            if is_lost(error) or connection.broken:
                raise
            connection.send([_ROLLBACK])
            self._transact_apart(connection, group)
            return
        ids = _ids(first)
        for call in group:
            call.settle(call.work(ids))

    def _transact_apart(self, connection: Session, group: list[Call]) -> None:
        """Commit what can be committed of the group, each call behind a savepoint of its own."""
        connection.send(self._begin)
        answers = [self._try(connection, call) for call in group]
        connection.send(self._end(group) if any(error is None for _, error in answers) else [_ROLLBACK])
        for call, (result, error) in zip(group, answers, strict=True):
            call.settle(result, error)

    def _try(self, connection: Session, call: Call) -> tuple[list[int] | None, Exception | None]:
        (insert,) = _inserts([call])
        try:
            _, first, *_ = connection.send([_SAVEPOINT, *self._write([insert]), _RELEASE])
            return insert(_ids(first)), None
        except psycopg.Error as error:
            if is_lost(error) or connection.broken:
                raise
            connection.send([_UNDO])
            return None, self._judge(connection.cursor(), insert, error)

    def _end(self, group: Sequence[Call]) -> list[Statement]:
        """Commit, and tell of it afterwards: told of within, all logs of the server would wait for each other's disk."""
        return [COMMIT, notifying(self._note(_inserts(group)))]


def notifying(notes: Sequence[tuple[str, str]]) -> Statement:
    """Return the statement that tells channels something, each its own."""
    return "SELECT " + ", ".join(["pg_notify(%s, %s)"] * len(notes)), [word for note in notes for word in note]


def _inserts(group: Sequence[Call]) -> list[Insert]:
    return [cast(Insert, call.work) for call in group]


def _ids(rows: Sequence[Row]) -> Iterator[int]:
    return (row[0] for row in rows)
