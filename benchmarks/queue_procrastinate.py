"""Procrastinate: a worker with an event loop, a coroutine for each handler, LISTEN and NOTIFY."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.queueing import Place


class Queue:
    """Tasks deferred by the synchronous connector, its fastest, and run by the other."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._handle: Callable[[int], None] = lambda _: None
        self._app: App | None = None

    def _make(self, connector: PsycopgConnector | SyncPsycopgConnector) -> App:
        app = App(connector=connector)

        async def bench(n: int) -> None:
            self._handle(n)

        app.task(name="bench")(bench)
        return app

    def _deferring(self) -> App:
        if self._app is None:
            self._app = self._make(SyncPsycopgConnector(conninfo=self._place.url))
            self._app.open()
        return self._app

    def prepare(self) -> None:
        """Apply the schema."""
        self._deferring().schema_manager.apply_schema()

    def submit(self, numbers: Sequence[int]) -> None:
        """Defer one, or several in a batch."""
        task = self._deferring().tasks["bench"]
        if len(numbers) == 1:
            task.defer(n=numbers[0])
        elif numbers:
            task.batch_defer(*({"n": number} for number in numbers))

    def waiting(self) -> int:
        """Count the jobs that are not done."""
        rows = (
            self._deferring()
            .connector.get_sync_connector()
            .execute_query_one("SELECT count(*) AS count FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")
        )
        count: int = rows["count"]
        return count

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Run a worker; its jobs stay in the table, as by default."""
        self._handle = handle
        asyncio.run(self._work(stop))

    async def _work(self, stop: threading.Event) -> None:
        app = self._make(PsycopgConnector(conninfo=self._place.url))
        async with app.open_async():
            worker = asyncio.create_task(
                app.run_worker_async(concurrency=self._place.threads, install_signal_handlers=False)
            )
            await asyncio.to_thread(stop.wait)
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker

    def close(self) -> None:
        """Close the connections."""
        if self._app is not None:
            self._app.close()
