"""The index over a log without one sequence: jobs are told apart by their versions alone, and no place in a log is kept.

The index keeps the place up to which it has everything, and drops what another writer's place covers. Where several
projectors each have a sequence of their own that would drop what nobody has stored. So all of them write one and the same
place, and each knows for itself what of its own sequence is stored: everything, whenever the index holds nothing back.
"""

from collections.abc import Callable, Sequence

from jobevents.job import Job
from projections.view import View

PLACE = 1  # in every manifest of such a log


class UnplacedIndex:
    """An IndexView whose positions are those of this process. One thread calls it."""

    def __init__(self, view: View, *, on_lost: Callable[[], None] = lambda: None) -> None:
        """Wrap a view.

        Args:
            on_lost: called when the index that was written is gone, and every job has to be found again.
        """
        self.name = view.name
        self._view = view
        self._on_lost = on_lost
        self._place = PLACE
        self._had_one = False
        self._taken = 0
        self._stored = 0

    def position(self) -> int:
        """Return the place in this process's sequence up to which all is stored, and go on from it. One read."""
        kept = self._view.position()
        if self._had_one and not kept:
            self._on_lost()
        self._had_one = self._had_one or kept > 0
        self._place = max(PLACE, kept)  # one that was made over a log in a database has that log's last place
        self._taken = self._stored
        return self._stored

    def take(self, jobs: Sequence[Job], position: int) -> None:
        """Hold jobs until they are due; no I/O."""
        self._view.take(jobs, self._place)
        self._taken = max(self._taken, position)

    def flush(self, *, everything: bool = False) -> int:
        """Store what is due; see IndexView for what it raises."""
        self._had_one = self._view.flush(everything=everything) > 0 or self._had_one
        if self._view.next_flush_s() is None:
            self._stored = self._taken
        return self._stored

    def next_flush_s(self) -> float | None:
        """Return in how many seconds what waits is due."""
        return self._view.next_flush_s()
