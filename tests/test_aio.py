"""Jobs.aio: the same outcomes as without it, an event loop that is never held up, and cancelled tasks that leave no start."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anyio import to_thread

from jobevents.errors import AlreadySucceeded, Canceled, Snooze
from jobevents.jobs import Jobs
from tests.clock import Clock
from tests.failinglog import FailingRecorder, failing_jobs
from tests.jobstates import bring, other_jobs


def kinds(jobs: Jobs, job_id: str) -> list[str]:
    """Return the types of a job's events, in order."""
    return [event.type for event in jobs.history(job_id)]


def test_a_job_is_worked_at_as_without_a_loop(jobs: Jobs) -> None:
    """Submit, attempt, all that a handler may call, and reading it back."""

    async def work() -> str:
        job_id = await jobs.aio.submit("render", {"song": 7})
        async with jobs.aio.attempt(job_id) as attempt:
            assert ({"song": 7}, 1, False) == (attempt.params, attempt.number, await attempt.canceled)
            await attempt.progress(40, "mixing")
            await attempt.annotate(title="Song 7", output_dir="gs://b/o")
            await attempt.log("line")
            await attempt.check()
            await attempt.result({"seconds": 181})
        assert "succeeded" == (await jobs.aio.get(job_id)).state
        assert 5 == len(await jobs.aio.history(job_id))
        return job_id

    job_id = asyncio.run(work())

    job = jobs.job(job_id)
    assert (40, "Song 7", {"seconds": 181}) == (job.progress, job.title, job.result)
    assert ["line"] == [line.message for line in jobs.run_logs.logs(job_id)]


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (ValueError("boom"), "failed"),
        (Canceled(), "canceled"),
        (Snooze(60), "queued"),
        (ExceptionGroup("", [Canceled()]), "canceled"),
        (asyncio.CancelledError(), "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_outcome_follows_from_what_leaves_the_block(jobs: Jobs, raised: BaseException, state: str) -> None:
    """The same table as without a loop; the exception goes on to the caller."""
    job_id = jobs.submit("render")

    async def work() -> None:
        async with jobs.aio.attempt(job_id):
            raise raised

    with pytest.raises(type(raised)):
        asyncio.run(work())

    assert state == jobs.get(job_id).state


def test_a_refusal_is_raised_where_the_block_would_begin(jobs: Jobs) -> None:
    """The handler does not run."""
    job_id = bring(jobs, "succeeded")

    async def work() -> None:
        async with jobs.aio.attempt(job_id):
            pytest.fail("the handler ran")

    with pytest.raises(AlreadySucceeded):
        asyncio.run(work())


def test_a_task_group_that_is_told_to_stop_is_canceled(jobs: Jobs) -> None:
    """`check` in a task of a group reaches the attempt as a group of Canceled: that is a cancel all the same."""
    job_id = jobs.submit("render")

    async def work() -> None:
        async with jobs.aio.attempt(job_id) as attempt, asyncio.TaskGroup() as tasks:
            other_jobs(jobs).cancel(job_id)
            tasks.create_task(attempt.check())

    with pytest.raises(BaseExceptionGroup):
        asyncio.run(work())

    assert "canceled" == jobs.get(job_id).state


# The loop


async def in_attempt(jobs: Jobs, call: Callable[[Any], Awaitable[Any]]) -> None:
    """Await a call of an attempt that was entered."""
    async with jobs.aio.attempt("running") as attempt:
        await call(attempt)


CALLS: dict[str, Callable[[Jobs], Awaitable[Any]]] = {
    "submit": lambda jobs: jobs.aio.submit("render"),
    "submit_many": lambda jobs: jobs.aio.submit_many([{"name": "render"}]),
    "cancel": lambda jobs: jobs.aio.cancel("queued"),
    "rerun": lambda jobs: jobs.aio.rerun("failed"),
    "retry": lambda jobs: jobs.aio.retry("failed"),
    "delete": lambda jobs: jobs.aio.delete("failed"),
    "get": lambda jobs: jobs.aio.get("queued"),
    "job": lambda jobs: jobs.aio.job("queued"),
    "history": lambda jobs: jobs.aio.history("queued"),
    "enter and leave": lambda jobs: in_attempt(jobs, lambda _: asyncio.sleep(0)),
    "progress": lambda jobs: in_attempt(jobs, lambda attempt: attempt.progress(1)),
    "annotate": lambda jobs: in_attempt(jobs, lambda attempt: attempt.annotate(title="T")),
    "result": lambda jobs: in_attempt(jobs, lambda attempt: attempt.result(1)),
    "canceled": lambda jobs: in_attempt(jobs, lambda attempt: attempt.canceled),
    "check": lambda jobs: in_attempt(jobs, lambda attempt: attempt.check()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_call_holds_up_the_event_loop(clock: Clock, call: Callable[[Jobs], Awaitable[Any]]) -> None:
    """While the log stalls another task goes on ticking: it is that task which ends the stall."""
    jobs, recorder = failing_jobs(clock)
    for life in ("queued", "failed"):
        bring(jobs, life, id=life)

    async def watch() -> int:
        with recorder.stalling() as release:
            task = asyncio.ensure_future(call(jobs))
            ticks = 0
            while not recorder.reached.is_set() or ticks < 100:
                await asyncio.sleep(0)
                ticks += 1
            release()
            await task
        return ticks

    with jobs:
        assert 100 <= asyncio.run(asyncio.wait_for(watch(), 15))


# Cancelled tasks


def test_a_task_cancelled_while_it_enters_leaves_no_start(clock: Clock) -> None:
    """The log was slow and the task is gone before the grant came: the job waits again, no try used."""
    jobs, recorder = failing_jobs(clock)
    job_id = jobs.submit("render")

    async def work() -> None:
        async with jobs.aio.attempt(job_id):
            pytest.fail("the handler ran")

    async def cancel() -> None:
        with recorder.stalling() as release:
            task = asyncio.create_task(work())
            while not recorder.reached.is_set():
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            release()
            with pytest.raises(asyncio.CancelledError):
                await task

    with jobs:
        asyncio.run(cancel())

        assert ["JobQueued", "JobStarted", "JobRequeued"] == kinds(jobs, job_id)
        assert ("queued", 0, "shutdown") == (
            jobs.get(job_id).state,
            jobs.job(job_id).tries,
            jobs.history(job_id)[-1].cause,
        )


def test_a_task_cancelled_before_it_entered_leaves_nothing(clock: Clock) -> None:
    """All threads are busy, and the task is gone before one is free: the guard is never asked."""
    jobs, recorder = failing_jobs(clock)
    job_id = jobs.submit("render")

    async def work() -> None:
        async with jobs.aio.attempt(job_id):
            pytest.fail("the handler ran")

    async def cancel(recorder: FailingRecorder) -> None:
        to_thread.current_default_thread_limiter().total_tokens = 1
        with recorder.stalling() as release:
            busy = asyncio.create_task(jobs.aio.get(job_id))
            while not recorder.reached.is_set():
                await asyncio.sleep(0)
            task = asyncio.create_task(work())
            for _ in range(10):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            release()
            await busy
            with pytest.raises(asyncio.CancelledError):
                await task

    with jobs:
        asyncio.run(cancel(recorder))

        assert ["JobQueued"] == kinds(jobs, job_id)


def test_a_task_cancelled_at_work_has_its_end_recorded(jobs: Jobs) -> None:
    """The cancellation is what the attempt came to; the loop ends only when it is written."""
    job_id = jobs.submit("render")

    async def work() -> None:
        async with jobs.aio.attempt(job_id):
            await asyncio.Event().wait()

    async def cancel() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work(), 0.05)

    asyncio.run(cancel())

    assert ("failed", "CancelledError") == (jobs.get(job_id).state, jobs.job(job_id).error_kind)
