"""Counts over all runs in memory: looks at every one."""

import heapq
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from jobevents.backends.memoryruns import MemoryRuns
from jobevents.boundary import check_instant
from jobevents.census import Bar, Order, Size, Tally, Waiting
from jobevents.ids import sort_key
from jobevents.job import QUEUED, Job, due_at
from jobevents.store import JobRun, RunFilter, duration_ms, own_run_of


class MemoryCensus:
    """The same answers as those of a database."""

    def __init__(self, runs: MemoryRuns) -> None:
        self._runs = runs

    def tally(self) -> Sequence[Tally]:
        counted = Counter((job.queue, job.state) for job in self._runs.jobs())
        return [Tally(queue, state, jobs) for (queue, state), jobs in sorted(counted.items())]

    def sizes(self) -> Sequence[Size]:
        return ()

    def waiting(self, now: datetime) -> Sequence[Waiting]:
        oldest: dict[str, datetime] = {}
        for job in self._runs.jobs():
            if job.state == QUEUED and not job.external and (due := check_instant("time", due_at(job))) <= now:
                oldest[job.queue] = min(oldest.get(job.queue, due), due)
        return [Waiting(queue, due) for queue, due in sorted(oldest.items())]

    def series(self, since: datetime, step_s: int, bars: int) -> Sequence[Bar]:
        counted: Counter[tuple[int, str]] = Counter()
        durations: Counter[tuple[int, str]] = Counter()
        for job in self._runs.jobs():
            for when, state, took_ms in ((job.finished_at, job.state, duration_ms(job)), (job.created_at, "", 0)):
                number = (when - since).total_seconds() // step_s if when is not None else -1
                if 0 <= number < bars:
                    counted[int(number), state] += 1
                    durations[int(number), state] += took_ms
        found = [Bar(*place, jobs, durations[place]) for place, jobs in sorted(counted.items())]
        return [bar for bar in found if bar.state] + [bar for bar in found if not bar.state]

    def after(self, filter: RunFilter, job_id: str, limit: int) -> Sequence[JobRun]:
        place = _place(job_id) if job_id else None
        matching = (job for job in self._runs.matching(filter) if place is None or _rank(job) < place)
        return [own_run_of(job) for job in heapq.nlargest(limit, matching, key=_rank)]

    def page(self, filter: RunFilter, order: Order, offset: int, limit: int) -> tuple[Sequence[JobRun], int]:
        found: Sequence[Job] = self._runs.matching(filter)
        if order == "ended":
            ended = [(job.finished_at, job.job_id, job) for job in found if job.finished_at is not None]
            found = [job for _, _, job in sorted(ended, key=lambda one: one[:2], reverse=True)]
        else:
            found = sorted(found, key=_rank, reverse=order == "newest")
        return [own_run_of(job) for job in found[offset : offset + limit]], len(found)


def _rank(job: Job) -> tuple[str, str]:
    return _place(job.job_id)


def _place(job_id: str) -> tuple[str, str]:
    return sort_key(job_id), job_id
