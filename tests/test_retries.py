"""How long a job waits before its next try."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents.errors import Misconfigured
from jobevents.retries import Exponential


def test_the_wait_doubles_up_to_its_limit() -> None:
    """Before try n it is base times 2^(n-2): the second try after the base, the first one at once after that."""
    assert [1, 2, 4, 8, 10, 10] == [Exponential(base_s=1, most_s=10)(attempt) for attempt in range(2, 8)]


@pytest.mark.parametrize("base_s", [0.0, 1e-9, 1.0, 1e300])
def test_ret_03_the_wait_never_overflows(base_s: float) -> None:
    """RET-03: at any number of tries it is a number from 0 to the limit, and never less than before."""
    backoff = Exponential(base_s=base_s, most_s=3600)

    waits = [backoff(attempt) for attempt in (-1, 0, 1, 2, 3, 47, 64, 1023, 1024, 1025, 100_000, 2**70)]

    assert sorted(waits) == waits
    assert all(0 <= wait <= 3600 for wait in waits)


@given(st.integers(-10, 10**6), st.floats(0, 1), st.text())
def test_ret_03_jitter_only_takes_away(attempt: int, jitter: float, seed: str) -> None:
    """RET-03: with jitter the wait stays above its part, below the limit, and is the same for the same job and try."""
    backoff = Exponential(jitter=jitter)
    full = Exponential()(attempt)

    wait = backoff(attempt, seed)

    assert full * (1 - jitter) <= wait <= full
    assert backoff(attempt, seed) == wait


def test_jobs_that_failed_together_part() -> None:
    """With jitter, each job draws its own wait."""
    seeds = [f"job-{random.random()}" for _ in range(50)]

    assert 40 < len({Exponential(jitter=0.5)(9, seed) for seed in seeds})


@pytest.mark.parametrize(
    "given_", [{"base_s": -1}, {"most_s": float("nan")}, {"jitter": 1.1}, {"base_s": float("inf")}]
)
def test_what_is_no_backoff_is_refused(given_: dict[str, float]) -> None:
    """A negative, an endless or a wrong number is told at once, not at the first failure."""
    with pytest.raises(Misconfigured, match="backoff needs"):
        Exponential(**given_)
