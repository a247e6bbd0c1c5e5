"""History as four Arrow tables, streamed in batches from the log: `events`, `jobs`, `attempts`, `logs`.

Each can be read any number of times, as of one place in the log, where it has one order; memory is bounded by a batch, whatever
the log holds. `jobs` and `attempts` are the folds of each job's events, as everything else is. Values of JSON are its exact text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from jobevents import times
from jobevents.errors import InvalidValue
from jobevents.events import Event, JobFailed, JobRecorded, JobRequeued, JobStarted
from jobevents.export import log_lines
from jobevents.job import DELETED, RUNNING, Job, due_at, fold
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.store import duration_ms
from projections.archive import histories
from projections.folding import read

BATCH = 5000  # rows of a batch: about 2 MB of events

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")

STORED = pa.schema([("cursor", _INT), ("job_id", _TEXT), ("version", _INT), ("type", _TEXT), ("data", _TEXT)])
JOBS = pa.schema(
    [
        ("job_id", _TEXT),
        ("name", _TEXT),
        ("state", _TEXT),
        ("title", _TEXT),
        ("queue", _TEXT),
        ("key", _TEXT),
        ("priority", _INT),
        ("external", _BOOL),
        ("trigger", _TEXT),
        ("triggered_by", _TEXT),
        ("replay_of", _TEXT),
        ("root_id", _TEXT),
        ("starts", _INT),
        ("max_attempts", _INT),
        ("created_at", _TIME),
        ("scheduled_at", _TIME),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("updated_at", _TIME),
        ("deadline", _TIME),
        ("duration_ms", _INT),
        ("worker", _TEXT),
        ("progress", _FLOAT),
        ("progress_message", _TEXT),
        ("error", _TEXT),
        ("error_kind", _TEXT),
        ("cancel_requested_at", _TIME),
        ("canceled_by", _TEXT),
        ("cancel_reason", _TEXT),
        ("refused", _INT),
        ("version", _INT),
        ("params", _TEXT),
        ("result", _TEXT),
        ("fields", _TEXT),
    ]
)
ATTEMPTS = pa.schema(
    [
        ("job_id", _TEXT),
        ("start", _INT),
        ("attempt", _INT),
        ("name", _TEXT),
        ("queue", _TEXT),
        ("worker", _TEXT),
        ("due_at", _TIME),
        ("started_at", _TIME),
        ("ended_at", _TIME),
        ("waited_ms", _INT),
        ("duration_ms", _INT),
        ("outcome", _TEXT),
        ("error", _TEXT),
        ("error_kind", _TEXT),
        ("late", _BOOL),
    ]
)
LOGS = pa.schema(
    [
        ("job_id", _TEXT),
        ("seq", _INT),
        ("attempt", _INT),
        ("written_at", _TIME),
        ("level", _TEXT),
        ("message", _TEXT),
        ("attrs", _TEXT),
    ]
)

_json = msgspec.json.Encoder().encode
OnProgress = Callable[[int, int], None]


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
        """Return a table by its name, `stored` for events as they are stored."""
        schema, batches = {
            "stored": (STORED, self._stored),
            "jobs": (JOBS, self._job_batches),
            "attempts": (ATTEMPTS, self._attempt_batches),
            "logs": (LOGS, self._log_batches),
        }[name]
        return Stream(schema, batches, self._failed)

    def _failed(self, error: BaseException) -> None:
        self.error = error

    def _stored(self) -> Iterator[pa.RecordBatch]:
        count = 0
        for page in _pages(self._records(), BATCH):
            data = pa.array([one.data for one in page], pa.binary())
            columns = [
                pa.array([None if self._through is None else int(one.cursor) for one in page], _INT),
                pa.array([one.job_id for one in page], _TEXT),
                pa.array([one.version for one in page], _INT),
                pa.array([one.type for one in page], _TEXT),
                _as_text(data),
            ]
            yield pa.record_batch(columns, schema=STORED)
            count += len(page)
            self._on_progress(count, self._through or 0)

    def _records(self) -> Iterator[Record]:
        if self._through is None:
            yield from histories(self._jobs)
            return
        for record in self._jobs.log.scan(batch=BATCH):
            if self._is_later(record):
                return
            yield record

    def _is_later(self, record: Record) -> bool:
        return self._through is not None and int(record.cursor) > self._through

    def _folds(self) -> Iterator[tuple[Job, list[Event]]]:
        """Yield each job with its events, as far as they can be folded."""
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
                yield fold(events), events

    def _job_batches(self) -> Iterator[pa.RecordBatch]:
        found = (_job_row(job) for job, _ in self._folds() if job.state != DELETED)
        return _batches(found, JOBS)

    def _attempt_batches(self) -> Iterator[pa.RecordBatch]:
        found = (row for _, events in self._folds() for row in attempts_of(events))
        return _batches(found, ATTEMPTS)

    def _log_batches(self) -> Iterator[pa.RecordBatch]:
        return _batches(self._lines(), LOGS)

    def _lines(self) -> Iterator[Sequence[Any]]:
        for record in self._records():
            if record.version != 1:
                continue
            for line in log_lines(self._jobs.run_logs, record.job_id):
                yield line.run_id, line.seq, line.attempt, line.at, line.level, line.message, _json(line.attrs).decode()


class Stream:
    """A table that is read anew by everybody who asks, through Arrow's PyCapsule interface or as a RecordBatchReader."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Callable[[], Iterator[pa.RecordBatch]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._failed = failed

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, self._watched())

    def _watched(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except Exception as error:
            self._failed(error)
            raise

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a reader as a capsule."""
        return self.reader().__arrow_c_stream__(requested_schema)


class Attempt(NamedTuple):
    """One start of a job and how it ended: a row of `attempts`, in the order of its columns."""

    job_id: str
    start: int  # version of the event that started it
    attempt: int  # number of the try
    name: str
    queue: str
    worker: str
    due_at: datetime | None  # when it could have been started; None for what nobody queued
    started_at: datetime
    ended_at: datetime | None = None  # None: it runs
    waited_ms: int | None = None  # from due to started
    duration_ms: int | None = None
    outcome: str = (
        "running"  # succeeded, failed, retried, canceled, lost, shutdown, snooze, deleted, or an asserted state
    )
    error: str = ""
    error_kind: str = ""
    late: bool = False  # recorded at the end of work that ran ungranted


def attempts_of(events: Iterable[Event]) -> list[Attempt]:
    """Return the attempts in a job's history, in order."""
    job = Job(job_id="")
    done: list[Attempt] = []
    running: Attempt | None = None
    for event in events:
        before, job = job, fold([event], job)
        if running is not None and not job.is_current(running.start):
            done.append(_ended(running, event, job))
            running = None
        if job.state == RUNNING and job.start == event.version:
            running = _started(before, job, event)
    return [*done, running] if running is not None else done


def _started(before: Job, job: Job, event: Event) -> Attempt:
    due = due_at(before) if before.version else None
    return Attempt(
        job.job_id,
        job.start,
        job.attempt,
        job.name,
        job.queue,
        job.worker,
        due,
        event.at,
        waited_ms=None if due is None else max(0, _ms(due, event.at)),
        late=isinstance(event, JobStarted) and event.late,
    )


def _ended(one: Attempt, event: Event, job: Job) -> Attempt:
    outcome = job.state.strip("()")
    error = kind = ""
    match event:
        case JobFailed():
            outcome = "failed" if event.retry_at is None else "retried"
            error, kind = event.error, event.kind
        case JobRequeued():
            outcome = event.cause
        case JobRecorded():
            error = job.error
    return one._replace(
        ended_at=event.at,
        duration_ms=max(0, _ms(one.started_at, event.at)),
        outcome=outcome,
        error=error,
        error_kind=kind,
        name=job.name or one.name,
    )


def _ms(since: datetime, until: datetime) -> int:
    return int((until - since).total_seconds() * 1000)


def _job_row(job: Job) -> list[Any]:
    return [
        job.job_id,
        job.name,
        job.state,
        job.title,
        job.queue,
        job.key,
        job.priority,
        job.external,
        job.trigger,
        job.triggered_by,
        job.replay_of,
        job.root_id,
        job.starts,
        job.max_attempts,
        job.created_at,
        job.scheduled_at,
        job.started_at,
        job.finished_at,
        _time(job.updated_at),
        job.deadline,
        duration_ms(job) if job.finished_at else None,
        job.worker,
        job.progress,
        job.progress_message,
        job.error,
        job.error_kind,
        job.cancel_requested_at,
        job.canceled_by,
        job.cancel_reason,
        len(job.refused),
        job.version,
        None if job.params is None else _json(job.params).decode(),
        None if job.result is None else _json(job.result).decode(),
        _json(job.fields).decode(),
    ]


def _time(text: str) -> datetime | None:
    try:
        return times.to_datetime(text) if text else None
    except InvalidValue:  # a record that was imported said something that is no time
        return None


def _job_id(record: Record) -> str:
    return record.job_id


def _as_text(data: pa.Array) -> pa.Array:
    """Return bytes as text; what is no UTF-8, which only damage brings about, with marks in its place."""
    try:
        return data.cast(_TEXT)
    except pa.ArrowInvalid:
        return pa.array([one.as_py().decode(errors="replace") for one in data], _TEXT)


def _pages(records: Iterable[Any], size: int) -> Iterator[list[Any]]:
    page: list[Any] = []
    for record in records:
        page.append(record)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page


def _batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for page in _pages(rows, BATCH):
        columns = zip(*page, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)
