"""Jobs over a log whose claims end by a clock that tests move, which `connect` has no option for."""

from pathlib import Path
from typing import Any

from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.blobs import MemoryBlobs
from jobevents.emit import Emitter
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from tests.clock import Clock


def timed_jobs(clock: Clock, path: Path | None, **options: Any) -> Jobs:
    """Return jobs over the log in a file, or in memory, all times by one clock."""
    recorder: MemoryRecorder | SqliteRecorder
    if path is None:
        recorder = MemoryRecorder(monotonic=clock.monotonic)
    else:
        recorder = SqliteRecorder.open(path, synchronous="normal", monotonic=clock.monotonic)
    return Jobs(
        Emitter(EventLog(recorder, recorder.translate), clock=clock),
        runs=recorder.runs,
        run_logs=recorder.run_logs,
        blobs=MemoryBlobs(),
        leases=recorder.leases,
        desk=recorder.desk,
        monotonic=clock.monotonic,
        **options,
    )
