"""What is paused, in a Postgres database."""

from collections.abc import Callable, Sequence
from typing import Final

from jobevents.backends import sqlpauses
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.pauses import Pause, Paused

DDL: Final = sqlpauses.ddl({"text": 'text COLLATE "C"', "time": "timestamptz"})
_SQL: Final = sqlpauses.PauseStatements("%s")


class PostgresPauses:
    """The table of pauses, which a claim reads in its own statement; each call is one statement."""

    def __init__(self, database: PostgresDatabase, announce: Callable[[], None]) -> None:
        """Use a database whose schema is there; `announce` wakes who waits, in all processes."""
        self._database = database
        self._announce = announce

    def add(self, pause: Pause) -> bool:
        return bool(self._database.query(f"{_SQL.add} RETURNING 1", sqlpauses.row_of(pause)))

    def drop(self, kind: Paused, name: str) -> bool:
        dropped = bool(self._database.query(f"{_SQL.drop} RETURNING 1", (kind, name)))
        self._announce()
        return dropped

    def list(self) -> Sequence[Pause]:
        return [sqlpauses.pause_from(row) for row in self._database.query(_SQL.all)]
