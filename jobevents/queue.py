"""The port of queues, which bring due runs to workers; what is true of a run is the store's business alone.

A queue may hand a run out again, after a crash or a lease that ran out: the guard lets one start win. It never hands out one
before it is due, and never loses one.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from jobevents.store import JobRun

LEASE_S = 30.0  # how long a crashed worker's reservations are held: as a worker's own lease

Settle: TypeAlias = Callable[[BaseException | None, float], None]
"""(error, delay_s) -> what an ack does."""


class Reservation:
    """A run handed to one worker until it is acknowledged or its lease ends. Safe for threads."""

    def __init__(self, run: JobRun, settle: Settle) -> None:
        """Hand out `run`; `settle` is called with the first acknowledgement, and must pass over one that comes too late."""
        self.run = run
        self._settle: Settle | None = settle
        self._lock = threading.Lock()

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
