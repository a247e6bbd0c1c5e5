"""Replay: every event again, between bounds, of some jobs or types, read as today's code has them, and into one's own view."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent

from jobevents.errors import InvalidJobId, InvalidValue, NotFound, Unavailable
from jobevents.events import Event, JobQueued, JobStarted
from jobevents.jobs import Jobs
from projections.replay import ReplayStopped, Trouble, fold_into, replay
from tests.clock import START, Clock
from tests.failinglog import failing_jobs
from tests.jobstates import LIVES, bring, tell

OLD = b'{"type":"JobWanted","job_id":"old-1","version":1,"id":"x","at":"2026-07-26T12:00:31Z","kind":"render"}'


@pytest.fixture
def lived(jobs: Jobs) -> Jobs:
    for life in LIVES:
        bring(jobs, life)
    return jobs


class Counting:
    """A view of a user's own: how often each type came."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        if event.type == "JobSkipped":
            raise ValueError("never seen one")
        self.counts[event.type] = self.counts.get(event.type, 0) + 1

    def result(self) -> dict[str, int]:
        return self.counts


def test_every_event_comes_once_in_order(lived: Jobs) -> None:
    """A replay is the log: every event, as it was stored, in the order in which all were committed."""
    assert [record.event() for record in lived.log.scan()] == list(replay(lived))


def test_it_ends_with_what_was_there_when_it_began(jobs: Jobs) -> None:
    """Events that a replay itself brings about do not keep it going."""
    jobs.submit("render")

    seen = [event.job_id for event in replay(jobs) if jobs.submit("render")]

    assert 1 == len(seen)


@pytest.mark.parametrize(("since", "until"), [(None, 4), (4, None), (3, 7), (0, 0), (100, None), (None, 100)])
def test_between_places_in_the_log(lived: Jobs, since: int | None, until: int | None) -> None:
    """After a place, up to and with another."""
    events = [record.event() for record in lived.log.scan()]

    assert events[since or 0 : len(events) if until is None else until] == list(replay(lived, since=since, until=until))


def test_between_instants(jobs: Jobs, clock: Clock) -> None:
    """From an instant on, before another, by the time that events say."""
    for minute in range(4):
        clock.now = START + timedelta(minutes=minute)
        jobs.submit("render", id=f"a-{minute}")

    between = replay(jobs, since=START + timedelta(minutes=1), until=START + timedelta(minutes=3))

    assert ["a-1", "a-2"] == [event.job_id for event in between]


def test_only_some_jobs_and_types(lived: Jobs) -> None:
    """Named jobs come one after the other, each once; types are let through by their names."""
    first, second = (record.job_id for record in lived.log.scan(limit=2))

    of_jobs = list(replay(lived, only=[second, first, second]))

    assert [*lived.history(second), *lived.history(first)] == of_jobs
    assert {"JobStarted"} == {event.type for event in replay(lived, types=["JobStarted"])}
    assert [lived.history(second)[1]] == list(replay(lived, only=[second], types=["JobStarted"]))


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"types": ["JobPuased"]}, InvalidValue, "no such event type"),
        ({"only": ["no-such-job"]}, NotFound, "no such job"),
        ({"only": ["../etc"]}, InvalidJobId, "../etc"),
        ({"since": START.replace(tzinfo=None)}, InvalidValue, "since"),
    ],
)
def test_what_cannot_be_replayed(jobs: Jobs, asked: dict[str, Any], error: type[Exception], says: str) -> None:
    """A wrong question is refused with what is wrong in it."""
    with pytest.raises(error, match=says):
        list(replay(jobs, **asked))


def test_an_old_event_is_read_as_one_of_today(jobs: Jobs) -> None:
    """An upcast makes of a type's JSON what today's code knows, or leaves it out."""
    jobs.log.recorder.insert_events([StoredEvent("old-1", 1, "JobWanted", OLD)])
    jobs.submit("mix", id="new-1")

    def wanted(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "type": "JobQueued", "name": body["kind"]}

    found = list(replay(jobs, upcast={"JobWanted": wanted}))

    assert ["render", "mix"] == [event.name for event in found if isinstance(event, JobQueued)]
    assert ["new-1"] == [event.job_id for event in replay(jobs, upcast={"JobWanted": lambda _: None})]


def test_an_event_that_cannot_be_read_is_named_and_stops(jobs: Jobs) -> None:
    """What no code of today knows ends a replay with its job, version and type; all before it has come."""
    jobs.submit("mix", id="new-1")
    jobs.log.recorder.insert_events([StoredEvent("old-1", 1, "JobWanted", OLD)])
    events: Iterator[Event] = replay(jobs)

    assert "new-1" == next(events).job_id
    with pytest.raises(ReplayStopped, match="job_id=old-1 version=1 type=JobWanted error=Corrupt"):
        next(events)


def test_an_event_that_cannot_be_read_is_named_and_passed_over(jobs: Jobs) -> None:
    """Asked to, a replay names it and goes on."""
    jobs.log.recorder.insert_events([StoredEvent("old-1", 1, "JobWanted", OLD)])
    jobs.submit("mix", id="new-1")
    troubles: list[Trouble] = []

    found = list(replay(jobs, on_trouble=troubles.append))

    assert ["new-1"] == [event.job_id for event in found]
    assert [("old-1", 1, "JobWanted")] == [(one.job_id, one.version, one.type) for one in troubles]


def test_history_folds_into_a_view_of_ones_own(lived: Jobs) -> None:
    """A view takes every event and gives its result; one that it raises at is named, and stops it or not, as asked."""
    troubles: list[Trouble] = []

    done = fold_into(Counting(), replay(lived), on_trouble=troubles.append)

    skipped = next(record for record in lived.log.scan() if record.type == "JobSkipped")
    total = int(lived.log.last_cursor())
    assert (total - 1, 1) == (done.events, done.troubles)
    assert done.events == sum(done.result.values())
    assert [Trouble(skipped.job_id, 2, "JobSkipped", "ValueError: never seen one")] == troubles
    with pytest.raises(ReplayStopped, match=f"job_id={skipped.job_id} version=2") as stopped:
        fold_into(Counting(), replay(lived))
    assert isinstance(stopped.value.cause, ValueError)


def test_trouble_of_the_log_is_not_taken_for_an_events(clock: Clock) -> None:
    """A log that cannot be read ends a replay as itself, whatever was asked for events that cannot."""
    jobs, recorder = failing_jobs(clock)
    job_id = jobs.submit("render")
    troubles: list[Trouble] = []

    with recorder.refusing(), pytest.raises(Unavailable, match="on fire"):
        list(replay(jobs, only=[job_id], on_trouble=troubles.append))

    assert [] == troubles


def test_progress_counts_up_to_the_end(jobs: Jobs) -> None:
    """Who watches hears of the events read, of all, and of jobs where those were asked for."""
    for number in range(3):
        jobs.submit("render", id=f"a-{number}")
    tell(jobs, "a-1", partial(JobStarted, attempt=1))
    seen: list[tuple[int, int]] = []

    list(replay(jobs, since=1, on_progress=lambda done, total: seen.append((done, total))))
    list(replay(jobs, only=["a-0", "a-1"], on_progress=lambda done, total: seen.append((done, total))))

    assert [(3, 3), (1, 2), (2, 2)] == seen
