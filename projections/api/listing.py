"""Lists of jobs: from the sorted index where that knows what is asked for, else from the log's table of runs. No HTTP.

The index costs the manifest and two chunks, whatever the page; the table is read by an index of the database. What
neither can find without reading everything is refused.
"""

from datetime import datetime, timedelta
from typing import Final, cast, get_args

import msgspec

from jobevents.census import Census, Order
from jobevents.errors import Corrupt, NotFound
from jobevents.ids import sort_key
from jobevents.job import RUNNING
from jobevents.jobs import Jobs
from jobevents.status import State, Status
from jobevents.store import RunFilter
from projections.api.masking import Mask
from projections.api.problems import CannotFilter
from projections.api.shapes import Filter, JobPage, JobSlice
from projections.asof import page as asof_page
from projections.asof import parse
from projections.health import read_health
from projections.index import DEFAULT_PER_PAGE, bounded, cursor_after, id_in
from projections.lost import Losses
from projections.manifest import OTHER
from projections.paging import PageMeta
from projections.positions import TrackedPositions, Tracker
from projections.reader import Reader, StatusPage
from projections.rowpages import load, page_of

STATES: Final = ("", *State, OTHER)
ORDERS: Final = ("", *get_args(Order))
MAX_DEPTH: Final = 100_000  # rows that a database steps over for a page with filters: about 50 ms
MAX_PAST: Final = 100_000  # events that a list of the past may read: about a second
MAX_LAG: Final = 1000  # events that the index may miss before a table is preferred to it
MAX_WAIT: Final = timedelta(seconds=15)  # for how long it may miss them

