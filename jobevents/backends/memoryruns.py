"""The rows of runs and their log lines in memory."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from threading import RLock

import msgspec

from jobevents.backends.sql import page_of
from jobevents.boundary import check_instant
from jobevents.errors import Busy, KeyTaken
from jobevents.ids import sort_key
from jobevents.job import DELETED, QUEUED, RUNNING, Job, due_at
from jobevents.limits import Limit
from jobevents.store import Cutoff, Held, JobLog, JobRun, RunFilter, RunPage, Undelivered, is_overdue, own_run_of


class MemoryRuns:
    """The latest fold of each job; a Job handed in is never changed, here or by who gave it."""

    def __init__(self, lock: "RLock") -> None:
        """Keep rows under the recorder's lock."""
        self._lock = lock
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, Job] = {}  # those of them that run
        self._holders: dict[tuple[str, str], str] = {}  # (name, key) -> the unfinished job that holds it

    def check_limits(self, limits: Sequence[Limit], rows: Sequence[Job]) -> None:
        """Count the other running jobs.

        Raises:
            Busy: a row would be one more than a limit lets run.
        """
        for job in rows:
            for limit in limits if job.state == RUNNING else ():
                others = (one for one in self._running.values() if one.job_id != job.job_id)
                counted = (one.name if limit.column == "job_name" else one.queue for one in others)
                if sum(value == limit.value for value in counted) >= limit.most:
                    raise Busy(job_id=job.job_id, column=limit.column, value=limit.value, most=limit.most)

    def check_keys(self, jobs: Sequence[Job]) -> None:
        """Refuse rows whose idempotency key another unfinished job holds, in the table or among them.

        Raises:
            KeyTaken: naming the holder.
        """
        holders: dict[tuple[str, str], str | None] = {}  # as they would be after the rows so far
        rows: dict[str, Job] = {}
        for job in jobs:
            if not self._is_news(job):
                continue
            before = rows.get(job.job_id) or self._jobs.get(job.job_id)
            if before is not None and _holds(before):
                holders[before.name, before.key] = None
            if _holds(job):
                slot = (job.name, job.key)
                holder = holders[slot] if slot in holders else self._holders.get(slot)
                if holder not in (None, job.job_id):
                    raise KeyTaken("idempotency key is taken", job_id=str(holder), key=job.key)
                holders[slot] = job.job_id
            rows[job.job_id] = job

    def put(self, job: Job) -> bool:
        """Store a row, and tell whether it was news: one of a higher version stays. A deleted job's goes."""
        if not self._is_news(job):
            return False
        before = self._jobs.get(job.job_id)
        if before is not None and self._holders.get((before.name, before.key)) == job.job_id:
            del self._holders[before.name, before.key]
        self._running.pop(job.job_id, None)
        if job.state == DELETED:
            self._jobs.pop(job.job_id, None)
            return True
        self._jobs[job.job_id] = job
        if job.state == RUNNING:
            self._running[job.job_id] = job
        if _holds(job):
            self._holders[job.name, job.key] = job.job_id
        return True

    def _is_news(self, job: Job) -> bool:
        before = self._jobs.get(job.job_id)
        return before is None or before.version <= job.version

    def jobs(self) -> Sequence[Job]:
        """Return the latest fold of every job that is not deleted."""
        with self._lock:
            return list(self._jobs.values())

    def get(self, job_id: str) -> JobRun | None:
        """Return the row; None when there is no such job."""
        job = self._jobs.get(job_id)
        return None if job is None else own_run_of(job)

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page and the count of all: sorts what matches."""
        number, per_page, offset = page_of(filter)
        for what, when in (("from", filter.from_), ("to", filter.to)):
            if when is not None:
                check_instant(what, when)
        with self._lock:
            found = sorted(self._matching(filter), key=lambda job: (sort_key(job.job_id), job.job_id), reverse=True)
        shown = found[offset : offset + per_page] if per_page else found
        return RunPage([own_run_of(job) for job in shown], len(found), number, per_page)

    def matching(self, filter: RunFilter) -> Sequence[Job]:
        """Return the latest folds of the jobs that match, in no order."""
        with self._lock:
            return tuple(self._matching(filter))

    def _matching(self, filter: RunFilter) -> Iterator[Job]:
        for job in self._jobs.values():
            created = job.created_at
            if (
                filter.job in ("", job.name)
                and (not filter.statuses or job.state in filter.statuses)
                and filter.trigger in ("", job.trigger)
                and filter.queue in ("", job.queue)
                and job.job_id.startswith(filter.prefix)
                and (filter.from_ is None or (created is not None and created >= filter.from_))
                and (filter.to is None or (created is not None and created <= filter.to))
            ):
                yield job

    def find_active(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds the key."""
        return self._holders.get((name, key)) if key else None

    def running_ids(self, name: str) -> Sequence[str]:
        """Return the ids of the running jobs of a kind, sorted."""
        with self._lock:
            return sorted(job.job_id for job in self._running.values() if job.name == name)

    def running(self, *, after: str, limit: int, now: datetime) -> Sequence[Held]:
        """Return the next running jobs by id: looks at every one of them."""
        with self._lock:
            later = (job for job in self._running.values() if job.job_id > after)
            found = heapq.nsmallest(limit, later, key=lambda job: job.job_id)
        return [Held(job.job_id, job.worker, job.start, is_overdue(job, now)) for job in found]

    def undelivered(self, *, after: str, limit: int, due: datetime) -> Sequence[Undelivered]:
        """Return the next queued external jobs that are due, by id: looks at every job."""
        with self._lock:
            waiting = (
                job
                for job in self._jobs.values()
                if job.external and job.state == QUEUED and job.job_id > after and due_at(job) <= due
            )
            found = heapq.nsmallest(limit, waiting, key=lambda job: job.job_id)
        return [Undelivered(job.job_id, due_at(job)) for job in found]


