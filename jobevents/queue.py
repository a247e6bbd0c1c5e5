"""The port of queues, which bring due runs to workers; what is true of a run is the store's business alone.

A queue may hand a run out again, after a crash or a lease that ran out: the guard lets one start win. It never hands out one
before it is due, and never loses one.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Protocol, TypeAlias

from jobevents.boundary import check_instant
from jobevents.errors import QueueClosed
from jobevents.job import Job
from jobevents.store import JobRun, own_run_of
from jobevents.waiting import Entry, Waiting

LEASE_S = 30.0  # how long a crashed worker's reservations are held: as a worker's own lease
PATIENCE_S = 1.0  # looks at the clock again after this, which may have been set

Settle: TypeAlias = Callable[[BaseException | None, float], None]
"""(error, delay_s) -> what an ack does."""


class Reservation:
    """A run handed to one worker until it is acknowledged or its lease ends. Safe for threads."""

    def __init__(self, run: JobRun | Job, settle: Settle) -> None:
        """Hand out `run`, of which a Job tells, too; `settle` is called with the first acknowledgement.

        It must pass over one that comes too late.
        """
        self._run = run
        if isinstance(run, Job):
            self.job_id, self.job_name, self.queue = run.job_id, run.name, run.queue
        else:
            self.job_id, self.job_name, self.queue = run.id, run.job_name, run.queue
        self._settle: Settle | None = settle
        self._lock = threading.Lock()

    @cached_property
    def run(self) -> JobRun:
        """The run, the caller's own copy."""
        return own_run_of(self._run) if isinstance(self._run, Job) else self._run

    def ack(self, error: BaseException | None = None, *, delay_s: float = 0.0) -> None:
        """Say that the run was dealt with, or with an error that it was not and is to be handed out again; always to be called.

        Only the first call counts, and one after the lease has ended changes nothing.

        Args:
            error: None: what the run came to is in the store already. Else: why it was not handled.
            delay_s: seconds before it is handed out again.

        Raises:
            Unavailable, PermissionDenied: what the queue says; the lease ends by itself.
        """
        with self._lock:
            settle, self._settle = self._settle, None
        if settle is not None:
            settle(error, delay_s)


class JobQueue(Protocol):
    """Brings due runs to workers. Safe for threads; any method may raise Unavailable or PermissionDenied."""

    shares_store: bool
    """It hands out what the store says is queued: writing a run makes it available, and `enqueue` afterwards does nothing."""

    def enqueue(self, run: JobRun) -> None:
        """Make a run available from its `scheduled_at` on; a run that waits already waits once.

        Raises:
            QueueClosed: the queue was closed.
        """
        ...

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Wait until runs are due, and return up to `limit`, each reserved for this caller alone.

        Of those due the highest priority goes first, then the earliest `scheduled_at`, then who was enqueued first.

        Args:
            queues: names of the queues to take from; none: all.
            timeout_s: return no runs after so long; 0: do not wait; None: wait for ever.

        Raises:
            QueueClosed: the queue was closed, before or while waiting.
        """
        ...

    def remove(self, job_id: str) -> bool:
        """Take out a run that nobody has reserved, so that nobody will; True if it did: how a run is canceled unstarted."""
        ...

    def __len__(self) -> int:
        """Return how many wait to be handed out, those not yet due among them."""
        ...

    def close(self) -> None:
        """Hand out no more, and wake who waits; any number of times."""
        ...


class MemoryQueue:
    """Runs in this process's memory, for any number of threads; they are lost with it.

    What is reserved and never acknowledged is handed out again after `lease_s`. Nothing renews it: acknowledge a run when its
    start is in the store, or bear that it is handed out while it runs, and refused by the guard.
    """

    shares_store = False
    is_durable = False

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        lease_s: float = LEASE_S,
    ) -> None:
        """Hold nothing yet.

        Args:
            clock: aware UTC now, which says what is due.
            monotonic: seconds, by which leases end.
            lease_s: how long a reservation is held that nobody acknowledges.
        """
        self._clock = clock
        self._monotonic = monotonic
        self._lease_s = lease_s
        self._changed = threading.Condition()
        self._waiting: Waiting[JobRun] = Waiting()
        self._places = itertools.count()
        self._is_closed = False

    def enqueue(self, run: JobRun) -> None:
        """Have a run wait; one that waits already is replaced and keeps its place among its equals."""
        with self._changed:
            self._refuse_if_closed()
            known = self._waiting.find(run.id)
            place = next(self._places) if known is None else known.place
            due = check_instant("scheduled_at", run.scheduled_at)
            self._waiting.put(run.id, Entry(run, run.queue, run.job_name, run.priority, due, place))
            self._changed.notify_all()

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Wait for due runs; see `JobQueue.reserve`. Woken by what happens here, by a time that comes, by nothing else."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        token = os.urandom(8).hex()
        with self._changed:
            while True:
                self._refuse_if_closed()
                taken = self._waiting.take(
                    queues,
                    limit,
                    lambda _queue, _job_name: True,
                    now=self._clock(),
                    tick=self._monotonic(),
                    lease_s=self._lease_s,
                    token=token,
                )
                if taken:
                    return [Reservation(entry.item, partial(self._settle, entry.item.id, token)) for entry in taken]
                left = PATIENCE_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(min(left, self._patience_s()))

    def remove(self, job_id: str) -> bool:
        """Take out a run that nobody holds; who holds one keeps it."""
        with self._changed:
            self._waiting.expire(self._monotonic())
            return self._waiting.find(job_id) is not None and self._waiting.drop(job_id) is not None

    def __len__(self) -> int:
        with self._changed:
            self._waiting.expire(self._monotonic())
            return len(self._waiting)

    def close(self) -> None:
        """Wake who waits, with QueueClosed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _settle(self, job_id: str, token: str, error: BaseException | None, delay_s: float) -> None:
        with self._changed:
            if error is None:
                self._waiting.settle(job_id, token)
            else:
                self._waiting.release(job_id, token, tick=self._monotonic(), delay_s=delay_s)
                self._changed.notify_all()

    def _patience_s(self) -> float:
        """Return the seconds until a time comes at which there may be something to hand out; no more than PATIENCE_S."""
        due, end = self._waiting.next_due(), self._waiting.next_end()
        until_due = PATIENCE_S if due is None else (due - self._clock()).total_seconds()
        until_end = PATIENCE_S if end is None else end - self._monotonic()
        return max(0.0, min(until_due, until_end, PATIENCE_S))

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")
