"""What was erased of a log in memory."""

from collections.abc import Callable
from datetime import datetime

from jobevents.erasure import Erased


class MemoryErasures:
    """An Eraser over a recorder in memory."""

    def __init__(self, take_out: Callable[[str, int], int]) -> None:
        """Erase nothing yet; `take_out` forgets a job's events below a version, and tells how many."""
        self._take_out = take_out
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

    def ripe_at(self, job_id: str) -> datetime | None:
        """Return None: at once."""
        return None

    def scrub(self) -> list[str]:
        """Do nothing: what nobody holds is gone."""
        return []
