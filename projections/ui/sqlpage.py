"""The page that asks anything of all history in SQL: for who may do everything, one query at a time, within bounds."""

import sys
from typing import Final

import msgspec

from jobevents.errors import InvalidValue, Misconfigured
from projections.api.access import Role
from projections.api.route import Desk, Given, Reply
from projections.reports import REPORTS
from projections.ui import analytics
from projections.ui.render import page

LIMIT: Final = 20_000  # characters of a query
ROLE: Final[Role] = "admin"
_USUAL: Final = "SELECT name, state, count(*) AS jobs\nFROM jobs\nGROUP BY ALL\nORDER BY jobs DESC"


class SqlOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query."""

    sql: str  # one SELECT over events, jobs, attempts and logs


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page, which says why it cannot be used where it cannot."""
    reports = {name: (one.about, _plain(one.sql)) for name, one in REPORTS.items() if one.within is None}
    return page(
        "sql.html",
        desk,
        given,
        "SQL",
        section="SQL",
        sql=given.values["q"] or _USUAL,
        reports=reports,
        limit=LIMIT,
        disabled=why_not() or ("" if ROLE in given.caller.roles else _no_role(given)),
    )


def run(desk: Desk, given: Given) -> Reply:
    """Answer with the rows that a query finds.

    Raises:
        Misconfigured: this server cannot. InvalidValue: it is no query, or took too much.
        Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    order: SqlOrder = given.body
    if why := why_not():
        raise Misconfigured(why)
    if len(order.sql) > LIMIT:
        raise InvalidValue(f"query is too long characters={len(order.sql)} limit={LIMIT}")
    questions = desk.questions
    return Reply(analytics.module("confined").run(questions.jobs, questions.mask, order.sql))


def why_not() -> str:
    """Return why there is no SQL here; "" where there is."""
    if sys.platform != "linux":
        return "only Linux bounds what a query may take as this page needs it: use jobevents sql"
    return analytics.missing()


def _no_role(given: Given) -> str:
    return f"{given.caller.name or 'nobody'} has not the role {ROLE}, as a query may read all that there is"


def _plain(sql: str) -> str:
    return "\n".join(line.removeprefix("        ") for line in sql.strip("\n").splitlines()).strip()
