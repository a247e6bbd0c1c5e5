"""The guard and the attempt: JobStarted at the head of the log is what grants the right to work; all that follows carries it.

    with jobs.attempt(job_id) as attempt:
        attempt.progress(40, "mixing")
        attempt.result({"seconds": 181})

Leaving the block records the outcome: JobSucceeded, or by exception JobFailed, JobCanceled (errors.Canceled) or JobRequeued
(errors.Snooze). Once the work runs, trouble with recording it is warned of and counted, and never stops it.
"""

import logging
import math
import threading
import traceback
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from jobevents import boundary
from jobevents.emit import By, Change, Draft, Emitter
from jobevents.errors import (
    AlreadyCanceled,
    AlreadyRunning,
    AlreadySucceeded,
    AppendUnknown,
    Canceled,
    Corrupt,
    IllegalTransition,
    InvalidValue,
    JobEventsError,
    PermissionDenied,
    Snooze,
    Unavailable,
)
from jobevents.events import (
    JobAnnotated,
    JobCanceled,
    JobFailed,
    JobProgressed,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import CANCELED, DELETED, NEW, RUNNING, SUCCEEDED, Job, allowed
from jobevents.joblogs import LineBuffer
from jobevents.status import is_reserved
from jobevents.store import LogTable
from jobevents.telemetry import Counts

PROGRESS_INTERVAL_S = 0.5  # at most two progress events a second for a job: each is a row and a message
CANCEL_CHECK_INTERVAL_S = 0.5  # how old the answer of `canceled` may be

OnUnreadable = Literal["raise", "run"]
UNREADABLE = (Unavailable, AppendUnknown, PermissionDenied, Corrupt)

logger = logging.getLogger(__name__)


class Worker(msgspec.Struct, frozen=True):
    """What an attempt needs of the process it runs in."""

    emitter: Emitter
    logs: LogTable
    counts: Counts
    monotonic: Callable[[], float]
    scrub: boundary.Scrub
    identity: str  # who works: the events' `worker` and `actor`


def grant(worker: Worker, job_id: str, deadline_s: float | None, *, trace: str = "") -> Change:
    """Append JobStarted if the job may be started, and return the job as it then is: one append decides, however many race.

    A job nobody queued may be started all the same: a task delivered before its record, or older than this system. A start
    whose deadline has passed is taken for lost and fenced off first.

    Raises:
        AlreadySucceeded, AlreadyCanceled, AlreadyRunning: it may not be started.
        AppendUnknown, Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    now = worker.emitter.clock()
    deadline = None if deadline_s is None else now + timedelta(seconds=deadline_s)

    def decide(job: Job) -> list[Draft]:
        lost: list[Draft] = []
        tries = job.tries
        if job.state == SUCCEEDED:
            raise AlreadySucceeded("the job has succeeded already", job_id=job_id)
        if job.state in (CANCELED, DELETED):
            raise AlreadyCanceled(f"the job was {job.state}", job_id=job_id)
        if job.state == RUNNING:
            if job.deadline is None or job.deadline > now:
                raise AlreadyRunning(f"the job runs already worker={job.worker}", job_id=job_id)
            if job.cancel_requested_at is not None:  # it died after the request: nobody wants it again (CAN-08)
                return [partial(JobCanceled, start=job.start)]
            lost, tries = [partial(JobRequeued, cause="lost", start=job.start)], job.attempt
        return [*lost, partial(JobStarted, attempt=tries + 1, worker=worker.identity, deadline=deadline)]

    change = worker.emitter.change(job_id, decide, By(actor=worker.identity, trace=trace))
    if change.job.state == CANCELED:
        raise AlreadyCanceled("the job was canceled while its worker was lost", job_id=job_id)
    return change


class Attempt:
    """One try at a job, from its grant to its outcome. Its methods may be called from any thread."""

    def __init__(
        self, worker: Worker, job_id: str, *, deadline_s: float | None, on_unreadable: OnUnreadable, strict: bool = False
    ) -> None:
        self.job_id = job_id
        self._worker = worker
        self._deadline_s = deadline_s
        self._on_unreadable = on_unreadable
        self._strict = strict
        self._job = Job(job_id=job_id)
        self._result: Any = None
        self._canceled = False
        self._checked_at = -math.inf
        self._progressed_at = -math.inf
        self._pending: Draft | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._lines = LineBuffer(worker.logs)

    @property
    def params(self) -> Any:
        """What the job was submitted with; None for a job that nobody queued."""
        return self._job.params

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
            AlreadySucceeded, AlreadyCanceled, AlreadyRunning: the work must not be done.
            Unavailable, AppendUnknown, PermissionDenied, Corrupt: it cannot be known; have the task delivered again.
        """
        try:
            self._job = grant(self._worker, self.job_id, self._deadline_s).job
        except UNREADABLE as error:
            if self._on_unreadable == "raise":
                raise
            self._warn("job runs ungranted, since its record is unreadable", error)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Record the outcome; the exception goes on to the caller.

        Raises:
            JobEventsError: with strict=True, when the outcome could not be recorded.
        """
        self._stop_timer()
        try:
            self._lines.flush()
        except JobEventsError as lost:
            self._warn("log lines lost", lost)
        self._conclude(_outcome(error, self._result, self._worker))

    def progress(self, percent: float, message: str = "") -> None:
        """Say how far the work is, 0 to 100; at most two events a second are recorded, and always the last."""
        if not (isinstance(percent, int | float) and math.isfinite(percent)):
            self._warn("progress dropped, since it is no number", InvalidValue(f"percent={percent!r:.40}"))
            return
        percent = min(100, max(0, percent))
        draft = partial(
            JobProgressed,
            start=self.start,
            percent=int(percent) if percent == int(percent) else percent,
            message=boundary.clean_text(message, boundary.TITLE_LIMIT),
        )
        with self._lock:
            self._pending = draft
            due = self._worker.monotonic() - self._progressed_at >= PROGRESS_INTERVAL_S
        if due:
            self._flush()
        else:
            self._flush_later()

    def annotate(self, *, title: str = "", command: str = "", **fields: str | float | bool | None) -> None:
        """Set the title or service fields of the record; an empty text or None takes a field away."""
        try:
            flat = self._worker.scrub(check_fields(fields))
            draft = partial(
                JobAnnotated,
                start=self.start,
                title=boundary.clean_text(title, boundary.TITLE_LIMIT),
                command=boundary.check_name("command", command, optional=True),
                fields=flat,
            )
        except InvalidValue as error:
            self._warn("annotation dropped", error)
            return
        self._record([draft])

    def log(self, message: str, *, level: str = "info", **attrs: Any) -> None:
        """Add a line to the job's log: kept in order across attempts, written within half a second."""
        self._lines.add(self._job, self._worker.emitter.clock(), message, level, attrs)
        self._flush_later()

    def result(self, value: Any) -> None:
        """Set what the job came to, a JSON value of at most 64 KiB, recorded with its success."""
        self._result = value

    @property
    def canceled(self) -> bool:
        """Tell whether the work should stop: a cancel was asked for, or the job is another attempt's now; at most 0.5 s old."""
        now = self._worker.monotonic()
        if self.granted and not self._canceled and now - self._checked_at >= CANCEL_CHECK_INTERVAL_S:
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

    def _flush(self) -> None:
        """Write what waits: log lines, and the last progress."""
        with self._lock:
            draft, self._pending = self._pending, None
            self._timer = None
            if draft is not None:
                self._progressed_at = self._worker.monotonic()
        if draft is not None:
            self._record([draft])
        try:
            self._lines.flush()
        except JobEventsError as error:
            self._warn("log lines lost", error)

    def _flush_later(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(PROGRESS_INTERVAL_S, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def _stop_timer(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()  # it may be writing: the outcome comes after

    def _record(self, drafts: Iterable[Draft]) -> None:
        if not self.granted:
            return
        try:
            self._worker.emitter.change(self.job_id, lambda _: drafts, self._by())
        except IllegalTransition:
            self._worker.counts.add("events_of_old_starts_dropped")
        except JobEventsError as error:
            self._warn("event lost", error)

    def _conclude(self, outcome: "Outcome") -> None:
        pending = [self._pending] if self._pending is not None else []

        def decide(job: Job) -> list[Draft]:
            if self.granted and job.is_current(self._job.start):
                return [*pending, partial(outcome.draft, start=self._job.start)]
            if not self.granted and JobStarted in allowed(job.state):
                began = partial(JobStarted, attempt=job.tries + 1, worker=self._worker.identity, late=True)
                return [began, partial(outcome.draft, start=job.version + 1)]
            return _refusal(job, self.start, outcome, ungranted=not self.granted)

        try:
            change = self._worker.emitter.change(self.job_id, decide, self._by())
        except JobEventsError as error:
            self._warn(f"outcome not recorded outcome={outcome.type}", error)
            if self._strict:
                raise
            return
        if not change.events or isinstance(change.events[-1], TransitionRefused):
            self._worker.counts.add("outcomes_refused")
            logger.warning("outcome refused job_id=%s outcome=%s state=%s", self.job_id, outcome.type, change.job.state)

    def _by(self) -> By:
        return By(actor=self._worker.identity)

    def _warn(self, what: str, error: Exception) -> None:
        self._worker.counts.add("records_failed")
        logger.warning("%s job_id=%s error=%s", what, self.job_id, error)


def _refusal(job: Job, start: int, outcome: "Outcome", *, ungranted: bool) -> list[Draft]:
    """One TransitionRefused for each start, none after a deletion."""
    if job.state in (NEW, DELETED) or (start and start in job.refused):
        return []
    detail = "ran ungranted" if ungranted else outcome.detail
    return [partial(TransitionRefused, start=start, tried=outcome.type, state=job.state, detail=detail)]


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt ended, as the event that says so (but for its start)."""

    type: str
    draft: Draft
    detail: str = ""


def _outcome(error: BaseException | None, result: Any, worker: Worker) -> Outcome:
    match error:
        case None:
            kept = storable_result(result, worker)
            return Outcome("JobSucceeded", partial(JobSucceeded, result=kept))
        case Canceled():
            return Outcome("JobCanceled", JobCanceled)
        case Snooze():
            due = worker.emitter.clock() + error.delay
            return Outcome("JobRequeued", partial(JobRequeued, cause="snooze", scheduled_at=due))
        case _:
            text = boundary.clean_text(str(worker.scrub(describe(error))), boundary.ERROR_LIMIT)
            lines = "".join(traceback.format_exception(error, limit=-100))
            failed = partial(
                JobFailed,
                error=text,
                kind=type(error).__name__,
                traceback=boundary.clean_text(str(worker.scrub(lines)), boundary.TRACEBACK_LIMIT),
            )
            return Outcome("JobFailed", failed, detail=boundary.clean_text(text, boundary.TITLE_LIMIT))


def storable_result(result: Any, worker: Worker) -> Any:
    """Return the result, or a marker that says why it cannot be stored: the job has succeeded all the same."""
    try:
        return boundary.check_json("result", worker.scrub(result))
    except InvalidValue as error:
        worker.counts.add("results_not_storable")
        return {"unstorable": boundary.clean_text(str(error), boundary.TITLE_LIMIT)}


def describe(error: BaseException) -> str:
    """Return the text of an exception, or its class name where it has none or cannot say it."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  # an exception whose __str__ fails must not hide that the job failed
        return type(error).__name__


_SHOWN_LIKE_FIELDS = frozenset({"progress", "progress_message"})


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return service fields made storable: flat, none of the common keys (behaviour S5.1).

    Raises:
        InvalidValue: a nested value, a common key, or a value that JSON cannot hold.
    """
    checked = {}
    for key, value in fields.items():
        if is_reserved(boundary.check_name("field", key)) or key in _SHOWN_LIKE_FIELDS:
            raise InvalidValue(f"field is one of the common keys field={key}; choose another name")
        if isinstance(value, str):
            checked[key] = boundary.clean_text(value, boundary.LINE_LIMIT)
        elif isinstance(value, dict | list | tuple):
            raise InvalidValue(f"field is nested, the record is flat field={key}; annotate its parts one by one")
        else:
            checked[key] = boundary.check_json(f"field {key}", value)
    return checked
