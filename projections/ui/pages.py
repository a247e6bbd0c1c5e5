"""The table of pages: what stands where, who may see it, and with which parameters; the app serves it beside the API."""

from typing import Final
from urllib.parse import parse_qsl

from projections.api import parameters
from projections.api.listing import ORDERS, STATES
from projections.api.problems import Refusal
from projections.api.route import Ask, Desk, Given, Reply, Route
from projections.index import MAX_PER_PAGE
from projections.ui import (
    auditpage,
    columns,
    exporting,
    jobpage,
    listpage,
    overviewpage,
    render,
    sqlpage,
    standingpages,
    suggest,
)
from projections.ui.assets import assets
from projections.ui.words import query

_KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Security-Policy": "default-src 'none'"}


def _asset(desk: Desk, given: Given) -> Reply:
    found = assets().find(given.path.removeprefix("/static/"))
    return Reply(found.body, headers={**_KEPT, "Content-Type": found.media_type})


def _robots(desk: Desk, given: Given) -> Reply:
    return Reply(b"User-agent: *\nDisallow: /\n", headers={"Content-Type": "text/plain; charset=utf-8"})


def _columns(desk: Desk, given: Given) -> Reply:
    """Answer with the way back, for a browser that keeps the choice below where it stands: for the list, and for a year."""
    kept = columns.written(columns.wanted(given.values["shown"]))
    back = query(parse_qsl(given.values["back"].removeprefix("?")))
    cookie = f"{columns.COOKIE}={kept}; Max-Age=31536000; SameSite=Strict; HttpOnly"
    return Reply(b"", status=303, headers={"Location": f"./{back}#columns", "Set-Cookie": cookie})


def _suggest(desk: Desk, given: Given) -> Reply:
    return Reply(
        suggest.answer(desk.questions, given.values["text"], min(given.values["caret"], len(given.values["text"])))
    )


def refused(desk: Desk, given: Given, refusal: Refusal) -> Reply:
    """Show why there is no page."""
    return render.page(
        "refused.html", desk, given, refusal.problem.error, problem=refusal.problem, status_code=refusal.status
    )


def _plain(path: str, ask: Ask, about: str) -> Route:
    return Route(path=path, name=f"page_{path[1:]}", about=about, ask=ask, media_type=render.HTML, refuse=refused)


PAGES: Final[tuple[Route, ...]] = (
    Route(
        path="/",
        name="page_list",
        about="All jobs, newest first.",
        ask=listpage.show,
        parameters=(
            parameters.free_text("q", "What to look for.", limit=2000),
            parameters.choice("state", "Only jobs in this state.", STATES),
            parameters.lenient("page", "From 1.", default=1),
            parameters.whole("per_page", "Jobs on a page.", low=1, high=MAX_PER_PAGE, default=listpage.PER_PAGE),
            parameters.opaque("cursor", "Go on looking from there."),
            parameters.free_text("top", "The job with which the page began.", limit=128),
            parameters.moment("as_of", "As it was then."),
            parameters.choice("order", "Which come first.", ORDERS),
        ),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/export",
        name="page_export",
        about="All that a search finds, as a file.",
        ask=exporting.show,
        parameters=(
            parameters.free_text("q", "What to look for.", limit=2000),
            parameters.moment("as_of", "As it was then."),
            parameters.choice("format", "What kind of file.", ("", *exporting.FORMATS)),
        ),
        media_type=render.HTML,
        refuse=refused,
        is_file=True,
    ),
    Route(
        path="/columns",
        name="page_columns",
        about="Keep which columns the list has, and go back to it.",
        ask=_columns,
        parameters=(
            parameters.free_text("shown", "Their names, with dots between them.", limit=200),
            parameters.free_text("back", "The query of the list.", limit=3000),
        ),
        is_quick=True,
    ),
    Route(
        path="/jobs/{job_id}/lines",
        name="page_lines",
        about="The next log lines of a job.",
        ask=jobpage.lines,
        parameters=(parameters.whole("after_seq", "Lines after this one.", default=0),),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/jobs/{job_id}/event",
        name="page_event",
        about="One event of a job.",
        ask=jobpage.event,
        parameters=(parameters.whole("version", "Which.", low=1, default=1),),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/jobs/{job_id}/log.txt",
        name="page_log",
        about="The log lines of a job as text.",
        ask=jobpage.log_text,
        parameters=(parameters.whole("start", "Of this start alone; 0: all.", default=0),),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/jobs/{job_id}",
        name="page_job",
        about="One job: what became of it and why.",
        ask=jobpage.show,
        parameters=(
            parameters.whole("at", "As it was after this event; 0: now.", default=0),
            parameters.choice("view", "How events are shown.", ("", "compact", "full", "json")),
            parameters.choice("all", "Show every event.", ("", "yes")),
            parameters.free_text("with", "Another job to compare it with.", limit=200),
            parameters.whole("seen", "Answer with nothing where this is still the last event.", default=0),
        ),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/overview",
        name="page_overview",
        about="The whole.",
        ask=overviewpage.show,
        parameters=(parameters.choice("range", "How long the chart goes back.", ("", *overviewpage.RANGES)),),
        media_type=render.HTML,
        refuse=refused,
    ),
    _plain("/queues", standingpages.queues, "The queues, and what is paused."),
    _plain("/workers", standingpages.workers, "Who works, and on what."),
    _plain("/schedules", standingpages.schedules, "The periodic jobs."),
    _plain("/projector", standingpages.projector, "How well the views are, and what is parked."),
    Route(
        path="/audit",
        name="page_audit",
        about="Who did what.",
        ask=auditpage.show,
        parameters=(
            parameters.free_text("actor", "Somewhere in who did it.", limit=255),
            parameters.free_text("act", "What was done.", limit=100),
            parameters.whole("before", "Look back from this place of the log; 0: its end.", default=0),
        ),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/sql",
        name="page_sql",
        about="Ask anything of all history.",
        ask=sqlpage.show,
        parameters=(parameters.free_text("q", "The query to begin with.", limit=sqlpage.LIMIT),),
        media_type=render.HTML,
        refuse=refused,
    ),
    Route(
        path="/sql",
        method="POST",
        name="page_sql_run",
        about="The rows that a query finds.",
        ask=sqlpage.run,
        takes=sqlpage.SqlOrder,
        role=sqlpage.ROLE,
    ),
    Route(
        path="/suggest",
        name="page_suggest",
        about="What may come next in a search.",
        ask=_suggest,
        parameters=(
            parameters.free_text("text", "The search so far.", limit=2000),
            parameters.whole("caret", "Where it goes on.", high=2000, default=2000),
        ),
    ),
    Route(
        path="/static/{path:path}",
        name="page_asset",
        about="A file that pages load, also that of a refusal.",
        ask=_asset,
        role=None,
        is_quick=True,
    ),
    Route(
        path="/robots.txt",
        name="page_robots",
        about="No page is for search engines.",
        ask=_robots,
        role=None,
        is_quick=True,
    ),
)
