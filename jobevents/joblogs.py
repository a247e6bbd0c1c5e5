"""A run's log lines: gathered in the attempt, written in batches, numbered so that they stay in order across attempts."""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobevents import boundary
from jobevents.errors import InvalidValue, JobEventsError
from jobevents.job import Job
from jobevents.store import JobLog, LogTable

LINES_PER_START = 1_000_000  # line n of start s has seq s * 1,000,000 + n (behaviour M13, numbered by the start)
BATCH_LINES = 200  # lines that make a batch at once
KEPT_LINES = 2000  # lines that wait while the table cannot be written: at most 16 MB


class LineBuffer:
    """Log lines of one attempt on their way to the table. Safe for threads."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._lines: list[JobLog] = []
        self._count = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one batch after the other: who flushes last leaves with all of them written

    def add(self, job: Job, at: datetime, message: str, level: str, attrs: Mapping[str, Any]) -> None:
        """Take a line; a full batch is written at once."""
        try:
            kept = boundary.check_json("attrs", dict(attrs), limit=boundary.LINE_LIMIT) if attrs else {}
        except InvalidValue as error:
            kept = {"unstorable": boundary.clean_text(str(error), boundary.TITLE_LIMIT)}
        with self._lock:
            self._count += 1
            self._lines.append(
                JobLog(
                    run_id=job.job_id,
                    seq=job.start * LINES_PER_START + self._count,
                    attempt=job.attempt,
                    at=at,
                    level=level,
                    message=boundary.clean_text(str(message), boundary.LINE_LIMIT),
                    attrs=kept,
                )
            )
            full = len(self._lines) % BATCH_LINES == 0
        if full:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered; what cannot be written waits for the next call, the last `KEPT_LINES` of it.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        with self._writing:
            with self._lock:
                lines, self._lines = self._lines, []
            try:
                self._table.append_logs(lines)
            except JobEventsError:
                with self._lock:
                    self._lines = [*lines, *self._lines][-KEPT_LINES:]
                raise
