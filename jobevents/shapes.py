"""The shape of a record type: which JSON keys it has, and what Go's decoder would take for them (behaviour S8, S15).

Worked out once a type. `read` is the lenient way from bytes to a record's values: it takes what Go takes, and no more.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import inspect

from jobevents.times import parse_time

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1  # Go's int64 (behaviour S8.5)

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]

_TIMES = frozenset({"queued_at", "updated_at"})
_CORE = ("job_id", "state", "attempts", "queued_at", "updated_at", "version")  # what store and recorder work with
_FLAT = (
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.NoneType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.DateTimeType,
)
_surrogate = re.compile("[\ud800-\udfff]")


class Field(msgspec.Struct, frozen=True):
    """One field of a record type."""

    name: str  # the attribute
    type: Any  # its annotation
    is_time: bool  # one of the common times: text that must be one

    def take(self, value: object) -> Any:
        """Return a JSON value as this field holds it.

        Raises:
            ValueError: the value is not of the field's type.
        """
        taken = msgspec.convert(value, self.type)
        if isinstance(taken, float) and not math.isfinite(taken):
            raise ValueError(f"JSON has no number {taken}")
        if isinstance(taken, int) and not INT64_MIN <= taken <= INT64_MAX:
            raise ValueError("integer is beyond 64 bits")
        return parse_time(taken) if self.is_time else taken


class Shape(msgspec.Struct, frozen=True):
    """What reading and writing need to know of one record type."""

    type: Any  # the class
    decode: Callable[[bytes], Any]  # msgspec's decoder of it
    by_key: dict[str, Field]  # its fields by JSON key
    by_folded: dict[str, Field]  # the same by folded key
    is_quick: bool  # its fields are all text and integers: what the quick ways can judge
    texts: Callable[[Any], Sequence[object]]  # the values of a record's text fields, the common times left out
    wholes: Callable[[Any], Sequence[object]]  # the values of its integer fields


def shape_of(record_type: Any, common: type[msgspec.Struct]) -> Shape:
    """Return the shape of a record type; one derived from `common` must keep the order and the keys of that.

    Raises:
        TypeError: records of this type could not be stored.
    """
    if not (isinstance(record_type, type) and issubclass(record_type, msgspec.Struct)):
        raise TypeError(f"record type must be a msgspec.Struct class, not {record_type!r:.80}")
    config = record_type.__struct_config__
    if config.array_like or config.tag is not None:
        raise _refused(record_type, "its JSON must be an object without a tag: leave out array_like and tag")
    infos = msgspec.structs.fields(record_type)
    if issubclass(record_type, common):
        _check_derived(record_type, infos, common)
    times = _TIMES if issubclass(record_type, common) else frozenset()
    by_key = {info.encode_name: Field(info.name, info.type, info.name in times) for info in infos}
    by_folded: dict[str, Field] = {}
    for key, field in by_key.items():
        by_folded.setdefault(fold(key), field)
    texts = [info.name for info in infos if info.type is str]
    wholes = [info.name for info in infos if info.type in (int, Int64)]
    return Shape(
        type=record_type,
        decode=msgspec.json.Decoder(record_type).decode,
        by_key=by_key,
        by_folded=by_folded,
        is_quick=len(infos) == len(texts) + len(wholes),
        texts=_values_of([name for name in texts if name not in times]),
        wholes=_values_of(wholes),
    )


def read(data: bytes, shape: Shape) -> dict[str, Any]:
    """Return the values that stored bytes give to a record's fields, by attribute; later ones win, null gives none.

    Raises:
        ValueError: the bytes do not begin with a JSON object or null, or a field has the wrong type anywhere.
        RecursionError: a value is nested deeper than Python follows (Go: 10,000 levels).
    """
    text = data.decode("utf-8", "surrogateescape").lstrip(" \t\r\n")
    first, _ = _scanner.raw_decode(text)
    found: dict[str, Any] = {}
    for key, item in _members(first):
        field = shape.by_key.get(key) or shape.by_folded.get(fold(key))
        if field is not None and item is not None:
            try:
                found[field.name] = field.take(_plain(item))
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from error
    return found


def fold(key: str) -> str:
    """Return what two keys have in common that Go takes for the same: simple Unicode folding (behaviour S8.3)."""
    return key.lower() if key.isascii() else "".join(map(_folded, key))


def without_surrogates(text: str) -> str:
    """Return text with U+FFFD for each lone surrogate (behaviour S6.2, S8.6)."""
    return text if text.isascii() else _surrogate.sub("\ufffd", text)


def _check_derived(record_type: type[msgspec.Struct], infos: Sequence[Any], common: type[msgspec.Struct]) -> None:
    """Refuse a subclass of the common record that would not be written as behaviour S5 says."""
    config = record_type.__struct_config__
    if config.frozen or not config.omit_defaults:
        raise _refused(
            record_type, "the store stamps it and empty fields are left out: leave out frozen and omit_defaults"
        )
    own = {info.name: info for info in infos}
    for kept in msgspec.structs.fields(common):
        if kept.name in _CORE and (own[kept.name].type, own[kept.name].encode_name) != (kept.type, kept.name):
            raise _refused(record_type, f"the store sets {kept.name}: do not declare or rename it")
    if infos[-1].name != "version":
        raise _refused(record_type, "version must stay the last key: leave out kw_only")
    for info in infos:
        if not _is_flat(inspect.type_info(info.type)):
            raise _refused(record_type, f"{info.name} would nest: a record is flat, of text, numbers and booleans")


def _refused(record_type: type, why: str) -> TypeError:
    return TypeError(f"record type cannot be stored type={record_type.__qualname__}: {why}")


def _is_flat(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return all(map(_is_flat, info.types))
    return _is_flat(info.type) if isinstance(info, inspect.Metadata) else isinstance(info, _FLAT)


def _values_of(names: Sequence[str]) -> Callable[[Any], Sequence[object]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda record: [getattr(record, name) for name in names]


class _Whole(str):
    """A JSON number without fraction and exponent, as it is written."""

    __slots__ = ()


class _Real(str):
    """Any other JSON number, as it is written."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Pairs rather than a dict, since duplicate and folded keys count too. Objects become tuples, arrays lists.
_scanner = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_Whole, parse_float=_Real, parse_constant=_refuse_constant
)


def _members(value: Any) -> tuple[tuple[str, Any], ...]:  # any JSON value, as the scanner gives it
    match value:
        case None:
            return ()
        case tuple():
            return value
        case _:
            raise ValueError("it is no JSON object")


def _plain(value: Any) -> Any:  # any JSON value, as the scanner gives it
    """Return a scanned value with its numbers as numbers and its text as valid text."""
    if isinstance(value, _Whole) and len(value) <= 20 and INT64_MIN <= int(value) <= INT64_MAX:
        return int(value)
    if isinstance(value, _Whole | _Real):
        return float(value)  # also an integer too long for int64: no integer field takes a float
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, tuple):
        return {without_surrogates(key): _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _folded(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character
