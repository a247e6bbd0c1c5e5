"""What readings come to: median and spread, ratios of neighbouring repetitions, and whether what must hold does."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from benchmarks.model import AtLeast, Hold, Place, Result, Under

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


def times_as_fast(fast: Result, than: Result, *, cpu: bool = False) -> float | None:
    """Return how many times as fast (or as small) one is as another; None when either has no readings.

    The median over pairs of neighbouring repetitions: what slows the machine down for a while slows both.
    """
    pairs = list(zip(fast.readings, than.readings, strict=False))
    ratios = [(b.cpu_s / a.cpu_s if a.cpu_s else 0.0) if cpu else b.figure / a.figure for a, b in pairs]
    return median(ratios) if ratios else None


def judge(hold: Hold, results: Results) -> Verdict | None:
    """Return whether a Hold holds; None when its row was not measured."""
    match hold:
        case AtLeast(fast, times, than):
            if fast not in results or than not in results:
                return None
            found = times_as_fast(results[fast], results[than])
            text = f"{fast} at least {times:g} x as fast as {than}"
            return Verdict(hold, text, found, found is not None and found >= times)
        case Under(place, what, bound):
            if place not in results:
                return None
            result = results[place]
            seconds = min((reading.figure for reading in result.readings), default=None)
            figure = seconds if what == "seconds" else result.peak_mb or None
            text = f"{place} under {bound:g} {'s' if what == 'seconds' else 'MB at its peak'}"
            return Verdict(hold, text, figure, figure is not None and figure < bound)


def by_place(row: str, results: Sequence[Result]) -> dict[Place, Result]:
    """Return a row's results by their places."""
    return {Place(row, result.contender.name): result for result in results}
