"""How far a view is stored, for views that keep it in the log's own database: over the tracking of eventsourcing's recorder."""

from typing import Protocol, runtime_checkable

from eventsourcing.persistence import IntegrityError, PersistenceError, Tracking

from jobevents.errors import JobEventsError


class Positions(Protocol):
    """Positions of views in the log's one sequence; they only rise."""

    def stored(self, view: str) -> int:
        """Return the position that is recorded; 0 for none. One read."""
        ...

    def advance(self, view: str, position: int) -> int:
        """Record a position, durably, and return the recorded one: a higher one when another projector is ahead."""
        ...


@runtime_checkable
class Tracker(Protocol):
    """What is needed of a recorder: the library's TrackingRecorder, and our errors for those of its database."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position; IntegrityError when it is not above the recorded one."""
        ...

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return the recorded position; None for none."""
        ...

    def translate(self, error: BaseException) -> JobEventsError:
        """Return our error for one of the library's."""
        ...


class TrackedPositions:
    """Positions as the library's Tracking, one record for each view. Safe for threads and processes, as the recorder is."""

    def __init__(self, recorder: Tracker) -> None:
        self._recorder = recorder

    def stored(self, view: str) -> int:
        """Return the position that is recorded; 0 for none.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the database says.
        """
        try:
            return self._recorder.max_tracking_id(view) or 0
        except PersistenceError as error:
            raise self._recorder.translate(error) from error

    def advance(self, view: str, position: int) -> int:
        """Record a position unless a higher one is there, and return the one that is.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the database says; a reply may have been lost, so ask again.
        """
        try:
            self._recorder.insert_tracking(Tracking(view, position))
        except IntegrityError:
            return self.stored(view)
        except PersistenceError as error:
            raise self._recorder.translate(error) from error
        return position
