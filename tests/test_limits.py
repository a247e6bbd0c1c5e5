"""Limits of how many jobs run at once, as attempts meet them; that they are exact is the log's contract."""

from datetime import timedelta

import pytest

from jobevents.errors import AlreadyCanceled, Busy, InvalidValue, Misconfigured, Refused
from jobevents.events import JobQueued
from jobevents.jobs import Jobs
from jobevents.limits import Limit
from tests.clock import Clock

ONE_RENDER = Limit("job_name", "render", 1)


def test_an_attempt_beyond_the_limit_is_busy(jobs: Jobs) -> None:
    """The job stays queued, no try is counted, and nothing is written of it."""
    running, waiting = jobs.submit("render"), jobs.submit("render")

    with jobs.attempt(running, limits=[ONE_RENDER]), pytest.raises(Busy, match="job_name=render"):
        jobs.attempt(waiting, limits=[ONE_RENDER]).__enter__()

    assert [JobQueued] == [type(event) for event in jobs.history(waiting)]


def test_a_place_is_free_after_the_end(jobs: Jobs) -> None:
    """However an attempt ends, the next one may start."""
    first, second = jobs.submit("render"), jobs.submit("render")

    with pytest.raises(ZeroDivisionError), jobs.attempt(first, limits=[ONE_RENDER]):
        raise ZeroDivisionError
    with jobs.attempt(second, limits=[ONE_RENDER]) as attempt:
        assert attempt.granted


def test_a_canceled_job_needs_no_place(jobs: Jobs) -> None:
    """A job that will not run is canceled, whether there is a place or not."""
    with jobs.attempt(jobs.submit("render")):
        waiting = jobs.submit("render")
        with jobs.attempt(waiting) as attempt:
            jobs.cancel(waiting)
            attempt.give_back()

        with pytest.raises(AlreadyCanceled):
            jobs.attempt(waiting, limits=[ONE_RENDER]).__enter__()


def test_a_job_of_the_past_is_not_due(jobs: Jobs, clock: Clock) -> None:
    """M17: what was handed out before the job failed cannot have it skip its backoff."""
    job_id = jobs.submit("render", delay=timedelta(seconds=10))

    with pytest.raises(Refused, match="not due"):
        jobs.attempt(job_id, if_due=True).__enter__()
    clock.move(10)
    with jobs.attempt(job_id, if_due=True) as attempt:
        assert attempt.granted


def test_a_limit_lets_something_run() -> None:
    """Zero is no limit but a pause."""
    with pytest.raises(Misconfigured, match="pause"):
        Limit("queue", "slow", 0)


@pytest.mark.parametrize("value", ["", "a\0b"])
def test_a_limit_is_of_a_name(value: str) -> None:
    """A name that no job has is refused."""
    with pytest.raises(InvalidValue):
        Limit("queue", value, 1)
