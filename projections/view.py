"""What a view is: a read model that takes folded jobs in the order of the log, and says how far it is safely stored."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from jobevents.errors import JobEventsError
from jobevents.events import Event
from jobevents.job import Job
from jobevents.log import Record


class Unstorable(JobEventsError):
    """A view could not store one job, for a reason of its own, and has let go of it; all others were stored, or wait."""

    def __init__(self, job_id: str, version: int, cause: Exception) -> None:
        super().__init__(f"job cannot be stored job_id={job_id} version={version} cause={cause}")
        self.job_id = job_id
        self.version = version
        self.cause = cause


class Feed(Protocol):
    """What a Projector reads: a log that has one sequence, or what stands for one."""

    def scan(self, cursor: str = "", *, limit: int | None = None, batch: int = ...) -> Iterator[Record]:
        """Yield the events after a place, up to now or to `limit`."""
        ...

    def last_cursor(self) -> str:
        """Return the place of the last event; "" for none."""
        ...

    def read(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return events of one job."""
        ...

    def read_raw(self, job_id: str) -> list[Record]:
        """Return all events of one job, undecoded."""
        ...


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
