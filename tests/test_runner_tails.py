"""What a run keeps of its end: the last lines with its error, whatever else is kept, and that it is all done."""

import asyncio
import logging
from typing import Any

import pytest

from jobevents import connect
from jobevents.boundary import ERROR_LIMIT
from jobevents.events import JobFailed
from jobevents.jobs import Jobs
from jobevents.runlog import TAIL_LINES
from jobevents.store import RunError
from tests.runners import Runners

STUDIO = logging.getLogger("studio.tail")


def tail_of(jobs: Jobs, job_id: str) -> list[str]:
    """Return the lines beside the error of a run."""
    error = jobs.store.get(job_id).error
    assert error is not None
    return error.tail


@pytest.mark.parametrize("policy", ["off", "failure", "always"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_error_has_the_last_lines_beside_it(runners: Runners, policy: Any, kind: str) -> None:
    """Its own lines and those of `logging`, in order, also where they are not kept otherwise (behaviour M13)."""

    def render(ctx: Any) -> None:
        ctx.log("began")
        STUDIO.warning("no %s", "tape")
        STUDIO.debug("not even made")
        raise OSError("no disk")

    async def render_later(ctx: Any) -> None:
        await asyncio.sleep(0)
        render(ctx)

    runners.registry.job("render", logs=policy)(render if kind == "def" else render_later)
    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    error = runners.jobs.store.get(job_id).error
    assert RunError(code="OSError", message="no disk", tail=["info: began", "warn: no tape"]) == error
    [failed] = [event for event in runners.jobs.history(job_id) if isinstance(event, JobFailed)]
    assert ("info: began", "warn: no tape") == failed.tail


def test_a_record_is_in_the_tail_once(runners: Runners) -> None:
    """Also where the handler captures it itself, while the runner looks too."""

    @runners.registry.job("render", logs="always")
    def render(ctx: Any) -> None:
        with ctx.capture("studio"):
            STUDIO.warning("once")
        raise OSError

    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    assert ["warn: once"] == tail_of(runners.jobs, job_id)
    assert ["once"] == [line.message for line in runners.jobs.run_logs.logs(job_id)]


def test_the_tail_is_bounded(runners: Runners) -> None:
    """So many of the last lines, each cut, and no more in all than an error may be long."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        for n in range(2000):
            ctx.log(f"line {n}" + "." * (5000 if n == 1999 else 400))
        raise OSError

    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    tail = tail_of(runners.jobs, job_id)
    assert 10 < len(tail) < TAIL_LINES
    assert [f"info: line {n}" for n in range(2000 - len(tail), 2000)] == [line.split(".")[0] for line in tail]
    assert sum(len(line.encode()) for line in tail) <= ERROR_LIMIT
    assert len(tail[-1]) < 1100


def test_the_tail_is_scrubbed() -> None:
    """As every text of a handler's is before it is kept."""
    with connect("memory://", scrub=lambda value: str(value).replace("secret", "…")) as jobs:
        runners = Runners(jobs)

        @runners.registry.job("render")
        def render(ctx: Any) -> None:
            ctx.log("a secret")
            raise OSError

        runners.start()
        job_id = jobs.submit("render")
        runners.ended(job_id)
        runners.stop()

        assert ["info: a …"] == tail_of(jobs, job_id)


def test_the_next_try_begins_with_no_tail(runners: Runners) -> None:
    """A run that succeeded at last has no error, and no lines beside it."""

    @runners.registry.job("render", max_attempts=2, backoff=lambda *_: 0.0)
    def render(ctx: Any) -> None:
        ctx.log("trying")
        if ctx.attempt == 1:
            raise OSError

    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    assert runners.jobs.store.get(job_id).error is None
    [failed] = [event for event in runners.jobs.history(job_id) if isinstance(event, JobFailed)]
    assert ("info: trying",) == failed.tail


@pytest.mark.parametrize("said", [None, 0, 40])
def test_a_run_that_succeeded_is_all_done(runners: Runners, said: int | None) -> None:
    """Progress is 100 if nothing else was said, or none (behaviour M7); what was said stays."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        if said is not None:
            ctx.progress(said)

    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    assert (said or 100) == runners.jobs.store.get(job_id).progress


def test_a_run_that_failed_is_not(runners: Runners) -> None:
    """Nothing is said of how far it came that it did not say itself."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        raise OSError

    runners.start()
    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    assert 0 == runners.jobs.store.get(job_id).progress


def test_a_job_skipped_without_a_reason_says_that_it_was(jobs: Jobs) -> None:
    """The code alone tells programs (behaviour M8)."""
    job_id = jobs.submit("render")

    jobs.skip(job_id)

    assert RunError(code="SKIPPED", message="") == jobs.store.get(job_id).error
