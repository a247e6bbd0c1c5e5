"""The past of one job and of all: at an instant, after an event, at a place in the log."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import given
from hypothesis import strategies as st

from jobevents import connect
from jobevents.errors import Gone, InvalidValue, NotFound
from jobevents.events import Event, JobStarted, JobSucceeded
from jobevents.job import DELETED, fold
from jobevents.jobs import Jobs
from jobevents.records import status_as
from jobevents.status import Status
from jobevents.testing.strategies import histories, instants
from projections import asof
from projections.asof import Moment, job_at, page, parse, status_at
from tests.clock import START, Clock
from tests.jobstates import LIVES, bring, tell

NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)


@given(histories(), instants())
def test_a_status_of_the_past_is_the_fold_of_a_prefix(events: list[Event], when: datetime) -> None:
    """At any instant, and after any event, the status is that of the events up to one of them, folded."""
    with connect("memory://") as jobs:
        for event in events:
            jobs.log.append([event])
        folds = [fold(events[:version]) for version in range(len(events) + 1)]

        for version in range(1, len(events) + 1):
            assert shown(folds[version]) == past(jobs, version) == past(jobs, Moment(version=version))
        last = max((event.version for event in events if event.at <= when), default=0)
        assert shown(folds[last]) == past(jobs, when) == past(jobs, Moment(instant=when))
        for position in range(1, len(events) + 1):
            assert shown(folds[position]) == past(jobs, Moment(position=position))


def shown(job: Any) -> Status | None:
    return None if not job.version or job.state == DELETED else status_as(Status, job)


def past(jobs: Jobs, when: datetime | int | Moment) -> Status | None:
    try:
        return status_at(jobs, "job-1", when) if isinstance(when, Moment) else jobs.status_at("job-1", when)
    except NotFound:
        return None


@given(st.lists(histories(max_size=6), min_size=1, max_size=4), instants(), st.sampled_from(["", "running", "other"]))
def test_a_page_of_the_past_is_what_each_job_says(lives: list[list[Event]], when: datetime, state: str) -> None:
    """A list at an instant has the jobs that were there then, with the status that each had."""
    with connect("memory://") as jobs:
        for number, events in enumerate(lives):
            for event in events:
                jobs.log.append([renamed(event, f"job-{number}")])
        expected = []
        for number in range(len(lives)):
            try:
                status = jobs.status_at(f"job-{number}", when)
            except NotFound:
                continue
            if not state or asof.sequence_of(status.state) == state:
                expected.append(status)

        found = page(jobs, Moment(instant=when), state)

        assert sorted(expected, key=lambda one: one.job_id, reverse=True) == found.items
        assert len(expected) == found.total


def renamed(event: Event, job_id: str) -> Event:
    import msgspec

    return msgspec.structs.replace(event, job_id=job_id)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-28T09:14Z", Moment(instant=datetime(2026, 11, 28, 9, 14, tzinfo=UTC))),
        ("2026-11-28T10:14+01:00", Moment(instant=datetime(2026, 11, 28, 9, 14, tzinfo=UTC))),
        ("2026-11-28T09:14:05.5Z", Moment(instant=datetime(2026, 11, 28, 9, 14, 5, 500_000, tzinfo=UTC))),
        ("-15m", Moment(instant=NOW - timedelta(minutes=15))),
        ("-2d", Moment(instant=NOW - timedelta(days=2))),
        ("#3", Moment(version=3)),
        ("@1234", Moment(position=1234)),
    ],
)
def test_a_moment_as_it_is_written(text: str, moment: Moment) -> None:
    assert moment == parse(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-28",
        "2026-11-28T09:14",
        "#0",
        "#-1",
        "#x",
        "@",
        "@²",
        "#" + "9" * 30,
        "-999999999d",
        "15m",
    ],
)
def test_what_is_no_moment_says_how_to_write_one(text: str) -> None:
    """Whatever names no moment is refused with the ways to name one."""
    with pytest.raises(InvalidValue, match="2026-11-28T09:14Z, -15m"):
        parse(text, NOW)


def test_a_moment_is_shown_as_it_is_written() -> None:
    assert ["#3", "@4", "2026-11-28T09:30:00Z"] == [
        str(m) for m in (Moment(version=3), Moment(position=4), Moment(NOW))
    ]


def test_a_clock_that_was_behind_hides_no_event_before_it(jobs: Jobs, clock: Clock) -> None:
    """An event that says an earlier time than the one before it shows both: order is by version."""
    job_id = jobs.submit("render")
    clock.now = START + timedelta(minutes=5)
    tell(jobs, job_id, partial(JobStarted, attempt=1))
    clock.now = START + timedelta(minutes=1)
    tell(jobs, job_id, partial(JobSucceeded, start=2))

    assert "succeeded" == jobs.status_at(job_id, START + timedelta(minutes=2)).state
    assert ["succeeded"] == [one.state for one in page(jobs, Moment(START + timedelta(minutes=2))).items]


def test_a_place_in_the_log_is_what_every_reader_saw(jobs: Jobs) -> None:
    """At a position, all jobs are as they were when that event was committed, whatever the clocks say."""
    first, second = jobs.submit("render", id="a-1"), jobs.submit("render", id="b-1")
    tell(jobs, first, partial(JobStarted, attempt=1))

    assert [["a-1"], ["a-1", "b-1"]] == [sorted(ids(jobs, position)) for position in (1, 2)]
    assert "queued" == job_at(jobs, first, Moment(position=2)).state
    assert "running" == job_at(jobs, first, Moment(position=3)).state
    with pytest.raises(NotFound, match="no such job then"):
        job_at(jobs, second, Moment(position=1))


def ids(jobs: Jobs, position: int) -> list[str]:
    return [one.job_id for one in page(jobs, Moment(position=position)).items]


def test_a_job_deleted_since_is_in_the_list_of_before(jobs: Jobs, clock: Clock) -> None:
    """The list of a moment has the jobs of then; a job deleted by then is not among them."""
    job_id = jobs.submit("render")
    clock.now = START + timedelta(hours=1)
    jobs.delete(job_id)

    assert [job_id] == [one.job_id for one in page(jobs, Moment(START)).items]
    assert [] == page(jobs, Moment(START + timedelta(hours=1))).items
    with pytest.raises(Gone):
        job_at(jobs, job_id, Moment(version=2))


def test_pages_are_newest_first_and_stop_at_the_last(jobs: Jobs, clock: Clock) -> None:
    """Pages of the past are cut as those of today; past the end is the last one; filters count what they let through."""
    made = [jobs.submit("render" if number % 2 else "mix", id=f"render-2026072{number}-120000") for number in range(5)]

    newest = made[::-1]
    for number, expected in ((1, newest[:2]), (2, newest[2:4]), (3, newest[4:]), (9, newest[4:]), (0, newest[:2])):
        found = page(jobs, Moment(START), page=number, per_page=2)
        assert (expected, 5) == ([one.job_id for one in found.items], found.total)
    mixes = page(jobs, Moment(START), name="mix", queue="default")
    assert newest[::2] == [one.job_id for one in mixes.items]
    assert [] == page(jobs, Moment(START), queue="slow").items


def test_every_life_is_listed_under_its_state(jobs: Jobs) -> None:
    """Whatever became of a job, it is found under the state that its status says."""
    made = {bring(jobs, life): life for life in LIVES if life != "deleted"}

    for state in (*(s for s in ("queued", "running", "succeeded", "failed", "canceled", "skipped")), "other"):
        listed = {one.job_id for one in page(jobs, Moment(START), state).items}
        assert {job_id for job_id in made if asof.sequence_of(jobs.get(job_id).state) == state} == listed


def test_a_job_that_cannot_be_read_is_named(jobs: Jobs) -> None:
    """It is left out by name, and the others are shown."""
    jobs.submit("render", id="good-1")
    jobs.submit("render", id="hole-1")
    jobs.log.recorder.insert_events([StoredEvent("bad-1", 1, "JobPaused", b"{"), StoredEvent("hole-1", 3, "X", b"{}")])

    found = page(jobs, Moment(START))

    assert ["good-1"] == [one.job_id for one in found.items]
    assert ["bad-1", "hole-1"] == [one.job_id for one in found.left_out]


def test_what_no_list_can_be_of(jobs: Jobs) -> None:
    with pytest.raises(InvalidValue, match="an event of one job"):
        page(jobs, Moment(version=3))
    with pytest.raises(InvalidValue, match="no such state"):
        page(jobs, Moment(START), "runing")


def test_progress_reaches_the_end(jobs: Jobs) -> None:
    """Who watches is told of the last event, too."""
    jobs.submit("render")
    seen: list[tuple[int, int]] = []

    page(jobs, Moment(START), on_progress=lambda done, total: seen.append((done, total)))

    assert (1, 1) == seen[-1]
