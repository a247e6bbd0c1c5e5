"""Which kinds and queues run as many jobs as may, for all that a queue has seen: their runs are left alone for a while."""

import math
import threading
import time
from collections.abc import Sequence

import msgspec

from jobevents.desk import Group
from jobevents.errors import Busy
from jobevents.job import Job
from jobevents.queue import Reservation


class _Slots(msgspec.Struct):
    """What is known of a kind or a queue of which as many jobs ran as may."""

    until: float = 0.0  # it is left alone, monotonic seconds
    for_s: float = 0.0  # after which it is looked at again
    left: int = 0  # how many may be claimed, for all that is known
    ended: float = -math.inf  # when one of its jobs last ended here, monotonic seconds


class FullSlots:
    """Kinds and queues of which as many jobs run as may: their runs are left alone until one ends, and others go first.

    A backlog of one of them would else be claimed, refused and given back all the time, and what comes after it never reached.
    """

    def __init__(self) -> None:
        self._slots: dict[Group, _Slots] = {}
        self._lock = threading.Lock()

    def add(self, busy: Busy, for_s: float, since: float) -> None:
        """Take note of one that was full for a run claimed at a time: it is for so long, unless a job of it has ended since."""
        with self._lock:
            slots = self._slots.setdefault(("queue" if busy.column == "queue" else "job", busy.value), _Slots())
            slots.until, slots.for_s = time.monotonic() + for_s, for_s
            slots.left = slots.left if slots.ended > since else 0

    def ended(self, job: Job) -> bool:
        """Take note of the end of a job; tell whether another may be claimed for it."""
        if not self._slots:
            return False
        with self._lock:
            found = [self._slots[one] for one in (("queue", job.queue), ("job", job.name)) if one in self._slots]
            for slots in found:
                slots.left, slots.ended = slots.left + 1, time.monotonic()
            return bool(found)

    def look(self) -> tuple[int, list[Group], list[Group]]:
        """Return how many runs of those that were full may be claimed now, those that are, and all that were."""
        if not self._slots:
            return 0, [], []
        with self._lock:
            now = time.monotonic()
            self._slots = {group: one for group, one in self._slots.items() if now < one.until + one.for_s}
            left, full = 0, []
            for group, slots in self._slots.items():
                some = slots.left or int(now >= slots.until)
                left += some
                if not some:
                    full.append(group)
            return left, full, list(self._slots)

    def claimed(self, reservations: Sequence[Reservation]) -> None:
        """Take note of runs that were claimed."""
        with self._lock:
            for one in reservations:
                for group in (("queue", one.queue), ("job", one.job_name)):
                    if (slots := self._slots.get(group)) is not None:
                        slots.left = max(0, slots.left - 1)

    def now(self) -> tuple[list[Group], float]:
        """Return those that are full, and the seconds until the first of them is to be looked at again."""
        with self._lock:
            now = time.monotonic()
            full = {group: one.until for group, one in self._slots.items() if not one.left and now < one.until}
            return list(full), min(full.values(), default=math.inf) - now
