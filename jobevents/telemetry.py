"""Counts of what went wrong or was prevented, so that nothing dropped is dropped in silence."""

import threading
from collections import Counter


class Counts:
    """Named counters of one process. Safe for threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, n: int = 1) -> None:
        """Add `n` to the counter `name`."""
        with self._lock:
            self._counts[name] += n

    def snapshot(self) -> dict[str, int]:
        """Return the counters as they are now."""
        with self._lock:
            return dict(self._counts)
