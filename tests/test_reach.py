"""How far a view says that it is: a place, a time, or nothing; and what it has to have of a job then."""

from datetime import timedelta
from functools import partial

import pytest

from jobevents import connect
from jobevents.events import JobStarted, JobSucceeded
from jobevents.jobs import Jobs
from projections.proof import Proof, prove
from projections.reach import NEVER, Reach, read_reach
from tests.clock import START, Clock
from tests.jobstates import tell


@pytest.fixture
def proof(clock: Clock) -> Proof:
    """A job with an event at noon, one a minute later, one two minutes later, at the places 1, 3 and 4."""
    with connect("memory://", clock=clock) as jobs:
        job_id = jobs.submit("render")
        jobs.submit("other")
        for draft in (partial(JobStarted, attempt=1), partial(JobSucceeded, start=2)):
            clock.now += timedelta(minutes=1)
            tell(jobs, job_id, draft)
        return prove(jobs.log.records_of(job_id))


@pytest.mark.parametrize(
    ("reach", "version"),
    [
        (Reach(), 3),
        (Reach(position=1), 1),
        (Reach(position=2), 1),
        (Reach(position=4), 3),
        (Reach(through=NEVER), 0),
        (Reach(through=START), 1),
        (Reach(through=START + timedelta(seconds=90)), 2),
        (Reach(through=START + timedelta(days=1)), 3),
    ],
)
def test_what_a_view_has_to_have(proof: Proof, reach: Reach, version: int) -> None:
    """What was there at its place or its time; everything when it says nothing; on a second look no more than at the first."""
    assert version == reach.owed(proof)
    proof.owed = 2
    assert min(version, 2) == reach.owed(proof)


def test_nothing_is_said_where_no_projector_ever_ran(jobs: Jobs) -> None:
    assert not read_reach(jobs.blobs, jobs.prefix, "status", None).is_said


def test_a_health_that_cannot_be_read_says_nothing(jobs: Jobs) -> None:
    """What keeps a view may be damaged, too, and must not hide that."""
    jobs.blobs.put(jobs.blob_name("ctl/v1/projector/status.json"), b"{")

    assert not read_reach(jobs.blobs, jobs.prefix, "status", None).is_said
