"""Cut the jobs of an incident out of a log, into one file that `connect` opens: to be looked at elsewhere, and kept as a test.

A job is in it if it was at work at any time of the window, with its whole history up to the window's end, so that its chain can
be proved; so are the lines that it logged. Redacted, everything that people or handlers wrote is taken out, and who and where
are given other names, the same ones throughout: what happened when, in which order and why it was refused stays.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from jobevents import boundary, cloudevents, codec, files
from jobevents.assertions import RunChanges
from jobevents.cloudevents import Begin
from jobevents.errors import InvalidValue, JobEventsError, NotFound
from jobevents.events import Event, new_event_id
from jobevents.export import BATCH, Source, Totals, log_lines
from jobevents.job import Job, fold
from jobevents.linefile import LineWriter
from jobevents.log import Record
from jobevents.reads import checked_id
from jobevents.store import JobLog
from jobevents.times import format_time

OnProgress = Callable[[int, int], None]

GONE = "[redacted]"
_KEPT = frozenset(
    {
        "job_id",
        "version",
        "id",
        "at",
        "chain",
        "name",
        "queue",
        "command",
        "trigger",
        "replay_of",
        "root_id",
        "external",
    }
    | {
        "priority",
        "max_attempts",
        "scheduled_at",
        "attempt",
        "start",
        "deadline",
        "late",
        "percent",
        "retry_at",
        "kind",
    }
    | {"cause", "tried", "state", "artifacts"}
)
"""Fields of events that say what happened, and hold nothing that people or handlers wrote; all others are taken out."""
_NAMES = {"actor": "person", "worker": "worker", "key": "key", "trace": "trace"}
_OURS = frozenset({"reaper", "foreign", "runner", "schedule"})  # names of parts of this system
_RECORD_KEPT = frozenset({"command", "attempts", "queued_at", "updated_at", "state"})
_RUN_KEPT = frozenset(
    {
        "job_name",
        "queue",
        "trigger",
        "attempt",
        "max_attempts",
        "scheduled_at",
        "started_at",
        "finished_at",
        "duration_ms",
    }
    | {
        "progress",
        "capture_logs",
        "cancel_requested_at",
        "replay_of",
        "root_id",
        "created_at",
        "updated_at",
        "priority",
    }
    | {"external"}
)


class Captured(msgspec.Struct, kw_only=True):
    """What a capture came to."""

    file: str
    events: int
    jobs: int
    lines: int  # log lines
    digest: str
    lines_digest: str
    redacted: bool
    left_out: dict[str, str] = {}  # jobs whose last events could not be redacted, as they cannot be read -> why


def capture(
    source: Source,
    path: Path,
    *,
    since: datetime,
    until: datetime,
    only: Collection[str] = (),
    redact: bool = False,
    overwrite: bool = False,
    on_progress: OnProgress = lambda _, __: None,
) -> Captured:
    """Write the jobs that were at work from `since` to `until` to a file; written beside, and renamed when it is whole.

    Reads the log once to find them, and once more for the order in which their events were committed, where it has one.

    Args:
        path: ends in .jev.
        only: these jobs alone, whenever they were at work.
        redact: take out payloads, results and all that people wrote, and rename people, workers, keys and traces.
        on_progress: called with (events read, events to read, 0 where nobody knows).

    Raises:
        InvalidValue: the window is none, or the file is there, or its name does not end in .jev.
        NotFound: there is no such job, or none was at work.
        Unavailable, PermissionDenied, Corrupt: what the log says; there is no file then.
    """
    since, until = boundary.check_instant("since", since), boundary.check_instant("until", until)
    if since > until:
        raise InvalidValue(f"window ends before it begins since={since.isoformat()} until={until.isoformat()}")
    if path.suffix != ".jev":
        raise InvalidValue(f"name a file that ends in .jev file={path}")
    if path.exists() and not overwrite:
        raise InvalidValue(f"file is there already file={path}: overwrite it, or name another")
    chosen = _chosen(source, since, until, [checked_id(one) for one in only], on_progress)
    if not chosen:
        raise NotFound(f"no job was at work then since={since.isoformat()} until={until.isoformat()}")
    begin = Begin(
        format=cloudevents.FORMAT,
        order="commit" if source.log.ordered else "log",
        logs=True,
        kind="capture",
        since=format_time(since),
        until=format_time(until),
        redacted=redact,
    )
    part = files.beside(path)
    try:
        done = _write(source, part, begin, chosen, until, on_progress)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    done.file = str(path)
    return done


def _chosen(
    source: Source, since: datetime, until: datetime, only: Collection[str], on_progress: OnProgress
) -> dict[str, int]:
    """Return the jobs that are meant -> the version of the last event of each that was written by `until`."""
    histories: Iterable[tuple[str, Iterable[Record]]] = ((one, source.log.records_of(one)) for one in only)
    if not only:
        histories = groupby(_counted(source.log.by_job(batch=BATCH), on_progress), key=_job_id)
    chosen: dict[str, int] = {}
    for job_id, records in histories:
        found = list(records)
        if only and not found:
            raise NotFound(f"no such job job_id={job_id}")
        version = _last_version(found, since, until, always=bool(only))
        if version:
            chosen[job_id] = version
    return chosen


def _last_version(records: list[Record], since: datetime, until: datetime, *, always: bool) -> int:
    """Return up to which version a job is in the window; 0 when it is not in it at all."""
    job, last, was_at_work = Job(job_id=""), 0, always
    before_window = Job(job_id="")
    for record in records:
        try:
            event = record.event()
            job = fold([event], job)
        except JobEventsError:  # it is there all the same, with what is before and after it
            was_at_work = True
            continue
        if event.at <= until:
            last = record.version
            was_at_work = was_at_work or event.at >= since
            if event.at < since:
                before_window = job
    was_at_work = was_at_work or (bool(before_window.version) and not _has_ended(before_window))
    return last if was_at_work else 0


def _has_ended(job: Job) -> bool:
    return job.is_final() or job.state.startswith("(")


def _write(
    source: Source, path: Path, begin: Begin, chosen: dict[str, int], until: datetime, on_progress: OnProgress
) -> Captured:
    totals = Totals()
    redactor = _Redactor() if begin.redacted else None
    with LineWriter(path, new=True) as file:
        file.write(cloudevents.of_begin(begin))
        for stored in _records(source, chosen, on_progress):
            record = stored if redactor is None else redactor.record(stored)
            if record is None:
                continue
            file.mark()
            file.write(cloudevents.of_record(record))
            totals.add(record)
            if record.version == 1:
                for found in log_lines(source.run_logs, record.job_id):
                    if found.at <= until:
                        line = found if redactor is None else redactor.line(found)
                        file.write(cloudevents.of_log_line(line))
                        totals.add_line(line)
        end = totals.end()
        file.write(cloudevents.of_end(end))
    left_out = redactor.left_out if redactor is not None else {}
    return Captured(file="", redacted=begin.redacted, left_out=left_out, **msgspec.structs.asdict(end))


def _records(source: Source, chosen: dict[str, int], on_progress: OnProgress) -> Iterator[Record]:
    if source.log.ordered:
        for record in _counted(source.log.scan(batch=BATCH), on_progress):
            if record.version <= chosen.get(record.job_id, 0):
                yield record
        return
    for job_id, version in chosen.items():
        yield from (one for one in source.log.records_of(job_id) if one.version <= version)


def _counted(records: Iterable[Record], on_progress: OnProgress) -> Iterator[Record]:
    for count, record in enumerate(records, 1):
        yield record
        if not count % BATCH:
            on_progress(count, 0)


def _job_id(record: Record) -> str:
    return record.job_id


class _Redactor:
    """Takes out what people and handlers wrote, and makes each job's chain anew."""

    def __init__(self) -> None:
        self._chains: dict[str, str] = {}
        self._salt = new_event_id().encode()  # so that nobody can try names until one fits
        self.left_out: dict[str, str] = {}

    def record(self, record: Record) -> Record | None:
        """Return the event without what is private; None when it cannot be read, or one before it could not."""
        if record.job_id in self.left_out:
            return None
        try:
            event = self._event(record.event())
        except JobEventsError as error:
            self.left_out[record.job_id] = f"from version {record.version} on: {error}"[:500]
            return None
        body = codec.encode(event)
        chain = codec.link(self._chains.get(record.job_id, codec.NO_CHAIN), body)
        self._chains[record.job_id] = chain
        return msgspec.structs.replace(record, data=codec.seal(body, chain))

    def line(self, line: JobLog) -> JobLog:
        """Return the log line without what it says."""
        return msgspec.structs.replace(line, message=GONE, attrs={})

    def _event(self, event: Event) -> Event:
        found = ((name, getattr(event, name)) for name in event.__struct_fields__ if name not in _KEPT)
        changes = {name: self._without(name, value) for name, value in found if value or value == 0}
        return msgspec.structs.replace(event, **changes) if changes else event

    def _without(self, name: str, value: Any) -> Any:
        """Return what stands in a field's place."""
        if name in _NAMES:
            if value in _OURS:
                return value
            return self._other_name(_NAMES[name], value)
        if name in ("fields", "changes", "record"):
            return {key: self._value(key, one) for key, one in value.items()}
        if isinstance(value, RunChanges):
            return self._run(value)
        if name in ("params", "result"):
            return {"redacted": True}
        return GONE if isinstance(value, str) else type(value)()

    def _value(self, key: str, value: Any) -> Any:
        return value if key in _RECORD_KEPT or not isinstance(value, str) or not value else GONE

    def _run(self, run: RunChanges) -> RunChanges:
        changes = {
            name: UNSET
            for name in RunChanges.__struct_fields__
            if name not in _RUN_KEPT and getattr(run, name) is not UNSET
        }
        return msgspec.structs.replace(run, **changes)

    def _other_name(self, kind: str, name: str) -> str:
        return f"{kind}-{blake2b(name.encode(), key=self._salt, digest_size=4).hexdigest()}"
