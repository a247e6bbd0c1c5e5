"""Fixtures for Postgres: a running cluster, and an empty log for each test.

A test module says `pytest_plugins = ("tests.postgres",)`.
"""

import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql

from jobevents.backends.postgres import migrate
from tests.postgres_server import Cluster, NoServer, binaries

DESK = ("job_claims", "job_paused", "job_inbox")  # tables for those who work


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """The running cluster; where none can be started, the tests are skipped aloud, or fail where all is to be tested."""
    with tempfile.TemporaryDirectory(prefix="jobevents-postgres-") as directory:
        try:
            cluster = Cluster(binaries(), Path(directory))
            cluster.make()
        except NoServer as error:
            message = f"the log in Postgres is NOT tested: {error}"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
        try:
            yield cluster
        finally:
            cluster.stop(signal.SIGQUIT)


@pytest.fixture
def postgres_blank(postgres: Cluster) -> Iterator[str]:
    """The URL of a schema that is not there yet; what comes to be in it is gone after the test."""
    schema = f"t_{secrets.token_hex(6)}"
    yield postgres.url(schema=schema)
    with postgres.connect() as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture(scope="session")
def postgres_log(postgres: Cluster) -> str:
    """The URL of a log that all tests share."""
    url = postgres.url(schema="shared")
    migrate(url)
    return url


@pytest.fixture
def postgres_url(postgres: Cluster, postgres_log: str) -> str:
    """The URL of an empty log; emptied rather than made, which is twenty files less to write for each test."""
    with postgres.connect() as connection, connection.transaction():
        for table in ("job_events", "job_tracking", "job_runs", "job_run_logs", "job_workers", "job_blobs", *DESK):
            connection.execute(sql.SQL("DELETE FROM shared.{}").format(sql.Identifier(table)))
        connection.execute("ALTER TABLE shared.job_events ALTER notification_id RESTART")
    return postgres_log
