"""What readings come to: median and spread, ratios of neighbouring repetitions, and whether what must hold does."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from benchmarks.model import AtLeast, Hold, Place, Result, Under

_QUANTILES = {"fastest": 0.0, "median": 0.5, "p99": 0.99}
_UNDER = {
    "seconds": "s",
    "median": "(in the unit of its row) in the middle",
    "most": "(in the unit of its row) at most",
    "peak_mb": "MB at its peak",
}
_OF: dict[str, Callable[[Sequence[float]], float]] = {"seconds": min, "median": median, "most": max}  # noise only adds

Results: TypeAlias = Mapping[Place, Result]


class Spread(NamedTuple):
    """The middle of several figures, and how far apart they are."""

    median: float
    low: float
    high: float


class Verdict(NamedTuple):
    """What became of a Hold."""

    hold: Hold
    text: str  # what must hold, for people
    found: float | None  # the ratio or figure; None: a contender gave none
    holds: bool


def spread(figures: Sequence[float]) -> Spread:
    """Return median, least and greatest of 1..n figures."""
    return Spread(median(figures), min(figures), max(figures))


def quantile(figures: Sequence[float], of: float) -> float:
    """Return the least of 1..n figures that so large a part of them does not exceed."""
    return sorted(figures)[max(0, math.ceil(of * len(figures)) - 1)]


def times_as_fast(fast: Result, than: Result, *, cpu: bool = False) -> float | None:
    """Return how many times as fast (or as small) one is as another; None when either has no readings.

    The median over pairs of neighbouring repetitions: what slows the machine down for a while slows both.
    """
    pairs = list(zip(fast.readings, than.readings, strict=False))
    ratios = [(b.cpu_s / a.cpu_s if a.cpu_s else 0.0) if cpu else b.figure / a.figure for a, b in pairs]
    return median(ratios) if ratios else None


def _times_by(fast: Result, than: Result, part: float) -> float | None:
    """Return how many times as fast one is as another at a quantile of each; None when either has no readings."""
    if not fast.readings or not than.readings:
        return None
    slower, faster = (quantile([reading.figure for reading in one.readings], part) for one in (than, fast))
    return slower / faster


def judge(hold: Hold, results: Results) -> Verdict | None:
    """Return whether a Hold holds; None when its row was not measured."""
    match hold:
        case AtLeast(fast, times, than, by):
            if fast not in results or than not in results:
                return None
            pair = results[fast], results[than]
            found = times_as_fast(*pair) if by == "pairs" else _times_by(*pair, _QUANTILES[by])
            text = f"{fast} at least {times:g} x as fast as {than}{'' if by == 'pairs' else f' by {by}'}"
            return Verdict(hold, text, found, found is not None and found >= times)
        case Under(place, what, bound):
            if place not in results:
                return None
            result = results[place]
            figures = [reading.figure for reading in result.readings]
            found = result.peak_mb if what == "peak_mb" else _OF[what](figures) if figures else 0.0
            figure = found or None
            text = f"{place} under {bound:g} {_UNDER[what]}"
            return Verdict(hold, text, figure, figure is not None and figure < bound)


def by_place(row: str, results: Sequence[Result]) -> dict[Place, Result]:
    """Return a row's results by their places."""
    return {Place(row, result.contender.name): result for result in results}
