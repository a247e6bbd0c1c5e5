"""Who works, and who still lives: a worker's identity, its lease, and the port `Leases` by which others judge it.

A worker is one start of a process: restarted under the same name at once, it is another one. It renews its lease for as
long as it lives; a lease that was not renewed for `lease_s` is dead, by a clock that all who use the store have in common.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

LEASE_S = 30.0  # how long a dead worker's jobs stay `running`, and how long a living one may be stopped: a trade
BEATS = 3  # renewals in the life of a lease: two may fail
LABEL_LIMIT = (
    64  # characters of a host name or `worker=` that an identity keeps: with pid and random part under 255 bytes
)


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself with each renewal."""

    worker: str  # its identity
    host: str  # name of the machine or container
    pid: int  # process id there
    started_at: datetime  # when it began to work, by its own clock: shown, never compared
    version: str  # of jobevents
    lease_s: float  # how long it lives without a renewal


class Sighting(msgspec.Struct, frozen=True):
    """A lease as it was found."""

    lease: Lease
    age_s: float  # since it was renewed, by the store's clock; inf: before the machine was last started

    @property
    def is_alive(self) -> bool:
        """Tell whether the lease has not run out."""
        return self.age_s < self.lease.lease_s


class Leases(Protocol):
    """The leases of all workers of one log. Safe for threads; any method may raise Unavailable or PermissionDenied."""

    def renew(self, lease: Lease) -> None:
        """Begin the lease or make it young again: one write."""
        ...

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        """Return the leases of those workers that have one, alive or dead."""
        ...

    def list(self) -> Sequence[Sighting]:
        """Return every lease there is, by identity; what cannot be read is nobody's lease."""
        ...

    def drop(self, worker: str, *, if_dead: bool = False) -> bool:
        """Remove a lease; False when there is none, or `if_dead` and it was renewed in time, even this instant."""
        ...


def new_identity(label: str) -> str:
    """Return an identity that no worker has had before: `{label}-{pid}-{random}`."""
    kept = label.encode()[: 3 * LABEL_LIMIT].decode(errors="ignore")[:LABEL_LIMIT]
    return f"{kept}-{os.getpid()}-{os.urandom(4).hex()}"


def identity() -> str:
    """Return this process's identity under its host's name: the same until it ends, never that of another start."""
    return _identities.setdefault(os.getpid(), new_identity(socket.gethostname()))  # a forked child has one of its own


_identities: dict[int, str] = {}


class MemoryLeases:
    """The leases of workers in this process's memory, aged by its monotonic clock."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[Lease, float]] = {}

    def renew(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease.worker] = lease, self._monotonic()

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        return {one.lease.worker: one for one in self.list() if one.lease.worker in workers}

    def list(self) -> Sequence[Sighting]:
        now = self._monotonic()
        with self._lock:
            return [Sighting(lease, now - renewed) for _, (lease, renewed) in sorted(self._leases.items())]

    def drop(self, worker: str, *, if_dead: bool = False) -> bool:
        with self._lock:
            lease, renewed = self._leases.get(worker, (None, math.inf))
            if lease is None or (if_dead and self._monotonic() - renewed < lease.lease_s):
                return False
            del self._leases[worker]
        return True
