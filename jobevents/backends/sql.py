"""What the SQL backends share: the tables of runs and log lines, their rows, the statements that read and write them.

A run's row has the keys of behaviour M2 as columns, so that users query and join it, and a few that our own queries need.
Times go in as fixed-width UTC text, whose order is that of time; one instant has one text, however it was spelled.
"""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from jobevents.boundary import check_instant
from jobevents.census import Order
from jobevents.errors import Corrupt, Misconfigured
from jobevents.ids import sort_key
from jobevents.job import CANCELED, FAILED, RUNNING, SKIPPED, SUCCEEDED, Job, due_at
from jobevents.log import Record
from jobevents.store import (
    NEVER,
    JobLog,
    JobRun,
    RunError,
    RunFilter,
    current_attempt,
    duration_ms,
    error_of,
    progress_of,
    updated_at,
)
from jobevents.times import is_normal

Row: TypeAlias = tuple[Any, ...]  # Any: what a driver binds and returns
Kind: TypeAlias = str  # text, int, number, bool, time or json: each backend has a column type for it

FINAL = (SUCCEEDED, FAILED, CANCELED, SKIPPED)  # the order in which the partial index spells them

RUN_COLUMNS: Mapping[str, Kind] = {
    "id": "text",
    "job_name": "text",
    "queue": "text",
    "params": "json",
    "status": "text",
    "trigger": "text",
    "triggered_by": "text",
    "idem_key": "text",
    "attempt": "int",
    "max_attempts": "int",
    "scheduled_at": "time",
    "started_at": "time",
    "finished_at": "time",
    "duration_ms": "int",
    "progress": "number",
    "progress_message": "text",
    "result": "json",
    "error": "json",
    "worker_id": "text",
    "capture_logs": "text",
    "cancel_requested_at": "time",
    "canceled_by": "text",
    "cancel_reason": "text",
    "replay_of": "text",
    "root_id": "text",
    "created_at": "time",
    "updated_at": "time",
    "sort_key": "text",  # ids.sort_key of the id: the order of lists
    "start": "int",  # version of the current or last JobStarted: the fence
    "starts": "int",  # how often it was started
    "version": "int",  # version of the last event in this row
    "external": "bool",  # delivered by the user's own task queue
    "priority": "int",  # higher goes first
    "fields": "json",  # service fields
    "deadline": "time",  # of the current attempt: after this it may be taken for lost
}
"""Column -> kind, in the order of a row: the keys of behaviour M2 first."""

LOG_COLUMNS: Mapping[str, Kind] = {
    "run_id": "text",
    "seq": "int",
    "attempt": "int",
    "at": "time",
    "level": "text",
    "message": "text",
    "attrs": "json",
}

OPTIONAL = frozenset(
    {"params", "started_at", "finished_at", "result", "error", "cancel_requested_at", "fields", "deadline", "attrs"}
)  # NULL when there is none
_RUN_KEYS = JobRun.__struct_fields__
RUN_SELECT = ", ".join(f'"{name}"' for name in _RUN_KEYS)
_LOG_SELECT = ", ".join(f'"{name}"' for name in LOG_COLUMNS)
_ORDER = '"sort_key" DESC, "id" DESC'  # behaviour S21; an id without a key has "", which is last
_ORDERS: Mapping[Order, str] = {
    "newest": _ORDER,
    "oldest": '"sort_key", "id"',
    "ended": '"finished_at" DESC, "id" DESC',  # by the index of the census
}
UNFINISHED = f'"status" NOT IN ({", ".join(repr(state) for state in FINAL)})'

_HOLDS_KEY = f"\"idem_key\" <> '' AND {UNFINISHED}"

_sort_key = lru_cache(4096)(sort_key)  # one job's row is written again and again
_encode = msgspec.json.encode
_decode = msgspec.json.decode
_decode_error = msgspec.json.Decoder(RunError).decode
_builtin = msgspec.to_builtins


