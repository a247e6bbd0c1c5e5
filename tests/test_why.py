"""Why a job is as it is: sentences that never say what the fold does not, and that name who, what and how long."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from jobevents.events import (
    CancelRequested,
    Event,
    JobAnnotated,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import DELETED, fold
from jobevents.testing.strategies import histories
from projections.why import explain, span

NOON = datetime(2026, 7, 26, 12, 0, tzinfo=UTC)
SILENT = (JobProgressed, JobAnnotated)
WORDS = {"queued", "running", "succeeded", "failed", "canceled", "skipped"}


def life(*steps: tuple[float, Any]) -> list[Event]:
    """A history: seconds after noon, and the event but for what all have in common."""
    return [
        draft(job_id="a", version=number, id=f"{number}", at=NOON + timedelta(seconds=after))
        for number, (after, draft) in enumerate(steps, 1)
    ]


def told(*steps: tuple[float, Any], **options: Any) -> list[str]:
    return [one.text for one in explain(life(*steps), **options)]


queued = partial(JobQueued, name="render", actor="ana")
started = partial(JobStarted, attempt=1, worker="w1", actor="w1")


@given(histories())
def test_no_sentence_contradicts_the_fold(events: list[Event]) -> None:
    """Each sentence carries the state that the events up to its own fold to; the first one says the state of all of them."""
    sentences = explain(events)

    assert ["state"] == [one.kind for one in sentences if one.kind == "state"] == [sentences[0].kind]
    assert [fold(events[: one.version]).state for one in sentences] == [one.state for one in sentences]
    job = fold(events)
    if job.state in WORDS:
        assert {job.state} == {word for word in WORDS if sentences[0].text.startswith(tuple(openings(word)))}
    assert (job.state == DELETED) == sentences[0].text.startswith("It is deleted")


def openings(word: str) -> list[str]:
    return [f"It is {word}", f"It was {word}", f"It {word}"]


@given(histories())
def test_nothing_that_mattered_is_left_out(events: list[Event]) -> None:
    """Every event but progress and annotations has its sentence, in order; refusals are told as such, each once."""
    sentences = explain(events)

    stories = [one for one in sentences if one.kind not in ("state", "sum")]
    assert [event.version for event in events if not isinstance(event, SILENT)] == [one.version for one in stories]
    refused = [event.version for event in events if isinstance(event, TransitionRefused)]
    assert refused == [one.version for one in stories if one.kind == "refused"]
    assert all(one.text and "\n" not in one.text for one in sentences)


@given(histories())
def test_an_explanation_of_a_prefix_is_of_the_past(events: list[Event]) -> None:
    """What is told of an event does not depend on what came after it."""
    whole = [one for one in explain(events) if one.kind not in ("state", "sum")]

    for version in range(1, len(events) + 1):
        part = [one for one in explain(events[:version]) if one.kind not in ("state", "sum")]
        assert part == [one for one in whole if one.version <= version]


def test_waits_runs_and_holds_add_up() -> None:
    """The last sentence has how long it waited for a worker, was held back until it was due, and ran."""
    due = NOON + timedelta(seconds=70)

    texts = told(
        (0, partial(queued, max_attempts=2)),
        (4, started),
        (10, partial(JobFailed, start=2, error="boom", kind="OSError", retry_at=due)),
        (75, partial(JobStarted, attempt=2, worker="w2")),
        (95, partial(JobSucceeded, start=4)),
    )

    assert texts == [
        "It succeeded at 12:01:35, at start 2.",
        "ana queued render, 2 tries at most.",
        "Worker w1 started try 1, 4 s after it could.",
        "Try 1 failed after 6 s: OSError: boom. The next try is due at 12:01:10, 1 min later.",
        "Worker w2 started try 2, 5 s after it could.",
        "Try 2 succeeded after 20 s.",
        "In all it waited 9 s for a worker, held back 1 min until it was due, ran 26 s in 2 starts.",
    ]


def test_the_cancel_that_won_and_the_one_that_came_too_late() -> None:
    """A cancel names who asked and why, and whether it or the work was first."""
    asked = partial(CancelRequested, actor="bob", reason="customer left")

    won = told((0, queued), (1, started), (5, asked), (7, partial(JobCanceled, start=2)))
    late = told((0, queued), (1, started), (5, asked), (7, partial(JobSucceeded, start=2)))

    assert "It was canceled at 12:00:07 by bob: customer left." == won[0]
    assert "bob asked for it to stop: customer left." == won[3]
    assert "It stopped after 6 s, 2 s after it was asked to: the cancel won." == won[4]
    assert "It succeeded at 12:00:07. The cancel that was asked for came too late." == late[0]
    assert "Try 1 succeeded after 6 s. The cancel came too late: the work was done first." == late[4]


def test_what_was_refused_and_why() -> None:
    """A refusal names who came with what, of which start, and what it met."""
    texts = told(
        (0, queued),
        (1, started),
        (41, partial(JobRequeued, cause="lost", start=2, actor="reaper", reason="no sign for 40 s")),
        (45, partial(JobStarted, attempt=2, worker="w2")),
        (50, partial(TransitionRefused, start=2, tried="JobSucceeded", state="running", actor="w1", detail="done")),
    )

    assert "Worker w1 was lost after 40 s; reaper gave the job back, and the try counts: no sign for 40 s." == texts[3]
    assert (
        "Refused: w1 came with JobSucceeded of start #2, when the job was running and belonged to start #4. "
        "Nothing was changed. It said: done."
    ) == texts[5]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, queued)], "It is queued for its first start, due since 12:00:00, for 2 min: no worker has taken it."),
        (
            [(0, partial(queued, external=True))],
            "It is queued for its first start, due since 12:00:00, for 2 min: your own task queue has to deliver it.",
        ),
        (
            [(0, partial(queued, scheduled_at=NOON + timedelta(hours=2)))],
            "It is queued for its first start, not due before 14:00:00, in 1 h 58 min.",
        ),
        (
            [(0, queued), (20, started), (30, partial(JobProgressed, start=2, percent=40, message="mixing"))],
            "It is running since 12:00:20, for 1 min 40 s, try 1 of 1, on worker w1; it said 40 %: mixing.",
        ),
        (
            [(0, queued), (1, started), (9, partial(JobFailed, start=2, error="boom.", kind="OSError"))],
            "It failed at 12:00:09, try 1 of 1: OSError: boom.",
        ),
        (
            [(0, queued), (1, partial(JobRecorded, state="paused", actor="foreign"))],
            "Its state is paused, which is none of ours: foreign said so.",
        ),
        (
            [(0, queued), (1, JobDeleted)],
            "It is deleted, and never comes back; what it was is in the events until they are erased.",
        ),
    ],
)
def test_the_state_in_a_sentence(steps: list[tuple[float, Any]], expected: str) -> None:
    """The first sentence is what an operator wants to know of a job in this state."""
    assert expected == told(*steps, now=NOON + timedelta(minutes=2))[0]


def test_times_are_in_the_zone_that_is_asked_for() -> None:
    """Times of day are the reader's, and have a date when that is not the one on which the job began."""
    last = told((0, queued), (86_400, partial(JobCanceled, actor="bob")), zone=ZoneInfo("Asia/Tokyo"))

    assert "It was canceled at 2026-07-27 21:00:00 by bob." == last[0]


def test_clocks_that_disagree_make_no_negative_length() -> None:
    """An end before its start says so, and counts nothing."""
    texts = told((0, queued), (60, started), (50, partial(JobSucceeded, start=2)))

    assert "Try 1 succeeded (the clocks disagree on how long it ran)." == texts[3]
    assert "In all it waited 1 min for a worker." == texts[4]


def test_no_events_have_no_explanation() -> None:
    assert [] == explain([])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0123, "12 ms"),
        (0.9999, "1000 ms"),
        (1, "1 s"),
        (9.94, "9.9 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (7260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time(seconds: float, expected: str) -> None:
    assert expected == span(timedelta(seconds=seconds))
