"""SAQ on its Postgres queue: a worker with an event loop, a coroutine for each handler."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from saq import Worker
from saq.queue.postgres import PostgresQueue

from benchmarks.queueing import Place


class Queue:
    """Jobs whose results are not kept; submitted within an event loop of this thread."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._queue: PostgresQueue | None = None

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:  # Any: what the work returns
        return self._loop.run_until_complete(work)

    async def _connected(self) -> PostgresQueue:
        if self._queue is None:
            self._queue = PostgresQueue.from_url(self._place.url)
            await self._queue.connect()
        return self._queue

    def prepare(self) -> None:
        """Make the tables."""
        self._run(self._connected())

    def submit(self, numbers: Sequence[int]) -> None:
        """Enqueue each: there is no way to enqueue several."""

        async def enqueue() -> None:
            queue = await self._connected()
            for number in numbers:
                await queue.enqueue("bench", n=number, ttl=-1)

        self._run(enqueue())

    def waiting(self) -> int:
        """Count the jobs that wait or run."""

        async def count() -> int:
            queue = await self._connected()
            found: int = await queue.count("incomplete")
            return found

        waits: int = self._run(count())
        return waits

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Run a worker."""

        async def bench(ctx: Any, *, n: int) -> None:
            handle(n)

        async def run() -> None:
            queue = await self._connected()
            worker = Worker(queue, [("bench", bench)], concurrency=self._place.threads, shutdown_grace_period_s=10)
            working = asyncio.create_task(worker.start())
            await asyncio.to_thread(stop.wait)
            await worker.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await working

        self._run(run())

    def close(self) -> None:
        """Close the connections."""
        if self._queue is not None:
            self._run(self._queue.disconnect())
