"""What was erased of a log in memory."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from jobevents.codec import deleted_before
from jobevents.erasure import Erased


class MemoryErasures:
    """An Eraser over a recorder in memory."""

    def __init__(self, take_out: Callable[[str, int], int], tombstones: Callable[[], Iterable[bytes]]) -> None:
        """Erase nothing yet.

        Args:
            take_out: forgets a job's events below a version, and tells how many.
            tombstones: gives the stored bytes of all of them.
        """
        self._take_out = take_out
        self._tombstones = tombstones
        self._erased: dict[str, Erased] = {}

    def get(self, job_id: str) -> int:
        """Return the version below which all was erased; 0 for none."""
        erased = self._erased.get(job_id)
        return erased.version if erased else 0

    def record(self, job_id: str) -> Erased | None:
        """Return what is kept of an erasure."""
        return self._erased.get(job_id)

    def erase(self, erased: Erased) -> int:
        """Forget the events below; see `Eraser.erase`."""
        self._erased.setdefault(erased.job_id, erased)
        return self._take_out(erased.job_id, erased.version)

    def wait_s(self, job_id: str) -> float:
        """Return 0: at once."""
        return 0.0

    def unfinished(self) -> Iterator[str]:
        """Yield nothing: an erasure is one transaction."""
        return iter(())

    def deleted(self, before: datetime) -> Iterator[str]:
        """Yield the deleted jobs; see `Eraser.deleted`."""
        return deleted_before(self._tombstones(), before, self.get)

    def scrub(self) -> list[str]:
        """Do nothing: what nobody holds is gone."""
        return []
