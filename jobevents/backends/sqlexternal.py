"""The statement by which SQL backends find what waits for a task queue of the user's, and the index that makes it cheap."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from typing import Final

from jobevents.backends.sql import Tables
from jobevents.job import QUEUED

_WAITS: Final = f"\"status\" = '{QUEUED}' AND "


def index_ddl(tables: Tables, external: str) -> str:
    """Return the index over the queued external runs; `external` is the condition on that column, in the dialect."""
    runs = tables.runs
    return f'CREATE INDEX "{runs}_undelivered" ON "{runs}" ("id", "scheduled_at") WHERE {_WAITS}{external}'


def undelivered(tables: Tables, external: str, mark: str = "?", *, indexed: bool = False) -> str:
    """Return the statement; its parameters are the id to go on after, the time by which they are due, and the limit.

    Args:
        indexed: name the index, to a database that would take another.
    """
    by = f' INDEXED BY "{tables.runs}_undelivered"' if indexed else ""
    return (
        f'SELECT "id", "scheduled_at" FROM "{tables.runs}"{by} WHERE {_WAITS}{external} '
        f'AND "id" > {mark} AND "scheduled_at" <= {mark} ORDER BY "id" LIMIT {mark}'
    )
