"""litequeue: messages of an SQLite table, popped and then marked as done; synchronous=NORMAL, unless told otherwise."""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from litequeue import LiteQueue

from benchmarks.queueing import Place

_POLL_S = 0.001  # it has no way to wait


class Queue:
    """Messages, and a loop over them in each of as many threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._queue = self._open()

    def _open(self) -> LiteQueue:
        give_up = time.monotonic() + 10
        while True:
            try:
                queue = LiteQueue(str(self._place.directory / "litequeue.db"), timeout=30)
                queue.conn.execute(f"PRAGMA synchronous = {self._place.durability}")
                return queue
            except sqlite3.OperationalError:  # several processes that open it at once
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)

    def prepare(self) -> None:
        """Need nothing more."""

    def submit(self, numbers: Sequence[int]) -> None:
        """Put one, or several in one transaction."""
        if len(numbers) == 1:
            self._queue.put(str(numbers[0]))
            return
        with self._queue.transaction():
            for number in numbers:
                self._queue.put(str(number))

    def waiting(self) -> int:
        """Count the messages that are not done."""
        count: int = self._queue.qsize()
        return count

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Pop, handle, mark as done."""

        def loop() -> None:
            queue = self._open()
            while not stop.is_set():
                message = queue.pop()
                if message is None:
                    time.sleep(_POLL_S)
                    continue
                handle(int(message.data))
                queue.done(message.message_id)
            queue.close()

        threads = [threading.Thread(target=loop) for _ in range(self._place.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Close the connection."""
        self._queue.close()
