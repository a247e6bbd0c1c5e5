"""What a JobStore's caller says of a run, as the events that say it. Pure; the row that the events lead to is the run again."""

from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from jobevents import boundary, ids
from jobevents.assertions import RunChanges, RunError
from jobevents.emit import Draft
from jobevents.errors import InvalidValue
from jobevents.events import Event, JobQueued, JobRecorded
from jobevents.job import QUEUED, Job, fold
from jobevents.store import NEVER, JobLog, JobRun, run_of

_NAMES: Final = ("job_name", "queue", "status")  # never empty
_OPTIONAL_NAMES: Final = ("trigger", "triggered_by", "idem_key", "worker_id", "capture_logs", "replay_of", "root_id")
_TIMES: Final = ("scheduled_at", "started_at", "finished_at", "cancel_requested_at", "created_at", "updated_at")
_RANGES: Final = {  # as the columns of every backend hold them
    "attempt": (0, 2**31 - 1),
    "max_attempts": (0, 2**31 - 1),
    "duration_ms": (0, 2**63 - 1),
    "priority": (-(2**15), 2**15 - 1),
}
_CANCEL: Final = ("cancel_requested_at", "canceled_by", "cancel_reason")
_LEFT: Final = ("created_at", "scheduled_at", "root_id", "triggered_by")  # an update that does not say them leaves them
_ASSERTED: Final = RunChanges.__struct_fields__

_encode = msgspec.json.encode


def checked(run: JobRun, scrub: boundary.Scrub) -> JobRun:
    """Return a run each value of which can be stored and comes back as it is.

    Raises:
        InvalidJobId, InvalidValue: one cannot.
    """
    ids.validate(run.id)
    for name, (low, high) in _RANGES.items():
        value = getattr(run, name)
        if type(value) is not int or not low <= value <= high:
            raise InvalidValue(f"{name} must be a whole number from {low} to {high} value={value!r:.40}")
    good: dict[str, Any] = {name: boundary.check_name(name, getattr(run, name)) for name in _NAMES}
    good |= {name: boundary.check_name(name, getattr(run, name), optional=True) for name in _OPTIONAL_NAMES}
    good |= {
        name: boundary.check_instant(name, when) for name in _TIMES if (when := getattr(run, name)) not in (None, NEVER)
    }
    return msgspec.structs.replace(
        run,
        **good,
        params=boundary.check_json("params", scrub(run.params)),
        result=boundary.check_json("result", scrub(run.result)),
        progress=boundary.check_json("progress", run.progress),
        progress_message=boundary.clean_text(run.progress_message, boundary.TITLE_LIMIT, "progress_message"),
        canceled_by=boundary.clean_text(run.canceled_by, boundary.NAME_LIMIT, "canceled_by"),
        cancel_reason=boundary.clean_text(run.cancel_reason, boundary.REASON_LIMIT, "cancel_reason"),
        error=None if run.error is None else _checked_error(run.error, scrub),
    )


def _checked_error(error: RunError, scrub: boundary.Scrub) -> RunError:
    return RunError(
        code=boundary.clean_text(error.code, boundary.NAME_LIMIT, "error code"),
        status=error.status,
        message=boundary.clean_text(scrub(error.message), boundary.ERROR_LIMIT, "error message"),
        fields=boundary.check_json("error fields", scrub(error.fields)),
        stack=boundary.clean_text(scrub(error.stack), boundary.TRACEBACK_LIMIT, "error stack"),
        tail=boundary.check_json(
            "error tail", [boundary.clean_text(scrub(line), boundary.LINE_LIMIT, "error tail") for line in error.tail]
        ),
    )


def storable(line: JobLog) -> JobLog:
    """Return a log line whose text can be stored, too long a one without its middle.

    Raises:
        InvalidValue: its attributes are no JSON, or too much of it.
    """
    return msgspec.structs.replace(
        line,
        message=boundary.clean_text(line.message, boundary.LINE_LIMIT, "message"),
        level=boundary.check_name("level", line.level, optional=True),
        attrs=boundary.check_json("attrs", line.attrs, limit=boundary.LINE_LIMIT),
    )


def first(said: JobRun, *, now: datetime, actor: str) -> Draft:
    """Return the first event of a new run: JobQueued where that says all of it, with the time at which it was made.

    What is left out is filled in: times by that of creation, which is now if it is not said either; `root_id` by the run's own
    id, `triggered_by` by the actor.
    """
    created_at = now if said.created_at == NEVER else said.created_at
    wanted = msgspec.structs.replace(
        said,
        created_at=created_at,
        scheduled_at=created_at if said.scheduled_at == NEVER else said.scheduled_at,
        updated_at=created_at if said.updated_at == NEVER else said.updated_at,
        root_id=said.root_id or said.id,
        triggered_by=said.triggered_by or actor,
    )
    queued = partial(_queued, wanted)
    made = queued(job_id=said.id, version=1, id="", at=now, actor=wanted.triggered_by)
    if said.status == QUEUED and not _differing(wanted, run_of(fold([made]))):
        return queued
    return partial(JobRecorded, state=wanted.status, run=_changes(Job(job_id=said.id), wanted))


def _queued(run: JobRun, **common: Any) -> Event:
    fields = {
        "name": run.job_name,
        "params": run.params,
        "queue": run.queue,
        "key": run.idem_key,
        "scheduled_at": run.scheduled_at,
        "priority": run.priority,
        "max_attempts": run.max_attempts,
        "external": run.external,
        "trigger": run.trigger,
        "replay_of": run.replay_of,
        "root_id": run.root_id,
    }
    return JobQueued(**{**common, "at": run.created_at}, **fields)


def following(said: JobRun, job: Job) -> list[Draft]:
    """Return what takes the job to a run as it was said, but for its cancel fields and `updated_at`; nothing when it is there."""
    before = run_of(job)
    kept = {name: getattr(before, name) for name in (*_CANCEL, "updated_at")}
    kept |= {name: getattr(before, name) for name in _LEFT if getattr(said, name) in ("", NEVER)}
    wanted = msgspec.structs.replace(said, **kept)
    if wanted.status == before.status and not _differing(wanted, before):
        return []
    return [partial(JobRecorded, state=wanted.status, run=_changes(job, wanted))]


def _changes(job: Job, wanted: JobRun) -> RunChanges | None:
    """Return the fields without which JobRecorded would not lead to the run that is wanted; None when there are none.

    What counts from others, as the duration does from the times, shows only when those are asserted: hence the rounds.
    """
    changes: dict[str, Any] = {}
    while True:
        run = RunChanges(**changes) if changes else None
        event = JobRecorded(
            job_id=job.job_id, version=job.version + 1, id="", at=NEVER, state=wanted.status, run=run
        )  # at no time that anything could be equal to by chance
        missing = _differing(wanted, run_of(fold([event], job)))
        if job.version:
            missing.pop("updated_at", None)  # is that of the event
        if missing.keys() <= changes.keys():
            return run
        changes |= missing


def _differing(wanted: JobRun, shown: JobRun) -> dict[str, Any]:
    """Return the wanted values of the fields that are not shown so; of JSON, that they are equal is not enough (True is 1)."""
    found = {}
    for name in _ASSERTED:
        value, other = getattr(wanted, name), getattr(shown, name)
        if value != other or (name in ("params", "result") and _encode(value) != _encode(other)):
            found[name] = value
    return found
