"""A subscription that reads a recorder's sequence and then waits for more, woken by an event or by its own patience."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from eventsourcing.persistence import ApplicationRecorder, Notification, PersistenceError, Subscription

from jobevents.errors import JobEventsError

BATCH: Final = 500  # notifications a read
PATIENCE_S: Final = 1.0  # reads again after this even if nobody woke it: a hint may be lost


class Alarm(Protocol):
    """Sets events when something was committed."""

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every commit from now on."""
        ...

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone."""
        ...


class TailSubscription(Subscription[ApplicationRecorder]):
    """Notifications after a place, then new ones as they are committed.

    The consumer's own thread reads; there is none behind it. The library's own subscription reads before it listens and
    then waits without a limit, so that it can sleep through a commit; this one listens first and never waits for ever.
    """

    def __init__(
        self, recorder: ApplicationRecorder, alarm: Alarm, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder, gt=gt, topics=topics)
        self._position = gt or 0
        self._ahead: deque[Notification] = deque()
        self._woken = threading.Event()
        self._alarm = alarm
        alarm.listen(self._woken)

    def __next__(self) -> Notification:
        """Return the next notification, waiting for it.

        Raises:
            StopIteration: `stop` was called, from whatever thread.
        """
        while not self._has_been_stopped:
            if self._ahead:
                return self._ahead.popleft()
            self._woken.clear()
            if not self._reads_more() and not self._has_been_stopped:
                self._woken.wait(PATIENCE_S)
        raise StopIteration

    def stop(self) -> None:
        """End the iteration at once; any number of times."""
        super().stop()
        self._alarm.unlisten(self._woken)
        self._woken.set()

    def _reads_more(self) -> bool:
        """Read the next batch; tell whether there was one. Once stopped, the recorder may be closed under the read."""
        try:
            return self._read_ahead()
        except (JobEventsError, PersistenceError):
            if self._has_been_stopped:
                return False
            raise

    def _read_ahead(self) -> bool:
        """Read the next batch; tell whether there was one. A filtered tail does not read what it passed over again."""
        head = self._recorder.max_notification_id() if self._topics else None
        batch = self._recorder.select_notifications(
            self._position, BATCH, stop=head, topics=self._topics, inclusive_of_start=False
        )
        self._ahead.extend(batch)
        if batch:
            self._position = batch[-1].id
        elif head is not None:
            self._position = max(self._position, head)
        return bool(batch)
