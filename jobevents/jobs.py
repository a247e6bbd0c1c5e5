"""Jobs, what `connect` returns: submit, guard, command and read jobs. Each method is one step of the layers beneath."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from lru import LRU
from msgspec import UNSET

from jobevents import boundary, commands, importing, pauses, records
from jobevents.attempt import Attempt, OnUnreadable, RetryIn
from jobevents.backoff import Backoff
from jobevents.blobs import Blobs
from jobevents.commands import CancelOutcome, Submission
from jobevents.desk import Desk
from jobevents.emit import Emitter, Observer
from jobevents.errors import Misconfigured
from jobevents.events import JobFailed, JobSkipped
from jobevents.guard import Pace, Terms, Worker
from jobevents.importing import Report
from jobevents.inbox import Intake
from jobevents.jobstore import LogJobStore
from jobevents.limits import Limit
from jobevents.pauses import Pause
from jobevents.presence import IDLE_NAMES, Presence
from jobevents.queue import LEASE_S as CLAIM_S
from jobevents.queue import JobQueue
from jobevents.reads import Reads, checked_id
from jobevents.reaper import Reaped, Reaper, WorkerSeen, roster
from jobevents.recorder import Locate, StatusStore
from jobevents.status import Status
from jobevents.store import JobStore, LogTable, Retention, RunTable
from jobevents.storequeue import POLL_S, StoreQueue
from jobevents.submits import Submits
from jobevents.telemetry import Counts
from jobevents.workers import LEASE_S, Leases

if TYPE_CHECKING:
    from jobevents.aio import AioJobs
    from jobevents.bus import Bus
    from jobevents.dispatch import Dispatcher
    from jobevents.registry import Registry
    from jobevents.relay import Relay

S = TypeVar("S", bound=Status)


class Jobs(Reads, Submits):
    """All jobs of one log. Safe for threads; close it, or use it as a context manager.

    `actor` and `reason` on every method that writes: who, and why; they stay on the event for good.
    """

    def __init__(
        self,
        emitter: Emitter,
        *,
        runs: RunTable,
        run_logs: LogTable,
        blobs: Blobs,
        leases: Leases,
        desk: Desk | None = None,
        retention: Retention | None = None,
        pace: Pace | None = None,
        prefix: str = "",
        actor: str = "",
        scrub: boundary.Scrub | None = None,
        on_unreadable: OnUnreadable = "raise",
        adopt_deletes: bool = False,
        lease_s: float = LEASE_S,
        claim_s: float = CLAIM_S,
        poll_interval_s: float = POLL_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if on_unreadable not in ("raise", "run"):
            raise Misconfigured(f"on_unreadable must be 'raise' or 'run' value={on_unreadable!r}")
        self.counts = Counts()
        self.runs = runs
        self.run_logs = run_logs
        self.desk = desk
        self._retention = retention or (desk.retention if desk else None)
        self._pace = pace
        self._claim_s = claim_s
        self._poll_interval_s = poll_interval_s
        self.adopt_deletes = adopt_deletes  # a status that somebody removed is a deleted job
        super().__init__(emitter)
        self._blobs = blobs
        self._prefix = f"{prefix}/" if prefix else ""
        self._closers: list[Callable[[], None]] = []
        self.is_captured = False  # they are shown from a file, which does not say whether their workers live
        self.registry: Registry | None = None
        self.bus: Bus | None = None  # what the events go out by
        self.dispatcher: Dispatcher | None = None  # what has a task queue of the user's deliver jobs
        self.relay: Relay | None = None  # what sends them there, where the log has one sequence
        self._actor = actor
        self._scrub = scrub or _keep
        self._on_unreadable: OnUnreadable = on_unreadable
        self._monotonic = monotonic
        self.presence = Presence(leases, clock=emitter.clock, counts=self.counts, lease_s=lease_s, monotonic=monotonic)
        self._reaper = Reaper(emitter, runs, self.presence, self.counts, blobs=blobs, prefix=prefix)
        self.presence.accompany(self._reaper.pulse)
        self._workers: LRU[str, Worker] = LRU(IDLE_NAMES)
        self._intake: Intake | None = None
        if desk is not None and desk.inbox is not None:
            self._intake = Intake(emitter, desk.inbox, runs, self.counts, monotonic=monotonic)
            emitter.fetch = self._intake.fetch

    @cached_property
    def store(self) -> JobStore:
        """The runs as the runner's JobStore: what is written there becomes events, too.

        Raises:
            Misconfigured: this log keeps no tables of runs, nor what stands for them.
        """
        if self._retention is None:
            raise Misconfigured(_NO_TABLE)
        return LogJobStore(
            self._emitter,
            runs=self.runs,
            run_logs=self.run_logs,
            retention=self._retention,
            actor=self._actor,
            scrub=self._scrub,
        )

    @cached_property
    def queue(self) -> JobQueue:
        """The queued runs as the runner's JobQueue: what is submitted is there at once. Closed with the jobs.

        Raises:
            Misconfigured: this log keeps no tables of runs.
        """
        made = StoreQueue(
            self._emitter,
            self._at_desk(),
            create=self.store.create,
            get=self.runs.get,
            drain=self._intake.drain if self._intake else lambda: 0,
            actor=self._actor,
            lease_s=self._claim_s,
            poll_interval_s=self._poll_interval_s,
        )
        self.at_close(made.close)
        return made

    def _at_desk(self) -> Desk:
        if self.desk is None:
            raise Misconfigured(_NO_TABLE)
        return self.desk

    @property
    def prefix(self) -> str:
        """What the names of our blobs begin with, without a slash at its end; "" for nothing."""
        return self._prefix.rstrip("/")

    @property
    def blobs(self) -> Blobs:
        """Where the projections are kept, beside whatever the services keep there."""
        return self._blobs

    def blob_name(self, name: str) -> str:
        """Return the full name of one of our blobs: under the prefix of this log."""
        return self._prefix + name

    @property
    def aio(self) -> "AioJobs":
        """The same methods, awaitable, never blocking the event loop."""
        from jobevents.aio import AioJobs  # aio wraps this module

        return AioJobs(self)

    def attempt(
        self,
        job_id: str,
        *,
        worker: str | None = None,
        deadline_s: float | None = None,
        on_unreadable: OnUnreadable | None = None,
        strict: bool = False,
        limits: Sequence[Limit] = (),
        if_due: bool = False,
        retry_in: RetryIn | None = None,
        patience: Backoff | None = None,
    ) -> Attempt:
        """Return the guarded attempt at a job, to be used in a `with` block; entering it raises when it is refused.

        Args:
            worker: a name for who works, by default the host's; the identity is made of it, one for each start of a process.
            deadline_s: seconds above 0 after which the attempt may be taken for lost and the job started again.
            on_unreadable: "run": work ungranted when the log cannot be read; "raise": let the task be delivered again.
            strict: raise when the outcome cannot be recorded, instead of warning.
            limits: on how many jobs run at once, over all workers of this log: it is Busy when one is reached.
            if_due: refuse a job that is not queued for now, for deliveries that may be of the past.
            retry_in: how long a job with tries left waits after a failure; without it, it stays failed.
            patience: how to try again while the outcome cannot be recorded; without it, once.
        """
        return Attempt(
            self._workers.get(worker or "") or self._named(worker or ""),
            checked_id(job_id),
            terms=Terms(deadline_s, limits, if_due),
            on_unreadable=on_unreadable or self._on_unreadable,
            strict=strict,
            retry_in=retry_in,
            patience=patience,
        )

    def _named(self, label: str) -> Worker:
        """Return what works under a name; the last few are kept, since a runner asks for each of its runs."""
        worker = self._workers[label] = Worker(
            emitter=self._emitter,
            logs=self.run_logs,
            counts=self.counts,
            monotonic=self._monotonic,
            scrub=self._scrub,
            presence=self.presence,
            pace=self._pace,
            label=boundary.check_name("worker", label, optional=True),
        )
        return worker

    def reap(self) -> Reaped:
        """Give back the jobs of dead workers and those past their deadline, now: what every process that works does by itself.

        Raises:
            Unavailable, AppendUnknown, PermissionDenied: what the store says.
        """
        return self._reaper.reap()

    def redispatch(self) -> int:
        """Hand to the user's task queue what is due and was never started, now: what one process at a time does by itself.

        Returns how many jobs.

        Raises:
            Misconfigured: these jobs were opened without `dispatch=`.
            Unavailable, PermissionDenied: what the store says; whatever the task queue does.
        """
        if self.dispatcher is None:
            raise Misconfigured("nothing was said of who delivers: give connect a dispatch=")
        return self.dispatcher.sweep()

    def workers(self) -> list[WorkerSeen]:
        """Return all workers, the living first, each with the running jobs that it holds."""
        return roster(self.presence.leases, self.runs, self._emitter.clock())

    def cancel(self, job_id: str, *, force: bool = False, actor: str | None = None, reason: str = "") -> CancelOutcome:
        """Cancel a job that has not started, or ask the worker of a running one to stop; the answer says which.

        Args:
            force: end a running one at once, whose worker does not listen. The work may go on there; its outcome is refused.
        """
        return commands.cancel(self._emitter, checked_id(job_id), self._by(actor, reason), force=force)

    def skip(self, job_id: str, *, actor: str | None = None, reason: str = "") -> None:
        """Pass over a queued job: it has ended as skipped; nothing when it is not queued any more."""
        commands.drop(self._emitter, checked_id(job_id), JobSkipped, self._by(actor, reason))

    def fail(self, job_id: str, error: str, *, kind: str = "", actor: str | None = None, reason: str = "") -> None:
        """Fail a queued job that cannot be started; nothing when it is not queued any more."""
        kind = boundary.clean_text(kind, boundary.NAME_LIMIT, "kind")
        failed = partial(JobFailed, error=boundary.clean_text(error, boundary.ERROR_LIMIT, "error"), kind=kind)
        commands.drop(self._emitter, checked_id(job_id), failed, self._by(actor, reason))

    def pause(self, *, job: str = "", queue: str = "", actor: str | None = None, reason: str = "") -> bool:
        """Hand out no run of a kind of job, or of a queue, until it is resumed; False when it is paused already.

        Jobs are submitted as ever, and what runs goes on. It lasts as long as the log.

        Raises:
            InvalidValue: neither is named, or both are.
        """
        by = self._by(actor, reason)
        return self._at_desk().pauses.add(
            pauses.pause(job, queue, at=self._emitter.clock(), by=by.actor, reason=reason)
        )

    def resume(self, *, job: str = "", queue: str = "") -> bool:
        """Hand out again what was paused; False when it was not.

        Raises:
            InvalidValue: neither is named, or both are.
        """
        return self._at_desk().pauses.drop(*pauses.named(job, queue))

    def paused(self) -> list[Pause]:
        """Return what is paused, since when, by whom and why."""
        return list(self._at_desk().pauses.list())

    def retry(
        self,
        job_id: str,
        *,
        at: datetime | str | None = None,
        delay: timedelta | float | None = None,
        actor: str | None = None,
        reason: str = "",
    ) -> None:
        """Queue a failed job for another try, or give a job that waits another time; at once, or as `submit` has it.

        Raises:
            NotFound: there is no such job. InvalidValue: it is no time.
            IllegalTransition: it has not failed; `allowed` says what may be done.
        """
        commands.retry(self._emitter, checked_id(job_id), self._by(actor, reason), commands.When(at, delay))

    def rerun(
        self,
        job_id: str,
        *,
        as_new: bool = False,
        params: Any = UNSET,  # any JSON value
        at: datetime | str | None = None,
        delay: timedelta | float | None = None,
        actor: str | None = None,
        reason: str = "",
    ) -> str:
        """Queue a finished job again, or a new job like it; return the id of the job that will run.

        Args:
            params: of the new job; those of the old one if not given.
            at, delay: not before, as `submit` has it.

        Raises:
            NotFound: there is no such job. InvalidValue: it is no time, or these params cannot be stored, do not fit, or go to no
                new job.
            IllegalTransition, Conflict: it has not finished; or its kind is not to be run again as a new job.
        """
        if as_new and self.registry is not None:
            self.registry.check_replayable(self.job(job_id).name)
        if params is not UNSET:
            params = self._completed(Submission(name=self.job(job_id).name, params=params)).params
        by, when = self._by(actor, reason), commands.When(at, delay)
        return commands.rerun(self._emitter, checked_id(job_id), by, as_new=as_new, when=when, params=params)

    def delete(self, job_id: str, *, artifacts: bool = False, actor: str | None = None, reason: str = "") -> bool:
        """Delete a job for good: the tombstone stays, its status and log lines go. False when it was deleted before.

        Args:
            artifacts: remove all blobs under `jobs/{id}/` too.

        Raises:
            NotFound: there never was such a job.
        """
        job_id = checked_id(job_id)
        deleted = commands.delete(self._emitter, job_id, self._by(actor, reason), artifacts=artifacts)
        if artifacts:
            for entry in list(self._blobs.list(self.blob_name(f"jobs/{job_id}/"))):
                self._blobs.delete(entry.name)
        return deleted

    def import_records(
        self,
        blobs: Blobs,
        locate: Locate,
        job_ids: Iterable[str],
        *,
        actor: str | None = None,
        reason: str = "",
        on_done: Callable[[int], None] = lambda _: None,
    ) -> Report:
        """Append a JobImported for each status record of `job_ids` in `blobs` whose job the log does not know.

        Repeatable; see `importing.import_records`.
        """
        by = self._by(actor, reason)
        return importing.import_records(self._emitter, blobs, locate, job_ids, by, on_done=on_done)

    @overload
    def statuses(self) -> StatusStore[Status]: ...
    @overload
    def statuses(self, type: type[S]) -> StatusStore[S]: ...
    def statuses(self, type: type[Any] = Status) -> StatusStore[Any]:  # the overloads tell its type
        """Return the kit's store over this log: `save` appends the event that fits, or JobRecorded."""
        kept = records.LogRecords(self._emitter, self._by(None, ""), type)
        return StatusStore(
            kept, kept, lambda job_id: job_id, type, on_unreadable=self._on_unreadable, clock=self._emitter.clock
        )

    def observe(self, observer: Observer, *, close: Callable[[], None] | None = None) -> None:
        """Tell `observer` of every change this process appends from now on; `close` is called when the jobs are closed."""
        self._emitter.observe(observer)
        if close is not None:
            self.at_close(close)

    def at_close(self, call: Callable[[], None]) -> None:
        """Have `call` called when the jobs are closed, before the log and the blobs are."""
        self._closers.append(call)

    def close(self) -> None:
        """Drop the lease, let observers finish, then release connections and threads; any number of times."""
        self.presence.close()
        self._reaper.resign()
        while self._closers:
            self._closers.pop()()
        self.log.close()
        self._blobs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_NO_TABLE = "this log keeps no table of runs: use one in a database, or give the runner a queue and store of its own"


def _keep(value: Any) -> Any:
    return value
