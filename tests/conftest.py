"""What every test module shares: a clock that only moves when told, and jobs over each log that needs no server."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from jobevents.jobs import Jobs
from jobevents.wiring import connect
from tests.clock import Clock
from tests.racers import Racers
from tests.runners import Gate, Runners

# Time limits for each example measure the machine, not the code.
settings.register_profile("jobevents", deadline=None, max_examples=int(os.environ.get("JOBEVENTS_EXAMPLES", "50")))
settings.load_profile("jobevents")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest: of two processes that share the tests, neither ends long after the other."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(autouse=True)
def _no_world_outlives_its_test() -> Iterator[None]:
    yield
    projecting = sys.modules.get("tests.projecting")
    if projecting is not None:
        projecting.close_worlds()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until it is moved."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty log: in memory, then in a file."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.fixture
def jobs(url: str, clock: Clock) -> Iterator[Jobs]:
    """Jobs over each log, by the standing clock."""
    with connect(url, clock=clock) as made:
        yield made


@pytest.fixture(scope="session")
def racers() -> Iterator[Racers]:
    """Four processes, started when the first test needs them."""
    with Racers(4) as started:
        yield started


@pytest.fixture
def runners(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runners]:
    """Runners over each log, by the real clock; they stop at the end."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)  # how late a stop is heard
    with connect(url) as opened:
        made = Runners(opened)
        yield made
        made.stop()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A handler at a gate, which is opened at the end at the latest."""
    made = Gate()
    yield made
    made.opened.set()
