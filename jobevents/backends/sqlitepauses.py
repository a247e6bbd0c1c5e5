"""What is paused, in an SQLite file."""
# ruff: noqa: S608  # the table's name is a constant, values are bound

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from jobevents.backends.sql import time_text
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.pauses import Pause, Paused

PAUSES: Final = "job_paused"

DDL: Final = (
    f'CREATE TABLE "{PAUSES}" (\n'
    '    "kind" TEXT NOT NULL,\n'
    '    "name" TEXT NOT NULL,\n'
    '    "at" TEXT NOT NULL,\n'
    '    "by" TEXT NOT NULL,\n'
    '    "reason" TEXT NOT NULL,\n'
    '    PRIMARY KEY ("kind", "name")\n'
    ") WITHOUT ROWID"
)


class SqlitePauses:
    """The table of pauses, which a claim reads in its own transaction: what is paused is handed out no more."""

    def __init__(self, file: SqliteFile, announce: Callable[[], None]) -> None:
        """Use a file whose schema is there; `announce` wakes who waits, in all processes."""
        self._file = file
        self._announce = announce

    def add(self, pause: Pause) -> bool:
        values = (pause.kind, pause.name, time_text(pause.at), pause.by, pause.reason)
        return self._write(f'INSERT INTO "{PAUSES}" VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING', values)

    def drop(self, kind: Paused, name: str) -> bool:
        dropped = self._write(f'DELETE FROM "{PAUSES}" WHERE "kind" = ? AND "name" = ?', (kind, name))
        self._announce()
        return dropped

    def list(self) -> Sequence[Pause]:
        rows = self._file.query(f'SELECT "kind", "name", "at", "by", "reason" FROM "{PAUSES}" ORDER BY "kind", "name"')
        return [
            Pause(kind=kind, name=name, at=datetime.fromisoformat(at), by=by, reason=reason)
            for kind, name, at, by, reason in rows
        ]

    def _write(self, statement: str, values: tuple[str, ...]) -> bool:
        return self._file.write(lambda cursor: cursor.execute(statement, values).rowcount > 0)
