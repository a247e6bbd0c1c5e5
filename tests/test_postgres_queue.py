"""The store and the queue over the log in Postgres: what they promise in a file, they promise here."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from jobevents.backends.postgres import migrate
from jobevents.backends.postgresclaims import SET, PostgresClaims
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgresschema import MIGRATIONS, VERSION, check
from jobevents.backends.postgressession import Session
from jobevents.backends.postgresurl import parse
from jobevents.backends.sql import RUN_COLUMNS
from jobevents.commands import Submission
from jobevents.errors import Misconfigured
from jobevents.jobs import Jobs
from jobevents.queue import JobQueue, Reservation
from jobevents.store import JobStore
from jobevents.testing import Clock, JobQueueContract, JobStoreContract
from jobevents.testing.jobqueue_threads import AT_ONCE_S, PATIENCE_S, waiting
from jobevents.testing.outages import Restart, Snapshot, reader_of
from jobevents.testing.runs import Elapse, run
from jobevents.wiring import connect
from tests import test_jobstore, test_queue
from tests.over import over_the_url
from tests.postgres_server import Cluster
from tests.racers import Racers
from tests.test_jobstore import fill
from tests.test_queue import drain, submit_late, taken

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services

Admin = psycopg.Connection[tuple[Any, ...]]


class ServersClock(Clock):
    """A clock whose moves the claims in the database feel, too: the server's own cannot be moved, so they grow older."""

    def __init__(self, admin: Admin) -> None:
        super().__init__()
        self._admin = admin

    def move(self, seconds: float) -> datetime:
        """Go on by `seconds`; set back, it leaves the claims as they are."""
        past = timedelta(seconds=max(0.0, seconds))
        self._admin.execute("UPDATE shared.job_claims SET claimed = claimed - %s, until = until - %s", (past, past))
        return super().move(seconds)


@pytest.fixture
def admin(postgres: Cluster) -> Iterator[Admin]:
    """A connection of the superuser."""
    with postgres.connect() as connection:
        yield connection


@pytest.fixture
def clock(admin: Admin) -> Clock:
    """A clock that stands still until it is moved."""
    return ServersClock(admin)


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


@pytest.fixture
def jobs(url: str, clock: Clock) -> Iterator[Jobs]:
    """Jobs over an empty log in Postgres, by the standing clock."""
    with connect(url, clock=clock) as made:
        yield made


for _module in (test_jobstore, test_queue):
    globals().update(over_the_url(_module))


class TestPostgresStore(JobStoreContract):
    """The store over the log in Postgres keeps the contract."""

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        return jobs.store

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, url: str) -> Snapshot:
        return reader_of(url)

    @pytest.fixture
    def restart(self, postgres: Cluster) -> Restart:
        return postgres.crash


class TestPostgresQueue(JobQueueContract):
    """The queue that is the table of runs in Postgres keeps the contract."""

    loops = 300  # each is a commit that waits for the disk

    @pytest.fixture
    def queue(self, jobs: Jobs) -> JobQueue:
        self.jobs = jobs
        return jobs.queue

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, url: str) -> Snapshot:
        return reader_of(url)

    @pytest.fixture
    def restart(self, postgres: Cluster) -> Restart:
        return postgres.crash

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        with self.jobs.attempt(reservation.run.id):
            pass
        reservation.ack()


def test_rsv_01_processes_on_one_database_never_get_the_same(url: str, racers: Racers) -> None:
    """RSV-01: four processes of two threads share a database: each job is handed out once, and no error is seen."""
    with connect(url) as jobs:
        job_ids = jobs.submit_many([Submission(name="render", params=n) for n in range(400)])

    handled = Counter(job_id for some in racers.run(drain, url) for job_id in some)

    assert dict.fromkeys(job_ids, 1) == handled


@pytest.mark.parametrize("text", ["12:00:01.123456+00", "17:30:01.123456+05:30", "12:00:01+00", "12:00:01.000001+00"])
def test_rsv_06_a_time_written_by_sql_is_claimed(jobs: Jobs, clock: Clock, admin: Admin, text: str) -> None:
    """RSV-06: a due time that a user set in plain SQL, to the microsecond and in any zone, hands out its run then."""
    job_id = jobs.submit("render", delay=3600)
    admin.execute("UPDATE shared.job_runs SET scheduled_at = %s WHERE id = %s", (f"2026-08-01 {text}", job_id))
    due = datetime.fromisoformat(f"2026-08-01 {text}").astimezone(UTC)

    clock.move((due - clock()).total_seconds() - 0.000_001)
    early = taken(jobs.queue)
    clock.move(0.000_001)

    assert ([], [job_id]) == (early, taken(jobs.queue))


