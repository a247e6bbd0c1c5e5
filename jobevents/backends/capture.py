"""A capture, opened: the log in memory, filled once from a file, and closed to every write after that."""

from collections.abc import Sequence
from typing import Any, NoReturn

from eventsourcing.persistence import StoredEvent

from jobevents.backends.memory import MemoryRecorder
from jobevents.errors import PermissionDenied
from jobevents.pauses import Pause, Paused
from jobevents.store import JobLog


class CaptureRecorder(MemoryRecorder):
    """The recorder in memory that can be sealed; what would write afterwards is refused, and changes nothing."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        super().__init__()
        self._is_sealed = False
        self.desk = self.desk._replace(pauses=_NoPauses())

    def seal(self) -> None:
        """Take no event and no log line from now on."""
        self._is_sealed = True
        self.run_logs.append_logs = self._refuse_lines  # type: ignore[method-assign]  # the table is this recorder's own

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store events as the log in memory does; see there.

        Raises:
            PermissionDenied: it is sealed.
        """
        if self._is_sealed and stored_events:
            _refuse()
        return super().insert_events(stored_events, **kwargs)

    def _refuse_lines(self, entries: Sequence[JobLog]) -> None:
        if entries:
            _refuse()


class _NoPauses:
    """Nothing is paused, and nothing can be."""

    def add(self, pause: Pause) -> bool:
        """Raise PermissionDenied."""
        _refuse()

    def drop(self, kind: Paused, name: str) -> bool:
        """Raise PermissionDenied."""
        _refuse()

    def list(self) -> Sequence[Pause]:
        """Return nothing."""
        return ()

    def holds(self, queue: str, job_name: str) -> bool:
        """Tell that nothing is paused."""
        return False


def _refuse() -> NoReturn:
    raise PermissionDenied("a capture is read-only: import the file into a log of your own to go on from it")
