"""What ended lately, as a small picture for each queue or kind of job: from the newest events, for what they reach back. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from projections.api.recent import Noted

SPAN: Final = timedelta(hours=1)
BARS: Final = 30
HEIGHT: Final = 16  # units of the picture
_STEP: Final = 4  # units of a bar, its gap included
WIDTH: Final = BARS * _STEP
_GOOD: Final = frozenset({"JobSucceeded", "JobCanceled", "JobSkipped"})


class Spark(msgspec.Struct, frozen=True):
    """One picture."""

    ended: int
    failed: int  # of them
    most: int  # in a bar
    good_path: str  # SVG
    bad_path: str  # below it


class Sparks(msgspec.Struct, frozen=True):
    """The pictures of all."""

    since: datetime | None  # when they begin; None: there are no events
    of: Mapping[str, Spark]  # by queue or kind; what ended none in that time is not there


def sparks(noted: Sequence[Noted], now: datetime, by: Literal["queue", "kind"]) -> Sparks:
    """Return the pictures of what ended in the last hour, or since the oldest event that is there.

    A job counts where the event that queued it is there too: of another nobody here knows its kind.

    Args:
        noted: in the order of their log.
    """
    if not noted:
        return Sparks(None, {})
    since = max(now - SPAN, min(noted[0].at, now))
    step = max(timedelta(seconds=1), now - since) / BARS
    names: dict[str, str] = {}
    counted: dict[str, list[list[int]]] = {}
    for one in noted:
        if one.type == "JobQueued":
            names[one.job_id] = one.queue if by == "queue" else one.note
        is_bad = one.type == "JobFailed" and one.due is None
        if not (is_bad or one.type in _GOOD) or one.at < since or one.job_id not in names:
            continue
        bars = counted.setdefault(names[one.job_id], [[0] * BARS, [0] * BARS])
        bars[is_bad][min(BARS - 1, int((one.at - since) / step))] += 1
    return Sparks(since, {name: _spark(*bars) for name, bars in counted.items()})


class Trend(msgspec.Struct, frozen=True):
    """How long the last runs of a kind took, the newest on the right."""

    runs: int
    half_ms: float  # half of them took no longer
    most_ms: float
    width: int  # units of the picture
    good_path: str  # SVG
    bad_path: str


def trend(took: Sequence[tuple[float, bool]]) -> Trend | None:
    """Return the picture of runs, oldest first, each by its milliseconds and whether it failed; None for less than two."""
    if len(took) < 2:
        return None
    most = max(ms for ms, _ in took)
    unit = HEIGHT / most if most else 0.0
    heights = [max(ms, most / HEIGHT) for ms, _ in took]  # one unit at least, so that each is to be seen
    below = [0.0] * len(took)
    good = [height * (not failed) for height, (_, failed) in zip(heights, took, strict=True)]
    bad = [height * failed for height, (_, failed) in zip(heights, took, strict=True)]
    return Trend(
        len(took),
        sorted(ms for ms, _ in took)[(len(took) - 1) // 2],
        most,
        len(took) * _STEP,
        _path(good, below, unit),
        _path(bad, below, unit),
    )


def _spark(good: Sequence[int], bad: Sequence[int]) -> Spark:
    most = max(map(sum, zip(good, bad, strict=True)))
    unit = HEIGHT / most
    return Spark(
        sum(good) + sum(bad),
        sum(bad),
        most,
        _path(good, [count * unit for count in bad], unit),
        _path(bad, [0.0] * BARS, unit),
    )


def _path(counts: Sequence[float], below: Sequence[float], unit: float) -> str:
    return "".join(
        f"M{place * _STEP},{HEIGHT - below[place]:g}v-{count * unit:g}h{_STEP - 1}v{count * unit:g}z"
        for place, count in enumerate(counts)
        if count
    )
