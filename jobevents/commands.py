"""What people and programs ask of jobs: submit, cancel, retry, rerun, delete. Each is one decision on one folded job."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from jobevents import boundary, ids
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import Conflict, Gone, IllegalTransition, InvalidValue, KeyTaken, NotFound
from jobevents.events import CancelRequested, Cause, JobAnnotated, JobCanceled, JobDeleted, JobQueued, JobRequeued
from jobevents.job import DELETED, QUEUED, RUNNING, Job

PREFIX_LIMIT = 64  # characters of the job's name that start its id; an id has 128

_sorted_json = msgspec.json.Encoder(order="sorted").encode


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One job to submit, as `Jobs.submit` takes it; None means the default."""

    name: str  # which kind of job
    params: Any = None  # JSON value, at most 64 KiB
    id: str | None = None  # given by the caller; None: made from the name
    title: str = ""  # for people
    queue: str | None = None
    key: str | None = None  # idempotency key
    at: datetime | str | None = None  # aware datetime or ISO 8601 text with a zone
    delay: timedelta | float | None = None  # seconds from now
    priority: int | None = None
    max_attempts: int | None = None
    external: bool = False
    trigger: str = "manual"  # schedule, manual, retry, replay or event (behaviour M1)


class Submitted(msgspec.Struct, frozen=True):
    """What a submission came to."""

    job_id: str
    created: bool  # False: a job was found, by its id or its idempotency key


class CancelOutcome(StrEnum):
    """What a cancel came to."""

    UNKNOWN = "unknown"  # there is no such job
    ALREADY_FINAL = "already final"  # it had ended before
    CANCELED = "canceled"  # it had not started, and never will; or it was ended by force
    REQUESTED = "requested"  # it runs; its worker has been asked to stop


def submit(emitter: Emitter, wanted: Submission, by: By) -> Submitted:
    """Queue one job and return its id; with a key that an unfinished job holds, that job's id.

    Raises:
        InvalidValue: something cannot be stored; nothing was written.
        KeyTaken: the unfinished job with this key has other params.
        Conflict: a job with this id exists, and is not this one.
        Gone: the job with this id was deleted.
    """
    return submit_many(emitter, [wanted], by)[0]


def submit_many(emitter: Emitter, wanted: Sequence[Submission], by: By) -> list[Submitted]:
    """Queue several jobs in one transaction, all or none, and say in order what each came to.

    Raises: as `submit`.
    """
    drafts = [drafted(one, emitter.clock()) for one in wanted]
    repeats = _repeats(drafts) if len(drafts) > 1 else {}
    answers: dict[int, Submitted] = {}
    ended: set[str] = set()
    while pending := {p: d for p, d in enumerate(drafts) if p not in answers and p not in repeats}:
        try:
            emitter.create({d.job_id: d.draft for d in pending.values()}, by)
        except KeyTaken as taken:
            if not _answer_holder(emitter, pending, taken, answers):
                if taken.job_id in ended:
                    raise  # it has ended and holds the key all the same: asking again would not end
                ended.add(taken.job_id)
        except Conflict:
            if not _answer_existing(emitter, pending, answers, by):
                raise
        else:
            answers |= {p: Submitted(d.job_id, created=True) for p, d in pending.items()}
    for position, first in repeats.items():
        answers[position] = Submitted(answers[first].job_id, created=False)
    return [answers[position] for position in range(len(drafts))]


def _repeats(drafts: Sequence["Drafted"]) -> dict[int, int]:
    """Return position -> earlier position of the submissions that are an earlier one again, by id or by key.

    Raises:
        InvalidValue: they are not the same job.
    """
    repeats: dict[int, int] = {}
    seen: dict[tuple[str, ...], int] = {}
    for position, draft in enumerate(drafts):
        marks = [(draft.job_id,), (draft.event.name, draft.event.key)][: 2 if draft.event.key else 1]
        first = next((seen[mark] for mark in marks if mark in seen), None)
        if first is None:
            seen |= dict.fromkeys(marks, position)
        elif not _is_same(drafts[first].event, draft.event):
            raise InvalidValue(
                f"two jobs of one batch have the same id or key, and are not the same id={draft.job_id} "
                f"key={draft.event.key} positions={first}, {position}"
            )
        else:
            repeats[position] = first
    return repeats


def _is_same(one: JobQueued | Job, other: JobQueued) -> bool:
    return one.name == other.name and _sorted_json(one.params) == _sorted_json(other.params)


def find(emitter: Emitter, draft: "Drafted", *, holder: str | None = None, by: By | None = None) -> str | None:
    """Return the job that a submission is already, by its id or by its key; None if it is new.

    Args:
        holder: what seems to hold the key.
        by: who gives its name to a job that was begun before it was submitted; None: such a job is left as it is, not found.

    Raises: as `submit`.
    """
    answers: dict[int, Submitted] = {}
    if _answer_existing(emitter, {0: draft}, answers, by):
        return answers[0].job_id
    if holder is not None:
        taken = KeyTaken("idempotency key is taken", job_id=holder, key=draft.event.key)
        if _answer_holder(emitter, {0: draft}, taken, answers):
            return answers[0].job_id
    return None


