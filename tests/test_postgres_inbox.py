"""Jobs submitted in a user's own transaction on Postgres, by each kind of connection; their rows joined with the user's."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobevents.jobs import Jobs
from jobevents.testing import Clock
from jobevents.wiring import connect
from tests import test_inbox
from tests.over import over_the_url
from tests.postgres_server import Cluster
from tests.test_inbox import Begin
from tests.test_queue import taken

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


@pytest.fixture
def jobs(url: str, clock: Clock) -> Iterator[Jobs]:
    """Jobs over an empty log in Postgres, by the standing clock."""
    with connect(url, clock=clock) as made:
        yield made


@pytest.fixture
def begin(postgres: Cluster) -> Iterator[Begin]:
    """Connections to the database, which find our tables; closed in the end."""
    made: list[Any] = []

    def begin() -> psycopg.Connection[Any]:
        made.append(psycopg.connect(postgres.url(), options="-c search_path=shared"))
        return made[-1]

    yield begin
    for connection in made:
        connection.close()


@pytest.fixture
def engine(postgres: Cluster) -> Iterator[sa.Engine]:
    """A user's engine, with a table of theirs."""
    made = sa.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:"))
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id int PRIMARY KEY, job_id text NOT NULL)")
    yield made
    with made.begin() as connection:
        connection.exec_driver_sql("DROP TABLE orders")
    made.dispose()


globals().update(over_the_url(test_inbox))


def test_an_open_transaction_holds_nobody_up(jobs: Jobs, begin: Begin) -> None:
    """While a transaction with a job in it stays open, jobs are submitted, handed out and finished by others as ever."""
    theirs = begin()
    late = jobs.submit("render", connection=theirs)
    began = monotonic()

    job_ids = [jobs.submit("render") for _ in range(20)]
    for reservation in jobs.queue.reserve(limit=99, timeout_s=0):
        with jobs.attempt(reservation.run.id):
            pass
    took_s = monotonic() - began
    theirs.commit()

    assert {"succeeded"} == {jobs.get(job_id).state for job_id in job_ids}
    assert ([late], True) == (taken(jobs.queue), took_s < 10)


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_commits_both_or_none(jobs: Jobs, engine: sa.Engine, kind: str) -> None:
    """A Connection and a Session of SQLAlchemy carry the job with the user's row, also where the job comes first."""
    for is_kept in (False, True):
        with Session(engine) if kind == "session" else engine.connect() as theirs:
            job_id = jobs.submit("render", connection=theirs)
            theirs.execute(sa.text("INSERT INTO orders VALUES (1, :job_id)"), {"job_id": job_id})
            if is_kept:
                theirs.commit()

    assert [job_id] == taken(jobs.queue)


def test_sqlalchemy_commits_a_job_alone(jobs: Jobs, engine: sa.Engine) -> None:
    """A transaction of which SQLAlchemy saw nothing but our row is committed all the same."""
    with engine.connect() as theirs:
        job_id = jobs.submit("render", connection=theirs)
        theirs.commit()

    assert [job_id] == taken(jobs.queue)


class DjangoLike:
    """What a connection of Django's looks like, whose driver's connection is opened when it is needed."""

    connection: psycopg.Connection[Any] | None = None

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    def ensure_connection(self) -> None:
        """Open it."""
        self.connection = self.connection or self._begin()


def test_django_commits_a_job(jobs: Jobs, begin: Begin) -> None:
    """A connection of Django's carries the job by the driver's connection under it."""
    theirs = DjangoLike(begin)
    job_id = jobs.submit("render", connection=theirs)
    assert theirs.connection is not None
    theirs.connection.commit()

    assert [job_id] == taken(jobs.queue)


# behaviour T10: the rows are the user's to join

ORDERS = """
SELECT orders.id, run.status, run.result ->> 'seconds'
FROM orders JOIN shared.job_runs AS run ON run.id = orders.job_id
WHERE run.job_name = 'render' ORDER BY orders.id
"""


def test_t10_runs_are_joined_with_a_table_of_the_users(jobs: Jobs, engine: sa.Engine) -> None:
    """In plain SQL and in SQLAlchemy, with our table reflected as it is."""
    with engine.begin() as theirs:
        for number in (1, 2):
            job_id = jobs.submit("render", connection=theirs)
            theirs.execute(sa.text("INSERT INTO orders VALUES (:id, :job_id)"), {"id": number, "job_id": job_id})
    (first, _) = jobs.queue.reserve(limit=2, timeout_s=0)
    with jobs.attempt(first.run.id) as attempt:
        attempt.result({"seconds": 7})
    tables = sa.MetaData()
    orders = sa.Table("orders", tables, autoload_with=engine)
    runs = sa.Table("job_runs", tables, schema="shared", autoload_with=engine)

    with engine.connect() as reader:
        plain = [tuple(row) for row in reader.exec_driver_sql(ORDERS)]
        wanted = sa.select(orders.c.id, runs.c.status).join(runs, runs.c.id == orders.c.job_id).order_by(orders.c.id)
        built = [tuple(row) for row in reader.execute(wanted)]

    assert [(1, "succeeded", "7"), (2, "queued", None)] == plain
    assert [(1, "succeeded"), (2, "queued")] == built
