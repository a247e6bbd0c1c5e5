"""Fixtures for the API: an app over each log, and jobs with a past.

A test module says `pytest_plugins = ("tests.api_fixtures",)`.
"""

from collections.abc import Iterator

import pytest

from jobevents.jobs import Jobs
from projections.api import create_app
from tests.api import Past, fill
from tests.http import Client, client_of


@pytest.fixture
def past(jobs: Jobs) -> Past:
    return fill(jobs)


@pytest.fixture
def api(jobs: Jobs) -> Iterator[Client]:
    """The API over each log; what is followed ends when all that there is has been sent."""
    with client_of(create_app(jobs, stream_s=0)) as client:
        yield client
