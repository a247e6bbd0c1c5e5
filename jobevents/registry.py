"""The registry: which kinds of jobs there are, what does each, and by what rules.

registry = Registry()

@registry.job("settlement", max_attempts=5, timeout=60, params=Settlement)
def settle(ctx: JobContext[Settlement]) -> dict[str, int]: ...
"""

import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from jobevents import boundary
from jobevents.errors import Conflict, InvalidValue, Misconfigured
from jobevents.retries import Exponential
from jobevents.runlog import LogPolicy
from jobevents.schedules import Schedule, parse

if TYPE_CHECKING:
    from jobevents.commands import Submission

OnBusy = Literal["enqueue", "skip", "replace"]
Backoff = Callable[[int, str], float]
"""(number of the next try, the job's id) -> seconds before it: pure."""

# behaviour M4
TIMEOUT_S: Final = 300.0
STOP_GRACE_S: Final = 30.0
RETAIN: Final = timedelta(days=30)
RETAIN_LOGS: Final = timedelta(days=7)

H = TypeVar("H", bound=Callable[..., Any])  # Any: a handler returns its result, any JSON value, or an awaitable of it

_AT_PATH = re.compile(r" - at `(.+)`$")

logger = logging.getLogger(__name__)


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of job: its handler and its rules."""

    name: str  # what `submit` names
    handler: Callable[..., Any]  # called with a JobContext; Any as above
    queue: str = "default"  # which queue hands it out
    max_attempts: int = 1  # tries before it stays failed
    backoff: Backoff = Exponential()  # how long it waits before the next
    timeout_s: float | None = TIMEOUT_S  # how long a try may take; None: as long as it likes
    stop_grace_s: float = STOP_GRACE_S  # how long it may go on once it was asked to stop
    max_concurrent: int = 0  # running at once, in all processes on the log; 0: any number
    on_busy: OnBusy = "enqueue"  # when so many run: wait, be skipped, or take their place
    schedule: Schedule | None = None  # when it is submitted by itself
    schedule_text: str = ""  # the same, as it was written
    params: type[msgspec.Struct] | None = None  # what its params are decoded into; None: as the JSON they are
    retain: timedelta = RETAIN  # how long finished runs are kept at least
    retain_logs: timedelta = RETAIN_LOGS  # how long log lines are
    logs: LogPolicy | None = None  # whether the handler's `logging` records are kept; None: as the runner says
    description: str = ""  # for people
    replayable: bool = True  # whether a finished run may be run again as a new one

    @property
    def is_async(self) -> bool:
        """Tell whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(
            getattr(self.handler, "__call__", None)  # noqa: B004  # an object whose call is one
        )

    def decode(self, params: Any) -> Any:
        """Return the params as the handler gets them; none given are an empty object to a Struct.

        Raises:
            InvalidValue: they do not fit the Struct; `path` says where.
        """
        if self.params is None:
            return params
        try:
            return msgspec.convert({} if params is None else msgspec.to_builtins(params), self.params)
        except (msgspec.ValidationError, TypeError, RecursionError) as error:
            found = _AT_PATH.search(str(error))
            what = _AT_PATH.sub("", str(error))
            raise InvalidValue(
                f"params do not fit {self.params.__name__} job={self.name}: {what}", path=found[1] if found else ""
            ) from error

    def retry_in(self, attempt: int, job_id: str) -> float:
        """Return the seconds to wait after try `attempt` has failed; a backoff that fails itself is replaced by the default."""
        try:
            wait_s = float(self.backoff(attempt + 1, job_id))
            if math.isfinite(wait_s) and wait_s >= 0:
                return wait_s
            logger.warning(
                "a backoff gave no number of seconds, the usual wait is taken job=%s attempt=%d seconds=%s",
                self.name,
                attempt + 1,
                wait_s,
            )
        except Exception:  # the user's code: what it is about, a failed try, must be recorded
            logger.warning(
                "a backoff raised an error, the usual wait is taken job=%s attempt=%d",
                self.name,
                attempt + 1,
                exc_info=True,
            )
        return Exponential()(attempt + 1)


