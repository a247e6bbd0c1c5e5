"""The strategies that are shipped: what they draw is what they say, and nobody who does not use them needs Hypothesis."""

import json
import subprocess
import sys
from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from jobevents import codec
from jobevents.events import EVENT_TYPES, Event
from jobevents.job import DELETED, Job, check, fold
from jobevents.testing import strategies
from tests.clock import START


def test_nothing_else_of_jobevents_testing_needs_hypothesis() -> None:
    """Contracts can be subclassed where it is not installed."""
    asked = "import sys, jobevents.testing; print('hypothesis' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert "False" == said.stdout.strip()


@given(strategies.histories())
def test_histories_are_legal_and_without_holes(events: list[Event]) -> None:
    """Every event passes `check` after those before it."""
    job = Job(job_id="job-1")
    for version, event in enumerate(events, 1):
        assert ("job-1", version) == (event.job_id, event.version)
        check(job, event)
        job = fold([event], job)


def test_every_type_of_event_is_drawn_in_some_history() -> None:
    """No rule of `check` is left out by the walk."""
    drawn: set[str] = set()
    for name in EVENT_TYPES:
        found = find(
            strategies.histories(),
            lambda events, name=name: name in {event.type for event in events},
            settings=settings(max_examples=2000, database=None, phases=[Phase.generate]),
        )
        drawn |= {event.type for event in found}

    assert set(EVENT_TYPES) == drawn


@given(strategies.histories(min_size=5, max_size=8))
def test_a_history_has_the_length_asked_for(events: list[Event]) -> None:
    """Only a tombstone ends one early, and never below the least length."""
    assert 5 <= len(events) <= 8


@given(strategies.histories(), st.data())
def test_moves_are_all_that_may_follow(events: list[Event], data: st.DataObject) -> None:
    """Each move is legal; only a deleted job has none."""
    job = fold(events)
    moves = strategies.moves(job)

    assert (job.state == DELETED) == (not moves)
    for move in moves:
        check(job, move(job_id="job-1", version=job.version + 1, id="", at=START))


@given(strategies.drafts())
def test_a_draft_lacks_the_common_fields_only(draft: Any) -> None:
    """Completed, it is an event that can be stored."""
    event = draft(job_id="job-1", version=1, id="x", at=START)

    assert event == codec.decode(codec.encode(event))


@given(strategies.json_values())
def test_json_values_survive_json(value: Any) -> None:
    """A parser of another make reads what was written."""
    assert value == json.loads(json.dumps(value))
