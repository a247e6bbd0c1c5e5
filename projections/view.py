"""What a view is: a read model that takes folded jobs in the order of the log, and says how far it is safely stored."""

from collections.abc import Sequence
from typing import Protocol

from jobevents.errors import JobEventsError
from jobevents.job import Job


class Unstorable(JobEventsError):
    """A view could not store one job, for a reason of its own, and has let go of it; all others were stored, or wait."""

    def __init__(self, job_id: str, version: int, cause: Exception) -> None:
        super().__init__(f"job cannot be stored job_id={job_id} version={version} cause={cause}")
        self.job_id = job_id
        self.version = version
        self.cause = cause


class View(Protocol):
    """A read model fed by the Projector; one thread calls it.

    Positions are places in the log's one sequence, as `int(record.cursor)`. A view may hold back what it took, to write less
    often; it must never say that a position is stored before everything up to it is.
    """

    @property
    def name(self) -> str:
        """Which view: the name of its tracking record, and of its parked jobs."""
        ...

    def position(self) -> int:
        """Return the position up to which all events are in the stored view; 0 for none. Reads the store.

        What was taken beyond it is dropped: the projector goes on from this position, in what may be another log by now.
        """
        ...

    def take(self, jobs: Sequence[Job], position: int) -> None:
        """Take jobs as they are after all events up to `position`: those that changed since the last call, one each.

        A job whose version the view has already, or a newer one, changes nothing. What it raises is taken for the trouble of
        one of the jobs, unless it is Unavailable: they are then given again one by one, at the position before.
        """
        ...

    def flush(self, *, everything: bool = False) -> int:
        """Store what is due (`everything`: all that was taken) and return the position that is stored now.

        Raises:
            Unavailable, PermissionDenied: the store's trouble; nothing that was taken is lost, flush again.
            Unstorable: one job was given up; no position beyond it is stored yet, flush again for the rest.
        """
        ...

    def next_flush_s(self) -> float | None:
        """Return in how many seconds something taken will be due; None when nothing waits."""
        ...
