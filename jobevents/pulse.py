"""A thread that does one thing again and again, beside the work and never in its way."""

import threading
import weakref
from collections.abc import Callable


class Pulse:
    """Calls `beat` in a daemon thread, each time after the seconds that the call before returned.

    Only its owner keeps the owner alive: when that is collected, the thread ends. Not for use over a fork.
    """

    def __init__(self, name: str, beat: Callable[[], float], first_s: float) -> None:
        """Start nothing yet.

        Args:
            name: the thread's.
            beat: a method; what it raises ends the thread.
            first_s: seconds before the first call.
        """
        self._stopping = threading.Event()
        weak = weakref.WeakMethod(beat)
        self._thread = threading.Thread(target=_run, args=(weak, first_s, self._stopping), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, wait_s: float | None = None) -> None:
        """End the thread and wait for it, a call under way included, for so long or for ever; any number of times."""
        self._stopping.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(wait_s)


def _run(weak: "weakref.WeakMethod[Callable[[], float]]", wait_s: float, stopping: threading.Event) -> None:
    while not stopping.wait(wait_s):
        beat = weak()
        if beat is None:
            return
        wait_s = beat()
        del beat  # so that the owner may go meanwhile
