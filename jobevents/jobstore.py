"""The JobStore over the log: what a caller says of a run becomes an event, and what it reads is the row that follows.

A new run that waits is a JobQueued like any other. Every other run, and every update, is a JobRecorded with the fields that
were not as said: the history shows who asserted what.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from jobevents import boundary, runevents
from jobevents.commands import must_exist
from jobevents.emit import By, Draft, Emitter
from jobevents.events import CancelRequested, JobDeleted
from jobevents.job import Job, allowed
from jobevents.store import (
    NO_CUTOFFS,
    Cutoff,
    Cutoffs,
    JobLog,
    JobRun,
    LogTable,
    Retention,
    RunFilter,
    RunPage,
    RunTable,
    run_of,
)

PURGE_PAGE = 10_000  # ids found in one read
PURGE_BATCH = 100  # tombstones in one transaction: about 20 ms of a SQLite file's one writer
PURGE_LINES = 5000  # log lines looked at in one transaction


class LogJobStore:
    """Runs of one log. Safe for threads; it holds nothing that needs closing."""

    def __init__(
        self,
        emitter: Emitter,
        *,
        runs: RunTable,
        run_logs: LogTable,
        retention: Retention,
        actor: str = "",
        scrub: boundary.Scrub = lambda value: value,
    ) -> None:
        """Write through the emitter and read from the tables that its log keeps.

        Args:
            actor: who writes where a run does not say who asked for it.
            scrub: called on params, results and errors before they are encoded.
        """
        self._emitter = emitter
        self._runs = runs
        self._lines = run_logs
        self._retention = retention
        self._actor = actor
        self._scrub = scrub

    def create(self, run: JobRun) -> None:
        """Append the run's first event: JobQueued if that says all of it, else JobRecorded; see `JobStore.create`."""
        said = runevents.checked(run, self._scrub)
        draft = runevents.first(said, now=self._emitter.clock(), actor=self._actor)
        self._emitter.create({run.id: draft}, By(actor=said.triggered_by or self._actor))

    def update(self, run: JobRun) -> None:
        """Append JobRecorded with what is not as said, nothing when all is; see `JobStore.update`.

        Only the change of state is checked. Times that are NEVER, and an empty `root_id` or `triggered_by`, leave what is there.
        """
        said = runevents.checked(run, self._scrub)

        def decide(job: Job) -> list[Draft]:
            return runevents.following(said, must_exist(job, run.id))

        self._emitter.change(run.id, decide, By(actor=self._actor))

    def get(self, run_id: str) -> JobRun:
        """Return the row: one read.

        Raises:
            NotFound: there is no such run. Gone: it was deleted.
        """
        return self._runs.get(run_id) or run_of(must_exist(self._emitter.load(run_id), run_id))

    def list(self, filter: RunFilter) -> RunPage:
        """Return a page; see `RunTable.list`."""
        return self._runs.list(filter)

    def find_active(self, job: str, key: str) -> JobRun | None:
        """Return the unfinished run that holds the key, as one read of its row shows it: never a finished one."""
        while (run_id := self._runs.find_active(job, key)) is not None:
            run = self._runs.get(run_id)
            if run is not None and (run.job_name, run.idem_key) == (job, key) and not run.is_final():
                return run
        return None

    def running_ids(self, job: str) -> Sequence[str]:
        """Return the ids of the running runs of a kind, sorted."""
        return self._runs.running_ids(job)

    def request_cancel(self, run_id: str, by: str, reason: str) -> None:
        """Append CancelRequested: a running run's worker heeds it, and a queued run is canceled by whoever would start it.

        Nothing more: what `Jobs.cancel` does to a queued job, `JobQueue.remove` does here. See `JobStore.request_cancel`.
        """

        def decide(job: Job) -> list[Draft]:
            must_exist(job, run_id)
            is_news = job.cancel_requested_at is None and CancelRequested in allowed(job.state)
            return [CancelRequested] if is_news else []

        self._emitter.change(run_id, decide, By(actor=by or self._actor, reason=reason))

    def is_cancel_requested(self, run_id: str) -> bool:
        """Tell whether somebody asked for the run to stop: one read."""
        return self.get(run_id).cancel_requested_at is not None

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store lines; see `LogTable.append_logs`. Text is made storable, as that of an attempt's lines is."""
        self._lines.append_logs([runevents.storable(line) for line in entries])

    def logs(self, run_id: str, after_seq: int = 0, limit: int = 0) -> Sequence[JobLog]:
        """Return lines; see `LogTable.logs`."""
        return self._lines.logs(run_id, after_seq, limit)

    def purge(self, runs_before: datetime, logs_before: datetime, *, but: Mapping[str, Cutoffs] = NO_CUTOFFS) -> int:
        """Append JobDeleted for each run that finished before, a batch at a time, and remove old lines of finished runs.

        The tombstone takes the row, the lines and the queue's claim with it; the projector removes the status. Deleted ids
        stay taken. A run that goes on meanwhile is left alone. Reads each run's history once.
        """
        old_runs = Cutoff(
            boundary.check_instant("runs_before", runs_before),
            {job: boundary.check_instant("runs_before", cutoffs.runs_before) for job, cutoffs in but.items()},
        )
        old_lines = Cutoff(
            boundary.check_instant("logs_before", logs_before),
            {job: boundary.check_instant("logs_before", cutoffs.logs_before) for job, cutoffs in but.items()},
        )
        count = self._purge_runs(old_runs)
        self._purge_lines(old_lines)
        return count

    def close(self) -> None:
        """Do nothing: the log is closed with the Jobs that it is of."""

    def _purge_runs(self, cutoff: Cutoff) -> int:
        def decide(job: Job) -> list[Draft]:
            is_old = job.is_final() and job.finished_at is not None and job.finished_at < cutoff.of(job.name)
            return [JobDeleted] if is_old else []

        by = By(actor=self._actor or "purge", reason="its time to be kept was over")
        count = 0
        last = ""
        while found := self._retention.finished(cutoff, after=last, limit=PURGE_PAGE):
            last = found[-1]
            for at in range(0, len(found), PURGE_BATCH):
                changes = self._emitter.change_each(found[at : at + PURGE_BATCH], decide, by)
                count += sum(bool(change.events) for change in changes)
        return count

    def _purge_lines(self, cutoff: Cutoff) -> None:
        place: tuple[str, int] | None = ("", -1)
        while place is not None:
            place = self._retention.drop_lines(cutoff, after=place, limit=PURGE_LINES)
