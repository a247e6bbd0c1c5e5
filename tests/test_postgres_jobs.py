"""What jobs promise in memory and in SQLite, they promise in Postgres: the same tests, over another URL."""

import pytest

from jobevents.store import RunFilter
from jobevents.wiring import connect
from tests import test_attempt, test_boundary, test_commands
from tests.over import over_the_url
from tests.racers import Racers
from tests.test_attempt import race_for_starts
from tests.test_commands import submit_keys

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


for _module in (test_attempt, test_boundary, test_commands):
    globals().update(over_the_url(_module))
zone = test_boundary.zone  # a fixture of some of them


def test_ide_01_four_processes_with_one_key_make_one_job(racers: Racers, url: str) -> None:
    """IDE-01: twenty keys, each raced for: every process is told the same ids, and there are no other jobs."""
    answers = racers.run(submit_keys, url, 20)

    with connect(url) as jobs:
        assert 1 == len({tuple(answer) for answer in answers})
        assert 20 == len(set(answers[0])) == jobs.runs.list(RunFilter()).total


def test_of_two_hundred_races_between_processes_each_has_one_winner(racers: Racers, url: str) -> None:
    """Four processes ask for each job at once: the append decides, and one is granted."""
    with connect(url) as jobs:
        ids = jobs.submit_many([{"name": "render"}] * 200)

        won = racers.run(race_for_starts, url, ids)

        assert sorted(ids) == sorted(job_id for one in won for job_id in one)
        assert {2} == {len(jobs.history(job_id)) for job_id in ids}
