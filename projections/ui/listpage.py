"""The page of all jobs: what the search finds, page by page, with what could not be read or found, and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents.errors import Corrupt, JobEventsError, NotFound
from jobevents.ids import sort_key
from jobevents.jobs import Jobs
from jobevents.status import State, Status
from jobevents.store import RunFilter
from projections.api.listing import Wanted
from projections.api.problems import CannotFilter, Problem, refusal_of
from projections.api.questions import Questions
from projections.api.route import Desk, Given, Reply
from projections.api.routes import THERE
from projections.api.shapes import JobPage
from projections.api.sifting import Sieve, Sifted, sift
from projections.index import cursor_after
from projections.reader import LeftOut, raise_if_unreadable
from projections.ui import actions, rows, search
from projections.ui.render import page
from projections.ui.rows import Row
from projections.ui.search import Search
from projections.ui.words import iso, query

PER_PAGE: Final = 25
SIZES: Final = (10, 25, 50, 100, 200)
NEARBY: Final = 2  # page numbers shown on either side of the current one
QUEUES_SHOWN: Final = 12


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a list."""

    rows: list[Row] = []
    left_out: list[LeftOut] = []
    page: JobPage | None = None  # with page numbers, where there are some
    sifted: Sifted | None = None  # how far was looked, where rows were looked through
    complete_through: datetime | None = None
    is_complete_known: bool = True
    newer: int = 0  # that came since the page was loaded
    has_more_newer: bool = False  # and how many more is not known
    problem: Problem | None = None
    status: int = 200


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page."""
    questions, values = desk.questions, given.values
    now = questions.jobs.emitter.clock()
    wanted, found = Search(), Found()
    text = values["q"]
    try:
        if values["state"]:  # a link of the rail, or what an older bookmark says
            text = f"state:{values['state']} {text}"
        wanted = search.parse(text, now)
        found = _find(questions, wanted, values, now)
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
        here=_links(given, wanted, found),
        rail=_rail(questions, wanted),
        as_of=values["as_of"],
        per_page=values["per_page"],
        sizes=SIZES,
        pages=_nearby(found.page),
        filters=questions.listing.filters(),
        bulk=actions.of_many(given.caller, THERE, *_all_matching(wanted, values["as_of"], now)),
        is_empty_log=_is_empty(questions, wanted, found),
    )
    return msgspec.structs.replace(
        reply, complete_through=found.complete_through, is_complete_known=found.is_complete_known
    )


def _find(questions: Questions, wanted: Search, values: Any, now: datetime) -> Found:
    sieve = _sieve(wanted)
    if sieve:
        return _sifted(questions, wanted, sieve, values, now)
    asked = Wanted(
        state=wanted.state,
        command=wanted.command,
        queue=wanted.queue,
        since=search.instant(wanted.after, now) if wanted.after else None,
        until=search.instant(wanted.before, now) if wanted.before else None,
        q=wanted.id,
        page=values["page"],
        per_page=values["per_page"],
        as_of=values["as_of"],
    )
    listed = questions.listing.find(asked)
    if not isinstance(listed.found, JobPage):
        raise CannotFilter("a page was asked for")
    found, newer, has_more = listed.found, 0, False
    if values["top"] and found.page == 1 and not asked.as_of:
        found, newer, has_more = _anchored(questions, asked, found, values["top"])
    shown, unreadable = _rows(questions.jobs, found.items, now, of_past=bool(asked.as_of))
    return Found(
        rows=shown,
        left_out=[*found.left_out, *unreadable],
        page=found,
        complete_through=listed.complete_through,
        is_complete_known=listed.complete_through is not None,
        newer=newer,
        has_more_newer=has_more,
    )


def _anchored(questions: Questions, asked: Wanted, first: JobPage, top: str) -> tuple[JobPage, int, bool]:
    """Return the first page as it was begun by `top`, how many jobs are newer than that, and whether there are still more.

    So what somebody looks at does not move away under the pointer.
    """
    ids = [one.job_id for one in first.items]
    newer = [job_id for job_id in ids if _is_newer(job_id, top)]
    if not newer:
        return first, 0, False
    if len(newer) == len(ids) and first.has_next and top not in ids:
        rest = questions.listing.find(msgspec.structs.replace(asked, cursor=cursor_after(top)))
    else:
        rest = questions.listing.find(msgspec.structs.replace(asked, cursor=cursor_after(newer[-1])))
    items, left_out = list(rest.found.items), list(rest.found.left_out)
    if top not in [one.job_id for one in items] and len(newer) == len(ids):
        try:
            items.insert(0, questions.jobs.get(top))
        except NotFound:
            left_out.insert(0, LeftOut(top, "gone: deleted meanwhile"))
        except Corrupt as error:
            left_out.insert(0, LeftOut(top, str(error)))
    shown = msgspec.structs.replace(first, items=items[: first.per_page], left_out=left_out)
    return shown, len(newer), len(newer) == len(ids)


def _is_newer(job_id: str, top: str) -> bool:
    return (sort_key(job_id), job_id) > (sort_key(top), top)


def _sifted(questions: Questions, wanted: Search, sieve: Sieve, values: Any, now: datetime) -> Found:
    jobs = questions.jobs
    if jobs.desk is None:
        raise CannotFilter("this log keeps no table of runs to look through: search by state alone")
    if values["as_of"]:
        raise CannotFilter("as_of goes with state, command, queue and page alone")
    filter = RunFilter(
        job=wanted.command,
        statuses=(wanted.state,) if wanted.state else (),
        queue=wanted.queue,
        from_=search.instant(wanted.after, now) if wanted.after else None,
        to=search.instant(wanted.before, now) if wanted.before else None,
        prefix=wanted.id,
    )
    began = jobs.emitter.clock()
    sifted = sift(
        jobs.desk.census,
        filter,
        sieve,
        cursor=values["cursor"] or "",
        limit=values["per_page"],
        now=now,
        title_of=lambda job_id: jobs.job(job_id).title,
    )
    shown, failed = list[Row](), list[tuple[str, Exception]]()
    for run in sifted.runs:
        try:
            shown.append(rows.of_job(jobs.job(run.id), now))
        except JobEventsError as error:
            failed.append((run.id, error))
    left_out = _left_out(shown, failed)
    return Found(rows=shown, left_out=left_out, sifted=sifted, complete_through=began)


def _left_out(shown: Sequence[Row], failed: Sequence[tuple[str, Exception]]) -> list[LeftOut]:
    """Return the jobs of a page that cannot be shown.

    Raises:
        Unavailable, PermissionDenied, Corrupt: none can, as `reader.raise_if_unreadable` says.
    """
    if not shown:
        raise_if_unreadable(failed)
    return [LeftOut(job_id, str(error)) for job_id, error in failed]


def _sieve(wanted: Search) -> Sieve:
    return Sieve(
        worker=wanted.worker,
        actor=wanted.actor,
        error=wanted.error,
        words=wanted.words,
        took=search.length(wanted.duration).holds if wanted.duration else None,
    )


def _rows(jobs: Jobs, items: Sequence[Status], now: datetime, *, of_past: bool) -> tuple[list[Row], list[LeftOut]]:
    """Return the rows, and the jobs that have an event which cannot be read: what they are now is not known.

    The rows of a log with one order have all that is known now, which is one cheap read each.

    Raises: as `_left_out`.
    """
    if of_past or not jobs.log.ordered:
        return [rows.of_status(one) for one in items], []
    found, failed = list[Row](), list[tuple[str, Exception]]()
    for one in items:
        try:
            found.append(rows.of_job(jobs.job(one.job_id), now))
        except NotFound:
            found.append(rows.of_status(one))
        except Corrupt as error:
            failed.append((one.job_id, error))
    return found, _left_out(found, failed)


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
    if _sieve(wanted):
        return {}, "a search that looks through rows finds them page by page: choose rows"
    since, until = (iso(search.instant(text, now)) if text else "" for text in (wanted.after, wanted.before))
    said = {"state": wanted.state, "command": wanted.command, "queue": wanted.queue, "q": wanted.id}
    return {key: value for key, value in {**said, "since": since, "until": until}.items() if value}, ""


def _links(given: Given, wanted: Search, found: Found) -> dict[str, Any]:
    """Return where links of the page lead, each with all filters of now but for what it changes."""
    values = given.values
    base = [("as_of", values["as_of"]), ("per_page", values["per_page"] if values["per_page"] != PER_PAGE else "")]

    def to(*, page: int = 1, cursor: str = "", top: str = "", **changes: str) -> str:
        text = search.write(msgspec.structs.replace(wanted, **changes))
        number = page if page != 1 else ""
        return query([("q", text), *base, ("page", number), ("cursor", cursor), ("top", top)])

    top = found.rows[0].job_id if found.rows and found.page and found.page.page == 1 else values["top"]
    return {
        "to": to,
        "self": to(page=values["page"], cursor=values["cursor"] or ""),
        "live": to(page=values["page"], cursor=values["cursor"] or "", top=top or ""),
        "now": query([("q", search.write(wanted))]),
    }


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
