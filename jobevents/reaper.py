"""The reaper: gives the jobs of dead workers back, so that none stays `running` for ever."""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec

from jobevents.blobs import Blobs
from jobevents.duty import Duty
from jobevents.emit import By, Draft, Emitter
from jobevents.errors import AppendUnknown, JobEventsError, PermissionDenied, Unavailable
from jobevents.events import JobCanceled, JobFailed, JobRequeued
from jobevents.job import CANCELED, FAILED, QUEUED, RUNNING, Job
from jobevents.presence import Presence
from jobevents.pulse import Pulse
from jobevents.store import Held, RunTable
from jobevents.telemetry import Counts
from jobevents.workers import Leases

ACTOR = "reaper"
ROLE = "reaper"  # name of the lease by which one process at a time does it
PAGE = 500  # running jobs in one read

_STORE_TROUBLE = (Unavailable, AppendUnknown, PermissionDenied)

logger = logging.getLogger(__name__)
_BECAME = {
    QUEUED: "it is queued for its next try",
    FAILED: "it has failed, as no try was left",
    CANCELED: "it is canceled, as was asked for before",
}


class Reaped(msgspec.Struct):
    """What one pass came to."""

    requeued: int = 0  # wait for their next try
    failed: int = 0  # had no try left
    canceled: int = 0  # somebody had asked for it
    set_aside: int = 0  # cannot be read: left as they are
    leases_dropped: int = 0  # of workers that are dead and hold nothing


class WorkerSeen(msgspec.Struct, frozen=True):
    """A worker as the others see it, and what it holds."""

    worker: str  # its identity
    is_alive: bool
    jobs: list[str]  # ids of the running jobs it holds, sorted
    last_seen_s: float | None = None  # seconds since its lease was renewed; None: no lease, or of an earlier boot
    lease_s: float | None = None  # how long that lives; None: no lease
    host: str = ""
    pid: int = 0
    started_at: datetime | None = None
    version: str = ""  # of jobevents


class Reaper:
    """Passes over the running jobs. Two at once are safe: each job is one append, decided on its state as of then."""

    def __init__(
        self, emitter: Emitter, runs: RunTable, presence: Presence, counts: Counts, *, blobs: Blobs, prefix: str = ""
    ) -> None:
        """Do nothing yet; `blobs` are where the role lies by which one process at a time reaps."""
        self._emitter = emitter
        self._runs = runs
        self._presence = presence
        self._counts = counts
        self._duty = Duty(
            ROLE,
            interval_s=presence.lease_s / 2,
            blobs=blobs,
            prefix=prefix,
            counts=counts,
            monotonic=presence.monotonic,
        )
        self._aside: set[str] = set()  # set aside in the last pass, and logged

    def reap(self) -> Reaped:
        """Give back every running job whose worker is dead or whose deadline has passed; see `_decide` for what it becomes.

        One read a page of running jobs, a look at its workers, and one append for each lost job: killed in the middle, it
        leaves nothing undone that the next pass does not do. A job that cannot be read is set aside, the rest goes on.

        Raises:
            Unavailable, AppendUnknown, PermissionDenied: what the store says; what was given back until then stays so.
        """
        done = Reaped()
        aside: set[str] = set()
        last = ""
        while page := self._runs.running(after=last, limit=PAGE, now=self._emitter.clock()):
            last = page[-1].job_id
            lost = self._presence.lost(page)
            for held in page:
                if held.job_id in lost:
                    self._give_back(held, lost[held.job_id].why, done, aside)
        self._aside = aside
        done.set_aside = len(aside)
        done.leases_dropped = self._drop_dead()
        return done

    def pulse(self) -> Pulse:
        """Return a thread that makes the passes, not started yet."""
        return Pulse("jobevents-reaper", self.beat, self._duty.interval_s)

    def beat(self) -> float:
        """Make a pass if this process has the role, and return the seconds until the next."""
        return self._duty.beat(self.reap)

    def resign(self) -> None:
        """Let another process have the role at once."""
        self._duty.resign()

    def _give_back(self, held: Held, why: str, done: Reaped, aside: set[str]) -> None:
        try:
            change = self._emitter.change(held.job_id, partial(_decide, held, why), By(actor=ACTOR, reason=why))
        except _STORE_TROUBLE:
            raise
        except JobEventsError as error:
            aside.add(held.job_id)
            if held.job_id not in self._aside:
                self._counts.add("lost_jobs_set_aside")
                logger.warning(
                    "a lost job cannot be given back and is left as it is job_id=%s error=%s", held.job_id, error
                )
            return
        if not change.events:
            return
        state = change.job.state
        done.requeued += state == QUEUED
        done.failed += state == FAILED
        done.canceled += state == CANCELED
        self._counts.add(f"lost_jobs_{state}")
        logger.warning(
            "a job was lost: %s job_id=%s why=%s", _BECAME.get(state, f"it is {state} now"), held.job_id, why
        )

    def _drop_dead(self) -> int:
        """Remove the leases of dead workers: what they held is given back."""
        if not self._presence.judges:
            return 0
        leases = self._presence.leases
        dead = [one.lease.worker for one in leases.list() if not one.is_alive]
        return sum(leases.drop(worker, if_dead=True) for worker in dead)


def _decide(held: Held, why: str, job: Job) -> Sequence[Draft]:
    """Return what becomes of a lost job: canceled if that was asked for, queued while it has a try left, else failed.

    A start that was asserted is left alone: whoever asserted it has no lease with us, and may work still.
    A job that the user's own task queue delivers waits in any case: how often it is tried is that queue's affair.
    """
    if job.state != RUNNING or job.start != held.start or job.said_to_run:
        return []
    if job.cancel_requested_at is not None:
        return [partial(JobCanceled, start=job.start)]
    if job.external or job.attempt < job.max_attempts:
        return [partial(JobRequeued, cause="lost", start=job.start)]
    return [partial(JobFailed, start=job.start, error=f"the worker was lost: {why}", kind="WorkerLost")]


def roster(leases: Leases, runs: RunTable, now: datetime) -> list[WorkerSeen]:
    """Return all workers, the living first, each with the running jobs it holds: one read a page of these."""
    holds: dict[str, list[str]] = {}
    last = ""
    while page := runs.running(after=last, limit=PAGE, now=now):
        last = page[-1].job_id
        for held in page:
            if held.worker:
                holds.setdefault(held.worker, []).append(held.job_id)
    seen = [
        WorkerSeen(
            worker=one.lease.worker,
            is_alive=one.is_alive,
            jobs=holds.pop(one.lease.worker, []),
            last_seen_s=round(one.age_s, 3) if one.age_s < float("inf") else None,
            lease_s=one.lease.lease_s,
            host=one.lease.host,
            pid=one.lease.pid,
            started_at=one.lease.started_at,
            version=one.lease.version,
        )
        for one in leases.list()
    ]
    gone = [WorkerSeen(worker, False, jobs) for worker, jobs in sorted(holds.items())]
    return sorted([*seen, *gone], key=lambda one: not one.is_alive)
