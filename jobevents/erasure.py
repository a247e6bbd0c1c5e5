"""The port of erasure: a job's events below its tombstone taken out of a log for good, and what says so."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from jobevents.assertions import Instant


class Erased(msgspec.Struct, frozen=True):
    """What a log keeps of an erasure: nothing that the job said."""

    job_id: str
    version: int  # of the tombstone: every event of a lower version is gone
    chain: str  # of the last event below it, which the tombstone goes on from
    at: Instant  # when it was asked for
    actor: str = ""  # who asked
    reason: str = ""


class Eraser(Protocol):
    """Takes events out of a log. Safe for threads; each call may raise Unavailable or PermissionDenied."""

    def get(self, job_id: str) -> int:
        """Return the version below which all events of a job are to be gone; 0 for none."""
        ...

    def record(self, job_id: str) -> Erased | None:
        """Return what is kept of a job's erasure."""
        ...

    def erase(self, erased: Erased) -> int:
        """Keep that it was asked for, then take out the events and what else the log has of the job; return how many events.

        Repeatable. No event of the job can be written below the tombstone from then on, its first one included.
        """
        ...

    def wait_s(self, job_id: str) -> float:
        """Return the seconds before the events of a job whose erasure was asked for may be taken out; 0: now."""
        ...

    def unfinished(self) -> Iterator[str]:
        """Yield the jobs whose erasure was asked for and of which events may be there still, late ones too."""
        ...

    def deleted(self, before: datetime) -> Iterator[str]:
        """Yield the jobs that were deleted before a time and not erased; one pass over the log."""
        ...

    def scrub(self) -> list[str]:
        """Make what was taken out unreadable in the storage itself; return what it could not do, in words for people."""
        ...