class Tables(NamedTuple):
    """Names of the two tables (behaviour T5)."""

    runs: str = "job_runs"
    logs: str = "job_run_logs"

    @classmethod
    def named(cls, names: Sequence[str]) -> "Tables":
        """Return the tables of these names; an empty name keeps the default.

        Raises:
            Misconfigured: one is no plain SQL name of at most 40 characters, or both are the same.
        """
        if len(names) != 2:
            raise Misconfigured(
                f"tables must be two names tables={tuple(names)!r}: those of the runs and of their logs"
            )
        tables = cls(names[0] or cls().runs, names[1] or cls().logs)
        for name in tables:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", name):
                raise Misconfigured(f"table name is invalid name={name!r}: use 1 to 40 letters, digits and _")
        if tables.runs.lower() == tables.logs.lower():
            raise Misconfigured(f"both tables have one name name={tables.runs}: give them two")
        return tables


DEFAULT_TABLES: Final = Tables()


def table_ddl(tables: Tables, types: Mapping[Kind, str], *, without: Collection[str] = ()) -> list[str]:
    """Return what creates both tables and their indexes (behaviour T8), given a column type for each kind.

    Args:
        without: columns that a later step of a migration adds.
    """
    runs, logs = tables

    def columns(of: Mapping[str, Kind]) -> Iterator[str]:
        for name, kind in of.items():
            if name not in without:
                yield f'    "{name}" {types[kind]}' + ("" if name in OPTIONAL else " NOT NULL")

    return [
        f'CREATE TABLE "{runs}" (\n' + ",\n".join([*columns(RUN_COLUMNS), '    PRIMARY KEY ("id")']) + "\n)",
        f'CREATE INDEX "{runs}_listing" ON "{runs}" ("job_name", "status")',
        f'CREATE INDEX "{runs}_poll" ON "{runs}" ("status", "scheduled_at")',
        f'CREATE INDEX "{runs}_order" ON "{runs}" ("sort_key", "id")',
        f'CREATE UNIQUE INDEX "{runs}_key" ON "{runs}" ("job_name", "idem_key") WHERE {_HOLDS_KEY}',
        f'CREATE TABLE "{logs}" (\n' + ",\n".join([*columns(LOG_COLUMNS), '    PRIMARY KEY ("run_id", "seq")']) + "\n)",
    ]


