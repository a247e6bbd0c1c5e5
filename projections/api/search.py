"""The typed search of pages, command line and API, pure: `state:failed command:render duration:>30s "no space"` and its parts.

state:failed        one of the six, or `other`        queue:slow  command:render   exactly this one
id:render-2026      what the id begins with           root:ID   this job, its new runs, and those of these
worker:w1  actor:ana  error:"no space"   somewhere in it
args.song:7  args.user.name:ana   what a job was given, at that place
after:-15m          created then or later, an instant with its zone, a day (UTC), or -15m (s, m, h, d)
before:2026-11-28   created then or earlier           duration:>30s   also <, >=, <=; 250ms, 30s, 5m, 1h30m, 2d
words "two words"   all of them somewhere in id, command, title, error or what it is doing

state:failed,canceled  error:"a, b",disk   any of these, of each key but times and lengths; a comma in quotes is a comma
-queue:slow  -word     none that has it
Parts side by side must all hold.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

import msgspec

from jobevents.boundary import check_name, did_you_mean
from jobevents.errors import InvalidValue
from jobevents.ids import shown
from jobevents.store import RunFilter
from projections.api.listing import STATES
from projections.api.sifting import Choice, Sieve
from projections.asof import parse as parse_moment
from projections.manifest import OTHER

KEYS: Final = ("state", "command", "queue", "id", "root", "worker", "actor", "error", "after", "before", "duration")
ONE: Final = KEYS[-3:]  # that have one value
SEARCH_LIMIT: Final = 1000  # characters

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"?'
_VALUE: Final = rf"(?:{_QUOTED}|[^\s\",][^\s,]*)?"
_TOKEN: Final = re.compile(
    rf'\s*(-(?=\S))?(?:([a-z]+|args\.[^\s:".,][^\s:"]*):({_VALUE}(?:,{_VALUE})*)|({_QUOTED}|[^\s"]\S*))'
)
_ONE_VALUE: Final = re.compile(_VALUE).match
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN: Final = re.compile(r'[^\s"\\][^\s]*').fullmatch
_OPERATORS: Final = ("AND", "OR", "NOT", "&&", "||", "|")
_ARGS: Final = "args."
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d").fullmatch
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}").fullmatch
_LENGTH: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIONS: Final = (">=", "<=", ">", "<")

Relation = Literal[">=", "<=", ">", "<"]


class InvalidSearch(InvalidValue):
    """The search cannot be understood; the message says where and what would be."""


class Term(NamedTuple):
    """One part of a search."""

    key: str  # one of KEYS; "" for a word
    values: tuple[str, ...]  # as they are meant: without quotes; one of a word
    is_not: bool = False  # it begins with a minus
    unknown: str = ""  # what stands where a key would, of a word that may be meant as none


class Length(NamedTuple):
    """How long a run is to have taken."""

    relation: Relation
    ms: int

    def holds(self, ms: int) -> bool:
        """Tell whether a time fits."""
        match self.relation:
            case ">=":
                return ms >= self.ms
            case "<=":
                return ms <= self.ms
            case ">":
                return ms > self.ms
            case "<":
                return ms < self.ms


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for; what is empty does not restrict."""

    state: str = ""
    command: str = ""
    queue: str = ""
    id: str = ""
    root: str = ""
    worker: str = ""
    actor: str = ""
    error: str = ""
    after: str = ""  # as it was written; `instant` says when
    before: str = ""
    duration: str = ""  # as it was written; `length` says how long
    args: tuple[tuple[str, str], ...] = ()  # (place within the params, such as user.name, what is there)
    words: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()  # what is one of several, or not to be


