"""Each guard of projecting from hints and sweeps is needed: taken away, a life of two replicas ends wrong."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from projections.arrears import Arrears
from projections.hints import Hints
from projections.inlet import Inlet
from projections.mending import Mender
from projections.sweeper import Sweeper
from tests.hinting import Clouded, live_through

SEEDS = range(250)  # at most; the first that ends wrong is enough


def never_sweep(patch: pytest.MonkeyPatch) -> None:
    """Rely on messages alone."""
    patch.setattr(Sweeper, "sweep", lambda self: 0)
    patch.setattr(Sweeper, "hurry", lambda self: None)


def publish_nothing_that_was_found(patch: pytest.MonkeyPatch) -> None:
    """Save views of events that no message told of."""
    patch.setattr(Inlet, "_tell", lambda self, *args: None)


def owe_nothing(patch: pytest.MonkeyPatch) -> None:
    """Forget what could not be published while the bus was away."""
    patch.setattr(Arrears, "pay", lambda self: 0)


def pass_over_tombstones(patch: pytest.MonkeyPatch) -> None:
    """Fold a late message of a job without a look at what came after it; and take what is listed as known for right."""
    patch.setattr(
        Hints,
        "_read",
        lambda self, job_id, known, last: self._inlet.log.read_raw(job_id, after=known, until=last),
    )
    patch.setattr(Mender, "__call__", lambda self, job_id: None)


def keep_an_end_that_was_met_to_itself(patch: pytest.MonkeyPatch) -> None:
    """Leave the index alone where a status was found to be gone; and take what is listed as known for right."""
    patch.setattr(Inlet, "catch_up", lambda self, job_id: None)
    patch.setattr(Sweeper, "_catch_up", lambda self, one: 0)


def mark_no_end(patch: pytest.MonkeyPatch) -> None:
    """Take the end of every deleted job for published."""
    patch.setattr(Arrears, "is_settled", lambda self, job_id: True)


@pytest.mark.parametrize(
    "take_away",
    [
        never_sweep,
        publish_nothing_that_was_found,
        owe_nothing,
        pass_over_tombstones,
        keep_an_end_that_was_met_to_itself,
        mark_no_end,
    ],
    ids=lambda guard: guard.__name__,
)
def test_a_guard_bites(take_away: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, one of the lives that all end right with it does not."""
    take_away(monkeypatch)

    assert any(_ends_wrong(seed) for seed in SEEDS)


def _ends_wrong(seed: int) -> bool:
    world: Any = Clouded()
    try:
        live_through(world, random.Random(seed))
    except AssertionError:
        return True
    finally:
        world.close()
    return False
