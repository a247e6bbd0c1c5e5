"""What claims on queued runs are in every SQL database: rows of a small table, and one index by which due runs are found.

Due runs are found group by group (a queue, a kind of job, a priority): what it costs grows with the groups, not with the runs
that wait, that are wanted later or are paused.
"""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

from typing import Final

from jobevents.backends.sql import Tables

CLAIMS: Final = "job_claims"
HISTORY_LIMIT: Final = 8  # events that come with a claim, so that its start need not read them: most jobs have one
_GROUP_AND_TIME: Final = ("queue", "job_name", "priority", "scheduled_at")


def index_ddl(tables: Tables, ours: str, *more: str) -> str:
    """Return the index over the runs for which `ours` holds; `more` columns tell who was first of equals."""
    columns = ", ".join(f'"{name}"' for name in (*_GROUP_AND_TIME, *more))
    return f'CREATE INDEX "{tables.runs}_claim" ON "{tables.runs}" ({columns}) WHERE {ours}'


class ClaimStatements:
    """The statements that take claims away."""

    def __init__(self, mark: str = "?") -> None:
        """Write them down; `mark` is what the driver puts a parameter in place of."""
        self.end = f'DELETE FROM "{CLAIMS}" WHERE "run_id" = {mark}'  # whoever has it: the run is written
        self.give_back = f'{self.end} AND "token" = {mark}'
