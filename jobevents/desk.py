"""What a log keeps for those who work on its jobs, beside its rows: claims, pauses, what is old, an alarm, counts, an inbox."""

import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from jobevents.census import Census
from jobevents.pauses import Pauses
from jobevents.store import Retention

Group: TypeAlias = tuple[str, str]
"""Runs of one "queue", or of one kind of "job": which of both, and its name."""


class Claimed(NamedTuple):
    """A run that was claimed."""

    job_id: str
    history: Sequence[bytes] = ()  # all its events as they are stored; none: there are many, and they are to be read


class Claims(Protocol):
    """Leases on queued runs, kept beside the rows. Each call is one read or one transaction."""

    def claim(
        self,
        queues: Sequence[str],
        *,
        limit: int,
        now: datetime,
        lease_s: float,
        token: str,
        full: Collection[Group] = (),
    ) -> Sequence[Claimed]:
        """Lease up to `limit` due runs to the token, in the order of `JobQueue.reserve`: each to one token alone.

        Not those that are external, paused or claimed. Ends with the lease, by a clock that never goes back, or with the next
        event of the job.

        Args:
            queues: names of the queues to take from; none: all.
            full: what is passed over, as what is paused is.
        """
        ...

    def release(self, job_id: str, token: str, *, delay_s: float) -> None:
        """End the token's claim after a delay, and wake who waits; nothing when it has ended already."""
        ...

    def is_claimed(self, job_id: str) -> bool:
        """Tell whether somebody has a claim on the run."""
        ...

    def next_due(self, queues: Sequence[str], full: Collection[Group] = ()) -> datetime | None:
        """Return when the earliest run is due that is not claimed, nor passed over; None when there is none."""
        ...

    def waiting(self) -> int:
        """Return how many queued runs are not claimed, external ones not counted."""
        ...


class Alarm(Protocol):
    """Sets events when something was committed."""

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every commit from now on."""
        ...

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone."""
        ...


class Parcel(NamedTuple):
    """A job that was submitted in somebody's transaction, and is not in the log yet."""

    place: int  # in the inbox, rising
    job_id: str
    body: bytes  # its first event, as `codec.encode` gives it


class Inbox(Protocol):
    """Jobs submitted in the transactions of callers, until they are in the log. But for `put`, each call is a transaction."""

    def put(self, connection: object, job_id: str, body: bytes) -> None:
        """Write a job by a caller's connection, in the transaction that it has open; who waits is woken by its commit.

        Raises:
            Misconfigured: it is no connection to such a database.
            Unavailable, PermissionDenied: what the database says; whether the transaction can go on, too.
        """
        ...

    def pending(self, limit: int) -> Sequence[Parcel]:
        """Return the first committed jobs, those refused left out."""
        ...

    def drop(self, places: Sequence[int]) -> None:
        """Remove jobs that are in the log."""
        ...

    def refuse(self, place: int, why: str) -> None:
        """Keep a job that can never be in the log, with the reason; it is not pending any more."""
        ...


class Desk(NamedTuple):
    """All of it, as a recorder that keeps rows has it."""

    claims: Claims
    pauses: Pauses
    retention: Retention
    alarm: Alarm
    census: Census
    inbox: Inbox | None = None  # None: no transactions but our own
    offers: Alarm | None = None  # set off by what may make a run available, by little else; None: the alarm
