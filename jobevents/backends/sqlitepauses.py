"""What is paused, in an SQLite file."""

from collections.abc import Callable, Sequence
from typing import Final

from jobevents.backends import sqlpauses
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.pauses import Pause, Paused

DDL: Final = f"{sqlpauses.ddl({'text': 'TEXT', 'time': 'TEXT'})} WITHOUT ROWID"
_SQL: Final = sqlpauses.PauseStatements()


class SqlitePauses:
    """The table of pauses, which a claim reads in its own transaction: what is paused is handed out no more."""

    def __init__(self, file: SqliteFile, announce: Callable[[], None]) -> None:
        """Use a file whose schema is there; `announce` wakes who waits, in all processes."""
        self._file = file
        self._announce = announce

    def add(self, pause: Pause) -> bool:
        return self._write(_SQL.add, sqlpauses.row_of(pause))

    def drop(self, kind: Paused, name: str) -> bool:
        dropped = self._write(_SQL.drop, (kind, name))
        self._announce()
        return dropped

    def list(self) -> Sequence[Pause]:
        return [sqlpauses.pause_from(row) for row in self._file.query(_SQL.all)]

    def _write(self, statement: str, values: tuple[str, ...]) -> bool:
        return self._file.write(lambda cursor: cursor.execute(statement, values).rowcount > 0)
