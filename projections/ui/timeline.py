"""What a job's time went into, as a bar: scheduled for later, waiting for a worker, running, waiting for the next try. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from jobevents.events import CancelRequested, Event, JobFailed, JobRequeued, TransitionRefused
from jobevents.job import NEW, QUEUED, RUNNING, Job, due_at, fold

WIDTH: Final = 1000  # units of a bar
_LEAST: Final = 6  # units of a part, so that it can be seen and pointed at

Kind = Literal["queued", "waiting", "running", "backoff", "ended"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of time."""

    kind: (
        Kind  # queued: not due yet; waiting: due; backoff: until the next try; ended: at rest, before it was run again
    )
    begin: datetime
    end: datetime
    attempt: int = 0  # of a running one
    outcome: str = ""  # state after a running one; "" while it runs
    x: float = 0  # in the bar
    width: float = 0

    @property
    def ms(self) -> float:
        """How long it is."""
        return max(0.0, (self.end - self.begin) / timedelta(milliseconds=1))


class Mark(msgspec.Struct, frozen=True):
    """Something at an instant."""

    x: float
    text: str
    version: int


class Timeline(msgspec.Struct, frozen=True):
    """The bar."""

    parts: list[Part]
    marks: list[Mark]
    totals: dict[Kind, float]  # milliseconds by kind, those that there are
    width: int = WIDTH


def timeline(events: Iterable[Event], now: datetime | None) -> Timeline:
    """Return the bar of a history from its first event on.

    Args:
        now: aware; up to when a job waits or runs that has not ended; None: up to its last event.
    """
    job, parts, points = Job(job_id=""), list[Part](), list[tuple[datetime, str, int]]()
    since: datetime | None = None
    is_again = False
    for event in events:
        before, job = job, fold([event], job)
        if isinstance(event, CancelRequested):
            points.append((event.at, "asked to stop", event.version))
        elif isinstance(event, TransitionRefused):
            points.append((event.at, f"{event.tried} refused", event.version))
        begins_anew = isinstance(event, JobRequeued) and before.state == QUEUED
        if since is None or before.state != job.state or begins_anew:
            if since is not None:
                parts += _split(before, since, event.at, is_again, outcome=job.state)
            since = event.at
            is_again = isinstance(event, JobFailed | JobRequeued) and before.state not in (NEW, QUEUED)
    if since is not None and not job.is_final():
        end = max(since, now) if now is not None else since
        if job.state in (QUEUED, RUNNING):
            parts += _split(job, since, end, is_again, outcome="")
    return _placed(parts, points)


def _split(job: Job, begin: datetime, end: datetime, is_again: bool, *, outcome: str) -> list[Part]:
    end = max(begin, end)  # two clocks may differ
    if job.state == RUNNING:
        return [Part(kind="running", begin=begin, end=end, attempt=job.attempt, outcome=outcome)]
    if job.state != QUEUED:
        return [Part(kind="ended", begin=begin, end=end)]
    due = min(max(due_at(job), begin), end)
    held = [Part(kind="backoff" if is_again else "queued", begin=begin, end=due)] if due > begin else []
    return [*held, Part(kind="waiting", begin=due, end=end)] if end > due or not held else held


def _placed(parts: list[Part], points: list[tuple[datetime, str, int]]) -> Timeline:
    """Give each part its place: as long as it took, but none too short to be seen."""
    totals: dict[Kind, float] = {}
    for part in parts:
        totals[part.kind] = totals.get(part.kind, 0.0) + part.ms
    whole = sum(part.ms for part in parts)
    least = min(_LEAST, WIDTH / len(parts) / 2) if parts else 0
    free = WIDTH - least * len(parts)
    placed, x = [], 0.0
    for part in parts:
        width = least + free * (part.ms / whole if whole else 1 / len(parts))
        placed.append(msgspec.structs.replace(part, x=round(x, 2), width=round(width, 2)))
        x += width
    marks = [Mark(round(_x_of(at, placed), 2), text, version) for at, text, version in points]
    return Timeline(placed, marks, totals)


def _x_of(at: datetime, parts: list[Part]) -> float:
    for part in parts:
        if part.begin <= at <= part.end:
            share = (at - part.begin) / (part.end - part.begin) if part.end > part.begin else 0.0
            return part.x + part.width * share
    return 0.0 if not parts or at < parts[0].begin else float(WIDTH)
