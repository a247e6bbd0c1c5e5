"""The relay over the log in Postgres: every event reaches the bus, from a place that never skips."""

import threading

import pytest

from jobevents import connect
from jobevents.bus import InProcessBus
from tests.test_relay import bus as bus  # a fixture
from tests.test_relay import everything, received, test_every_event_reaches_the_bus_by_itself, work

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services

__all__ = ["test_every_event_reaches_the_bus_by_itself"]


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty log in Postgres."""
    return postgres_url


def test_prj_03_writers_of_many_connections_skip_nothing(url: str, bus: InProcessBus) -> None:
    """PRJ-03: whoever commits late, the place does not pass over what is not there yet."""
    with connect(url, bus=bus) as one, connect(url, bus=bus) as other:
        threads = [
            threading.Thread(target=work, args=(jobs, 15, name))
            for name, jobs in (("a", one), ("b", other), ("c", one), ("d", other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = everything(one)

    got = sorted(set(received(bus)))
    assert 180 == len(expected)
    assert expected == got
