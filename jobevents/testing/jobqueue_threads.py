"""The part of the queue's contract in which threads meet: each run once, none lost, nobody left asleep."""

# ruff: noqa: SIM300 - the expected value stands first

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import monotonic, sleep
from typing import TypeVar

import pytest

from jobevents.errors import QueueClosed
from jobevents.queue import JobQueue, Reservation
from jobevents.testing.runs import run

PATIENCE_S = 20.0  # far above what anything takes
AT_ONCE_S = 0.5  # below every poll interval that is usual
ASLEEP_S = 0.05  # after so long, who waits sleeps

T = TypeVar("T")


class JobQueueThreads:
    """Promises to several who reserve at once; `JobQueueContract` includes them."""

    loops = 5_000  # of the race between a timeout and an arrival

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        """Deal with a run."""
        raise NotImplementedError("it comes with JobQueueContract")

    def test_each_run_once(self, queue: JobQueue) -> None:
        """Four workers and eight runs each: every run is handed to one of them."""
        for number in range(32):
            queue.enqueue(run(f"a{number}"))

        taken = [run_id for some in at_once([partial(self._drain, queue)] * 4) for run_id in some]

        assert sorted(f"a{number}" for number in range(32)) == sorted(taken)

    @pytest.mark.parametrize("limit", [1, 7])
    def test_rsv_01_two_workers_never_get_the_same(self, queue: JobQueue, limit: int) -> None:
        """RSV-01: eight threads take four hundred runs, while they are enqueued: each once, and none is left."""
        count = 400
        taken: Counter[str] = Counter()
        lock = threading.Lock()

        def work(number: int) -> None:
            if number < 2:
                for n in range(number, count, 2):
                    queue.enqueue(run(f"a{n}"))
            while sum(taken.values()) < count:
                some = self._drain(queue, limit, timeout_s=0.05)
                with lock:
                    taken.update(some)

        at_once([partial(work, number) for number in range(8)])

        assert Counter(f"a{n}" for n in range(count)) == taken
        assert 0 == len(queue)

    def test_del_11_nothing_is_lost_in_a_timeout(self, queue: JobQueue) -> None:
        """DEL-11: runs that arrive in the very moment in which a wait ends are handed out, or wait: enqueued = taken + length."""
        taken: list[str] = []
        done = threading.Event()

        def reserve(timeout_s: float) -> None:
            while not done.is_set():
                for reservation in queue.reserve(timeout_s=timeout_s):
                    taken.append(reservation.run.id)
                    self.handle(queue, reservation)

        def enqueue() -> None:
            try:
                for number in range(self.loops):
                    queue.enqueue(run(f"a{number}"))
            finally:
                done.set()

        works: list[Callable[[], None]] = [partial(reserve, 0.000_1), partial(reserve, 0.001), enqueue]
        at_once(works)

        assert self.loops == len(taken) + len(queue)
        assert len(taken) == len(set(taken))

    def test_an_arrival_wakes_who_waits(self, queue: JobQueue) -> None:
        """A blocked reserve returns at once when a run is enqueued."""
        with waiting(lambda: queue.reserve(timeout_s=PATIENCE_S)) as answer:
            began = monotonic()
            queue.enqueue(run())

            (reservation,) = answer()

        assert ("a", True) == (reservation.run.id, monotonic() - began < AT_ONCE_S)
        self.handle(queue, reservation)

    def test_a_return_wakes_who_waits(self, queue: JobQueue) -> None:
        """A blocked reserve returns at once when another one's run is given back."""
        queue.enqueue(run())
        (first,) = queue.reserve(timeout_s=0)
        with waiting(lambda: queue.reserve(timeout_s=PATIENCE_S)) as answer:
            began = monotonic()
            first.ack(RuntimeError("no database"))

            (second,) = answer()

        assert ("a", True) == (second.run.id, monotonic() - began < AT_ONCE_S)
        self.handle(queue, second)

    def test_a_close_wakes_who_waits(self, queue: JobQueue) -> None:
        """Everybody who waits hears QueueClosed at once."""

        def reserve() -> str:
            try:
                queue.reserve()
            except QueueClosed:
                return "closed"
            return "open"

        with waiting(reserve) as first, waiting(reserve) as second:
            began = monotonic()
            queue.close()

            answers = [first(), second()]

        assert (["closed", "closed"], True) == (answers, monotonic() - began < AT_ONCE_S)

    def test_a_wait_ends(self, queue: JobQueue) -> None:
        """A reserve with a timeout returns after it, though nothing came."""
        began = monotonic()

        found = queue.reserve(timeout_s=0.05)

        assert ([], True) == (found, 0.05 <= monotonic() - began < PATIENCE_S)

    def _drain(self, queue: JobQueue, limit: int = 1, *, timeout_s: float = 0) -> list[str]:
        taken = []
        while some := queue.reserve(limit=limit, timeout_s=timeout_s):
            for reservation in some:
                taken.append(reservation.run.id)
                self.handle(queue, reservation)
        return taken


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the calls return, each made in a thread of its own, all released together; what one raises is raised."""
    barrier = threading.Barrier(len(works))

    def start(work: Callable[[], T]) -> T:
        barrier.wait(PATIENCE_S)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(start, work) for work in works]]


@contextmanager
def waiting(call: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Make a call in a thread until it sleeps; gives a function that waits for what it returns."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        sleep(ASLEEP_S)  # nothing tells from outside that a thread has fallen asleep
        yield partial(future.result, PATIENCE_S)