def test_another_process_wakes_who_waits_by_notify(url: str, racers: Racers) -> None:
    """A blocked reserve hears of a job submitted elsewhere long before it would look again."""
    got, began, *_ = racers.run(submit_late, url)

    assert got - began < AT_ONCE_S


def test_a_commit_that_brings_no_run_wakes_nobody_who_waits_for_one(url: str) -> None:
    """Who waits for runs is told of those alone: not of what all the others have to say of theirs."""
    with connect(url) as jobs, connect(url) as other:
        claims: Any = jobs.desk.claims  # type: ignore[union-attr]  # a log in Postgres has one
        claim, looks = claims.claim, []
        claims.claim = lambda *asked, **more: looks.append(asked) or claim(*asked, **more)  # type: ignore[func-returns-value]
        with other.attempt("mine") as attempt:
            jobs.queue.reserve(timeout_s=0.1)  # from now on it listens
            with waiting(lambda: jobs.queue.reserve(timeout_s=PATIENCE_S)) as answer:
                for number in range(40):
                    attempt.annotate(number=number)
                late = other.submit("render")

                assert [late] == [reservation.run.id for reservation in answer()]

        assert len(looks) < 20  # a few polls, on a slow machine


def test_a_held_row_is_passed_over(jobs: Jobs, admin: Admin) -> None:
    """A user's transaction that has locked a run's row keeps nobody from the others, and has nobody wait."""
    held, free = (jobs.submit("render") for _ in range(2))
    with admin.transaction():
        admin.execute("SELECT 1 FROM shared.job_runs WHERE id = %s FOR UPDATE", (held,))

        meanwhile = taken(jobs.queue)

    assert ([free], [held]) == (meanwhile, taken(jobs.queue))


def test_a_held_snapshot_in_postgres_holds_nobody_up(jobs: Jobs, admin: Admin) -> None:
    """While somebody reads the tables in a transaction of their own, runs are submitted, claimed, started and finished."""
    with admin.transaction():
        admin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        admin.execute("SELECT count(*) FROM shared.job_runs")
        job_id = jobs.submit("render")
        (reservation,) = jobs.queue.reserve(timeout_s=0)
        with jobs.attempt(reservation.run.id):
            pass

        assert "succeeded" == jobs.store.get(job_id).status


def test_a_repeated_claim_is_the_same(jobs: Jobs, clock: Clock) -> None:
    """A claim whose reply was lost is made again by the same call, and gets what it had; another call does not."""
    assert jobs.desk is not None
    job_id = jobs.submit("render")
    claim = jobs.desk.claims.claim

    got = [
        [one.job_id for one in claim((), limit=1, now=clock(), lease_s=30, token=token)]
        for token in ("a", "a", "b", "a")
    ]

    assert [[job_id], [job_id], [], [job_id]] == got


def test_a_claim_of_before_the_servers_clock_was_set_back_has_ended(jobs: Jobs, admin: Admin) -> None:
    """A run claimed an hour in the future is not held until then."""
    job_id = jobs.submit("render")
    taken(jobs.queue)
    admin.execute(
        "UPDATE shared.job_claims SET claimed = claimed + interval '1 hour', until = until + interval '1 hour'"
    )

    assert [job_id] == taken(jobs.queue)


# a backlog

_NEW = {
    "id": "kind.name || n",
    "job_name": "kind.name",
    "scheduled_at": "scheduled_at + CASE kind.name WHEN 'later' THEN interval '15 min' ELSE interval '0' END",
}
_FILL = (
    f"INSERT INTO job_runs ({', '.join(RUN_COLUMNS)}) "
    f"SELECT {', '.join(_NEW.get(name, f'r.{name}') for name in RUN_COLUMNS)} "
    "FROM job_runs r, (VALUES ('due'), ('paused'), ('later')) kind(name), generate_series(1, %s) n WHERE r.id = 'first'"
).encode()


