"""Running jobs that nobody is known to work on: their worker's lease has run out, or their deadline has passed.

The one place that says so, for whoever shows a job as running. Nothing is changed by it: giving such a job back is the
reaper's, which judges by the same leases, and nobody may be there to do it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from lru import LRU

from jobevents.assertions import Instant
from jobevents.errors import JobEventsError, NotFound, PermissionDenied, Unavailable
from jobevents.ids import sort_key
from jobevents.job import RUNNING, Job
from jobevents.jobs import Jobs
from jobevents.store import Held, is_overdue
from jobevents.times import format_time
from projections.paging import load_page

KEPT_S: Final = 2.0  # for so long a job that was found in good hands is not looked at again
PAGE: Final = 1000  # running jobs in one read
DEAR_S: Final = 10.0  # the same where reads are billed: a third of a lease, which a living worker renews meanwhile
_KEPT: Final = 10_000  # such jobs


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is shown as running, and of which nobody can say that it is being worked on."""

    job_id: str
    worker: str  # identity of who had it; "" where that could not be read
    since: Instant | None  # its worker's last sign of life, by our clock, or its deadline; None: not known
    why: str  # for people
    is_certain: bool = True  # False: the leases cannot be read, so that its worker may well live

    @property
    def text(self) -> str:
        """What is said beside the state: short, for people and programs."""
        if not self.is_certain:
            return "worker may be lost"
        return f"worker lost since {format_time(self.since)}" if self.since else "worker lost"


class Losses:
    """Tells which jobs are lost. Safe for threads.

    What was found well is believed for two seconds, or for ten where a look is billed.
    """

    def __init__(self, jobs: Jobs) -> None:
        """Judge the jobs of this log; reads nothing yet."""
        self._jobs = jobs
        self._kept_s = DEAR_S if jobs.blobs.min_write_interval_s > 0 else KEPT_S
        self._well: LRU[str, tuple[float, datetime | None]] = LRU(
            _KEPT
        )  # job id -> until when, monotonic; its deadline

    def of(self, job: Job) -> Lost | None:
        """Return how a job is lost; None for one that is in good hands, or does not run: at most one look at a lease."""
        return self.among([job]).get(job.job_id)

    def among(self, found: Iterable[Job]) -> dict[str, Lost]:
        """Return those of some jobs that are lost, by id: one look at the leases of all their workers.

        A start that somebody asserted has no lease with us, and one that was captured has none any more: of these nothing is
        said.
        """
        now, presence = self._jobs.emitter.clock(), self._jobs.presence
        running = [
            job
            for job in found
            if job.state == RUNNING and job.worker and not job.said_to_run and not self._is_well(job.job_id, now)
        ]
        if not running or self._jobs.is_captured:
            return {}
        held = [Held(job.job_id, job.worker, job.start, is_overdue(job, now)) for job in running]
        if not presence.judges:  # ours is old as well, and so are all where the store was away
            error = Unavailable("this process could not renew its own lease lately")
            return {job.job_id: _unknown(job.job_id, job.worker, error) for job in running}
        try:
            lost = presence.lost(held)
        except (Unavailable, PermissionDenied) as refused:
            return {job.job_id: _unknown(job.job_id, job.worker, refused) for job in running}
        until = presence.monotonic() + self._kept_s
        told: dict[str, Lost] = {}
        for job, one in zip(running, held, strict=True):
            loss = lost.get(job.job_id)
            if loss is None:
                self._well[job.job_id] = until, job.deadline
                continue
            if self._has_gone_on(job):
                continue
            seen = None if loss.unseen_s is None else now - timedelta(seconds=loss.unseen_s)
            since = job.deadline if one.is_overdue else seen
            told[job.job_id] = Lost(job_id=job.job_id, worker=job.worker, since=since, why=loss.why)
        return told

    def listed(self, job_ids: Sequence[str]) -> dict[str, Lost]:
        """Return which of the jobs that a list has as running are lost: reads each from the log, ten at a time."""
        now = self._jobs.emitter.clock()
        wanted = [job_id for job_id in job_ids if not self._is_well(job_id, now)]
        if not wanted or self._jobs.is_captured:
            return {}
        found, _ = load_page(wanted, 1, 0, self._load, sort_key=sort_key)
        told = self.among(one for one in found if isinstance(one, Job))
        return told | {one.job_id: one for one in found if isinstance(one, Lost)}

    def by_queue(self) -> Counter[str]:
        """Count the lost jobs of each queue, of a log in a database: one read a thousand that run, and of each that seems lost.

        Raises:
            Unavailable, PermissionDenied: what the log says.
        """
        jobs, counts, last = self._jobs, Counter[str](), ""
        while page := jobs.runs.running(after=last, limit=PAGE, now=jobs.emitter.clock()):
            last = page[-1].job_id
            for job_id in self.listed(sorted(jobs.presence.lost(page))):
                run = jobs.runs.get(job_id)
                counts[run.queue if run is not None else ""] += 1
        return counts

    def _load(self, job_id: str) -> Job | Lost | None:
        try:
            return self._jobs.job(job_id)
        except NotFound:  # gone since the list was made
            return None
        except JobEventsError as error:
            return _unknown(job_id, "", error)

    def _has_gone_on(self, job: Job) -> bool:
        """Tell whether a job has left its start since it was read: its worker may have ended it, and then itself."""
        match self._load(job.job_id):
            case Job() as found:
                return not found.is_current(job.start)
            case Lost():
                return False
        return True

    def _is_well(self, job_id: str, now: datetime) -> bool:
        until, deadline = self._well.get(job_id, (0.0, None))
        return self._jobs.presence.monotonic() < until and (deadline is None or now < deadline)


def _unknown(job_id: str, worker: str, error: JobEventsError) -> Lost:
    why = f"whether its worker lives cannot be read: {error}"
    return Lost(job_id=job_id, worker=worker, since=None, why=why, is_certain=False)
