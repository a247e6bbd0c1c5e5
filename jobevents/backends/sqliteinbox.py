"""The inbox in an SQLite file, which has one writer at a time: a caller's open transaction has all others wait."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from jobevents.backends.sqlinbox import InboxStatements, ddl, run_by
from jobevents.backends.sqliteerrors import translate
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.desk import Parcel
from jobevents.errors import Misconfigured

DDL: Final = ddl({"rising": "INTEGER", "rises": " AUTOINCREMENT", "text": "TEXT", "bytes": "BLOB"})
_SQL: Final = InboxStatements()


class SqliteInbox:
    """The table of the inbox."""

    def __init__(self, file: SqliteFile) -> None:
        """Use a file whose schema is there."""
        self._file = file

    def put(self, connection: object, job_id: str, body: bytes) -> None:
        try:
            run_by(connection, sqlite3.Connection, _SQL.put, (job_id, body))
        except sqlite3.ProgrammingError as error:  # of the module itself: it is closed, or another thread's
            raise Misconfigured(
                f"connection cannot be used here error={error}; for jobs.aio make it with check_same_thread=False"
            ) from error
        except sqlite3.Error as error:
            raise translate(error, self._file.path) from error

    def pending(self, limit: int) -> Sequence[Parcel]:
        return [Parcel(*row) for row in self._file.query(_SQL.pending, (limit,))]

    def drop(self, places: Sequence[int]) -> None:
        self._file.write(lambda cursor: cursor.executemany(_SQL.drop, [(place,) for place in places]) and None)

    def refuse(self, place: int, why: str) -> None:
        self._file.write(lambda cursor: cursor.execute(_SQL.refuse, (why, place)) and None)
