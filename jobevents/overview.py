"""What is in the queues, and when the periodic jobs are due: what commands, pages and the API show of a whole log."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from jobevents.boundary import did_you_mean
from jobevents.errors import InvalidValue, Misconfigured
from jobevents.job import FAILED, QUEUED, RUNNING
from jobevents.jobs import Jobs
from jobevents.registry import JobDefinition
from jobevents.store import RunFilter

LOOKED_AT = 1000  # of the newest jobs, for the kinds that there are


class QueueSeen(msgspec.Struct):
    """A queue and what is in it."""

    queue: str
    queued: int = 0  # wait, those that are due later among them
    running: int = 0  # those lost among them
    failed: int = 0  # have ended so
    oldest_due: datetime | None = None  # the longest that a run has been due for
    paused_by: str = ""  # who paused it, with the reason; "" while it is not paused
    lost: int = 0  # of those that run: nobody is known to work on them, as `Losses.by_queue` finds by their leases


class ScheduleSeen(msgspec.Struct):
    """A periodic job."""

    job: str
    schedule: str  # as it is written in the registry
    next_at: datetime | None  # the next tick
    last_id: str = ""  # the run of the last one
    last_state: str = ""
    last_at: datetime | None = None  # when that was due


class LimitSeen(msgspec.Struct):
    """A kind of job of which only so many may run at once."""

    job: str
    running: int  # a dead worker's among them, until they are given back
    most: int  # in all processes on the log
    on_busy: str  # what becomes of the next one: enqueue, skip or replace


def check_known(jobs: Jobs, *, job: str, queue: str) -> None:
    """Refuse the name of a kind of job, or of a queue, of which no job was ever seen: it may be mistyped.

    Raises:
        InvalidValue: with the names that are near.
    """
    if jobs.desk is None or bool(job) == bool(queue):
        return  # others say why that cannot be
    if queue:
        known = {one.queue for one in queues(jobs)}
    else:
        if jobs.desk.census.after(RunFilter(job=job), "", 1):
            return
        known = {run.job_name for run in jobs.desk.census.after(RunFilter(), "", LOOKED_AT)}
    name, what = (queue, "in the queue") if queue else (job, "of the kind")
    if name not in known:
        raise InvalidValue(
            f"there is no job {what} name={name!r:.80}{did_you_mean(name, known)}; --force pauses it all the same"
        )


def queues(jobs: Jobs) -> list[QueueSeen]:
    """Return the queues by name, `default` and paused ones without jobs too: two counts by an index, and the pauses.

    Raises:
        Misconfigured: the log keeps no table of runs.
    """
    if jobs.desk is None:
        raise Misconfigured("this log keeps no table of runs, so that its queues cannot be counted")
    seen: dict[str, QueueSeen] = {"default": QueueSeen("default")}

    def row(queue: str) -> QueueSeen:
        return seen.setdefault(queue, QueueSeen(queue))

    for one in jobs.desk.census.tally():
        found = row(one.queue)
        found.queued += one.jobs * (one.state == QUEUED)
        found.running += one.jobs * (one.state == RUNNING)
        found.failed += one.jobs * (one.state == FAILED)
    for waiting in jobs.desk.census.waiting(jobs.emitter.clock()):
        row(waiting.queue).oldest_due = waiting.oldest_due
    for pause in jobs.paused():
        if pause.kind == "queue":
            by = pause.by or "somebody"
            row(pause.name).paused_by = f"{by}: {pause.reason}" if pause.reason else by
    return sorted(seen.values(), key=lambda one: one.queue)


def limits(jobs: Jobs, definitions: Iterable[JobDefinition]) -> list[LimitSeen]:
    """Return the kinds of jobs with a limit, and how much of it is used: one count by an index each."""
    return [
        LimitSeen(
            one.name,
            jobs.runs.list(RunFilter(job=one.name, statuses=(RUNNING,), per_page=1)).total,
            one.max_concurrent,
            one.on_busy,
        )
        for one in definitions
        if one.max_concurrent
    ]


def schedules(jobs: Jobs, definitions: Iterable[JobDefinition]) -> list[ScheduleSeen]:
    """Return the periodic ones among the kinds of jobs, each with the run of its last tick: one read each."""
    return [_schedule(jobs, one) for one in definitions if one.schedule is not None]


def _schedule(jobs: Jobs, one: JobDefinition) -> ScheduleSeen:
    if one.schedule is None:
        raise Misconfigured(f"job has no schedule job={one.name}")
    last = jobs.runs.list(RunFilter(job=one.name, trigger="schedule", per_page=1)).runs
    seen = ScheduleSeen(one.name, one.schedule_text, one.schedule.after(jobs.emitter.clock()))
    for run in last:
        seen.last_id, seen.last_state, seen.last_at = run.id, run.status, run.scheduled_at
    return seen
