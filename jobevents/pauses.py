"""What is paused: kinds of job and queues whose runs are not handed out, until somebody resumes them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Lock
from typing import Literal, Protocol, TypeAlias

import msgspec

from jobevents.boundary import NAME_LIMIT, REASON_LIMIT, check_name, clean_text
from jobevents.errors import InvalidValue

Paused: TypeAlias = Literal["job", "queue"]


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of job or a queue that is paused."""

    kind: Paused  # what is: a kind of job, or a queue
    name: str  # its name
    at: datetime  # since when, aware UTC, the clock of who paused it
    by: str = ""  # who paused it
    reason: str = ""  # why


class Pauses(Protocol):
    """The pauses of one log, as lasting as that. Each call is one read or one transaction."""

    def add(self, pause: Pause) -> bool:
        """Pause it; False when it is paused already, which stays as it is."""
        ...

    def drop(self, kind: Paused, name: str) -> bool:
        """Resume it; False when it is not paused."""
        ...

    def list(self) -> Sequence[Pause]:
        """Return what is paused, by kind and name."""
        ...


def named(job: str, queue: str) -> tuple[Paused, str]:
    """Return the one of both that is named, and which it is.

    Raises:
        InvalidValue: none is, or both are; or that is no name.
    """
    if bool(job) == bool(queue):
        raise InvalidValue(f"name a kind of job or a queue, one of both job={job!r} queue={queue!r}")
    return ("job", check_name("job", job)) if job else ("queue", check_name("queue", queue))


def pause(job: str, queue: str, *, at: datetime, by: str, reason: str) -> Pause:
    """Return the pause of a kind of job or a queue.

    Raises: as `named`.
    """
    kind, name = named(job, queue)
    return Pause(
        kind=kind,
        name=name,
        at=at,
        by=clean_text(by, NAME_LIMIT, "actor"),
        reason=clean_text(reason, REASON_LIMIT, "reason"),
    )


class MemoryPauses:
    """The pauses of a log in memory."""

    def __init__(self, announce: Callable[[], None]) -> None:
        """Pause nothing yet; `announce` wakes who waits."""
        self._announce = announce
        self._lock = Lock()
        self._pauses: dict[tuple[str, str], Pause] = {}

    def add(self, pause: Pause) -> bool:
        with self._lock:
            return self._pauses.setdefault((pause.kind, pause.name), pause) is pause

    def drop(self, kind: Paused, name: str) -> bool:
        with self._lock:
            dropped = self._pauses.pop((kind, name), None) is not None
        self._announce()
        return dropped

    def list(self) -> Sequence[Pause]:
        with self._lock:
            return [pause for _, pause in sorted(self._pauses.items())]

    def holds(self, queue: str, job_name: str) -> bool:
        """Tell whether runs of this queue and kind are not to be handed out."""
        return ("queue", queue) in self._pauses or ("job", job_name) in self._pauses
