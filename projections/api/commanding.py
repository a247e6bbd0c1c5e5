"""What the API does when it is told to: each command one call of Jobs, with who and why. No HTTP; every call may block."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from jobevents.commands import CancelOutcome, Submission
from jobevents.errors import (
    Conflict,
    Corrupt,
    Gone,
    IllegalTransition,
    InvalidJobId,
    InvalidValue,
    NotFound,
)
from jobevents.ids import validate
from jobevents.job import DELETED, FAILED, QUEUED, RUNNING, SKIPPED, Job
from jobevents.jobs import Jobs
from projections import parked
from projections.api.listing import Listing, Wanted
from projections.api.orders import (
    BulkDone,
    BulkOrder,
    CancelOrder,
    DeleteOrder,
    Done,
    ParkedDone,
    ParkedOrder,
    PauseDone,
    PauseOrder,
    RerunOrder,
    RetryOrder,
    Skipped,
    SubmitOrder,
    Submitted,
    Which,
)

MAX_BULK: Final = 1000  # jobs of one bulk command: seconds on SQLite, where each is a commit
MAX_WHYS: Final = 100  # that its answer tells
_OF_ONE_JOB: Final = (NotFound, IllegalTransition, Conflict, InvalidJobId, Corrupt)  # what holds up no other


class Commands:
    """Gives commands to a log for a caller. Safe for threads."""

    def __init__(self, jobs: Jobs, listing: Listing) -> None:
        self._jobs = jobs
        self._listing = listing

    def submit(self, order: SubmitOrder, actor: str) -> Submitted:
        """Queue a job, or find the one that has its id or its key.

        Raises: as `Jobs.submit`.
        """
        wanted = Submission(
            name=order.command,
            params=order.params,
            id=order.id,
            title=order.title,
            queue=order.queue,
            key=order.key,
            at=order.at,
            delay=order.delay_s,
            priority=order.priority,
            max_attempts=order.max_attempts,
            external=order.external,
        )
        found = self._jobs.submit_or_find(wanted, actor=actor, reason=order.reason)
        return Submitted(found.job_id, found.created, self._jobs.emitter.load(found.job_id).version, self._place())

    def cancel(self, job_id: str, order: CancelOrder, actor: str) -> Done:
        """Cancel a job, or ask a running one to stop.

        Raises:
            NotFound: there is no such job. Conflict: it had ended before.
        """
        outcome = self._jobs.cancel(job_id, force=order.force, actor=actor, reason=order.reason)
        if outcome is CancelOutcome.UNKNOWN:
            raise NotFound(f"no such job job_id={job_id}")
        if outcome is CancelOutcome.ALREADY_FINAL:
            raise Conflict(f"the job had ended before job_id={job_id} state={self._jobs.job(job_id).state}")
        return self._done(job_id, outcome.value)

    def retry(self, job_id: str, order: RetryOrder, actor: str) -> Done:
        """Queue a failed job for another try, or a waiting one for another time.

        Raises: as `Jobs.retry`.
        """
        self._jobs.retry(job_id, at=order.at, delay=order.delay_s, actor=actor, reason=order.reason)
        return self._done(job_id, "retried")

    def rerun(self, job_id: str, order: RerunOrder, actor: str) -> Done:
        """Run a finished job again, or a new one like it.

        Raises: as `Jobs.rerun`.
        """
        again = self._jobs.rerun(
            job_id,
            as_new=order.as_new,
            params=order.params,
            at=order.at,
            delay=order.delay_s,
            actor=actor,
            reason=order.reason,
        )
        return self._done(again, "rerun")

    def delete(self, job_id: str, order: DeleteOrder, actor: str) -> Done:
        """Delete a job for good.

        Raises:
            NotFound: there never was such a job. Gone: it was deleted before.
        """
        if not self._jobs.delete(job_id, artifacts=order.artifacts, actor=actor, reason=order.reason):
            raise Gone(f"the job was deleted before job_id={job_id}")
        return self._done(job_id, "deleted")

    def bulk(self, order: BulkOrder, actor: str) -> BulkDone:
        """Do one thing to many jobs, each for itself: what cannot be done to one is told, and holds up no other.

        Raises:
            InvalidValue: neither ids nor a filter, or both; too many ids. CannotFilter: as lists.
            Unavailable, PermissionDenied: what the log says; some may be done.
        """
        found = list(itertools.islice(self._which(order), MAX_BULK + 1))
        whys: list[Skipped] = []
        skipped = done = 0
        for job_id in found[:MAX_BULK]:
            try:
                if order.dry_run:
                    _check(order.action, self._job(job_id))
                else:
                    self._do(order, job_id, actor)
            except _OF_ONE_JOB as error:
                skipped += 1
                if len(whys) < MAX_WHYS:
                    whys.append(Skipped(job_id, str(error)))
            else:
                done += 1
        return BulkDone(order.dry_run, done, skipped, whys, len(found) > MAX_BULK, self._place())

    def pause(self, order: PauseOrder, actor: str) -> PauseDone:
        """Hand out no more of a queue or a kind of job.

        Raises:
            InvalidValue: neither or both are named. Misconfigured: nothing is handed out by this log.
        """
        return PauseDone(self._jobs.pause(job=order.command, queue=order.queue, actor=actor, reason=order.reason))

    def resume(self, order: PauseOrder, actor: str) -> PauseDone:
        """Hand out again what was paused.

        Raises: as `pause`.
        """
        return PauseDone(self._jobs.resume(job=order.command, queue=order.queue))

    def requeue_parked(self, order: ParkedOrder, actor: str) -> ParkedDone:
        """Have a view try parked events again.

        Raises:
            NotFound: none is parked there.
        """
        return self._settle(order, parked.requeue)

    def discard_parked(self, order: ParkedOrder, actor: str) -> ParkedDone:
        """Have a view pass parked events over, for good.

        Raises:
            NotFound: none is parked there.
        """
        return self._settle(order, parked.discard)

    def _settle(self, order: ParkedOrder, ask: Callable[..., object]) -> ParkedDone:
        job_id = order.job_id
        validate(job_id)
        entries = [
            entry
            for entry in parked.list_parked(self._jobs.blobs, self._jobs.prefix, order.view, job_id)
            if order.version in (None, entry.parked.version)
        ]
        if not entries:
            raise NotFound(f"nothing is parked there view={order.view} job_id={job_id}")
        for entry in entries:
            ask(self._jobs.blobs, entry)
        return ParkedDone(len(entries))

    def _which(self, order: BulkOrder) -> Iterable[str]:
        if (order.ids is None) == (order.filter is None):
            raise InvalidValue("a bulk command takes ids or a filter: give one of both")
        if order.filter is not None:
            return self._found(order.filter)
        ids = order.ids or []
        if len(ids) > MAX_BULK:
            raise InvalidValue(f"too many ids ids={len(ids)} limit={MAX_BULK}: give fewer at a time")
        return dict.fromkeys(ids)

    def _found(self, which: Which) -> Iterator[str]:
        """Yield the ids that a filter finds; those of the first reading, so that what is done to them does not change it."""
        cursor = ""
        ids: list[str] = []
        while len(ids) <= MAX_BULK:
            listed = self._listing.search(
                Wanted(
                    state=which.state,
                    command=which.command,
                    queue=which.queue,
                    since=which.since,
                    until=which.until,
                    q=which.q,
                    cursor=cursor,
                    per_page=100,
                )
            )
            ids += [one.job_id for one in listed.found.items]
            cursor = listed.found.cursor
            if not cursor:
                break
        return iter(ids)

    def _do(self, order: BulkOrder, job_id: str, actor: str) -> None:
        match order.action:
            case "cancel":
                self.cancel(job_id, CancelOrder(reason=order.reason), actor)
            case "retry":
                self.retry(job_id, RetryOrder(reason=order.reason), actor)
            case "rerun":
                self.rerun(job_id, RerunOrder(reason=order.reason), actor)
            case "delete":
                self.delete(job_id, DeleteOrder(reason=order.reason), actor)

    def _job(self, job_id: str) -> Job:
        return self._jobs.job(job_id)

    def _done(self, job_id: str, did: str) -> Done:
        return Done(job_id, did, self._jobs.emitter.load(job_id).version, self._place())

    def _place(self) -> int:
        """Return the place in the log that has everything up to now; 0 where it has none."""
        return self._listing.head()


def _check(action: str, job: Job) -> None:
    """Refuse what could not be done to a job as it is.

    Raises:
        IllegalTransition, Conflict: its state does not allow it.
    """
    is_open = job.state in (QUEUED, RUNNING)
    if action == "cancel" and not is_open:
        raise Conflict(f"the job had ended before job_id={job.job_id} state={job.state}")
    if action == "retry" and job.state not in (FAILED, SKIPPED):
        raise Conflict(f"only a failed job can be tried again job_id={job.job_id} state={job.state}")
    if action == "rerun" and (is_open or job.state == DELETED):
        raise Conflict(f"only a finished job can be run again job_id={job.job_id} state={job.state}")
