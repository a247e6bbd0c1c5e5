"""A second look at views that did not agree with the log: whether they were on their way, as the system goes on meanwhile.

What a view did not have at the first look it must have soon; that the log has gone on since is no excuse, and no fault.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from jobevents.jobs import Jobs
from jobevents.log import Record
from projections.checks import Check
from projections.proof import Flaw, Proof

PATIENCE_S = 1.0  # how long a view may take to have an event; more where a store lets a name be written only so often
RECENT = timedelta(minutes=1)  # of a job whose last event is older, by whatever clock, nothing is on its way
PAUSE_S = 0.05  # between two looks
LOOKS = 10  # at a row, which has every event at once, of a job that goes on all the time


class _Doubt(NamedTuple):
    """A job of which views did not agree."""

    checks: list[Check]
    version: int  # of its last event then, which they must have by now


class SecondLook:
    """Jobs to be looked at again, in the end, when most of what was on its way has arrived."""

    def __init__(
        self,
        jobs: Jobs,
        prove: Callable[[Sequence[Record]], Proof],
        *,
        patience_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._jobs = jobs
        self._prove = prove
        self._patience_s = PATIENCE_S + 2 * jobs.blobs.min_write_interval_s if patience_s is None else patience_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._doubts: dict[str, _Doubt] = {}

    def add(self, check: Check, flaw: Flaw) -> None:
        """Remember what a check found at the first look; `flaw.version` is the job's last version then."""
        doubt = self._doubts.setdefault(flaw.job_id, _Doubt([], flaw.version))
        if check not in doubt.checks:
            doubt.checks.append(check)

    def flaws(self) -> Iterator[tuple[Check, Flaw]]:
        """Yield what is wrong all the same: at once what is old, and after some patience what may be on its way."""
        deadline = self._monotonic() + self._patience_s
        looks = 0
        while self._doubts:
            looks += 1
            is_last = self._monotonic() >= deadline and looks >= LOOKS
            for job_id, doubt in list(self._doubts.items()):
                proof = self._prove(self._jobs.log.records_of(job_id))
                proof.owed = doubt.version
                found = [(check, flaw) for check in doubt.checks for flaw in check.examine([proof])]
                if found and not is_last and self._may_come(proof, looks, deadline):
                    continue
                yield from found
                del self._doubts[job_id]
            if self._doubts and self._monotonic() < deadline:
                self._sleep(PAUSE_S)

    def _may_come(self, proof: Proof, looks: int, deadline: float) -> bool:
        """Tell whether another look may find it right."""
        if looks < LOOKS and self._jobs.log.read_raw(proof.job_id)[-1].version != proof.version:
            return True  # it went on between the reads
        return self._monotonic() < deadline and self._is_recent(proof)

    def _is_recent(self, proof: Proof) -> bool:
        now: datetime = self._jobs.emitter.clock()
        return not proof.events or proof.events[-1].at > now - RECENT
