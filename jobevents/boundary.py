"""The one boundary where text is made safe and values are refused, before anything is encoded or written.

Text that people write or read (titles, errors, log lines) is always storable afterwards: bad characters are replaced, and what
is too long loses its middle. Names and JSON values are never changed: they are taken exactly, or refused with the place.
"""

import difflib
import math
import numbers
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from jobevents.errors import InvalidValue, Misconfigured

PAYLOAD_LIMIT: Final = 64 * 1024  # bytes of JSON: what every transport behind us carries (Cloud Tasks: 100 KiB)
DEPTH_LIMIT: Final = 100  # levels: msgspec recurses, and no reader wants more
NAME_LIMIT: Final = 255  # bytes of a job name, queue, key or worker
TITLE_LIMIT: Final = 1024  # bytes; the limits below too
REASON_LIMIT: Final = 2048
LINE_LIMIT: Final = 8 * 1024
ERROR_LIMIT: Final = 16 * 1024
TRACEBACK_LIMIT: Final = 32 * 1024

_NAMED = 12  # names that a hint lists, where none is near
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_SECRET = re.compile(
    "([^?&=#]*(?:pass|pwd|secret|token|key|cred|auth|sig)[^?&=#]*=)[^&#]*", re.IGNORECASE
)  # of a query
_NO_URL = re.compile("[\0\t\r\n\ud800-\udfff]|%00")  # urlsplit drops three of them; no path holds the others
_CONTROL = re.compile("[\x00-\x1f\x7f\u0085\u2028\u2029\ud800-\udfff]")

Scrub = Callable[[Any], Any]
"""Called on payloads, fields, errors and results before they are encoded: returns what may be kept."""


def clean_text(text: str, limit: int, what: str = "text") -> str:
    """Return `text` so that every backend can store it, at most `limit` bytes of UTF-8.

    Control characters become their pictures (NUL: U+2400), lone surrogates U+FFFD; tab, line feed and carriage return stay.
    What is too long keeps its start and its end, with a mark between that says how many bytes were cut.

    Args:
        what: the name by which an error tells of it.

    Raises:
        InvalidValue: it is no text.
    """
    text = _exactly_text(what, text)
    if _UNSAFE.search(text):
        text = _UNSAFE.sub(_picture, text)
    if len(text) <= limit // 4:
        return text
    data = text.encode()
    return text if len(data) <= limit else _without_middle(data, limit)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if code >= 0xD800 else "\u2421" if code == 0x7F else chr(0x2400 + code)


def hide_password(url: str) -> str:
    """Return a URL, or what was meant to be one, without what could be its password, or a secret in its query: for messages."""
    return re.sub(r"(//[^/@:?#]*):.*@", r"\1@", _SECRET.sub(r"\1***", url))


def split_url(url: str) -> SplitResult:
    """Return the parts of a store's URL; what would be left out of its name without a word is refused.

    Raises:
        Misconfigured: it cannot be read, or a part of it names nothing. The message never holds the password.
    """
    if not isinstance(url, str):
        raise Misconfigured(f"a URL must be text, not {type(url).__name__}")
    shown = f"url={hide_password(url)!r}"
    if _NO_URL.search(url):
        raise Misconfigured(f"URL holds a control character or a lone surrogate {shown}")
    if "#" in url:
        raise Misconfigured(f"URL has a part after a # {shown}; if it belongs to the name, write %23")
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may hold the password
        raise Misconfigured(f"URL cannot be read {shown}; percent-encode the special characters of each part") from None
    if parts.scheme == "memory" and (parts.netloc or parts.path):
        raise Misconfigured(f"memory has no names {shown}; write memory://, and pass on what that returns")
    return parts


def _without_middle(data: bytes, limit: int) -> str:
    room = limit - len(_mark(len(data)).encode())
    if room < 2:
        return data[:limit].decode(errors="ignore")
    at_end = room // 3
    head = data[: room - at_end].decode(errors="ignore")
    tail = data[len(data) - at_end :].decode(errors="ignore") if at_end else ""
    return head + _mark(len(data) - len(head.encode()) - len(tail.encode())) + tail


def _mark(cut: int) -> str:
    return f" …[{cut} bytes cut]… "


def _exactly_text(what: str, text: str) -> str:
    """Return a plain str: msgspec writes no subclass of it."""
    if type(text) is str:
        return text
    if not isinstance(text, str):
        raise InvalidValue(f"{what} must be text, not {type(text).__name__}")
    return str.__str__(text)


