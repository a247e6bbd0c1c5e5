"""The threads that run handlers, and the few runs that wait for them."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobevents.execution import Ran
from jobevents.queue import Reservation

if TYPE_CHECKING:
    from jobevents.ending import Ending

AHEAD_S = 0.05  # seconds of work that may wait here: others could begin it meanwhile
AHEAD_MOST = 64  # runs that may wait
PACE_WEIGHT = 0.2  # of the newest run in the mean of how long runs take


class Crew:
    """A number of threads that take what is put, each one run at a time."""

    def __init__(
        self,
        size: int,
        work: "Callable[[Reservation, Ending | None], Ran]",
        record: "Callable[[Ending], None]",
        *,
        ahead: int | None = None,
        monotonic: Callable[[], float],
    ) -> None:
        """Start no thread yet.

        Args:
            work: runs one, after recording what it is given of the run before, and tells what came of it.
            record: records the end of a run that no other follows at once.
            ahead: how many runs may wait for a thread; None: as many as at the pace of late are begun within `AHEAD_S`.
        """
        self.size = size
        self.ahead = ahead
        self._work = work
        self._record = record
        self._monotonic = monotonic
        self._ready: deque[tuple[Reservation, float]] = deque()
        self._busy = 0
        self._pace_s: float | None = None
        self._is_closed = False
        self._is_hurried = False
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # heard by those who wait for room, or for the end
        self._put = threading.Condition(lock)  # heard by threads that wait for work

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self.size):
            self.hire()

    def hire(self, first: Callable[[], object] | None = None) -> None:
        """Start one more thread, in the place of one that is left to a handler that does not stop; it makes a call first."""
        threading.Thread(target=self._run, args=(first,), name="jobevents-worker", daemon=True).start()

    def wait_for_room(self, timeout_s: float) -> int:
        """Return how many runs should be put now, one a free thread and of short ones some ahead; wait while it is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._room(), timeout_s)
            return 0 if self._is_closed else self._room()

    def _room(self) -> int:
        ahead = self._ahead_at_pace() if self.ahead is None else self.ahead
        waiting = len(self._ready)
        free = self.size - self._busy - waiting
        return free + ahead if waiting <= ahead // 2 else 0  # in batches: each is a transaction of the queue

    def _ahead_at_pace(self) -> int:
        if not self._pace_s:
            return 0
        return min(AHEAD_MOST, int(self.size * AHEAD_S / self._pace_s))

    def put(self, reservations: Sequence[Reservation]) -> bool:
        """Have runs begun as soon as threads are free; False when the crew takes no more, and has taken none."""
        with self._changed:
            if self._is_closed:
                return False
            now = self._monotonic()
            self._ready.extend((one, now) for one in reservations)
            self._put.notify(len(reservations))
            return True

    def take_back(self, older_s: float = 0.0) -> list[Reservation]:
        """Return the runs that have waited for so long and were not begun: they never will be here."""
        with self._changed:
            limit = self._monotonic() - older_s
            found = [one for one, since in self._ready if since <= limit]
            self._ready = deque((one, since) for one, since in self._ready if since > limit)
            return found

    def close(self) -> list[Reservation]:
        """Begin no more, let the threads end with what they do, and return the runs that were not begun."""
        with self._changed:
            self._is_closed = True
            found = [one for one, _ in self._ready]
            self._ready.clear()
            self._changed.notify_all()
            self._put.notify_all()
            return found

    def wait_until_idle(self, timeout_s: float, *, patiently: bool = False) -> bool:
        """Wait until nothing runs and nothing waits here; False when something still does after that time.

        Args:
            patiently: wait although hurry was asked for.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or (self._is_hurried and not patiently), timeout_s)
            return self._is_idle()

    def hurry(self) -> None:
        """End every wait for handlers, now and from now on."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()

    @property
    def busy(self) -> int:
        """How many runs are under way here."""
        with self._changed:
            return self._busy

    def _is_idle(self) -> bool:
        return not self._busy and not self._ready

    def _run(self, first: Callable[[], object] | None) -> None:
        if first is not None:
            first()
            with self._changed:
                self._busy -= 1  # of the thread whose place this one takes
                self._changed.notify_all()
        ending: Ending | None = None
        while True:
            reservation = self._next() if ending is None else self._next_at_once()
            if reservation is not None:
                began = self._monotonic()
                ending, stays = self._work(reservation, ending)
                if not stays:
                    return
                self._learn(self._monotonic() - began)
            elif ending is not None:
                self._record(ending)
                ending = None
            else:
                return
            if ending is None:
                self._rest()

    def _next(self) -> Reservation | None:
        """Wait for a run; None when none will come."""
        with self._changed:
            while not self._ready:
                if self._is_closed:
                    return None
                self._put.wait()
            self._busy += 1
            return self._take()

    def _next_at_once(self) -> Reservation | None:
        """Return a run for a thread that is busy; None when none waits."""
        with self._changed:
            return self._take() if self._ready else None

    def _take(self) -> Reservation:
        reservation = self._ready.popleft()[0]
        if self._room():
            self._changed.notify_all()
        return reservation

    def _learn(self, took_s: float) -> None:
        self._pace_s = took_s if self._pace_s is None else self._pace_s + PACE_WEIGHT * (took_s - self._pace_s)

    def _rest(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()
