"""Runners in tests: started with the test's jobs, stopped at its end, and waited for by what they write."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobevents.events import Event
from jobevents.job import Job
from jobevents.jobs import Jobs
from jobevents.queue import JobQueue
from jobevents.registry import Registry
from jobevents.runner import JobRunner

PATIENCE_S = 20.0  # how long a test waits for what must come


class Runners:
    """Runners over one log, each with the test's registry unless it is given another."""

    def __init__(self, jobs: Jobs, queue: JobQueue | None = None) -> None:
        self.jobs = jobs
        self.queue = jobs.queue if queue is None else queue
        self.registry = Registry()
        self._started: list[JobRunner] = []
        self._changed = threading.Condition()
        jobs.observe(self._notice)

    def _notice(self, job: Job, events: Sequence[Event]) -> None:
        with self._changed:
            self._changed.notify_all()

    def make(self, jobs: Jobs | None = None, registry: Registry | None = None, **options: Any) -> JobRunner:
        """Make a runner."""
        shared = None if self.queue.shares_store else self.queue
        given = {"queue": shared, "grace_s": 5.0, "stop_grace_s": 0.2, **options}
        runner = JobRunner(jobs or self.jobs, registry or self.registry, **given)
        self._started.append(runner)
        return runner

    def start(self, jobs: Jobs | None = None, registry: Registry | None = None, **options: Any) -> JobRunner:
        """Make a runner and start it."""
        runner = self.make(jobs, registry, **options)
        runner.start()
        return runner

    def wait(self, until: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is so; looked at after each event, and twenty times a second for what is not written."""
        end = time.monotonic() + patience_s
        with self._changed:
            while not until():
                assert time.monotonic() < end, "what was waited for did not come"
                self._changed.wait(0.05)

    def ended(self, *job_ids: str) -> list[Job]:
        """Wait until jobs are final, and return them."""
        self.wait(lambda: all(self.jobs.job(job_id).is_final() for job_id in job_ids))
        return [self.jobs.job(job_id) for job_id in job_ids]

    def in_state(self, job_id: str, state: str) -> Job:
        """Wait until a job is in a state, and return it."""
        self.wait(lambda: self.jobs.job(job_id).state == state)
        return self.jobs.job(job_id)

    def stop(self) -> None:
        """Stop all runners at once, without grace."""
        for runner in self._started:
            runner.stop(grace_s=0)


class Gate:
    """A handler that waits at a gate, and tells that it is there: `entered` and `opened`."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.calls = 0

    def __call__(self, ctx: Any) -> str:
        """Wait until the gate is opened, whoever asks it to stop."""
        self.calls += 1
        self.entered.release()
        assert self.opened.wait(PATIENCE_S)
        return "through"

    def wait_until_entered(self, times: int = 1) -> None:
        """Wait until the handler was called."""
        for _ in range(times):
            assert self.entered.acquire(timeout=PATIENCE_S)


def obedient(gate: Gate) -> Callable[[Any], None]:
    """Return a handler that asks whether it should stop, all the time, once it is through `gate.entered`."""

    def handler(ctx: Any) -> None:
        gate.calls += 1
        gate.entered.release()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            ctx.check()
            gate.opened.wait(0.01)

    return handler
