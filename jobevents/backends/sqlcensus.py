"""The statements by which SQL backends count all runs, and the indexes that make counting cheap, in their common dialect."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from typing import Final

from jobevents.backends.sql import Tables

_HAS_ENDED: Final = '"finished_at" IS NOT NULL'


def index_ddl(tables: Tables) -> list[str]:
    """Return the indexes: by queue and state in the order of lists, by the end (written once a run), by the creation."""
    runs = tables.runs
    return [
        f'CREATE INDEX "{runs}_tally" ON "{runs}" ("queue", "status", "sort_key", "id")',
        f'CREATE INDEX "{runs}_ended" ON "{runs}" ("finished_at", "status", "duration_ms") WHERE {_HAS_ENDED}',
        f'CREATE INDEX "{runs}_created" ON "{runs}" ("created_at")',
    ]


class CensusStatements:
    """What both dialects have in common; each count is answered from an index alone."""

    def __init__(self, tables: Tables, *, ours: str, mark: str = "?", claim: str = "") -> None:
        """Write it down.

        Args:
            ours: which runs are handed out, as in the index of claims.
            mark: what the driver puts a parameter in place of.
            claim: the words that make a database take the index of claims which would not by itself.
        """
        runs = self.runs = f'"{tables.runs}"'
        self.tally = f'SELECT "queue", "status", count(*) FROM {runs} GROUP BY "queue", "status" ORDER BY 1, 2'
        self.waiting = (
            f'SELECT "queue", min("scheduled_at") FROM {runs}{claim} WHERE {ours} AND "scheduled_at" <= {mark} '
            'GROUP BY "queue" ORDER BY 1'
        )
