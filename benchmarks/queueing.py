"""What the rows of queues have each contender do: submit, work off what waits, begin what comes, idle.

A contender's queue is a class `Queue` in a module of its own, and its workers are processes of their own. Standard library only.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.model import Done, Repeat, Setting, Work
from benchmarks.tally import Tally, Verdict

_BATCH = 500  # jobs submitted at a time where that is not what is measured
_HANDLED_S = 250.0  # all jobs of a repetition: within the time of one
_SHARE = 1 / 200  # of a backlog that a repetition works off
_LEAST = 20  # jobs that a repetition works off at least: from the first to the last there must be a time
_LEAST_S = 0.05  # of idling


class Place(NamedTuple):
    """Where a contender's jobs are, and how they are kept and worked on."""

    directory: Path
    url: str  # of a Postgres database of its own; "" without one
    durability: str  # full or normal, of SQLite
    threads: int  # handlers at once in a process


class Queue(Protocol):
    """A contender's queue, in one process."""

    def __init__(self, place: Place) -> None: ...

    def prepare(self) -> None:
        """Make what must be there before anything else."""

    def submit(self, numbers: Sequence[int]) -> None:
        """Submit a job for each number: several as fast as the contender can at that durability."""

    def waiting(self) -> int:
        """Return how many jobs were submitted and not handled."""

    def work(self, handle: Callable[[int], None], stop: threading.Event) -> None:
        """Handle jobs until `stop` is set."""

    def close(self) -> None:
        """Release connections."""


def open_queue(name: str, place: Place) -> Queue:
    """Return the queue of the module `benchmarks.queue_{name}`."""
    queue: Queue = import_module(f"benchmarks.queue_{name}").Queue(place)
    return queue


@contextmanager
def submitting(setting: Setting) -> Iterator[Repeat]:
    """Submit jobs, as many at a time as `told["together"]` says; nobody works on them."""
    with closing(_Bench(setting)) as bench:
        together = int(setting.told.get("together", 1))

        def repeat() -> Work:
            numbers = bench.take(setting.size)

            def work() -> Done:
                for start in range(0, len(numbers), together):
                    bench.queue.submit(numbers[start : start + together])
                return Done(len(numbers), settle=bench.settle)

            return work

        yield repeat


@contextmanager
def handling(setting: Setting) -> Iterator[Repeat]:
    """Handle jobs that wait, in `told["processes"]` processes that are ready."""
    with closing(_Bench(setting)) as bench:

        def repeat() -> Work:
            bench.submit(setting.size)
            bench.start(int(setting.told.get("processes", 1)))
            return lambda: bench.handle(setting.size)

        yield repeat


@contextmanager
def handling_of_many(setting: Setting) -> Iterator[Repeat]:
    """Handle a part of a backlog, which is filled up again before the next repetition."""
    with closing(_Bench(setting)) as bench:
        share = max(_LEAST, int(setting.size * _SHARE))

        def repeat() -> Work:
            bench.submit(setting.size - bench.waiting())
            bench.start(1)
            return lambda: bench.handle(share)

        yield repeat


@contextmanager
def beginning(setting: Setting) -> Iterator[Repeat]:
    """Submit one job to a worker that idles in another process: the time from before the call to within the handler."""
    with closing(_Bench(setting)) as bench:
        bench.idle(setting.size)

        def work() -> Done:
            (number,) = bench.take(1)
            before = bench.tally.count()
            began = time.monotonic_ns()
            bench.queue.submit([number])
            bench.tally.wait_for(before + 1, _HANDLED_S)
            return Done(1, figure=(bench.tally.calls(before)[0][1] - began) / 1e9, settle=bench.verdict)

        yield lambda: work


@contextmanager
def idling(setting: Setting) -> Iterator[Repeat]:
    """Have a worker with nothing to do: the share of a core that it takes."""
    with closing(_Bench(setting)) as bench:
        bench.idle(setting.size)

        def work() -> Done:
            before, began = bench.cpu_s(), time.monotonic()
            time.sleep(max(_LEAST_S, setting.size))
            return Done(1, figure=(bench.cpu_s() - before) / (time.monotonic() - began), settle=bench.verdict)

        yield lambda: work


class _Bench:
    """A contender's queue, its workers, and the account of its jobs."""

    def __init__(self, setting: Setting) -> None:
        self._name = str(setting.told["queue"])
        self._place = Place(
            setting.own, setting.url, str(setting.told.get("durability", "")), int(setting.told.get("threads", 1))
        )
        self.queue = open_queue(self._name, self._place)
        self.queue.prepare()
        self.tally = Tally(setting.own / "tally")
        self._numbers = count()
        self._submitted = 0
        self._workers: list[_Worker] = []

    def take(self, amount: int) -> list[int]:
        """Return numbers for jobs that are to be submitted now."""
        self._submitted += max(0, amount)
        return [next(self._numbers) for _ in range(amount)]

    def submit(self, amount: int) -> None:
        numbers = self.take(amount)
        for start in range(0, len(numbers), _BATCH):
            self.queue.submit(numbers[start : start + _BATCH])

    def waiting(self) -> int:
        return self.queue.waiting()

    def start(self, processes: int) -> None:
        """Start worker processes, and return when all of them wait for the word."""
        self._workers = [_Worker(self._name, self._place) for _ in range(processes)]
        for worker in self._workers:
            worker.answer()

    def go(self) -> None:
        for worker in self._workers:
            worker.say("go")

    def idle(self, seconds: float) -> None:
        """Start a worker, have it handle a job, and let it idle for so long."""
        self.submit(1)
        self.start(1)
        self.go()
        self.tally.wait_for(1, _HANDLED_S)
        time.sleep(seconds)

    def handle(self, amount: int) -> Done:
        """Have so many jobs handled, and measure from the first call to the last: how a worker starts is not asked here."""
        before = self.tally.count()
        self.go()
        self.tally.wait_for(before + 1, _HANDLED_S)
        cpu_s = self.cpu_s()
        self.tally.wait_for(before + amount, _HANDLED_S)
        cpu_s = self.cpu_s() - cpu_s
        times = [at for _, at in self.tally.calls(before)]
        return Done(
            len(times), figure=(max(times) - min(times)) / 1e9 / (len(times) - 1), cpu_s=cpu_s, settle=self.settle
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds of all workers."""
        for worker in self._workers:
            worker.say("cpu")
        return sum(float(worker.answer()) for worker in self._workers)

    def settle(self) -> Verdict:
        """End the workers, and return what became of all jobs."""
        self._stop()
        return self.tally.verdict(self._submitted, self.waiting())

    def verdict(self) -> Verdict:
        """Return what became of all jobs when none waits any more."""
        return self.tally.verdict(self._submitted, 0)

    def close(self) -> None:
        self._stop()
        self.queue.close()
        self.tally.close()

    def _stop(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.stop()


class _Worker:
    """A worker process: it says that it is ready, and works from the word `go` to the end of its input."""

    def __init__(self, name: str, place: Place) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.queue_worker", name, *map(str, place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker process ended, exit status {self._process.wait()}")
        return line.strip()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
