"""The status record: what `status.json` says of a job, and its JSON byte for byte as the Go kit writes and reads it.

`encode` and `decode` follow behaviour S5-S8. Times are text in between, as `times` says; a datetime may be set.
"""

import copy
import functools
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, overload

import msgspec
from msgspec.structs import force_setattr

from jobevents import boundary
from jobevents.errors import Corrupt, InvalidValue
from jobevents.shapes import INT64_MAX, INT64_MIN, Int64, Shape, fold, read, shape_of, without_surrogates
from jobevents.times import ZERO, as_text, format_time, is_normal, is_writable, is_zero, parse_time, to_datetime

__all__ = [
    "Extra",
    "State",
    "Status",
    "carry_over",
    "check_type",
    "decode",
    "encode",
    "format_time",
    "is_reserved",
    "parse_time",
    "to_datetime",
]

Extra = str | int | float | bool | None
"""The value of a service field that no record type declares; left out of the JSON when empty (None, "", 0, False)."""

_encode = msgspec.json.Encoder().encode


class State(StrEnum):
    """The states of a job; a record's `state` is open text all the same (behaviour S5.2)."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


_FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.SKIPPED})


class _Versioned(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Holds the key that is written last: msgspec puts keyword-only fields behind those of every subclass."""

    version: Int64 = 0  # place in the job's event log, 1-based; 0: the record did not come from a log


class Status(_Versioned, omit_defaults=True):
    """The current state of one job (behaviour S5). Subclass it to add service fields: flat, with defaults, positional.

    A field that a subclass declares again is its own from then on (behaviour S5.1), but stays in the common place.
    A time is set as a datetime with a zone, RFC 3339 text, or "" for none, and is held as text.
    """

    # A default_factory where the key is never left out: omit_defaults compares with plain defaults only.
    job_id: str = msgspec.field(default_factory=str)  # set by the store at each save
    command: str = ""  # what kind of job; carried over
    state: str = msgspec.field(default_factory=str)  # one of State, or any other text
    title: str = ""  # for people; carried over
    error: str = ""  # why it failed; empty otherwise, by convention
    attempts: Int64 = 0  # starts so far; carried over
    queued_at: str = ""  # when the service queued it, in the service's own offset; carried over
    updated_at: str = msgspec.field(default_factory=str)  # set by the store at each save, UTC

    def __post_init__(self) -> None:
        """Bring both times into their normal text.

        Raises:
            InvalidValue: a time has no zone, or is no time.
        """
        queued_at, updated_at = self.queued_at, self.updated_at
        if queued_at != "" and not _is_normal_time(queued_at):
            queued_at = as_text(queued_at)
            self.queued_at = "" if is_zero(queued_at) else queued_at
        if updated_at != "" and not _is_normal_time(updated_at):
            updated_at = as_text(updated_at)
            self.updated_at = "" if updated_at == ZERO else updated_at

    def is_terminal(self) -> bool:
        """Tell whether the work is done and must not be done again: `succeeded` only (behaviour S9)."""
        return self.state == "succeeded"

    def is_final(self) -> bool:
        """Tell whether the job has come to rest, so that nobody need poll it (behaviour M1)."""
        return self.state in _FINAL


RecordT = TypeVar("RecordT", bound=msgspec.Struct)
StatusT = TypeVar("StatusT", bound=Status)


def carry_over(next: StatusT, prev: Status) -> StatusT:
    """Take over into `next`, in place, what a job keeps from its previous record, and return `next` (behaviour S19).

    Attempts and queued_at always, even where `prev` has none; title and command where `next` has none; nothing else.
    """
    next.attempts = prev.attempts
    next.queued_at = prev.queued_at
    if next.title == "":
        next.title = prev.title
    if next.command == "":
        next.command = prev.command
    return next


