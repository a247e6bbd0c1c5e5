"""What a search of the list finds: a page of it, or all of it from the newest on; with what could not be read, and why."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents.errors import Corrupt, JobEventsError, NotFound
from jobevents.ids import sort_key
from jobevents.jobs import Jobs
from jobevents.status import Status
from projections.api import search
from projections.api.listing import Wanted
from projections.api.problems import CannotFilter, Problem
from projections.api.questions import Questions
from projections.api.search import Search
from projections.api.shapes import JobPage
from projections.api.sifting import Sieve, Sifted, sift
from projections.index import MAX_PER_PAGE, cursor_after
from projections.reader import LeftOut, raise_if_unreadable
from projections.ui import rows
from projections.ui.rows import Row

ONE_WAY: Final = "a search that looks through rows goes from the newest on"


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


def find(questions: Questions, wanted: Search, values: Any, now: datetime) -> Found:
    """Return a page of what a search finds.

    Args:
        values: of the parameters that the list has: page, per_page, cursor, top, as_of, order.

    Raises:
        CannotFilter, InvalidValue, NotFound: as `Listing.find`. Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    sieve = search.sieve_of(wanted, of_past=bool(values["as_of"]))
    if sieve:
        return _sifted(questions, wanted, sieve, values, now)
    asked = msgspec.structs.replace(
        _asked(wanted, now),
        page=values["page"],
        per_page=values["per_page"],
        as_of=values["as_of"],
        order=values["order"] or "newest",
    )
    listed = questions.listing.find(asked)
    if not isinstance(listed.found, JobPage):
        raise CannotFilter("a page was asked for")
    found, newer, has_more = listed.found, 0, False
    if values["top"] and found.page == 1 and not asked.as_of and asked.order == "newest":
        found, newer, has_more = _anchored(questions, asked, found, values["top"])
    shown, unreadable = _rows(questions.jobs, found.items, now, of_past=bool(asked.as_of))
    lost = {one.job_id: one.text for one in found.lost}
    return Found(
        rows=[msgspec.structs.replace(one, lost=lost[one.job_id]) if one.job_id in lost else one for one in shown],
        left_out=[*found.left_out, *unreadable],
        page=found,
        complete_through=listed.complete_through,
        is_complete_known=listed.complete_through is not None,
        newer=newer,
        has_more_newer=has_more,
    )


def everything(questions: Questions, wanted: Search, as_of: str, now: datetime) -> Iterator[Row | LeftOut]:
    """Yield all that a search finds, newest first, read a page at a time; what cannot be read is yielded as that.

    Raises: as `find`, also when some was yielded.
    """
    values = {"page": 1, "per_page": MAX_PER_PAGE, "as_of": as_of, "cursor": "", "top": "", "order": ""}
    if as_of or search.sieve_of(wanted):
        while True:
            found = find(questions, wanted, values, now)
            yield from found.rows
            yield from found.left_out
            values["cursor"] = found.sifted.cursor if found.sifted else ""
            values["page"] = found.page.next_page if found.page and found.page.has_next else 0
            if not values["cursor"] and not values["page"]:
                return
    asked = msgspec.structs.replace(_asked(wanted, now), per_page=MAX_PER_PAGE, cursor="")
    while True:
        part = questions.listing.find(asked).found
        shown, unreadable = _rows(questions.jobs, part.items, now, of_past=False)
        yield from shown
        yield from [*part.left_out, *unreadable]
        if not part.cursor:
            return
        asked = msgspec.structs.replace(asked, cursor=part.cursor)


def _asked(wanted: Search, now: datetime) -> Wanted:
    return Wanted(
        state=wanted.state,
        command=wanted.command,
        queue=wanted.queue,
        since=search.instant(wanted.after, now) if wanted.after else None,
        until=search.instant(wanted.before, now) if wanted.before else None,
        q=wanted.id,
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
    lost = [*first.lost, *rest.found.lost]
    shown = msgspec.structs.replace(first, items=items[: first.per_page], left_out=left_out, lost=lost)
    return shown, len(newer), len(newer) == len(ids)


def _is_newer(job_id: str, top: str) -> bool:
    return (sort_key(job_id), job_id) > (sort_key(top), top)


def _sifted(questions: Questions, wanted: Search, sieve: Sieve, values: Any, now: datetime) -> Found:
    jobs = questions.jobs
    if jobs.desk is None:
        raise CannotFilter("this log keeps no table of runs to look through: search by state alone")
    if values["as_of"]:
        raise CannotFilter("as_of goes with state, command, queue and page alone")
    if values["order"] not in ("", "newest"):
        raise CannotFilter(ONE_WAY)
    began = jobs.emitter.clock()
    sifted = sift(
        jobs.desk.census,
        search.filter_of(wanted, now),
        sieve,
        cursor=values["cursor"] or "",
        limit=values["per_page"],
        now=now,
        title_of=lambda job_id: jobs.job(job_id).title,
        shown=questions.mask.value,
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
