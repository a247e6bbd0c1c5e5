"""The table of what is paused, in the dialect that SQL backends have in common."""
# ruff: noqa: S608  # the table's name is a constant, values are bound

from collections.abc import Mapping
from typing import Final

from jobevents.backends.sql import Kind, Row, instant, time_text
from jobevents.pauses import Pause
from jobevents.store import NEVER

PAUSES: Final = "job_paused"
_COLUMNS: Final[Mapping[str, Kind]] = {"kind": "text", "name": "text", "at": "time", "by": "text", "reason": "text"}
_SELECT: Final = ", ".join(f'"{name}"' for name in _COLUMNS)


def ddl(types: Mapping[Kind, str]) -> str:
    """Return what creates the table, given a column type for each kind."""
    columns = "".join(f'    "{name}" {types[kind]} NOT NULL,\n' for name, kind in _COLUMNS.items())
    return f'CREATE TABLE "{PAUSES}" (\n{columns}    PRIMARY KEY ("kind", "name")\n)'


class PauseStatements:
    """The statements over the table."""

    all = f'SELECT {_SELECT} FROM "{PAUSES}" ORDER BY "kind", "name"'

    def __init__(self, mark: str = "?") -> None:
        """Write them down; `mark` is what the driver puts a parameter in place of."""
        marks = ", ".join([mark] * len(_COLUMNS))
        self.add = f'INSERT INTO "{PAUSES}" ({_SELECT}) VALUES ({marks}) ON CONFLICT DO NOTHING'
        self.drop = f'DELETE FROM "{PAUSES}" WHERE "kind" = {mark} AND "name" = {mark}'


def row_of(pause: Pause) -> tuple[str, ...]:
    """Return the parameters of `add`."""
    return pause.kind, pause.name, time_text(pause.at), pause.by, pause.reason


def pause_from(row: Row) -> Pause:
    """Return the pause of a row of `all`."""
    kind, name, at, by, reason = row
    return Pause(kind=kind, name=name, at=instant(at) or NEVER, by=by, reason=reason)
