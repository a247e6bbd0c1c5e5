"""The end of an attempt and the start of the next in one transaction: neither is lost or told wrongly for the other's sake."""

from collections.abc import Iterator
from typing import Any

import pytest

from jobevents.attempt import Attempt
from jobevents.errors import AlreadySucceeded, Busy, Unavailable
from jobevents.jobs import Jobs
from jobevents.limits import Limit
from tests.clock import Clock
from tests.failinglog import FailingRecorder, failing_jobs
from tests.runners import Runners


@pytest.fixture
def failing(clock: Clock) -> Iterator[tuple[Jobs, FailingRecorder]]:
    """Jobs over a log that counts its appends and fails on command, and its recorder."""
    jobs, recorder = failing_jobs(clock)
    with jobs:
        yield jobs, recorder


def two(jobs: Jobs, **options: Any) -> tuple[Attempt, Attempt]:
    """Return an attempt that runs, and one of another job that is to follow it."""
    first, second = jobs.submit("render"), jobs.submit("render")
    return jobs.attempt(first).__enter__(), jobs.attempt(second, **options)


def kinds(jobs: Jobs, attempt: Attempt) -> list[str]:
    """Return the types of the events of an attempt's job."""
    return [event.type for event in jobs.history(attempt.job_id)]


def test_an_end_and_the_next_start_share_an_append(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Two events of two jobs, each job's state as if they had come one by one."""
    jobs, recorder = failing
    first, second = two(jobs)
    recorder.appends.clear()
    first.result(7)

    ending = first.end()
    second.enter(after=ending)

    assert [2] == recorder.appends
    assert ("succeeded", 7) == (jobs.get(first.job_id).state, jobs.job(first.job_id).result)
    assert "running" == jobs.get(second.job_id).state
    assert ending.record() is None
    assert [2] == recorder.appends, "an end is recorded once"


def test_an_end_is_recorded_when_the_next_is_refused(failing: tuple[Jobs, FailingRecorder]) -> None:
    """The guard refuses the job that was to follow."""
    jobs, _ = failing
    first, second = two(jobs)
    with jobs.attempt(second.job_id):
        pass

    with pytest.raises(AlreadySucceeded):
        second.enter(after=first.end())

    assert "succeeded" == jobs.get(first.job_id).state


def test_the_next_starts_when_the_end_is_refused(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Another start has the job by now: the late outcome is told, and does not hold up the next."""
    jobs, _ = failing
    first, second = two(jobs)
    taken = first.end_given_back()
    taken.record()
    other = jobs.attempt(first.job_id).__enter__()

    second.enter(after=first.end())

    assert "TransitionRefused" == kinds(jobs, first)[-1]
    assert other.start == jobs.job(first.job_id).start
    assert "running" == jobs.get(second.job_id).state


def test_an_end_makes_room_for_the_next(failing: tuple[Jobs, FailingRecorder]) -> None:
    """A limit of one is no reason to refuse what follows; for a third there is no room."""
    jobs, _ = failing
    only = [Limit("job_name", "render", 1)]
    first, second = two(jobs, limits=only)

    second.enter(after=first.end())

    assert ("succeeded", "running") == (jobs.get(first.job_id).state, jobs.get(second.job_id).state)
    with pytest.raises(Busy):
        jobs.attempt(jobs.submit("render"), limits=only).enter()


def test_a_lost_reply_is_found_out(failing: tuple[Jobs, FailingRecorder]) -> None:
    """What is in the log after all is neither written again nor refused: both go on."""
    jobs, recorder = failing
    first, second = two(jobs)
    ending = first.end()

    with recorder.losing_replies(1):
        second.enter(after=ending)

    assert ending.record() is None
    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, first)
    assert ["JobQueued", "JobStarted"] == kinds(jobs, second)
    assert second.end().record() is None
    assert "succeeded" == jobs.get(second.job_id).state


def test_a_log_that_is_away_fails_both(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Each by itself: the end is warned of and counted, the start refused, and nothing is written."""
    jobs, recorder = failing
    first, second = two(jobs)
    ending = first.end()

    with recorder.refusing(), pytest.raises(Unavailable):
        second.enter(after=ending)

    assert isinstance(ending.error, Unavailable)
    assert 1 == jobs.counts.snapshot()["records_failed"]
    assert [["JobQueued", "JobStarted"], ["JobQueued"]] == [kinds(jobs, first), kinds(jobs, second)]
    assert [] == jobs.presence._life.names[""].running


def test_the_same_job_again_is_no_next(failing: tuple[Jobs, FailingRecorder]) -> None:
    """A queue that hands out a run twice: its end goes first, and then refuses it."""
    jobs, _ = failing
    first, _ = two(jobs)

    with pytest.raises(AlreadySucceeded):
        jobs.attempt(first.job_id).enter(after=first.end())

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, first)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_runner_ends_one_run_with_the_start_of_the_next(workers: int, failing: tuple[Jobs, FailingRecorder]) -> None:
    """What waits for a thread begins as the run before ends: fewer appends than events; the last end waits for nothing."""
    jobs, recorder = failing
    runners = Runners(jobs)
    runners.registry.job("render")(lambda ctx: ctx.job_id)
    ids = [jobs.submit("render") for _ in range(20)]
    recorder.appends.clear()

    runners.start(workers=workers, prefetch=64)
    ended = runners.ended(*ids)
    runners.stop()

    assert ids == [job.result for job in ended]
    assert 40 == sum(recorder.appends)
    assert 21 <= len(recorder.appends) <= 20 + workers
