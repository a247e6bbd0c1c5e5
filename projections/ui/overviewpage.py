"""The page of the whole: what waits, runs and failed, how long it takes, what is stuck, and how far behind the views are."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from jobevents.errors import JobEventsError
from jobevents.job import RUNNING
from jobevents.store import JobRun, RunFilter
from projections.api.problems import refusal_of
from projections.api.questions import Questions
from projections.api.route import Desk, Given, Reply
from projections.api.shapes import Stats
from projections.ui.measures import figures
from projections.ui.render import page
from projections.ui.sparks import sparks

T = TypeVar("T")

RANGES: Final = {"hour": (60, 60), "day": (900, 96), "fortnight": (86_400, 14)}
"""Name -> seconds of a bar, bars."""
STUCK_AFTER: Final = timedelta(hours=1)  # behaviour T12
_STEP: Final = 1000  # rows of running jobs that are looked through
OUTCOMES: Final = ("succeeded", "failed", "canceled", "skipped")


class Part(msgspec.Struct, frozen=True):
    """A part of a page: what was read, or why it could not be."""

    value: Any = None
    problem: str = ""
    is_missing: bool = False  # this kind of log cannot have it, which is no failure


def part(read: Callable[[], Any]) -> Part:
    """Read a part of a page; one that cannot be read does not take the others with it."""
    try:
        return Part(read())
    except JobEventsError as error:
        refusal = refusal_of(error)
        return Part(None, str(error), is_missing=refusal.problem.code == "cannot_filter")


class Stuck(msgspec.Struct, frozen=True):
    """A run that may never end by itself."""

    run: JobRun
    why: str


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page; parts that cannot be read say so."""
    questions, name = desk.questions, given.values["range"] or "hour"
    step, bars = RANGES[name]
    now = questions.jobs.emitter.clock()
    standing = questions.standing
    days = part(lambda: standing.stats(None, 86_400, 14))
    reply = page(
        "overview.html",
        desk,
        given,
        "Overview",
        section="Overview",
        range=name,
        ranges=list(RANGES),
        outcomes=OUTCOMES,
        states=part(lambda: _states(questions)),
        series=part(lambda: _ended(standing.stats(None, step, bars))),
        days=msgspec.structs.replace(days, value=_failures(days.value) if days.value else None),
        waiting=part(lambda: _oldest(questions, now)),
        figures=part(lambda: figures(questions.recent.read())),
        lately=part(lambda: sparks(questions.recent.read(), now, "kind")),
        stuck=part(lambda: stuck(questions, now)),
        projector=part(standing.projector),
        workers=part(lambda: standing.workers().items),
    )
    return msgspec.structs.replace(reply, complete_through=now)


def stuck(questions: Questions, now: datetime) -> list[Stuck]:
    """Return runs that began long ago, are past their deadline, or whose worker is gone: of the newest thousand that run."""
    alive = {worker.worker: worker.is_alive for worker in questions.standing.workers().items}
    found = []
    rows = questions.standing.table().after(RunFilter(statuses=(RUNNING,)), "", _STEP)
    for run in rows:
        if run.worker_id and not alive.get(run.worker_id, False):
            found.append(Stuck(run, "its worker is gone; the reaper of any living worker gives it back"))
        elif run.started_at is not None and now - run.started_at > STUCK_AFTER:
            found.append(Stuck(run, "it has been running for more than an hour"))
    return found


def _states(questions: Questions) -> dict[str, int]:
    states: dict[str, int] = {}
    for one in questions.standing.tally().value:
        states[one.state] = states.get(one.state, 0) + one.jobs
    return states


def _oldest(questions: Questions, now: datetime) -> list[tuple[str, datetime]]:
    """Return the queues with since when they wait, the longest first."""
    return sorted(((one.queue, one.oldest_due) for one in questions.standing.waiting().value), key=lambda pair: pair[1])


def _ended(stats: Stats) -> dict[str, Any]:
    """Return a series for the chart: instants as seconds, and how many ended in each outcome; other states count as failed."""
    bars = stats.series
    return {
        "at": [int(bar.at.timestamp()) for bar in bars],
        "created": [bar.created for bar in bars],
        **{state: [bar.ended.get(state, 0) for bar in bars] for state in OUTCOMES},
        "step": stats.step_s,
        "total": sum(sum(bar.ended.values()) for bar in bars),
    }


def _failures(stats: Stats) -> list[tuple[datetime, int, int]]:
    """Return days, the newest first, with how many jobs failed of how many that ended."""
    return [(bar.at, bar.ended.get("failed", 0), sum(bar.ended.values())) for bar in reversed(stats.series)]
