"""persist-queue's SQLiteAckQueue: items got and then acknowledged, in one process; every commit is synced, by default."""

import threading
from collections.abc import Callable, Sequence

from persistqueue import SQLiteAckQueue
from persistqueue.exceptions import Empty

from benchmarks.queueing import Place

_WAIT_S = 0.05  # for an item of this process; it hears of no other


class Queue:
    """Items, and a loop over them in each of as many threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._queue: SQLiteAckQueue | None = None

    def _open(self) -> SQLiteAckQueue:
        if self._queue is None:
            self._queue = SQLiteAckQueue(str(self._place.directory), multithreading=True)
        return self._queue

    def prepare(self) -> None:
        """Make the file."""
        self._open()

    def submit(self, numbers: Sequence[int]) -> None:
        """Put each: there is no way to put several."""
        for number in numbers:
            self._open().put(number)

    def waiting(self) -> int:
        """Count the items that are not acknowledged."""
        queue = self._open()
        count: int = queue.ready_count() + queue._ack_count_via_status("0")
        return count

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Get, handle, acknowledge."""
        queue = self._open()

        def loop() -> None:
            while not stop.is_set():
                try:
                    item = queue.get(timeout=_WAIT_S)
                except Empty:
                    continue
                handle(item)
                queue.ack(item)

        threads = [threading.Thread(target=loop) for _ in range(self._place.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Close the connections."""
        if self._queue is not None:
            self._queue.close()
