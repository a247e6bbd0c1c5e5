"""The threads that run handlers, and the few runs that wait for them.

What they have to say to the log they say in turns: whichever thread is free takes the ends that wait to be recorded and the
runs that wait to be begun, as many as may run, and has all of them in one transaction. Where handlers are over in an instant,
one thread goes from turn to turn, runs them all and fetches more: waking another costs as much as they do. One of the others
keeps an eye on it, in case they are not over in an instant after all.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from jobevents.execution import Ran
from jobevents.queue import Reservation

if TYPE_CHECKING:
    from jobevents.ending import Ending

AHEAD_S = 0.05  # seconds of work that may wait here: others could begin it meanwhile
AHEAD_MOST = 64  # runs that may wait
PACE_WEIGHT = 0.2  # of the newest run in the mean of how long runs take
INSTANT_S = 0.002  # what a thread takes of others' tasks, in the hope that each is over at once, takes no longer
LATE_S = 0.005  # after so long others do what is left of them; looked for as often
NOT_INSTANT = 10  # times that, which tasks are taken to last when one was late

T = TypeVar("T")
Task: TypeAlias = Callable[[], Ran]
"""What a thread does for one run: its handler, and whatever could not be done in a turn. It must not raise."""


class Crew:
    """A number of threads that take what is put, each one run at a time."""

    def __init__(
        self,
        size: int,
        turn: "Callable[[Sequence[Ending], Sequence[Reservation]], list[Task]]",
        *,
        fetch: Callable[[int], Sequence[Reservation]] | None = None,
        give_back: Callable[[Reservation], None] = lambda _: None,
        ahead: int | None = None,
        monotonic: Callable[[], float],
    ) -> None:
        """Start no thread yet.

        Args:
            turn: records ends and begins runs, and returns what is left to do of them. It must not raise.
            fetch: returns at once up to as many runs, of those that are due. It must not raise. None: all are `put`.
            give_back: has one that was fetched in the moment of the close handed out again. It must not raise.
            ahead: how many runs may wait for a thread; None: as many as at the pace of late are begun within `AHEAD_S`.
        """
        self.size = size
        self.ahead = ahead
        self._turn = turn
        self._fetch = fetch
        self._give_back = give_back
        self._is_dry = True  # whoever looked last found less than there was room for: somebody is to wait for more
        self._asked = 0  # the room of whoever waited for it last
        self._monotonic = monotonic
        self._ready: deque[tuple[Reservation, float]] = deque()
        self._tasks: deque[Task] = deque()
        self._tasks_at = 0.0  # when the last turn brought some
        self._ended: list[Ending] = []
        self._is_turning = False
        self._is_watched = False  # a thread looks after what the one at work does not get done
        self._busy = 0  # runs that were taken and are not over: begun, or recorded, or on their way to either
        self._turn_s = 0.0
        self._pace_s: float | None = None  # of handlers, their mean of late
        self._usual_s: float | None = None  # their median, which a machine that is busy with others hardly moves
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
        """Return how many runs should be put now, one a free thread and of short ones some ahead; wait while it is none.

        It is none, too, as long as the threads fetch what they need.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._wanted(), timeout_s)
            self._asked = self._wanted()
            self._is_dry = self._is_dry or self._asked > 0  # so that nobody else fetches the same number
            return self._asked

    def _wanted(self) -> int:
        """Return how many runs are to be put, since no thread is about to fetch them."""
        fetches = self._fetch is not None and not self._is_dry
        if self._is_closed or (fetches and (self._is_turning or self._tasks or self._may_turn())):
            return 0
        return self._room()

    def _room(self) -> int:
        ahead = self._ahead_at_pace() if self.ahead is None else self.ahead
        waiting = len(self._ready)
        # In batches: each is a transaction of the queue. While ends are on their way to the log, there may be less than none.
        return max(0, self._free() + ahead - waiting) if waiting <= ahead // 2 else 0

    def _free(self) -> int:
        """Return how many runs may be begun, those that wait for it among them."""
        return self.size - self._busy + len(self._ended)

    def _ahead_at_pace(self) -> int:
        if self._pace_s is None:
            return 0
        return min(AHEAD_MOST, int(self.size * AHEAD_S / (self._pace_s + self._turn_s or AHEAD_S)))

    def put(self, reservations: Sequence[Reservation]) -> bool:
        """Have runs begun as soon as threads are free; False when the crew takes no more, and has taken none."""
        with self._changed:
            if self._is_closed:
                return False
            self._add(reservations)
            self._is_dry = len(reservations) < self._asked
            self._put.notify()
            return True

    def _add(self, reservations: Sequence[Reservation]) -> None:
        now = self._monotonic()
        self._ready.extend((one, now) for one in reservations)

    def take_back(self, older_s: float = 0.0) -> list[Reservation]:
        """Return the runs that have waited for so long and were not begun: they never will be here."""
        with self._changed:
            limit = self._monotonic() - older_s
            found = [one for one, since in self._ready if since <= limit]
            self._ready = deque((one, since) for one, since in self._ready if since > limit)
            if found:  # what runs takes longer than what has ended: as many more would come back, too
                self._pace_s = max(self._pace_s or 0.0, older_s)
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
        return not self._busy and not self._ready and not self._is_turning

    def _run(self, first: Callable[[], object] | None) -> None:
        if first is not None:
            first()
            self._rest()  # the thread whose place this one takes
        while (task := self._next()) is not None:
            began = self._monotonic()
            ending, stays = task()
            if not stays:
                return
            self._learn(self._monotonic() - began)
            if ending is None:
                self._rest()
            else:
                with self._changed:
                    self._ended.append(ending)

    def _next(self) -> Task | None:
        """Return what to do, after taking turns for as long as there is nothing else; None when nothing will come."""
        at_once = True  # a thread that was at work
        with self._changed:
            while True:
                if self._tasks and (at_once or self._is_late()):
                    task = self._tasks.popleft()
                    if not at_once and (self._tasks or self._may_turn()):
                        self._put.notify()  # these are no tasks of an instant: what else is to be done waits for none of them
                    return task
                if not self._tasks and self._may_turn():
                    self._take_turn()
                    at_once = True
                elif self._is_closed and not self._tasks and not self._is_turning:
                    self._put.notify()  # the next one may leave, too
                    return None
                else:
                    self._wait_for_work()
                    at_once = False

    def _is_late(self) -> bool:
        """Tell whether what waits is to be done by others than the thread at work: it was to be through in an instant."""
        if not self._is_instant():
            return True
        if self._monotonic() < self._tasks_at + LATE_S:
            return False
        self._usual_s = NOT_INSTANT * INSTANT_S  # one of them is no task of an instant: be wary for a while
        return True

    def _is_instant(self) -> bool:
        return self._usual_s is not None and self._usual_s <= INSTANT_S / self.size

    def _wait_for_work(self) -> None:
        """Wait to be told of some; one thread looks again by itself, while another does all tasks that are of an instant."""
        if self._is_watched or not self._is_instant() or not (self._tasks or self._is_turning):
            self._put.wait()
            return
        self._is_watched = True
        try:
            self._put.wait(LATE_S)
        finally:
            self._is_watched = False

    def _may_turn(self) -> bool:
        if self._is_turning:
            return False
        return bool(self._ended or (self._ready and self._busy < self.size)) or self._may_fetch()

    def _may_fetch(self) -> bool:
        """Tell whether a thread would have nothing to do, though there may be more: others ended while one had some fetched."""
        is_open = not (self._is_dry or self._is_closed or self._fetch is None)
        return is_open and self._free() > len(self._ready)

    def _take_turn(self) -> None:
        """Record what ended and begin what waits, as many as may run, the lock released meanwhile."""
        self._is_turning = True
        try:
            late = [] if self._is_closed or self._is_dry else self._fetch_more()
            free = self._free()
            endings, self._ended = self._ended, []
            reservations = [self._ready.popleft()[0] for _ in range(min(free, len(self._ready)))]
            self._busy += len(reservations)
            began = self._monotonic()
            tasks = self._unlocked(partial(self._turn, endings, reservations))
            self._turn_s = self._monotonic() - began
            tasks += [partial(self._return, one) for one in late]
        finally:
            self._is_turning = False
        self._busy += len(tasks) - len(endings) - len(reservations)
        self._tasks.extend(tasks)
        self._tasks_at = self._monotonic()
        others = len(self._tasks) - 1 + self._may_turn()  # what this thread does not do at once
        if others > 0 and not self._is_instant():
            self._put.notify(others)
        elif others > 0 and not self._is_watched:
            self._put.notify()
        if self._is_idle() or self._wanted():
            self._changed.notify_all()

    def _fetch_more(self) -> Sequence[Reservation]:
        """Have as many runs wait here as there is room for, the lock released meanwhile; return them if it was closed then."""
        room = self._room()
        if self._fetch is None or not room:
            return []
        found = self._unlocked(partial(self._fetch, room))
        self._is_dry = len(found) < room
        if self._is_closed:
            return found
        self._add(found)
        return []

    def _return(self, reservation: Reservation) -> Ran:
        self._give_back(reservation)
        return Ran()

    def _unlocked(self, call: Callable[[], T]) -> T:
        self._changed.release()
        try:
            return call()
        finally:
            self._changed.acquire()

    def _learn(self, took_s: float) -> None:
        if self._pace_s is None or self._usual_s is None:
            self._pace_s = self._usual_s = took_s
            return
        self._pace_s += PACE_WEIGHT * (took_s - self._pace_s)
        self._usual_s *= 1 + PACE_WEIGHT if took_s > self._usual_s else 1 / (1 + PACE_WEIGHT)

    def _rest(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()
