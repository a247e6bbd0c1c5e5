"""The log in memory: eventsourcing's recorder of plain Python objects, with rows of runs and log lines under its lock.

Nothing outlives the process. Behaves like the SQL logs in all else, for tests, development and small services.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.popo import POPOProcessRecorder

from jobevents import codec
from jobevents.backends.memorycensus import MemoryCensus
from jobevents.backends.memoryclaims import MemoryClaims
from jobevents.backends.memoryerasures import MemoryErasures
from jobevents.backends.memoryruns import MemoryRetention, MemoryRunLogs, MemoryRuns
from jobevents.backends.tail import TailSubscription
from jobevents.codec import TOMBSTONE
from jobevents.desk import Desk
from jobevents.errors import Conflict, JobEventsError
from jobevents.job import DELETED, Job
from jobevents.limits import Limit
from jobevents.log import NO_HEADS, Head, Record
from jobevents.pauses import MemoryPauses
from jobevents.store import LogTable, RunTable
from jobevents.workers import Leases, MemoryLeases

ERASED = StoredEvent("", 0, "", b"")  # in the place of an event that was taken out


class MemoryRecorder(POPOProcessRecorder):
    """The recorder in memory, for any number of threads."""

    is_durable = False

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Hold nothing yet; leases and claims end by `monotonic`."""
        super().__init__()
        self._rows = MemoryRuns(self._database_lock)
        self._lines = MemoryRunLogs(self._database_lock, self._is_deleted)
        self.runs: RunTable = self._rows
        self.run_logs: LogTable = self._lines
        pauses = MemoryPauses(self._notify_listeners)
        self._claims = MemoryClaims(self._database_lock, pauses, self._notify_listeners, monotonic=monotonic)
        self.desk = Desk(
            claims=self._claims,
            pauses=pauses,
            retention=MemoryRetention(self._rows, self._lines),
            alarm=self,
            census=MemoryCensus(self._rows),
        )
        self.leases: Leases = MemoryLeases(monotonic=monotonic)
        self.eraser = self.floors = MemoryErasures(self.take_out, self._tombstones)
        self._tails: weakref.WeakSet[TailSubscription] = weakref.WeakSet()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store events, rows and tracking, all or none, and return the events' ids.

        Args:
            stored_events: 0..n, of any jobs.
            kwargs: `rows`: Jobs as they are after these events; `limits`: on how many of those may run;
                `follows`: job id -> the Head that its events go on from, which must be there;
                `tracking`: as in the library; others are passed over.

        Raises:
            IntegrityError: an event's place is taken, the one before it is not there, or the tracking is not beyond the last.
            KeyTaken: an unfinished job holds the idempotency key of a row.
            Busy: as many other jobs run as a limit lets.
        """
        return super().insert_events(stored_events, **kwargs)

    def _assert_uniqueness(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        rows: Sequence[Job] = (),
        limits: Sequence[Limit] = (),
        follows: Mapping[str, Head] = NO_HEADS,
        **kwargs: Any,
    ) -> None:
        super()._assert_uniqueness(stored_events, **kwargs)
        for one in stored_events:
            if one.originator_version == 1 and self._stored_events_index[str(one.originator_id)]:
                raise IntegrityError(f"what came before was erased job_id={one.originator_id}")
        for job_id, head in follows.items():
            place = self._stored_events_index[job_id].get(head.version)
            if place is None or codec.unseal(self._stored_events[place].state)[1] != head.chain:
                raise IntegrityError(f"event before is not there job_id={job_id} version={head.version}")
        self._rows.check_limits(limits, rows)
        self._rows.check_keys(rows)

    def _update_table(
        self, stored_events: Sequence[StoredEvent], *, rows: Sequence[Job] = (), **kwargs: Any
    ) -> Sequence[int] | None:
        ids = super()._update_table(stored_events, **kwargs)
        for job in rows:
            if self._rows.put(job):
                self._claims.put(job)
            if job.state == DELETED:
                self._lines.drop(job.job_id)
        return ids

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events in commit order, as the library does; places whose event was erased are passed over."""
        first = 1 if start is None else max(1, start + (not inclusive_of_start))
        with self._database_lock:
            end = len(self._stored_events) if stop is None else min(stop, len(self._stored_events))
            placed = ((place, self._stored_events[place - 1]) for place in range(first, end + 1))
            found = (
                Notification(one.originator_id, one.originator_version, one.topic, one.state, place)
                for place, one in placed
                if one is not ERASED and (not topics or one.topic in topics)
            )
            return list(islice(found, limit))

    def take_out(self, job_id: str, below: int) -> int:
        """Forget the events of a job below a version; return how many."""
        with self._database_lock:
            places = self._stored_events_index.get(job_id, {})
            gone = {version: place for version, place in places.items() if version < below}
            for version, place in gone.items():
                del places[version]
                self._stored_events[place] = ERASED
            return len(gone)

    def _tombstones(self) -> list[bytes]:
        with self._database_lock:
            return [one.state for one in self._stored_events if one.topic == TOMBSTONE]

    def iter_by_job(self, start: str, batch: int) -> Iterator[Record]:
        """Yield the events of a job and of those after it, each job's together; as they are now, whatever comes."""
        with self._database_lock:
            stored = list(enumerate(self._stored_events, 1))
        stored.sort(key=lambda one: (str(one[1].originator_id), one[1].originator_version, one[0]))
        for position, one in stored:
            if str(one.originator_id) >= start and one is not ERASED:
                yield Record(str(position), str(one.originator_id), one.originator_version, one.topic, one.state)

    def _is_deleted(self, job_id: str) -> bool:
        """Tell whether a job has events and no row."""
        return bool(self._stored_events_index.get(job_id)) and self._rows.get(job_id) is None

    def _notify_listeners(self) -> None:
        for listener in tuple(self._listeners):  # a subscription may come or go meanwhile
            listener.set()

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> TailSubscription:
        """Return an iterator over events after `gt` that waits for new ones; stop it to end it."""
        tail = TailSubscription(self, self, gt, topics)
        self._tails.add(tail)
        return tail

    def translate(self, error: BaseException) -> JobEventsError:
        """Return our error for one of eventsourcing; ours comes back as it is."""
        return error if isinstance(error, JobEventsError) else Conflict(f"somebody else wrote first error={error}")

    def close(self) -> None:
        """End subscriptions; any number of times. What was stored can still be read."""
        for tail in list(self._tails):
            tail.stop()
