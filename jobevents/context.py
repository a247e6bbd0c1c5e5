"""What a handler gets: its job, and ways to say how far it is, what it came to, and to hear that it should stop."""

import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jobevents.errors import Canceled
from jobevents.runlog import RunLog, RunLogHandler, captured

if TYPE_CHECKING:
    from jobevents.attempt import Attempt

P = TypeVar("P")


class JobContext(Generic[P]):
    """One try at a job, as its handler sees it. Safe for threads; nothing it is told stops the work if it cannot be recorded."""

    def __init__(
        self,
        attempt: "Attempt",
        params: P,
        log: RunLog,
        is_stopping: Callable[[], bool],
        *,
        deadline: datetime | None,
        trace: Callable[[], str],
    ) -> None:
        self.job_id = attempt.job_id
        self.attempt = attempt.number  # which try this is, from 1
        self.params = params  # as the job's Struct, or the JSON it was submitted with
        self.deadline = deadline  # when the try times out, aware UTC; None: never
        self.has_result = False
        self._attempt = attempt
        self._log = log
        self._is_stopping = is_stopping
        self._trace = trace

    @cached_property
    def log_handler(self) -> logging.Handler:
        """A handler for a logger whose records are to be taken into the run's log."""
        return RunLogHandler(self._log)

    @cached_property
    def trace(self) -> str:
        """W3C trace id of what submitted the job, "" for none; costs one read, once."""
        return self._trace()

    @property
    def canceled(self) -> bool:
        """Tell whether the work should stop: it was canceled, has timed out, or its process ends. Costs nothing to ask."""
        return self._is_stopping()

    def check(self) -> Any:  # Any: None here, something to await where the handler is a coroutine
        """Stop here if the work should stop.

        Raises:
            Canceled: it should; let it pass. What is recorded follows from why.
        """
        if self.canceled:
            raise Canceled(f"the job was asked to stop job_id={self.job_id}")

    def progress(self, percent: float, message: str = "") -> Any:  # Any: as above
        """Say how far the work is, 0 to 100; at most two events a second are recorded, and always the last."""
        self._attempt.progress(percent, message)

    def annotate(
        self, *, title: str = "", command: str = "", **fields: str | float | bool | None
    ) -> Any:  # Any: as above
        """Set the title or service fields of the status; an empty text or None takes a field away."""
        self._attempt.annotate(title=title, command=command, **fields)

    def log(self, message: str, *, level: str = "info", **attrs: Any) -> Any:  # Any: JSON values; and as above
        """Add a line to the run's log, of which an attempt may write 1,000 and 256 KiB."""
        self._log.line(str(message), level, attrs)

    def result(self, value: Any) -> Any:  # Any: a JSON value; and as above
        """Set what the job came to, instead of returning it."""
        self.has_result = True
        self._attempt.result(value)

    def capture(self, logger: str = "") -> AbstractContextManager[None]:
        """Take the records that this run makes through a logger, by default any, into the run's log within a `with` block."""
        return captured(logging.getLogger(logger or None), self.log_handler)


class AioJobContext(JobContext[P]):
    """The same for a coroutine: no method blocks the event loop, and each may be awaited until it is written.

    Its calls are written in order by a thread beside the loop; of progress that waits there, the last is written.
    """

    def __init__(self, *args: Any, send: "Callable[[Callable[[], None]], Awaitable[None]]", **options: Any) -> None:
        """Take what JobContext takes (Any: that), and `send`, which has a call made in order by another thread."""
        super().__init__(*args, **options)
        self._send = send
        self._sending = threading.Lock()
        self._progress: tuple[float, str] | None = None
        self._last_progress: Awaitable[None] = NOTHING

    def check(self) -> Awaitable[None]:
        """As JobContext's; raises at once."""
        super().check()
        return NOTHING

    def progress(self, percent: float, message: str = "") -> Awaitable[None]:
        """As JobContext's."""
        with self._sending:
            waits, self._progress = self._progress is not None, (percent, message)
            if not waits:
                self._last_progress = self._send(self._write_progress)
            return self._last_progress

    def _write_progress(self) -> None:
        with self._sending:
            said, self._progress = self._progress, None
        if said is not None:
            self._attempt.progress(*said)

    def annotate(self, *, title: str = "", command: str = "", **fields: str | float | bool | None) -> Awaitable[None]:
        """As JobContext's."""
        return self._send(lambda: self._attempt.annotate(title=title, command=command, **fields))

    def log(self, message: str, *, level: str = "info", **attrs: Any) -> Awaitable[None]:  # Any: JSON values
        """As JobContext's."""
        written: Awaitable[None] | None = self._log.line(str(message), level, attrs)
        return written or NOTHING

    def result(self, value: Any) -> Awaitable[None]:  # Any: a JSON value
        """As JobContext's."""
        super().result(value)
        return NOTHING


class _Nothing:
    """Something to await that is done."""

    def __await__(self) -> Any:  # Any: an empty iterator
        return iter(())


NOTHING: Awaitable[None] = _Nothing()
