"""Query parameters: which a route takes, what they mean, and a clear refusal of everything else."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from jobevents.boundary import check_name
from jobevents.errors import InvalidValue
from jobevents.ids import shown
from jobevents.times import to_datetime
from projections.asof import parse

MAX_INT: Final = 2**62  # with some more to it, still what a column of a database holds

_MOMENT: Final = (  # as `asof.parse` reads it, but for days that no month has
    r"^([#@][1-9][0-9]{0,17}|-[0-9]{1,9}[smhd]"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2}))$"
)
_ANY_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"[0-9]{1,19}").fullmatch
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}").fullmatch


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One query parameter."""

    name: str
    about: str  # for the document
    schema: Mapping[str, Any]  # JSON schema of its text
    read: Callable[[str, str], Any]  # (name, text) -> value; raises InvalidValue
    default: Any = None  # value where it is not given


def whole(name: str, about: str, *, low: int = 0, high: int = MAX_INT, default: int | None = None) -> Parameter:
    """Return a parameter that is a whole number within bounds."""

    def read(name: str, text: str) -> int:
        value = int(text) if _DIGITS(text) else -1
        if not low <= value <= high:
            raise InvalidValue(f"{name} must be a whole number from {low} to {high} value={shown(text)}")
        return value

    schema = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name=name, about=about, schema=schema, read=read, default=default)


def lenient(name: str, about: str, *, default: int) -> Parameter:
    """Return a parameter that is a whole number, or else what it is by default (behaviour S34)."""

    def read(_: str, text: str) -> int:
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit():
            return default
        value = MAX_INT if len(digits) > 18 else int(digits)
        return -value if text.startswith("-") else value

    return Parameter(
        name=name, about=about, schema={"type": "string", "default": str(default)}, read=read, default=default
    )


def name_of(name: str, about: str) -> Parameter:
    """Return a parameter that names a queue, a kind of job or the like."""
    schema = {"type": "string", "maxLength": 255}
    return Parameter(name=name, about=about, schema=schema, read=_name, default="")


def choice(name: str, about: str, among: Sequence[str]) -> Parameter:
    """Return a parameter that is one of some words."""

    def read(name: str, text: str) -> str:
        if text not in among:
            raise InvalidValue(f"no such {name} {name}={shown(text)}; use one of {', '.join(filter(None, among))}")
        return text

    return Parameter(name=name, about=about, schema={"type": "string", "enum": list(among)}, read=read, default="")


def instant(name: str, about: str) -> Parameter:
    """Return a parameter that is an instant; None where it is not given."""
    return Parameter(name=name, about=about, schema={"type": "string", "format": "date-time"}, read=_instant)


def moment(name: str, about: str) -> Parameter:
    """Return a parameter that is a moment of the past, as text; "" where it is not given."""
    examples = ["2026-11-28T09:14Z", "-15m", "@1234"]
    schema = {"type": "string", "pattern": _MOMENT, "examples": examples}
    return Parameter(name=name, about=about, schema=schema, read=_moment, default="")


def id_start(name: str, about: str) -> Parameter:
    """Return a parameter that is the start of a job id."""

    def read(name: str, text: str) -> str:
        if not _PREFIX(text):
            raise InvalidValue(f"{name} is no start of a job id {name}={shown(text)}; ids have A-Z a-z 0-9 - _")
        return text

    schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"}
    return Parameter(name=name, about=about, schema=schema, read=read, default="")


def opaque(name: str, about: str) -> Parameter:
    """Return a parameter that a former answer gave; None where it is not given, which differs from empty."""
    return Parameter(name=name, about=about, schema={"type": "string", "maxLength": 400}, read=lambda _, text: text)


def free_text(name: str, about: str, *, limit: int) -> Parameter:
    """Return a parameter that is any text of so many characters; "" where it is not given."""

    def read(name: str, text: str) -> str:
        if len(text) > limit:
            raise InvalidValue(f"{name} is too long characters={len(text)} limit={limit}")
        return text

    schema = {"type": "string", "maxLength": limit}
    return Parameter(name=name, about=about, schema=schema, read=read, default="")


def read_all(parameters: Sequence[Parameter], given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the value of every parameter, by name.

    Raises:
        InvalidValue: one is unknown, given twice, or has no such value.
    """
    known = {one.name: one for one in parameters}
    values: dict[str, Any] = {}
    for name, text in given:
        parameter = known.get(name)
        if parameter is None:
            names = ", ".join(known) or "none"
            raise InvalidValue(f"no such parameter name={shown(name)}; there are: {names}")
        if name in values:
            raise InvalidValue(f"parameter is given twice name={name}; give it once")
        values[name] = parameter.read(name, text)
    return {name: values.get(name, one.default) for name, one in known.items()}


def _name(name: str, text: str) -> str:
    return check_name(name, text, optional=True)


def _moment(_: str, text: str) -> str:
    parse(text, _ANY_DAY)
    return text


def _instant(name: str, text: str) -> datetime:
    try:
        return to_datetime(text)
    except InvalidValue as error:
        raise InvalidValue(f"{name} is no instant: {error}; in a URL, + is written %2B") from error
