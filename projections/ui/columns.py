"""The columns of the list, beside state and job: which there are, and which of them somebody wants in which order. Pure."""

from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Final

import msgspec

COOKIE: Final = "jobevents_columns"


class Column(msgspec.Struct, frozen=True):
    """One column."""

    name: str
    label: str
    order: str = ""  # of lists, by which it can be sorted
    of_status: bool = False  # known from a status alone


COLUMNS: Final = (
    Column("kind", "Kind", of_status=True),
    Column("queue", "Queue"),
    Column("tries", "Try", of_status=True),
    Column("at", "Queued", order="oldest", of_status=True),
    Column("started", "Started"),
    Column("ended", "Ended", order="ended"),
    Column("took", "Took"),
    Column("worker", "Worker"),
    Column("by", "Queued by"),
    Column("priority", "Priority"),
    Column("key", "Key"),
)
USUAL: Final = ("kind", "queue", "tries", "at", "took", "worker")
_BY_NAME: Final = {one.name: one for one in COLUMNS}


class Choice(msgspec.Struct, frozen=True):
    """A column in the menu of them."""

    column: Column
    is_shown: bool
    toggled: str  # the columns without it, or with it
    earlier: str  # the columns with it one place further to the front; "" where it is the first, or not shown
    later: str


def wanted(text: str) -> tuple[Column, ...]:
    """Return the columns that a text names, each once; what is none of ours is passed over. No text: the usual ones."""
    names = dict.fromkeys(text.split(".")) if text else USUAL
    return tuple(_BY_NAME[name] for name in names if name in _BY_NAME)


def written(columns: Sequence[Column]) -> str:
    """Return the text that `wanted` reads as these; of none, one that names none."""
    return ".".join(one.name for one in columns) or "none"


def remembered(cookie: str) -> tuple[Column, ...]:
    """Return the columns that a browser keeps, by its Cookie header."""
    try:
        found = SimpleCookie(cookie).get(COOKIE)
    except CookieError:
        found = None
    return wanted(found.value if found else "")


def choices(shown: Sequence[Column]) -> list[Choice]:
    """Return the menu: what is shown in its order, then the others."""
    others = [one for one in COLUMNS if one not in shown]
    found = []
    for place, one in enumerate([*shown, *others]):
        is_shown = one in shown
        without = [other for other in shown if other is not one]
        toggled = without if is_shown else [*shown, one]
        earlier = [*without[: place - 1], one, *without[place - 1 :]] if is_shown and place else []
        later = [*without[: place + 1], one, *without[place + 1 :]] if is_shown and place < len(shown) - 1 else []
        found.append(
            Choice(
                one,
                is_shown,
                written(toggled),
                written(earlier) if earlier else "",
                written(later) if later else "",
            )
        )
    return found
