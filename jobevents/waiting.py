"""Runs that wait in memory, in the order in which they are handed out, and those that are held for who has them."""

import heapq
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Open: TypeAlias = Callable[[str, str], bool]
"""(queue, kind of job) -> whether its runs may be handed out."""

_STALE_LIMIT = 64  # places of a heap that may be of entries long gone, besides as many as there are entries


class Entry(NamedTuple, Generic[T]):
    """A run that waits."""

    item: T
    queue: str
    job_name: str
    priority: int  # higher goes first
    due: datetime  # not to be handed out before
    place: int  # among those of the same priority and time


class _Held(NamedTuple, Generic[T]):
    entry: Entry[T]
    token: str
    until: float  # monotonic


class Waiting(Generic[T]):
    """Entries by the id of their run. Not safe for threads: its owner has a lock.

    Times are told twice: `now` decides what is due, and `tick`, which never goes back, how long what was handed out is held.
    Taking costs a look at each group of a queue and a kind of job, however many wait.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry[T]] = {}
        self._held: dict[str, _Held[T]] = {}
        self._later: list[tuple[datetime, int, str]] = []  # due, place, id
        self._ready: dict[
            tuple[str, str], list[tuple[int, datetime, int, str]]
        ] = {}  # group -> -priority, due, place, id
        self._holds: list[tuple[float, str, str]] = []  # until, id, token

    def __len__(self) -> int:
        """Return how many wait, those that are held not counted."""
        return len(self._entries)

    def put(self, run_id: str, entry: Entry[T]) -> None:
        """Have a run wait, in place of what is known of it: who holds it holds it no more."""
        self._held.pop(run_id, None)
        self._entries[run_id] = entry
        heapq.heappush(self._later, (entry.due, entry.place, run_id))
        self._tidy()

    def drop(self, run_id: str) -> Entry[T] | None:
        """Forget a run that waits, held or not; return its entry if nobody held it."""
        self._held.pop(run_id, None)
        return self._entries.pop(run_id, None)

    def find(self, run_id: str) -> Entry[T] | None:
        """Return a run that waits and that nobody holds."""
        return self._entries.get(run_id)

    def take(
        self,
        queues: Sequence[str],
        limit: int,
        is_open: Open,
        *,
        now: datetime,
        tick: float,
        lease_s: float,
        token: str,
    ) -> list[Entry[T]]:
        """Hand out up to `limit` due runs of the queues, or of all, and hold them by the token for `lease_s`."""
        self.expire(tick)
        self._ripen(now)
        groups = [group for group in self._ready if (not queues or group[0] in queues) and is_open(*group)]
        taken: list[Entry[T]] = []
        while len(taken) < limit:
            tops = [self._ready[group] for group in groups if self._top_is_due(group, now)]
            if not tops:
                break
            run_id = heapq.heappop(min(tops, key=lambda heap: heap[0]))[-1]
            entry = self._entries.pop(run_id)
            self._hold(run_id, entry, token, tick + lease_s)
            taken.append(entry)
        return taken

    def settle(self, run_id: str, token: str) -> None:
        """Let go of a run for good, if the token holds it."""
        held = self._held.get(run_id)
        if held is not None and held.token == token:
            del self._held[run_id]

    def release(self, run_id: str, token: str, *, tick: float, delay_s: float) -> None:
        """Have a run wait again in its old place, after a delay, if the token holds it."""
        held = self._held.get(run_id)
        if held is None or held.token != token:
            return
        if delay_s > 0:
            self._hold(run_id, held.entry, "", tick + delay_s)
        else:
            self.put(run_id, held.entry)

    def is_held(self, run_id: str, tick: float) -> bool:
        """Tell whether somebody holds it now."""
        held = self._held.get(run_id)
        return held is not None and held.until > tick

    def is_held_by(self, run_id: str, token: str, tick: float) -> bool:
        """Tell whether a token holds it now."""
        held = self._held.get(run_id)
        return held is not None and held.token == token and held.until > tick

    def expire(self, tick: float) -> None:
        """Have those wait again that were held for long enough."""
        while self._holds and self._holds[0][0] <= tick:
            until, run_id, token = heapq.heappop(self._holds)
            held = self._held.get(run_id)
            if held is not None and (held.until, held.token) == (until, token):
                self.put(run_id, held.entry)

    def next_due(self) -> datetime | None:
        """Return when the next run of any queue ripens; None when there is none, but for those that are ripe."""
        while self._later and not self._is_of(self._later[0]):
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def next_end(self) -> float | None:
        """Return the tick at which the next hold ends; None when nothing is held."""
        return self._holds[0][0] if self._holds else None

    def _hold(self, run_id: str, entry: Entry[T], token: str, until: float) -> None:
        self._held[run_id] = _Held(entry, token, until)
        heapq.heappush(self._holds, (until, run_id, token))
        if len(self._holds) > 2 * len(self._held) + _STALE_LIMIT:
            self._holds = [(held.until, held_id, held.token) for held_id, held in self._held.items()]
            heapq.heapify(self._holds)

    def _ripen(self, now: datetime) -> None:
        while self._later and self._later[0][0] <= now:
            waits = heapq.heappop(self._later)
            if self._is_of(waits):
                entry = self._entries[waits[-1]]
                heapq.heappush(self._ready.setdefault((entry.queue, entry.job_name), []), _ripe(waits[-1], entry))

    def _top_is_due(self, group: tuple[str, str], now: datetime) -> bool:
        """Tell whether a group has a due run at its top, when what is not there any more, or not due any more, is taken off."""
        heap = self._ready[group]
        while heap:
            _, due, place, run_id = heap[0]
            entry = self._entries.get(run_id)
            if entry is not None and (_ripe(run_id, entry), (entry.queue, entry.job_name)) == (heap[0], group):
                if due <= now:
                    return True
                heapq.heappush(self._later, (due, place, run_id))  # the clock was set back
            heapq.heappop(heap)
        return False

    def _is_of(self, waits: tuple[datetime, int, str]) -> bool:
        """Tell whether a place in the heap is that of an entry as it is now."""
        entry = self._entries.get(waits[-1])
        return entry is not None and (entry.due, entry.place) == waits[:2]

    def _tidy(self) -> None:
        """Take out what is stale, when that is most."""
        if len(self._later) > 2 * len(self._entries) + _STALE_LIMIT:
            self._later = [waits for waits in self._later if self._is_of(waits)]
            heapq.heapify(self._later)


def _ripe(run_id: str, entry: Entry[T]) -> tuple[int, datetime, int, str]:
    return -entry.priority, entry.due, entry.place, run_id
