"""The attempt: one try at a job, from the JobStarted that the guard granted to the outcome, which carries its version.

    with jobs.attempt(job_id) as attempt:
        attempt.progress(40, "mixing")
        attempt.result({"seconds": 181})

Leaving the block records the outcome: JobSucceeded, or by exception JobFailed, JobCanceled (errors.Canceled) or JobRequeued
(errors.Snooze). Once the work runs, trouble with recording it is warned of and counted, and never stops it.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import msgspec

from jobevents import boundary
from jobevents.backoff import Backoff
from jobevents.emit import By, Change, Draft, Wanted
from jobevents.ending import Ending
from jobevents.errors import (
    AppendUnknown,
    Canceled,
    Corrupt,
    IllegalTransition,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    PermissionDenied,
    Unavailable,
)
from jobevents.events import JobAnnotated, JobProgressed, JobStarted
from jobevents.guard import Pace, Terms, Worker, grant, granted, start_of
from jobevents.job import RUNNING, Job
from jobevents.joblogs import LineBuffer
from jobevents.outcomes import GIVEN_BACK, Outcome, outcome_of, scrubbed
from jobevents.status import check_fields

PROGRESS_INTERVAL_S = 0.5  # at most two progress events a second for a job: each is a row and a message
CANCEL_CHECK_INTERVAL_S = 0.5  # how old the answer of `canceled` may be

OnUnreadable = Literal["raise", "run"]
RetryIn: TypeAlias = Callable[[int], float | None]
"""Number of the try that failed -> seconds before the next; None for no other try. It must not raise."""
UNREADABLE = (Unavailable, AppendUnknown, PermissionDenied, Corrupt)

logger = logging.getLogger(__name__)


class Attempt:
    """One try at a job, from its grant to its outcome. Its methods may be called from any thread.

    All but those that enter and leave it raise Misconfigured before it is entered: nothing guards the work yet.
    """

    def __init__(
        self,
        worker: Worker,
        job_id: str,
        *,
        terms: Terms,
        on_unreadable: OnUnreadable,
        strict: bool = False,
        retry_in: RetryIn | None = None,
        patience: Backoff | None = None,
    ) -> None:
        if on_unreadable not in ("raise", "run"):
            raise Misconfigured(f"on_unreadable must be 'raise' or 'run' value={on_unreadable!r}")
        self.job_id = job_id
        self._worker = worker
        self._terms = terms
        self._on_unreadable = on_unreadable
        self._strict = strict
        self._retry_in = retry_in
        self._patience = patience or Backoff(deadline_s=0)
        self._is_present = self._was_entered = False
        self._job = Job(job_id=job_id)
        self._params: Any = None
        self._unknown: AppendUnknown | None = None
        self._result: Any = None
        self._canceled = False
        self._checked_at = -math.inf
        self._progressed_at = -math.inf
        self._pending: Draft | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one progress after the other: the last said is the last recorded
        self._timer: threading.Timer | None = None
        self._ticks = 0  # of the timer since the last progress was recorded
        self._lines = LineBuffer(worker.logs)
        self.tail: Callable[[], Sequence[str]] = tuple  # the last lines of its log, for the record of a failure

    @property
    def params(self) -> Any:
        """What the job was submitted with, the handler's own copy; None for a job that nobody queued."""
        self._check_entered()
        return self._params

    @property
    def number(self) -> int:
        """Which try this is, from 1; 0 when it runs ungranted."""
        return self._job.attempt if self.granted else 0

    @property
    def start(self) -> int:
        """Version of the JobStarted that granted it: the fence; 0 when it runs ungranted."""
        return self._job.start if self.granted else 0

    @property
    def granted(self) -> bool:
        """Tell whether the log granted it; an ungranted one runs since the log could not be read (`on_unreadable="run"`)."""
        return self._job.state == RUNNING

    def __enter__(self) -> Self:
        """Ask the guard.

        Raises:
            AlreadySucceeded, AlreadyCanceled, AlreadyRunning, Busy, Refused: the work must not be done, or not now.
            Unavailable, AppendUnknown, PermissionDenied, Corrupt: it cannot be known; have the task delivered again.
        """
        try:
            wanted = self.ask()
            job = grant(self._worker, wanted, self._terms)
        except UNREADABLE as error:
            if self._on_unreadable == "raise":
                self.leave()
                raise
            self._unknown = error if isinstance(error, AppendUnknown) else None
            self._warn("job runs ungranted, since its record is unreadable", error)
            self._enter(self._job)
        except BaseException:
            self.leave()
            raise
        else:
            self._enter(job)
        return self

    def ask(self) -> Wanted:
        """Return the start to ask for, together with other changes; then `enter` or `leave` is to be called.

        Raises:
            Unavailable, PermissionDenied: our lease cannot be renewed, and nothing must be started under it.
        """
        presence, label = self._worker.presence, self._worker.label
        self._worker = msgspec.structs.replace(self._worker, identity=presence.enter(self.job_id, label))
        self._is_present = True
        presence.vouch(label)
        return start_of(self._worker, self.job_id, self._terms)

    def enter(self, change: Change) -> None:
        """Enter by what came of `ask`.

        Raises:
            AlreadyCanceled: the job was canceled instead, since that was asked for.
        """
        try:
            job = granted(self._worker, change)
        except BaseException:
            self.leave()
            raise
        self._enter(job)

    def _enter(self, job: Job) -> None:
        self._job = job
        self._was_entered = True
        self._params = msgspec.json.decode(msgspec.json.encode(job.params))

    def _check_entered(self) -> None:
        if not self._was_entered:
            raise Misconfigured(f"attempt was not entered job_id={self.job_id}: put the work in a `with` block of it")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the outcome; the exception goes on to the caller. A second one is refused, as that of any old start.

        Raises:
            JobEventsError: with strict=True, when the outcome could not be recorded.
        """
        self._record(self.end(error))

    def end(self, error: BaseException | None = None) -> Ending:
        """Leave the block, by an exception or not, and return the outcome, which is to be recorded before long."""
        worker = self._worker
        outcome = outcome_of(
            error,
            self._result,
            scrub=worker.scrub,
            counts=worker.counts,
            now=worker.emitter.clock(),
            retry_in_s=self._next_try_in_s() if error is not None else None,
            tail=self.tail() if error is not None else (),
        )
        return self._end(outcome)

    def _next_try_in_s(self) -> float | None:
        """Return the seconds before the next try, if this one fails and there is one left."""
        if self._retry_in is None or not self.granted or self.number >= self._job.max_attempts:
            return None
        return self._retry_in(self.number)

    def give_back(self) -> None:
        """Put the job back instead of leaving the block: the work did not begin, or stops with its process; no try is counted.

        Raises: as `__exit__`.
        """
        self._record(self.end_given_back())

    def end_given_back(self) -> Ending:
        """Leave the block as `give_back` does, and return the outcome, which is to be recorded before long."""
        return self._end(GIVEN_BACK)

    def _record(self, ending: Ending) -> None:
        error = ending.record()
        if error is not None and self._strict:
            raise error

    def _end(self, outcome: Outcome) -> Ending:
        try:
            self._stop_timer()
            self._write_lines()
            self._adopt()
            with self._writing, self._lock:
                pending, self._pending = [self._pending] if self._pending is not None else [], None
            return Ending(
                self._worker.emitter,
                self._worker.counts,
                outcome,
                job_id=self.job_id,
                start=self.start,
                by=self._by(),
                before=pending,
                patience=self._patience,
                leave=self.leave,
            )
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Be no attempt of this process any more: its end is recorded, or it was never granted."""
        if self._is_present:  # once: the job may be in another attempt of this process by now
            self._is_present = False
            self._worker.presence.leave(self.job_id, self._worker.label)

    def _adopt(self) -> None:
        """Take the grant whose reply was lost, if it is in the log after all."""
        if self._unknown is None:
            return
        try:
            settled = self._worker.emitter.settle(self._unknown)
            job = self._worker.emitter.load(self.job_id)
        except JobEventsError as error:
            self._warn("grant not found out", error)
            return
        events = settled.events if settled is not None else ()
        start = next((event.version for event in events if isinstance(event, JobStarted)), 0)
        if start and job.is_current(start):
            self._job = job

    def progress(self, percent: float, message: str = "") -> None:
        """Say how far the work is, 0 to 100; at most two events a second are recorded, and always the last.

        On a log of objects it is one in ten seconds: each is a write that is paid for.
        """
        self._check_entered()
        try:
            draft = partial(
                JobProgressed,
                start=self.start,
                percent=boundary.check_percent(percent),
                message=boundary.clean_text(message, boundary.TITLE_LIMIT, "message"),
            )
        except InvalidValue as error:
            self._warn("progress dropped", error)
            return
        with self._lock:
            self._pending = draft
            due = self._worker.monotonic() - self._progressed_at >= self._pace.progress_s
        if due:
            self._flush()
        else:
            self._flush_later()

    def annotate(self, *, title: str = "", command: str = "", **fields: str | float | bool | None) -> None:
        """Set the title or service fields of the record; an empty text or None takes a field away."""
        self._check_entered()
        try:
            flat = check_fields(scrubbed(fields, self._worker.scrub))
            draft = partial(
                JobAnnotated,
                start=self.start,
                title=boundary.clean_text(title, boundary.TITLE_LIMIT, "title"),
                command=boundary.check_name("command", command, optional=True),
                fields=flat,
            )
        except InvalidValue as error:
            self._warn("annotation dropped", error)
            return
        self._say([draft])

    def log(self, message: str, *, level: str = "info", **attrs: Any) -> None:
        """Add a line to the job's log: kept in order across attempts, written within half a second."""
        self._check_entered()
        try:
            self._lines.add(self._job, self._worker.emitter.clock(), message, level, attrs)
        except JobEventsError as error:
            self._warn("log lines not written", error)
        self._flush_later()

    def result(self, value: Any) -> None:
        """Set what the job came to, a JSON value of at most 64 KiB, recorded with its success."""
        self._check_entered()
        self._result = value

    @property
    def canceled(self) -> bool:
        """Tell whether the work should stop: a cancel was asked for, or the job is another attempt's now.

        The answer is at most 0.5 s old, on a log of objects 5 s.
        """
        self._check_entered()
        now = self._worker.monotonic()
        if self.granted and not self._canceled and now - self._checked_at >= self._pace.cancel_s:
            self._checked_at = now
            try:
                job = self._worker.emitter.load(self.job_id)
            except JobEventsError as error:
                self._warn("cancel check failed", error)
            else:
                self._canceled = job.cancel_requested_at is not None or not job.is_current(self._job.start)
        return self._canceled

    def check(self) -> None:
        """Stop here if the work should stop.

        Raises:
            Canceled: a cancel was asked for, or the job is no longer this attempt's.
        """
        if self.canceled:
            raise Canceled(f"the job was asked to stop job_id={self.job_id}")

    @property
    def _pace(self) -> Pace:
        return self._worker.pace or Pace(PROGRESS_INTERVAL_S, PROGRESS_INTERVAL_S, CANCEL_CHECK_INTERVAL_S)

    def _tick(self) -> None:
        """Write log lines, and the last progress if its time has come."""
        with self._lock:
            self._ticks += 1
            waits = self._ticks * self._pace.lines_s < self._pace.progress_s
            self._timer = None
        if waits:
            self._write_lines()
            if self._pending is not None:
                self._flush_later()
        else:
            self._flush()

    def _flush(self) -> None:
        """Write what waits: log lines, and the last progress."""
        with self._writing:
            with self._lock:
                draft, self._pending = self._pending, None
                self._timer = None
                if draft is not None:
                    self._progressed_at = self._worker.monotonic()
                    self._ticks = 0
            if draft is not None:
                self._say([draft])
        self._write_lines()

    def _write_lines(self) -> None:
        try:
            self._lines.flush()
        except JobEventsError as error:
            self._warn("log lines not written", error)

    def _flush_later(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._pace.lines_s, self._tick)
                self._timer.daemon = True
                self._timer.start()

    def _stop_timer(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()  # it may be writing: the outcome comes after

    def _say(self, drafts: Iterable[Draft]) -> None:
        if not self.granted:
            return
        try:
            self._worker.emitter.change(self.job_id, lambda _: drafts, self._by())
        except IllegalTransition:
            self._worker.counts.add("events_of_old_starts_dropped")
        except JobEventsError as error:
            self._warn("event lost", error)

    def _by(self) -> By:
        return By(actor=self._worker.identity)

    def _warn(self, what: str, error: Exception) -> None:
        self._worker.counts.add("records_failed")
        logger.warning("%s job_id=%s error=%s", what, self.job_id, error)