class Statements:
    """The statements over both tables, in the dialect that SQLite and Postgres have in common."""

    def __init__(self, tables: Tables, events: str, mark: str = "?") -> None:
        """Write them down; `events` is the table of events, `mark` what the driver puts a parameter in place of."""
        runs, logs = (f'"{name}"' for name in tables)
        self._mark = mark
        self._runs = runs
        names = ", ".join(f'"{name}"' for name in RUN_COLUMNS)
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in RUN_COLUMNS if name not in ("id", "sort_key"))
        # A row of a higher version stays: a late writer's copy is older than what is there.
        self.put_run = (
            f'INSERT INTO {runs} ({names}) VALUES ({self._marks(RUN_COLUMNS)}) ON CONFLICT ("id") DO UPDATE SET {changes} '
            f'WHERE {runs}."version" <= excluded."version"'
        )
        self.delete_run = f'DELETE FROM {runs} WHERE "id" = {mark}'
        self.delete_logs = f'DELETE FROM {logs} WHERE "run_id" = {mark}'
        self.get_run = f'SELECT {RUN_SELECT} FROM {runs} WHERE "id" = {mark}'
        self.run_version = f'SELECT "version" FROM {runs} WHERE "id" = {mark}'
        self.find_active = (
            f'SELECT "id" FROM {runs} WHERE "job_name" = {mark} AND "idem_key" = {mark} AND {_HOLDS_KEY} '
            f"ORDER BY {_ORDER} LIMIT 1"
        )
        self.running_ids = (
            f'SELECT "id" FROM {runs} WHERE "job_name" = {mark} AND "status" = \'{RUNNING}\' ORDER BY "id"'
        )
        # Another's: the job that starts may be taken over from a worker that was lost.
        self.count_running = {
            column: f'SELECT count(*) FROM {runs} WHERE "status" = \'{RUNNING}\' AND "{column}" = {mark} AND "id" <> {mark}'
            for column in ("job_name", "queue")
        }
        self.running = (
            f'SELECT "id", "worker_id", "start", "deadline" IS NOT NULL AND "deadline" <= {mark} FROM {runs} '
            f'WHERE "status" = \'{RUNNING}\' AND "id" > {mark} ORDER BY "id" LIMIT {mark}'
        )
        # A job with events and without a row is deleted: a late line must not bring back a part of it.
        self.put_log = (
            f"INSERT INTO {logs} ({_LOG_SELECT}) SELECT {self._marks(LOG_COLUMNS)} WHERE EXISTS "
            f'(SELECT 1 FROM {runs} WHERE "id" = {mark}) OR NOT EXISTS '
            f'(SELECT 1 FROM "{events}" WHERE "originator_id" = {mark}) ON CONFLICT DO NOTHING'
        )
        self.get_logs = (
            f'SELECT {_LOG_SELECT} FROM {logs} WHERE "run_id" = {mark} AND "seq" > {mark} ORDER BY "seq" LIMIT {mark}'
        )

    def listing(
        self, filter: RunFilter, time: Callable[[datetime], Any], order: Order = "newest"
    ) -> tuple[str, str, list[Any]]:
        """Return the statement of a page, that of the count, and its parameters: the page has limit and offset more."""
        clauses, values = self._restrict(filter, time)
        if order == "ended":
            clauses.append('"finished_at" IS NOT NULL')
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        by = _ORDERS[order]
        page = f"SELECT {RUN_SELECT} FROM {self._runs}{where} ORDER BY {by} LIMIT {self._mark} OFFSET {self._mark}"
        return page, f"SELECT count(*) FROM {self._runs}{where}", values

    def slice(self, filter: RunFilter, job_id: str, time: Callable[[datetime], Any]) -> tuple[str, list[Any]]:
        """Return the statement of what comes after a job in the order of lists, and its parameters but for the limit."""
        clauses, values = self._restrict(filter, time)
        if job_id:
            clauses.append(f'("sort_key", "id") < ({self._mark}, {self._mark})')
            values += [sort_key(job_id), job_id]
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        return f"SELECT {RUN_SELECT} FROM {self._runs}{where} ORDER BY {_ORDER} LIMIT {self._mark}", values

    def _restrict(self, filter: RunFilter, time: Callable[[datetime], Any]) -> tuple[list[str], list[Any]]:
        clauses: list[str] = []
        values: list[Any] = []
        for column, value in (("job_name", filter.job), ("trigger", filter.trigger), ("queue", filter.queue)):
            if value:
                clauses.append(f'"{column}" = {self._mark}')
                values.append(value)
        if filter.statuses:
            clauses.append(f'"status" IN ({self._marks(filter.statuses)})')
            values += filter.statuses
        for sign, when in ((">=", filter.from_), ("<=", filter.to)):
            if when is not None:
                clauses.append(f'"created_at" {sign} {self._mark}')
                values.append(time(when))
        if filter.prefix:
            clauses.append(f'"id" >= {self._mark} AND "id" < {self._mark}')
            values += [filter.prefix, filter.prefix + "\x7f"]  # ids are ASCII, and none holds this
        return clauses, values

    def _marks(self, items: Sequence[str] | Mapping[str, Kind]) -> str:
        return ", ".join([self._mark] * len(items))


def by_job(select: Callable[[tuple[str, int, int]], Sequence[Row]], start: str, batch: int) -> Iterator[Record]:
    """Yield events by job, version and place in the log, a page of `batch` at a time.

    Args:
        select: returns the rows after a place: of the log, then the event's own columns.
        start: the first job.
    """
    place = start, -(2**63), 0
    while True:
        rows = select(place)
        for row in rows:
            yield Record(str(row[0]), *row[1:])
        if len(rows) < batch:
            return
        place = rows[-1][1], rows[-1][2], rows[-1][0]


def time_text(when: datetime) -> str:
    """Return a time as 27 characters of UTC text, such as 2026-07-26T12:00:31.500000Z.

    Raises:
        InvalidValue: it has no zone.
    """
    text: str = _builtin(check_instant("time", when))
    return text if len(text) == 27 else f"{text[:19]}.000000Z"


