"""Many requests at once, where each waits for its store: threads that are made when they are first needed."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")

THREADS = 16  # 45 ms a request: 350 a second, more than the client's own CPU serves


class Fan:
    """Calls a function for many items at a time. Safe for threads; a forked child makes threads of its own.

    A call from one of its own threads does its items one after the other: threads that wait for threads would never end.
    """

    def __init__(self, threads: int = THREADS) -> None:
        """Call one after the other when `threads` is 1."""
        self._threads = threads
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # process id and its threads
        self._here = threading.local()

    def map(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what `call` says of each item, in their order. The first error is raised, when all calls have ended."""
        done = self.each(call, items)
        for one in done:
            if isinstance(one, _Failed):
                raise one.error
        return [one for one in done if not isinstance(one, _Failed)]

    def each(self, call: Callable[[T], R], items: Iterable[T]) -> "list[R | _Failed]":
        """Return of each item what `call` says, or how it failed."""

        def attempt(item: T) -> R | _Failed:
            try:
                return call(item)
            except Exception as error:  # noqa: BLE001  # raised by whoever reads it
                return _Failed(error)

        todo = list(items)
        if len(todo) < 2 or self._threads < 2 or getattr(self._here, "is_own", False):
            return [attempt(item) for item in todo]
        return list(self._threads_here().map(attempt, todo))

    def close(self) -> None:
        """End the threads; the next call makes new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown()

    def _threads_here(self) -> ThreadPoolExecutor:
        pool = self._pool
        if pool is None or pool[0] != os.getpid():
            made = ThreadPoolExecutor(self._threads, thread_name_prefix="jobevents-blobs", initializer=self._own)
            pool = self._pool = (os.getpid(), made)  # of two made at once, one ends with its work
        return pool[1]

    def _own(self) -> None:
        self._here.is_own = True


class _Failed(NamedTuple):
    """How a call failed."""

    error: Exception