def encode(record: msgspec.Struct, extras: Mapping[str, Extra] | None = None) -> bytes:
    """Return a record as one flat JSON object without a newline (behaviour S5-S7); the record is untouched.

    Args:
        record: a Status, or any Struct, which is written as it is.
        extras: service fields that the type does not declare; they follow its own in their order, before `version`.

    Raises:
        InvalidValue: a value is of the wrong type, or cannot be read back; an extra has the name of a field.
        TypeError: the record's type is refused by `check_type`.
    """
    shape = _shape(record.__class__)
    if not _is_ready(record, shape):
        record = _made_ready(record, shape)
    data = _json(record)
    if extras:
        added = _json({key: _extra(shape, key, value) for key, value in extras.items() if value})
        data = _inserted(data, added, record.version if isinstance(record, Status) else 0)
    return _escaped(data)


@overload
def decode(data: bytes, *, job_id: str = "") -> Status: ...
@overload
def decode(data: bytes, type: type[RecordT], job_id: str = "") -> RecordT: ...
def decode(data: bytes, type: Any = Status, job_id: str = "") -> Any:
    """Return the record in stored bytes, read as leniently as Go reads them (behaviour S8).

    The first JSON value counts, keys match without regard to case, null changes nothing, unknown keys are skipped.

    Args:
        data: the stored bytes.
        type: the record type: Status, a subclass, or any other Struct.
        job_id: fills the record's own where that is missing or empty.

    Raises:
        Corrupt: the bytes hold no such record; nothing is returned in part.
        TypeError: the type is refused by `check_type`.
    """
    shape = _shape(type)
    record = _read_canonical(data, shape)
    if record is None:
        try:
            record = _read_leniently(data, shape)
        except (ValueError, TypeError, RecursionError) as error:
            raise Corrupt(f"record is unreadable job_id={job_id} reason={error}: it was left as it is") from error
    if job_id and isinstance(record, Status) and not record.job_id:
        record.job_id = job_id
    return record


def check_type(type: object) -> None:
    """Refuse a class whose records could not be stored (behaviour S15).

    Raises:
        TypeError: it is no Struct class, or a Status that is keyword-only, frozen, nested or not flat in another way.
    """
    shape_of(type, Status)


_SHOWN_LIKE_FIELDS = frozenset({"progress", "progress_message"})


def is_reserved(key: str) -> bool:
    """Tell whether an extra service field may not have this name, as readers would take it for a common field."""
    return fold(key) in _shape(Status).by_folded


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return service fields made storable: flat, none of the common keys (behaviour S5.1).

    Raises:
        InvalidValue: a nested value, a common key, a value that JSON cannot hold, or more than 64 KiB of them.
    """
    if not isinstance(fields, dict):
        raise InvalidValue(f"fields must be a dict, not {type(fields).__name__}")
    checked = {}
    for key, value in fields.items():
        name = boundary.check_name("field", key)
        if is_reserved(name) or name in _SHOWN_LIKE_FIELDS:
            raise InvalidValue(f"field is one of the common keys field={name}; choose another name")
        if isinstance(value, str):
            checked[name] = boundary.clean_text(value, boundary.LINE_LIMIT)
            continue
        checked[name] = boundary.check_json(f"field {name}", value)
        if isinstance(checked[name], dict | list):
            raise InvalidValue(f"field is nested, the record is flat field={name}; annotate its parts one by one")
    whole: dict[str, Any] = boundary.check_json("fields", checked)
    return whole


@functools.cache
def _shape(record_type: Any) -> Shape:
    return shape_of(record_type, Status)


def _read_canonical(data: bytes, shape: Shape) -> Any:
    """Return the record if `data` is what `encode` writes for it, else None.

    Writing it again and comparing is what makes this the same as the lenient way, without knowing all that Go accepts:
    no duplicate, folded or unknown key, no blank, null, odd number or odd time comes through it unchanged.
    """
    if not shape.is_quick:
        return None
    try:
        record = shape.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if isinstance(record, Status) and not record.updated_at:
        return None  # encode writes the zero time; an empty text is an error
    if not _are_int64(shape.wholes(record)):
        return None
    return record if _escaped(_encode(record)) == data else None


def _read_leniently(data: bytes, shape: Shape) -> Any:
    """Return the record in any JSON that Go accepts, or raise what `read` and the type's own construction raise."""
    return shape.type(**read(data, shape))


