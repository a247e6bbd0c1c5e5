"""Values as the cells of a CSV file that no spreadsheet runs.

Text stands in quotes, NULL is nothing at all, and every text that begins with an apostrophe, or after blanks with what a
spreadsheet takes for a formula (= + - @, their other forms, a tab, a line's end), has one apostrophe more in front. Characters
that are not seen count as blanks, since some readers leave them out. To get the text back, take one leading apostrophe away
wherever there is one.
https://owasp.org/www-community/attacks/CSV_Injection
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec

_UNSEEN = (  # white space, Unicode's classes Cc and Cf, and what is drawn as nothing: DerivedCoreProperties, default ignorable
    r"\s\0-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_FORMULA = (
    r"=+\-@\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"  # also as minus sign, small and full-width forms
)
_is_active = re.compile(rf"'|[\t\r\n]|[{_UNSEEN}]*[{_FORMULA}]").match
to_json = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode


def safe_text(text: str) -> str:
    """Return a text as it stands in a CSV cell: one that a spreadsheet would run has an apostrophe in front."""
    return f"'{text}" if _is_active(text) else text


def exact_text(cell: str) -> str:
    """Return the text that `safe_text` made a cell of."""
    return cell.removeprefix("'")


def csv_line(values: Iterable[Any]) -> bytes:
    """Return a line of cells in UTF-8, with its end."""
    return (",".join(map(_cell, values)) + "\r\n").encode(errors="replace")


def _cell(value: Any) -> str:
    show = _CELLS.get(type(value))
    return _quoted(as_text(value)) if show is None else show(value)


def as_text(value: Any) -> str:
    """Return a value as people read it: text as it is, a time as RFC 3339, all else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    data = to_json(value)
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()


def _quoted(text: str) -> str:
    return '"' + safe_text(text).replace('"', '""') + '"'


_CELLS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    type(None): lambda _: "",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: str,
}
