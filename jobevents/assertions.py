"""What is asserted of a job as a whole, instead of being counted from its events: by records, and through a JobStore.

Asserted values win over counted ones, until an event says otherwise.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from jobevents.job import Job

Instant: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware datetime; stored text without a zone is no event."""


class RunError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run failed."""

    code: str = ""  # for programs: the exception's class, or a code such as SKIPPED
    status: int = 0  # HTTP status that fits, 0: none
    message: str  # for people
    fields: dict[str, Any] = {}  # details of the error
    stack: str = ""  # start and end of the traceback
    tail: list[str] = []  # the last lines of the attempt's log


class RunChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a run (behaviour M2) that were asserted, each as `store.JobRun` has it; the others stay as they are."""

    job_name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    params: Any = UNSET
    trigger: str | UnsetType = UNSET
    triggered_by: str | UnsetType = UNSET
    idem_key: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    scheduled_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType | None = UNSET
    finished_at: Instant | UnsetType | None = UNSET
    duration_ms: int | UnsetType = UNSET
    progress: int | float | UnsetType = UNSET
    progress_message: str | UnsetType = UNSET
    result: Any = UNSET
    error: RunError | UnsetType | None = UNSET
    worker_id: str | UnsetType = UNSET
    capture_logs: str | UnsetType = UNSET
    cancel_requested_at: Instant | UnsetType | None = UNSET
    canceled_by: str | UnsetType = UNSET
    cancel_reason: str | UnsetType = UNSET
    replay_of: str | UnsetType = UNSET
    root_id: str | UnsetType = UNSET
    created_at: Instant | UnsetType = UNSET
    updated_at: Instant | UnsetType = UNSET  # of a new run alone: an update is made now
    priority: int | UnsetType = UNSET
    external: bool | UnsetType = UNSET


def assert_record(job: "Job", values: Mapping[str, Any]) -> None:
    """Set what a record says: common keys where they belong, all others are service fields."""
    for key, value in values.items():
        attribute = _RECORD_KEYS.get(key)
        if attribute:
            setattr(job, attribute, value)
        elif key not in ("job_id", "state", "version"):
            job.fields = {**job.fields, key: value}


def assert_run(job: "Job", changes: RunChanges, *, waits: bool) -> None:
    """Set what a store's caller says of a run; of one that `waits`, the attempt is the next one."""
    for name in RunChanges.__struct_fields__:
        value = getattr(changes, name)
        if value is UNSET:
            continue
        match name:
            case "attempt":
                job.attempt = value - 1 if waits else value
                job.tries = value - 1 if waits else value
            case "error":
                job.error, job.error_kind, job.run_error = ("", "", None) if value is None else _told(value)
            case "updated_at":
                job.updated_at = msgspec.to_builtins(value)
            case _:
                setattr(job, _RUN_KEYS.get(name, name), value)


def _told(error: RunError) -> tuple[str, str, RunError | None]:
    """Return message and code, and the whole error only when these two are not all of it."""
    plain = RunError(code=error.code, message=error.message)
    return error.message, error.code, None if error == plain and error.message else error


_RECORD_KEYS: Mapping[str, str] = {
    "command": "name",
    "title": "title",
    "error": "error",
    "attempts": "starts",
    "queued_at": "queued_at",
    "updated_at": "updated_at",
    "progress": "progress",
    "progress_message": "progress_message",
}

_RUN_KEYS: Mapping[str, str] = {"job_name": "name", "idem_key": "key", "worker_id": "worker"}
