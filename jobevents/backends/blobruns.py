"""The rows of runs on a log that keeps none: ids from the index that a projector keeps, each job as its log says.

A list is as late as the index is, but no row of it is: a job that has gone on since is shown as it is now, or left out where
it is not what was asked for any more. Which jobs run, and who holds a key, is asked of the log for each.
"""

import heapq
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from lru import LRU

from jobevents.backends.bloblines import BlobRunLogs
from jobevents.backends.fan import Fan
from jobevents.backends.sql import page_of
from jobevents.boundary import check_instant
from jobevents.ids import NoTimestamp, created_at, sort_key
from jobevents.job import CANCELED, DELETED, FAILED, QUEUED, RUNNING, SKIPPED, SUCCEEDED, Job
from jobevents.store import Cutoff, Held, JobRun, RunFilter, RunPage, Undelivered, own_run_of

STATES = (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED, SKIPPED)
FINISHED = (SUCCEEDED, FAILED, CANCELED, SKIPPED)
OTHER = "other"  # the index's name for the jobs in any state of open text
PAGE = 200  # ids an answer of the index has at most
HELD = 16_384  # running jobs of which is remembered who holds them
HELD_S = 30.0  # for so long: whoever decides by it asks the log again


class JobIndex(Protocol):
    """What is needed of the index of jobs by state; "" for all. Each call is a read of its manifest and at most two chunks.

    Each may raise Unavailable: there is no index, or it cannot be read.
    """

    def count(self, state: str) -> int:
        """Return how many jobs are in a state."""
        ...

    def after(self, job_id: str, limit: int, state: str) -> Sequence[str]:
        """Return the ids that come after the place of one, newest first; from the newest on after ""."""
        ...

    def page(self, state: str, page: int, per_page: int) -> Sequence[str]:
        """Return a page of at most 200 ids, newest first; none past the end."""
        ...


