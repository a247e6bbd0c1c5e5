"""Pages of the log's table of runs in the shape of the index's, each status folded from the log."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from jobevents.census import Order
from jobevents.errors import NotFound
from jobevents.ids import sort_key
from jobevents.jobs import Jobs
from jobevents.status import Status
from jobevents.store import JobRun, RunFilter
from projections.paging import PageMeta, adjust_item_count, load_page, meta_of
from projections.reader import LeftOut, StatusPage, raise_if_unreadable

S = TypeVar("S", bound=Status)


def page_of(
    jobs: Jobs,
    filter: RunFilter,
    number: int,
    per_page: int,
    *,
    type: type[S],
    allow: Callable[[PageMeta], None] = lambda _: None,
    order: Order = "newest",
) -> StatusPage[S]:
    """Return a page of jobs that a filter finds; past the end is the last one.

    Args:
        filter: its own page does not count.
        order: other than newest first of a log alone that keeps a table of runs.
        number: from 1.
        allow: told where a page is before it is read; may raise.

    Raises:
        Unavailable, PermissionDenied, Corrupt: what the log says; single jobs that cannot be read are left out and named.
    """

    def read(page: int) -> tuple[Sequence[JobRun], int]:
        if jobs.desk is not None and order != "newest":
            return jobs.desk.census.page(filter, order, (page - 1) * per_page, per_page)
        found = jobs.runs.list(msgspec.structs.replace(filter, page=page, per_page=per_page))
        return found.runs, found.total

    runs, total = read(1)
    meta = meta_of(total, number, per_page)
    if meta.page > 1:
        allow(meta)
        runs, _ = read(meta.page)
    places = {run.id: place for place, run in enumerate(runs)}
    items, left_out = load(jobs, list(places), type)
    items.sort(key=lambda one: places[one.job_id])
    shown = adjust_item_count(meta, len(items))
    return StatusPage(items=items, left_out=left_out, **msgspec.structs.asdict(shown))


def load(jobs: Jobs, ids: Sequence[str], type: type[S]) -> tuple[list[S], list[LeftOut]]:
    """Read statuses from the log; what cannot be read is left out and named.

    Raises:
        Unavailable, PermissionDenied, Corrupt: none can be read.
    """
    failed: dict[str, Exception] = {}

    def read(job_id: str) -> S:
        try:
            return jobs.get_as(type, job_id)
        except Exception as error:
            failed[job_id] = error
            raise

    items, _ = load_page(ids, 1, 0, read, sort_key=sort_key)
    missing = [(job_id, failed[job_id]) for job_id in ids if job_id in failed]
    if missing and not items:
        raise_if_unreadable(missing)
    return items, [LeftOut(job_id, _reason(error)) for job_id, error in missing]


def _reason(error: Exception) -> str:
    return "gone: deleted meanwhile" if isinstance(error, NotFound) else str(error) or repr(error)
