"""From messages to events: what a message points at is read from the log, and acknowledged when every view has it.

A message is only a hint that a job has a version. Its bytes are never folded: they are held against what the log has in that
slot, so that one that somebody made up, or about an event that is not there, does nothing but be counted. What came before
it and had no message of its own is read, too, after a moment in which that message may still come. What comes after it has a
message of its own, or is found by the sweep; but a job that was deleted since is taken as deleted: an old state would bring
it back into views that keep nothing of it. Where this process has written the job's status, its next write tells; else the log
is asked. So a message costs one read, of its event, and a job's first one more, of nothing behind it.
"""

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from jobevents.bus import Delivery, Subscriber
from jobevents.errors import JobEventsError, Unavailable
from jobevents.events import JobDeleted
from jobevents.log import Record
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble
from projections.inflow import read_through
from projections.inlet import Inlet

BATCH = 500  # messages a pull
PULL_S = 0.1  # how long a pull waits: how late an acknowledgement is at most
REORDER_S = 0.25  # how long messages that are missing between others may take before they are taken for lost
MOST = 20_000  # events found and not stored yet, beyond which nothing is pulled: 20 MB
YOUNG = 3  # versions up to which a job unknown here is read from its first event, and its status not at all
THREADS = 16  # jobs read at once

logger = logging.getLogger(__name__)


class _Job(msgspec.Struct):
    """A job with messages that were not looked into yet."""

    since: float  # when the first of them came, monotonic
    deliveries: list[Delivery] = []
    versions: set[int] = set()


