"""A queue of somebody else's: lists of bytes, as one would keep them in Redis, that know nothing of a log."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from jobevents.errors import QueueClosed
from jobevents.queue import Reservation
from jobevents.store import JobRun

LOOK_S = 0.02  # between two looks for what has become due meanwhile


class ListQueue:
    """Runs as JSON in a list; what is reserved stands beside it until it is acknowledged."""

    shares_store = False
    is_durable = False

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._waiting: list[bytes] = []
        self._is_closed = False
        self.put_back = 0  # how often a run was
        self._changed = threading.Condition()

    def enqueue(self, run: JobRun) -> None:
        """Push a run, in the place of the same run if that waits already."""
        with self._changed:
            self._refuse_if_closed()
            self._take(run.id)
            self._waiting.append(msgspec.json.encode(run))
            self._changed.notify_all()

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Pop what is due."""
        left = timeout_s
        with self._changed:
            while True:
                self._refuse_if_closed()
                found = self._due(queues)[:limit]
                for run in found:
                    self._take(run.id)
                if found or (left is not None and left <= 0):
                    return [Reservation(run, partial(self._settle, run)) for run in found]
                self._changed.wait(LOOK_S)
                left = None if left is None else left - LOOK_S

    def remove(self, job_id: str) -> bool:
        """Pull a run out."""
        with self._changed:
            return self._take(job_id)

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Wake everybody."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _due(self, queues: Sequence[str]) -> list[JobRun]:
        now = self._clock()
        waiting = [msgspec.json.decode(data, type=JobRun) for data in self._waiting]
        due = [run for run in waiting if run.scheduled_at <= now and (not queues or run.queue in queues)]
        return sorted(due, key=lambda run: (-run.priority, run.scheduled_at))

    def _take(self, job_id: str) -> bool:
        before = len(self._waiting)
        self._waiting = [data for data in self._waiting if msgspec.json.decode(data, type=JobRun).id != job_id]
        return len(self._waiting) < before

    def _settle(self, run: JobRun, error: BaseException | None, delay_s: float) -> None:
        if error is not None:
            self.put_back += 1
            later = max(run.scheduled_at, self._clock() + timedelta(seconds=delay_s)) if delay_s else run.scheduled_at
            with suppress(QueueClosed):
                self.enqueue(msgspec.structs.replace(run, scheduled_at=later))

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")
