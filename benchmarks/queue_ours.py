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
        if place.url:
            from jobevents.backends.postgres import migrate  # only where psycopg is wanted

            migrate(self._url)
        self._jobs = connect(self._url, blobs="memory://")

    def prepare(self) -> None:
        """Need nothing more."""

    def submit(self, numbers: Sequence[int]) -> None:
        """Submit one alone, or several in one transaction."""
        jobs = self._jobs
        if len(numbers) == 1:
            jobs.submit(_NAME, {"n": numbers[0]})
        else:
            jobs.submit_many([{"name": _NAME, "params": {"n": number}} for number in numbers])

    def waiting(self) -> int:
        """Count the queued runs."""
        total: int = self._jobs.store.list(RunFilter(statuses=("queued", "running"), per_page=1)).total
        return total

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Run a JobRunner."""
        registry = Registry()

        @registry.job(_NAME)
        def bench(ctx: Any) -> None:
            handle(ctx.params["n"])

        with JobRunner(self._jobs, registry, workers=self._place.threads):
            stop.wait()

    def close(self) -> None:
        """Close the log."""
        self._jobs.close()
