"""The methods of Jobs for asyncio and trio: each call waits in a thread, so that the event loop never blocks."""

import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from anyio import CancelScope, to_thread

from jobevents.attempt import Attempt

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

P = ParamSpec("P")
R = TypeVar("R")


def awaitable(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return `call` as a coroutine function that waits for it in a thread."""

    @wraps(call)
    async def waits(*args: P.args, **kwargs: P.kwargs) -> R:
        return await to_thread.run_sync(partial(call, *args, **kwargs))

    return waits


class AioJobs:
    """Jobs, awaitable: the methods of Jobs under the same names and with the same arguments."""

    def __init__(self, jobs: "Jobs") -> None:
        self._jobs = jobs
        self.submit = awaitable(jobs.submit)
        self.submit_or_find = awaitable(jobs.submit_or_find)
        self.submit_many = awaitable(jobs.submit_many)
        self.cancel = awaitable(jobs.cancel)
        self.retry = awaitable(jobs.retry)
        self.rerun = awaitable(jobs.rerun)
        self.delete = awaitable(jobs.delete)
        self.get = awaitable(jobs.get)
        self.get_as = awaitable(jobs.get_as)
        self.job = awaitable(jobs.job)
        self.history = awaitable(jobs.history)
        self.status_at = awaitable(jobs.status_at)
        self.job_at = awaitable(jobs.job_at)
        self.pause = awaitable(jobs.pause)
        self.resume = awaitable(jobs.resume)
        self.paused = awaitable(jobs.paused)
        self.reap = awaitable(jobs.reap)
        self.workers = awaitable(jobs.workers)
        self.close = awaitable(jobs.close)

    def attempt(self, job_id: str, **options: Any) -> "AioAttempt":  # Any: the options of Jobs.attempt
        """Return the guarded attempt at a job, to be used in an `async with` block."""
        return AioAttempt(self._jobs.attempt(job_id, **options))


class AioAttempt:
    """An Attempt, awaitable: `await attempt.progress(40)`, `await attempt.canceled`."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._entered = False
        self._left = False
        self.job_id = attempt.job_id
        self.progress = awaitable(attempt.progress)
        self.annotate = awaitable(attempt.annotate)
        self.log = awaitable(attempt.log)
        self.result = awaitable(attempt.result)
        self.check = awaitable(attempt.check)

    @property
    def params(self) -> Any:
        """What the job was submitted with."""
        return self._attempt.params

    @property
    def number(self) -> int:
        """Which try this is, from 1; 0 when it runs ungranted."""
        return self._attempt.number

    @property
    def canceled(self) -> Awaitable[bool]:
        """Tell whether the work should stop, as `await attempt.canceled`."""
        return awaitable(lambda: self._attempt.canceled)()

    async def __aenter__(self) -> Self:
        """Ask the guard; a task cancelled meanwhile leaves no granted attempt behind.

        Raises: as `Attempt.__enter__`.
        """
        try:
            await awaitable(self._enter)()
        except BaseException:
            with CancelScope(shield=True):
                await awaitable(self._leave)(Attempt.give_back)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the outcome, also when the task is being cancelled."""
        with CancelScope(shield=True):
            await awaitable(self._leave)(lambda attempt: attempt.__exit__(kind, error, trace))

    def _enter(self) -> None:
        with self._lock:
            if self._left:  # cancelled before the thread began
                return
            self._attempt.__enter__()
            self._entered = True

    def _leave(self, conclude: Callable[[Attempt], None]) -> None:
        """Conclude what was entered, once; waits for an entering that goes on in its thread."""
        with self._lock:
            entered, self._entered, self._left = self._entered, False, True
        if entered:
            conclude(self._attempt)
