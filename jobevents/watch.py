"""The watch over handlers under way: who was canceled or has timed out is asked to stop, who does not stop is given up."""

import threading
import time
from collections.abc import Callable, Sequence

from jobevents.events import CancelRequested, Event
from jobevents.execution import Execution, Stop
from jobevents.job import Job

TICK_S = 0.1  # between two looks while anything runs
FIRST_LOOK_S = 0.5  # before a run's cancel is looked for: most are done by then


class Watch:
    """All handlers under way in one runner. Safe for threads."""

    def __init__(
        self,
        give_up: Callable[[Execution], None],
        *,
        is_canceled: Callable[[Execution], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """Watch nothing yet.

        Args:
            give_up: called for a handler that did not stop, after its execution was ended.
            is_canceled: tells whether its job should not run on; a read of the log, at most twice a second.
        """
        self._give_up = give_up
        self._is_canceled = is_canceled
        self._monotonic = monotonic
        self._under_way: dict[str, Execution] = {}
        self._is_closed = False
        self._changed = threading.Condition()
        self._hearing: threading.Thread | None = None

    def begin(self, execution: Execution) -> None:
        """Watch over a handler."""
        with self._changed:
            if self._hearing is None:
                self._hearing = threading.Thread(target=self._hear, name="jobevents-cancels", daemon=True)
                self._hearing.start()
            self._under_way[execution.attempt.job_id] = execution
            self._changed.notify_all()

    def end(self, execution: Execution) -> None:
        """Watch over it no more."""
        with self._changed:
            if self._under_way.get(execution.attempt.job_id) is execution:
                del self._under_way[execution.attempt.job_id]
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._under_way)

    def noticed(self, job: Job, events: Sequence[Event]) -> None:
        """Ask a handler to stop at once, whose cancel this process itself has written: an observer of Jobs."""
        for event in events:
            if type(event) is CancelRequested:
                with self._changed:
                    execution = self._under_way.get(job.job_id)
                if execution is not None:
                    execution.ask(Stop.CANCEL, self._monotonic())

    def ask_all(self, why: Stop) -> None:
        """Ask all handlers to stop."""
        for execution in self._all():
            execution.ask(why, self._monotonic())

    def give_up_all(self) -> None:
        """Give up all handlers."""
        for execution in self._all():
            self._end(execution)

    def wait_for_any(self, timeout_s: float | None = None) -> bool:
        """Wait until something is under way, or for so long; False when nothing is and nothing will be."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._under_way) or self._is_closed, timeout_s)
            return bool(self._under_way) or not self._is_closed

    def close(self) -> None:
        """Let nobody wait for more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def look(self) -> None:
        """Look at the time of each handler once."""
        now = self._monotonic()
        for execution in self._all():
            timeout_s = execution.definition.timeout_s
            if execution.why is not None:
                if execution.why is not Stop.SHUTDOWN and now - execution.asked >= execution.definition.stop_grace_s:
                    self._end(execution)
            elif timeout_s is not None and now - execution.began >= timeout_s:
                execution.ask(Stop.TIMEOUT, now)

    def _hear(self) -> None:
        """Look for cancels, in a thread of its own: while the log is away, each look takes as long as a call of it tries."""
        while self.wait_for_any():
            for execution in self._all():
                is_young = self._monotonic() - execution.began < FIRST_LOOK_S
                if not is_young and execution.why is None and self._is_canceled(execution):
                    execution.ask(Stop.CANCEL, self._monotonic())
            time.sleep(TICK_S)

    def _end(self, execution: Execution) -> None:
        if execution.end():
            self.end(execution)
            self._give_up(execution)

    def _all(self) -> list[Execution]:
        with self._changed:
            return list(self._under_way.values())
