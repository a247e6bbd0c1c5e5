"""What is shipped for tests of jobs: drain, assert_submitted, and given, when, then."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from jobevents.errors import IllegalTransition, Snooze
from jobevents.events import JobCanceled, JobFailed, JobQueued, JobRequeued, JobStarted, JobSucceeded
from jobevents.jobs import Jobs
from jobevents.registry import Registry
from jobevents.testing.clock import START, Clock
from jobevents.testing.running import assert_submitted, drain, given
from jobevents.wiring import connect

queued = partial(JobQueued, name="render")


@pytest.fixture
def jobs(clock: Clock) -> Iterator[Jobs]:
    """Jobs in memory, by the standing clock."""
    with connect("memory://", clock=clock) as opened:
        yield opened


@pytest.fixture
def registry() -> Registry:
    """A registry without jobs."""
    return Registry()


def test_what_is_due_is_run_with_all_that_it_submits(jobs: Jobs, registry: Registry) -> None:
    """In the calling thread, in the order in which a queue hands it out."""
    ran: list[str] = []

    @registry.job("render")
    def render(ctx: Any) -> None:
        ran.append(ctx.params)
        if ctx.params != "mix":
            jobs.submit("render", "mix", priority=-1)

    jobs.submit("render", "low")
    jobs.submit("render", "high", priority=1)

    done = drain(jobs, registry)

    assert ["high", "low", "mix", "mix"] == ran
    assert {"succeeded"} == {job.state for job in done}


def test_a_coroutine_is_run(jobs: Jobs, registry: Registry) -> None:
    """Its context's methods may be awaited."""

    @registry.job("render")
    async def render(ctx: Any) -> int:
        await ctx.progress(50)
        return 7

    jobs.submit("render")

    [job] = drain(jobs, registry)

    assert ("succeeded", 7, 50) == (job.state, job.result, job.progress)


def test_what_is_due_later_waits_unless_the_clock_is_moved(jobs: Jobs, registry: Registry, clock: Clock) -> None:
    """With the clock, retries and delays are run at their time, and no time is spent."""

    @registry.job("render", max_attempts=3)
    def render(ctx: Any) -> None:
        if ctx.attempt < 3:
            raise OSError("no disk")

    jobs.use(registry)
    jobs.submit("render", delay=3600)

    assert [] == drain(jobs, registry)
    states = [job.state for job in drain(jobs, registry, clock=clock)]

    assert ["queued", "queued", "succeeded"] == states
    assert 3600 + 1 + 2 == (clock.now - START).total_seconds()


def test_a_drain_without_end_is_ended(jobs: Jobs, registry: Registry) -> None:
    """A job that always submits another is told of."""
    registry.job("render")(lambda ctx: jobs.submit("render"))
    jobs.submit("render")

    with pytest.raises(AssertionError, match="10 runs and no end; the next one is render"):
        drain(jobs, registry, most=10)


def test_a_snoozed_job_is_run_at_its_time(jobs: Jobs, registry: Registry, clock: Clock) -> None:
    """The try that it snoozed in does not count."""

    @registry.job("render")
    def render(ctx: Any) -> None:
        if clock.now == START:
            raise Snooze(60)

    jobs.submit("render")

    done = drain(jobs, registry, clock=clock)

    assert [("queued", 0), ("succeeded", 1)] == [(job.state, job.tries) for job in done]


def test_what_was_submitted_is_found(jobs: Jobs) -> None:
    """By its kind, and by some of its params."""
    jobs.submit("render", {"song": 7, "loud": True})
    jobs.submit("render", {"song": 8})

    assert [{"song": 7, "loud": True}] == [run.params for run in assert_submitted(jobs, "render", {"song": 7})]
    assert 2 == len(assert_submitted(jobs, "render", times=2))
    assert [] == assert_submitted(jobs, "mix", times=0)


@pytest.mark.parametrize(
    ("name", "params", "times"), [("mix", None, None), ("render", {"song": 9}, None), ("render", None, 2)]
)
def test_what_was_not_submitted_is_told(jobs: Jobs, name: str, params: Any, times: int | None) -> None:
    """With all that was."""
    jobs.submit("render", {"song": 7})

    with pytest.raises(AssertionError, match=rf"{name}.*found [01], not .*(?s:.)*render {{'song': 7}}"):
        assert_submitted(jobs, name, params, times=times)


def test_a_history_is_stated_as_given_when_then() -> None:
    """The events of a command, by their types or with the fields that matter."""
    events = (
        given(queued, partial(JobStarted, attempt=1), partial(JobFailed, error="no disk", start=2))
        .when(lambda jobs, job_id: jobs.retry(job_id, actor="ana"))
        .then(partial(JobRequeued, cause="retry", actor="ana"))
    )

    assert [4] == [event.version for event in events]


def test_a_command_that_is_refused_is_stated_too() -> None:
    """Its error is returned, and nothing was appended."""
    done = given(queued, partial(JobStarted, attempt=1), partial(JobSucceeded, start=2))

    error = done.when(lambda jobs, job_id: jobs.retry(job_id)).raises(IllegalTransition)

    assert isinstance(error, IllegalTransition)
    with pytest.raises(IllegalTransition):
        done.when(lambda jobs, job_id: jobs.retry(job_id)).then()


@pytest.mark.parametrize(
    "expected", [(), (JobStarted,), (JobCanceled, JobCanceled), (partial(JobCanceled, reason="no"),)]
)
def test_what_did_not_follow_is_told(expected: Any) -> None:
    """Another number of events, another type, another field."""
    came = given(queued).when(lambda jobs, job_id: jobs.cancel(job_id, reason="yes"))

    with pytest.raises(AssertionError, match="JobCanceled"):
        came.then(*expected)


def test_no_history_is_given_that_cannot_be() -> None:
    """What is given is checked as what is done."""
    with pytest.raises(IllegalTransition):
        given(queued, partial(JobSucceeded, start=1))
