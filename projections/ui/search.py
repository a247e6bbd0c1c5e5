"""The typed search of the list: `state:failed command:render duration:>30s "no space"` and its parts. Pure.

state:failed        one of the six, or `other`        queue:slow  command:render   exactly this one
id:render-2026      what the id begins with           worker:w1  actor:ana  error:"no space"   somewhere in it
args.song:7  args.user.name:ana   what a job was given, at that place
after:-15m          created then or later, an instant with its zone, a day (UTC), or -15m (s, m, h, d)
before:2026-11-28   created then or earlier           duration:>30s   also <, >=, <=; 250ms, 30s, 5m, 1h30m, 2d
words "two words"   all of them somewhere in id, command, title, error or what it is doing
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

import msgspec

from jobevents.boundary import check_name, did_you_mean
from jobevents.errors import InvalidValue
from jobevents.ids import shown
from projections.api.listing import STATES
from projections.asof import parse as parse_moment

KEYS: Final = ("state", "command", "queue", "id", "worker", "actor", "error", "after", "before", "duration")
SEARCH_LIMIT: Final = 1000  # characters

_TOKEN: Final = re.compile(r'\s*(?:([a-z]+|args\.[^\s:".][^\s:"]*):)?("(?:[^"\\]|\\.)*"?|[^\s"]\S*|(?=\s|$))')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN: Final = re.compile(r'[^\s"\\][^\s]*').fullmatch
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
    value: str  # as it is meant: without quotes
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
    worker: str = ""
    actor: str = ""
    error: str = ""
    after: str = ""  # as it was written; `instant` says when
    before: str = ""
    duration: str = ""  # as it was written; `length` says how long
    args: tuple[tuple[str, str], ...] = ()  # (place within the params, such as user.name, what is there)
    words: tuple[str, ...] = ()


def terms(text: str) -> Iterator[Term]:
    """Yield the parts of a search as they stand; a key that is none of ours makes a word of it, which says so."""
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or found.end() == place:
            return
        place = found.end()
        key, raw, unknown = found[1] or "", found[2], ""
        if key and key not in KEYS and not key.startswith(_ARGS):
            unknown = "" if raw.startswith("//") else key  # an address is a word
            key, raw = "", f"{key}:{raw}"
        value = (
            _ESCAPED.sub(r"\1", raw[1:].removesuffix('"') if _is_closed(raw) else raw[1:]) if raw[:1] == '"' else raw
        )
        if key or value:
            yield Term(key, value, unknown)


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
    for key, value, unknown in terms(text):
        if unknown:
            raise InvalidSearch(
                f"no such key in the search key={shown(unknown)}{did_you_mean(unknown, KEYS)}; "
                f"to look for the text itself put it in quotes: {quoted(value, is_word=True)}"
            )
        if not key:
            words.append(value)
        elif not value:
            raise InvalidSearch(f"nothing stands behind {key}: in the search; give it a value or leave it out")
        elif key.startswith(_ARGS):
            args.append((key.removeprefix(_ARGS), value))
        elif key in found:
            raise InvalidSearch(f"{key}: is in the search twice; give it once")
        else:
            found[key] = value
    search = Search(**found, args=tuple(args), words=tuple(words))
    _check(search, now)
    return search


def write(search: Search) -> str:
    """Return the text that `parse` reads as this search."""
    parts = [f"{key}:{quoted(value)}" for key in KEYS if (value := getattr(search, key))]
    parts += [f"{_ARGS}{place}:{quoted(value)}" for place, value in search.args]
    return " ".join([*parts, *(quoted(word, is_word=True) for word in search.words)])


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


def quoted(value: str, *, is_word: bool = False) -> str:
    """Return a value, or a word, as it is written in a search: in quotes where it has to be."""
    plain = _PLAIN(value) and not (is_word and re.match(r"[a-z.]+[^\s:]*:", value))
    if plain:
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check(search: Search, now: datetime) -> None:
    if search.state not in STATES:
        raise InvalidSearch(f"no such state={shown(search.state)}; use one of {', '.join(filter(None, STATES))}")
    if search.id and not _ID(search.id):
        raise InvalidSearch(f"no start of a job id={shown(search.id)}; ids have A-Z a-z 0-9 - _")
    try:
        for key in ("command", "queue"):
            check_name(key, getattr(search, key), optional=True)
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
