"""SQL over history: DuckDB reads the tables of a log as streams, works within a limit of memory, and nothing is ever written.

`events`, `jobs`, `attempts` and `logs` are as of one place in the log, also where a query reads one of them twice.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jobevents.errors import InvalidValue, Unavailable
from jobevents.jobs import Jobs
from projections.reports import REPORTS
from projections.tables import OnProgress, Stream, Tables

# For what a query sorts, groups and joins; the rest goes to temporary files. Measured: 4,000,000 events with all they hold are
# sorted in 256 MB and a process of 480; 160 MB are too few for 1,000,000, as DuckDB keeps some of each sorted run in memory.
MEMORY_MB = 256
ROWS = 10_000  # in a batch of an answer

# TRY: of stored bytes that are no JSON, which only damage brings about, all is NULL or nothing but their place and themselves.
_EVENTS = """
CREATE VIEW events AS SELECT
    * REPLACE (TRY(CAST(data AS JSON)) AS data), CASE WHEN NOT json_valid(data) THEN data END AS damaged
FROM events_stream
"""
_OF_JSON = {"jobs": ("params", "result", "fields"), "attempts": (), "logs": ("attrs",)}
_SETTINGS = {
    "python_enable_replacements": "false",  # a table that is not ours must not be a variable that has its name
    "autoinstall_known_extensions": "false",  # nothing is fetched from the network
    "autoload_known_extensions": "false",
    "threads": "2",
    "preserve_insertion_order": "false",
}
_CLOSED = ("SET enable_external_access = false", "SET lock_configuration = true")  # no files, no network; for good
_explained = re.compile(r"\s*EXPLAIN\b(?:\s+ANALYZE\b|\s*\(\s*(?:ANALYZE|FORMAT)\b[\w\s,]*\))?", re.IGNORECASE).match


class Source(Protocol):
    """Where the tables come from."""

    unreadable: dict[str, str]  # jobs that are shown as far as they could be folded -> why
    error: BaseException | None  # that ended a stream

    def stream(self, name: str) -> Stream:
        """Return a table by its name."""
        ...


class Answer:
    """The rows of a query, read once; close it, or use it as a context manager."""

    def __init__(self, found: duckdb.DuckDBPyRelation, tables: Source) -> None:
        self._held = ExitStack()
        self._tables = tables
        self.columns: list[str] = list(found.columns)
        self.json_columns = {name for name, kind in zip(found.columns, found.types, strict=True) if str(kind) == "JSON"}
        with _Told(tables):
            self._reader: pa.RecordBatchReader = found.to_arrow_reader(ROWS)
        self.schema: pa.Schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a batch at a time.

        Raises:
            InvalidValue: the query fails on what it finds.
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        while True:
            with _Told(self._tables):
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    return
            yield batch

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, for notebooks: `.to_pandas()`, polars' `from_arrow`, and all that take Arrow.

        Raises: as `batches`.
        """
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as dicts. Raises: as `batches`."""
        return self.to_arrow().to_pylist()  # type: ignore[no-any-return]  # pyarrow is untyped here

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Return jobs that are shown only as far as they could be folded, and why; complete when all rows were read."""
        return self._tables.unreadable

    def hold(self, what: ExitStack) -> None:
        """Release something when this is closed."""
        self._held = what

    def close(self) -> None:
        """Release what the query holds; any number of times."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def query(
    jobs: Jobs,
    sql: str,
    *,
    zone: str = "UTC",
    memory_mb: int = MEMORY_MB,
    params: Mapping[str, Any] | None = None,
    on_progress: OnProgress = lambda _, __: None,
) -> Answer:
    """Return the answer to one SELECT over `events`, `jobs`, `attempts` and `logs`.

    Args:
        zone: whose days and hours are meant, such as Europe/Helsinki; times come with its offset.
        memory_mb: for what is sorted, grouped and joined; beyond it, temporary files are used.
        params: values of `$name` in the query.
        on_progress: called with (events read, events of the log, 0 where nobody knows) while events are read.

    Raises:
        InvalidValue: it is not one query that gives rows, or cannot be run.
        Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    return ask(Tables(jobs, on_progress=on_progress), sql, zone=zone, memory_mb=memory_mb, params=params)