def row_of(job: Job) -> Row:
    """Return a job's row, in the order of RUN_COLUMNS: JSON and times as text, None only for what is optional.

    It is made for every event: conditions stand in it where calls would cost more than what they do.
    """
    started, finished, asked, deadline = job.started_at, job.finished_at, job.cancel_requested_at, job.deadline
    error = error_of(job)
    return (
        job.job_id,
        job.name,
        job.queue,
        None if job.params is None else json_text(job.params),
        job.state,
        job.trigger,
        job.triggered_by,
        job.key,
        current_attempt(job),
        job.max_attempts,
        time_text(due_at(job)),
        None if started is None else time_text(started),
        None if finished is None else time_text(finished),
        duration_ms(job),
        progress_of(job),
        job.progress_message,
        None if job.result is None else json_text(job.result),
        None if error is None else json_text(error),
        job.worker,
        job.capture_logs,
        None if asked is None else time_text(asked),
        job.canceled_by,
        job.cancel_reason,
        job.replay_of,
        job.root_id,
        time_text(job.created_at or NEVER),
        updated_text(job),
        _sort_key(job.job_id),
        job.start,
        job.starts,
        job.version,
        int(job.external),
        job.priority,
        fields_text(job),
        None if deadline is None else time_text(deadline),
    )


def run_from(row: Row) -> JobRun:
    """Return the run of a row that was selected with the columns of a JobRun.

    Raises:
        Corrupt: another program has written into it what no run holds.
    """
    try:
        return _run_from(row)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(f"row of a run is unreadable job_id={row[0]!r:.150} error={error}: mend the table") from error


def _run_from(row: Row) -> JobRun:
    values = dict(zip(_RUN_KEYS, row, strict=True))
    for name in ("params", "result"):
        values[name] = None if values[name] is None else _decode(values[name])
    values["error"] = None if values["error"] is None else _decode_error(values["error"])
    for name in _TIMES:
        values[name] = instant(values[name])
    if isinstance(values["progress"], float) and values["progress"].is_integer():  # SQLite makes 40 of 40.0 itself
        values["progress"] = int(values["progress"])
    values["external"] = bool(values["external"])
    return JobRun(**values)


def log_row(line: JobLog) -> Row:
    """Return a line's row in the order of LOG_COLUMNS."""
    return (
        line.run_id,
        line.seq,
        line.attempt,
        time_text(line.at),
        line.level,
        line.message,
        json_text(line.attrs) if line.attrs else None,
    )


def log_from(row: Row) -> JobLog:
    """Return the line of a row."""
    run_id, seq, attempt, at, level, message, attrs = row
    return JobLog(
        run_id=run_id,
        seq=seq,
        attempt=attempt,
        at=instant(at) or NEVER,
        level=level,
        message=message,
        attrs={} if attrs is None else _decode(attrs),
    )


def page_of(filter: RunFilter) -> tuple[int, int, int]:
    """Return page, per_page and offset: a page below 1 is 1, and a per_page of 0 or less is all on one page."""
    per_page = max(0, filter.per_page)
    page = max(1, filter.page) if per_page else 1
    return page, per_page, (page - 1) * per_page


_TIMES = tuple(name for name in _RUN_KEYS if RUN_COLUMNS[name] == "time")


def instant(value: str | datetime | None) -> datetime | None:
    """Return a time of a row in UTC, whether the database knows times or keeps their text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value and value.astimezone(UTC)


def fields_text(job: Job) -> str | None:
    """Return a job's service fields as a row has them."""
    return json_text(job.fields) if job.fields else None


def updated_text(job: Job) -> str:
    """Return `time_text(updated_at(job))`, from text to text where it is normal and in UTC."""
    text = job.updated_at
    if text[-1:] == "Z" and is_normal(text):
        return f"{text[:19]}.{text[20:26].rstrip('Z'):0<6}Z"
    return time_text(updated_at(job))


def json_text(value: Any) -> str:
    """Return a JSON value as a row has it."""
    return _encode(value).decode()
