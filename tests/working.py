"""Several worker processes over one log, by clocks that stand still: each process is a Jobs of its own."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.backends.sqliteleases import SqliteLeases
from jobevents.blobs import MemoryBlobs
from jobevents.emit import Emitter
from jobevents.events import Event
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.workers import Leases, MemoryLeases
from tests.clock import Clock

LEASE_S = 30.0


class Machine:
    """One log and the processes on it. A process that is not told to `beat` gives no sign of life."""

    def __init__(self, open_recorder: Callable[[], MemoryRecorder | SqliteRecorder]) -> None:
        self.wall = Clock()  # what people set
        self.steady = Clock()  # what nobody can
        self._open = open_recorder
        self._shared = MemoryLeases(monotonic=self.steady.monotonic)
        self._blobs = MemoryBlobs()
        self._started: list[Jobs] = []

    def start(self, *, lease_s: float = LEASE_S, leases: Leases | None = None) -> Jobs:
        """Start a process."""
        recorder = self._open()
        jobs = Jobs(
            Emitter(EventLog(recorder, recorder.translate), clock=self.wall),
            runs=recorder.runs,
            run_logs=recorder.run_logs,
            desk=recorder.desk,
            blobs=self._blobs,
            leases=leases or self._leases(recorder),
            lease_s=lease_s,
            monotonic=self.steady.monotonic,
        )
        self._started.append(jobs)
        return jobs

    def _leases(self, recorder: MemoryRecorder | SqliteRecorder) -> Leases:
        if isinstance(recorder, SqliteRecorder):
            return SqliteLeases(recorder.file, monotonic=self.steady.monotonic)
        return self._shared

    def elapse(self, seconds: float, *alive: Jobs) -> None:
        """Let time go by, in which the processes that are alive renew their leases every 5 s."""
        while seconds > 0:
            step = min(5.0, seconds)
            self.wall.move(step)
            self.steady.move(step)
            seconds -= step
            for jobs in alive:
                jobs.presence.beat()

    def stop(self) -> None:
        """End all processes."""
        for jobs in self._started:
            jobs.close()


@contextlib.contextmanager
def machine(kind: str, directory: Path) -> Iterator[Machine]:
    """Make a machine whose log is in `memory` or in an `sqlite` file."""
    recorder = MemoryRecorder()
    path = directory / "jobs.db"
    made = Machine(lambda: recorder if kind == "memory" else SqliteRecorder.open(path, synchronous="normal"))
    yield made
    made.stop()


def told(events: list[Event]) -> list[str]:
    """Return a history in short: types, with cause, start and attempt where there are such."""
    shown = []
    for event in events:
        parts = [str(getattr(event, name)) for name in ("cause", "tried", "attempt", "start") if hasattr(event, name)]
        shown.append(f"{event.type}({', '.join(parts)})" if parts else event.type)
    return shown
