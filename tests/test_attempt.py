"""The guard and the attempt: who may work, what is recorded of the work, and that recording never stops it."""

import contextlib
import math
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobevents import attempt as attempts
from jobevents.backoff import Backoff
from jobevents.errors import (
    Abandon,
    AlreadyCanceled,
    AlreadyRunning,
    AlreadySucceeded,
    AppendUnknown,
    Canceled,
    Corrupt,
    InvalidValue,
    Misconfigured,
    PermissionDenied,
    Refused,
    Snooze,
    Unavailable,
)
from jobevents.events import (
    CancelRequested,
    Event,
    JobAnnotated,
    JobCanceled,
    JobFailed,
    JobProgressed,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.jobs import Jobs
from jobevents.records import status_bytes
from jobevents.wiring import connect
from tests.clock import START, Clock
from tests.failinglog import FailingRecorder, LosingLines, failing_jobs
from tests.jobstates import bring, other_jobs, tell
from tests.racers import Racers


@pytest.fixture
def failing(clock: Clock) -> Iterator[tuple[Jobs, FailingRecorder]]:
    """Jobs over a log that fails on command, and its recorder."""
    jobs, recorder = failing_jobs(clock)
    with jobs:
        yield jobs, recorder


@pytest.fixture
def slow_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no timer write progress before the attempt ends: only the standing clock decides."""
    monkeypatch.setattr(attempts, "PROGRESS_INTERVAL_S", 3600)


def kinds(jobs: Jobs, job_id: str) -> list[str]:
    """Return the types of a job's events, in order."""
    return [event.type for event in jobs.history(job_id)]


def of(jobs: Jobs, job_id: str, cls: type[Event]) -> list[Any]:
    """Return a job's events of one type."""
    return [event for event in jobs.history(job_id) if isinstance(event, cls)]


def enter(jobs: Jobs, job_id: str, **options: Any) -> Any:
    """Begin an attempt that is never left, as a worker does that is killed."""
    return jobs.attempt(job_id, **options).__enter__()


# The guard


@pytest.mark.parametrize(
    ("life", "refusal"),
    [
        ("succeeded", AlreadySucceeded),
        ("canceled", AlreadyCanceled),
        ("deleted", AlreadyCanceled),
    ],
)
def test_what_is_done_is_not_started_again(jobs: Jobs, life: str, refusal: type[Refused]) -> None:
    """The handler does not run, and the refusal leaves no trace in the history."""
    job_id = bring(jobs, life)
    before = kinds(jobs, job_id)

    with pytest.raises(refusal, match=job_id), jobs.attempt(job_id):
        pytest.fail("the handler ran")

    assert before == kinds(jobs, job_id)


@pytest.mark.parametrize("life", ["queued", "waiting for a retry", "given back", "lost", "failed", "skipped", "paused"])
def test_anything_else_that_does_not_run_may_be_started(jobs: Jobs, life: str) -> None:
    """A redelivered task of a failed job too: its history goes on with the next try."""
    job_id = bring(jobs, life)
    tries = jobs.job(job_id).tries

    with jobs.attempt(job_id) as attempt:
        assert tries + 1 == attempt.number
        assert len(jobs.history(job_id)) == attempt.start

    assert "succeeded" == jobs.get(job_id).state


def test_a_job_that_runs_is_not_started_again(jobs: Jobs) -> None:
    """Its worker lives: a second delivery is to come back later."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id), pytest.raises(AlreadyRunning), other_jobs(jobs).attempt(job_id):
        pytest.fail("the handler ran")

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)


def test_a_job_that_nobody_queued_may_be_started(jobs: Jobs) -> None:
    """A task was delivered before its record, or is older than this system: its stream begins with the start."""
    with jobs.attempt("song-7") as attempt:
        assert (1, 1, None) == (attempt.number, attempt.start, attempt.params)

    assert ["JobStarted", "JobSucceeded"] == kinds(jobs, "song-7")


def test_an_attempt_gets_a_copy_of_the_params(jobs: Jobs) -> None:
    """What a handler does to them changes neither the job nor what the next try gets."""
    job_id = jobs.submit("render", {"songs": [1]})

    with contextlib.suppress(ValueError), jobs.attempt(job_id) as attempt:
        attempt.params["songs"].clear()
        raise ValueError

    with jobs.attempt(job_id) as attempt:
        assert {"songs": [1]} == attempt.params
    assert {"songs": [1]} == jobs.job(job_id).params


def test_a_start_says_who_works_until_when(jobs: Jobs) -> None:
    """Worker and deadline are on the event, and the worker signs what it writes."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id, worker="w", deadline_s=90) as attempt:
        attempt.progress(1)

    [started], [progressed] = of(jobs, job_id, JobStarted), of(jobs, job_id, JobProgressed)
    assert started.worker.startswith("w")
    assert START + timedelta(seconds=90) == started.deadline
    assert started.worker == started.actor == progressed.actor


def test_work_outside_the_block_is_told_that_nothing_guards_it(jobs: Jobs) -> None:
    """An attempt that was never entered records nothing: whatever a handler does with it first says so."""
    attempt = jobs.attempt(jobs.submit("render"))

    for use in (
        lambda: attempt.params,
        lambda: attempt.progress(1),
        lambda: attempt.annotate(title="t"),
        lambda: attempt.log("line"),
        lambda: attempt.result(1),
        lambda: attempt.canceled,
        attempt.check,
    ):
        with pytest.raises(Misconfigured, match="`with`"):
            use()


def test_a_mistyped_option_does_not_take_the_guard_away(jobs: Jobs) -> None:
    """What `on_unreadable` may be is checked where the attempt is made, as in `connect`."""
    with pytest.raises(Misconfigured, match="on_unreadable"):
        jobs.attempt("song-7", on_unreadable="rasie")  # type: ignore[arg-type]  # what is tested


def test_a_deadline_that_has_passed_is_taken_for_lost_in_one_append(
    failing: tuple[Jobs, FailingRecorder], clock: Clock
) -> None:
    """Nobody sees the job queued in between: the old start is fenced off and the next try begins at once."""
    jobs, recorder = failing
    job_id = jobs.submit("render")
    enter(jobs, job_id, deadline_s=60)
    clock.move(60)

    with other_jobs(jobs).attempt(job_id) as attempt:
        assert (2, 4) == (attempt.number, attempt.start)

    assert ["JobQueued", "JobStarted", "JobRequeued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)
    assert [1, 1, 2, 1] == recorder.appends
    [requeued] = of(jobs, job_id, JobRequeued)
    assert ("lost", 2) == (requeued.cause, requeued.start)


def test_a_deadline_that_has_not_passed_is_waited_for(jobs: Jobs, clock: Clock) -> None:
    """A second before it the job still runs."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id, deadline_s=60):
        clock.move(59)

        with pytest.raises(AlreadyRunning):
            enter(other_jobs(jobs), job_id)


def test_a_job_that_was_lost_after_a_cancel_is_canceled(jobs: Jobs, clock: Clock) -> None:
    """Nobody wants it again: the guard ends it, and keeps who asked."""
    job_id = jobs.submit("render")
    enter(jobs, job_id, deadline_s=60)
    jobs.cancel(job_id, actor="ops", reason="cost")
    clock.move(60)

    with pytest.raises(AlreadyCanceled):
        enter(other_jobs(jobs), job_id)

    job = jobs.job(job_id)
    assert ["JobQueued", "JobStarted", "CancelRequested", "JobCanceled"] == kinds(jobs, job_id)
    assert ("canceled", "ops", "cost") == (job.state, job.canceled_by, job.cancel_reason)


@pytest.mark.parametrize("cause", ["lost", "shutdown", "snooze"])
def test_a_job_that_was_given_back_after_a_cancel_is_canceled(jobs: Jobs, cause: Any) -> None:
    """Whoever put it back did not see the request: the guard does."""
    job_id = bring(jobs, "running, cancel requested")
    tell(jobs, job_id, partial(JobRequeued, cause=cause, start=2))

    with pytest.raises(AlreadyCanceled):
        enter(jobs, job_id)

    assert "canceled" == jobs.get(job_id).state


def test_a_job_that_failed_after_a_cancel_is_not_started_again(jobs: Jobs) -> None:
    """A redelivery of it is acknowledged; a person's retry takes the cancel back."""
    job_id = bring(jobs, "running, cancel requested")
    tell(jobs, job_id, partial(JobFailed, error="boom", start=2))

    with pytest.raises(AlreadyCanceled):
        enter(jobs, job_id)

    assert "failed" == jobs.get(job_id).state
    jobs.retry(job_id)
    with jobs.attempt(job_id) as attempt:
        assert not attempt.canceled


def test_a_remembered_success_never_refuses_a_rerun(jobs: Jobs) -> None:
    """What this process remembers of the job is older than the rerun by another: the log decides."""
    job_id = bring(jobs, "queued")
    with jobs.attempt(job_id):
        pass
    assert "succeeded" == jobs.get(job_id).state
    other_jobs(jobs).rerun(job_id)

    with jobs.attempt(job_id) as attempt:
        assert 1 == attempt.number

    assert 2 == len(of(jobs, job_id, JobSucceeded))


@pytest.mark.parametrize("shared", [True, False], ids=["one process", "four processes' memories"])
def test_of_a_thousand_races_each_has_one_winner(jobs: Jobs, shared: bool) -> None:
    """Four threads are let go at once for each job: exactly one is granted, the others are told that it runs."""
    ids = jobs.submit_many([{"name": "render"}] * 1000)
    racers = [jobs if shared else other_jobs(jobs) for _ in range(4)]
    barrier = threading.Barrier(4)
    granted: list[list[str]] = [[] for _ in racers]
    refused: list[list[str]] = [[] for _ in racers]

    def run(number: int) -> None:
        for job_id in ids:
            barrier.wait(60)
            try:
                enter(racers[number], job_id)
            except AlreadyRunning:
                refused[number].append(job_id)
            else:
                granted[number].append(job_id)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(ids) == sorted(job_id for won in granted for job_id in won)
    assert 3000 == sum(map(len, refused))
    assert {("JobQueued", "JobStarted")} == {tuple(kinds(jobs, job_id)) for job_id in ids}


def race_for_starts(_: int, wait: Any, url: str, ids: list[str]) -> list[str]:
    """Ask for each job together with the other processes, and return those that were granted."""
    won = []
    jobs = connect(url)
    for job_id in ids:
        wait()
        with contextlib.suppress(AlreadyRunning):
            enter(jobs, job_id)
            won.append(job_id)
    wait()  # a worker that ends loses what it holds, while others still ask
    jobs.close()
    return won


def test_of_two_hundred_races_between_processes_each_has_one_winner(racers: Racers, tmp_path: Any) -> None:
    """Four processes ask for each job at once: the append decides, and one is granted."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url) as jobs:
        ids = jobs.submit_many([{"name": "render"}] * 200)

        won = racers.run(race_for_starts, url, ids)

        assert sorted(ids) == sorted(job_id for one in won for job_id in one)
        assert {2} == {len(jobs.history(job_id)) for job_id in ids}


# How it ends


class Silent(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("no words")


OUTCOMES: dict[str, tuple[BaseException | None, dict[str, Any]]] = {
    "nothing raised": (None, {"state": "succeeded", "error": "", "error_kind": ""}),
    "an error": (ValueError("boom"), {"state": "failed", "error": "boom", "error_kind": "ValueError"}),
    "an error without text": (ValueError(), {"state": "failed", "error": "ValueError"}),
    "an error that fails itself": (Silent(), {"state": "failed", "error": "Silent", "error_kind": "Silent"}),
    "an error of ours": (InvalidValue("bad"), {"state": "failed", "error": "bad"}),
    "abandon": (Abandon("hopeless"), {"state": "failed", "error": "hopeless", "error_kind": "Abandon"}),
    "canceled": (Canceled("stop"), {"state": "canceled", "error": ""}),
    "canceled in a task group": (BaseExceptionGroup("", [Canceled(), Canceled()]), {"state": "canceled"}),
    "canceled and an error": (BaseExceptionGroup("two", [Canceled(), OSError()]), {"state": "failed"}),
    "snooze": (Snooze(90), {"state": "queued", "tries": 0, "scheduled_at": START + timedelta(seconds=90)}),
    "snooze for ever": (Snooze(timedelta.max), {"scheduled_at": datetime.max.replace(tzinfo=UTC)}),
    "interrupted": (KeyboardInterrupt(), {"state": "failed", "error": "KeyboardInterrupt"}),
}


@pytest.mark.parametrize(("raised", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcome_follows_from_what_leaves_the_block(
    jobs: Jobs, raised: BaseException | None, expected: dict[str, Any]
) -> None:
    """Each way to end is one event; the exception goes on to the caller."""
    job_id = jobs.submit("render")

    with pytest.raises(type(raised)) if raised else contextlib.nullcontext(), jobs.attempt(job_id):
        if raised:
            raise raised

    job = jobs.job(job_id)
    assert expected == {name: getattr(job, name) for name in expected}
    assert 3 == job.version


def test_a_failure_keeps_where_it_happened(jobs: Jobs) -> None:
    """The traceback is on the event, its last frame the one that raised."""
    job_id = jobs.submit("render")

    with pytest.raises(ZeroDivisionError), jobs.attempt(job_id):
        1 // 0  # noqa: B018

    [failed] = of(jobs, job_id, JobFailed)
    assert "1 // 0" in failed.traceback
    assert failed.traceback.rstrip().endswith("ZeroDivisionError: integer division or modulo by zero")


def test_the_last_result_is_recorded_with_the_success(jobs: Jobs) -> None:
    """A result may be set any number of times, and is worth nothing if the work fails."""
    done, failed = jobs.submit("render"), jobs.submit("render")

    with jobs.attempt(done) as attempt:
        attempt.result(1)
        attempt.result({"seconds": (181, 2)})
    with contextlib.suppress(ValueError), jobs.attempt(failed) as attempt:
        attempt.result(1)
        raise ValueError

    assert {"seconds": [181, 2]} == jobs.job(done).result
    assert jobs.job(failed).result is None


def test_a_result_that_cannot_be_stored_is_told_of_and_counted(jobs: Jobs) -> None:
    """The job has succeeded; the marker says why its result is missing."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.result({"at": START})

    assert "succeeded" == jobs.get(job_id).state
    assert "$.at" in jobs.job(job_id).result["unstorable"]
    assert 1 == jobs.counts.snapshot()["results_not_storable"]


@pytest.mark.parametrize("end", [Snooze(60), "give back"])
def test_can_01_a_job_that_is_put_back_after_a_cancel_is_canceled(jobs: Jobs, end: Any) -> None:
    """Nothing starts again that somebody wanted to stop."""
    job_id = jobs.submit("render")
    attempt = enter(jobs, job_id)
    jobs.cancel(job_id, actor="ops")

    if end == "give back":
        attempt.give_back()
    else:
        attempt.__exit__(Snooze, end, None)

    assert ("canceled", "ops") == (jobs.get(job_id).state, jobs.job(job_id).canceled_by)


def test_a_job_that_is_given_back_has_used_no_try(jobs: Jobs) -> None:
    """The next attempt has the same number and another start."""
    job_id = jobs.submit("render")
    enter(jobs, job_id).give_back()

    with jobs.attempt(job_id) as attempt:
        assert (1, 4) == (attempt.number, attempt.start)

    [requeued] = of(jobs, job_id, JobRequeued)
    assert ("shutdown", 2) == (requeued.cause, requeued.start)


# Late outcomes


def overtaken(jobs: Jobs, clock: Clock) -> tuple[str, Any, Any]:
    """Return a job, the attempt that lost it, and the attempt that has it now."""
    job_id = jobs.submit("render")
    late = enter(jobs, job_id, deadline_s=60)
    clock.move(61)
    return job_id, late, enter(other_jobs(jobs), job_id)


def test_a_late_outcome_is_recorded_as_refused_and_changes_nothing(jobs: Jobs, clock: Clock) -> None:
    """The job stays with the newer start; what was tried is kept, for people to see."""
    job_id, late, current = overtaken(jobs, clock)
    before = jobs.get(job_id)

    late.__exit__(ValueError, ValueError("boom"), None)

    [refused] = of(jobs, job_id, TransitionRefused)
    assert (2, "JobFailed", "running", "boom") == (refused.start, refused.tried, refused.state, refused.detail)
    assert (before.state, before.updated_at) == (jobs.get(job_id).state, jobs.get(job_id).updated_at)
    current.__exit__(None, None, None)
    assert "succeeded" == jobs.get(job_id).state


def test_a_start_is_refused_once_and_the_rest_is_counted(jobs: Jobs, clock: Clock) -> None:
    """A second outcome of the same start leaves no second event."""
    job_id, late, _ = overtaken(jobs, clock)

    late.__exit__(None, None, None)
    late.__exit__(None, None, None)

    assert 1 == len(of(jobs, job_id, TransitionRefused))
    assert 2 == jobs.counts.snapshot()["outcomes_refused"]


def test_what_an_older_start_says_is_dropped_and_counted(jobs: Jobs, clock: Clock) -> None:
    """Progress and fields of a worker that was overtaken never reach the job."""
    job_id, late, _ = overtaken(jobs, clock)

    late.progress(99)
    late.annotate(title="old")

    assert (None, "") == (jobs.job(job_id).progress, jobs.job(job_id).title)
    assert 2 == jobs.counts.snapshot()["events_of_old_starts_dropped"]
    assert late.canceled


def test_a_late_outcome_is_no_error_even_where_strictness_was_asked_for(jobs: Jobs, clock: Clock) -> None:
    """The outcome was recorded as refused, and there is nothing to do again."""
    job_id = jobs.submit("render")
    late = enter(jobs, job_id, deadline_s=60, strict=True)
    clock.move(61)
    enter(other_jobs(jobs), job_id)

    late.__exit__(None, None, None)

    assert "running" == jobs.get(job_id).state


# Progress


@pytest.mark.usefixtures("slow_flush")
def test_progress_is_recorded_at_once_and_then_at_the_end(failing: tuple[Jobs, FailingRecorder]) -> None:
    """However often a handler says it, within half a second the first is kept, and always the last."""
    jobs, _ = failing
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        for percent in range(101):
            attempt.progress(percent, f"step {percent}")

    assert [0, 100] == [event.percent for event in of(jobs, job_id, JobProgressed)]
    assert "step 100" == jobs.job(job_id).progress_message


def test_at_most_two_progress_events_a_second_are_recorded(failing: tuple[Jobs, FailingRecorder], clock: Clock) -> None:
    """Ten seconds of a hundred calls each are some twenty events, each a row and a message."""
    jobs, _ = failing
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        for call in range(1000):
            attempt.progress(call / 10)
            clock.move(0.01)

    assert 20 <= len(of(jobs, job_id, JobProgressed)) <= 30  # a machine that is slow to get here adds a timer's
    assert 99.9 == jobs.job(job_id).progress


def test_progress_that_waits_is_written_though_nothing_more_is_said(
    failing: tuple[Jobs, FailingRecorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that says 40 and then works for an hour has 40 on its status soon after."""
    monkeypatch.setattr(attempts, "PROGRESS_INTERVAL_S", 0.01)
    jobs, _ = failing
    job_id = jobs.submit("render")
    written = threading.Event()

    with jobs.attempt(job_id) as attempt:
        attempt.progress(10)
        jobs.observe(lambda job, _: written.set() if job.progress == 40 else None)
        attempt.progress(40)

        assert written.wait(10)

    assert [10, 40] == [event.percent for event in of(jobs, job_id, JobProgressed)]


def test_a_slow_log_does_not_turn_the_order_of_progress_around(
    failing: tuple[Jobs, FailingRecorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one progress is being written the next one waits: the last said is the last recorded."""
    monkeypatch.setattr(attempts, "PROGRESS_INTERVAL_S", 0.01)
    jobs, recorder = failing
    job_id = jobs.submit("render")
    written = threading.Event()
    jobs.observe(lambda job, _: written.set() if job.progress == 20 else None)

    with jobs.attempt(job_id) as attempt:
        with recorder.stalling(calls=1) as release:
            first = threading.Thread(target=attempt.progress, args=(10,))
            first.start()
            assert recorder.reached.wait(10)
            attempt.progress(20)
            assert not written.wait(0.2)  # its timer finds the first one still being written
            release()
            assert written.wait(10)
        first.join()

    assert [10, 20] == [event.percent for event in of(jobs, job_id, JobProgressed)]


class Percent(float):
    """A number of a library of its own, such as numpy's."""


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (40, 40),
        (40.0, 40),
        (12.5, 12.5),
        (Percent(12.5), 12.5),
        (True, 1),
        (-5, 0),
        (250, 100),
        (1e300, 100),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
        ("40", None),
        (None, None),
        (1j, None),
    ],
)
def test_progress_is_a_number_from_0_to_100(jobs: Jobs, said: Any, kept: Any) -> None:
    """What is beyond is brought to the nearest, what is no number is dropped, and the work goes on."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.progress(said)
        shown = jobs.job(job_id).progress

    assert (kept, "succeeded") == (shown, jobs.get(job_id).state)
    assert type(kept) is type(shown)


# Annotations


def test_annotations_stand_in_the_order_they_were_first_made(jobs: Jobs) -> None:
    """The title is the latest, fields are shown beside the common ones, emptied ones are left out."""
    job_id = jobs.submit("render", title="old")

    with jobs.attempt(job_id) as attempt:
        attempt.annotate(title="new", command="mix", b="1", a=2, c="x", d=True)
        attempt.annotate(a=3, c="", d=None)

    shown = jobs.get(job_id)
    assert ("new", "mix") == (shown.title, shown.command)
    assert ["b", "a", "c", "d"] == list(jobs.job(job_id).fields)
    assert b'"b":"1","a":3,"version"' in status_bytes(jobs.job(job_id))


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "x"},
        {"state": "x"},
        {"STATE": "x"},
        {"version": 1},
        {"attempts": 1},
        {"updated_at": "x"},
        {"progress": 1},
        {"progress_message": "x"},
        {"nested": {"a": 1}},
        {"nested": [1]},
        {"nested": ()},
        {"odd": START},
        {"odd": {1}},
        {"odd": math.nan},
        {"odd": 2**63},
        {"a\0": 1},
        {"x" * 256: 1},
    ],
    ids=str,
)
def test_an_annotation_that_fits_no_record_is_dropped(jobs: Jobs, fields: dict[str, Any]) -> None:
    """Common keys, nested values and what JSON cannot hold: warned of, counted, and the work goes on."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.annotate(**fields)

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)
    assert 1 == jobs.counts.snapshot()["records_failed"]


def test_a_title_that_is_no_text_is_dropped(jobs: Jobs) -> None:
    """A mistake in what a handler says never stops it."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.annotate(title=7)  # type: ignore[arg-type]
        attempt.progress(5, 7)  # type: ignore[arg-type]

    assert ("", None, "succeeded") == (jobs.get(job_id).title, jobs.job(job_id).progress, jobs.get(job_id).state)


# Cancel


def test_a_worker_is_told_of_a_cancel(jobs: Jobs) -> None:
    """`canceled` says it, `check` raises, and passing that on ends the job as canceled by who asked."""
    job_id = jobs.submit("render")

    with contextlib.suppress(Canceled), jobs.attempt(job_id) as attempt:
        other_jobs(jobs).cancel(job_id, actor="ops", reason="cost")

        assert attempt.canceled
        attempt.check()
        pytest.fail("check let it pass")

    job = jobs.job(job_id)
    assert ("canceled", "ops", "cost") == (job.state, job.canceled_by, job.cancel_reason)
    assert ["JobQueued", "JobStarted", "CancelRequested", "JobCanceled"] == kinds(jobs, job_id)


def test_the_log_is_asked_for_a_cancel_at_most_twice_a_second(
    failing: tuple[Jobs, FailingRecorder], clock: Clock
) -> None:
    """A handler may ask in every turn of its loop; once told, it is not asked for again."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        assert not attempt.canceled
        attempt.check()
        jobs.cancel(job_id)

        assert not attempt.canceled
        clock.move(0.5)
        assert attempt.canceled
        with recorder.refusing():
            clock.move(60)
            assert attempt.canceled


def test_a_cancel_that_cannot_be_looked_up_lets_the_work_go_on(
    failing: tuple[Jobs, FailingRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    """Trouble with the log is no request to stop."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt, recorder.refusing():
        assert not attempt.canceled

    assert "cancel check failed" in caplog.text


# When the log cannot be read or written


@pytest.mark.parametrize(
    "trouble", [Unavailable("u"), PermissionDenied("p"), Corrupt("c")], ids=lambda e: type(e).__name__
)
def test_work_is_not_done_when_the_guard_cannot_tell(failing: tuple[Jobs, FailingRecorder], trouble: Any) -> None:
    """By default the task is to be delivered again."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with recorder.refusing(trouble), pytest.raises(type(trouble)), jobs.attempt(job_id):
        pytest.fail("the handler ran")

    assert ["JobQueued"] == kinds(jobs, job_id)


def test_work_that_runs_ungranted_is_recorded_at_its_end(
    failing: tuple[Jobs, FailingRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    """With `on_unreadable="run"` not readable is not done; start and outcome are appended together when that is possible."""
    jobs, recorder = failing
    job_id = jobs.submit("render", {"a": 1})

    with recorder.refusing():
        attempt = enter(jobs, job_id, on_unreadable="run")
        assert (0, 0, False, None) == (attempt.number, attempt.start, attempt.canceled, attempt.params)
        attempt.progress(50)
        attempt.annotate(title="T")
        attempt.result(7)
    attempt.__exit__(None, None, None)

    [started] = of(jobs, job_id, JobStarted)
    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)
    assert (True, 1, 7) == (started.late, started.attempt, jobs.job(job_id).result)
    assert [1, 2] == recorder.appends
    assert 1 == caplog.text.count("runs ungranted")


@pytest.mark.parametrize("life", ["running", "succeeded", "canceled"])
def test_ungranted_work_that_was_not_wanted_is_told_of(failing: tuple[Jobs, FailingRecorder], life: str) -> None:
    """Another worker had it, or it was done: the outcome is kept as refused, and changes nothing."""
    jobs, recorder = failing
    job_id = bring(jobs, life)
    with recorder.refusing():
        attempt = enter(jobs, job_id, on_unreadable="run")

    attempt.__exit__(None, None, None)

    [refused] = of(jobs, job_id, TransitionRefused)
    assert (0, "JobSucceeded", life, "ran ungranted") == (refused.start, refused.tried, refused.state, refused.detail)
    assert life == jobs.get(job_id).state


def test_the_option_for_all_attempts_is_that_of_connect(clock: Clock) -> None:
    """`on_unreadable` of an attempt wins over that of `connect`."""
    jobs, recorder = failing_jobs(clock, on_unreadable="run")
    with jobs, recorder.refusing():
        assert 0 == enter(jobs, "song-7").number
        with pytest.raises(Unavailable):
            enter(jobs, "song-7", on_unreadable="raise")


def test_a_grant_whose_reply_was_lost_is_taken_once_the_log_shows_it(failing: tuple[Jobs, FailingRecorder]) -> None:
    """The start is in the log after all: the outcome belongs to it, and the job does not hang."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with recorder.losing_replies():
        attempt = enter(jobs, job_id, on_unreadable="run")
    attempt.__exit__(None, None, None)

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)
    assert not of(jobs, job_id, JobStarted)[0].late


def test_a_lost_reply_to_a_start_has_the_task_delivered_again(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Whether it was granted is unknown: by default the work is not done now."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with recorder.losing_replies(), pytest.raises(AppendUnknown):
        enter(jobs, job_id)

    assert ["JobQueued", "JobStarted"] == kinds(jobs, job_id)


def test_a_start_whose_reply_was_lost_is_looked_for(failing: tuple[Jobs, FailingRecorder]) -> None:
    """It is found in the log, and the attempt is granted: one start, and nobody is refused for its sake."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with recorder.losing_replies(1):
        attempt = enter(jobs, job_id)
    attempt.__exit__(None, None, None)

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)


def test_an_outcome_whose_reply_was_lost_is_recorded_once(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Who has patience looks for the outcome before deciding again: it is not taken for that of another attempt."""
    jobs, recorder = failing
    job_id = jobs.submit("render")
    attempt = jobs.attempt(job_id, strict=True, patience=Backoff(sleep=lambda _: None))

    attempt.__enter__()
    with recorder.losing_replies(3):
        attempt.__exit__(None, None, None)

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, job_id)


def test_nothing_is_decided_while_an_append_is_unknown(failing: tuple[Jobs, FailingRecorder]) -> None:
    """A second cancel does not ask again: it waits until it is known what came of the first."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with recorder.losing_replies():
        with pytest.raises(AppendUnknown):
            jobs.cancel(job_id, actor="ann")
        with pytest.raises(Unavailable, match="earlier append"):
            jobs.retry(job_id, actor="bob")

    assert "already final" == jobs.cancel(job_id, actor="bob")
    assert ["JobQueued", "JobCanceled"] == kinds(jobs, job_id)


def test_who_knows_the_id_finds_out_what_came_of_an_append(failing: tuple[Jobs, FailingRecorder]) -> None:
    """The log says whether an event is there, has lost its slot, or may still come."""
    jobs, recorder = failing
    job_id = jobs.submit("render")
    with recorder.losing_replies(), pytest.raises(AppendUnknown) as unknown:
        jobs.cancel(job_id)

    lost, open_ = AppendUnknown(job_id, 2, "another"), AppendUnknown(job_id, 3, "yet to come")

    assert [True, False, None] == [jobs.log.resolve(one) for one in (unknown.value, lost, open_)]


def test_an_outcome_that_cannot_be_recorded_is_warned_of(
    failing: tuple[Jobs, FailingRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done, and its caller is not bothered; the warning names job and outcome."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with contextlib.ExitStack() as stack, jobs.attempt(job_id):
        stack.enter_context(recorder.refusing())

    assert "running" == jobs.get(job_id).state
    assert (
        f"could not be recorded: its job is given back, and run again if it has a try left job_id={job_id}"
        in caplog.text
    )


def test_strict_raises_when_the_outcome_cannot_be_recorded(failing: tuple[Jobs, FailingRecorder]) -> None:
    """Whoever must know asks for it: the task is delivered again."""
    jobs, recorder = failing
    attempt = enter(jobs, jobs.submit("render"), strict=True)

    with recorder.refusing(), pytest.raises(Unavailable):
        attempt.__exit__(None, None, None)


def test_no_trouble_with_the_log_reaches_the_work(failing: tuple[Jobs, FailingRecorder], clock: Clock) -> None:
    """Whatever a handler calls while the log is down returns, and each loss is counted."""
    jobs, recorder = failing
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        with recorder.refusing():
            attempt.progress(1)
            clock.move(1)
            attempt.progress(2)
            attempt.annotate(title="T")
            attempt.log("line")
            attempt.check()
        attempt.progress(3)

    assert (3, "succeeded") == (jobs.job(job_id).progress, jobs.get(job_id).state)
    assert 4 == jobs.counts.snapshot()["records_failed"]


def test_log_lines_that_cannot_be_written_are_lost_and_counted(clock: Clock) -> None:
    """A full batch that fails stops the handler no more than the last one does."""
    jobs, _ = failing_jobs(clock, run_logs=LosingLines())
    with jobs:
        job_id = jobs.submit("render")

        with jobs.attempt(job_id) as attempt:
            for number in range(500):
                attempt.log(f"line {number}")

        assert "succeeded" == jobs.get(job_id).state
        assert jobs.counts.snapshot()["records_failed"] >= 3


# Log lines


def test_log_lines_keep_their_order_across_attempts(jobs: Jobs) -> None:
    """Lines are numbered by the start: a later attempt's come after an earlier one's, be there a thousand or none."""
    job_id = jobs.submit("render")
    with contextlib.suppress(ValueError), jobs.attempt(job_id) as attempt:
        for number in range(450):
            attempt.log(f"first {number}", level="debug", n=number)
        raise ValueError
    with jobs.attempt(job_id) as attempt:
        attempt.log("second", odd=math.nan)

    lines = jobs.run_logs.logs(job_id)
    assert [*(f"first {n}" for n in range(450)), "second"] == [line.message for line in lines]
    assert (1, "debug", {"n": 0}) == (lines[0].attempt, lines[0].level, lines[0].attrs)
    assert "which JSON cannot" in lines[-1].attrs["unstorable"]
    assert sorted(line.seq for line in lines) == [line.seq for line in lines]


# Scrub


def test_scrub_sees_all_that_is_kept(clock: Clock) -> None:
    """Params, fields, errors, tracebacks and results pass it before they are encoded."""

    def scrub(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: scrub(item) for key, item in value.items()}
        return value.replace("secret", "***") if isinstance(value, str) else value

    jobs, _ = failing_jobs(clock, scrub=scrub)
    with jobs:
        job_id = jobs.submit("render", {"a": "secret"})
        with contextlib.suppress(ValueError), jobs.attempt(job_id) as attempt:
            attempt.annotate(note="secret")
            raise ValueError("secret")
        with jobs.attempt(job_id) as attempt:
            attempt.result("secret")
        jobs.rerun(job_id, as_new=True, params={"a": "another secret"})

        assert not [record for record in jobs.log.scan() if b"secret" in record.data]


def test_a_scrub_that_fails_lets_nothing_through_and_stops_nothing(clock: Clock) -> None:
    """What could not be scrubbed is not kept; the job's end is."""

    def scrub(value: Any) -> Any:
        if value is None:
            return value
        raise KeyError("secret")

    jobs, _ = failing_jobs(clock, scrub=scrub)
    with jobs:
        failed, done = jobs.submit("render"), jobs.submit("render")
        with contextlib.suppress(ValueError), jobs.attempt(failed) as attempt:
            attempt.annotate(note="secret")
            raise ValueError("secret")
        with jobs.attempt(done) as attempt:
            attempt.result("secret")

        assert ("failed", "ValueError") == (jobs.get(failed).state, jobs.job(failed).error)
        assert ("succeeded", {"unstorable": "scrub failed error=KeyError"}) == (
            jobs.get(done).state,
            jobs.job(done).result,
        )
        assert not [record for record in jobs.log.scan() if b"secret" in record.data]


def test_annotations_outside_an_attempt_carry_no_start(jobs: Jobs) -> None:
    """The fold takes them in any state: a title may be mended after the end."""
    job_id = bring(jobs, "succeeded")

    tell(jobs, job_id, partial(JobAnnotated, title="mended"))

    assert ("mended", "succeeded") == (jobs.get(job_id).title, jobs.get(job_id).state)


def test_a_cancel_request_alone_ends_nothing(jobs: Jobs) -> None:
    """The job runs until its worker says what it came to."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id):
        jobs.cancel(job_id)
        assert "running" == jobs.get(job_id).state

    assert [1, 0] == [len(of(jobs, job_id, CancelRequested)), len(of(jobs, job_id, JobCanceled))]


# Another try


def fail(jobs: Jobs, job_id: str, error: BaseException, **options: Any) -> None:
    """Let a try end with an error."""
    with contextlib.suppress(type(error)), jobs.attempt(job_id, **options):
        raise error


def test_a_failed_try_with_tries_left_waits_for_the_next(jobs: Jobs) -> None:
    """Its error is kept, and the wait is what is asked for after this try."""
    job_id = jobs.submit("render", max_attempts=3)

    fail(jobs, job_id, OSError("no disk"), retry_in=lambda attempt: attempt * 10.0)

    job = jobs.job(job_id)
    assert ("queued", "no disk", 1) == (job.state, job.error, job.tries)
    assert START + timedelta(seconds=10) == job.scheduled_at


@pytest.mark.parametrize(
    ("error", "retry_in"),
    [
        (Abandon("hopeless"), lambda _: 1.0),
        (BaseExceptionGroup("two", [OSError(), Abandon("hopeless")]), lambda _: 1.0),
        (OSError("no disk"), lambda _: None),
        (OSError("no disk"), None),
    ],
    ids=["abandoned", "abandoned in a group", "not wanted", "not said"],
)
def test_what_is_given_up_stays_failed(jobs: Jobs, error: BaseException, retry_in: attempts.RetryIn | None) -> None:
    """Whatever tries are left."""
    job_id = jobs.submit("render", max_attempts=3)

    fail(jobs, job_id, error, retry_in=retry_in)

    assert "failed" == jobs.get(job_id).state


def test_the_last_try_stays_failed(jobs: Jobs, clock: Clock) -> None:
    """No wait is asked for when no try is left."""
    job_id = jobs.submit("render", max_attempts=2)
    asked: list[int] = []

    for _ in range(2):
        fail(jobs, job_id, OSError("no disk"), retry_in=lambda attempt: asked.append(attempt) or 0.0)

    assert ("failed", [1]) == (jobs.get(job_id).state, asked)


def test_can_01_a_canceled_job_that_fails_is_not_tried_again(jobs: Jobs) -> None:
    """CAN-01: nobody wants the next try."""
    job_id = jobs.submit("render", max_attempts=3)

    with contextlib.suppress(OSError), jobs.attempt(job_id, retry_in=lambda _: 1.0):
        other_jobs(jobs).cancel(job_id)
        raise OSError("no disk")

    assert "canceled" == jobs.get(job_id).state


def test_an_outcome_is_tried_again_with_patience(failing: tuple[Jobs, FailingRecorder]) -> None:
    """While the log is unavailable, for as long as it is told to."""
    jobs, recorder = failing
    job_id = jobs.submit("render")
    waits: list[float] = []
    outage = contextlib.ExitStack()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            outage.close()

    with jobs.attempt(job_id, patience=Backoff(sleep=sleep)):
        outage.enter_context(recorder.refusing())

    assert ("succeeded", 3) == (jobs.get(job_id).state, len(waits))


def test_a_second_end_of_an_attempt_is_refused(jobs: Jobs) -> None:
    """A handler that was given up ends at last: one refusal is kept, and the job's next attempt is left alone."""
    job_id = jobs.submit("render", max_attempts=2)
    first = enter(jobs, job_id)
    first.give_back()

    with jobs.attempt(job_id) as second:
        first.result("late")
        first.__exit__(None, None, None)
        assert job_id in jobs.presence._life.names[""].running
        second.result("in time")

    assert "in time" == jobs.job(job_id).result
    assert 1 == len(of(jobs, job_id, TransitionRefused))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e12])
def test_a_deadline_that_no_clock_reaches_is_refused(jobs: Jobs, seconds: float) -> None:
    """Nothing is started under a deadline that means nothing."""
    job_id = jobs.submit("render")

    with pytest.raises(InvalidValue, match="deadline_s"):
        jobs.attempt(job_id, deadline_s=seconds)

    assert "queued" == jobs.get(job_id).state
