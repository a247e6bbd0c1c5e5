"""Figures of what happened lately: how long jobs waited and ran, and what was prevented. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from projections.api.recent import Noted
from projections.ui.words import between

QUANTILES: Final = (0.5, 0.95, 0.99)
_ENDS: Final = frozenset({"JobSucceeded", "JobFailed", "JobCanceled", "JobRequeued"})


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, of so many."""

    name: str
    count: int
    p50: float | None = None  # milliseconds
    p95: float | None = None
    p99: float | None = None
    most: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest events say."""

    events: int  # that were looked at
    since: datetime | None  # when the first of them was written
    waits: Spread
    runs: Spread
    by_kind: list[Spread]  # runs by kind of job, those of which most were run first
    refused: int  # outcomes that came too late, and undid nothing
    lost: int  # starts of dead workers, given back
    unreadable: int


def figures(noted: Sequence[Noted], kinds: int = 10) -> Figures:
    """Return the figures of events in the order of their log."""
    due: dict[str, datetime] = {}
    kind: dict[str, str] = {}
    begun: dict[str, datetime] = {}
    waits, runs = list[float](), list[float]()
    of_kind: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for one in noted:
        counts[one.type] += 1
        if one.type == "JobQueued":
            kind[one.job_id] = one.note
        elif one.type == "JobStarted":
            waited = between(due.pop(one.job_id, None), one.at)
            if waited is not None:
                waits.append(waited)
            begun[one.job_id] = one.at
        if one.type in _ENDS:
            ran = between(begun.pop(one.job_id, None), one.at)
            if ran is not None:
                runs.append(ran)
                of_kind.setdefault(kind.get(one.job_id, ""), []).append(ran)
        counts["lost"] += one.type == "JobRequeued" and one.note == "lost"
        counts["unreadable"] += one.note.startswith("cannot be read")
        if one.due is not None:
            due[one.job_id] = one.due
    named = sorted(((name, took) for name, took in of_kind.items() if name), key=lambda pair: (-len(pair[1]), pair[0]))
    return Figures(
        events=len(noted),
        since=noted[0].at if noted else None,
        waits=spread("waited for a worker", waits),
        runs=spread("ran", runs),
        by_kind=[spread(name, took) for name, took in named[:kinds]],
        refused=counts["TransitionRefused"],
        lost=counts["lost"],
        unreadable=counts["unreadable"],
    )


def spread(name: str, values: Iterable[float]) -> Spread:
    """Return quantiles of values: each is one of the values, the least that so many are not above."""
    ordered = sorted(values)
    if not ordered:
        return Spread(name=name, count=0)
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in QUANTILES)
    return Spread(name=name, count=len(ordered), p50=p50, p95=p95, p99=p99, most=ordered[-1])
