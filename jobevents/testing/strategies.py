"""Hypothesis strategies for those who test with jobevents: any text and JSON, single drafts, and legal histories.

Needs Hypothesis, which comes with `jobevents[test]`; nothing else of jobevents.testing imports this module.
"""

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec
from hypothesis import strategies as st

from jobevents.assertions import RunChanges, RunError
from jobevents.errors import IllegalTransition
from jobevents.events import (
    EVENT_TYPES,
    Event,
    JobAnnotated,
    JobDeleted,
    JobFailed,
    JobImported,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import CAUSES, DELETED, NEW, Job, check, fold
from jobevents.status import State, is_reserved

Draft: TypeAlias = partial[Event]
"""An event but for the common fields; call it with `job_id`, `version`, `id` and `at`."""

_NAMES = "abcdefghijklmnopqrstuvwxyz_"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_ALL_CAUSES = sorted(set().union(*CAUSES.values()))
_MOST_EVENTS = 12  # of a history: a longer one tells no more and shrinks slowly


def any_texts(max_size: int = 40) -> st.SearchStrategy[str]:
    """Any Python text: control characters and lone surrogates too, which no store can hold."""
    return st.text(st.characters(), max_size=max_size)


def texts(max_size: int = 40) -> st.SearchStrategy[str]:
    """Text that encodes to UTF-8."""
    return st.text(st.characters(codec="utf-8"), max_size=max_size)


def names(max_size: int = 12) -> st.SearchStrategy[str]:
    """Names of jobs, queues, keys and triggers: text without control characters, never empty."""
    return st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=max_size
    )


def json_values(max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """JSON values that encode and decode to themselves: 64-bit integers, finite floats, storable text."""
    leaves = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    )
    return st.recursive(
        leaves | texts(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(8), inner, max_size=4),
        max_leaves=max_leaves,
    )


def instants() -> st.SearchStrategy[datetime]:
    """Aware datetimes in UTC, years 1 to 9999."""
    return st.datetimes(timezones=st.just(UTC))


def fields() -> st.SearchStrategy[dict[str, Any]]:
    """Service fields: flat, under names that are not those of the common ones."""
    names = st.text(_NAMES, min_size=1, max_size=12).filter(lambda name: not is_reserved(name))
    values = texts() | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.none()
    return st.dictionaries(names, values, max_size=3)


def run_changes() -> st.SearchStrategy[RunChanges]:
    """What a JobStore's caller may assert beside the state and its times."""
    errors = st.builds(RunError, code=texts(12), status=st.integers(0, 599), message=texts(), fields=fields())
    return st.builds(
        lambda given: RunChanges(**given),
        st.fixed_dictionaries(
            {},
            optional={
                "params": json_values(),
                "result": json_values(),
                "error": st.none() | errors,
                "attempt": st.integers(1, 100),
                "duration_ms": st.integers(0, 10**9),
                "capture_logs": st.sampled_from(["", "off", "failure", "always"]),
                "triggered_by": texts(12),
                "updated_at": instants(),
            },
        ),
    )


def states() -> st.SearchStrategy[str]:
    """States that a record may assert: ours, and any other text."""
    return st.sampled_from([state.value for state in State]) | texts(12).filter(lambda text: text not in (NEW, DELETED))


def drafts(*types: type[Event]) -> st.SearchStrategy[Draft]:
    """Single drafts of any type, or of one of `types`, legal or not in whatever state they meet; their starts are 0 to 5."""
    return st.sampled_from(types or tuple(EVENT_TYPES.values())).flatmap(_any_draft)


def _any_draft(cls: type[Event]) -> st.SearchStrategy[Draft]:
    chosen = {
        "start": st.integers(0, 5),
        "cause": st.sampled_from(_ALL_CAUSES),
        "retry_at": st.none() | instants(),
    }
    rules = {name: values for name, values in chosen.items() if name in cls.__struct_fields__}
    return st.builds(
        lambda details, ruled: partial(cls, **details, **ruled), _details(cls), st.fixed_dictionaries(rules)
    )


@st.composite
def histories(
    draw: st.DrawFn, *, job_id: str = "job-1", min_size: int = 1, max_size: int = _MOST_EVENTS
) -> list[Event]:
    """Histories of one job that obey TRANSITIONS: 1..n events, as they were before they were stored (without chain).

    Each step asks `job.check` which moves are legal and takes one of them. A tombstone ends a history early.
    """
    job = Job(job_id=job_id)
    events: list[Event] = []
    length = draw(st.integers(min_size, max_size))
    while len(events) < length:
        legal = moves(job)
        if len(events) + 1 < min_size:
            legal = [move for move in legal if move.func is not JobDeleted]
        if not legal:
            break
        event = _completed(draw, draw(st.sampled_from(legal)), job)
        check(job, event)
        events.append(event)
        job = fold([event], job)
    return events


