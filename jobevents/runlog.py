"""What a handler says of its run: lines within limits on their way to the run's log, by `ctx.log` or by way of `logging`."""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

# behaviour M3
LINES_LIMIT = 1000  # lines of an attempt
SIZE_LIMIT = 256 * 1024  # characters of an attempt's lines
TAIL_LINES = 50  # of them, kept with the error

LogPolicy = Literal["off", "failure", "always"]

_LONGEST = 1025  # characters of a line in the tail: one more than `outcomes` keeps, so that a cut shows
_TAKEN = "_jobevents"  # what a record says when one of our handlers has taken it
_OURS = "jobevents"  # our own records are about the recording of lines, among others
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"))


class _Write(Protocol):
    def __call__(self, message: str, *, level: str, **attrs: Any) -> Any: ...


class RunLog:
    """The lines of one attempt. What is beyond its limits is dropped, and the last line says how much. Safe for threads."""

    def __init__(self, write: _Write, *, policy: LogPolicy = "off") -> None:
        """Write lines with `write`; `policy` says whether records are taken unasked, and if only after a failure."""
        self._write = write
        self.policy = policy
        self._held: list[tuple[str, str, dict[str, Any]]] = []
        self._tail: deque[tuple[str, str]] = deque(maxlen=TAIL_LINES)
        self._lines = self._size = self._dropped = 0
        self._lock = threading.Lock()

    def _fits(self, message: str) -> bool:
        with self._lock:
            self._lines += 1
            self._size += len(message)
            if self._lines <= LINES_LIMIT and self._size <= SIZE_LIMIT:
                return True
            self._lines -= 1
            self._size -= len(message)
            self._dropped += 1
            return False

    def line(self, message: str, level: str, attrs: dict[str, Any]) -> Any:  # Any: what `write` returns
        """Take a line that the handler wrote; None when it was dropped."""
        self._tail.append((level, message[:_LONGEST]))
        return self._write(message, level=level, **attrs) if self._fits(message) else None

    def remember(self, message: str, level: str) -> None:
        """Take a record for the tail alone."""
        self._tail.append((level, message[:_LONGEST]))

    def tail(self) -> list[str]:
        """Return the last lines and records, whatever became of them otherwise: what is kept with an error (behaviour M13)."""
        return [f"{level}: {message}" for level, message in list(self._tail)]

    def record(self, message: str, level: str, attrs: dict[str, Any]) -> None:
        """Take a captured record."""
        if not self._fits(message):
            return
        if self.policy == "failure":
            self._held.append((message, level, attrs))
        else:
            self._write(message, level=level, **attrs)

    def finish(self, write: _Write, *, failed: bool) -> None:
        """Write what was held back if the attempt failed, and how much was dropped."""
        held, self._held = self._held, []
        for message, level, attrs in held if failed else ():
            write(message, level=level, **attrs)
        if self._dropped:
            write(
                f"{self._dropped} more lines were dropped: {LINES_LIMIT} lines and {SIZE_LIMIT} characters are kept",
                level="warn",
            )


_current: ContextVar[RunLog | None] = ContextVar("jobevents_run_log", default=None)


class RunLogHandler(logging.Handler):
    """Takes the records made within a run into its log.

    A thread that a handler starts is within the run only if it was started with a copy of the context, as asyncio does.
    """

    def __init__(self, log: RunLog | None = None) -> None:
        """Take the records of one run's log, or of whichever run makes them."""
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, once, unless it is another run's or our own; what nobody asked for goes to the tail alone."""
        log = _current.get()
        if log is None or (self._log or log) is not log or record.name.split(".", 1)[0] == _OURS:
            return
        is_asked = self._log is log or log.policy != "off"
        before = record.__dict__.get(_TAKEN, "")
        if before == "written" or (before and not is_asked):
            return
        record.__dict__[_TAKEN] = "written" if is_asked else "remembered"
        try:
            level = next((name for number, name in _LEVELS if record.levelno >= number), "debug")
            message = self.format(record)
            if not before:
                log.remember(message, level)
            if is_asked:
                log.record(message, level, {"logger": record.name})
        except Exception:  # noqa: BLE001  # as every handler of logging: the work goes on
            self.handleError(record)


def enter(log: RunLog | None) -> None:
    """Have the records made in this context from now on taken for those of the run whose log this is."""
    _current.set(log)


@contextmanager
def captured(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Have `handler` get the records of a logger within the block."""
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
