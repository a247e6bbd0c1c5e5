"""Write all events of a log to a file of CloudEvents lines, in the log's order, to be gone on with when it was cut short.

The first line says up to which event the file goes, fixed when it is begun: what is committed later is not in it. (A log without
one order over all jobs has no such place: all that was committed before is in the file, and some of what came meanwhile.) The
last line counts, and has the digest hash; a file without it is not whole. Two exports of one log are the same bytes. Memory is
constant.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from jobevents import cloudevents, codec, files
from jobevents.cloudevents import Begin, End
from jobevents.errors import Conflict, Corrupt, InvalidValue
from jobevents.linefile import LineWriter, begins_with, read_lines, whole_chunks
from jobevents.log import EventLog, Head, Record
from jobevents.store import JobLog, LogTable

BATCH = 1000  # events in one read, and log lines
OnProgress = Callable[[int, int], None]


class Source(Protocol):
    """What is exported: Jobs, say."""

    @property
    def log(self) -> EventLog:
        """The events."""
        ...

    @property
    def run_logs(self) -> LogTable:
        """The lines that jobs logged."""
        ...


class Exported(msgspec.Struct, kw_only=True):
    """What an export came to."""

    file: str
    events: int = 0
    jobs: int = 0
    lines: int = 0  # log lines
    digest: str = ""  # hash over all events: an import of the file gives a log with the same
    lines_digest: str = ""  # and over all log lines
    resumed_after: int = 0  # events that were in the file before


class Totals:
    """What is in a file so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.events = self.jobs = self.lines = 0
        self.digest, self.lines_digest = codec.Digest(), codec.Digest()

    def add(self, record: Record) -> None:
        """Count an event."""
        self.events += 1
        self.jobs += record.version == 1
        self.digest.add(record.job_id, record.version, record.data)

    def add_line(self, line: JobLog) -> None:
        """Count a log line."""
        self.lines += 1
        self.lines_digest.add(line.run_id, line.seq, msgspec.json.encode(line))

    def copy(self) -> "Totals":
        """Return them as they are now."""
        other = Totals()
        other.events, other.jobs, other.lines = self.events, self.jobs, self.lines
        other.digest, other.lines_digest = self.digest.copy(), self.lines_digest.copy()
        return other

    def end(self) -> End:
        """Return them as the last line of a file says them."""
        return End(
            events=self.events,
            jobs=self.jobs,
            lines=self.lines,
            digest=self.digest.hex(),
            lines_digest=self.lines_digest.hex(),
        )