def ask(
    tables: Source,
    sql: str,
    *,
    zone: str = "UTC",
    memory_mb: int = MEMORY_MB,
    disk_mb: int | None = None,
    params: Mapping[str, Any] | None = None,
) -> Answer:
    """Return the answer to one SELECT over tables, wherever they come from.

    Args, raises: as `query`.
        disk_mb: for temporary files; None: nine tenths of what is free.
    """
    with ExitStack() as opening, _Told(tables):
        spill = opening.enter_context(tempfile.TemporaryDirectory(prefix="jobevents-sql-", ignore_cleanup_errors=True))
        limits = {"memory_limit": f"{memory_mb}MB", "temp_directory": spill}
        if disk_mb is not None:
            limits["max_temp_directory_size"] = f"{disk_mb}MB"
        connection = duckdb.connect(config={**_SETTINGS, **limits})
        opening.callback(connection.close)
        _open_tables(connection, tables, zone)
        for setting in _CLOSED:
            connection.execute(setting)
        _check_one_select(connection, sql)
        found = connection.sql(sql, params=dict(params or {}))
        answer = Answer(found, tables)
        answer.hold(opening.pop_all())
        return answer


def report(
    jobs: Jobs,
    name: str,
    *,
    within: timedelta | None = None,
    now: datetime | None = None,
    zone: str = "UTC",
    memory_mb: int = MEMORY_MB,
    on_progress: OnProgress = lambda _, __: None,
) -> Answer:
    """Return the answer to a named report.

    Args:
        within: of those that measure against a time; each has its usual one.
        now: by the jobs' clock if not given.

    Raises:
        InvalidValue: there is no such report, or it has no `within`.
        Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    found = REPORTS.get(name)
    if found is None:
        raise InvalidValue(f"no such report name={name!r}; there are {', '.join(REPORTS)}")
    if within is not None and found.within is None:
        raise InvalidValue(f"report has no within name={name}; {found.about}")
    given = {"now": now or jobs.emitter.clock(), "within": within or found.within}
    params = {key: value for key, value in given.items() if f"${key}" in found.sql}
    return query(jobs, found.sql, zone=zone, memory_mb=memory_mb, params=params, on_progress=on_progress)


def _open_tables(connection: duckdb.DuckDBPyConnection, tables: Source, zone: str) -> None:
    connection.execute("SET TimeZone = $zone", {"zone": zone})
    connection.register("events_stream", _Source(tables.stream("events")))
    connection.execute(_EVENTS)
    for name, of_json in _OF_JSON.items():
        connection.register(f"{name}_stream", _Source(tables.stream(name)))
        replaced = ", ".join(f"CAST({column} AS JSON) AS {column}" for column in of_json)
        columns = f"* REPLACE ({replaced})" if replaced else "*"
        connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {name}_stream")  # noqa: S608  # names of ours


def _check_one_select(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse all but a SELECT, alone or explained: EXPLAIN ANALYZE runs whatever it explains.

    DuckDB does not say what is explained, so that its text is looked at again. Nothing but blanks may be before it: what one
    takes for the end of a comment, the other might not.
    """
    kinds = [one.type for one in connection.extract_statements(sql)]
    if kinds == [duckdb.StatementType.EXPLAIN]:
        before = _explained(sql)
        if before is None:
            raise InvalidValue(
                "write EXPLAIN, EXPLAIN ANALYZE or EXPLAIN (FORMAT …) first, and right after it the SELECT"
            )
        kinds = [one.type for one in connection.extract_statements(sql[before.end() :])]
    if kinds != [duckdb.StatementType.SELECT]:
        raise InvalidValue("give one query that reads: a SELECT; what it finds is written by --out")


class _Source(ds.Dataset):  # type: ignore[misc]  # pyarrow is untyped here
    """A table as DuckDB reads it: as a data set, which is told the columns that a query names and the rows that it wants.

    DuckDB asks no more of one than this; the library's own have a C++ data set behind them, which is not there.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> "_Scan":
        return _Scan(self._stream, columns, filter)


class _Scan(NamedTuple):
    """One reading of a table."""

    stream: Stream
    columns: Sequence[str] | None
    where: pc.Expression | None

    def to_reader(self) -> pa.RecordBatchReader:
        """Begin it."""
        return self.stream.reader(self.columns, self.where)


class _Told:
    """Raises our error for one of DuckDB's, and the log's own where that is what it is about."""

    def __init__(self, tables: Source) -> None:
        self._tables = tables

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tables.error is not None and error is not None:
            found, self._tables.error = self._tables.error, None
            raise found from error
        if isinstance(error, duckdb.OutOfMemoryException):
            raise Unavailable(
                f"query needs more memory than it may use: let it have more (--memory-mb), or have it sort and keep less "
                f"cause={_first(error)}"
            ) from error
        if isinstance(error, duckdb.PermissionException):
            raise InvalidValue(
                "query cannot be run: it may read events, jobs, attempts and logs, and no files, networks or other databases; "
                f"what it finds is written by --out cause={_first(error)}"
            ) from error
        if isinstance(error, duckdb.Error | pa.ArrowException):
            raise InvalidValue(f"query cannot be run: {_first(error)}") from error


def _first(error: BaseException) -> str:
    """Return the first lines of what DuckDB says, without the hints for its own shell."""
    return str(error).strip().partition("\n\n")[0]
