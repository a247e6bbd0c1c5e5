"""Processes that race: started once, since that is what takes long, and released together for each task."""

import contextlib
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Barrier
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_spawn = multiprocessing.get_context("spawn")


def race(count: int, run: Callable[[int], T]) -> list[T]:
    """Return what `run(0)` … `run(count - 1)` return, called in threads that were released together."""
    barrier = Barrier(count)

    def start(number: int) -> T:
        barrier.wait(30)
        return run(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


class Racers:
    """Long-lived processes; each task is a module-level function, called in all of them with a barrier that they share."""

    def __init__(self, count: int) -> None:
        self._barrier = _spawn.Barrier(count)  # kept: a semaphore is gone with the last that knows it here
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = _spawn.Pipe()
            process = _spawn.Process(target=_serve, args=(theirs, number, self._barrier), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # it has ended already
                pipe.send(None)
        for process in self._processes:
            process.join(10)
            if process.exitcode is None:
                process.kill()

    def run(self, task: Callable[..., Any], *args: Any) -> Sequence[Any]:
        """Return what `task(number, wait, *args)` returns in each process; what one raises is raised here."""
        for pipe in self._pipes:
            pipe.send((task, args))
        answers = [pipe.recv() for pipe in self._pipes]
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers


def _serve(pipe: Connection, number: int, barrier: Any) -> None:
    while (asked := pipe.recv()) is not None:
        task, args = asked
        try:
            pipe.send(task(number, lambda: barrier.wait(60), *args))
        except BaseException as error:
            barrier.abort()
            pipe.send(RuntimeError(repr(error)))
            raise