def visible(text: str, limit: int = 200) -> str:
    """Return the first characters of somebody else's text for a message: what is not seen as itself is escaped, as in `repr`.

    No terminal and no log takes it for anything but text.
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text[:limit])


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a hint at the names that are near a mistyped one, or at those that there are, to end a message with."""
    known = sorted(filter(None, names))
    if near := difflib.get_close_matches(text[:NAME_LIMIT], known, n=3):
        return f"; did you mean {' or '.join(near)}?"
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"; there are {', '.join(known[:_NAMED])}{more}" if known else ""


def describe(error: BaseException) -> str:
    """Return the text of an exception, or its class name where it has none or cannot say it."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  # an exception whose __str__ fails must not hide that the job failed
        return type(error).__name__


def check_name(what: str, text: str, *, optional: bool = False) -> str:
    """Return an identifier (job name, queue, key) as it is, or refuse it: identifiers are never changed.

    Raises:
        InvalidValue: when it is empty, longer than 255 bytes, or holds a control character or a lone surrogate.
    """
    text = _exactly_text(what, text)
    if not text and not optional:
        raise InvalidValue(f"{what} is required")
    if _CONTROL.search(text):
        raise InvalidValue(f"{what} holds a control character or a lone surrogate value={text[:80]!r}")
    if len(text.encode()) > NAME_LIMIT:
        raise InvalidValue(f"{what} is too long size={len(text.encode())} limit={NAME_LIMIT} bytes")
    return text


def check_json(what: str, value: Any, *, limit: int = PAYLOAD_LIMIT) -> Any:
    """Return a JSON value as every backend gives it back: a copy, which the caller's later changes do not reach.

    A msgspec Struct or a dataclass is taken as the dict it encodes to, a tuple as a list.

    Raises:
        InvalidValue: with the path to what JSON cannot hold exactly (NaN, integers beyond 64 bits, dates, sets, keys that
            are not text, more than 100 levels), or with size and limit in bytes.
    """
    if value is None:
        return None
    if hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__"):
        try:
            value = msgspec.to_builtins(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidValue(f"{what} cannot be written as JSON: {error}") from error
    _check_value(what, value, "$", DEPTH_LIMIT)
    data = msgspec.json.encode(value)
    if len(data) > limit:
        raise InvalidValue(
            f"{what} is too large size={len(data)} limit={limit} bytes; store it elsewhere and pass where it is"
        )
    return msgspec.json.decode(data)


def check_depth(what: str, value: Any) -> None:
    """Refuse a value that no JSON of ours may hold, however large it is.

    Raises:
        InvalidValue: as `check_json`, but for the size.
    """
    _check_value(what, value, "$", DEPTH_LIMIT)


def _check_value(what: str, value: Any, path: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii() and _SURROGATE.search(value):
            raise InvalidValue(f"{what} holds a lone surrogate", path=path)
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise InvalidValue(f"{what} holds an integer beyond 64 bits; pass it as text", path=path)
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidValue(f"{what} holds {value}, which JSON cannot", path=path)
    elif kind is dict or kind is list or kind is tuple:
        _check_items(what, value, path, depth)
    elif value is not None and kind is not bool:
        raise InvalidValue(f"{what} holds a {kind.__name__}, which JSON cannot; pass it as text", path=path)


def _check_items(what: str, value: Any, path: str, depth: int) -> None:
    if not depth:
        raise InvalidValue(f"{what} is nested more than {DEPTH_LIMIT} levels deep (or holds itself)", path=path)
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidValue(f"{what} has a key that is not text key={key!r:.80}", path=path)
            _check_value(f"the key of {what}", key, path, depth)
            _check_value(what, item, f"{path}.{key}", depth - 1)
    else:
        for position, item in enumerate(value):
            _check_value(what, item, f"{path}[{position}]", depth - 1)


def check_percent(value: object) -> int | float:
    """Return how far a work is, from 0 to 100: what is outside is the nearer end.

    Raises:
        InvalidValue: it is no number.
    """
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(f"percent is no number between 0 and 100 value={value!s:.40}")
    within = min(100.0, max(0.0, number))
    return int(within) if within.is_integer() else within


_SURROGATE = re.compile("[\ud800-\udfff]")


def check_instant(what: str, when: datetime) -> datetime:
    """Return an aware datetime in UTC; a naive one is refused, since it means two things (TIM-01).

    Raises:
        InvalidValue: when it has no zone, or is outside what UTC can name.
    """
    if type(when) is datetime and when.tzinfo is UTC:  # almost every one is
        return when
    if not isinstance(when, datetime):
        raise InvalidValue(f"{what} must be a datetime, not {type(when).__name__}")
    if when.tzinfo is None or when.utcoffset() is None:
        raise InvalidValue(
            f"{what} has no time zone value={when.isoformat()}; use datetime.now(timezone.utc) or add a zone"
        )
    try:
        return when.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(f"{what} is outside the years 1 to 9999 in UTC value={when.isoformat()}") from None