class Registry:
    """The kinds of jobs that a program knows. Filled while it is imported; read by threads afterwards."""

    def __init__(self) -> None:
        self._definitions: dict[str, JobDefinition] = {}

    def job(
        self,
        name: str,
        *,
        queue: str = "default",
        max_attempts: int = 1,
        backoff: Backoff | None = None,
        timeout: timedelta | float | None = TIMEOUT_S,
        stop_grace: timedelta | float = STOP_GRACE_S,
        max_concurrent: int = 0,
        on_busy: OnBusy = "enqueue",
        schedule: str | Schedule | None = None,
        params: type[msgspec.Struct] | None = None,
        retain: timedelta | float = RETAIN,
        retain_logs: timedelta | float = RETAIN_LOGS,
        logs: LogPolicy | None = None,
        description: str = "",
        replayable: bool = True,
    ) -> Callable[[H], H]:
        """Register the decorated function, `def` or `async def`, as the handler of a kind of job; it stays as it is.

        Args:
            name: what `submit` names; one handler each.
            queue: which queue hands it out, where `submit` does not say.
            max_attempts: tries before it stays failed, where `submit` does not say.
            backoff: (number of the next try, job id) -> seconds before it; default `Exponential()`: 1 s, doubled, at most 300 s.
            timeout: seconds that a try may take before it is asked to stop and has failed; None for no limit.
            stop_grace: seconds that it may go on once asked to stop, by a cancel or its timeout; then it is given up.
            max_concurrent: how many may run at once in all processes on the log; 0 for any number.
            on_busy: when so many run: "enqueue" tries again 2 s later, "skip" ends the run as skipped, "replace" has the
                running ones canceled and comes after them.
            schedule: when it is submitted by itself: `schedules.parse` has the forms.
            params: a Struct to decode params into, by `submit` to check them and for the handler.
            retain: how long finished runs are kept at least, seconds or a timedelta; `retain_logs` for their log lines.
            logs: whether `logging` records of the handler are kept: "off", "failure" (when it failed) or "always".
            description: for people; the first line of the function's docstring by default.
            replayable: whether a finished run may be run again as a new one.

        Raises:
            Misconfigured: the name is taken, or a value cannot work.
        """
        if name in self._definitions:
            raise Misconfigured(f"a job of this name is registered already name={name!r}; give each its own")
        given = {
            "name": _name("name", name),
            "queue": _name("queue", queue),
            "max_attempts": _whole("max_attempts", max_attempts, 1),
            "timeout_s": None if timeout is None else _positive("timeout", timeout),
            "stop_grace_s": _positive("stop_grace", stop_grace, or_zero=True),
            "max_concurrent": _whole("max_concurrent", max_concurrent, 0),
            "on_busy": _one_of("on_busy", on_busy, ("enqueue", "skip", "replace")),
            "schedule": parse(schedule) if isinstance(schedule, str) else schedule,
            "schedule_text": schedule if isinstance(schedule, str) else type(schedule).__name__ if schedule else "",
            "params": params,
            "retain": timedelta(seconds=_positive("retain", retain, or_zero=True)),
            "retain_logs": timedelta(seconds=_positive("retain_logs", retain_logs, or_zero=True)),
            "logs": _one_of("logs", logs, (None, "off", "failure", "always")),
            "replayable": replayable,
            **({"backoff": backoff} if backoff else {}),
        }

        def register(handler: H) -> H:
            lines = (handler.__doc__ or "").strip().splitlines()
            told = description or (lines[0] if lines else "")
            self._definitions[name] = JobDefinition(handler=handler, description=told, **given)
            return handler

        return register

    def get(self, name: str) -> JobDefinition | None:
        """Return the definition of a kind of job; None when it is not registered."""
        return self._definitions.get(name)

    def __iter__(self) -> Iterator[JobDefinition]:
        return iter(self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)

    def complete(self, wanted: "Submission") -> "Submission":
        """Return a submission with its job's own values where it names none, its params checked; unknown kinds pass as they are.

        Raises:
            InvalidValue: the params do not fit the job's Struct.
        """
        definition = self._definitions.get(wanted.name)
        if definition is None:
            return wanted
        definition.decode(wanted.params)
        return msgspec.structs.replace(
            wanted,
            queue=definition.queue if wanted.queue is None else wanted.queue,
            max_attempts=definition.max_attempts if wanted.max_attempts is None else wanted.max_attempts,
        )

    def check_replayable(self, name: str) -> None:
        """Refuse to have a finished run of a kind of job run again as a new one, if its definition says so (behaviour M11).

        Raises:
            Conflict: it does.
        """
        definition = self._definitions.get(name)
        if definition is not None and not definition.replayable:
            raise Conflict(f"runs of this job are not to be run again as new ones name={name}; rerun the same one")


def _name(what: str, text: str) -> str:
    try:
        return boundary.check_name(what, text)
    except InvalidValue as error:
        raise Misconfigured(str(error)) from error


def _whole(what: str, value: int, low: int) -> int:
    if type(value) is not int or not low <= value < 2**15:
        raise Misconfigured(f"{what} must be a whole number from {low} to {2**15 - 1} value={value!r:.40}")
    return value


def _positive(what: str, value: timedelta | float, *, or_zero: bool = False) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf or not (seconds or or_zero):
        raise Misconfigured(
            f"{what} must be a number of seconds {'of 0 or more' if or_zero else 'above 0'} value={value!r:.40}"
        )
    return float(seconds)


def _one_of(what: str, value: str | None, allowed: tuple[str | None, ...]) -> Any:  # Any: one of the literals
    if value not in allowed:
        raise Misconfigured(
            f"{what} must be one of {', '.join(str(one) for one in allowed if one)} value={value!r:.40}"
        )
    return value
