"""Counters of what happens, taken from the log itself, so that they hold for all processes that write to it.

They begin with the app: when they are asked for, the events since the last time are read. What a job did before the first
event that was read of it is not known, and is not guessed.
"""

import threading
from datetime import datetime
from typing import Final

from lru import LRU
from prometheus_client import CollectorRegistry, Counter, Histogram

from jobevents.errors import Corrupt
from jobevents.events import (
    CancelRequested,
    Event,
    JobCanceled,
    JobFailed,
    JobQueued,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.log import EventLog
from jobevents.presence import OVERDUE
from jobevents.reaper import ACTOR as REAPER

MOST: Final = 20_000  # events read at a time: about 0.2 s; the rest comes the next time
REMEMBERED: Final = 50_000  # jobs under way of which times are kept: about 10 MB
_SECONDS: Final = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)

_ENDS: Final = {JobSucceeded: "succeeded", JobFailed: "failed", JobCanceled: "canceled", JobRequeued: "requeued"}


class _Times:
    """When the steps of one job were, as far as they were read."""

    __slots__ = ("asked_at", "due_at", "started_at")

    def __init__(self) -> None:
        self.due_at: datetime | None = None
        self.started_at: datetime | None = None
        self.asked_at: datetime | None = None  # to stop


class Meter:
    """Counts the events of a log from now on. Safe for threads."""

    def __init__(self, log: EventLog, registry: CollectorRegistry) -> None:
        """Begin at the log's end, with the first call; a log that has no one order is not counted."""
        self._log = log
        self._cursor: str | None = None
        self._lock = threading.Lock()
        self._jobs: LRU[str, _Times] = LRU(REMEMBERED)
        self._events = Counter("jobevents_events_appended", "Events in the log.", ["type"], registry=registry)
        self._unreadable = Counter("jobevents_events_unreadable", "Events that cannot be read.", registry=registry)
        self._waits = Histogram(
            "jobevents_wait_seconds", "From when a job was due to its start.", buckets=_SECONDS, registry=registry
        )
        self._runs = Histogram(
            "jobevents_run_seconds", "From a start to its end.", ["outcome"], buckets=_SECONDS, registry=registry
        )
        self._cancels = Histogram(
            "jobevents_cancel_latency_seconds",
            "From the request that a running job stop to its end.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._refused = Counter(
            "jobevents_illegal_transitions", "Outcomes that came too late: TransitionRefused.", registry=registry
        )
        self._rescues = Counter(
            "jobevents_rescues",
            "Jobs of dead workers, or past their deadline, that were given back.",
            ["cause", "outcome"],
            registry=registry,
        )

    def read(self) -> None:
        """Count the events since the last call, at most 20,000.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says; the next call goes on where this one stopped.
        """
        if not self._log.ordered:
            return
        with self._lock:
            if self._cursor is None:
                self._cursor = self._log.last_cursor()
                return
            for record in self._log.scan(self._cursor, limit=MOST):
                self._cursor = record.cursor
                self._events.labels(record.type).inc()
                try:
                    self._take(record.event())
                except Corrupt:
                    self._unreadable.inc()

    def _take(self, event: Event) -> None:
        match event:
            case JobQueued():
                self._of(event).due_at = max(event.at, event.scheduled_at or event.at)
            case JobStarted():
                self._begin(event)
            case CancelRequested():
                times = self._of(event)
                times.asked_at = times.asked_at or event.at
            case JobSucceeded() | JobFailed() | JobCanceled() | JobRequeued():
                self._end(event)
            case JobSkipped():
                self._jobs.pop(event.job_id, None)
            case TransitionRefused():
                self._refused.inc()

    def _begin(self, event: JobStarted) -> None:
        times = self._of(event)
        if times.due_at is not None:
            self._waits.observe(_seconds(times.due_at, event.at))
        times.due_at, times.started_at = None, event.at

    def _end(self, event: JobSucceeded | JobFailed | JobCanceled | JobRequeued) -> None:
        times = self._of(event)
        if times.started_at is not None:
            self._runs.labels(_ENDS[type(event)]).observe(_seconds(times.started_at, event.at))
            if times.asked_at is not None:
                self._cancels.observe(_seconds(times.asked_at, event.at))
        if isinstance(event, JobRequeued) and event.cause == "lost":
            self._rescues.labels(_cause(event.reason), "requeued").inc()
        elif isinstance(event, JobFailed) and event.kind == "WorkerLost":
            self._rescues.labels(_cause(event.reason), "failed").inc()
        elif isinstance(event, JobCanceled) and event.actor == REAPER:
            self._rescues.labels(_cause(event.reason), "canceled").inc()
        due_at = event.retry_at if isinstance(event, JobFailed) else _requeued(event)
        if due_at is None:
            self._jobs.pop(event.job_id, None)
        else:
            times.due_at, times.started_at, times.asked_at = max(due_at, event.at), None, None

    def _of(self, event: Event) -> _Times:
        times = self._jobs.get(event.job_id)
        if times is None:
            times = self._jobs[event.job_id] = _Times()
        return times


def _cause(reason: str) -> str:
    return "deadline" if reason.startswith(OVERDUE) else "worker"


def _requeued(event: Event) -> datetime | None:
    return (event.scheduled_at or event.at) if isinstance(event, JobRequeued) else None


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())  # two clocks may differ
