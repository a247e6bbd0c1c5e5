"""The guard: JobStarted at the head of a job's log is what grants the right to work, and one append decides who gets it."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from jobevents import boundary
from jobevents.emit import By, Change, Draft, Emitter, Wanted
from jobevents.errors import AlreadyCanceled, AlreadyRunning, AlreadySucceeded, AppendUnknown, InvalidValue, Refused
from jobevents.events import JobCanceled, JobRequeued, JobStarted
from jobevents.job import CANCELED, DELETED, QUEUED, RUNNING, SUCCEEDED, Job, allowed, due_at
from jobevents.limits import Limit
from jobevents.presence import Presence
from jobevents.store import Held, LogTable, is_overdue
from jobevents.telemetry import Counts


class Pace(NamedTuple):
    """How often an attempt may write and read, where each request has its price."""

    progress_s: float  # seconds between two progress events
    lines_s: float  # between two batches of log lines; no longer than the first
    cancel_s: float  # how old the answer may be whether the work should stop


class Worker(msgspec.Struct, frozen=True):
    """What an attempt needs of the process it runs in."""

    emitter: Emitter
    logs: LogTable
    counts: Counts
    monotonic: Callable[[], float]
    scrub: boundary.Scrub
    presence: Presence
    label: str = ""  # under which name it works; "": the host's
    pace: Pace | None = None  # None: that of a log in a database
    identity: str = ""  # who works, the events' `worker` and `actor`; "" until the attempt is entered


GUARD_HITS = "guard_hits_"  # what the counts of refused attempts begin with; the rest is the class of the refusal
_ENDLESS_S = 10**9  # 31 years: beyond this a deadline is none, and dates overflow


class Terms(msgspec.Struct, frozen=True):
    """On what terms an attempt is wanted."""

    deadline_s: float | None = None  # seconds after which it may be taken for lost
    limits: Sequence[Limit] = ()  # on how many jobs run at once
    if_due: bool = False  # only a queued job whose time has come: what a queue handed out may be of the past

    def __post_init__(self) -> None:
        """Refuse a deadline that no clock reaches; one of 0 has passed at once."""
        if self.deadline_s is not None and not 0 <= self.deadline_s < _ENDLESS_S:
            raise InvalidValue(
                f"deadline_s must be a number of seconds from 0 to {_ENDLESS_S} value={self.deadline_s!r}"
            )


def start_of(worker: Worker, job_id: str, terms: Terms) -> Wanted:
    """Return the change that starts a job, if that may be: JobStarted, as it is decided on the job's state.

    A job nobody queued may be started all the same: a task delivered before its record, or older than this system. A start
    whose worker is dead or whose deadline has passed is lost, and is fenced off first; if somebody asked for a cancel, it is
    not run again. A record that says the job runs, written by whoever, names no worker: nobody knows of one.

    Deciding raises:
        AlreadySucceeded, AlreadyCanceled, AlreadyRunning: it may not be started.
        Refused: with `if_due`, it does not wait, or not for now.
        Unavailable, PermissionDenied: it cannot be known whether its worker lives.
    """
    now = worker.emitter.clock()
    deadline = None if terms.deadline_s is None else now + timedelta(seconds=terms.deadline_s)

    def decide(job: Job) -> list[Draft]:
        _refuse_what_is_done(job)
        if terms.if_due and job.state != RUNNING and not (job.state == QUEUED and due_at(job) <= now):
            raise Refused(f"the job is not due state={job.state} due={due_at(job).isoformat()}", job_id=job_id)
        why = _why_lost(worker, job, now) if job.state == RUNNING else ""
        if (
            terms.if_due and why and not job.external and job.attempt >= job.max_attempts
        ):  # the reaper fails it (DEL-12)
            raise Refused(f"the job was lost in its last try max_attempts={job.max_attempts}", job_id=job_id)
        if job.cancel_requested_at is not None:  # its worker died, failed or gave it back after the request (CAN-08)
            if JobCanceled not in allowed(job.state):
                raise AlreadyCanceled("a cancel was asked for", job_id=job_id)
            return [partial(JobCanceled, start=job.start if why else 0, reason=why)]
        tries = job.attempt if why else job.tries
        requeued = [partial(JobRequeued, cause="lost", start=job.start, reason=why)] if why else []
        return [*requeued, partial(JobStarted, attempt=tries + 1, worker=worker.identity, deadline=deadline)]

    return Wanted(job_id, decide, By(actor=worker.identity))


def grant(worker: Worker, wanted: Wanted, terms: Terms) -> Job:
    """Append JobStarted if the job may be started, and return the job as it then is: one append decides, however many race.

    Args:
        wanted: what `start_of` the same terms has returned.

    Raises:
        AlreadySucceeded, AlreadyCanceled, AlreadyRunning, Refused: it may not be started; see `start_of`.
        Busy: as many jobs run as a limit lets.
        AppendUnknown, Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    if worker.emitter.heed is not None:
        worker.emitter.heed(wanted.job_id)
    try:
        change = _append(worker.emitter, wanted, terms.limits)
    except Refused as refused:
        worker.counts.add(f"{GUARD_HITS}{type(refused).__name__}")
        raise
    return granted(worker, change)


def _append(emitter: Emitter, wanted: Wanted, limits: Sequence[Limit]) -> Change:
    try:
        return emitter.change(wanted.job_id, wanted.decide, wanted.by, limits=limits)
    except AppendUnknown as unknown:  # our start may be in the log: look, before anybody is refused for its sake
        return emitter.settle(unknown) or emitter.change(wanted.job_id, wanted.decide, wanted.by, limits=limits)


def granted(worker: Worker, change: Change) -> Job:
    """Return the job that a change of `start_of` has started.

    Raises:
        AlreadyCanceled: it has canceled it instead, since that was asked for.
    """
    if isinstance(change.events[0], JobRequeued):
        worker.counts.add("lost_starts_taken_over")
    if change.job.state == CANCELED:
        worker.counts.add(f"{GUARD_HITS}{AlreadyCanceled.__name__}")
        raise AlreadyCanceled("the job was canceled, since that was asked for", job_id=change.job.job_id)
    return change.job


def _refuse_what_is_done(job: Job) -> None:
    if job.state == SUCCEEDED:
        raise AlreadySucceeded("the job has succeeded already", job_id=job.job_id)
    if job.state == CANCELED:
        raise AlreadyCanceled("the job was canceled", job_id=job.job_id)
    if job.state == DELETED:
        raise AlreadyCanceled("the job was deleted", job_id=job.job_id)


def _why_lost(worker: Worker, job: Job, now: datetime) -> str:
    """Return why a running job is taken for lost.

    Raises:
        AlreadyRunning: its worker lives.
    """
    held = Held(job.job_id, job.worker, job.start, is_overdue(job, now))
    loss = worker.presence.lost([held], asking=worker.identity).get(job.job_id)
    if loss is None and job.worker:
        raise AlreadyRunning(f"the job runs already worker={job.worker}", job_id=job.job_id)
    return loss.why if loss else "no worker is known to run the job"
