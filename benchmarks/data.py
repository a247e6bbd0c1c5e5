"""Seeded data: the same ids, events and rows in every run and on every machine."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from jobevents import ids
from jobevents.emit import Draft
from jobevents.events import Event, JobAnnotated, JobProgressed, JobQueued, JobStarted, JobSucceeded
from jobevents.job import Job, fold
from jobevents.log import EventLog, Head

SEED = 20260726
BEGAN = datetime(2026, 7, 26, 12, 0, 31, 500_000, tzinfo=UTC)
STATES = ("queued", "running", "succeeded", "failed", "canceled", "skipped")
_WEIGHTS = (4, 1, 80, 10, 4, 1)  # most jobs of a long history have succeeded
_TOGETHER = 50  # jobs that run at the same time, so that their events alternate in the log


class Step(NamedTuple):
    """One event to come, and the job it belongs to."""

    job_id: str
    draft: Draft
    at: datetime


def job_ids(count: int, *, seed: int = SEED) -> list[str]:
    """Return ids as `ids.new_id` makes them, 40 seconds apart, oldest first."""
    rng = random.Random(seed)
    return [ids.new_id("render", BEGAN + timedelta(seconds=40 * n), rng.randbytes) for n in range(count)]


def states(count: int, *, seed: int = SEED) -> list[str]:
    """Return a state for each of as many jobs."""
    return random.Random(seed).choices(STATES, _WEIGHTS, k=count)


def lives(jobs: int, events_each: int, *, seed: int = SEED) -> Iterator[Step]:
    """Yield the events of jobs from queued to succeeded, in an order in which a log would hold them.

    Args:
        events_each: 4..n: queued, started, annotated, then progress, then succeeded.
    """
    rng = random.Random(seed)
    named = job_ids(jobs, seed=seed)
    for first in range(0, jobs, _TOGETHER):
        group = [(job_id, list(_life(rng, events_each))) for job_id in named[first : first + _TOGETHER]]
        for step in range(events_each):
            for place, (job_id, drafts) in enumerate(group):
                yield Step(job_id, drafts[step], BEGAN + timedelta(seconds=40 * (first + place) + 7 * step))


def _life(rng: random.Random, events: int) -> Iterator[Draft]:
    song = {"song": rng.randrange(100_000), "bpm": rng.randrange(60, 180), "style": rng.choice(["calm", "loud"])}
    yield partial(JobQueued, name="render", params=song, title=f"Song {song['song']}", actor="studio")
    worker = f"worker-{rng.randrange(8)}"
    yield partial(JobStarted, attempt=1, worker=worker, actor=worker)
    fields: dict[str, str | int | float | bool | None] = {"output_dir": f"gs://songs/{song['song']}", "tracks": 4}
    yield partial(JobAnnotated, start=2, fields=fields, actor=worker)
    for number in range(1, events - 3):
        yield partial(JobProgressed, start=2, percent=100 * number // (events - 3), message="mixing", actor=worker)
    yield partial(JobSucceeded, start=2, result={"seconds": rng.randrange(30, 600)}, actor=worker)


class Writer:
    """Makes the events of steps, each following what it made before of its job."""

    def __init__(self, *, seed: int = SEED) -> None:
        self._rng = random.Random(seed)
        self.jobs: dict[str, Job] = {}

    def event(self, step: Step) -> tuple[Event, Job]:
        """Return the next event of the step's job, and the job after it; its chain is not known yet."""
        job = self.jobs.get(step.job_id) or Job(job_id=step.job_id)
        event_id = self._rng.randbytes(12).hex()
        event = step.draft(job_id=job.job_id, version=job.version + 1, id=event_id, at=step.at)
        self.jobs[job.job_id] = after = fold([event], job)
        return event, after


def fill(log: EventLog, steps: Sequence[Step] | Iterator[Step], *, batch: int = 1000) -> None:
    """Append the events of many jobs with their rows, a batch a transaction."""
    writer = Writer()
    waiting: list[Event] = []
    heads: dict[str, Head] = {}
    after: dict[str, Job] = {}

    def append() -> None:
        for stored in log.append(waiting, heads=heads, rows=list(after.values())):
            heads[stored.job_id] = Head(stored.version, stored.chain)
        waiting.clear()
        after.clear()

    for step in steps:
        event, job = writer.event(step)
        waiting.append(event)
        after[job.job_id] = job
        if len(waiting) >= batch:
            append()
    append()
