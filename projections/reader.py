"""Read pages of statuses: the ids from the index, each status from its blob, asked for again only when that has changed.

The index is written after the statuses, or before: a row may be shown in another state than the one that was asked for, and
a job may be gone. What could not be read is left out and named, never silently; a page of which nothing could be read is an
error.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec
from lru import LRU

from jobevents.blobs import Blobs
from jobevents.errors import Corrupt, JobEventsError, NotFound, PermissionDenied, Unavailable
from jobevents.ids import shown, sort_key
from jobevents.records import status_name
from jobevents.status import Status, check_type, decode
from projections.index import DEFAULT_PER_PAGE, Index, cursor_after
from projections.paging import DEFAULT_CONCURRENCY, PageMeta, adjust_item_count, load_page

S = TypeVar("S", bound=Status)

DEFAULT_CACHED = 10_000  # statuses in memory: about 1 KB each, so 10 MB

_SHOWN = 3  # causes that an error names
_GONE = "gone: deleted meanwhile, or its status is not written yet"
_KINDS: tuple[type[JobEventsError], ...] = (Unavailable, PermissionDenied, Corrupt)
"""What a page of which nothing could be read is raised as: the first that occurs, since the first is worth another try."""


class LeftOut(msgspec.Struct, frozen=True):
    """A job that belongs on the page and is not shown."""

    job_id: str
    reason: str  # for people


class StatusPage(msgspec.Struct, Generic[S], frozen=True, rename={"from_": "from"}):
    """A page of statuses; as JSON, the items and the ten keys of PageMeta beside them (behaviour S34), then what is missing."""

    items: list[S]  # newest first
    page: int  # this and the next nine: as in PageMeta, for the items that are shown
    per_page: int
    total: int
    total_pages: int
    has_prev: bool
    has_next: bool
    prev_page: int
    next_page: int
    from_: int
    to: int
    left_out: list[LeftOut]  # in the order of the page

    @property
    def meta(self) -> PageMeta:
        """The place of the page in the list."""
        return PageMeta(**{name: getattr(self, name) for name in PageMeta.__struct_fields__})


class StatusSlice(msgspec.Struct, Generic[S], frozen=True):
    """Some statuses, newest first, and where to go on."""

    items: list[S]
    cursor: str  # give it to `after`; "" when nothing older is there
    left_out: list[LeftOut]  # in their order


class Reader(Generic[S]):
    """Pages of any state with their statuses. Safe for threads.

    A page costs the index's reads and one read for each status, ten at a time, which a store answers without data when the
    status has not changed. Every item is the caller's own.
    """

    @overload
    def __init__(
        self: "Reader[Status]",
        blobs: Blobs,
        prefix: str = "",
        *,
        index: Index | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        cached_statuses: int = DEFAULT_CACHED,
    ) -> None: ...
    @overload
    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        type: type[S],
        index: Index | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        cached_statuses: int = DEFAULT_CACHED,
    ) -> None: ...
    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        type: Any = Status,  # the type[S] of the overloads
        index: Index | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        cached_statuses: int = DEFAULT_CACHED,
    ) -> None:
        """Read what is below the log's prefix.

        Args:
            type: Status, or the service's subclass of it.
            index: one that is shared with other readers; its own if not given.
            concurrency: statuses read at a time.

        Raises:
            TypeError: the type is refused by `check_type`.
        """
        check_type(type)
        self.index = index or Index(blobs, prefix)
        self._blobs = blobs
        self._root = f"{prefix}/" if prefix else ""
        self._type: type[S] = type
        self._concurrency = concurrency
        self._cache: LRU[str, tuple[str, S]] = LRU(cached_statuses)  # job id -> generation, status
        self._lock = threading.Lock()

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, as `Index.counts`."""
        return self.index.counts()

    def page(
        self,
        state: str = "",
        page: int = 1,
        per_page: int = DEFAULT_PER_PAGE,
        *,
        stop: Callable[[], None] | None = None,
    ) -> StatusPage[S]:
        """Return a page of statuses, newest first; `total` and `total_pages` count those left out too (behaviour S24).

        Args:
            state, page, per_page: as for `Index.page`.
            stop: gives the page up, as for `paging.load_page`.

        Raises:
            InvalidValue: there is no such state.
            Unavailable, PermissionDenied, Corrupt: the index cannot be read, or no status of the page can; a page whose jobs
                are all gone is none of these.
            What `stop` raises.
        """
        ids, meta = self.index.page(state, page, per_page)
        items, left_out = self._load(ids, stop)
        shown_meta = adjust_item_count(meta, len(items))
        return StatusPage(items=items, left_out=left_out, **msgspec.structs.asdict(shown_meta))

    def after(
        self,
        cursor: str = "",
        limit: int = DEFAULT_PER_PAGE,
        state: str = "",
        *,
        stop: Callable[[], None] | None = None,
    ) -> StatusSlice[S]:
        """Return the statuses that come after a cursor, newest first; from the newest on without one.

        Following the cursors to the end shows, or names as left out, every job that is there throughout exactly once.

        Args:
            cursor, limit, state: as for `Index.after`.
            stop: as for `page`.

        Raises:
            InvalidValue: it is no cursor, or there is no such state.
            Unavailable, PermissionDenied, Corrupt: as `page`; the same cursor may be tried again.
        """
        ids = self.index.after(cursor, limit, state)
        items, left_out = self._load(ids.ids, stop)
        return StatusSlice(items, ids.cursor, left_out)

    def get(self, job_id: str) -> S:
        """Return the status of a job as its blob says now: one read.

        Raises:
            NotFound: there is none.
            Corrupt: it cannot be read as one.
            Unavailable, PermissionDenied: what the store says.
        """
        with self._lock:
            held = self._cache.get(job_id)
        blob = self._blobs.get(self._root + status_name(job_id), if_changed=held[0] if held else None)
        if blob is None:
            assert held is not None  # noqa: S101  # None only for if_changed
            return copy.copy(held[1])
        status: S = decode(blob.data, self._type, job_id=job_id)
        with self._lock:
            self._cache[job_id] = blob.generation, status
        return copy.copy(status)

    def _load(self, ids: Sequence[str], stop: Callable[[], None] | None) -> tuple[list[S], list[LeftOut]]:
        """Read the statuses of a page; each failure is warned of once, by load_page."""
        failed: dict[str, Exception] = {}

        def load(job_id: str) -> S:
            try:
                return self.get(job_id)
            except Exception as error:
                failed[job_id] = error
                raise

        items, _ = load_page(ids, 1, 0, load, sort_key=sort_key, concurrency=self._concurrency, stop=stop)
        missing = [(job_id, failed[job_id]) for job_id in ids if job_id in failed]
        if missing and not items:
            raise_if_unreadable(missing)
        return items, [LeftOut(job_id, _reason(error)) for job_id, error in missing]


def raise_if_unreadable(failed: Sequence[tuple[str, Exception]]) -> None:
    """Raise what the failures of a whole page amount to, unless all its jobs are gone: the one rule of every list.

    One bad job among good ones is left out and named; a page of which nothing could be read is an error, and never empty. It
    says how to go on behind it, since what is corrupt stays so.

    Args:
        failed: the jobs of the page in their order, each with its error.
    """
    unreadable = [(job_id, error) for job_id, error in failed if not isinstance(error, NotFound)]
    if not unreadable:
        return
    kind = next((kind for kind in _KINDS if any(isinstance(error, kind) for _, error in unreadable)), Unavailable)
    causes = "; ".join(f"job_id={shown(job_id)} {error}" for job_id, error in unreadable[:_SHOWN])
    raise kind(
        f"no status of the page could be read count={len(failed)} first causes: {causes}; "
        f"what comes after them is at cursor={cursor_after(failed[-1][0])}"
    ) from unreadable[0][1]


def _reason(error: Exception) -> str:
    return _GONE if isinstance(error, NotFound) else str(error) or repr(error)
