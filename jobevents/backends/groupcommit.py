"""Group commit: calls of many threads in one transaction, since the disk costs the same wait for one as for fifty.

The thread that finds nobody ahead leads: it commits all that waits, its own call first, while later callers queue up
behind for the next leader. Threads that have just shared a commit mostly come again together, each with its next call: the
leader waits for as many, for no longer than the commit takes. A caller that was alone of late never waits for company.
A queue that is idle may be passed by, with a lock around all commits, at which the first who queues up then waits.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

GROUP_LIMIT: Final = 64  # calls a transaction: bounds how long the first of them waits for the last
COMPANY_S: Final = 0.002  # of waiting for company at most, however slow the disk is


class Call:
    """One caller's work and what became of it."""

    __slots__ = ("error", "result", "settled", "since", "turn", "work")

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work  # may run more than once: a transaction that was lost is done again
        self.since = time.monotonic()  # when it was asked for: limits on waiting count from here
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = False  # committed or refused; never set before it is durable
        self.turn = threading.Lock()  # a follower's is held until it is settled, or until it is its turn to lead

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Say what became of it."""
        self.result, self.error, self.settled = result, error, True


class Commit(Protocol):
    """Runs calls in one transaction and settles each; a call that it leaves unsettled is given to the next leader."""

    def __call__(self, group: list[Call]) -> None: ...


class GroupCommit:
    """A queue of calls, the first of which leads."""

    def __init__(
        self, commit: Commit, *, monotonic: Callable[[], float] = time.monotonic, company_s: float = COMPANY_S
    ) -> None:
        self._commit = commit
        self._company_s = company_s
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._came = threading.Condition(self._mutex)  # somebody for whom the leader waits
        self._calls: deque[Call] = deque()
        self.is_idle = True  # nobody is here, nor was there company of late: whoever commits may do so past the queue
        self._expected = 1  # calls at the last commit, those in it and those behind
        self._took_s = 0.0  # that commit

    def run(self, work: Callable[..., T]) -> T:
        """Have `work` committed, alone or with what other threads want, and return its result or raise its error.

        Returns once the outcome is durable. An error of another call does not touch this one.
        """
        call = Call(work)
        try:
            if self._is_first(call):
                # Alone of late: who came since waits for the next transaction, that is microseconds.
                self._lead(call, [call] if self._expected == 1 else self._gathered())
            else:
                call.turn.acquire()
                if not call.settled:
                    self._lead(call, self._gathered())
        except BaseException:
            self._withdraw(call)
            raise
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def _is_first(self, call: Call) -> bool:
        with self._mutex:
            self._calls.append(call)
            self.is_idle = False
            if self._calls[0] is call:
                return True
            call.turn.acquire()
            if len(self._calls) == self._expected:
                self._came.notify()
            return False

    def _withdraw(self, call: Call) -> None:
        """Take an interrupted call back, unless a leader has it in hand, and let the next one lead if it was first."""
        with self._mutex:
            if call not in self._calls:
                return
            was_first = self._calls[0] is call
            self._calls.remove(call)
            heir = self._calls[0] if was_first and self._calls else None
        self._promote(heir)

    def _gathered(self) -> list[Call]:
        """Return what waits, once as many have come as were here at the last commit, or will not come in time."""
        with self._mutex:
            if len(self._calls) < self._expected:
                wait_s = min(self._took_s, self._company_s)
                self._came.wait_for(lambda: len(self._calls) >= self._expected, wait_s)
            return list(islice(self._calls, GROUP_LIMIT))

    def _lead(self, call: Call, group: list[Call]) -> None:
        began = self._monotonic()
        try:
            self._commit(group)
        finally:
            self._hand_over(call, group, began)

    def _hand_over(self, call: Call, group: list[Call], began: float) -> None:
        """Let those go whose calls are settled, and the first of the others lead."""
        with self._mutex:
            call.settled = True
            if len(self._calls) == 1:  # nobody came meanwhile
                self._calls.clear()
                self._expected = 1
                self.is_idle = True
                return
            self._took_s = self._monotonic() - began
            left = [one for one in self._calls if not one.settled]
            self._calls = deque(left)
            self._expected = min(len(group) + len(left), GROUP_LIMIT)
            heir = left[0] if left else None
        for one in group:
            if one is not call and one.settled:
                one.turn.release()
        self._promote(heir)

    @staticmethod
    def _promote(heir: Call | None) -> None:
        if heir is not None:
            heir.turn.release()