class Hints:
    """One subscription as an input of the projector. For one thread."""

    def __init__(
        self,
        subscriber: Subscriber,
        inlet: Inlet,
        *,
        stored: Callable[[], int],
        counts: Counts,
        on_lost: Callable[[], None] = lambda: None,
        watched: Callable[[str], bool] = lambda _: False,
        most: int = MOST,
        reorder_s: float = REORDER_S,
        threads: int = THREADS,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Pull nothing yet.

        Args:
            stored: the place in the inlet's sequence up to which every view is stored.
            watched: tells whether a view finds out by itself, and has the inlet catch up, when a job was deleted since.
            on_lost: called when the subscription was lost, and with it what was published meanwhile.
        """
        self.error: JobEventsError | None = None  # what holds it up; None: nothing
        self._subscriber = subscriber
        self._inlet = inlet
        self._stored = stored
        self._counts = counts
        self._on_lost = on_lost
        self._watched = watched
        self._most = most
        self._reorder_s = reorder_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._epoch = 0
        self._jobs: dict[str, _Job] = {}
        self._held: list[tuple[int, int, list[Delivery]]] = []  # by place: acknowledged when that is stored
        self._numbers = itertools.count()
        self._retry_at = 0.0
        self._trouble = Trouble("looking into messages", logger, monotonic=monotonic)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="jobevents-hints")

    def step(self, wait_s: float = PULL_S) -> int:
        """Pull once, look into what is due, acknowledge what is stored; return how many messages came.

        An error of bus or log is kept in `error`, and what it concerns is done again later.
        """
        self.settle()
        pulled = self._pull(wait_s)
        now = self._monotonic()
        for delivery in pulled:
            if delivery.notice is None:
                self._counts.add("notice_forged")
                logger.warning("message is none of ours, it is dropped error=%s", delivery.error)
                self._subscriber.ack([delivery])
                continue
            job = self._jobs.setdefault(delivery.notice.job_id, _Job(now))
            job.deliveries.append(delivery)
            job.versions.add(delivery.notice.version)
        self._look()
        return len(pulled)

    def settle(self) -> None:
        """Acknowledge what every view has stored."""
        stored = self._stored()
        done: list[Delivery] = []
        while self._held and self._held[0][0] <= stored:
            done += heapq.heappop(self._held)[2]
        if done:
            self._subscriber.ack(done)
        self._inlet.inflow.drop(stored)

    def is_idle(self) -> bool:
        """Tell whether no message waits to be looked into or acknowledged."""
        return not self._jobs and not self._held

    def close(self) -> None:
        """Acknowledge what is stored, give back the rest."""
        self.settle()
        self._pool.shutdown()
        self._subscriber.close()

    def _pull(self, wait_s: float) -> list[Delivery]:
        if self._inlet.inflow.depth() >= self._most or len(self._jobs) >= self._most:
            self._sleep(wait_s)
            return []
        try:
            pulled = self._subscriber.pull(BATCH, 0.0 if self._is_due() else wait_s)
        except JobEventsError as error:
            self.error = error
            self._sleep(wait_s)
            return []
        if self._monotonic() >= self._retry_at:
            self.error = None
        if self._subscriber.epoch != self._epoch:
            self._epoch = self._subscriber.epoch
            self._held.clear()  # their acknowledgements are worth nothing any more
            self._on_lost()
        return pulled

    def _is_due(self) -> bool:
        """Tell whether a job waits only for its time to be looked into."""
        ends = self._monotonic() - self._reorder_s
        return self._monotonic() >= self._retry_at and any(job.since <= ends for job in self._jobs.values())

    def _look(self) -> None:
        if self._monotonic() < self._retry_at or not self._jobs:
            return
        due = [(job_id, job) for job_id, job in self._jobs.items() if self._is_whole(job_id, job)]
        trouble: JobEventsError | None = None
        for (job_id, job), outcome in zip(due, self._taken(due), strict=True):
            if isinstance(outcome, JobEventsError):
                trouble = outcome
                continue
            del self._jobs[job_id]
            heapq.heappush(self._held, (outcome, next(self._numbers), job.deliveries))
        if trouble is not None:
            self.error = trouble
            self._counts.add("hints_failed")
            self._retry_at = self._monotonic() + self._trouble.came(trouble)
        elif due:
            self._trouble.went()

    def _taken(self, due: list[tuple[str, _Job]]) -> Iterable[int | JobEventsError]:
        if len(due) == 1:
            return [self._take(due[0])]
        return self._pool.map(self._take, due)

    def _is_whole(self, job_id: str, job: _Job) -> bool:
        """Tell whether a job may be looked into: no message is missing before the last, or it was waited for."""
        if self._monotonic() - job.since >= self._reorder_s:
            return True
        known, last = self._inlet.inflow.taken(job_id).version, max(job.versions)
        return last - known <= len(job.versions) and job.versions.issuperset(range(known + 1, last + 1))

    def _take(self, one: tuple[str, _Job]) -> int | JobEventsError:
        """Read what the messages of a job point at, and take it; return its place in the sequence, or the store's trouble."""
        job_id, job = one
        try:
            return self._find(job_id, job)
        except JobEventsError as error:
            return error
        except RuntimeError as error:  # the pool of the store's client is shut: the service is at its end
            return Unavailable(f"cannot look into messages: {error}")

    def _find(self, job_id: str, job: _Job) -> int:
        last = max(job.versions)
        known, place = self._inlet.inflow.taken(job_id)
        if known >= last:
            return place
        told: int | None = None
        if not known and last > YOUNG:
            told = self._inlet.look(job_id).told
            known = min(told, last - 1)
        records = self._read(job_id, known, last)
        genuine = self._genuine(job, {record.version: record for record in records}, known)
        return self._inlet.take(records, hinted=genuine, told=told) if records else place

    def _read(self, job_id: str, known: int, last: int) -> list[Record]:
        """Return the events after a version up to `last`; all of them if the job was deleted since, and nobody would tell."""
        if known and self._watched(job_id):
            return read_through(self._inlet.log, job_id, last, after=known, until=last)
        records = read_through(self._inlet.log, job_id, last, after=known, until=last + 1)
        if not records or records[-1].version <= last:
            return records
        end = self._inlet.log.read_raw(job_id, after=last + 1) or records
        if end[-1].type == JobDeleted.__name__:
            return records + [record for record in end if record.version > last + 1]
        return records[:-1]

    def _genuine(self, job: _Job, records: dict[int, Record], known: int) -> set[int]:
        """Return the versions whose messages say what the log says; the others are counted."""
        genuine = set()
        for delivery in job.deliveries:
            notice = delivery.notice
            if notice is None or notice.version <= known:
                continue
            record = records.get(notice.version)
            if record is None:
                self._counts.add("notice_unfounded")
                logger.warning(
                    "message about an event that is not in the log job_id=%s version=%d", notice.job_id, notice.version
                )
            elif record.data != notice.data:
                self._counts.add("notice_forged")
                logger.warning("message differs from the log job_id=%s version=%d", notice.job_id, notice.version)
            else:
                genuine.add(notice.version)
        return genuine