class Drafted(msgspec.Struct, frozen=True):
    """A submission that has been checked."""

    job_id: str
    event: JobQueued  # as it would be, to compare with
    draft: Draft


def drafted(wanted: Submission, now: datetime) -> Drafted:
    """Check everything that can be checked before anything is written."""
    name = boundary.check_name("name", wanted.name)
    fields: dict[str, Any] = {
        "name": name,
        "params": boundary.check_json("params", wanted.params),
        "title": boundary.clean_text(wanted.title, boundary.TITLE_LIMIT, "title"),
        "queue": boundary.check_name("queue", "default" if wanted.queue is None else wanted.queue),
        "key": boundary.check_name("key", wanted.key or "", optional=True),
        "scheduled_at": due(wanted.at, wanted.delay, now),
        "priority": _whole("priority", wanted.priority, 0, -(2**15), 2**15 - 1),
        "max_attempts": _whole("max_attempts", wanted.max_attempts, 1, 1, 2**15 - 1),
        "external": wanted.external,
        "trigger": boundary.check_name("trigger", wanted.trigger),
    }
    job_id = ids.new_id(name[:PREFIX_LIMIT], now, ids.in_turn(now)) if wanted.id is None else wanted.id
    ids.validate(job_id)
    return Drafted(job_id, JobQueued(job_id=job_id, version=1, id="", at=now, **fields), partial(JobQueued, **fields))


def due(at: datetime | str | None, delay: timedelta | float | None, now: datetime) -> datetime | None:
    """Return the instant a job is wanted at, aware UTC; None for at once.

    Raises:
        InvalidValue: a time without a zone, both given, or an instant that no calendar has.
    """
    if at is not None and delay is not None:
        raise InvalidValue("give at or delay, not both")
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError as error:
            raise InvalidValue(f"at is no ISO 8601 time value={at!r:.60}") from error
    if at is not None:
        return boundary.check_instant("at", at)
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    try:
        if math.isnan(seconds):
            raise InvalidValue("delay is not a number")
        return now.astimezone(UTC) + timedelta(seconds=seconds)
    except TypeError as error:
        raise InvalidValue(f"delay must be seconds or a timedelta, not {type(delay).__name__}") from error
    except OverflowError as error:
        raise InvalidValue(f"delay is outside what a calendar holds delay={delay!r:.60}") from error


def _whole(what: str, value: int | None, default: int, low: int, high: int) -> int:
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise InvalidValue(f"{what} must be a whole number from {low} to {high} value={value!r:.40}")
    return value


def _answer_holder(
    emitter: Emitter, pending: Mapping[int, Drafted], taken: KeyTaken, answers: dict[int, Submitted]
) -> bool:
    """Answer the submission whose key is taken with the holder; False when that holds it no more: the key is free again."""
    holder = emitter.load(taken.job_id)
    if not known(holder) or holder.is_final():
        return False
    for position, draft in pending.items():
        if draft.event.key and (draft.event.name, draft.event.key) == (holder.name, holder.key):
            if not _is_same(holder, draft.event):
                raise KeyTaken(
                    "an unfinished job with other params holds the idempotency key",
                    job_id=holder.job_id,
                    key=holder.key,
                )
            answers[position] = Submitted(holder.job_id, created=False)
            return True
    return False


def _answer_existing(
    emitter: Emitter, pending: Mapping[int, Drafted], answers: dict[int, Submitted], by: By | None
) -> bool:
    """Answer submissions whose id exists, and tell whether there are any: the same job is that job, another a conflict.

    A job that a delivery began before anybody submitted it has no name yet: it gets this one, and keeps its own params.
    """
    found = False
    for position, draft in pending.items():
        job = emitter.load(draft.job_id)
        if not job.version:
            continue
        if job.state == DELETED:
            raise Gone(f"the job with this id was deleted, and a deleted job never comes back job_id={draft.job_id}")
        if not job.name and job.external:
            if by is None:
                continue
            _name(emitter, draft, by)
        elif not _is_same(job, draft.event):
            raise Conflict(f"another job has this id job_id={draft.job_id} name={job.name}; use a fresh id")
        answers[position] = Submitted(draft.job_id, created=False)
        found = True
    return found


def _name(emitter: Emitter, draft: Drafted, by: By) -> None:
    named = partial(JobAnnotated, command=draft.event.name, title=draft.event.title)
    emitter.change(draft.job_id, lambda job: [] if job.name else [named], by)


