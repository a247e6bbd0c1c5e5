"""Trouble that lasts: a growing wait, and a line when it begins and when it is over."""

import logging

import pytest

from jobevents.errors import Unavailable
from jobevents.trouble import Trouble
from tests.clock import Clock


@pytest.fixture
def trouble(clock: Clock) -> Trouble:
    """Trouble by the standing clock."""
    return Trouble("reserving runs", logging.getLogger("tests.trouble"), monotonic=clock.monotonic)


def test_mem_03_the_wait_doubles_up_to_half_a_minute(trouble: Trouble, clock: Clock) -> None:
    """MEM-03: after each wait that did not help; a success resets it."""
    waits = []
    for _ in range(9):
        waits.append(trouble.came(OSError("no route")))
        clock.move(waits[-1])
    trouble.went()

    assert [0.5, 1, 2, 4, 8, 16, 30, 30, 30] == waits
    assert 0 == trouble.wait_s
    assert 0.5 == trouble.came(OSError("no route"))


def test_mem_03_those_who_fail_together_wait_once(trouble: Trouble, clock: Clock) -> None:
    """MEM-03: ten threads that meet the same trouble do not make its wait a thousand times longer."""
    assert {0.5} == {trouble.came(OSError("no route")) for _ in range(10)}


def test_mem_03_a_line_tells_when_it_begins_and_when_it_is_over(
    trouble: Trouble, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """MEM-03: two lines, however long it lasts."""
    for _ in range(100):
        clock.move(trouble.came(OSError("no route")))
    for _ in range(2):
        trouble.went()

    assert [
        "reserving runs failed and is tried again in 0.5 s, then less and less often error=no route",
        "reserving runs works again after 2851.5 s",
    ] == [record.message for record in caplog.records]


@pytest.mark.parametrize(
    ("error", "is_traced"), [(OSError("no route"), False), (Unavailable("locked"), False), (KeyError("x"), True)]
)
def test_only_what_nobody_raises_on_purpose_has_a_traceback(
    trouble: Trouble, caplog: pytest.LogCaptureFixture, error: Exception, is_traced: bool
) -> None:
    """A store that is away says all in its line; a fault of a program shows where it is."""
    trouble.came(error)

    assert [is_traced] == [bool(record.exc_info) for record in caplog.records]
