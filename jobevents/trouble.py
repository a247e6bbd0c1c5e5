"""Trouble that lasts: one line when it begins, one when it is over, and a growing wait between tries.

A line says what happened and what is done now. Where things fail as they may (a store that is away, a lock that is held) it is
all there is; an error that nobody raises on purpose is a fault of a program, and has its traceback.
"""

import logging
import threading
import time
from collections.abc import Callable

from jobevents.boundary import describe
from jobevents.errors import JobEventsError

EXPECTED = (JobEventsError, OSError)  # what a traceback says nothing more of
FIRST_S, MOST_S = 0.5, 30.0  # between two tries: doubled each time


def traced(error: BaseException) -> BaseException | None:
    """Return an error as the `exc_info` of its line: None for one that may be, as its line says all."""
    return None if isinstance(error, EXPECTED) else error


class Trouble:
    """What goes wrong again and again with one thing. Safe for threads."""

    def __init__(
        self,
        what: str,
        logger: logging.Logger,
        *,
        again: str = "is tried again in {wait_s:g} s, then less and less often",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """All is well yet; `what` is done, as lines begin that tell of it: "reserving runs"; and `again` says what follows."""
        self._again = again
        self._what = what
        self._monotonic = monotonic
        self._logger = logger
        self._wait_s = 0.0
        self._since = 0.0  # when the trouble began, monotonic seconds; as the next
        self._until = 0.0  # when the wait ends
        self._lock = threading.Lock()

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next try; 0 while all is well."""
        return self._wait_s

    def came(self, error: BaseException) -> float:
        """Take note of an error, and return the seconds to wait: twice as long after each wait, however many call within one."""
        now = self._monotonic()
        with self._lock:
            is_new = not self._wait_s
            if is_new:
                self._since = now
            if is_new or now >= self._until:
                self._wait_s = min(2 * self._wait_s, MOST_S) or FIRST_S
                self._until = now + self._wait_s
            wait_s = self._wait_s
        if is_new:
            self._logger.warning(
                "%s failed and %s error=%s",
                self._what,
                self._again.format(wait_s=wait_s),
                describe(error),
                exc_info=traced(error),
            )
        return wait_s

    def went(self) -> None:
        """Take note of a success."""
        if self._wait_s:
            with self._lock:
                was, self._wait_s = self._wait_s, 0.0
            if was:
                self._logger.warning("%s works again after %.1f s", self._what, self._monotonic() - self._since)