class _Place:
    """Where a file goes on."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.offset = 0  # what the file has there is written again
        self.cursor = ""  # of the last event before
        self.totals = Totals()
        self.is_whole = False


def export(
    source: Source,
    path: Path,
    *,
    logs: bool = True,
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    on_progress: OnProgress = lambda _, __: None,
) -> Exported:
    """Write all events up to now to a file; `-` is standard output.

    Args:
        path: compressed with zstd if its name ends in .zst.
        logs: write the lines that jobs logged, too, each job's behind its first event.
        resume: go on with a file that was cut short, up to where it was to go; without one, begin.
        strict: refuse events that this version cannot read and chains that do not fit, and leave no half file: it is written
            beside, and renamed when it is whole.
        overwrite: replace a file that is there.
        on_progress: called with (events so far, events to come, 0 where nobody knows).

    Raises:
        InvalidValue: the file is there; or it cannot be gone on with.
        Corrupt: strict, and an event cannot be read or does not fit its chain.
        Conflict: the log has fewer events than it had when the file was begun.
        Unavailable, PermissionDenied: what the log says; the file can be gone on with.
        OSError: the file cannot be written; it can be gone on with.
    """
    log = source.log
    through, order = (log.last_cursor(), "commit") if log.ordered else ("", "log")
    begun = Begin(format=cloudevents.FORMAT, through=through, order=order, logs=logs)
    if resume and strict:
        raise InvalidValue("a strict export is not gone on with: leave out one of the two")
    place = _find_place(path, begun) if resume and path.exists() else _Place(begun)
    if str(path) != "-" and path.exists() and not (resume or overwrite):
        raise InvalidValue(f"file is there already file={path}: resume it, overwrite it, or name another")
    before = place.totals.events
    if not place.is_whole:
        target = files.beside(path) if strict else path
        try:
            _write(source, target, place, _Checker() if strict else None, on_progress)
            if strict:
                target.replace(path)
        except BaseException:
            if strict:
                target.unlink(missing_ok=True)
            raise
    return Exported(file=str(path), resumed_after=before, **msgspec.structs.asdict(place.totals.end()))


def _write(source: Source, path: Path, place: _Place, check: "_Checker | None", on_progress: OnProgress) -> None:
    totals, ordered = place.totals, place.begin.order == "commit"
    last = int(place.begin.through or 0)
    with LineWriter(path, at=place.offset, new=check is not None) as file:
        if not place.offset:
            file.write(cloudevents.of_begin(place.begin))
        for record in source.log.scan(place.cursor, batch=BATCH):
            if ordered and int(record.cursor) > last:
                break
            if check is not None:
                check(record)
            file.mark()
            file.write(cloudevents.of_record(record))
            totals.add(record)
            if place.begin.logs and record.version == 1:
                for line in log_lines(source.run_logs, record.job_id):
                    file.write(cloudevents.of_log_line(line))
                    totals.add_line(line)
            if not totals.events % BATCH:
                on_progress(totals.events, last)
        file.write(cloudevents.of_end(totals.end()))
        on_progress(totals.events, totals.events)


def log_lines(table: LogTable, job_id: str) -> Iterator[JobLog]:
    """Yield all lines that a job logged, a page at a time."""
    after = -1
    while lines := table.logs(job_id, after, BATCH):
        yield from lines
        after = lines[-1].seq


def _find_place(path: Path, begun: Begin) -> _Place:
    """Return where a file that was cut short goes on: with the last event in it, whose log lines may be missing.

    Raises:
        InvalidValue: it is no export. Conflict: it is of a log that went on further.
    """
    place: _Place | None = None
    totals, cursor = Totals(), ""
    try:
        for chunk in whole_chunks(path):
            found = [cloudevents.read(line) for line in chunk.lines]
            if not chunk.start and found:
                place = _Place(cloudevents.to_begin(found.pop(0)))
            if place is not None and chunk.start and found and found[0].is_event:
                place.offset, place.cursor, place.totals = chunk.start, cursor, totals.copy()
            for line in found:
                if line.is_event:
                    cursor = line.cursor
                    totals.add(cloudevents.to_record(line))
                elif place is not None and line.type == cloudevents.END:
                    place.is_whole, place.totals = True, totals
                else:
                    totals.add_line(cloudevents.to_log_line(line))
    except Corrupt as error:
        raise InvalidValue(f"not an export that could be gone on with file={path} cause={error}") from error
    if place is None:  # not even its first line was written
        if not begins_with(path, cloudevents.of_begin(begun)[:40]):
            raise InvalidValue(f"not an export that could be gone on with file={path}")
        return _Place(begun)
    if place.begin.kind != "export":
        raise InvalidValue(f"not an export that could be gone on with file={path} kind={place.begin.kind}")
    if place.begin.order != begun.order or int(place.begin.through or 0) > int(begun.through or 0):
        raise Conflict(f"file is of another log file={path} through={place.begin.through} log={begun.through or 0}")
    return place


class _Checker:
    """Refuses events that cannot be read, and chains that do not fit; keeps some 250 bytes for each job."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}

    def __call__(self, record: Record) -> None:
        head = self._heads.get(record.job_id) or Head(0, codec.NO_CHAIN)
        body, chain = codec.unseal(record.data)
        if not head.version and codec.is_remnant(record.type, record.version):
            head = Head(record.version, chain)
        elif record.version != head.version + 1 or codec.link(head.chain, body) != chain:
            raise Corrupt(
                f"event does not fit what is before it job_id={record.job_id} version={record.version} "
                f"after={head.version}; jobevents verify shows all such"
            )
        record.event()
        self._heads[record.job_id] = Head(record.version, chain)


def check_file(path: Path, *, at_most: int | None = None, partial: bool = False) -> tuple[Begin, End]:
    """Return the first line of a file and what is in it, after a look at all of it: its last line says the same.

    Constant memory. A file that is not whole has no last line, and is taken only if `partial`.

    Raises:
        InvalidValue: it is no file of ours, or was cut short. Corrupt: it was damaged or changed.
        OSError: it cannot be read.
    """
    begin: Begin | None = None
    end: End | None = None
    totals = Totals()
    for number, data in enumerate(read_lines(path, at_most=at_most), 1):
        if end is not None:
            raise Corrupt(f"file goes on behind its end file={path} line={number}")
        try:
            line = cloudevents.read(data)
            if begin is None:
                begin = cloudevents.to_begin(line)
            elif line.is_event:
                totals.add(cloudevents.to_record(line))
            elif line.type == cloudevents.LOG_LINE:
                totals.add_line(cloudevents.to_log_line(line))
            else:
                end = cloudevents.to_end(line)
        except Corrupt as error:
            kind = InvalidValue if begin is None else Corrupt
            raise kind(f"not a file that export wrote file={path} line={number} cause={error}") from error
    if begin is None:
        raise InvalidValue(f"not a file that export wrote, or cut short before its first line was whole file={path}")
    if end is None and not partial:
        raise InvalidValue(
            f"file was cut short file={path} events={totals.events}: go on with the export (--resume), "
            "or take what is there (--partial)"
        )
    if end is not None and end != totals.end():
        raise Corrupt(f"file was damaged or changed file={path} says={end} has={totals.end()}")
    return begin, end or totals.end()