def moves(job: Job) -> list[Draft]:
    """Return what `check` allows next: a draft with the least fields for each type, start, cause and kind of failure."""
    return [move for move in _every_move(job) if _is_legal(job, move)]


def _every_move(job: Job) -> Sequence[Draft]:
    found: list[Draft] = []
    for cls in EVENT_TYPES.values():
        least = partial(cls, **_least(cls, job))
        found += (
            [partial(least, start=start) for start in {0, job.start}] if "start" in cls.__struct_fields__ else [least]
        )
    return [wide for narrow in found for wide in _variants(narrow)]


def _variants(draft: Draft) -> list[Draft]:
    if draft.func is JobRequeued:
        return [partial(draft, cause=cause) for cause in _ALL_CAUSES]
    if draft.func is JobFailed:
        return [draft, partial(draft, retry_at=_EPOCH)]
    return [draft]


def _is_legal(job: Job, move: Draft) -> bool:
    try:
        check(job, move(job_id=job.job_id, version=job.version + 1, id="", at=_EPOCH))
    except IllegalTransition:
        return False
    return True


def _least(cls: type[Event], job: Job) -> dict[str, Any]:
    """Return the fields without which an event of this type cannot be made, or would not be legal."""
    least: dict[type[Event], dict[str, Any]] = {
        JobQueued: {"name": "render"},
        JobStarted: {"attempt": job.tries + 1},
        JobProgressed: {"percent": 0},
        JobFailed: {"error": "boom"},
        JobRequeued: {"cause": "retry"},
        TransitionRefused: {"tried": "JobSucceeded", "state": job.state},
        JobRecorded: {"state": job.state if job.version else State.RUNNING.value},
        JobImported: {"state": State.RUNNING.value},
    }
    return least.get(cls, {})


def _completed(draw: st.DrawFn, move: Draft, job: Job) -> Event:
    """Return an event made of a legal move, the details that no rule looks at drawn."""
    details = draw(_details(move.func))
    if move.func is JobStarted:
        details.pop("attempt")  # counted, not drawn
    if move.func is JobRecorded and job.state in (State.SUCCEEDED, State.CANCELED):
        details.pop("state")
    if move.keywords.get("retry_at") is not None:
        details["retry_at"] = draw(instants())
    return move(job_id=job.job_id, version=job.version + 1, **draw(_common()), **details)


@functools.cache
def _common() -> st.SearchStrategy[dict[str, Any]]:
    ids = st.text("0123456789abcdef", min_size=24, max_size=24)
    return st.fixed_dictionaries({"id": ids, "at": instants(), "actor": texts(12), "reason": texts(12)})


@functools.cache
def _details(cls: type[Event]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the fields of a type that no rule of `check` looks at, but for `start`, `cause` and `retry_at`."""
    when = st.none() | instants()
    recorded = st.fixed_dictionaries(
        {},
        optional={
            "title": texts(),
            "command": texts(12),
            "error": texts(),
            "attempts": st.integers(0, 100),
            "queued_at": instants().map(_as_text),
        },
    )
    flat = st.builds(lambda common, own: {**common, **own}, recorded, fields())
    details: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
        JobQueued: {
            "name": names(),
            "params": json_values(),
            "title": texts(),
            "queue": names(),
            "key": st.just("") | names(),
            "scheduled_at": when,
            "priority": st.integers(-(2**15), 2**15 - 1),
            "max_attempts": st.integers(1, 2**15 - 1),
            "external": st.booleans(),
        },
        JobStarted: {
            "attempt": st.integers(1, 100),
            "worker": texts(12),
            "deadline": when,
            "late": st.booleans(),
        },
        JobProgressed: {"percent": st.integers(0, 100) | st.floats(0, 100), "message": texts()},
        JobAnnotated: {"title": texts(), "command": texts(12), "fields": fields()},
        JobSucceeded: {"result": json_values()},
        JobFailed: {
            "error": texts(),
            "kind": texts(12),
            "traceback": texts(),
            "tail": st.lists(texts(12), max_size=3).map(tuple),
        },
        JobRequeued: {"scheduled_at": when},
        TransitionRefused: {"tried": st.sampled_from(sorted(EVENT_TYPES)), "state": states(), "detail": texts()},
        JobRecorded: {"state": states(), "changes": flat, "run": st.none() | run_changes()},
        JobImported: {"state": states(), "record": flat},
        JobDeleted: {"artifacts": st.booleans()},
    }
    return st.fixed_dictionaries(details.get(cls, {}))


def _as_text(when: datetime) -> str:
    text: str = msgspec.to_builtins(when)
    return text
