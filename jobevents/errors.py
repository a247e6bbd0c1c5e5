"""The errors of jobevents, one tree; a class of its own only where a caller would act differently.

    JobEventsError
    ├── InvalidValue (ValueError)      what the caller gave cannot be stored; nothing was written
    │   ├── InvalidJobId               not a job id; nothing was read or written
    │   └── ids.NoTimestamp            an id that names no time: valid all the same, and listed last
    ├── Misconfigured                  how this was set up cannot work; says what to change
    ├── NotFound (LookupError)         there is no such job, object or run
    │   └── Gone                       there was one; it was deleted
    ├── Unavailable                    could not be read or written now; try again
    ├── AppendUnknown                  the reply was lost: the event may or may not be in the log
    ├── PermissionDenied               the store refuses these credentials; trying again does not help
    ├── Corrupt                        what is stored cannot be read
    ├── Conflict                       somebody else wrote first
    │   └── KeyTaken                   an unfinished job holds this idempotency key
    ├── IllegalTransition              the job's state does not allow this
    ├── Refused                        an attempt was not granted
    │   ├── AlreadySucceeded           the work is done: acknowledge the delivery
    │   ├── AlreadyCanceled            nobody wants the work: acknowledge the delivery
    │   ├── AlreadyRunning             a living worker has it: have it delivered again later
    │   └── Busy                       as many run as may at once: have it delivered again later
    ├── QueueClosed                    the queue was closed while waiting on it
    └── HandlerSignal                  raised by or into a handler to say how its attempt ends
        ├── Canceled                   a cancel was asked for; let it pass through the handler
        ├── Abandon                    fail at once, without another try
        └── Snooze                     put the job back and start it later, the try not counted

Messages are lower case: what failed, then `key=value`, then a hint where there is a remedy.
"""

from datetime import timedelta
from typing import Any


class JobEventsError(Exception):
    """Anything jobevents raises on purpose; it goes whole from one process to another."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own calls the class with the message alone, and a pool whose worker raised that breaks or hangs.
        return _again, (type(self), self.args), vars(self)


def _again(kind: type[JobEventsError], args: tuple[object, ...]) -> JobEventsError:
    return kind.__new__(kind, *args)


class InvalidValue(JobEventsError, ValueError):
    """A value cannot be stored; nothing was written. `path` names the place in the value, like `$.a[3]`."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{message} path={path:.200}" if path else message)
        self.path = path


class InvalidJobId(InvalidValue):
    """A text is not a job id (behaviour S1, S2); nothing was read or written."""


class Misconfigured(JobEventsError):
    """The set-up cannot work; the message says what to change."""


class NotFound(JobEventsError, LookupError):
    """There is no such job, object or run."""


class Gone(NotFound):
    """The job was deleted; a deleted job never comes back."""


class Unavailable(JobEventsError):
    """A store could not be read or written now; try again.

    An append that raises it wrote nothing. A blob write whose reply was lost may still land: `Blobs.put` says so.
    """


class AppendUnknown(JobEventsError):
    """The outcome of an append is unknown; look for `event_id` in the log before deciding again."""

    def __init__(self, job_id: str, version: int, event_id: str) -> None:
        super().__init__(f"outcome of append unknown job_id={job_id} version={version} event_id={event_id}")
        self.job_id = job_id
        self.version = version
        self.event_id = event_id


class PermissionDenied(JobEventsError):
    """The store refuses these credentials; trying again does not help."""


class Corrupt(JobEventsError):
    """Stored bytes cannot be read as what they should be; they were left as they are."""


class Conflict(JobEventsError):
    """Somebody else wrote first: look again, then decide again."""


class KeyTaken(Conflict):
    """An unfinished job holds this idempotency key; `job_id` names it."""

    def __init__(self, message: str, *, job_id: str, key: str) -> None:
        super().__init__(f"{message} key={key} job_id={job_id}")
        self.job_id = job_id
        self.key = key


class IllegalTransition(JobEventsError):
    """The job's state does not allow what was tried; `allowed` names the events that it does allow."""

    def __init__(
        self,
        tried: str,
        *,
        job_id: str,
        state: str,
        allowed: tuple[str, ...],
        start: int = 0,
        current: int = 0,
        why: str = "",
    ) -> None:
        """Say what was tried of which state; with `why`, what was said to whom asked for it, in words."""
        of_start = f" of start={start} (current start={current})" if start else ""
        said = why or f"{tried}{of_start} is not possible"
        super().__init__(f"{said} job_id={job_id} state={state}" + ("" if why else f" allowed={', '.join(allowed)}"))
        self.tried = tried
        self.job_id = job_id
        self.state = state
        self.allowed = allowed
        self.start = start
        self.current = current


class Refused(JobEventsError):
    """An attempt was not granted; the handler must not run."""

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(f"{message} job_id={job_id}")
        self.job_id = job_id


class AlreadySucceeded(Refused):
    """The job has succeeded: acknowledge the delivery."""


class AlreadyCanceled(Refused):
    """The job was canceled or deleted: acknowledge the delivery."""


class AlreadyRunning(Refused):
    """A living worker runs the job: have it delivered again later."""


class Busy(Refused):
    """As many jobs run as a limit lets run at once: have it delivered again later. `column` and `value` name the limit."""

    def __init__(self, *, job_id: str, column: str, value: str, most: int) -> None:
        super().__init__(f"as many jobs run as may at once {column}={value} most={most}", job_id=job_id)
        self.column = column
        self.value = value


class QueueClosed(JobEventsError):
    """The queue was closed while waiting on it."""


class HandlerSignal(JobEventsError):
    """Raised by a handler, or into it, to say how its attempt ends."""


class Canceled(HandlerSignal):
    """Somebody asked for the job to be canceled; let it pass through the handler."""


class Abandon(HandlerSignal):
    """Fail the job at once, without another try."""


class Snooze(HandlerSignal):
    """Put the job back and start it again after `delay`; this try is not counted."""

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        self.reason = reason
        super().__init__(f"snoozed for {self.delay.total_seconds():g} s" + (f": {reason}" if reason else ""))