def cancel(emitter: Emitter, job_id: str, by: By, *, force: bool = False) -> CancelOutcome:
    """Cancel a job that has not started, or ask the worker of a running one to stop; repeating it changes nothing.

    Args:
        force: end a running one at once, as a runner does when its handler did not stop in time. The work may go on in its
            worker, which is asked to stop; its outcome is refused, and a slot of a limit is free already.
    """

    def decide(job: Job) -> list[Draft]:
        if job.state == QUEUED:
            return [JobCanceled]
        if job.state != RUNNING:
            return []
        asked: list[Draft] = [CancelRequested] if job.cancel_requested_at is None else []
        return [*asked, partial(JobCanceled, start=job.start, forced=True)] if force else asked

    change = emitter.change(job_id, decide, by)
    if change.job.state == RUNNING:
        return CancelOutcome.REQUESTED
    if change.events:
        return CancelOutcome.CANCELED
    return CancelOutcome.ALREADY_FINAL if known(change.job) else CancelOutcome.UNKNOWN


def drop(emitter: Emitter, job_id: str, draft: Draft, by: By) -> None:
    """End a job that waits without starting it; nothing when it does not wait any more."""
    emitter.change(job_id, lambda job: [draft] if job.state == QUEUED else [], by)


class When(NamedTuple):
    """When a job is wanted again; at once where neither is given."""

    at: datetime | str | None = None
    delay: timedelta | float | None = None

    def due(self, now: datetime) -> datetime | None:
        """Return the instant, as `due`."""
        return due(self.at, self.delay, now)


AT_ONCE = When()


def retry(emitter: Emitter, job_id: str, by: By, when: When = AT_ONCE) -> None:
    """Queue a failed job for another try, or give a job that waits another time to be started.

    Raises:
        NotFound: there is no such job. InvalidValue: it is no time.
        IllegalTransition: it runs, or has succeeded or been canceled (that takes a rerun).
    """
    _requeue(emitter, job_id, "retry", by, when)


def rerun(
    emitter: Emitter,
    job_id: str,
    by: By,
    *,
    as_new: bool = False,
    when: When = AT_ONCE,
    params: Any = UNSET,  # any JSON value
) -> str:
    """Queue a finished job again from its first try, as itself or as a new job (behaviour M11) with the same params or others.

    Raises:
        NotFound: there is no such job. InvalidValue: it is no time, or the params cannot be stored, or go to no new job.
        IllegalTransition: it has not finished; Conflict with `as_new`.
    """
    if not as_new:
        if params is not UNSET:
            raise InvalidValue("a job keeps the params that it was queued with: run it as a new job to give it others")
        _requeue(emitter, job_id, "rerun", by, when)
        return job_id
    job = must_exist(emitter.load(job_id), job_id)
    if not job.is_final():
        raise Conflict(f"only a finished job can be run again as a new one job_id={job_id} state={job.state}")
    now = emitter.clock()
    new_id = ids.new_id(job.name[:PREFIX_LIMIT], now, ids.in_turn(now))
    draft = partial(
        JobQueued,
        name=job.name,
        params=job.params if params is UNSET else boundary.check_json("params", params),
        scheduled_at=when.due(now),
        title=job.title,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        external=job.external,
        trigger="replay",
        replay_of=job_id,
        root_id=job.root_id or job_id,
    )
    emitter.create({new_id: draft}, by)
    return new_id


def _requeue(emitter: Emitter, job_id: str, cause: Cause, by: By, when: When) -> None:
    scheduled_at = when.due(emitter.clock())

    def decide(job: Job) -> list[Draft]:
        must_exist(job, job_id)
        return [partial(JobRequeued, cause=cause, scheduled_at=scheduled_at)]

    try:
        emitter.change(job_id, decide, by)
    except IllegalTransition as error:
        raise IllegalTransition(
            error.tried, job_id=job_id, state=error.state, allowed=error.allowed, why=_why_not(cause, error.state)
        ) from error


def _why_not(cause: Cause, state: str) -> str:
    """Return why a job in a state is not queued again, and what can be done instead."""
    if state == RUNNING:
        return "a running job is not queued again: wait for its end, or cancel it first"
    if cause == "retry":
        return f"only a failed job is tried again, and this one is {state}: to run it once more, rerun it"
    return f"only a job that has ended is run again, and this one is {state}: it will be run anyway"


def delete(emitter: Emitter, job_id: str, by: By, *, artifacts: bool = False) -> bool:
    """Append the tombstone; False when it is there already.

    Raises:
        NotFound: there never was such a job.
    """

    def decide(job: Job) -> list[Draft]:
        if not job.version:
            raise NotFound(f"no such job job_id={job_id}")
        return [] if job.state == DELETED else [partial(JobDeleted, artifacts=artifacts)]

    return bool(emitter.change(job_id, decide, by).events)


def known(job: Job) -> bool:
    """Tell whether there is such a job: it has events, and the last is no tombstone."""
    return job.version > 0 and job.state != DELETED


def must_exist(job: Job, job_id: str) -> Job:
    """Return the job.

    Raises:
        Gone: it was deleted.
        NotFound: it never was.
    """
    if job.state == DELETED:
        raise Gone(f"the job was deleted job_id={job_id} deleted_at={job.updated_at}")
    if not job.version:
        raise NotFound(f"no such job job_id={job_id}")
    return job
