"""The newest events of a log in its one order, without what they carry: read once, and from there on only what is new."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from jobevents.errors import Corrupt
from jobevents.events import Event, JobFailed, JobQueued, JobRequeued, JobStarted, TransitionRefused
from jobevents.log import EventLog, Record
from projections.api.problems import CannotFilter

KEPT: Final = 20_000  # events in memory: about 10 MB
_STEP: Final = 2000  # events of a look further back

UNORDERED: Final = "this log has no one order over all jobs, in which what happened last could be found"


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as far as it is of interest beside others."""

    position: int  # place in the log
    job_id: str
    version: int
    type: str
    at: datetime
    actor: str = ""
    reason: str = ""
    due: datetime | None = None  # when its job is to be started, of an event that says so
    queue: str = ""  # of a JobQueued
    note: str = ""  # cause of a JobRequeued; what a TransitionRefused refused; kind of job of a JobQueued


class Recent:
    """The newest events. Safe for threads."""

    def __init__(self, log: EventLog, kept: int = KEPT) -> None:
        """Read nothing yet."""
        self._log = log
        self._kept = kept
        self._noted: deque[Noted] = deque(maxlen=kept)
        self._position: int | None = None
        self._lock = threading.Lock()

    def read(self) -> list[Noted]:
        """Return them, oldest first: at first one pass over so many, later over what came since.

        Raises:
            CannotFilter: the log has no one order. Unavailable, PermissionDenied, Corrupt: what it says.
        """
        if not self._log.ordered:
            raise CannotFilter(UNORDERED)
        with self._lock:
            if self._position is None:
                self._position = max(0, int(self._log.last_cursor() or 0) - self._kept)
            for record in self._log.scan(str(self._position)):
                self._noted.append(_noted(record))
                self._position = int(record.cursor)
            return list(self._noted)

    def before(self, position: int, wanted: Callable[[Noted], bool], limit: int) -> tuple[list[Noted], int]:
        """Look back for events before a place, or from the end with 0; return them, newest first, and where the look stopped.

        At most `KEPT` events are looked at; the place is 0 when the log's first one was among them.

        Raises: as `read`.
        """
        if not self._log.ordered:
            raise CannotFilter(UNORDERED)
        upper = position or int(self._log.last_cursor() or 0) + 1
        found: list[Noted] = []
        looked = 0
        while upper > 1 and looked < self._kept:
            lower = max(0, upper - 1 - _STEP)
            part = [_noted(one) for one in self._log.scan(str(lower), limit=_STEP) if int(one.cursor) < upper]
            for one in reversed(part):
                if wanted(one):
                    found.append(one)
                    if len(found) == limit:
                        return found, one.position if one.position > 1 else 0
            upper, looked = lower + 1, looked + _STEP
        return found, upper if upper > 1 else 0


def by_job(noted: list[Noted]) -> Iterator[tuple[Noted, Noted]]:
    """Yield each event of a job with the one before it, where both are there."""
    last: dict[str, Noted] = {}
    for one in noted:
        before = last.get(one.job_id)
        if before is not None:
            yield before, one
        last[one.job_id] = one


def _noted(record: Record) -> Noted:
    place = {"position": int(record.cursor), "job_id": record.job_id, "version": record.version, "type": record.type}
    try:
        event = record.event()
    except Corrupt as error:
        return msgspec.convert(
            {**place, "at": "1970-01-01T00:00:00Z", "note": f"cannot be read: {error}"}, Noted, strict=False
        )
    return Noted(
        position=int(record.cursor),
        job_id=record.job_id,
        version=record.version,
        type=record.type,
        at=event.at,
        actor=event.actor,
        reason=event.reason,
        due=_due(event),
        queue=event.queue if isinstance(event, JobQueued) else "",
        note=_note(event),
    )


def _due(event: Event) -> datetime | None:
    match event:
        case JobQueued() | JobRequeued():
            return max(event.at, event.scheduled_at or event.at)
        case JobFailed():
            return event.retry_at
    return None


def _note(event: Event) -> str:
    match event:
        case JobQueued():
            return event.name
        case JobRequeued():
            return event.cause
        case TransitionRefused():
            return event.tried
        case JobStarted():
            return event.worker
    return ""
