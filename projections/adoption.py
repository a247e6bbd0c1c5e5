"""Foreign writes: a status that another service wrote over ours is a fact, and becomes an event of the log (design rule X9).

What the log's transitions do not allow becomes one TransitionRefused, and the view writes the fold of the log over it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from jobevents import status
from jobevents.blobs import Blob
from jobevents.boundary import clean_text
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import Corrupt, IllegalTransition, InvalidValue
from jobevents.events import JobDeleted, TransitionRefused
from jobevents.job import DELETED, Job
from jobevents.records import LogRecords, decided_by, status_bytes
from jobevents.times import to_datetime

FOREIGN = By(actor="foreign")
DETAIL_LIMIT = 500  # characters of a refused record that its event keeps


class Adopted(msgspec.Struct, frozen=True):
    """What came of a record without a version."""

    job: Job  # as the log has the job now
    was_foreign: bool = False  # it said something that the log did not
    refusal: str = ""  # why it was not taken over; "" when it was


class Adopt(Protocol):
    """What the status view needs of the write side; given by the wiring."""

    def record(self, job: Job, blob: Blob, *, was_ours: bool) -> Adopted:
        """Make a record that was found in the place of the job's status an event, unless it says what `job` says."""
        ...

    def deletion(self, job_id: str) -> Job:
        """Make a status that somebody removed a deleted job."""
        ...

    def load(self, job_id: str) -> Job:
        """Return the job as the log has it now; version 0 when it has none."""
        ...


class Adoption:
    """Appends what foreign services wrote. Idempotent: what was adopted once says nothing new the second time."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._records = LogRecords(emitter, FOREIGN, None)

    def record(self, job: Job, blob: Blob, *, was_ours: bool) -> Adopted:
        """Append the event that fits the record, or JobRecorded, or TransitionRefused where it may not follow.

        No I/O for a record that says what `job` says (an imported one, or the one that it came from). One that is older
        than the job's first event is what that event followed, and no fact after it.

        Args:
            job: as the view would show it.
            was_ours: the record was written over a status of ours, so that there can be no doubt about its age.

        Raises:
            Unavailable, PermissionDenied, AppendUnknown, Corrupt: what the log says.
        """
        try:
            record = _flat(job.job_id, blob.data)
        except Corrupt as error:
            return self._refused(job.job_id, blob.data, str(error))
        if _says(record, job):
            return Adopted(job)
        if not was_ours and _is_older(record, blob, job):
            return Adopted(job, was_foreign=True, refusal="it is older than the job's first event")
        before = self._emitter.load(job.job_id).version
        try:
            self._records.put(job.job_id, msgspec.json.encode(record))
        except (IllegalTransition, InvalidValue) as error:
            return self._refused(job.job_id, blob.data, str(error))
        after = self._emitter.load(job.job_id)
        return Adopted(after, was_foreign=after.version > before)

    def deletion(self, job_id: str) -> Job:
        """Append the tombstone, unless it is there, and return the job."""
        return self._emitter.change(job_id, lambda job: [] if job.state == DELETED else [JobDeleted], FOREIGN).job

    def load(self, job_id: str) -> Job:
        """Return the job as the log has it now."""
        return self._emitter.load(job_id)

    def _refused(self, job_id: str, data: bytes, why: str) -> Adopted:
        detail = clean_text(f"{why} record={data.decode(errors='replace')}", DETAIL_LIMIT)

        def decide(job: Job) -> list[Draft]:
            if job.state == DELETED or 0 in job.refused:  # one for each start, and none after the tombstone
                return []
            return [partial(TransitionRefused, start=0, tried="JobRecorded", state=job.state, detail=detail)]

        return Adopted(self._emitter.change(job_id, decide, FOREIGN).job, was_foreign=True, refusal=why)


def _flat(job_id: str, data: bytes) -> dict[str, Any]:
    """Return the record as we would write it: common keys as the kit reads them, and the service fields that are flat.

    Raises:
        Corrupt: it is no record, has no state, or is another job's.
    """
    common = status.decode(data, job_id=job_id)
    if not common.state or common.job_id != job_id:
        raise Corrupt(
            f"record has no state, or is another job's job_id={common.job_id!r:.150} state={common.state!r:.80}"
        )
    record: dict[str, Any] = msgspec.json.decode(status.encode(common))
    try:
        raw: Mapping[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):  # only Go reads it: its common keys are all that is known for sure
        raw = {}
    own = {key: value for key, value in raw.items() if not status.is_reserved(key)}
    return {**record, **{key: value for key, value in own.items() if value and isinstance(value, str | int | float)}}


def _is_older(record: Mapping[str, Any], blob: Blob, job: Job) -> bool:
    """Tell whether a record was there before the job's first event, by the store's clock and by the record's own."""
    begun = job.created_at
    try:
        return begun is not None and max(blob.stored_at, to_datetime(record["updated_at"])) < begun
    except InvalidValue:
        return False


def _says(record: Mapping[str, Any], job: Job) -> bool:
    """Tell whether a record says of the job what its fold says, but for when it was written and by which version."""
    shown: dict[str, Any] = msgspec.json.decode(status_bytes(job))
    return all(record.get(key) == shown.get(key) for key in decided_by(record, shown) - {"updated_at", "version"})
