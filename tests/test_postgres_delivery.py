"""Dispatch and erasure over Postgres: the same tests, over another URL."""

from collections.abc import Iterator

import pytest

from jobevents.jobs import Jobs
from jobevents.wiring import connect
from tests import test_dispatch, test_erase
from tests.clock import Clock
from tests.test_dispatch import TaskQueue

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def log_url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


@pytest.fixture
def logged(log_url: str, clock: Clock) -> Iterator[Jobs]:
    """Jobs over it, with statuses."""
    with connect(log_url, clock=clock, inline=True) as made:
        yield made


queue = test_dispatch.queue  # fixtures
served = test_dispatch.served

test_an_external_job_is_handed_over = test_dispatch.test_an_external_job_is_handed_over_after_its_event
test_nothing_is_left_but_the_tombstone = test_erase.test_nothing_is_left_but_the_tombstone
test_the_receipt_counts_what_went = test_erase.test_the_receipt_counts_what_went
test_a_proof_holds = test_erase.test_a_proof_holds
test_sto_01_a_late_worker_does_not_bring_it_back = test_erase.test_sto_01_a_late_worker_does_not_bring_it_back
test_what_it_was_is_not_known_any_more = test_erase.test_what_it_was_is_not_known_any_more


def test_a_crash_between_event_and_task_loses_nothing(log_url: str, queue: TaskQueue, clock: Clock) -> None:
    """DEL-14, as over the other logs: by the index over the external jobs that wait."""
    with connect(log_url, clock=clock) as jobs:
        lost = jobs.submit("render", external=True)
        jobs.submit("render")
        jobs.submit("render", external=True, delay=3600)
        clock.move(90)

        found = test_dispatch.sweeper(jobs, queue, clock).sweep()

        assert (1, [(lost, 1)]) == (found, queue.made)


def test_the_receipt_says_what_postgres_keeps(logged: Jobs) -> None:
    """Whoever runs the database has to do the rest."""
    receipt = test_erase.finish(logged, test_erase.lived(logged))

    assert any("VACUUM FULL" in note for note in receipt.notes)


def test_the_events_of_an_erased_job_are_not_in_the_table(logged: Jobs) -> None:
    """Nor in any other of the schema."""
    test_erase.finish(logged, test_erase.lived(logged))

    database = logged.log.recorder.database  # type: ignore[attr-defined]  # a PostgresRecorder
    tables = [row[0] for row in database.query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
    found = {
        (name, hexed): database.query(f'SELECT count(*) FROM "{name}" AS one WHERE one::text LIKE %s', (f"%{hexed}%",))[
            0
        ][0]
        for name in tables
        for hexed in (test_erase.SECRET, test_erase.SECRET.encode().hex())
    }

    assert {0} == set(found.values())
