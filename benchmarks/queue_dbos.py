"""DBOS: a queue of durable workflows in Postgres, run by threads; polled far more often than each second, its default."""

import logging
import os
import threading
from collections.abc import Callable, Sequence

from dbos import DBOS, DBOSConfig

from benchmarks.queueing import Place

_QUEUE = "bench"
_POLL_S = 0.01
_HANDLE: list[Callable[[int], None]] = [lambda _: None]


def _bench(number: int) -> None:
    _HANDLE[0](number)


_WORKFLOW = DBOS.workflow(name="bench")(_bench)


class Queue:
    """Workflows without steps, that no recovery runs twice."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._is_launched = False

    def _launch(self, *, works: bool = False) -> None:
        if self._is_launched:
            return
        self._is_launched = True
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": self._place.url,
            "run_admin_server": False,
            "application_version": "1",
            "executor_id": str(os.getpid()),  # else each launch recovers what other processes run
            "log_level": "ERROR",
        }
        DBOS(config=config)
        if not works:
            DBOS.listen_queues([])
        logging.getLogger("dbos").setLevel(logging.ERROR)
        DBOS.launch()
        if works:
            DBOS.register_queue(_QUEUE, worker_concurrency=self._place.threads, polling_interval_sec=_POLL_S)

    def prepare(self) -> None:
        """Make the schema, by the launch."""
        self._launch()
        DBOS.register_queue(_QUEUE, worker_concurrency=self._place.threads, polling_interval_sec=_POLL_S)

    def submit(self, numbers: Sequence[int]) -> None:
        """Enqueue each: there is no way to enqueue several."""
        self._launch()
        for number in numbers:
            DBOS.enqueue_workflow(_QUEUE, _WORKFLOW, number)

    def waiting(self) -> int:
        """Count the workflows that have not succeeded."""
        self._launch()
        found = DBOS.list_workflows(status=["ENQUEUED", "PENDING"], load_input=False, load_output=False)
        return len(found)

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Launch, which starts the queue's threads."""
        _HANDLE[0] = handle
        self._launch(works=True)
        stop.wait()
        DBOS.destroy(workflow_completion_timeout_sec=5)
        self._is_launched = False

    def close(self) -> None:
        """End its threads."""
        if self._is_launched:
            DBOS.destroy()