_NO_TABLE: Final = "this log keeps no table of runs: list by state alone"
_TOO_LONG: Final = "listing the past reads the whole log, which is too long for an answer; run: jobevents list --as-of"
_TABLE_FILTERS: Final = ("command", "queue", "since", "until", "q")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is empty does not restrict."""

    state: str = ""  # one of the six, or `other` for all states of open text
    command: str = ""  # kind of job
    queue: str = ""
    since: datetime | None = None  # created then or later
    until: datetime | None = None  # created then or earlier
    q: str = ""  # what the id begins with
    order: Order = "newest"
    page: int = 1
    per_page: int = DEFAULT_PER_PAGE
    as_of: str = ""  # as it was at this moment, as `asof.parse` reads it
    cursor: str | None = None  # instead of a page: go on after this; "" begins

    @property
    def needs_table(self) -> bool:
        """Tell whether the index does not know what is asked for."""
        return self.order != "newest" or any(getattr(self, name) for name in _TABLE_FILTERS)


class Listed(msgspec.Struct, frozen=True):
    """A list, and up to when it has everything."""

    found: JobPage | JobSlice
    complete_through: datetime | None  # every event committed before is in it; None: not known
    position: int  # place in the log up to which everything is in it


class Listing:
    """Answers with lists. Safe for threads."""

    def __init__(
        self,
        jobs: Jobs,
        record: type[Status] = Status,
        mask: Mask | None = None,
        losses: Losses | None = None,
    ) -> None:
        """Read the log's index and its statuses, as records of a type, with what is masked taken out."""
        self._jobs = jobs
        self._losses = losses or Losses(jobs)
        self._record = record
        self._mask = mask or Mask()
        recorder = jobs.log.recorder
        is_tracked = jobs.log.ordered and isinstance(recorder, Tracker)
        self._positions = TrackedPositions(cast("Tracker", recorder)) if is_tracked else None
        self.reader: Reader[Status] = Reader(jobs.blobs, jobs.prefix, type=record)

    def filters(self) -> dict[str, Filter]:
        """Return which parameters can be used with this log, and why not."""
        table = Filter(True, "") if self._jobs.desk is not None else Filter(False, _NO_TABLE)
        always = Filter(True, "")
        return {
            "state": always,
            "page": always,
            "cursor": always,
            "order": table,
            **dict.fromkeys(_TABLE_FILTERS, table),
        }

    def find(self, wanted: Wanted) -> Listed:
        """Return a page, or what follows a cursor, with the running jobs in it whose workers are lost: one read of each.

        Raises: as `search`.
        """
        listed = self.search(wanted)
        running = [] if wanted.as_of else [one.job_id for one in listed.found.items if one.state == RUNNING]
        lost = [*self._losses.listed(running).values()]
        return msgspec.structs.replace(listed, found=msgspec.structs.replace(listed.found, lost=lost))

    def search(self, wanted: Wanted) -> Listed:
        """Return a page, or what follows a cursor; of none of its jobs it is looked whether their workers live.

        Raises:
            CannotFilter: neither the index nor a table can find it. InvalidValue: it is no cursor, or there is no such state.
            NotFound: there is no index yet, and no table.
            Unavailable, PermissionDenied, Corrupt: as `Reader.page`, or what the log says.
        """
        listed = self._past(wanted) if wanted.as_of else self._now(wanted)
        items = [self._mask.status(one) for one in listed.found.items]
        return msgspec.structs.replace(listed, found=msgspec.structs.replace(listed.found, items=items))

    def _now(self, wanted: Wanted) -> Listed:
        began = self._jobs.emitter.clock()
        indexed = 0 if wanted.needs_table else self.reader.index.position()
        position = 0 if wanted.needs_table else self._whole_to(indexed)
        head = self.head()  # after those: they are no further than it, unless the log is another
        if wanted.needs_table or self._prefers_table(wanted, head, indexed, position):
            return Listed(self._of_table(self._table(), wanted), began, head)
        if head and not indexed:
            raise NotFound("there is no index yet; run: jobevents project")
        if self._jobs.log.ordered and indexed > head:
            raise Corrupt(
                f"the index is {indexed - head} events ahead of the log: was that replaced by an older copy? "
                "make the views anew with: jobevents rebuild"
            )
        is_whole = self._jobs.log.ordered and position == head
        through = began if is_whole else listed_through(self._jobs)
        return Listed(self._of_index(wanted), through, position)

    def position(self, wanted: Wanted) -> int:
        """Return the place in the log up to which everything would be in a list.

        Raises: as `find`.
        """
        if wanted.needs_table:
            return self.head()
        indexed = self.reader.index.position()
        position, head = self._whole_to(indexed), self.head()
        return head if self._prefers_table(wanted, head, indexed, position) else position

    def _past(self, wanted: Wanted) -> Listed:
        """List the jobs as they were: a pass over the whole log, which is refused where that is long."""
        moment = parse(wanted.as_of, self._jobs.emitter.clock())
        head = self.head()
        available = self.past()
        if not available.available:
            raise CannotFilter(available.reason)
        if wanted.cursor is not None or wanted.since or wanted.until or wanted.q or wanted.order != "newest":
            raise CannotFilter("as_of goes with state, command, queue and page alone")
        page = asof_page(
            self._jobs,
            moment,
            wanted.state,
            name=wanted.command,
            queue=wanted.queue,
            page=wanted.page,
            per_page=bounded(wanted.per_page),
        )
        return Listed(_page(page, has_cursor=False), moment.instant, moment.position or head)

    def _whole_to(self, indexed: int) -> int:
        """Return the place in the log up to which a page is whole: its ids are of the index, its items of the statuses.

        Statuses that no projector ever wrote are written by those who work, and have no place.
        """
        stored = self._positions.stored("status") if self._positions else 0
        return min(indexed, stored) if stored else indexed

    def _prefers_table(self, wanted: Wanted, head: int, indexed: int, position: int) -> bool:
        """Tell whether a table is to be read although the index knows what is asked for: it is far off, or left alone."""
        if self._jobs.desk is None or not self._jobs.log.ordered or wanted.state == OTHER:
            return False
        return indexed > head or head - position > MAX_LAG or (position < head and self._is_left_alone())

    def _is_left_alone(self) -> bool:
        """Tell whether nobody seems to project: what the index lacks would stay unseen."""
        through = listed_through(self._jobs)
        return through is None or self._jobs.emitter.clock() - through > MAX_WAIT

    def _table(self) -> Census:
        """Return the counts and lists of the table.

        Raises:
            CannotFilter: there is none.
        """
        if self._jobs.desk is None:
            raise CannotFilter(_NO_TABLE)
        return self._jobs.desk.census

    def head(self) -> int:
        """Return the last place in the log; 0 where a log has no places."""
        return head_of(self._jobs)

    def past(self) -> Filter:
        """Return whether lists can be shown as of an instant."""
        if not self._jobs.log.ordered:
            return Filter(False, "this log has no one order: ask for single jobs as of an instant")
        if self.head() > MAX_PAST:
            return Filter(False, f"{_TOO_LONG} limit={MAX_PAST} events")
        return Filter(True, "")

    def _of_index(self, wanted: Wanted) -> JobPage | JobSlice:
        if wanted.cursor is not None:
            part = self.reader.after(wanted.cursor, wanted.per_page, wanted.state)
            return JobSlice(part.items, part.left_out, part.cursor)
        page = self.reader.page(wanted.state, wanted.page, wanted.per_page)
        return _page(page)

    def _of_table(self, census: Census, wanted: Wanted) -> JobPage | JobSlice:
        if wanted.state == OTHER:
            raise CannotFilter(
                f"jobs in other states are found by the index alone: leave out {', '.join(_TABLE_FILTERS)}"
            )
        filter = RunFilter(
            job=wanted.command,
            statuses=(wanted.state,) if wanted.state else (),
            queue=wanted.queue,
            from_=wanted.since,
            to=wanted.until,
            prefix=wanted.q,
        )
        limit = bounded(wanted.per_page)
        if wanted.cursor is not None and wanted.order != "newest":
            raise CannotFilter("cursors go from the newest job on: ask for pages in another order")
        if wanted.cursor is not None:
            place = id_in(wanted.cursor) if wanted.cursor else ""
            runs = census.after(filter, place, limit + 1)
            items, left_out = load(self._jobs, [run.id for run in runs[:limit]], self._record)
            return JobSlice(items, left_out, cursor_after(runs[limit - 1].id) if len(runs) > limit else "")
        page = page_of(
            self._jobs, filter, wanted.page, limit, type=self._record, allow=_check_depth, order=wanted.order
        )
        return _page(page, has_cursor=wanted.order == "newest")


