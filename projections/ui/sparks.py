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


def _path(counts: Sequence[int], below: Sequence[float], unit: float) -> str:
    return "".join(
        f"M{place * _STEP},{HEIGHT - below[place]:g}v-{count * unit:g}h{_STEP - 1}v{count * unit:g}z"
        for place, count in enumerate(counts)
        if count
    )
