"""Waiting between tries: full jitter up to a doubling limit, until a deadline."""

import random
import time
from collections.abc import Callable


class Backoff:
    """How to wait between the tries of one operation; shared by all operations of a client."""

    def __init__(
        self,
        *,
        deadline_s: float = 30.0,
        tries: int | None = None,
        first_s: float = 0.1,
        most_s: float = 8.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Wait a random part of `first_s`, then of twice that, at most of `most_s`, for `deadline_s` in all.

        Args:
            tries: at most so many; None: as many as there is time for.
        """
        self.deadline_s = deadline_s
        self.tries = tries
        self.first_s = first_s
        self.most_s = most_s
        self.sleep = sleep
        self.clock = clock
        self.rng = rng or random.Random()  # noqa: S311 - jitter, not a secret

    def start(self) -> "Tries":
        """Begin one operation; its deadline runs from now."""
        return Tries(self)


class Tries:
    """The tries of one operation."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._ends = backoff.clock() + backoff.deadline_s
        self._limit_s = backoff.first_s
        self._made = 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; never below a tenth, so that it can serve as a request's timeout."""
        return max(0.1, self._ends - self._backoff.clock())

    def pause(self) -> bool:
        """Wait before another try; False, at once, when that would end after the deadline, or was the last try."""
        self._made += 1
        if self._made == self._backoff.tries:
            return False
        wait_s = self._backoff.rng.uniform(0, self._limit_s)
        self._limit_s = min(self._limit_s * 2, self._backoff.most_s)
        if self._backoff.clock() + wait_s >= self._ends:
            return False
        self._backoff.sleep(wait_s)
        return True
