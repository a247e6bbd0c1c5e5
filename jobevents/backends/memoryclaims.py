"""Claims on the queued runs of a log in memory."""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from threading import RLock

from jobevents.desk import Claimed, Group
from jobevents.job import DELETED, QUEUED, Job, due_at
from jobevents.pauses import MemoryPauses
from jobevents.waiting import Entry, Waiting


class MemoryClaims:
    """What waits, kept in step with the rows: the recorder tells of each row that it writes."""

    def __init__(
        self,
        lock: "RLock",
        pauses: MemoryPauses,
        announce: Callable[[], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep claims under the recorder's lock; `announce` wakes who waits."""
        self._lock = lock
        self._pauses = pauses
        self._announce = announce
        self._monotonic = monotonic
        self._waiting: Waiting[Job] = Waiting()
        self._places: dict[str, int] = {}  # of each job in the order of first events
        self._last = 0

    def put(self, job: Job) -> None:
        """Take notice of a row; it ends every claim on it."""
        if job.job_id not in self._places:
            self._last += 1
            self._places[job.job_id] = self._last
        self._waiting.drop(job.job_id)
        if job.state == QUEUED and not job.external:
            place = self._places[job.job_id]
            self._waiting.put(job.job_id, Entry(job, job.queue, job.name, job.priority, due_at(job), place))
        elif job.state == DELETED:
            del self._places[job.job_id]

    def claim(
        self,
        queues: Sequence[str],
        *,
        limit: int,
        now: datetime,
        lease_s: float,
        token: str,
        full: Collection[Group] = (),
    ) -> Sequence[Claimed]:
        with self._lock:
            taken = self._waiting.take(
                queues,
                limit,
                lambda queue, job_name: (
                    not self._pauses.holds(queue, job_name)
                    and ("queue", queue) not in full
                    and ("job", job_name) not in full
                ),
                now=now,
                tick=self._monotonic(),
                lease_s=lease_s,
                token=token,
            )
        return [Claimed(entry.item.job_id) for entry in taken]

    def release(self, job_id: str, token: str, *, delay_s: float) -> None:
        with self._lock:
            self._waiting.release(job_id, token, tick=self._monotonic(), delay_s=delay_s)
        self._announce()

    def is_claimed(self, job_id: str) -> bool:
        with self._lock:
            return self._waiting.is_held(job_id, self._monotonic())

    def next_due(self, queues: Sequence[str], full: Collection[Group] = ()) -> datetime | None:
        """Return the earliest time of any queue's: who waits for another one looks once in vain."""
        with self._lock:
            return self._waiting.next_due()

    def waiting(self) -> int:
        with self._lock:
            self._waiting.expire(self._monotonic())
            return len(self._waiting)