def terms(text: str) -> Iterator[Term]:
    """Yield the parts of a search as they stand; a key that is none of ours makes a word of it, which says so."""
    place = 0
    while found := _TOKEN.match(text, place):
        place = found.end()
        is_not, key, raw, unknown = bool(found[1]), found[2] or "", found[3] or "", ""
        if key and (key in KEYS or key.startswith(_ARGS)):
            yield Term(key, tuple(_plain(one) for one in _split(raw)), is_not)
            continue
        if key:
            unknown = "" if raw.startswith("//") else key  # an address is a word
            word = f"{key}:{raw}"
        else:
            word = _plain(found[4])
            unknown = word if found[4] in _OPERATORS else ""
        if word:
            yield Term("", (word,), is_not, unknown)


def _split(raw: str) -> Iterator[str]:
    """Yield the values between commas, as they are written."""
    place = 0
    while found := _ONE_VALUE(raw, place):
        yield found[0]
        place = found.end() + 1
        if found.end() == len(raw):
            return


def _plain(raw: str) -> str:
    """Return what a value means."""
    if raw[:1] != '"':
        return raw
    return _ESCAPED.sub(r"\1", raw[1:].removesuffix('"') if _is_closed(raw) else raw[1:])


def parse(text: str, now: datetime) -> Search:
    """Return what a text looks for.

    Args:
        now: aware; what `after:-15m` counts from.

    Raises:
        InvalidSearch: a part of it cannot be understood, or is there twice.
    """
    if len(text) > SEARCH_LIMIT:
        raise InvalidSearch(f"search is too long characters={len(text)} limit={SEARCH_LIMIT}")
    found: dict[str, str] = {}
    words: list[str] = []
    args: list[tuple[str, str]] = []
    choices: list[Choice] = []
    for term in terms(text):
        _check_term(term)
        key, first = term.key, term.values[0]
        is_there = key in found or any(one.key == key and not one.is_not for one in choices)
        if key and is_there and not term.is_not and not key.startswith(_ARGS):
            raise InvalidSearch(f"{key}: is in the search twice; give it once, as {key}:a,b for either of two")
        if term.is_not or len(term.values) > 1:
            choices.append(Choice(key, term.values, term.is_not))
        elif not key:
            words.append(first)
        elif key.startswith(_ARGS):
            args.append((key.removeprefix(_ARGS), first))
        else:
            found[key] = first
    search = Search(**found, args=tuple(args), words=tuple(words), choices=tuple(choices))
    _check(search, now)
    return search


def write(search: Search) -> str:
    """Return the text that `parse` reads as this search."""
    parts = [f"{key}:{quoted(value)}" for key in KEYS if (value := getattr(search, key))]
    parts += [f"{_ARGS}{place}:{quoted(value)}" for place, value in search.args]
    for one in search.choices:
        values = ",".join(quoted(value, is_word=not one.key) for value in one.values)
        parts.append(f"{'-' * one.is_not}{one.key}{':' * bool(one.key)}{values}")
    return " ".join([*parts, *(quoted(word, is_word=True) for word in search.words)])


def changed(search: Search, **values: str) -> Search:
    """Return a search with other values of some keys, in the place of all that it said of these."""
    kept = tuple(one for one in search.choices if one.key not in values)
    return msgspec.structs.replace(search, choices=kept, **values)


def said(search: Search, key: str) -> list[str]:
    """Return all values that a search has of a key, those that shall not be among them."""
    alone = [value] if (value := getattr(search, key)) else []
    return [*alone, *(value for one in search.choices if one.key == key for value in one.values)]


