"""The queue that is the table of runs: what is written as queued is available, and a claim beside the row hands it out.

A claim is a lease, and no event: what was reserved and never begun costs no attempt. Any event of the job ends it, that of the
start above all; the guard decides on the log, so that an old claim starts nothing.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from jobevents.commands import known
from jobevents.desk import Claimed, Desk, Group
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import (
    Busy,
    Conflict,
    Corrupt,
    JobEventsError,
    KeyTaken,
    Misconfigured,
    PermissionDenied,
    QueueClosed,
    Unavailable,
)
from jobevents.events import Event, JobCanceled, JobFailed, JobRequeued, JobSucceeded
from jobevents.job import QUEUED, Job
from jobevents.queue import LEASE_S, Reservation
from jobevents.slots import FullSlots
from jobevents.store import JobRun

SOON_S = 0.05  # before a look for more where there was some, but less than asked for: those found are begun first
POLL_S = 1.0  # behaviour T7: how late a wake that got lost is at most

_ENDS = (JobSucceeded, JobFailed, JobCanceled, JobRequeued)  # of a start, among other things

logger = logging.getLogger(__name__)


class StoreQueue:
    """The queued runs of one log. Safe for threads; any number of processes may have one on the same log."""

    shares_store = True

    def __init__(
        self,
        emitter: Emitter,
        desk: Desk,
        *,
        create: Callable[[JobRun], None],
        get: Callable[[str], JobRun | None],
        drain: Callable[[], int] = lambda: 0,
        actor: str = "",
        lease_s: float = LEASE_S,
        poll_interval_s: float = POLL_S,
    ) -> None:
        """Wait for nothing yet.

        Args:
            create: stores a new run: that of the JobStore over the log.
            get: reads a run, as its row has it.
            drain: brings into the log what was submitted in transactions of callers; returns how much that was.
            actor: who removes.
            lease_s: how long a claim is held whose worker has crashed.
            poll_interval_s: how long a wait is at most until it looks again; 0 or less: the default (behaviour T7).

        Raises:
            Misconfigured: a claim would end before it began.
        """
        if lease_s <= 0:
            raise Misconfigured(f"a claim must last claim_s={lease_s}: give seconds above 0, such as {LEASE_S:g}")
        self._emitter = emitter
        self._claims = desk.claims
        self._alarm = desk.offers or desk.alarm
        self._create = create
        self._get = get
        self._drain = drain
        self._drain_at = 0.0  # monotonic seconds
        self._by = By(actor=actor, reason="removed from the queue")
        self._lease_s = lease_s
        self._poll_interval_s = poll_interval_s if poll_interval_s > 0 else POLL_S
        self._lock = threading.Lock()
        self._idle: list[_Ear] = []  # they go on listening: the next wait begins at once
        self._used: set[_Ear] = set()
        self._is_closed = False
        self._full = FullSlots()
        emitter.observe(self._noticed)

    def enqueue(self, run: JobRun) -> None:
        """Create the run if the store does not have it; nothing when it does: what is stored is available already.

        Raises:
            QueueClosed: the queue was closed.
            KeyTaken: an unfinished run holds its key. Conflict: it was deleted.
        """
        self._refuse_if_closed()
        try:
            self._create(run)
        except KeyTaken:
            raise
        except Conflict:
            if not known(self._emitter.load(run.id)):
                raise

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Claim due runs, waiting for them; see `JobQueue.reserve`.

        Woken by a commit of this process at once, by one of another as soon as the log hears of it, by a time that comes, and
        by the poll where all of that fails. An acknowledgement without an error writes nothing: the run's own events have
        ended the claim. If there were none, it ends with its lease, and the run is handed out again.
        """
        self._refuse_if_closed()
        if timeout_s is not None and timeout_s <= 0:
            return self._claim(queues, limit)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._listening() as ear:
            while True:
                if not ear.is_quiet(queues):
                    ear.woken.clear()
                    if found := self._claim(queues, limit):
                        ear.rest(queues, SOON_S if len(found) < limit else 0)
                        return found
                    ear.rest(queues, self._patience_s(queues))
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return []
                ear.wait(left_s)
                self._refuse_if_closed()

    def remove(self, job_id: str) -> bool:
        """Append JobCanceled to a queued job that nobody has claimed; False when it is not one, or not any more.

        A request to cancel made before says who and why. Who claims the run in this very moment is refused by the guard.
        """

        def decide(job: Job) -> list[Draft]:
            is_ours = job.state == QUEUED and not job.external and not self._claims.is_claimed(job_id)
            return [JobCanceled] if is_ours else []

        return bool(self._emitter.change(job_id, decide, self._by).events)

    def __len__(self) -> int:
        return self._claims.waiting()

    def close(self) -> None:
        """Wake who waits, with QueueClosed; claims end with their leases."""
        with self._lock:
            self._is_closed = True
            ears, self._idle = [*self._idle, *self._used], []
        for ear in ears:
            self._alarm.unlisten(ear.woken)
            ear.woken.set()

    def _claim(self, queues: Sequence[str], limit: int) -> list[Reservation]:
        left, full, were = self._full.look()
        found = self._claim_but(full, queues, min(left, limit) or limit)
        if left:
            self._full.claimed(found)
        if left and len(found) < limit:
            with suppress(JobEventsError):  # who claims next meets it; what was found is handed out
                found += self._claim_but(were, queues, limit - len(found))
        return found

    def _claim_but(self, full: Sequence[Group], queues: Sequence[str], limit: int) -> list[Reservation]:
        token, since = os.urandom(8).hex(), time.monotonic()
        now = self._emitter.clock()
        claim = partial(self._claims.claim, queues, limit=limit, now=now, lease_s=self._lease_s, token=token, full=full)
        has_looked = time.monotonic() >= self._drain_at  # a backlog must not hide what was just submitted
        if has_looked:
            self._look_in()
        claimed = claim()
        if not claimed and not has_looked and self._look_in():
            claimed = claim()
        return self._read(claimed, token, since)

    def _read(self, claimed: Sequence[Claimed], token: str, since: float) -> list[Reservation]:
        """Return the claimed runs; what is the matter with one of them holds up no other.

        One that is unreadable keeps its claim: it is looked at again when that ends. While the log is away, those that need it
        are given back.

        Raises:
            Unavailable, PermissionDenied: none of them could be read.
        """
        reservations: list[Reservation] = []
        for place, (job_id, history) in enumerate(claimed):
            try:
                run = self._emitter.learn(job_id, history) or self._get(job_id)
            except Corrupt as error:
                logger.warning("a run is passed over, as it is unreadable job_id=%s error=%s", job_id, error)
                continue
            except (Unavailable, PermissionDenied):
                with suppress(JobEventsError):  # else their claims end by themselves
                    for unread, _ in claimed[place:]:
                        self._claims.release(unread, token, delay_s=0)
                if not reservations:
                    raise
                return reservations
            if run is not None:  # else it is not there any more
                reservations.append(Reservation(run, partial(self._settle, job_id, token, since)))
        return reservations

    def _settle(self, job_id: str, token: str, since: float, error: BaseException | None, delay_s: float) -> None:
        if error is not None:
            if isinstance(error, Busy):  # not this run alone is to wait, and it keeps its place
                self._full.add(error, delay_s, since)
                delay_s = 0
            self._claims.release(job_id, token, delay_s=delay_s)

    def _noticed(self, job: Job, events: Sequence[Event]) -> None:
        """Look again for what was full, when one of its jobs has ended here: an observer."""
        if events and isinstance(events[-1], _ENDS) and self._full.ended(job):
            with self._lock:
                ears = [*self._idle, *self._used]
            for ear in ears:
                ear.woken.set()

    def _look_in(self) -> int:
        self._drain_at = time.monotonic() + self._poll_interval_s
        return self._drain()

    def _patience_s(self, queues: Sequence[str]) -> float:
        full, left_s = self._full.now()
        due = self._claims.next_due(queues, full)
        until_due = self._poll_interval_s if due is None else (due - self._emitter.clock()).total_seconds()
        return max(0.0, min(until_due, left_s, self._poll_interval_s))

    @contextmanager
    def _listening(self) -> "Iterator[_Ear]":
        """Lend an ear for what is committed, and for the close."""
        with self._lock:
            listens = bool(self._idle)
            ear = self._idle.pop() if listens else _Ear()
            self._used.add(ear)
        try:
            if not listens:
                self._alarm.listen(ear.woken)
            yield ear
        finally:
            with self._lock:
                self._used.discard(ear)
                if not self._is_closed:
                    self._idle.append(ear)
            if self._is_closed:
                self._alarm.unlisten(ear.woken)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")


class _Ear:
    """What one who waits has heard, and knows from before: of a wait that ended with nothing, the next is the rest."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self._queues: tuple[str, ...] = ()
        self._until = -math.inf  # monotonic seconds at which to look again

    def is_quiet(self, queues: Sequence[str]) -> bool:
        """Tell whether there was nothing in these queues, and nothing has come since."""
        return not self.woken.is_set() and time.monotonic() < self._until and self._queues == tuple(queues)

    def rest(self, queues: Sequence[str], patience_s: float) -> None:
        """Note that they have nothing more, and for how long that is to be believed."""
        self._queues, self._until = tuple(queues), time.monotonic() + patience_s

    def wait(self, timeout_s: float) -> None:
        """Wait until something comes, or it is time to look again."""
        self.woken.wait(min(timeout_s, self._until - time.monotonic()))
