"""What a table of runs says of all its jobs at once: how many there are, since when they wait, how many ended when."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias

from jobevents.store import JobRun, RunFilter

Order: TypeAlias = Literal["newest", "oldest", "ended"]
"""Newest first, as lists are; the other way round; or those that have ended, the last one first."""


class Tally(NamedTuple):
    """The jobs of one queue that are in one state."""

    queue: str
    state: str  # one of the six, or the open text that a record asserted
    jobs: int


class Waiting(NamedTuple):
    """Since when the jobs of a queue wait to be handed out."""

    queue: str
    oldest_due: datetime  # when the first of them was due


class Bar(NamedTuple):
    """One bar of a time series."""

    number: int  # 0-based place in the series
    state: str  # the state in which the jobs ended; "" for those that were created
    jobs: int
    duration_ms: int  # that the last attempts of those jobs took together; 0 for those created


class Size(NamedTuple):
    """What one table takes, with its indexes."""

    table: str  # its name; "" for all that there is in the place, other tables too
    rows: int | None  # None: not counted
    size_bytes: int | None  # None: not measured
    is_estimate: bool = False  # the rows: as the database last counted them


class Census(Protocol):
    """Counts over the rows, each found by an index, and lists of them. Each call is one read."""

    def tally(self) -> Sequence[Tally]:
        """Count the jobs by queue and state, in this order."""
        ...

    def waiting(self, now: datetime) -> Sequence[Waiting]:
        """Return the queues in which a job is due that is queued and ours to hand out, by name."""
        ...

    def series(self, since: datetime, step_s: int, bars: int) -> Sequence[Bar]:
        """Count what ended, and what was created, in each of `bars` steps from a whole second on; empty bars are left out."""
        ...

    def sizes(self) -> Sequence[Size]:
        """Return what the tables of events, runs and log lines take, in this order, and all; nothing where nothing is kept.

        It may read as much as a gigabyte: what asks again and again keeps the answer for a while.
        """
        ...

    def after(self, filter: RunFilter, job_id: str, limit: int) -> Sequence[JobRun]:
        """Return the rows that match and come after a job in the order of lists; from the newest on after "".

        Args:
            filter: its page and per_page do not count.
            job_id: need not be there any more: it names a place in the order.
        """
        ...

    def page(self, filter: RunFilter, order: Order, offset: int, limit: int) -> tuple[Sequence[JobRun], int]:
        """Return the rows that match from a place in an order on, and the count of all that do, both of one state.

        Args:
            filter: its page and per_page do not count.
            offset: rows before them, which are stepped over one by one.
        """
        ...
