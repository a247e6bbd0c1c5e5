'''A capture as a test: what happened once is folded by the code of today, and must say the same for ever.

    pytest_plugins = ("jobevents.testing.captures",)

    def test_the_deploy_of_november(jobevents_capture):
        """A settlement whose worker was killed is done by another, once."""
        jobs = jobevents_capture("tests/incident.jev")

        assert "succeeded" == jobs.get("settle-20261128-091400-a1").state
        assert 1 == fold_into(MyBookings(), replay(jobs)).result["2026-11-27"]   # of projections.replay: a view of yours

Opening it proves every chain and makes the status and the index of every job; a file that was changed fails the test.
'''

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import pytest

from jobevents.jobs import Jobs
from jobevents.wiring import connect

OpenCapture: TypeAlias = Callable[[Path | str], Jobs]


@pytest.fixture
def jobevents_capture() -> Iterator[OpenCapture]:
    """Opens captures: called with a file, it returns read-only Jobs, closed after the test."""
    with ExitStack() as opened:

        def open_capture(path: Path | str) -> Jobs:
            return opened.enter_context(connect(quote(str(path))))

        yield open_capture
