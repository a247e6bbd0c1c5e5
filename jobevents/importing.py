"""Bring in jobs that were there before the log: each status record becomes one JobImported, as it stood.

Repeatable and resumable: a job that has a history is passed over, so a run that was cut short is simply run again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from jobevents import boundary, ids, status
from jobevents.blobs import Blobs
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import Conflict, IllegalTransition, InvalidJobId, InvalidValue, JobEventsError, NotFound
from jobevents.events import JobImported
from jobevents.job import Job, check, fold
from jobevents.recorder import Locate
from jobevents.records import status_bytes

BATCH = 500  # jobs in one transaction
READERS = 16  # records read at once: what hides a bucket's latency
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # of a draft that is only tried
SHOWN = 100  # unreadable records that the report names; all are counted


class Report(msgspec.Struct):
    """What an import came to."""

    imported: int = 0
    known: int = 0  # passed over: the job has a history
    unreadable: int = 0  # not imported
    reasons: dict[str, str] = {}  # job id -> why it could not be read, the first hundred
    left_out: dict[str, str] = {}  # job id -> its keys that no flat record may hold, the first hundred jobs

    def refuse(self, job_id: str, reason: object) -> None:
        """Count a record that could not be imported."""
        self.unreadable += 1
        if len(self.reasons) < SHOWN:
            self.reasons[job_id[:200]] = str(reason)[:500]


def import_records(
    emitter: Emitter,
    blobs: Blobs,
    locate: Locate,
    job_ids: Iterable[str],
    by: By,
    *,
    on_done: Callable[[int], None] = lambda _: None,
) -> Report:
    """Append a JobImported for each record that can be read and whose job the log does not know.

    Each batch of jobs is one transaction, so that what was reported is stored. One read a record.

    Args:
        locate: job id -> the record's name in `blobs`.
        job_ids: which; names that are no job ids are reported, not imported.
        on_done: called with the number of jobs dealt with.

    Raises:
        Unavailable, PermissionDenied, Corrupt: what the log says; what was imported before stays.
    """
    report = Report()
    with ThreadPoolExecutor(READERS, thread_name_prefix="jobevents-import") as pool:
        for batch in _batches(job_ids):
            valid = [job_id for job_id in batch if _is_id(job_id, report)]
            heads = pool.map(emitter.log.head, valid)
            known = {job_id for job_id, head in zip(valid, heads, strict=True) if head.version}
            report.known += sum(job_id in known for job_id in valid)
            unknown = [job_id for job_id in valid if job_id not in known]
            reads = pool.map(partial(_read, blobs, locate), unknown)
            drafts: dict[str, Draft] = {}
            for job_id, found in zip(unknown, reads, strict=True):
                if isinstance(found, JobEventsError):
                    report.refuse(job_id, found)
                    continue
                try:
                    drafts[job_id] = _draft(job_id, found, report)
                except (InvalidValue, IllegalTransition) as error:
                    report.refuse(job_id, error)
            _append(emitter, drafts, by, report)
            on_done(len(batch))
    return report


def _batches(job_ids: Iterable[str]) -> Iterator[Sequence[str]]:
    batch: list[str] = []
    for job_id in job_ids:
        batch.append(job_id)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_id(job_id: str, report: Report) -> bool:
    try:
        ids.validate(job_id)
    except InvalidJobId as error:
        report.refuse(job_id, error)
        return False
    return True


def _read(blobs: Blobs, locate: Locate, job_id: str) -> "tuple[status.Status, Mapping[str, Any]] | JobEventsError":
    """Return the record and its raw keys, or why it cannot be read; never raises, so that one bad record stops nobody."""
    try:
        blob = blobs.get(locate(job_id))
        if blob is None:
            return NotFound(f"no record job_id={job_id}")
        return status.decode(blob.data, job_id=job_id), _raw(blob.data)
    except JobEventsError as error:
        return error


def _raw(data: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):  # only Go reads it: its common keys are all that is known for sure
        return {}


def _draft(job_id: str, found: tuple[status.Status, Mapping[str, Any]], report: Report) -> Draft:
    """Return the event but for the common fields.

    Raises:
        InvalidValue: the record is too large, or no status could show it.
        IllegalTransition: no job may be in its state.
    """
    record, raw = found
    common = {
        "command": record.command,
        "title": record.title,
        "error": record.error,
        "attempts": record.attempts,
        "queued_at": record.queued_at,
        "updated_at": record.updated_at,
    }
    own = {key: value for key, value in raw.items() if not status.is_reserved(key)}
    flat = {key: value for key, value in own.items() if _is_flat(value)}
    kept = {key: value for key, value in common.items() if value}
    whole = boundary.check_json("record", {**kept, **flat})
    draft = partial(JobImported, state=record.state, record=whole)
    event = draft(job_id=job_id, version=1, id="", at=_ANY_TIME)
    check(Job(job_id=job_id), event)
    status_bytes(fold([event]))
    left_out = sorted(key for key, value in own.items() if value is not None and key not in flat)
    if left_out and len(report.left_out) < SHOWN:
        report.left_out[job_id] = ", ".join(left_out)[:500]
    return draft


def _is_flat(value: object) -> bool:
    """Tell whether a value may stand in a record: text, or a number that all readers can hold."""
    return isinstance(value, str | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _append(emitter: Emitter, drafts: Mapping[str, Draft], by: By, report: Report) -> None:
    """Append a batch in one transaction; where another process wrote one of them meanwhile, one by one."""
    if not drafts:
        return
    try:
        emitter.create(drafts, by)
        report.imported += len(drafts)
    except Conflict:
        for job_id, draft in drafts.items():
            change = emitter.change(job_id, partial(_unless_known, draft), by)
            report.imported += bool(change.events)
            report.known += not change.events


def _unless_known(draft: Draft, job: Job) -> list[Draft]:
    return [] if job.version else [draft]
