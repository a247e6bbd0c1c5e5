"""The attempts of a job, told from its events."""

from datetime import timedelta
from typing import Any

import pytest

from jobevents import connect
from jobevents.errors import Snooze
from jobevents.events import Event, JobFailed, JobStarted, TransitionRefused
from jobevents.jobs import Jobs
from jobevents.status import State
from projections.starts import Start, starts_of
from tests.clock import START, Clock


def starts(jobs: Jobs, job_id: str) -> list[Start]:
    return starts_of(jobs.history(job_id))[::-1]


def test_no_start(jobs: Jobs) -> None:
    """A job that waits has none."""
    assert [] == starts(jobs, jobs.submit("render"))


def test_each_start_has_its_end(jobs: Jobs, clock: Clock) -> None:
    """Starts come newest first, each with who worked, how long, and what it came to."""
    job_id = jobs.submit("render", max_attempts=3)

    def fail() -> None:
        with jobs.attempt(job_id, worker="w1") as attempt:
            attempt.progress(40, "mixing")
            clock.move(2.5)
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fail()
    jobs.retry(job_id)
    clock.move(10)
    with jobs.attempt(job_id, worker="w2"):
        clock.move(1)

    second, first = starts(jobs, job_id)

    assert ("JobFailed", "no space", "OSError", 2500) == (
        first.ended_by,
        first.error,
        first.error_kind,
        first.duration_ms,
    )
    assert (40, "mixing", "w1") == (first.progress, first.progress_message, first.worker.partition("-")[0])
    assert ("JobSucceeded", "", 1000, None) == (second.ended_by, second.error, second.duration_ms, second.progress)
    assert START + timedelta(seconds=12.5) == second.started_at


def test_a_start_that_goes_on(jobs: Jobs) -> None:
    """A running start has no end; a request to stop is part of it."""
    job_id = jobs.submit("render")
    attempt = jobs.attempt(job_id)
    attempt.__enter__()
    jobs.cancel(job_id, actor="ana")

    (only,) = starts(jobs, job_id)

    assert (None, None, "", START) == (only.ended_at, only.duration_ms, only.ended_by, only.cancel_requested_at)
    attempt.__exit__(None, None, None)


def test_a_start_put_back(jobs: Jobs) -> None:
    """A start that put the job back says why it ended."""
    job_id = jobs.submit("render")
    with pytest.raises(Snooze), jobs.attempt(job_id):
        raise Snooze(60)

    (only,) = starts(jobs, job_id)

    assert ("JobRequeued", "snooze") == (only.ended_by, only.cause)


def test_a_record_ends_a_start() -> None:
    """A whole record that a service saved ends the start, with its error."""
    with connect("memory://") as jobs:
        store = jobs.statuses()
        job_id = jobs.submit("render")
        jobs.attempt(job_id).__enter__()
        record = store.get(job_id)
        record.state, record.error = "broken", "theirs"
        store.save(job_id, record)

        (only,) = starts(jobs, job_id)

    assert ("JobRecorded", "theirs") == (only.ended_by, only.error)


def test_what_came_too_late_is_told() -> None:
    """A refused outcome is told of its own start, and ends none."""

    def event(kind: type[Event], version: int, **fields: Any) -> Event:
        common: dict[str, Any] = {"job_id": "a", "version": version, "id": f"e{version}", "at": START}
        return kind(**common, **fields)

    late = event(TransitionRefused, 3, start=1, tried="JobSucceeded", state=State.RUNNING)
    events = [
        event(JobStarted, 1, attempt=1),
        event(JobStarted, 2, attempt=2),
        late,
        event(JobFailed, 4, start=2, error="x"),
    ]

    first, second = starts_of(events)

    assert ("JobSucceeded", "JobStarted") == (first.refused, first.ended_by)
    assert ("", "JobFailed") == (second.refused, second.ended_by)
