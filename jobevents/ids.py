"""Job ids: cleaned, checked, made and read. Whatever names a job from outside passes through here first.

A security boundary: an id becomes part of an object name, a file path and a link, so that what `validate`
accepts is safe in all of them, and nothing else gets by.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from jobevents.boundary import check_instant
from jobevents.errors import InvalidJobId, InvalidValue

# Behaviour S2.1. str.strip() alone would also remove U+001C to U+001F.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)  # fmt: skip

MAX_LENGTH = 128  # characters; behaviour S1
_SHOWN = 80  # characters of a refused text that a message repeats
_FORM = f"1 to {MAX_LENGTH} of A-Z a-z 0-9 - _, a letter or digit first"

_numbers: dict[tuple[int, int, int], Iterator[int]] = {}  # those of the last tick alone: process, second, place in it

_is_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}").fullmatch
_not_in_prefix = re.compile(r"[^a-z0-9_-]")
_long_enough = re.compile(r"[0-9]{8}").search
_not_digits = re.compile(r"[^0-9]*")

# The usual forms of behaviour S4.3: no digit before the date, a date that every year has.
# The rest goes the long way.
_usual = re.compile(
    r"[^0-9]*"
    r"([2-9][0-9]{3}"
    r"(?:(?:0[1-9]|1[0-2])(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])(?:29|30)|(?:0[13578]|1[02])31))"
    r"-?((?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9])(?:-|\Z)"
).match


class NoTimestamp(InvalidValue):
    """An id holds no creation time (behaviour S4).

    Its own type because a caller acts differently: the id may be valid all the same, and is then listed last.
    """


def sanitize(text: str) -> str:
    """Return the id that `text` names: its last path element, white space around it removed (behaviour S2).

    Idempotent. `..` is never resolved, so the result stays below any base it is joined to.

    Raises:
        InvalidJobId: what is left is not an id; nothing partial is returned.
    """
    if isinstance(text, str):
        if _is_id(text):
            return text
        element = text.strip(WHITE_SPACE).rstrip("/").rpartition("/")[2]
        if _is_id(element):
            return element
    raise _invalid(text)


def validate(text: str) -> None:
    """Refuse a text that is not exactly an id (behaviour S1); nothing is trimmed.

    Raises:
        InvalidJobId: the text is empty ("required") or not an id ("invalid").
    """
    if is_valid(text):
        return
    if text == "":
        raise InvalidJobId(f"a job id is required: give {_FORM}")
    raise _invalid(text)


def is_valid(text: str) -> bool:
    """Tell whether `text` is exactly an id (behaviour S1)."""
    return isinstance(text, str) and _is_id(text) is not None


def new_id(prefix: str, now: datetime | None = None, random: Callable[[int], bytes] | None = None) -> str:
    """Make an id that sorts by its time: `{prefix}-{YYYYMMDD}-{HHMMSS}-{12 hex digits}`, in UTC (behaviour S3).

    Args:
        prefix: cleaned rather than refused; `job` if nothing of it is left.
        now: aware; the current time if not given.
        random: gives that many random bytes; the operating system's if not given.

    Raises:
        InvalidJobId: the cleaned prefix is longer than 99 characters.
        InvalidValue: `now` has no zone.
    """
    at = datetime.now(UTC) if now is None else check_instant("now", now)
    stem = _not_in_prefix.sub("", prefix.strip(WHITE_SPACE).lower()).lstrip("-_") or "job"
    day, time = f"{at.year:04d}{at.month:02d}{at.day:02d}", f"{at.hour:02d}{at.minute:02d}{at.second:02d}"
    made = f"{stem}-{day}-{time}-{(random or os.urandom)(6).hex()}"
    validate(made)
    return made


def in_turn(now: datetime) -> Callable[[int], bytes]:
    """Return what gives `new_id` its random bytes such that ids of one second sort by their time within it, by 15 us.

    Jobs submitted together are then neighbours in every index, so that what becomes of them changes a page and not ten; lists
    show them in their order. Ids of one such tick are numbered from a random number of 31 bits: those of one process are never
    the same, even where its clock stands still, and those of others hardly ever.
    """
    tick = (now.microsecond << 16) // 1_000_000
    place = os.getpid(), int(now.timestamp()), tick  # a forked child has numbers of its own
    numbers = _numbers.get(place)
    if numbers is None:
        _numbers.clear()
        numbers = _numbers.setdefault(place, itertools.count(int.from_bytes(os.urandom(4), "big") >> 1))
    return lambda count: (tick << 32 | next(numbers) & 0xFFFFFFFF).to_bytes(count, "big")


def sort_key(text: str) -> str:
    """Return the 14 digits of an id's creation time, or "" if it holds none (behaviour S4); never raises.

    The id is not validated: ids older than these rules stay in storage and are sorted too.
    """
    usual = _usual(text)
    if usual:
        return usual[1] + usual[2]
    if not _long_enough(text):
        return ""
    elements = text.split("-")
    for element, following in zip(elements, [*elements[1:], ""], strict=True):
        digits = _not_digits.sub("", element, count=1)
        if _is_timestamp(digits):
            return digits
        if len(digits) == 8 and len(following) == 6 and _is_timestamp(digits + following):
            return digits + following
    return ""


def created_at(text: str) -> datetime:
    """Return the time at which an id was made, aware and in UTC (behaviour S4).

    Raises:
        NoTimestamp: the id holds none.
    """
    key = sort_key(text)
    if not key:
        raise NoTimestamp(f"job id has no timestamp id={shown(text)}: ids made by new_id have one")
    return _instant(key)


def shown(text: object) -> str:
    """Return `text` as a message may repeat it: escaped and cut, so that no id can forge a log line or flood one."""
    if not isinstance(text, str):
        return f"<{type(text).__name__}>"
    return ascii(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!a}... ({len(text)} characters)"


def _invalid(text: object) -> InvalidJobId:
    return InvalidJobId(f"job id is invalid id={shown(text)}: give {_FORM}")


def _is_timestamp(digits: str) -> bool:
    """Tell whether these are 14 ASCII digits of a real time since 2000 (behaviour S4.1)."""
    if len(digits) != 14 or not (digits.isascii() and digits.isdigit()) or digits < "2000":
        return False
    try:
        _instant(digits)
    except ValueError:
        return False
    return True


def _instant(key: str) -> datetime:
    return datetime(
        int(key[:4]), int(key[4:6]), int(key[6:8]), int(key[8:10]), int(key[10:12]), int(key[12:]), tzinfo=UTC
    )