def pages_of_claims(session: Session, now: datetime) -> list[int]:
    """Return how many pages Postgres looks at to claim ten runs, of all queues and of one: by the plan that is kept."""
    found = []
    for name, more in (("of_all", ""), ("of_one", ", '{default}'")):
        with session.transaction(force_rollback=True):
            session.execute(SET[0].encode())
            asked = f"EXECUTE {name}(10, '{now.isoformat()}', 30.0, 't', '{{}}', '{{}}'{more})"
            for _ in range(2):  # the first reads the catalog, too
                (plan,) = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {asked}".encode()).fetchall()[0]
        pages = json.loads(plan)[0]["Plan"]
        found.append(int(pages["Shared Hit Blocks"]) + int(pages["Shared Read Blocks"]))
    return found


@pytest.mark.slow
def test_a_claim_costs_the_same_before_200_000_runs(postgres_blank: str, postgres: Cluster, clock: Clock) -> None:
    """The pages read for a claim do not grow with what waits, is paused or wanted later, whatever the planner knows.

    The plan is of when there was next to nothing, and the planner's figures come once, when there is much.
    """
    migrate(postgres_blank)
    with connect(postgres_blank, clock=clock) as jobs, postgres.connect() as admin:
        recorder: Any = jobs.log.recorder
        claims: PostgresClaims = recorder.desk.claims
        admin.execute(f"SET search_path TO {recorder.database.target.schema}".encode())
        jobs.store.create(run("first", job_name="first"))
        jobs.pause(job="paused")
        admin.execute(_FILL, (10,))
        with recorder.database.connect(5) as session:
            session.execute(f"PREPARE of_all AS {claims.claim_due(some=False)}".encode())
            session.execute(f"PREPARE of_one AS {claims.claim_due(some=True)}".encode())
            few = pages_of_claims(session, clock())

            admin.execute("DELETE FROM job_runs WHERE id <> 'first'")
            admin.execute(_FILL, (200_000 // 3,))
            many = pages_of_claims(session, clock())
            admin.execute("VACUUM ANALYZE job_runs")
            known = pages_of_claims(session, clock())

    allowed = 2 * max(few)  # a level more of each index; a table read through would be thousands
    assert [] == [pages for pages in (*many, *known) if pages > allowed], (few, many, known)


@pytest.mark.slow
def test_the_space_of_what_is_purged_comes_back(postgres_blank: str, admin: Admin) -> None:
    """After the server's vacuum, which comes by itself, what is written next goes where rows and lines were."""
    migrate(postgres_blank)
    schema, clock = parse(postgres_blank).schema, Clock()

    def size() -> int:
        admin.execute(f"VACUUM {schema}.job_runs, {schema}.job_run_logs".encode())
        told = admin.execute(f"SELECT pg_total_relation_size('{schema}.job_run_logs')".encode()).fetchone()
        assert told is not None
        return int(told[0])

    with connect(postgres_blank, clock=clock) as jobs:
        fill(jobs, "first")
        before = size()
        clock.move(60)
        jobs.store.purge(clock(), clock())
        purged = size()
        fill(jobs, "second")
        after = size()

    assert before > 400_000
    assert purged < before / 2
    assert after <= 1.3 * before


def test_a_schema_of_version_1_gets_claims_when_asked(postgres_blank: str, admin: Admin, clock: Clock) -> None:
    """The step adds claims, pauses and the index by which runs are found, and what was queued before is handed out."""
    target = parse(postgres_blank)
    database = PostgresDatabase(target)
    migrate(postgres_blank)
    with connect(postgres_blank, clock=clock) as jobs:
        job_ids = [jobs.submit("render") for _ in range(3)]
    admin.execute(
        f"SET search_path TO {target.schema}; DROP TABLE job_claims, job_paused, job_inbox, job_erasures; "
        "DROP INDEX job_runs_tally, job_runs_ended, job_runs_created, job_runs_undelivered; "
        f"ALTER TABLE job_runs DROP COLUMN place; DELETE FROM job_schema WHERE version > 1".encode()
    )

    with pytest.raises(Misconfigured, match=f"found=1 needed={VERSION}: run `jobevents migrate"):
        check(database)
    applied = migrate(postgres_blank)

    database.close()
    with connect(postgres_blank, clock=clock) as jobs:
        assert ([*MIGRATIONS][1:], job_ids, []) == (applied, taken(jobs.queue), jobs.paused())