def head_of(jobs: Jobs) -> int:
    """Return the last place in a log; 0 where it has no places."""
    return int(jobs.log.last_cursor() or 0) if jobs.log.ordered else 0


def listed_through(jobs: Jobs) -> datetime | None:
    """Return up to when every event is in the pages of the index, and in the statuses on them where a projector writes those."""
    known = {one.view: one.complete_through for one in read_health(jobs.blobs, jobs.prefix)}
    through = [known.get("index"), *([known["status"]] if "status" in known else [])]
    return min((when for when in through if when is not None), default=None) if all(through) else None


def _page(page: StatusPage[Status], *, has_cursor: bool = True) -> JobPage:
    ids = [one.job_id for one in page.items] + [one.job_id for one in page.left_out]
    last = min(ids, key=lambda job_id: (sort_key(job_id), job_id), default="")
    fields = {name: getattr(page, name) for name in StatusPage.__struct_fields__}
    return JobPage(cursor=cursor_after(last) if last and has_cursor and page.has_next else "", **fields)


def _check_depth(meta: PageMeta) -> None:
    """Refuse a page that is too deep in a list, before it is read.

    Raises:
        CannotFilter: it is.
    """
    if meta.from_ > MAX_DEPTH:
        raise CannotFilter(
            f"page is too deep in a list with filters page={meta.page} rows before it={meta.from_ - 1} "
            f"limit={MAX_DEPTH}: follow the cursors, or narrow it down with since and until"
        )
