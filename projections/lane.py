"""One view in the projector's loop: what it has been given, what it has stored, what is parked for it, and its troubles."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from jobevents.blobs import Blobs
from jobevents.errors import Corrupt, JobEventsError, PermissionDenied, Unavailable
from jobevents.job import NEW, Job
from jobevents.log import Record
from jobevents.telemetry import Counts
from projections.folding import Batch, Folded, Folder
from projections.health import Health, HealthRecord
from projections.parked import ParkedJobs
from projections.recovery import Recovery
from projections.view import Feed, Unstorable, View

logger = logging.getLogger(__name__)

HELD_S = 0.5  # while more waits in the log, flushes are so far apart: a job's states in between are one write
HELD_EVENTS = 10_000  # or so many places in the log: 4 MB of jobs
STANDBY_S = 1.0  # between two looks at another's lease: a read, and it may be given up at any time
TRIES = 3  # of a job that a view cannot take


class Lease(Protocol):
    """The claim of this process to project into a view; see `jobevents.lease`."""

    beat_s: float

    def hold(self) -> bool:
        """Take the role or keep it; tell whether it is ours until the next beat."""
        ...

    def release(self) -> None:
        """Give the role up."""
        ...


class Lane:
    """A view on its way along the log. For one thread; no error of a store leaves it, but for `Recovery` to judge."""

    def __init__(
        self,
        view: View,
        *,
        log: Feed,
        folder: Folder,
        blobs: Blobs,
        prefix: str,
        lease: Lease | None,
        holder: str,
        counts: Counts,
        look_every_s: float,
        health_every_s: float,
        clock: Callable[[], datetime],
        complete_through: Callable[[], datetime | None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.view = view
        self.taken = 0  # position up to which the view was given everything
        self.stored = 0  # position up to which the view says that it has stored everything
        self.recovery = Recovery(f"the view {view.name}", counts, monotonic=monotonic)
        self.is_active = False  # joined, and ours by lease
        self.parked = ParkedJobs(blobs, prefix, view.name, clock=clock)
        self.health = HealthRecord(
            blobs, prefix, view.name, holder=holder, clock=clock, complete_through=complete_through
        )
        self._log = log
        self._folder = folder
        self._counts = counts
        self._monotonic = monotonic
        self._lease = lease
        self._beat_at = 0.0
        self._is_ours = lease is None
        self._is_joined = False
        self._look_every_s = look_every_s
        self._look_at = 0.0
        self._health_every_s = health_every_s
        self._health_at = 0.0
        self._again: set[str] = set()  # jobs to be folded anew for this view
        self._flushed_at = 0.0
        self._owed: deque[tuple[Record, Exception]] = deque()  # given up by the view, and not parked yet

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do some work; tell whether it went well. After an error that is not passing, the view starts from what is stored."""
        try:
            work()
        except JobEventsError as error:
            if not isinstance(error, Unavailable):
                self._is_joined = self.is_active = False
            self.recovery.failed(error)
            return False
        return True

    def prepare(self, *, leased: bool = True) -> bool:
        """Tell whether the lane may work now: not held up, ours by lease, joined, and parked jobs looked at when it is time."""
        return self.recovery.wait_s <= 0 and self.attempt(lambda: self._prepare(leased)) and self.is_active

    def check_log(self) -> None:
        """Make sure that the log has what the view was given: one read.

        Raises:
            Corrupt: it ends before that, so that what is written next would be taken for known.
        """
        head = int(self._log.last_cursor() or 0)
        if self.taken > head:
            self._folder.forget()
            raise Corrupt(
                f"view is ahead of the log view={self.view.name} position={self.taken} head={head}: "
                "was the log replaced by an older copy? make the views anew with: jobevents rebuild"
            )

    def take(self, batch: Batch) -> None:
        """Give the view what is new to it in the batch, and park what cannot be folded.

        Raises:
            Unavailable, PermissionDenied, Corrupt: nothing counts as taken; take the batch again.
        """
        if batch.position <= self.taken:
            return
        if any(job_id in self.parked.waiting for job_id in batch.by_job):
            self._look()  # after the events were read: what was requeued since then is folded with them
        jobs = []
        for job_id in batch.by_job:
            if job_id in self.parked.waiting:
                continue
            folded = None if job_id in self.parked.discarded else batch.folded(job_id)
            if folded is not None and folded.poison is not None and not self._park(*folded.poison):
                folded = None
            job = self._settled(job_id, folded)
            if job is not None:
                jobs.append(job)
        self._give(jobs, batch.position)
        self.taken = batch.position

    def may_hold(self) -> bool:
        """Tell whether what was taken may be held back a little, since more of the log is to follow at once."""
        return self._monotonic() - self._flushed_at < HELD_S and self.taken - self.stored < HELD_EVENTS

    def flush(self, *, everything: bool = False) -> None:
        """Have the view store what is due, and park what it gives up.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Conflict: what the view says; flush again.
        """
        while True:
            while self._owed:
                self._park(*self._owed[0])
                self._owed.popleft()
            try:
                self.stored = self.view.flush(everything=everything)
            except Unstorable as error:
                self._owed.append((self._record_of(error.job_id, error.version), error.cause))
                continue
            break
        self.taken = max(self.taken, self.stored)
        self._flushed_at = self._monotonic()
        self.recovery.succeeded()

    def wait_s(self) -> float:
        """Return in how many seconds the lane has something to do by itself."""
        if self.recovery.wait_s:
            return self.recovery.wait_s
        now = self._monotonic()
        waits = [self._beat_at - now] if self._lease is not None else []
        if self.is_active:
            waits += [self._look_at - now, self._health_at - now]
            flush_s = self.view.next_flush_s()
            waits += [] if flush_s is None else [flush_s]
        return max(0.0, min(waits, default=0.0))

    def report(self, *, now: bool = False) -> None:
        """Write the lane's health when it is time, or now.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        if now or self._monotonic() >= self._health_at:
            self.health.write(self.measure())
            self._health_at = self._monotonic() + self._health_every_s

    def measure(self) -> Health:
        """Return how the view is now.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        parked = len(self.parked.waiting)
        return self.health.measure(self._log, self.stored, parked=parked, error=self.recovery.error)

    def leave(self) -> None:
        """Give the lease up, so that another projector may go on at once.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        if self._lease is not None:
            self._lease.release()
        self.is_active = self._is_joined = False

    def _prepare(self, leased: bool) -> None:
        now = self._monotonic()
        if leased and self._lease is not None and now >= self._beat_at:
            self._is_ours = self._lease.hold()
            self._beat_at = now + (self._lease.beat_s if self._is_ours else min(self._lease.beat_s, STANDBY_S))
        if leased and not self._is_ours:
            self.is_active = self._is_joined = False
            return
        if not self._is_joined:
            self.taken = self.stored = self.view.position()
            self.check_log()
            self._is_joined = self.is_active = True
            self._look_at = now
        if now >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Look at the parked jobs, and give the view those that a person wants it to have."""
        self._again |= self.parked.look()
        self._look_at = self._monotonic() + self._look_every_s
        if not self._again:
            return
        found = [self._settled(job_id) for job_id in sorted(self._again)]
        self._give([job for job in found if job is not None], self.taken)
        self.flush(everything=True)
        for job_id in self._again:
            self.parked.settle(job_id)
        self._again.clear()

    def _settled(self, job_id: str, folded: Folded | None = None) -> Job | None:
        """Return the job as the view should have it; park it at the event at which it cannot be folded on.

        Args:
            folded: the job with all its events; None: fold it from the log, without what was discarded for this view.
        """
        while folded is None:
            folded = self._folder.refold(job_id, without=self.parked.discarded.get(job_id, ()))
            poison = folded.poison
            if poison is not None and not self._park(poison.record, poison.error):
                folded = None
        return folded.job if folded.job.version and folded.job.state != NEW else None

    def _give(self, jobs: Sequence[Job], position: int) -> None:
        """Give the view jobs; those that it cannot take, one by one, are parked."""
        try:
            self.view.take(jobs, position)
        except (Unavailable, PermissionDenied):
            raise
        except Exception:  # noqa: BLE001  # whatever it is, it is found again job by job
            for job in jobs:
                self._give_alone(job)
            self.view.take((), position)

    def _give_alone(self, job: Job) -> None:
        for tries_left in reversed(range(TRIES)):
            try:
                self.view.take([job], self.taken)
                return
            except (Unavailable, PermissionDenied):
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, the job is parked with it
                if not tries_left:
                    self._park(self._record_of(job.job_id, job.version), error)

    def _park(self, record: Record, error: Exception) -> bool:
        """Park a job at one of its events; False when that was discarded before, so that the job is folded again."""
        if not self.parked.park(record, error):
            self._again.add(record.job_id)
            return False
        self._counts.add("parked")
        logger.error(
            "a job is parked: the view goes on without its events from here on, see jobevents parked list "
            "view=%s job_id=%s version=%d error=%s: %s",
            self.view.name,
            record.job_id,
            record.version,
            type(error).__name__,
            error,
        )
        return True

    def _record_of(self, job_id: str, version: int) -> Record:
        stored = (record for record in self._log.read_raw(job_id) if record.version == version)
        return next(stored, Record("", job_id, version, "", b""))
