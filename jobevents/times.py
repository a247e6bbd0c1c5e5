"""Times as text: RFC 3339 with up to nine fraction digits and the offset it came with (behaviour S7, S8.7).

Text, because a datetime has six fraction digits and other writers of the same record have nine, which must survive.
"""

import re
from datetime import UTC, datetime, timedelta

import msgspec

from jobevents.boundary import check_instant
from jobevents.errors import InvalidValue
from jobevents.ids import shown

ZERO = "0001-01-01T00:00:00Z"  # what a record says where there is no time (behaviour S5)

_DATE = (
    r"(?!000)\d{4}-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{0,8}[1-9])?"
_OFFSET = r"(?:Z|[+-](?!00:00)(?:[01]\d|2[0-3]):[0-5]\d)"

# Text that is already as behaviour S7 writes it. Rare dates (29 February, the years 0 to 9) are left to _lenient.
is_normal = re.compile(f"{_DATE}T{_CLOCK}{_OFFSET}", re.ASCII).fullmatch

_lenient = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
).fullmatch

_to_builtins = msgspec.to_builtins
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY = 24 * 60  # minutes


def format_time(when: datetime) -> str:
    """Return a time in UTC as text, trailing zeros of the fraction removed (behaviour S7).

    Raises:
        InvalidValue: the time has no zone, or lies outside the years 1 to 9999 in UTC.
    """
    # msgspec writes a time eight times faster than isoformat(), but with all six digits of the fraction.
    text: str = _to_builtins(when if when.tzinfo is UTC else check_instant("time", when))
    return text if len(text) == 20 or text[-2] != "0" else text[:-1].rstrip("0") + "Z"


def as_text(when: object) -> str:
    """Return a time that a record was given as normal text: a datetime keeps its offset, None is "".

    Raises:
        InvalidValue: it is neither a datetime with a zone nor text that `parse_time` takes.
    """
    if when is None or isinstance(when, str):
        return parse_time(when) if when else ""
    if not isinstance(when, datetime):
        raise InvalidValue(f"time must be a datetime or RFC 3339 text, not {type(when).__name__}")
    if when.tzinfo is UTC:
        return format_time(when)
    check_instant("time", when)
    offset = when.utcoffset() or timedelta()
    # Seconds of an offset are cut and the clock stays (behaviour S7): towards zero, as Go does.
    minutes = int(offset.total_seconds() / 60)
    return parse_time(when.replace(tzinfo=None).isoformat() + _offset_text(minutes))


def parse_time(text: str) -> str:
    """Return the normal form of a time text, read as leniently as Go reads it (behaviour S8.7).

    Raises:
        InvalidValue: it is not RFC 3339 within that leniency, or no real date and time.
    """
    if is_normal(text):
        return text
    match = _lenient(text)
    if match is None:
        raise InvalidValue(f"time is not RFC 3339 text={shown(text)}: write it like 2026-07-26T12:00:31.5Z")
    date, clock = tuple(map(int, match.group(1, 2, 3))), tuple(map(int, match.group(4, 5, 6)))
    offset = int(match[9] or 0), int(match[10] or 0)  # Go lets 24 hours and 60 minutes of an offset pass
    if not _is_date(*date) or clock > (23, 59, 59) or max(clock[1:]) > 59 or offset[0] > 24 or offset[1] > 60:
        raise InvalidValue(f"time does not exist text={shown(text)}")
    fraction = (match[7] or "")[:9].rstrip("0")
    minutes = (offset[0] * 60 + offset[1]) * (-1 if match[8] == "-" else 1)
    day, time = "{:04d}-{:02d}-{:02d}".format(*date), "{:02d}:{:02d}:{:02d}".format(*clock)
    return f"{day}T{time}{'.' if fraction else ''}{fraction}{_offset_text(minutes)}"


def to_datetime(text: str) -> datetime:
    """Return the instant that a time text names, aware and in UTC; digits beyond microseconds are cut.

    Raises:
        InvalidValue: the text is empty or no time, or names one outside the years 1 to 9999 in UTC.
    """
    normal = parse_time(text)
    try:
        return datetime.fromisoformat(normal).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue(f"time is outside the years 1 to 9999 in UTC text={shown(text)}") from None


def is_zero(normal: str) -> bool:
    """Tell whether normal text names the zero instant, in whatever zone (behaviour S5)."""
    if not normal or normal == ZERO:
        return True
    match = normal.startswith("000") and _lenient(normal)
    if not match or match[7] or match[6] != "00":
        return False
    days = {"0000-12-30": -2, "0000-12-31": -1, "0001-01-01": 0, "0001-01-02": 1}.get(normal[:10])
    offset = (int(match[9] or 0) * 60 + int(match[10] or 0)) * (-1 if match[8] == "-" else 1)
    return days is not None and days * _DAY + int(match[4]) * 60 + int(match[5]) == offset


def is_writable(normal: str) -> bool:
    """Tell whether normal text may be written: an offset of 24 hours or more may only be read (behaviour S7)."""
    return normal.endswith("Z") or normal[-5:] < "24:00"


def _is_date(year: int, month: int, day: int) -> bool:
    if not 1 <= month <= 12:
        return False
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _DAYS[month - 1] + leap


def _offset_text(minutes: int) -> str:
    if not minutes:
        return "Z"
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"