def instant(text: str, now: datetime) -> datetime:
    """Return when `after:` or `before:` means: a day begins in UTC.

    Raises:
        InvalidSearch: it is no instant.
    """
    try:
        if _DAY(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        moment = parse_moment(text, now)
    except ValueError:
        moment = None
    except InvalidValue:
        moment = None
    if moment is None or moment.instant is None:
        raise InvalidSearch(
            f"no instant value={shown(text)}; write -15m, 2026-11-28, or 2026-11-28T09:14Z with its zone"
        )
    return moment.instant


def length(text: str) -> Length:
    """Return what `duration:` means.

    Raises:
        InvalidSearch: it is no length of time.
    """
    relation = next((one for one in _RELATIONS if text.startswith(one)), "")
    rest = text.removeprefix(relation)
    parts = _LENGTH.findall(rest)
    if not relation or not parts or "".join(number + unit for number, unit in parts) != rest:
        raise InvalidSearch(f"no length of time duration={shown(text)}; write >30s, <=250ms or >1h30m")
    total = sum(float(number) * _UNIT_MS[unit] for number, unit in parts)
    return Length(relation, round(total))  # type: ignore[arg-type]  # one of _RELATIONS


def filter_of(search: Search, now: datetime) -> RunFilter:
    """Return what of a search an index of a table knows."""
    either = next((one.values for one in search.choices if one.key == "state" and not one.is_not), ())
    states = (search.state,) if search.state else either
    return RunFilter(
        job=search.command,
        statuses=() if OTHER in states else states,
        queue=search.queue,
        from_=instant(search.after, now) if search.after else None,
        to=instant(search.before, now) if search.before else None,
        prefix=search.id,
    )


def sieve_of(search: Search, *, of_past: bool = False) -> Sieve:
    """Return what of a search no index of a table knows; nothing where the index of all jobs knows all of it.

    Args:
        of_past: it is looked for in the log, and not in a table.
    """
    is_other = search.state == OTHER and search != Search(state=OTHER) and not of_past  # a table has no such state
    root = (Choice("root", (search.root,)),) if search.root else ()
    return Sieve(
        worker=search.worker,
        actor=search.actor,
        error=search.error,
        args=search.args,
        words=search.words,
        took=length(search.duration).holds if search.duration else None,
        choices=(*search.choices, *root, *((Choice("state", (OTHER,)),) if is_other else ())),
    )


def quoted(value: str, *, is_word: bool = False) -> str:
    """Return a value, or a word, as it is written in a search: in quotes where it has to be."""
    if is_word:
        plain = not value.startswith("-") and not re.match(r"[a-z.]+[^\s:]*:", value) and value not in _OPERATORS
    else:
        plain = "," not in value
    if plain and _PLAIN(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_term(term: Term) -> None:
    if term.unknown in _OPERATORS:
        raise InvalidSearch(
            f"{term.unknown} is no part of a search: all its parts must hold, state:failed,canceled is either of two, "
            f'-queue:slow is not; to look for the text itself put it in quotes: "{term.unknown}"'
        )
    if term.unknown:
        raise InvalidSearch(
            f"no such key in the search key={shown(term.unknown)}{did_you_mean(term.unknown, KEYS)}; "
            f"to look for the text itself put it in quotes: {quoted(term.values[0], is_word=True)}"
        )
    if term.key and not all(term.values):
        what = f"{term.key}:" if len(term.values) == 1 else f"a comma of {term.key}:"
        raise InvalidSearch(f"nothing stands behind {what} in the search; give it a value or leave it out")
    if term.key in ONE and (term.is_not or len(term.values) > 1):
        raise InvalidSearch(f"{term.key}: has one value, and no - before it")


def _check(search: Search, now: datetime) -> None:
    for state in said(search, "state"):
        if state not in STATES:
            raise InvalidSearch(f"no such state={shown(state)}; use one of {', '.join(filter(None, STATES))}")
    for start in [*said(search, "id"), *said(search, "root")]:
        if not _ID(start):
            raise InvalidSearch(f"no start of a job id={shown(start)}; ids have A-Z a-z 0-9 - _")
    try:
        for key in ("command", "queue"):
            for name in said(search, key):
                check_name(key, name)
    except InvalidValue as error:
        raise InvalidSearch(str(error)) from error
    for text in (search.after, search.before):
        if text:
            instant(text, now)
    if search.duration:
        length(search.duration)


def _is_closed(raw: str) -> bool:
    """Tell whether a quoted text ends with a quote that is not escaped."""
    body = raw[1:]
    return body.endswith('"') and (len(body) - 1 - len(body[:-1].rstrip("\\"))) % 2 == 0
