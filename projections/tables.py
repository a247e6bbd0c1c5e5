"""History as four Arrow tables, streamed in batches from the log: `events`, `jobs`, `attempts`, `logs`.

Each can be read any number of times, as of one place in the log, where it has one order; memory is bounded by a batch, whatever
the log holds. Only the columns that are asked for are read, and made. `jobs` and `attempts` are the folds of each job's events,
as everything else is. Values of JSON are its exact text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobevents import times
from jobevents.errors import InvalidValue
from jobevents.events import Event
from jobevents.export import log_lines
from jobevents.job import DELETED, Job, fold
from jobevents.jobs import Jobs
from jobevents.log import COLUMNS, Record
from jobevents.store import JobLog, duration_ms
from projections.archive import histories
from projections.folding import read
from projections.starts import Start, starts_of

BATCH = 5000  # rows of a batch: about 2 MB of events

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")
_json = msgspec.json.Encoder().encode

Columns: TypeAlias = Mapping[str, tuple[pa.DataType, Callable[[Any], Any]]]  # Any: a row, and what it has there
"""Name of a column -> its type, and how it is made of a row; in the order of the table."""

T = TypeVar("T")

OnProgress = Callable[[int, int], None]


class AttemptOf(NamedTuple):
    """One start, and whose it is: a row of `attempts`."""

    job_id: str
    of: Start


def _plain(kind: pa.DataType, *names: str, of: str = "") -> Columns:
    return {name: (kind, attrgetter(f"{of}{name}")) for name in names}


def _time(text: str) -> datetime | None:
    try:
        return times.to_datetime(text) if text else None
    except InvalidValue:  # a record that was imported said something that is no time
        return None


def _text_of(value: Any) -> str | None:  # Any: what the user gave
    return None if value is None else _json(value).decode()


_TOLD: Mapping[str, str | None] = {  # what an event says of itself -> what is said where it says nothing
    "written_at": None,
    "actor": "",
    "reason": "",
    "trace": "",
    "id": None,
    "chain": None,
}
EVENTS = pa.schema(
    [
        ("cursor", _INT),
        ("job_id", _TEXT),
        ("version", _INT),
        ("type", _TEXT),
        *((name, _TIME if name == "written_at" else _TEXT) for name in _TOLD),
        ("data", _TEXT),
    ]
)

JOBS: Columns = {
    **_plain(_TEXT, "job_id", "name", "state", "title", "queue", "key"),
    **_plain(_INT, "priority"),
    **_plain(_BOOL, "external"),
    **_plain(_TEXT, "trigger", "triggered_by", "replay_of", "root_id"),
    **_plain(_INT, "starts", "max_attempts"),
    **_plain(_TIME, "created_at", "scheduled_at", "started_at", "finished_at"),
    "updated_at": (_TIME, lambda job: _time(job.updated_at)),
    **_plain(_TIME, "deadline"),
    "duration_ms": (_INT, lambda job: duration_ms(job) if job.finished_at else None),
    **_plain(_TEXT, "worker"),
    **_plain(_FLOAT, "progress"),
    **_plain(_TEXT, "progress_message", "error", "error_kind"),
    **_plain(_TIME, "cancel_requested_at"),
    **_plain(_TEXT, "canceled_by", "cancel_reason"),
    "refused": (_INT, lambda job: len(job.refused)),
    **_plain(_INT, "version"),
    "params": (_TEXT, lambda job: _text_of(job.params)),
    "result": (_TEXT, lambda job: _text_of(job.result)),
    "fields": (_TEXT, lambda job: _text_of(job.fields)),
}
ATTEMPTS: Columns = {
    **_plain(_TEXT, "job_id"),
    **_plain(_INT, "start", "attempt", of="of."),
    **_plain(_TEXT, "name", "queue", "worker", of="of."),
    **_plain(_TIME, "due_at", "started_at", "ended_at", of="of."),
    **_plain(_INT, "waited_ms", "duration_ms", of="of."),
    **_plain(_TEXT, "outcome", "error", "error_kind", of="of."),
    **_plain(_BOOL, "late", of="of."),
}
LOGS: Columns = {
    "job_id": (_TEXT, attrgetter("run_id")),
    **_plain(_INT, "seq", "attempt"),
    "written_at": (_TIME, attrgetter("at")),
    **_plain(_TEXT, "level", "message"),
    "attrs": (_TEXT, lambda line: _text_of(line.attrs)),
}


class Tables:
    """The tables of one log as of now. For one thread at a time."""

    def __init__(self, jobs: Jobs, *, on_progress: OnProgress = lambda _, __: None) -> None:
        """Look where the log ends; nothing later will be in any table.

        Args:
            on_progress: called with (events read, events of the log, 0 where nobody knows).
        """
        self._jobs = jobs
        self._through = int(jobs.log.last_cursor() or 0) if jobs.log.ordered else None
        self._on_progress = on_progress
        self.unreadable: dict[str, str] = {}  # jobs that are shown as far as they could be folded -> why
        self.error: BaseException | None = None  # that ended a stream: whoever reads it may tell another

    def stream(self, name: str) -> "Stream":
        """Return a table by its name."""
        if name == "events":
            return Stream(EVENTS, self._event_batches, self._failed)
        columns, rows = {
            "jobs": (JOBS, self._job_rows),
            "attempts": (ATTEMPTS, self._attempt_rows),
            "logs": (LOGS, self._lines),
        }[name]
        schema = pa.schema([(column, kind) for column, (kind, _) in columns.items()])
        return Stream(schema, lambda named: _batches(rows(), {one: columns[one] for one in named}), self._failed)

    def _failed(self, error: BaseException) -> None:
        self.error = error

    def _event_batches(self, named: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of the events: of a log with rows without an object for each, and decoded only if that is asked for."""
        schema = pa.schema([EVENTS.field(name) for name in named])
        told = [name for name in named if name in _TOLD]
        columns = [name for name in COLUMNS if name in named or (told and name == "data")]
        read_told = _reader_of(told)
        count = 0
        for found in self._columns(columns):
            by_name = dict(zip(("cursor", *columns), found, strict=True))
            made = read_told(by_name["data"]) if told else {}
            for name in named:
                if name == "data":
                    made[name] = _as_text(by_name[name])
                elif name not in made:
                    made[name] = pa.array(by_name[name], schema.field(name).type)
            yield pa.record_batch([made[name] for name in named], schema=schema)
            count += len(found[0])
            self._on_progress(count, self._through or 0)

    def _columns(self, names: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield batches of events: their cursors, None where the log has no order, and each of these columns."""
        if self._through is not None:
            yield from self._jobs.log.columns(names, until=self._through, batch=BATCH)
            return
        for page in _pages(histories(self._jobs), BATCH):
            yield [[None] * len(page), *([getattr(one, name) for one in page] for name in names)]

    def _is_later(self, record: Record) -> bool:
        return self._through is not None and int(record.cursor) > self._through

    def _histories(self) -> Iterator[tuple[str, list[Event]]]:
        """Yield each job's events, as far as they can be folded."""
        for job_id, records in groupby(histories(self._jobs), key=_job_id):
            events: list[Event] = []
            for record in records:
                if self._is_later(record):
                    continue
                if len(events) == record.version - 1:
                    try:
                        events.append(read(record))
                    except Exception as error:  # noqa: BLE001  # whatever it is, the job is shown as it was before
                        self.unreadable.setdefault(job_id, str(error))
            if events:
                yield job_id, events

    def _job_rows(self) -> Iterator[Job]:
        for _, events in self._histories():
            job = fold(events)
            if job.state != DELETED:
                yield job

    def _attempt_rows(self) -> Iterator[AttemptOf]:
        for job_id, events in self._histories():
            for start in starts_of(events):
                yield AttemptOf(job_id, start)

    def _lines(self) -> Iterator[JobLog]:
        for _, job_ids, versions in self._columns(("job_id", "version")):
            for job_id, version in zip(job_ids, versions, strict=True):
                if version == 1:
                    yield from log_lines(self._jobs.run_logs, job_id)


class Stream:
    """A table that is read anew by everybody who asks."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Read nothing yet.

        Args:
            batches: names of columns -> the rows, with these columns alone.
            failed: told of what ends a reading.
        """
        self.schema = schema
        self._batches = batches
        self._failed = failed

    def reader(self, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.RecordBatchReader:
        """Return a reader from the beginning: of some columns, of the rows for which an expression is true."""
        wanted = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        return pa.RecordBatchReader.from_batches(schema, self._watched(wanted, where))

    def _watched(self, wanted: Sequence[str], where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        try:
            if where is None:
                yield from self._batches(wanted)
                return
            for batch in self._batches([*wanted, *(name for name in self._named_in(where) if name not in wanted)]):
                yield from pa.Table.from_batches([batch]).filter(where).select(wanted).to_batches()
        except Exception as error:
            self._failed(error)
            raise

    def _named_in(self, where: pc.Expression) -> Iterator[str]:
        """Yield the columns that an expression needs: those without which it cannot be evaluated."""
        for place, name in enumerate(self.schema.names):
            try:
                self.schema.remove(place).empty_table().filter(where)
            except pa.ArrowInvalid:
                yield name


def rows_of(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Return the rows of a batch as Python's values, which Any says.

    Raises:
        InvalidValue: Python has no such value: a time beyond its calendar, or of nanoseconds.
    """
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError) as error:
            raise InvalidValue(
                f"value cannot be shown column={field.name!r}: have the query CAST it AS VARCHAR cause={error}"
            ) from error
    return map(list, zip(*columns, strict=True))


def _job_id(record: Record) -> str:
    return record.job_id


def _reader_of(named: Sequence[str]) -> Callable[[Sequence[bytes]], dict[str, pa.Array]]:
    """Return what makes columns of what events say of themselves: nothing else of them is decoded."""
    fields = ["at" if name == "written_at" else name for name in named]
    # gc: a struct of texts is part of no cycle
    told = msgspec.defstruct("Told", [(name, str, "") for name in fields], gc=False)
    decode = msgspec.json.Decoder(told).decode

    def leniently(data: bytes) -> Any:  # Any: a struct that was made here
        try:
            return decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return told(**{name: text for name in fields if isinstance(text := _loosely(data).get(name), str)})

    def read_told(stored: Sequence[bytes]) -> dict[str, pa.Array]:
        try:
            events = list(map(decode, stored))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):  # damage: one by one
            events = list(map(leniently, stored))
        columns = {}
        for name, field in zip(named, fields, strict=True):
            texts = [getattr(one, field) for one in events]
            if name == "written_at":
                columns[name] = _as_times(texts)
            else:
                columns[name] = pa.array(texts if _TOLD[name] is not None else [text or None for text in texts], _TEXT)
        return columns

    return read_told


def _loosely(data: bytes) -> dict[str, Any]:
    """Return the object in bytes; an empty one if there is none."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _as_times(texts: Sequence[str]) -> pa.Array:
    """Return texts as times; what is none, which only damage brings about, as NULL."""
    try:
        return pa.array(texts, _TEXT).cast(_TIME)
    except pa.ArrowInvalid:
        return pa.array(map(_time, texts), _TIME)


def _as_text(data: Sequence[bytes]) -> pa.Array:
    """Return bytes as text; what is no UTF-8, which only damage brings about, with marks in its place."""
    try:
        return pa.array(data, pa.binary()).cast(_TEXT)
    except pa.ArrowInvalid:
        return pa.array([one.decode(errors="replace") for one in data], _TEXT)


def _pages(records: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(records)
    while page := list(islice(left, size)):
        yield page


def _batches(rows: Iterable[Any], columns: Columns) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    for page in _pages(rows, BATCH):
        arrays = [pa.array(map(of, page), kind) for kind, of in columns.values()]
        yield pa.record_batch(arrays, schema=schema)
