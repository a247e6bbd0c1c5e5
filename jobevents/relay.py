"""The relay: sends the events of a log with one sequence to the bus, from a place in that sequence that is kept in the log.

The place moves after the bus has the events up to it. So a crash anywhere, between append and publish too, loses nothing: at
worst some are sent twice. The first relay to a topic begins with the log's first event.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from jobevents.bus import Notice, Publisher, notice
from jobevents.desk import Alarm
from jobevents.errors import JobEventsError
from jobevents.events import Event
from jobevents.job import Job
from jobevents.log import EventLog
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble

BATCH = 500  # events sent between two moves of the place
PATIENCE_S = 1.0  # the log is read again after this even if nobody woke us
STANDBY_S = 1.0  # between two looks at another's lease
GRACE_S = 0.5  # at the close, how long another process is let to send what we appended

logger = logging.getLogger(__name__)


class Places(Protocol):
    """Durable places in the log's sequence; they only rise."""

    def stored(self, view: str) -> int:
        """Return the place that is recorded; 0 for none."""
        ...

    def advance(self, view: str, position: int) -> int:
        """Record a place, and return the recorded one: a higher one when another process is ahead."""
        ...


class Role(Protocol):
    """The claim of this process to be the one that relays; see `jobevents.lease`."""

    beat_s: float

    def hold(self) -> bool:
        """Take the role or keep it; tell whether it is ours until the next beat."""
        ...

    def release(self) -> None:
        """Give the role up."""
        ...


class Relay:
    """One log to one topic. Two at once are right, only dearer: everything is sent twice.

    An observer of the Emitter: with the first append of a process its thread begins. Usable in a forked child.
    """

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        places: Places,
        name: str,
        *,
        alarm: Alarm,
        role: Callable[[], Role],
        counts: Counts,
        batch: int = BATCH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send nothing yet.

        Args:
            name: of the place, one for each topic.
            role: makes this process's claim; two processes with different clocks may think that each has it.
        """
        self._log = log
        self._publisher = publisher
        self._places = places
        self._name = name
        self._alarm = alarm
        self._role = role
        self._counts = counts
        self._batch = batch
        self._monotonic = monotonic
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._was_ours = False  # the role, when the thread ended
        self._trouble = Trouble(f"sending events to {self._name}", logger, monotonic=self._monotonic)

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Take notice of an append of this process."""
        if self._thread is None or self._pid != os.getpid():
            self.start()
        self._woken.set()

    def start(self) -> None:
        """Begin to relay, in a thread of this process; nothing when it does already."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="jobevents-relay", daemon=True)
                self._thread.start()

    def step(self) -> bool:
        """Send the next events and move the place; tell whether more wait.

        Raises:
            Unavailable, PermissionDenied, NotFound, InvalidValue, Corrupt: what log or bus says; the place is where it was.
        """
        place = self._places.stored(self._name)
        records = list(self._log.scan(str(place), limit=self._batch, batch=self._batch))
        if not records:
            return False
        notices: list[Notice] = [notice(one.job_id, one.version, one.type, one.data) for one in records]
        self._publisher.deliver(notices)
        self._places.advance(self._name, int(records[-1].cursor))
        self._counts.add("relayed", len(records))
        return len(records) == self._batch

    def behind(self) -> int:
        """Return how many places the log's end is ahead of what was sent: at least as many as events wait.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        return int(self._log.last_cursor() or 0) - self._places.stored(self._name)

    def close(self, deadline_s: float = 5.0) -> int:
        """Send what is in the log now, or see another process do it, until the deadline; return how far behind it is.

        Nothing when this process has appended nothing. What is left is sent by the next process that relays.
        """
        thread = self._thread if self._pid == os.getpid() else None
        if thread is None:
            return 0
        self._stopping.set()
        self._woken.set()
        thread.join(deadline_s)
        self._thread = None
        left = self._finish(time.monotonic() + deadline_s)
        if left:
            self._counts.add("relay_unsent", left)
            logger.warning("events wait to be relayed to=%s count=%d: whoever relays next sends them", self._name, left)
        return left

    def _finish(self, ends: float) -> int:
        left, seen, since = 1, -1, time.monotonic()
        while True:
            try:
                left = self.behind()
                if left <= 0:
                    return 0
                now = time.monotonic()
                if left != seen:
                    seen, since = left, now
                if now - since >= GRACE_S or self._was_ours:
                    self.step()
                    continue
            except JobEventsError as error:
                self._trouble.came(error)
            if time.monotonic() >= ends:
                return left
            time.sleep(0.05)

    def _run(self) -> None:
        role = self._role()
        is_ours = False
        beat_at = 0.0
        self._alarm.listen(self._woken)
        while not self._stopping.is_set():
            self._woken.clear()
            wait_s = PATIENCE_S
            try:
                if self._monotonic() >= beat_at:
                    is_ours = role.hold()
                    beat_at = self._monotonic() + (role.beat_s if is_ours else min(role.beat_s, STANDBY_S))
                if is_ours and self.step():
                    continue
                self._trouble.went()
            except JobEventsError as error:
                self._counts.add("relay_failed")
                wait_s = self._trouble.came(error)
            self._wait(wait_s)
        self._was_ours = is_ours
        self._alarm.unlisten(self._woken)
        try:
            role.release()
        except JobEventsError as error:  # it runs out by itself
            self._trouble.came(error)

    def _wait(self, seconds: float) -> None:
        """Wait to be woken; in trouble, for the whole time, or the stop."""
        if self._trouble.wait_s:
            self._stopping.wait(seconds)
        else:
            self._woken.wait(seconds)
