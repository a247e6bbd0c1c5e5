"""The whole of Jobs against a plain dictionary: whatever is asked in whatever order, and what is refused leaves no trace."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from jobevents.codec import chain_breaks
from jobevents.commands import CancelOutcome
from jobevents.emit import By
from jobevents.errors import (
    AlreadyCanceled,
    AlreadyRunning,
    AlreadySucceeded,
    Canceled,
    Gone,
    IllegalTransition,
    NotFound,
    Snooze,
)
from jobevents.events import JobRequeued, TransitionRefused
from jobevents.job import check
from jobevents.testing.strategies import drafts
from tests.clock import START, Clock
from tests.failinglog import failing_jobs
from tests.jobstates import another

UNFINISHED = ("queued", "running")
ENDS: dict[str, BaseException | None] = {
    "succeeded": None,
    "failed": ValueError("boom"),
    "canceled": Canceled(),
    "queued": Snooze(60),
}


@dataclass
class Known:
    """What the model knows of one job."""

    key: str
    state: str = "queued"
    starts: int = 0
    tries: int = 0
    cancel: bool = False
    length: int = 1
    refused: set[int] = field(default_factory=set)


class JobsModel(RuleBasedStateMachine):
    """Two writers on one log, workers that live, are overtaken or end late, and people who ask for anything."""

    ids = Bundle("ids")
    attempts = Bundle("attempts")

    @initialize()
    def begin(self) -> None:
        """Start with an empty log."""
        self.jobs, _ = failing_jobs(Clock(START))
        self.known: dict[str, Known] = {}

    def teardown(self) -> None:
        """End the threads that attempts began."""
        if hasattr(self, "jobs"):
            self.jobs.close()

    @rule(target=ids, key=st.sampled_from(["", "k"]))
    def submit(self, key: str) -> Any:
        """Make a job, or find the one that holds the key."""
        holders = [job_id for job_id, known in self.known.items() if key and known.key == key]
        holder = next((job_id for job_id in holders if self.known[job_id].state in UNFINISHED), None)

        job_id = self.jobs.submit("render", key=key)

        if holder is not None:
            assert holder == job_id
            return multiple()
        assert job_id not in self.known
        self.known[job_id] = Known(key)
        return job_id

    @rule(target=attempts, job_id=ids)
    def start(self, job_id: str) -> Any:
        """Ask the guard."""
        known, attempt = self.known[job_id], self.jobs.attempt(job_id)
        refusals = {"succeeded": AlreadySucceeded, "running": AlreadyRunning}
        refusals |= dict.fromkeys(("canceled", "deleted"), AlreadyCanceled)
        if known.state in refusals or known.cancel:
            with pytest.raises(refusals.get(known.state, AlreadyCanceled)):
                attempt.__enter__()
            if known.state == "queued":
                known.state, known.length = "canceled", known.length + 1
            return multiple()

        attempt.__enter__()

        assert known.tries + 1 == attempt.number
        self._leave_end(known)
        known.state, known.starts, known.length = "running", known.starts + 1, known.length + 1
        assert known.length == attempt.start
        return attempt

    @rule(attempt=consumes(attempts), end=st.sampled_from(sorted(ENDS)))
    def end(self, attempt: Any, end: str) -> None:
        """Leave an attempt, be it in time or too late."""
        known, raised = self.known[attempt.job_id], ENDS[end]
        in_time = known.state == "running" and self.jobs.job(attempt.job_id).start == attempt.start

        attempt.__exit__(type(raised) if raised else None, raised, None)

        if in_time:
            known.state = "canceled" if end == "queued" and known.cancel else end
            known.tries += known.state in ("succeeded", "failed")
            known.length += 1
        elif known.state != "deleted" and attempt.start not in known.refused:
            known.refused.add(attempt.start)
            known.length += 1
            assert isinstance(self.jobs.history(attempt.job_id)[-1], TransitionRefused)

    @rule(job_id=ids)
    def lose(self, job_id: str) -> None:
        """Let another process take a running job's worker for dead."""
        known = self.known[job_id]
        if known.state != "running":
            return
        start = self.jobs.job(job_id).start

        another(self.jobs).change(job_id, lambda _: [partial(JobRequeued, cause="lost", start=start)], By())

        known.state, known.tries, known.length = "queued", known.tries + 1, known.length + 1

    @rule(job_id=ids)
    def cancel(self, job_id: str) -> None:
        """Ask for a cancel."""
        known = self.known[job_id]
        answers = {"queued": CancelOutcome.CANCELED, "running": CancelOutcome.REQUESTED}
        answers |= {"deleted": CancelOutcome.UNKNOWN}

        assert answers.get(known.state, CancelOutcome.ALREADY_FINAL) == self.jobs.cancel(job_id)

        if known.state == "queued":
            known.state, known.cancel, known.length = "canceled", True, known.length + 1
        elif known.state == "running" and not known.cancel:
            known.cancel, known.length = True, known.length + 1

    @rule(job_id=ids, how=st.sampled_from(["retry", "rerun"]))
    def again(self, job_id: str, how: str) -> None:
        """Ask for another try, or for a run from the beginning."""
        known = self.known[job_id]
        legal = {"retry": ("queued", "failed"), "rerun": ("succeeded", "failed", "canceled")}[how]
        if known.state not in legal:
            with pytest.raises(Gone if known.state == "deleted" else IllegalTransition):
                getattr(self.jobs, how)(job_id)
            return

        getattr(self.jobs, how)(job_id)

        self._leave_end(known)
        known.state, known.cancel, known.length = "queued", False, known.length + 1
        known.tries = 0 if how == "rerun" else known.tries

    @rule(job_id=ids)
    def delete(self, job_id: str) -> None:
        """Delete a job for good."""
        known = self.known[job_id]

        assert (known.state != "deleted") == self.jobs.delete(job_id)

        known.length += known.state != "deleted"
        known.state = "deleted"

    @rule(job_id=ids, draft=drafts())
    def tell_something_illegal(self, job_id: str, draft: Any) -> None:
        """Try to append any event that the job's state does not allow."""
        emitter = another(self.jobs)
        job = emitter.load(job_id)
        try:
            check(job, draft(job_id=job_id, version=job.version + 1, id="", at=START))
        except IllegalTransition:
            with pytest.raises(IllegalTransition):
                emitter.change(job_id, lambda _: [draft], By())

    @invariant()
    def what_is_seen_is_what_the_model_knows(self) -> None:
        """Status, row, history and chain say the same of every job, and no event is there that the model does not know."""
        for job_id, known in getattr(self, "known", {}).items():
            records = self.jobs.log.read_raw(job_id)
            assert list(range(1, known.length + 1)) == [record.version for record in records]
            assert [] == chain_breaks(record.data for record in records)
            row = self.jobs.runs.get(job_id)
            if known.state == "deleted":
                assert row is None
                with pytest.raises(NotFound):
                    self.jobs.get(job_id)
                continue
            shown = self.jobs.get(job_id)
            assert row is not None
            assert (known.state, known.starts, known.length) == (shown.state, shown.attempts, shown.version)
            assert (known.state, known.key) == (row.status, row.idem_key)

    @staticmethod
    def _leave_end(known: Known) -> None:
        if known.state not in UNFINISHED:
            known.key = ""


TestJobsModel = JobsModel.TestCase
TestJobsModel.settings = settings(max_examples=60, stateful_step_count=30)
