"""Waits between tries are random, grow to a limit and end with the deadline."""

import random

from hypothesis import given
from hypothesis import strategies as st

from jobevents.backoff import Backoff
from tests.fake_time import FakeTime


@given(seed=st.integers(), deadline_s=st.floats(0.1, 100))
def test_waits_within_limits(seed: int, deadline_s: float) -> None:
    """Each wait is at most twice the limit of the one before, none above the most, all within the deadline."""
    time = FakeTime()
    backoff = Backoff(
        deadline_s=deadline_s,
        first_s=0.1,
        most_s=1.0,
        sleep=time.sleep,
        clock=time.clock,
        rng=random.Random(seed),
    )

    tries = backoff.start()
    while tries.pause():
        pass

    limits = [min(0.1 * 2**n, 1.0) for n in range(len(time.sleeps))]
    assert all(0 <= wait <= limit for wait, limit in zip(time.sleeps, limits, strict=True))
    assert sum(time.sleeps) < deadline_s


def test_same_seed_same_waits() -> None:
    """The waits depend on the random source given, so a run can be repeated."""

    def waits(seed: int) -> list[float]:
        time = FakeTime()
        tries = Backoff(sleep=time.sleep, clock=time.clock, rng=random.Random(seed)).start()
        while tries.pause():
            pass
        return time.sleeps

    assert waits(1) == waits(1)
    assert waits(1) != waits(2)


def test_time_left_can_be_a_timeout() -> None:
    """What is left never falls to zero, which a socket would take for "do not block"."""
    time = FakeTime()
    tries = Backoff(deadline_s=5.0, clock=time.clock).start()
    assert 5.0 == tries.left_s

    time.now += 50.0

    assert 0.1 == tries.left_s
