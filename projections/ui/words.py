"""Times, lengths, numbers and JSON as people read them. Pure."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from jobevents.errors import InvalidValue
from jobevents.times import to_datetime

_UNSEEN: Final = re.compile("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")  # direction, and no width
GLYPHS: Final = {
    "queued": "○",
    "running": "◐",
    "succeeded": "✓",
    "failed": "✕",
    "canceled": "⊘",
    "skipped": "»",
}


def glyph(state: str) -> str:
    """Return the sign of a state, which tells it apart without colour."""
    return GLYPHS.get(state, "◇")


def iso(when: datetime | str | None) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds; "" for none, or for one that no calendar of ours holds."""
    try:
        found = to_datetime(when) if isinstance(when, str) and when else when
    except InvalidValue:
        return ""
    if not isinstance(found, datetime):
        return ""
    try:
        return found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return ""


def stamp(seconds: float) -> datetime:
    """Return the instant of a Unix time."""
    return datetime.fromtimestamp(seconds, UTC)


def when(moment: datetime | str | None, show: str = "ago") -> Markup:
    """Return an instant as a `<time>`: in UTC, which the page's script turns into the viewer's zone.

    Args:
        show: ago, clock (time of day with milliseconds), or full (with the date).
    """
    text = iso(moment)
    if not text:
        return Markup('<span class="none">–</span>')
    shown = f"{text[:10]} {text[11:19] if show != 'clock' else text[11:23]} UTC"
    return Markup('<time datetime="{}" data-show="{}" title="{} {} UTC">{}</time>').format(
        text, show, text[:10], text[11:23], shown
    )


def took(ms: float | None) -> str:
    """Return a length of time, two units at most; "" for none."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 1 or ms == 0 else "<1 ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for unit, size, part, part_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def between(first: datetime | None, last: datetime | None) -> float | None:
    """Return the milliseconds from one instant to another, none below zero; None where one is not known."""
    if first is None or last is None:
        return None
    return max(0.0, (last - first) / timedelta(milliseconds=1))


def count(number: int) -> str:
    """Return a count with narrow spaces between its thousands."""
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def one_line(text: str, limit: int = 200) -> str:
    """Return the first line of a text, shortened."""
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= limit else first[: limit - 1] + "…"


def json_text(value: Any) -> str:
    """Return a JSON value over several lines, its numbers exactly as they are; unseen characters as JSON's escapes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: Any) -> Any:
    """Return text with its unseen characters as what can be seen, such as [U+202E]; all else as it is.

    They turn text around or hide in it, so that a name reads as another's, or as a part of the sentence that it is in.
    """
    if isinstance(value, str) and not isinstance(value, Markup) and _UNSEEN.search(value):
        return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", value)
    return value


def exact(value: str) -> Markup:
    """Return text as it is, escaped: for what a form sends back."""
    return escape(value)


def query(pairs: Sequence[tuple[str, str | int]]) -> str:
    """Return a query string with its question mark; empty values are left out, "?" for none (which a link needs)."""
    return "?" + urlencode([(key, str(value)) for key, value in pairs if value not in ("", None)], quote_via=quote)


def lines(texts: Sequence[str]) -> Markup:
    """Return texts with line breaks between them, each escaped."""
    return Markup("<br>").join(escape(text) for text in texts)
