"""Bring the events of an export file into a log, their bytes exactly as they are: the same histories, the same digest hash.

The whole file is looked at before anything is written. Repeatable and resumable: events that are there already are compared
and passed over, so an import that was cut short is simply run again. Constant memory.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from lru import LRU

from jobevents import cloudevents, codec
from jobevents.boundary import visible
from jobevents.emit import Emitter
from jobevents.errors import Conflict, Corrupt, JobEventsError, KeyTaken, PermissionDenied, Unavailable
from jobevents.events import Event
from jobevents.export import check_file
from jobevents.job import DELETED, Job, fold
from jobevents.linefile import read_lines, weight
from jobevents.log import Head, Record
from jobevents.records import status_bytes
from jobevents.store import JobLog, LogTable, run_of

BATCH = 1000  # lines of the file in one transaction
BATCH_WEIGHT = 8 * 2**20  # of the lines in it, by `linefile.weight`: a third of the memory that they take
HEAVY = 16 * 1024  # by the same: a job with a larger event is not kept, but read again when it goes on
KEPT_JOBS = 8192  # histories that are gone on with without a read: about 2 KiB each
SHOWN = 100  # jobs that the report names; all are counted
OnProgress = Callable[[int, int], None]


class Restored(msgspec.Struct, kw_only=True):
    """What an import of a file came to."""

    events: int = 0  # brought in
    known: int = 0  # passed over: they are in the log already, byte for byte
    lines: int = 0  # log lines brought in, or known before
    digest: str = ""  # hash over all events of the file
    is_whole: bool = True  # the file was not cut short
    refused: int = 0  # jobs whose events, all or the last ones, could not be brought in
    reasons: dict[str, str] = {}  # job id -> why, the first hundred
    unreadable: dict[str, str] = {}  # job id -> why an event that was brought in cannot be folded, the first hundred


class _History:
    """What is known of a job's history in the log that is written to."""

    def __init__(self, job_id: str, stored: Sequence[Record] | None = ()) -> None:
        self.job = Job(job_id=job_id)
        self.head = Head(0, codec.NO_CHAIN)
        self.is_folded = True
        self.stored = stored  # its events as they were found; None: they have to be read again
        if stored:
            self.go_on(stored)

    def go_on(self, records: Sequence[Record]) -> list[Event]:
        """Take in the next events, 1..n; return those that can be folded."""
        self.head = Head(records[-1].version, codec.unseal(records[-1].data)[1])
        if not self.is_folded:
            return []
        try:
            return self._fold(records)
        except Exception:  # noqa: BLE001  # whatever it is, the event that it is about is found one by one
            return self._fold_one_by_one(records)

    def _fold(self, records: Sequence[Record]) -> list[Event]:
        events = [record.event() for record in records]
        job = fold(events, self.job)
        if job.state != DELETED:
            run_of(job)
            status_bytes(job)
        self.job = job
        return events

    def _fold_one_by_one(self, records: Sequence[Record]) -> list[Event]:
        events: list[Event] = []
        for record in records:
            try:
                events += self._fold([record])
            except Exception:  # noqa: BLE001  # such a job is kept as it is, and no table shows what comes after
                self.is_folded = False
                break
        return events


class _Batch(NamedTuple):
    records: list[Record]
    lines: list[JobLog]


