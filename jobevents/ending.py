"""The end of an attempt on its way into the log: recorded once, by itself or in one transaction with those of others."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from jobevents.backoff import Backoff
from jobevents.emit import By, Change, Draft, Emitter, Wanted
from jobevents.errors import AppendUnknown, JobEventsError, Unavailable
from jobevents.events import JobCanceled, JobStarted, TransitionRefused
from jobevents.job import Job, allowed
from jobevents.outcomes import Outcome, refusal
from jobevents.telemetry import Counts

logger = logging.getLogger(__name__)


class Ending:
    """One outcome. Not safe for threads: who has it records it, before anything else that may take long."""

    def __init__(
        self,
        emitter: Emitter,
        counts: Counts,
        outcome: Outcome,
        *,
        job_id: str,
        start: int,
        by: By,
        before: Sequence[Draft],
        patience: Backoff,
        leave: Callable[[], None],
    ) -> None:
        """Write nothing yet.

        Args:
            start: version of the JobStarted that granted the attempt; 0: it ran ungranted.
            before: what the attempt has to say still, such as its last progress.
            patience: how to try again while the log is unavailable.
            leave: called when it is recorded, or cannot be.
        """
        self.error: JobEventsError | None = None  # why it could not be recorded
        self._emitter = emitter
        self._counts = counts
        self._outcome = outcome
        self._start = start
        self._before = before
        self._patience = patience
        self._leave = leave
        self._is_settled = False
        self._is_unsure = False  # an append of it may be in the log
        self.wanted = Wanted(job_id, self._decide, by)  # to be asked for with others, or by `record`

    def record(self) -> JobEventsError | None:
        """Append it by itself, unless that was done, and return why it could not be: also warned of, and counted."""
        if not self._is_settled:
            try:
                change = self._persistently()
            except JobEventsError as error:
                self._settle(error=error)
            except BaseException:
                self._settle()
                raise
            else:
                self._settle(change)
        return self.error

    def recorded(self, change: Change | AppendUnknown | None) -> bool:
        """Take what came of `wanted`, asked for together with other changes; False when it is to be recorded still."""
        if isinstance(change, AppendUnknown):
            self._is_unsure = True
        elif change is not None:
            self._settle(change)
        return self._is_settled

    def _persistently(self) -> Change:
        """Append, and while the log is unavailable wait and try again for as long as `patience` has it."""
        wanted, emitter = self.wanted, self._emitter
        tries = self._patience.start()
        while True:
            try:
                settled = emitter.settle_own(wanted.job_id) if self._is_unsure else None
                return settled or emitter.change(wanted.job_id, wanted.decide, wanted.by)
            except AppendUnknown:
                self._is_unsure = True
                if not tries.pause():
                    raise
            except Unavailable:  # nothing was written
                if not tries.pause():
                    raise

    def _decide(self, job: Job) -> list[Draft]:
        start, outcome = self._start, self._outcome
        if start and job.is_current(start):
            stopped = outcome.waits and job.cancel_requested_at is not None  # nobody wants it again (CAN-01)
            return [*self._before, partial(JobCanceled if stopped else outcome.draft, start=start)]
        if not start and JobStarted in allowed(job.state):
            began = partial(JobStarted, attempt=job.tries + 1, worker=self.wanted.by.actor, late=True)
            return [began, partial(outcome.draft, start=job.version + 1)]
        return refusal(job, start, outcome, ungranted=not start)

    def _settle(self, change: Change | None = None, error: JobEventsError | None = None) -> None:
        self._is_settled = True
        self.error = error
        self._leave()
        job_id, tried = self.wanted.job_id, self._outcome.type
        if error is not None:
            self._counts.add("records_failed")
            logger.warning(
                "how an attempt ended could not be recorded: its job is given back, and run again if it has a try left "
                "job_id=%s outcome=%s error=%s",
                job_id,
                tried,
                error,
            )
        elif change is not None and (not change.events or isinstance(change.events[-1], TransitionRefused)):
            self._counts.add("outcomes_refused")
            logger.warning(
                "how an attempt ended does not count: its job had gone on without it job_id=%s outcome=%s state=%s",
                job_id,
                tried,
                change.job.state,
            )