class MemoryRunLogs:
    """The log lines of runs."""

    def __init__(self, lock: "RLock", is_deleted: Callable[[str], bool]) -> None:
        """Keep lines under the recorder's lock; those of a job that `is_deleted` are dropped."""
        self._lock = lock
        self._is_deleted = is_deleted
        self._lines: dict[str, dict[int, JobLog]] = {}

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store all lines; see `LogTable`."""
        in_utc = [msgspec.structs.replace(line, at=check_instant("at", line.at)) for line in entries]
        with self._lock:
            for line in in_utc:
                if not self._is_deleted(line.run_id):
                    self._lines.setdefault(line.run_id, {}).setdefault(line.seq, line)

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Return lines, ascending; see `LogTable`."""
        with self._lock:
            lines = self._lines.get(job_id, {})
            found = [lines[seq] for seq in sorted(lines) if seq > after_seq]
        return found[:limit] if limit > 0 else found

    def drop(self, job_id: str) -> None:
        """Remove a job's lines."""
        self._lines.pop(job_id, None)

    def drop_before(self, cutoff: Callable[[str], datetime | None]) -> None:
        """Remove the lines written before a time, which `cutoff` gives for each run: None to keep them all."""
        with self._lock:
            for job_id, lines in list(self._lines.items()):
                before = cutoff(job_id)
                if before is not None:
                    self._lines[job_id] = {seq: line for seq, line in lines.items() if line.at >= before}


class MemoryRetention:
    """Old runs and lines: looks at every one, and removes all old lines at once."""

    def __init__(self, runs: MemoryRuns, lines: MemoryRunLogs) -> None:
        self._runs = runs
        self._lines = lines

    def finished(self, cutoff: Cutoff, *, after: str, limit: int) -> Sequence[str]:
        old = (
            job.job_id
            for job in self._runs.jobs()
            if job.job_id > after and job.finished_at is not None and job.finished_at < cutoff.of(job.name)
        )
        return heapq.nsmallest(limit, old)

    def drop_lines(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        def of(job_id: str) -> datetime | None:
            run = self._runs.get(job_id)
            if run is None:
                return cutoff.before
            return cutoff.of(run.job_name) if run.is_final() else None

        self._lines.drop_before(of)
        return None


def _holds(job: Job) -> bool:
    return bool(job.key) and job.state != DELETED and not job.is_final()
