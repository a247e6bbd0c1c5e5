"""A log in memory that fails, stalls or loses its reply on command, and counts what it was asked."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from eventsourcing.persistence import StoredEvent

from jobevents import codec
from jobevents.backends.memory import MemoryRecorder
from jobevents.blobs import MemoryBlobs
from jobevents.emit import Emitter
from jobevents.errors import AppendUnknown, JobEventsError, Unavailable
from jobevents.jobs import Jobs
from jobevents.log import EventLog, Record
from jobevents.store import JobLog
from tests.clock import Clock


class FailingRecorder(MemoryRecorder):
    """The recorder in memory, with the trouble that networks and disks make."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[int] = []  # how many events each append brought
        self.reached = threading.Event()  # a call waits at the gate
        self._gate: threading.Event | None = None
        self._held: int | None = None
        self._refuses: JobEventsError | None = None
        self._loses = 0

    @contextmanager
    def refusing(self, error: JobEventsError | None = None) -> Iterator[None]:
        """Read and write nothing within the block."""
        self._refuses = error or Unavailable("the disk is on fire")
        try:
            yield
        finally:
            self._refuses = None

    @contextmanager
    def losing_replies(self, calls: int = 1_000_000) -> Iterator[None]:
        """Store what comes within the block, and let the caller not know it, for the first calls or for all."""
        self._loses = calls
        try:
            yield
        finally:
            self._loses = 0

    @contextmanager
    def stalling(self, calls: int | None = None) -> Iterator[Callable[[], None]]:
        """Hold up all calls within the block, or the first of them, until the function that it gives is called: 20 s at most."""
        self._gate, self.reached, self._held = threading.Event(), threading.Event(), calls
        try:
            yield self._gate.set
        finally:
            self._gate.set()
            self._gate = None

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store events, if it is not told otherwise."""
        self._pass()
        self.appends.append(len(stored_events))
        try:
            return super().insert_events(stored_events, **kwargs)
        finally:
            if self._loses:
                self._loses -= 1
                first = codec.decode(stored_events[0].state)
                raise AppendUnknown(first.job_id, first.version, first.id)

    def select_events(self, originator_id: Any, **kwargs: Any) -> Sequence[StoredEvent]:
        """Read events, if it is not told otherwise."""
        self._pass()
        return super().select_events(originator_id, **kwargs)

    def iter_by_job(self, start: str, batch: int) -> Iterator[Record]:
        """Read events job by job, if it is not told otherwise."""
        self._pass()
        return super().iter_by_job(start, batch)

    def _pass(self) -> None:
        if self._refuses is not None:
            raise self._refuses
        gate = self._gate
        if gate is not None and self._held != 0:
            self._held = None if self._held is None else self._held - 1
            self.reached.set()
            if not gate.wait(20):
                raise AssertionError("nobody opened the gate")


class LosingLines:
    """Log lines that cannot be written."""

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Refuse every batch."""
        if entries:
            raise Unavailable("no room for log lines")

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Hold none."""
        return []


def failing_jobs(
    clock: Clock, kind: type[FailingRecorder] = FailingRecorder, **options: Any
) -> tuple[Jobs, FailingRecorder]:
    """Return jobs over a log that fails on command, by a standing clock, and its recorder."""
    recorder = kind()
    given: dict[str, Any] = {
        "runs": recorder.runs,
        "run_logs": recorder.run_logs,
        "blobs": MemoryBlobs(),
        "leases": recorder.leases,
        "desk": recorder.desk,
        "monotonic": clock.monotonic,
        **options,
    }
    return Jobs(Emitter(EventLog(recorder, recorder.translate), clock=clock), **given), recorder
