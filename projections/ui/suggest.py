"""What may come next in the search: keys, then the values that there are. Pure, but for the reading of those."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from jobevents.errors import JobEventsError
from jobevents.store import RunFilter
from projections.api import search
from projections.api.listing import STATES
from projections.api.questions import Questions
from projections.api.shapes import Filter

MOST: Final = 12
_DEEP: Final = 3  # keys below each other in params that are offered
_SHORT: Final = 60  # characters of a value that is offered
_PLACE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}").fullmatch
RECENT: Final = 300  # rows whose values are offered

_ABOUT: Final = {
    "state": "one of the six states",
    "command": "exactly this kind of job",
    "queue": "exactly this queue",
    "id": "what the id begins with",
    "root": "this job and its new runs",
    "worker": "somewhere in its worker",
    "actor": "who queued or canceled it",
    "error": "somewhere in its error",
    "after": "created since: -15m, 2026-11-28, an instant",
    "before": "created until: -15m, 2026-11-28, an instant",
    "duration": "how long it took: >30s, <=250ms, >1h30m",
}
_TIMES: Final = (
    ("-15m", "a quarter of an hour ago"),
    ("-1h", "an hour ago"),
    ("-1d", "a day ago"),
    ("-7d", "a week ago"),
)
_LENGTHS: Final = ((">1s", ""), (">30s", ""), (">5m", ""), (">1h", ""), ("<1s", ""))
_SIFTED: Final = ("root", "worker", "actor", "error", "duration")  # need a table, as `queue` does
_FILTER_OF: Final = {"id": "q", "after": "since", "before": "until", **dict.fromkeys(_SIFTED, "queue")}


class Suggestion(msgspec.Struct, frozen=True):
    """One thing that may be chosen."""

    label: str  # what is shown
    about: str  # what it means, or why it cannot be used
    text: str  # the whole field once it is chosen
    caret: int  # where to go on typing
    more: bool = False  # whether a value comes next
    disabled: bool = False


class Suggestions(msgspec.Struct, frozen=True):
    """What is offered."""

    items: list[Suggestion]


def known_values(questions: Questions) -> dict[str, list[tuple[str, str]]]:
    """Return the values of keys, each with what to say of it, from the counts and the newest rows.

    Raises:
        Unavailable, PermissionDenied, Corrupt: what the store says.
    """
    queues: Counter[str] = Counter()
    states: Counter[str] = Counter()
    for one in questions.standing.tally().value:
        queues[one.queue] += one.jobs
        states[one.state] += one.jobs
    args: dict[str, Counter[str]] = {}
    found: dict[str, Counter[str]] = {"command": Counter(), "worker": Counter(), "actor": Counter(), "error": Counter()}
    desk = questions.jobs.desk
    if questions.jobs.registry is not None:
        found["command"].update({one.name: 0 for one in questions.jobs.registry})
    for run in desk.census.after(RunFilter(), "", RECENT) if desk is not None else ():
        found["command"][run.job_name] += 1
        found["worker"][run.worker_id] += 1
        found["actor"].update({run.triggered_by, run.canceled_by})
        found["error"][run.error.code if run.error else ""] += 1
        for place, text in _scalars(questions.mask.value(run.params)):
            args.setdefault(f"args.{place}", Counter())[text] += 1
    values = {
        key: [(text, f"{n} of the newest {RECENT}") for text, n in of.most_common() if text]
        for key, of in found.items()
    }
    places = sorted(args, key=lambda place: (-args[place].total(), place))[:MOST]
    values["args"] = [(place, f"given to {args[place].total()} of the newest {RECENT}") for place in places]
    for place in places:
        values[place] = [(text, f"{n} of the newest {RECENT}") for text, n in args[place].most_common(MOST)]
    values["state"] = [
        (state, f"{states[state]:,} jobs" if state != "other" else "any other text") for state in STATES if state
    ]
    values["queue"] = [(queue, f"{jobs:,} jobs") for queue, jobs in queues.most_common() if queue]
    values["after"] = values["before"] = list(_TIMES)
    values["duration"] = list(_LENGTHS)
    return values


def _scalars(value: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the places of short values within params that are objects, with their texts."""
    if isinstance(value, Mapping) and depth < _DEEP:
        for key in itertools.islice(value, MOST):
            if _PLACE(key):
                yield from _scalars(value[key], f"{place}.{key}" if place else key, depth + 1)
    elif place and isinstance(value, str | int | float | None):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) <= _SHORT:
            yield place, text


def suggest(
    text: str, caret: int, values: Mapping[str, Sequence[tuple[str, str]]], filters: Mapping[str, Filter]
) -> list[Suggestion]:
    """Return what may stand at the caret.

    Args:
        values: by key, each with what to say of it.
        filters: what the log can filter, as `Listing.filters` says.
    """
    before, after = text[:caret], text[caret:]
    start = _start_of_part(before)
    part = before[start:]
    minus, part = ("-", part[1:]) if part.startswith("-") else ("", part)
    key, colon, begun = part.partition(":")

    def made(label: str, about: str, put: str, *, more: bool = False, disabled: bool = False) -> Suggestion:
        whole = before[:start] + put + ("" if more else " ") + after.lstrip()
        return Suggestion(
            label, about, whole.rstrip() if more and not after else whole, start + len(put) + (not more), more, disabled
        )

    if colon and (key in search.KEYS or (key.startswith("args.") and key in values)):
        begin = _start_of_value(begun)
        wanted, others = begun[begin:].strip('"').casefold(), minus + key + colon + begun[:begin]
        fitting = [(value, about) for value, about in values.get(key, ()) if wanted in value.casefold()]
        return [made(value, about, others + search.quoted(value)) for value, about in fitting[:MOST]]
    used = {term.key for term in search.terms(text) if not term.is_not}
    found = [_key(one, made, filters, minus) for one in _fitting(part, used, minus)]
    for place, about in values.get("args", ()):
        if place.startswith(part):
            found.append(made(f"{minus}{place}:", about, f"{minus}{place}:", more=True))
    return found[:MOST]


def _fitting(part: str, used: Iterable[str], minus: str) -> list[str]:
    among = [key for key in search.KEYS if not (minus and key in search.ONE)]
    return [key for key in among if key.startswith(part) and key not in used]


def _key(key: str, made: Callable[..., Suggestion], filters: Mapping[str, Filter], minus: str) -> Suggestion:
    filter = filters.get(_FILTER_OF.get(key, key), Filter(True, ""))
    about = (f"not {_ABOUT[key]}" if minus else _ABOUT[key]) if filter.available else filter.reason
    return made(f"{minus}{key}:", about, f"{minus}{key}:", more=True, disabled=not filter.available)


def _start_of_part(before: str) -> int:
    """Return where the part begins in which the caret stands: after the last blank that is not quoted."""
    return _after_last(before, str.isspace)


def _start_of_value(begun: str) -> int:
    """Return where, behind its key, the value begins in which the caret stands: after the last comma that is not quoted."""
    return _after_last(begun, ",".__eq__)


def _after_last(text: str, ends: Callable[[str], bool]) -> int:
    start, is_quoted = 0, False
    for place, character in enumerate(text):
        if character == '"':
            is_quoted = not is_quoted
        elif ends(character) and not is_quoted:
            start = place + 1
    return start


def answer(questions: Questions, text: str, caret: int) -> Suggestions:
    """Return what may come next; without values where these cannot be read, since the list itself says why."""
    try:
        values = known_values(questions)
    except JobEventsError:
        values = {}
    return Suggestions(suggest(text, caret, values, questions.listing.filters()))
