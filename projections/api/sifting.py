"""Jobs found by what no index of a table knows: its rows are looked through from the newest on, so many at a time.

No answer costs more than its budget, and each says how far it has looked and where to go on: nothing is left out in silence,
and nothing is too old to be found.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from jobevents.census import Census
from jobevents.errors import Corrupt, NotFound
from jobevents.status import State
from jobevents.store import JobRun, RunFilter
from projections.index import cursor_after, id_in
from projections.manifest import OTHER

MAX_ROWS: Final = 50_000  # that one answer looks through
BUDGET_S: Final = 0.8  # after which it says how far it has come
_STEP: Final = 500  # rows of a read
_STATES: Final = frozenset(map(str, State))


class Choice(NamedTuple):
    """Values of which a row must have one, or none."""

    key: str  # state, command, queue, id, root, worker, actor, error, args.PLACE, or "" for a word
    values: tuple[str, ...]
    is_not: bool = False


class Sieve(msgspec.Struct, frozen=True, kw_only=True):
    """What a row must have; what is empty does not restrict. Texts are compared without regard to case."""

    worker: str = ""  # somewhere in the identity of its worker
    actor: str = ""  # somewhere in who queued it, or who canceled it
    error: str = ""  # somewhere in its error's text or kind
    args: tuple[
        tuple[str, str], ...
    ] = ()  # (keys with dots between them, what is there in the params, as `shown` has them)
    words: tuple[str, ...] = ()  # each somewhere in id, kind, error, what it is doing, or its title
    took: Callable[[int], bool] | None = None  # of the milliseconds that its last attempt took, or runs already
    choices: tuple[Choice, ...] = ()  # each is met

    def __bool__(self) -> bool:
        """Tell whether it holds anything back."""
        return bool(self.worker or self.actor or self.error or self.args or self.words or self.took or self.choices)


class Sifted(msgspec.Struct, frozen=True):
    """What was found, and how far that is from all."""

    runs: list[JobRun]  # newest first
    looked: int  # rows that were looked through
    down_to: datetime | None  # creation of the last one; None: there was none
    cursor: str  # where to go on; "" when all were looked through


def sift(
    census: Census,
    filter: RunFilter,
    sieve: Sieve,
    *,
    cursor: str,
    limit: int,
    now: datetime,
    title_of: Callable[[str], str],
    shown: Callable[[Any], Any] = lambda params: params,
    monotonic: Callable[[], float] = time.monotonic,
) -> Sifted:
    """Look through the rows that an index finds.

    Args:
        filter: what an index finds; its page does not count.
        cursor: where a former answer stopped; "" begins.
        limit: at most so many are returned.
        now: what running jobs have taken until.
        title_of: a job's title, which rows have not; raises NotFound for one that is gone.
        shown: params as whoever asks may read them: nothing else of them is found.
    """
    ends = monotonic() + BUDGET_S
    found: list[JobRun] = []
    looked, place = 0, id_in(cursor) if cursor else ""
    last: JobRun | None = None
    while looked < MAX_ROWS and len(found) < limit and (monotonic() < ends or not looked):
        rows = census.after(filter, place, _STEP)
        for run in rows:
            looked, last, place = looked + 1, run, run.id
            if _passes(run, sieve, now, title_of, shown):
                found.append(run)
            if len(found) == limit or monotonic() >= ends:
                break
        if not rows or (len(rows) < _STEP and last is rows[-1]):  # the end of the table
            return Sifted(found, looked, last.created_at if last else None, "")
    return Sifted(found, looked, last.created_at if last else None, cursor_after(place))


def _passes(
    run: JobRun,
    sieve: Sieve,
    now: datetime,
    title_of: Callable[[str], str],
    shown: Callable[[Any], Any],
) -> bool:
    if not (
        _within(sieve.worker, run.worker_id)
        and (_within(sieve.actor, run.triggered_by) or _within(sieve.actor, run.canceled_by))
        and _within(sieve.error, _error(run))
    ):
        return False
    if sieve.took is not None:
        took = _took_ms(run, now)
        if took is None or not sieve.took(took):
            return False
    if sieve.args:
        params = shown(run.params)
        if not all(_at(params, place, text.casefold()) for place, text in sieve.args):
            return False
    with_title = [one for one in sieve.choices if not one.key]
    if not all(_meets(run, one, shown) for one in sieve.choices if one.key):
        return False
    missing = [word for word in sieve.words if not _says(run, word)]
    if not missing and not with_title:
        return True
    try:
        title = title_of(run.id)
    except NotFound:
        return False
    except Corrupt:  # it may have been meant: whoever shows it says why it cannot be read
        return True
    return all(_within(word, title) for word in missing) and all(
        any(_says(run, word) or _within(word, title) for word in one.values) is not one.is_not for one in with_title
    )


def _meets(run: JobRun, choice: Choice, shown: Callable[[Any], Any]) -> bool:
    return any(_has(run, choice.key, value, shown) for value in choice.values) is not choice.is_not


def _has(run: JobRun, key: str, value: str, shown: Callable[[Any], Any]) -> bool:
    match key:
        case "state":
            return run.status == value or (value == OTHER and run.status not in _STATES)
        case "command":
            return run.job_name == value
        case "queue":
            return run.queue == value
        case "id":
            return run.id.startswith(value)
        case "root":
            return value in (run.id, run.replay_of, run.root_id)
        case "worker":
            return _within(value, run.worker_id)
        case "actor":
            return _within(value, run.triggered_by) or _within(value, run.canceled_by)
        case "error":
            return _within(value, _error(run))
        case _:
            return _at(shown(run.params), key.removeprefix("args."), value.casefold())


def _error(run: JobRun) -> str:
    return f"{run.error.code}: {run.error.message}" if run.error else ""


def _says(run: JobRun, word: str) -> bool:
    return any(_within(word, text) for text in (run.id, run.job_name, _error(run), run.progress_message))


def _at(value: Any, place: str, text: str) -> bool:
    """Tell whether a JSON value has a text at a place: somewhere in a string, or all of a number, true, false or null."""
    if place:
        if isinstance(value, Mapping):
            return any(
                _at(value[key], place[len(key) + 1 :], text)
                for key in value
                if place == key or place.startswith(f"{key}.")  # a key may have dots itself
            )
        if isinstance(value, Sequence) and not isinstance(value, str):
            head, _, rest = place.partition(".")
            return head.isascii() and head.isdigit() and int(head) < len(value) and _at(value[int(head)], rest, text)
        return False
    if isinstance(value, str):
        return text in value.casefold()
    if isinstance(value, Mapping | Sequence):
        return False
    return bool(text == msgspec.json.encode(value).decode())


def _within(part: str, text: str) -> bool:
    return part.casefold() in text.casefold()


def _took_ms(run: JobRun, now: datetime) -> int | None:
    if run.started_at is None:
        return None
    if run.finished_at is None:
        return int((now - run.started_at).total_seconds() * 1000) if run.status == "running" else None
    return run.duration_ms
