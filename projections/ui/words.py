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
# What terminals take for orders (ECMA-48): colours and weights end with m, all else moves about, which a page does not.
_ORDER: Final = re.compile(  # as it is stored: the two characters that begin and end them are kept as their pictures
    r"[\x1b␛](?:\[([0-9;:<=>?]*)[ -/]*([@-~])|\][^\x07␇\x1b␛]*(?:[\x07␇]|[\x1b␛]\\)?|[@-Z\\^_])"
)
_COLOURS: Final = {1: "bad", 2: "good", 3: "warn", 4: "cool", 5: "odd", 6: "cool"}  # by the last digit of 31-36, 91-96
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


def size(size_bytes: int) -> str:
    """Return a number of bytes as disks are sold: 4.1 kB, 12 MB, 3.5 GB."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.1f} {unit}" if unit != "B" and value < 9.95 else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


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


def terminal(text: str) -> Markup:
    """Return a line as a terminal shows it: in the colours and weights that it asks for; other orders are left out."""
    shown, place, style = [], 0, frozenset[str]()
    for order in _ORDER.finditer(text):
        shown.append(_styled(text[place : order.start()], style))
        place = order.end()
        if order[2] == "m":
            style = _restyled(style, order[1])
    shown.append(_styled(text[place:], style))
    return Markup("").join(shown)


def _styled(text: str, style: frozenset[str]) -> Markup:
    if not style or not text:
        return escape(plain(text))
    return Markup('<span class="{}">{}</span>').format(" ".join(f"a-{one}" for one in sorted(style)), plain(text))


def _restyled(style: frozenset[str], codes: str) -> frozenset[str]:
    for code in codes.split(";"):
        if not code.isdigit() or int(code) == 0:
            style = frozenset()
        elif code in ("1", "2"):
            style |= {"strong" if code == "1" else "faint"}
        elif code == "22":
            style -= {"strong", "faint"}
        elif int(code) // 10 in (3, 9):
            style = style & {"strong", "faint"} | ({_COLOURS[int(code) % 10]} if int(code) % 10 in _COLOURS else set())
        if code in ("38", "48"):  # what follows is one of many colours, and no order
            break
    return style


def exact(value: str) -> Markup:
    """Return text as it is, escaped: for what a form sends back."""
    return escape(value)


def query(pairs: Sequence[tuple[str, str | int]]) -> str:
    """Return a query string with its question mark; empty values are left out, "?" for none (which a link needs)."""
    return "?" + urlencode([(key, str(value)) for key, value in pairs if value not in ("", None)], quote_via=quote)


def lines(texts: Sequence[str]) -> Markup:
    """Return texts with line breaks between them, each escaped."""
    return Markup("<br>").join(escape(text) for text in texts)
