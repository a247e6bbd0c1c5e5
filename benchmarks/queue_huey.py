"""Huey on SQLite: a task is deleted when it is handed out, so that one whose process dies is lost. Every commit is synced."""

import threading
from collections.abc import Callable, Sequence

from huey import SqliteHuey

from benchmarks.queueing import Place


class Queue:
    """Tasks whose results are not kept, and a consumer with threads."""

    def __init__(self, place: Place) -> None:
        self._threads = place.threads
        self._huey = SqliteHuey(
            filename=str(place.directory / "huey.db"), fsync=place.durability == "full", results=False
        )
        self._handle: Callable[[int], None] = lambda _: None
        self._task = self._huey.task(name="bench")(lambda number: self._handle(number))

    def prepare(self) -> None:
        """Need nothing more."""

    def submit(self, numbers: Sequence[int]) -> None:
        """Enqueue each: there is no way to enqueue several."""
        for number in numbers:
            self._task(number)

    def waiting(self) -> int:
        """Count what is pending."""
        count: int = self._huey.pending_count()
        return count

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Run a consumer as its documentation says, for ten tasks a second or more: asked for again each 10 ms at most."""
        self._handle = handle
        consumer = self._huey.create_consumer(
            workers=self._threads, periodic=False, initial_delay=0.001, max_delay=0.01, check_worker_health=False
        )
        consumer.start()
        stop.wait()
        consumer.stop(graceful=True)

    def close(self) -> None:
        """Close this thread's connection."""
        self._huey.storage.close()
