"""Trouble that lasts: one line when it begins, one when it is over, and a growing wait between tries."""

import logging
import threading
import time
from collections.abc import Callable

FIRST_S, MOST_S = 0.5, 30.0  # between two tries: doubled each time


class Trouble:
    """What goes wrong again and again with one thing. Safe for threads."""

    def __init__(self, what: str, logger: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """All is well yet; `what` is how the line begins that tells of trouble."""
        self._what = what
        self._monotonic = monotonic
        self._logger = logger
        self._wait_s = 0.0
        self._until = 0.0  # when the wait ends, monotonic seconds
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
            if is_new or now >= self._until:
                self._wait_s = min(2 * self._wait_s, MOST_S) or FIRST_S
                self._until = now + self._wait_s
            wait_s = self._wait_s
        if is_new:
            self._logger.warning("%s, which is tried again error=%s", self._what, error, exc_info=error)
        return wait_s

    def went(self) -> None:
        """Take note of a success."""
        if self._wait_s:
            with self._lock:
                was, self._wait_s = self._wait_s, 0.0
            if was:
                self._logger.warning("%s no more", self._what)
