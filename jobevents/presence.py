"""This process among the workers of a log: the leases that say it lives, and its judgement of which others do not.

Its leases are renewed by a thread of its own, which neither a busy handler nor a blocked event loop holds up, and before a
start when that thread was held up all the same: a throttled container is frozen between two requests.
"""

import logging
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import NamedTuple

import msgspec

from jobevents.boundary import describe
from jobevents.errors import Misconfigured, Unavailable
from jobevents.pulse import Pulse
from jobevents.store import Held
from jobevents.telemetry import Counts
from jobevents.trouble import traced
from jobevents.workers import BEATS, LEASE_S, Lease, Leases, Sighting, new_identity

IDLE_NAMES = 8  # identities without an attempt that keep their lease: a caller may name each of its requests a worker
OVERDUE = "the deadline has passed"  # what the reason begins with where it was that
SHORTEST_S, LONGEST_S = 0.1, 86_400.0  # a lease

logger = logging.getLogger(__name__)


class Loss(NamedTuple):
    """How a worker has lost a job."""

    why: str  # for people, and the reason of the event that gives the job back
    unseen_s: float | None = None  # since the worker's last sign of life; None: not known, or not asked


class _Own(msgspec.Struct):
    """One identity of this process."""

    lease: Lease
    renewed: float = -math.inf  # when its last renewal that landed was begun, monotonic
    running: list[str] = []  # jobs it has an attempt of, one entry each
    last_used: int = 0  # place in the order of use


