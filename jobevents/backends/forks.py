"""What objects with connections, locks or threads do around a fork: put them down before, take them up after.

A child must not inherit an open SQLite connection (its locks belong to the process), nor a lock that a thread of the
parent held. Only forks made through Python are seen (os.fork, multiprocessing), which are those that go on to run Python.
"""

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An object that takes part in forks of its process."""

    def before_fork(self) -> None:
        """Come to rest; called in the parent, by the thread that forks."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Go on; in the child no other thread is left, and locks are as they were at the fork."""
        ...


_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_resting: list[ForkAware] = []
_fork = threading.Lock()  # held around a fork: of several threads that fork, one after the other


def watch(one: ForkAware) -> None:
    """Call `one` around every fork for as long as it lives."""
    _watched.add(one)


def _before() -> None:
    _fork.acquire()
    _resting[:] = list(_watched)
    for one in _resting:
        one.before_fork()


def _after(*, child: bool) -> None:
    try:
        for one in _resting:
            one.after_fork(child=child)
    finally:
        _resting.clear()
        _fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(child=False),
        after_in_child=lambda: _after(child=True),
    )
