"""The runner over the log in Postgres: what it promises over a file, it promises here."""

import inspect

import pytest

from tests import test_periodic, test_runner, test_runner_queues, test_runner_stops
from tests.test_runner_queues import archive as archive  # fixtures
from tests.test_runner_queues import lists as lists
from tests.test_runner_queues import swift as swift

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


for _module in (test_runner, test_runner_stops, test_runner_queues, test_periodic):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and "runners" in inspect.signature(_test).parameters:
            globals()[_name] = _test