class _Life:
    """What is of one process alone: a forked child has its own, with locks that no thread of its parent holds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # what is here; never held over a call of the store
        self.renewing = threading.Lock()  # one renewal after the other
        self.names: dict[str, _Own] = {}  # label -> identity
        self.uses = 0
        self.troubled = -math.inf  # when a renewal last failed, or took so long that others may have failed, monotonic
        self.is_failing = False  # so that trouble is logged once
        self.is_closed = False
        self.pulses: list[Pulse] = []


class Presence:
    """Begins and renews this process's leases, and says which workers are gone. Safe for threads and over forks."""

    def __init__(
        self,
        leases: Leases,
        *,
        clock: Callable[[], datetime],
        counts: Counts,
        lease_s: float = LEASE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin nothing yet: no lease, no thread.

        Args:
            clock: aware UTC now; only shown.
            lease_s: how long a lease lives without a renewal, 0.1 s to a day.

        Raises:
            Misconfigured: `lease_s` is outside of that.
        """
        if not SHORTEST_S <= lease_s <= LONGEST_S:
            raise Misconfigured(f"lease_s must be seconds from {SHORTEST_S:g} to {LONGEST_S:g} value={lease_s!r}")
        self.lease_s = lease_s
        self.leases = leases
        self._clock = clock
        self._counts = counts
        self.monotonic = monotonic
        self._lives: dict[int, _Life] = {}  # by process id, since only setdefault makes one for two threads at once
        self._companions: list[Callable[[], Pulse]] = []

    @property
    def _life(self) -> _Life:
        pid = os.getpid()
        return self._lives.get(pid) or self._lives.setdefault(pid, _Life())

    def accompany(self, make: Callable[[], Pulse]) -> None:
        """Have another thread run for as long as that which renews the leases: from the first attempt to the close."""
        self._companions.append(make)

    def enter(self, job_id: str, label: str = "") -> str:
        """Note an attempt at a job, and return who works: one identity for each process and label, by default the host's name.

        It is under way until `leave`: until then this process never takes it for lost.
        """
        life = self._life
        with life.lock:
            own = self._own(life, label)
            own.running.append(job_id)
        return own.lease.worker

    def vouch(self, label: str = "") -> None:
        """See to it that the lease is young, before a start is asked for; costs a write when the thread was held up.

        Raises:
            Unavailable, PermissionDenied: it cannot be renewed, and nothing must be started under it.
        """
        life = self._life
        known = life.names.get(label)
        if known is not None and life.pulses and self.monotonic() - known.renewed <= self.lease_s / 2:
            return
        with life.lock:
            if life.is_closed:
                raise Unavailable("jobs are closed: they were closed in this process; connect again")
            own = self._own(life, label)
        if self.monotonic() - own.renewed > self.lease_s / 2:  # the thread renews in a third
            self._renew(life, own)
        self._start(life)

    def leave(self, job_id: str, label: str = "") -> None:
        """Note the end of an attempt; nothing when it was begun before a fork."""
        life = self._life
        with life.lock:
            own = life.names.get(label)
            if own is not None and job_id in own.running:
                own.running.remove(job_id)

    @property
    def judges(self) -> bool:
        """Tell whether a lease that ran out is held against its owner.

        Not while renewals of our own fail, nor for one lease after: when the store was away, all leases are old.
        """
        return self.monotonic() - self._life.troubled >= self.lease_s

    def lost(self, held: Collection[Held], *, asking: str = "") -> dict[str, Loss]:
        """Return job id -> how, for those of the running jobs whose worker has lost them; a job without a worker is none.

        Costs one look at the leases when a job is another process's and this one `judges`.

        Args:
            asking: our identity, when an attempt that it has entered asks for the job: that one does not run it yet.
        """
        life = self._life
        with life.lock:
            running = {own.lease.worker: Counter(own.running) for own in life.names.values()}
        others = {one.worker for one in held if one.worker and one.worker not in running}
        judges = self.judges
        seen = self.leases.look(others) if others and judges else {}
        found = {}
        for one in held:
            if one.is_overdue:
                found[one.job_id] = Loss(f"{OVERDUE} worker={one.worker}")
            elif one.worker in running:
                if running[one.worker][one.job_id] <= (one.worker == asking):
                    why = f"the attempt ended and its outcome could not be recorded worker={one.worker}"
                    found[one.job_id] = Loss(why)
            elif one.worker and judges and (loss := _death(one.worker, seen)):
                found[one.job_id] = loss
        return found

    def beat(self) -> float:
        """Renew all leases, let go of names that are not used any more, and return the seconds until the next beat."""
        life = self._life
        with life.lock:
            idle = sorted((own for own in life.names.values() if not own.running), key=lambda own: -own.last_used)
            for own in idle[IDLE_NAMES:]:
                life.names = {label: kept for label, kept in life.names.items() if kept is not own}
            names = list(life.names.values())
        try:
            for own in idle[IDLE_NAMES:]:
                self.leases.drop(own.lease.worker)
            for own in names:
                self._renew(life, own)
        except Exception as error:  # noqa: BLE001  # a thread that ends here would be the death of living work
            self._warn(life, error)
            return self.lease_s / (4 * BEATS)
        if life.is_failing:
            life.is_failing = False
            logger.info("this process renews its lease again, and lives on")
        return self.lease_s / BEATS

    def close(self) -> None:
        """End the threads and drop the leases that no attempt is under way with; any number of times.

        The lease of one that goes on runs out, and its job is taken for lost: what it came to cannot be recorded any more.
        """
        life = self._life
        with life.lock:
            life.is_closed = True
            pulses, life.pulses = life.pulses, []
        for pulse in pulses:
            pulse.stop()
        with life.lock:
            done = [own for own in life.names.values() if not own.running]
            life.names = {label: own for label, own in life.names.items() if own.running}
        try:
            for own in done:
                self.leases.drop(own.lease.worker)
        except Exception as error:  # noqa: BLE001  # as above; the lease runs out by itself
            self._warn(life, error)

    def _own(self, life: _Life, label: str) -> _Own:
        own = life.names.get(label)
        if own is None:
            host = socket.gethostname()
            lease = Lease(
                worker=new_identity(label or host),
                host=host,
                pid=os.getpid(),
                started_at=self._clock(),
                version=version("jobevents"),
                lease_s=self.lease_s,
            )
            own = life.names[label] = _Own(lease)
        life.uses += 1
        own.last_used = life.uses
        return own

    def _renew(self, life: _Life, own: _Own) -> None:
        with life.renewing:
            began = self.monotonic()
            try:
                self.leases.renew(own.lease)
            except BaseException:
                life.troubled = self.monotonic()
                raise
            own.renewed = began
            if self.monotonic() - began > self.lease_s / BEATS:
                life.troubled = self.monotonic()

    def _start(self, life: _Life) -> None:
        with life.lock:
            if life.pulses or life.is_closed:
                return
            life.pulses = [Pulse("jobevents-lease", self.beat, self.lease_s / BEATS)]
            life.pulses += [make() for make in self._companions]
            for pulse in life.pulses:
                pulse.start()

    def _warn(self, life: _Life, error: Exception) -> None:
        self._counts.add("lease_renewals_failed")
        if not life.is_failing:
            life.is_failing = True
            logger.warning(
                "this process cannot renew its lease and tries again; %g s after the last renewal others take its jobs for lost "
                "error=%s",
                self.lease_s,
                describe(error),
                exc_info=traced(error),
            )


def _death(worker: str, seen: Mapping[str, Sighting]) -> Loss | None:
    """Return how a worker counts as dead; None while it lives."""
    sighting = seen.get(worker)
    if sighting is None:
        return Loss(f"the worker has no lease worker={worker}")
    if sighting.is_alive:
        return None
    if math.isinf(sighting.age_s):
        return Loss(f"the machine was started again since the worker lived worker={worker}")
    age_s, lease_s = sighting.age_s, sighting.lease.lease_s
    return Loss(f"the worker was last seen {age_s:.0f} s ago worker={worker} lease_s={lease_s:g}", age_s)