class _Restorer:
    def __init__(self, emitter: Emitter, run_logs: LogTable, report: Restored) -> None:
        self._emitter = emitter
        self._log = emitter.log
        self._run_logs = run_logs
        self._report = report
        self._known: LRU[str, _History] = LRU(KEPT_JOBS)
        self._was_empty = next(emitter.log.scan(limit=1), None) is None
        self._refused: set[str] = set()
        self.waiting: set[str] = set()  # jobs whose idempotency key another one holds until later in the file

    def put(self, batch: _Batch) -> None:
        """Bring in a batch in one transaction; where that is refused, job by job."""
        by_job: dict[str, list[Record]] = {}
        for record in batch.records:
            if record.job_id not in self._refused and record.job_id not in self.waiting:
                by_job.setdefault(record.job_id, []).append(record)
        try:
            self._append(batch.records, by_job)
        except (Unavailable, PermissionDenied):
            raise
        except JobEventsError:
            for job_id, records in by_job.items():
                self._put_alone(job_id, records)
        lines = [one for one in batch.lines if one.run_id not in self._refused and one.run_id not in self.waiting]
        self._run_logs.append_logs(lines)
        self._report.lines += len(lines)

    def _put_alone(self, job_id: str, records: list[Record]) -> None:
        self._known.pop(job_id, None)
        try:
            self._append(records, {job_id: records}, fresh=True)
        except (Unavailable, PermissionDenied):
            raise
        except KeyTaken:
            self._known.pop(job_id, None)
            self.waiting.add(job_id)
        except JobEventsError as error:
            self._refuse(job_id, str(error))

    def _append(self, batch: list[Record], by_job: dict[str, list[Record]], *, fresh: bool = False) -> None:
        """Append what is new of each job, in the order of the batch.

        Raises:
            Conflict, KeyTaken, and what else the log says: nothing was written, and what is known of these jobs is forgotten.
        """
        new: list[Record] = []
        heads: dict[str, Head] = {}
        told: list[tuple[_History, list[Event]]] = []
        known = 0
        try:
            for job_id, records in by_job.items():
                history = self._history(job_id, records[0], fresh=fresh)
                heads[job_id] = history.head
                fit = self._fitting(history, records)
                known += len(records) - len(fit)
                if fit:
                    history.stored = None
                    new += fit
                    told.append((history, history.go_on(fit)))
            if new:
                chosen = {id(one) for one in new}
                new = [one for one in batch if id(one) in chosen]  # as they were committed: jobs in between each other
                rows = sorted((one.job for one, events in told if events), key=_holds_its_key)
                self._log.restore(new, heads=heads, rows=rows)
        except BaseException:
            for job_id in by_job:
                self._known.pop(job_id, None)
            raise
        self._report.events += len(new)
        self._report.known += known
        for job_id, records in by_job.items():
            if any(weight(one.data) > HEAVY for one in records):
                self._known.pop(job_id, None)
        for history, events in told:
            if events:
                self._emitter.tell(history.job, events)
            if not history.is_folded and len(self._report.unreadable) < SHOWN:
                why = f"kept as it is, and shown as of version {history.job.version}"
                self._report.unreadable.setdefault(history.job.job_id, why)

    def _history(self, job_id: str, first: Record, *, fresh: bool) -> _History:
        history = self._known.get(job_id)
        if history is None:
            is_new = self._was_empty and first.version == 1 and not fresh
            history = _History(job_id, () if is_new else self._log.read_raw(job_id))
            self._known[job_id] = history
        return history

    def _fitting(self, history: _History, records: list[Record]) -> list[Record]:
        """Return the records that go on from a history; those that are in it already are compared.

        Raises:
            Conflict: another history is there. Corrupt: they do not go on from it.
        """
        fit: list[Record] = []
        head = history.head
        for record in records:
            if record.version <= history.head.version:
                self._compare(history, record)
                continue
            if record.version <= head.version:
                if any(record.version == one.version and record.data != one.data for one in fit):
                    raise Corrupt(f"file has two events for one place job_id={record.job_id} version={record.version}")
                continue
            body, chain = codec.unseal(record.data)
            if not head.version and codec.is_remnant(record.type, record.version):
                head = Head(record.version, chain)
                fit.append(record)
                continue
            if record.version != head.version + 1:
                raise Corrupt(f"an event is missing job_id={record.job_id} after={head.version} found={record.version}")
            if codec.link(head.chain, body) != chain:
                raise Corrupt(
                    f"event does not fit the chain before it job_id={record.job_id} version={record.version}: "
                    "it was changed, or belongs to another history"
                )
            head = Head(record.version, chain)
            fit.append(record)
        return fit

    def _compare(self, history: _History, record: Record) -> None:
        if history.stored is None:
            history.stored = self._log.read_raw(record.job_id)
        first = history.stored[0]
        if record.version < first.version and codec.is_remnant(first.type, first.version):
            return  # erased here: it does not come back by a copy
        there = history.stored[record.version - first.version]
        if there.data != record.data:
            raise Conflict(
                f"another history is there job_id={record.job_id} version={record.version} "
                f"log={visible(there.type, 80)} file={visible(record.type, 80)}"
            )

    def _refuse(self, job_id: str, why: str) -> None:
        self._refused.add(job_id)
        self._report.refused += 1
        if len(self._report.reasons) < SHOWN:
            self._report.reasons[job_id] = why[:500]

    def refuse_waiting(self) -> None:
        """Give up the jobs whose idempotency key is held by a job that is in the log."""
        for job_id in sorted(self.waiting):
            self._refuse(job_id, "an unfinished job holds its idempotency key: end that one, then import again")
        self.waiting.clear()


def restore(
    emitter: Emitter,
    run_logs: LogTable,
    path: Path,
    *,
    partial: bool = False,
    at_most: int | None = None,
    on_progress: OnProgress = lambda _, __: None,
) -> Restored:
    """Bring in the events and log lines of a file. Views are not written: a projector, or a rebuild, brings them up.

    Args:
        partial: take what is whole of a file that was cut short.
        at_most: bytes of the file, uncompressed, beyond which it is refused.
        on_progress: called with (events so far, events of the file).

    Raises:
        InvalidValue: it is no file of ours, or was cut short; nothing was written.
        Corrupt: it was damaged or changed; nothing was written.
        Unavailable, PermissionDenied: what the log says; what was brought in before stays.
        OSError: the file cannot be read.
    """
    _, end = check_file(path, at_most=at_most, partial=partial)
    report = Restored(digest=end.digest)
    restorer = _Restorer(emitter, run_logs, report)
    done = 0
    for batch in _batches(path, report):
        restorer.put(batch)
        done += len(batch.records)
        on_progress(done, end.events)
    while restorer.waiting:
        before = set(restorer.waiting)
        restorer.waiting.clear()
        for batch in _batches(path, report, only=before):
            restorer.put(batch)
        if restorer.waiting == before:
            restorer.refuse_waiting()
    return report


def _batches(path: Path, report: Restored, *, only: set[str] | None = None) -> Iterator[_Batch]:
    batch, heavy = _Batch([], []), 0
    report.is_whole = False
    for number, data in enumerate(read_lines(path)):
        line = cloudevents.read(data)
        if line.is_event:
            if only is None or line.subject in only:
                batch.records.append(cloudevents.to_record(line))
        elif line.type == cloudevents.LOG_LINE:
            if only is None or line.subject in only:
                batch.lines.append(cloudevents.to_log_line(line))
        elif number:
            report.is_whole = True
        heavy += weight(data)
        if len(batch.records) + len(batch.lines) >= BATCH or heavy >= BATCH_WEIGHT:
            yield batch
            batch, heavy = _Batch([], []), 0
    yield batch


def _holds_its_key(job: Job) -> bool:
    """Put rows that let go of an idempotency key before those that may take it."""
    return not (job.is_final() or job.state == DELETED)
