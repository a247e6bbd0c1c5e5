"""Between jobs and the kit's records: a job shown as its status, and a whole record saved as the event that fits it."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from jobevents import admission, status
from jobevents.blobs import Blob
from jobevents.commands import delete, known, must_exist
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import IllegalTransition, NotFound
from jobevents.events import Event, JobAnnotated, JobCanceled, JobFailed, JobRecorded, JobStarted, JobSucceeded
from jobevents.job import RUNNING, Job, check, fold
from jobevents.status import State, Status
from jobevents.times import to_datetime

S = TypeVar("S", bound=Status)

_OURS = frozenset({"job_id", "state", "updated_at", "version"})  # keys that no record of a service decides
_EMPTY: Mapping[str, Any] = {"attempts": 0}  # what a key that is left out says; text says ""


def status_name(job_id: str) -> str:
    """Return the name of the blob that shows the job, below the log's prefix."""
    return f"jobs/{job_id}/status.json"


def status_bytes(job: Job) -> bytes:
    """Return the job's status.json: common keys, service fields as first annotated, progress, and `version` last."""
    shown = Status(
        job_id=job.job_id,
        command=job.name,
        state=job.state,
        title=job.title,
        error=job.error,
        attempts=job.starts,
        queued_at=job.queued_at,
        updated_at=job.updated_at,
        version=job.version,
    )
    extras = job.fields
    if job.progress is not None:
        extras = {**extras, "progress": job.progress, "progress_message": job.progress_message}
    return status.encode(shown, extras)


def status_as(type: type[S], job: Job) -> S:  # the kit's name for it
    """Return the job's status as a record type, service fields included.

    Raises:
        Corrupt: the job's service fields do not fit the type.
    """
    return status.decode(status_bytes(job), type, job_id=job.job_id)


class LogRecords:
    """The log as the reader and writer of a StatusStore: a name is a job id, a generation its version."""

    def __init__(self, emitter: Emitter, by: By, type: type[Status] | None) -> None:
        """Write as `by`; a record decides the keys that its type declares, all its keys when it has no type."""
        self._emitter = emitter
        self._by = by
        self._declared = frozenset(field.encode_name for field in msgspec.structs.fields(type)) if type else None

    def get(self, name: str) -> Blob:
        """Return the job's status as the log has it now.

        Raises:
            NotFound: there is no such job, or it was deleted.
        """
        job = must_exist(self._emitter.load(name), name)
        return Blob(status_bytes(job), str(job.version), {}, to_datetime(job.updated_at))

    def put(self, name: str, data: bytes, *, content_type: str = "", cache_control: str = "") -> str:
        """Append what takes the job to the record in `data`; nothing when it says what is known.

        Raises:
            IllegalTransition: the record would leave `succeeded` or `canceled`, which only a rerun may.
            InvalidValue: it is larger than a payload may be.
        """
        record = admission.fitted(msgspec.json.decode(data))
        return str(self._emitter.change(name, lambda job: self._drafts(job, record), self._by).job.version)

    def delete(self, name: str) -> bool:
        """Append the tombstone; False when there is no such job."""
        try:
            return delete(self._emitter, name, self._by)
        except NotFound:
            return False

    def _drafts(self, job: Job, record: dict[str, Any]) -> list[Draft]:
        shown: dict[str, Any] = msgspec.json.decode(status_bytes(job)) if known(job) else {}
        decided = self._declared or decided_by(record, shown)
        changes = {
            key: record.get(key, _EMPTY.get(key, ""))
            for key in dict.fromkeys([*record, *shown])
            if key not in _OURS and key in decided and record.get(key) != shown.get(key)
        }
        state = record["state"]
        if job.version and state == job.state and not changes:
            return []
        fitting = _fitting(job, state, changes)
        if fitting and self._reaches(job, fitting, record):
            return fitting
        return [partial(JobRecorded, state=state, changes=changes)]

    def _reaches(self, job: Job, drafts: list[Draft], record: dict[str, Any]) -> bool:
        """Tell whether the drafts are legal and lead to exactly what the record says."""
        events: list[Event] = []
        at: datetime = self._emitter.clock()
        try:
            for draft in drafts:
                event = draft(job_id=job.job_id, version=job.version + len(events) + 1, id="", at=at)
                check(fold(events, job), event)
                events.append(event)
        except IllegalTransition:
            return False
        shown: dict[str, Any] = msgspec.json.decode(status_bytes(fold(events, job)))
        keys = ((self._declared or decided_by(record, shown)) - _OURS) | {"state"}
        return all(shown.get(key) == record.get(key) for key in keys)


def decided_by(record: Mapping[str, Any], shown: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys that a record of no declared type decides: its own, and those that it leaves out of the status.

    `progress` is ours to show beside the record: left out, it says nothing.
    """
    return frozenset({*record, *shown}) - ({"progress", "progress_message"} - record.keys())


def _fitting(job: Job, state: str, changes: dict[str, Any]) -> list[Draft]:
    """Return the events that a worker of ours would have written for this record."""
    common = {"command", "title", "error", "attempts", "queued_at"}
    fields = {key: value for key, value in changes.items() if key not in common}
    annotated: list[Draft] = []
    if fields or changes.get("title") or changes.get("command"):
        draft = partial(JobAnnotated, title=changes.get("title", ""), command=changes.get("command", ""), fields=fields)
        annotated = [draft]
    start = job.start if job.state == RUNNING else 0
    match state:
        case job.state:
            return annotated
        case State.RUNNING:
            return [partial(JobStarted, attempt=job.tries + 1), *annotated]
        case State.SUCCEEDED if start:
            return [*annotated, partial(JobSucceeded, start=start)]
        case State.FAILED if start:
            return [*annotated, partial(JobFailed, start=start, error=changes.get("error", ""))]
        case State.CANCELED:
            return [*annotated, partial(JobCanceled, start=start)]
        case _:
            return []