class KeyHolders(Protocol):
    """Who holds an idempotency key."""

    def holder(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds a key; None for the empty key."""
        ...


class _Seen(NamedTuple):
    """A job as it was when it was read."""

    at: float  # monotonic
    version: int
    held: Held | None  # None: it did not run
    deadline: datetime | None


class BlobRuns:
    """A RunTable over the index and the log. Safe for threads."""

    def __init__(
        self,
        index: JobIndex,
        keys: KeyHolders,
        load: Callable[[str], Job],
        fan: Fan,
        *,
        cached: Callable[[str], Job | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._keys = keys
        self._load = load
        self._cached = cached
        self._fan = fan
        self._monotonic = monotonic
        self._seen: LRU[str, _Seen] = LRU(HELD)
        self._pass = _Pass()
        self._queued = _Pass()

    def get(self, job_id: str) -> JobRun | None:
        """Return the row: what the log has now."""
        job = self._load(job_id)
        return own_run_of(job) if _is_there(job) else None

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page and the count of all; see `RunTable.list`.

        By one state or none, a page costs the index's reads and those of its jobs, and the count is the index's. Any other
        filter reads every job of the states it asks for.
        """
        number, per_page, offset = page_of(filter)
        for what, when in (("from", filter.from_), ("to", filter.to)):
            if when is not None:
                check_instant(what, when)
        states = _states(filter)
        if len(states) == 1 and states[0] != OTHER and _asks_for_states_alone(filter):
            ids = self._ids(states[0], number, per_page)
            found = [job for job in self._fan.map(self._load, ids) if _is_there(job) and _matches(job, filter)]
            return RunPage([own_run_of(job) for job in found], self._index.count(states[0]), number, per_page)
        total, shown = 0, []
        for job in self._jobs(states):
            if _matches(job, filter):
                if not per_page or offset <= total < offset + per_page:
                    shown.append(own_run_of(job))
                total += 1
        return RunPage(shown, total, number, per_page)

    def find_active(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds the key, as the log has it now."""
        return self._keys.holder(name, key)

    def running_ids(self, name: str) -> Sequence[str]:
        """Return the ids of the running jobs of a kind, sorted: reads every running job."""
        return sorted(job.job_id for job in self._jobs((RUNNING,)) if job.state == RUNNING and job.name == name)

    def running(self, *, after: str, limit: int, now: datetime) -> Sequence[Held]:
        """Return the next running jobs by id: the index once a pass, and each job once in half a minute."""
        ids = self._pass.after(after, lambda: _all_ids(self._index, RUNNING))
        found: list[Held] = []
        for at in range(0, len(ids), limit):
            for seen in self._fan.map(self._see, ids[at : at + limit]):
                if seen.held is not None:
                    found.append(seen.held._replace(is_overdue=seen.deadline is not None and seen.deadline <= now))
            if len(found) >= limit:
                break
        return found[:limit]

    def undelivered(self, *, after: str, limit: int, due: datetime) -> Sequence[Undelivered]:
        """Return the next queued jobs by id, not read: the index once a pass, each job by whoever dispatches."""
        ids = self._queued.after(after, lambda: _all_ids(self._index, QUEUED))
        return [Undelivered(job_id, None) for job_id in ids[:limit]]

    def _see(self, job_id: str) -> _Seen:
        seen = self._seen.get(job_id)
        known = self._cached(job_id)  # what this process did is known at once
        if seen is None or self._monotonic() - seen.at > HELD_S or (known is not None and known.version > seen.version):
            began = self._monotonic()
            job = self._load(job_id)
            held = Held(job_id, job.worker, job.start, False) if job.state == RUNNING else None
            seen = self._seen[job_id] = _Seen(began, job.version, held, job.deadline)
        return seen

    def _ids(self, state: str, number: int, per_page: int) -> Sequence[str]:
        """Return a page of ids of any size."""
        if 0 < per_page <= PAGE:
            return self._index.page(state, number, per_page)
        found = list(_all_ids(self._index, state))
        return found[(number - 1) * per_page :][:per_page] if per_page else found

    def _jobs(self, states: Sequence[str]) -> Iterator[Job]:
        """Yield every job of some states, newest first, as the log has it now."""
        merged = heapq.merge(*(_all_ids(self._index, state) for state in states), key=_place, reverse=True)
        before = ""
        for page in _pages(merged, PAGE):
            for job in self._fan.map(self._load, page):
                if _is_there(job) and job.job_id != before:  # one that moved on while two states were read
                    before = job.job_id
                    yield job


class BlobRetention:
    """What is old on a log that keeps no rows: candidates by the time in their ids; whoever deletes looks at each."""

    def __init__(self, index: JobIndex, lines: BlobRunLogs) -> None:
        self._index = index
        self._lines = lines
        self._pass = _Pass()

    def finished(self, cutoff: Cutoff, *, after: str, limit: int) -> Sequence[str]:
        """Return the next finished runs that may be old: made before the time, or of no known age.

        Their ids are gathered with the first page, and held: 0.1 KiB each.
        """
        latest = max((cutoff.before, *cutoff.but.values()))

        def gather() -> Iterator[str]:
            for state in FINISHED:
                yield from (job_id for job_id in _all_ids(self._index, state) if _may_be_before(job_id, latest))

        return self._pass.after(after, gather)[:limit]

    def drop_lines(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        """Look at the next chunks of lines; see `Retention.drop_lines`."""
        return self._lines.drop_old(cutoff, after=after, limit=limit)


class _Pass:
    """Ids in their order, gathered when a pass over them begins, and handed out from place to place. Safe for threads."""

    def __init__(self) -> None:
        self._ids: Sequence[str] | None = None
        self._lock = threading.Lock()

    def after(self, job_id: str, gather: Callable[[], Iterable[str]]) -> Sequence[str]:
        """Return the ids after one; from "" on they are gathered anew."""
        with self._lock:
            ids = self._ids
        if not job_id or ids is None:
            ids = sorted(set(gather()))
            with self._lock:
                self._ids = ids
        return ids[bisect_right(ids, job_id) :]


def _all_ids(index: JobIndex, state: str) -> Iterator[str]:
    last = ""
    while page := index.after(last, PAGE, state):
        yield from page
        last = page[-1]


def _states(filter: RunFilter) -> tuple[str, ...]:
    """Return the index's states that hold what a filter asks for."""
    return tuple(dict.fromkeys(state if state in STATES else OTHER for state in filter.statuses)) or ("",)


def _asks_for_states_alone(filter: RunFilter) -> bool:
    return not (filter.job or filter.trigger or filter.queue or filter.from_ or filter.to)


def _matches(job: Job, filter: RunFilter) -> bool:
    created = job.created_at
    return (
        filter.job in ("", job.name)
        and (not filter.statuses or job.state in filter.statuses)
        and filter.trigger in ("", job.trigger)
        and filter.queue in ("", job.queue)
        and (filter.from_ is None or (created is not None and created >= filter.from_))
        and (filter.to is None or (created is not None and created <= filter.to))
    )


def _is_there(job: Job) -> bool:
    return job.version > 0 and job.state != DELETED


def _place(job_id: str) -> tuple[str, str]:
    return sort_key(job_id), job_id


def _may_be_before(job_id: str, when: datetime) -> bool:
    try:
        return created_at(job_id) < when
    except NoTimestamp:
        return True


def _pages(ids: Iterable[str], size: int) -> Iterator[Sequence[str]]:
    page: list[str] = []
    for job_id in ids:
        page.append(job_id)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page
