"""The statements by which SQL backends find old runs and remove old log lines, in the dialect that they have in common."""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from collections.abc import Callable
from datetime import datetime
from typing import Any

from jobevents.backends.sql import UNFINISHED, Tables, time_text
from jobevents.store import NEVER, Cutoff


class RetentionStatements:
    """The statements over both tables; those with a cutoff have a value in it for each kind of job."""

    beyond = ("\U0010ffff", 2**63 - 1)  # a place after that of every line: ids are ASCII

    def __init__(self, tables: Tables, mark: str = "?", time: Callable[[datetime], Any] = time_text) -> None:
        """Write down what does not depend on the cutoff; `time` is what the driver takes for one."""
        self._runs, self._logs = (f'"{name}"' for name in tables)
        self._mark = mark
        self._time = time
        self.line_at = (
            f'SELECT "run_id", "seq" FROM {self._logs} WHERE ("run_id", "seq") > ({mark}, {mark}) '
            f'ORDER BY "run_id", "seq" LIMIT 1 OFFSET {mark}'
        )

    def finished(self, cutoff: Cutoff) -> tuple[str, list[Any]]:
        """Return the statement that finds old runs, and the parameters between the id to go on after and the limit."""
        before, values = self._before(cutoff)
        return (
            f'SELECT "id" FROM {self._runs} WHERE "id" > {self._mark} AND "finished_at" < {before} '
            f'ORDER BY "id" LIMIT {self._mark}'
        ), values

    def drop_lines(self, cutoff: Cutoff) -> tuple[str, list[Any]]:
        """Return the statement that removes old lines, and the parameters after the places: first not looked at, last."""
        before, values = self._before(cutoff)
        pair = f"({self._mark}, {self._mark})"
        of_run = (
            f"SELECT CASE WHEN {UNFINISHED} THEN {self._mark} ELSE {before} END FROM {self._runs} "
            f'WHERE {self._runs}."id" = {self._logs}."run_id"'
        )
        return (
            f'DELETE FROM {self._logs} WHERE ("run_id", "seq") > {pair} AND ("run_id", "seq") <= {pair} '
            f'AND "at" < COALESCE(({of_run}), {self._mark})'
        ), [self._time(NEVER), *values, self._time(cutoff.before)]

    def _before(self, cutoff: Cutoff) -> tuple[str, list[Any]]:
        if not cutoff.but:
            return self._mark, [self._time(cutoff.before)]
        cases = f" WHEN {self._mark} THEN {self._mark}" * len(cutoff.but)
        values = [value for job, before in cutoff.but.items() for value in (job, self._time(before))]
        return f'CASE "job_name"{cases} ELSE {self._mark} END', [*values, self._time(cutoff.before)]
