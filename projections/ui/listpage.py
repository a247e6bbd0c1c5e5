"""The page of all jobs: what the search finds, page by page, with what could not be read or found, and why."""

from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents.errors import JobEventsError
from jobevents.status import State
from projections.api import search
from projections.api.problems import Problem, refusal_of
from projections.api.questions import Questions
from projections.api.route import Desk, Given, Reply
from projections.api.routes import THERE
from projections.api.search import Search
from projections.api.shapes import JobPage
from projections.ui import actions, analytics, columns, copying
from projections.ui.finding import ONE_WAY, Found, find
from projections.ui.render import page
from projections.ui.words import iso, query

PER_PAGE: Final = 25
SIZES: Final = (10, 25, 50, 100, 200)
NEARBY: Final = 2  # page numbers shown on either side of the current one
QUEUES_SHOWN: Final = 12
_STATUS_ALONE: Final = "a row here is made of the job's status alone, which does not say it"


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page."""
    questions, values = desk.questions, given.values
    now = questions.jobs.emitter.clock()
    wanted, found, is_understood = Search(), Found(), False
    text = values["q"]
    try:
        if values["state"]:  # a link of the rail, or what an older bookmark says
            text = f"state:{values['state']} {text}"
        wanted, is_understood = search.parse(text, now), True
        found = find(questions, wanted, values, now)
    except JobEventsError as error:
        refusal = refusal_of(error)
        found = Found(problem=refusal.problem, status=refusal.status, is_complete_known=False)
    reply = page(
        "list.html",
        desk,
        given,
        "Jobs",
        found.status,
        section="Jobs",
        found=found,
        wanted=wanted,
        text=search.write(wanted) if not isinstance(found.problem, Problem) else text,
        states=search.said(wanted, "state"),
        here=_links(given, wanted, found, search.write(wanted) if is_understood else text),
        rail=_rail(questions, wanted),
        as_of=values["as_of"],
        per_page=values["per_page"],
        sizes=SIZES,
        pages=_nearby(found.page),
        filters=questions.listing.filters(),
        columns=columns.remembered(given.cookie),
        choices=columns.choices(columns.remembered(given.cookie)),
        order=values["order"] or "newest",
        one_order=_one_order(questions, wanted, values["as_of"]),
        of_status_alone="" if questions.jobs.log.ordered and not values["as_of"] else _STATUS_ALONE,
        no_parquet=analytics.missing(),
        command="" if found.problem or values["as_of"] else copying.as_command(wanted),
        sql="" if found.problem or values["as_of"] else copying.as_sql(wanted, now),
        bulk=actions.of_many(given.caller, THERE, *_all_matching(wanted, values["as_of"], now)),
        is_empty_log=_is_empty(questions, wanted, found),
    )
    return msgspec.structs.replace(
        reply, complete_through=found.complete_through, is_complete_known=found.is_complete_known
    )


def _rail(questions: Questions, wanted: Search) -> dict[str, Any]:
    """Return the states with their counts, and the queues; what cannot be counted is named with the reason."""
    try:
        kept = questions.standing.tally_soon()
    except JobEventsError as error:
        return {"problem": str(error), "states": [], "queues": [], "total": 0, "others": 0, "counted_at": None}
    states = dict.fromkeys([*State], 0)
    others, queues = 0, dict[str, int]()
    for one in kept.value:
        queues[one.queue] = queues.get(one.queue, 0) + one.jobs
        if wanted.queue and one.queue != wanted.queue:
            continue
        if one.state in states:
            states[State(one.state)] += one.jobs
        else:
            others += one.jobs
    shown = sorted(queues.items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "problem": "",
        "states": [(str(state), jobs) for state, jobs in states.items()],
        "others": others,
        "total": sum(states.values()) + others,
        "queues": [pair for pair in shown if pair[0]][:QUEUES_SHOWN],
        "counted_at": kept.at,
    }


def _all_matching(wanted: Search, as_of: str, now: datetime) -> tuple[dict[str, str], str]:
    """Return what finds all the jobs of the list for a command, or why nothing does."""
    if as_of:
        return {}, "this is the past"
    if search.sieve_of(wanted):
        return {}, "a search that looks through rows finds them page by page: choose rows"
    since, until = (iso(search.instant(text, now)) if text else "" for text in (wanted.after, wanted.before))
    said = {"state": wanted.state, "command": wanted.command, "queue": wanted.queue, "q": wanted.id}
    return {key: value for key, value in {**said, "since": since, "until": until}.items() if value}, ""


def _links(given: Given, wanted: Search, found: Found, said: str) -> dict[str, Any]:
    """Return where links of the page lead, each with all filters of now but for what it changes.

    Args:
        said: the search as text, also one that is not understood: looked for again, it is refused again.
    """
    values = given.values
    base = [("as_of", values["as_of"]), ("per_page", values["per_page"] if values["per_page"] != PER_PAGE else "")]

    def to(*, page: int = 1, cursor: str = "", top: str = "", order: str = values["order"], **changes: str) -> str:
        text = search.write(search.changed(wanted, **changes)) if changes else said
        number = page if page != 1 else ""
        shown_order = "" if order == "newest" else order
        return query([("q", text), *base, ("order", shown_order), ("page", number), ("cursor", cursor), ("top", top)])

    top = found.rows[0].job_id if found.rows and found.page and found.page.page == 1 else values["top"]
    return {
        "to": to,
        "self": to(page=values["page"], cursor=values["cursor"] or ""),
        "live": to(page=values["page"], cursor=values["cursor"] or "", top=top or ""),
        "now": query([("q", said)]),
        "export": lambda format: query([("q", said), ("as_of", values["as_of"]), ("format", format)]),
    }


def _one_order(questions: Questions, wanted: Search, as_of: str) -> str:
    """Return why the list has but one order; "" where it has others."""
    if as_of:
        return "the past is listed newest first"
    if search.sieve_of(wanted):
        return ONE_WAY
    return questions.listing.filters()["order"].reason


def _nearby(found: JobPage | None) -> list[int]:
    """Return the page numbers to offer: the first, the last, and some around this one; 0 where some are passed over."""
    if found is None or found.total_pages < 2:
        return []
    near = range(max(1, found.page - NEARBY), min(found.total_pages, found.page + NEARBY) + 1)
    numbers = sorted({1, *near, found.total_pages})
    shown: list[int] = []
    for number in numbers:
        if shown and number - shown[-1] > 1:
            shown.append(0)
        shown.append(number)
    return shown


def _is_empty(questions: Questions, wanted: Search, found: Found) -> bool:
    """Tell whether nothing was ever submitted, rather than nothing found."""
    return found.problem is None and wanted == Search() and not found.rows and not found.left_out
