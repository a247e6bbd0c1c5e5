"""Our queue and runner, on SQLite and Postgres."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.queueing import Place
from jobevents import JobRunner, Registry, connect
from jobevents.store import RunFilter

_NAME = "bench"


class Queue:
    """Jobs of `connect(url)`, whose handler does nothing but take its number."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._url = place.url or f"sqlite:///{place.directory / 'jobs.db'}?synchronous={place.durability}"
        self._jobs: Any = None  # Any: Jobs, once it is prepared

    def _open(self) -> Any:
        if self._jobs is None:
            self._jobs = connect(self._url, blobs="memory://")
        return self._jobs

    def prepare(self) -> None:
        """Make the schema."""
        if self._place.url:
            from jobevents.backends.postgres import migrate  # only where psycopg is wanted

            migrate(self._url)
        self._open()

    def submit(self, numbers: Sequence[int]) -> None:
        """Submit one alone, or several in one transaction."""
        jobs = self._open()
        if len(numbers) == 1:
            jobs.submit(_NAME, {"n": numbers[0]})
        else:
            jobs.submit_many([{"name": _NAME, "params": {"n": number}} for number in numbers])

    def waiting(self) -> int:
        """Count the queued runs."""
        total: int = self._open().store.list(RunFilter(statuses=("queued", "running"), per_page=1)).total
        return total

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Run a JobRunner."""
        registry = Registry()

        @registry.job(_NAME)
        def bench(ctx: Any) -> None:
            handle(ctx.params["n"])

        with JobRunner(self._open(), registry, workers=self._place.threads):
            stop.wait()

    def close(self) -> None:
        """Close the log."""
        if self._jobs is not None:
            self._jobs.close()