def _is_ready(record: msgspec.Struct, shape: Shape) -> bool:
    """Tell, quickly, whether a record may be written as it stands; False also means that it takes a closer look."""
    if not (shape.is_quick and _are_int64(shape.wholes(record))):
        return False
    for text in shape.texts(record):
        if not isinstance(text, str):
            return False
    if not isinstance(record, Status):
        return True
    queued_at: object = record.queued_at
    updated_at: object = record.updated_at
    return (queued_at == "" or _is_normal_time(queued_at)) and _is_normal_time(updated_at)


def _are_int64(values: Iterable[object]) -> bool:
    for value in values:  # noqa: SIM110 - a generator takes three times as long, at every read and write
        if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
            return False
    return True


def _is_normal_time(when: object) -> bool:
    return type(when) is str and is_normal(when) is not None


def _made_ready(record: msgspec.Struct, shape: Shape) -> msgspec.Struct:
    """Return a copy that may be written: times as text, every value of its field's type.

    Raises:
        InvalidValue: one of them does not fit.
    """
    ready = copy.copy(record)
    if isinstance(ready, Status):
        ready.version = ready.version or 0
        _settle_times(ready)
    for key, field in shape.by_key.items():
        if not field.is_time:
            try:
                field.take(msgspec.to_builtins(getattr(ready, field.name), builtin_types=(bytes, datetime)))
            except (ValueError, TypeError, RecursionError) as error:
                raise InvalidValue(f"record cannot be written: {error}", path=f"$.{key}") from error
    return ready


def _settle_times(status: Status) -> None:
    Status.__post_init__(status)
    status.updated_at = status.updated_at or ZERO
    for name in ("queued_at", "updated_at"):
        when = getattr(status, name)
        if when and not is_writable(when):
            raise InvalidValue(
                f"time has an offset of a day or more text={when}: give one below 24:00", path=f"$.{name}"
            )


def _json(value: Any) -> bytes:  # a Struct or a dict
    try:
        try:
            return _encode(value)
        except UnicodeEncodeError:
            return _encode(_valid_text(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"record cannot be written as JSON: {error}") from error


def _valid_text(value: Any) -> Any:
    """Return a copy of a record, dict or text with U+FFFD for each lone surrogate in its texts (behaviour S6.2)."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        value = copy.copy(value)
        for name in value.__struct_fields__:
            force_setattr(value, name, _valid_text(getattr(value, name)))
    return value


def _extra(shape: Shape, key: str, value: Extra) -> Extra:
    if not isinstance(value, str | int | float):
        raise InvalidValue(f"service field must be text or a number, not {type(value).__name__}", path=f"$.{key}")
    if not isinstance(value, str) and not INT64_MIN <= value <= INT64_MAX:
        raise InvalidValue(f"service field is {value}, which other readers cannot hold", path=f"$.{key}")
    if fold(key) in shape.by_folded:
        raise InvalidValue("service field has the name of a declared one: choose another", path=f"$.{key}")
    return value


def _inserted(data: bytes, added: bytes, version: int) -> bytes:
    """Put the members of one object behind those of another, before its `version`."""
    tail = b',"version":%d}' % version if version else b"}"
    head, members = data[: -len(tail)], added[1:-1]
    return head + (b"," if members and len(head) > 1 else b"") + members + tail


def _escaped(data: bytes) -> bytes:
    """Write the five characters that Go escapes in its JSON, and msgspec does not (behaviour S6.1)."""
    # To look for a byte by its number costs a sixth of looking for it as bytes.
    if 0x3C in data or 0x3E in data or 0x26 in data:
        data = data.replace(b"<", rb"\u003c").replace(b">", rb"\u003e").replace(b"&", rb"\u0026")
    if 0xE2 in data:
        data = data.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
    return data
