"""One sequence for what comes from a log that has none: events in the order in which this process found them.

To a Projector it is the log: it scans and follows it, and its views say how far they are stored in it. A cursor is a place of
this process alone, and of this run. What every view has stored is dropped from its front.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
from lru import LRU

from jobevents.events import Event
from jobevents.log import Record

KNOWN_JOBS = 65_536  # whose last version is remembered, 0.2 KiB each


class JobLog(Protocol):
    """What is needed of the log: the events of one job."""

    def read(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return the job's events with versions above `after`, up to and with `until`."""
        ...

    def read_raw(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return the same, undecoded."""
        ...


def read_through(log: JobLog, job_id: str, version: int, *, after: int, until: int | None) -> list[Record]:
    """Return the events after one, up to `until` and so through `version`, which is there as far as is known.

    What was erased between them hides it: a log of objects takes a history for ended where there is nothing. A read more then.
    """
    records = log.read_raw(job_id, after=after, until=until)
    if (records[-1].version if records else after) < version - 1:
        records += log.read_raw(job_id, after=version - 1, until=until)
    return records


class Taken(NamedTuple):
    """How far a job is in the sequence."""

    version: int  # its last event here; 0: none
    place: int  # of that event


NOT_TAKEN = Taken(0, 0)


class Inflow:
    """The sequence. Safe for threads; what is read of one job goes to the log."""

    def __init__(self, log: JobLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._dropped = 0  # places before the first record that is still here
        self._taken: LRU[str, Taken] = LRU(KNOWN_JOBS)
        self._listeners: frozenset[threading.Event] = frozenset()

    def add(self, records: Sequence[Record]) -> int:
        """Append events of one job, of versions that follow each other; return the place of the last.

        Those that are here already, or were, are left out: another thread was first.
        """
        job_id = records[0].job_id
        with self._lock:
            taken = self._taken.get(job_id, NOT_TAKEN)
            for record in records:
                if record.version > taken.version:
                    self._records.append(msgspec.structs.replace(record, cursor=str(self._end() + 1)))
                    taken = Taken(record.version, self._end())
            self._taken[job_id] = taken
        for event in self._listeners:
            event.set()
        return taken.place

    def again(self, record: Record) -> int:
        """Append an event that may have been here before, so that the views look at its job once more; return its place."""
        with self._lock:
            self._records.append(msgspec.structs.replace(record, cursor=str(self._end() + 1)))
            taken = self._taken.get(record.job_id, NOT_TAKEN)
            place = self._end()
            self._taken[record.job_id] = Taken(max(record.version, taken.version), place)
        for event in self._listeners:
            event.set()
        return place

    def taken(self, job_id: str) -> Taken:
        """Return how far a job is in the sequence, as far as that is remembered."""
        with self._lock:
            return self._taken.get(job_id, NOT_TAKEN)

    def depth(self) -> int:
        """Return how many events are here."""
        with self._lock:
            return len(self._records)

    def drop(self, place: int) -> None:
        """Drop what is stored in every view: the events up to a place."""
        with self._lock:
            done = min(max(0, place - self._dropped), len(self._records))
            del self._records[:done]
            self._dropped += done

    def scan(self, cursor: str = "", *, limit: int | None = None, batch: int = 0) -> Iterator[Record]:
        """Yield the events after a place, up to now or to `limit`."""
        with self._lock:
            first = max(0, int(cursor or 0) - self._dropped)
            page = self._records[first : None if limit is None else first + limit]
        yield from page

    def last_cursor(self) -> str:
        """Return the place of the last event; "" when there never was one."""
        with self._lock:
            return str(self._end() or "")

    def read(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return events of one job: what the log says."""
        return self._log.read(job_id, after=after, until=until)

    def read_raw(self, job_id: str) -> list[Record]:
        """Return the events of one job, undecoded: what the log says."""
        return self._log.read_raw(job_id)

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every addition from now on."""
        with self._lock:
            self._listeners |= {event}

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone."""
        with self._lock:
            self._listeners -= {event}

    def _end(self) -> int:
        return self._dropped + len(self._records)
