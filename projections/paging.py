"""Choose one page of job ids, newest first, and load it with a bounded number of threads (behaviour S21-S24).

Pages are numbered by count: a page is a view of the moment. While jobs are added or deleted between two requests, a
row may be seen on two pages or on none; it is never an error, and a page past the end is the last page. Who must see
every job exactly once reads by cursor instead.

Nothing here caps `per_page` (0 or less means everything): callers that take it from outside cap it there.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from jobevents.ids import shown

T = TypeVar("T")
Rankable = TypeVar("Rankable", str, tuple[str, str])

DEFAULT_CONCURRENCY = 10  # behaviour S24.1
_SAMPLE = 1024  # measured at 1e5 and 1e6 ids: 256 is up to twice as slow, 4096 about the same

_log = logging.getLogger(__name__)


class PageMeta(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """Say which part of a list a page is; msgspec encodes its ten keys in this order (behaviour S22)."""

    page: int  # 1-based; the last page if a later one was asked for, as asked for if nothing is there to clamp to
    per_page: int  # as asked for; 0 or less means that everything is on one page
    total: int  # ids in the whole list
    total_pages: int  # 0 if the list is empty, 1 without paging
    has_prev: bool  # page > 1
    has_next: bool  # a later page exists; never without paging
    prev_page: int  # page - 1, also where there is none
    next_page: int  # page + 1, also where there is none
    from_: int  # 1-based place of the first id of the page in the list, 0 if there is none
    to: int  # 1-based place of the last one, 0 if there is none; from + items - 1 once items were left out


def select_ids(
    ids: Sequence[str], page: int, per_page: int, sort_key: Callable[[str], str] | None = None
) -> tuple[list[str], PageMeta]:
    """Return one page of `ids`, in descending order of (key, id), and its place in the list (behaviour S21, S22).

    The order is that of the UTF-8 bytes, which for Python's text is the order of its code points: nothing is encoded,
    and lone surrogates compare too. Without `sort_key` the order is by id alone. Duplicates are kept; `ids` is not
    changed. Costs a pass or two over the ids and a sort of those near the page, not of all.

    Args:
        page: 1-based; less than 1 means 1, past the end means the last page.
        per_page: 0 or less returns everything, whatever the page.
        sort_key: gives the first part of the order; ids for which it is empty come last.
    """
    meta = meta_of(len(ids), page, per_page)
    start, stop = max(meta.from_ - 1, 0), meta.to
    if sort_key is None:
        return _ranked(ids, start, stop), meta
    keyed = list(zip(map(sort_key, ids), ids, strict=True))
    return [job_id for _, job_id in _ranked(keyed, start, stop)], meta


def adjust_item_count(meta: PageMeta, n: int) -> PageMeta:
    """Return `meta` for a page of which `n` items are left to show (behaviour S23); may be applied again."""
    if meta.total == 0:
        return meta
    if n == 0:
        return msgspec.structs.replace(meta, from_=0, to=0)
    return msgspec.structs.replace(meta, to=meta.from_ + n - 1 if meta.per_page > 0 else n)


def load_page(
    ids: Sequence[str],
    page: int,
    per_page: int,
    load: Callable[[str], T],
    *,
    sort_key: Callable[[str], str] | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    logger: logging.Logger | None = None,
    stop: Callable[[], None] | None = None,
    raise_if_all: tuple[type[Exception], ...] = (),
) -> tuple[list[T], PageMeta]:
    """Select a page and load its items in threads, in the page's order (behaviour S24).

    An id whose load fails is left out with one warning that names it: the meta's `to` counts the items left, `total`
    and `total_pages` stay. To keep the row, let `load` return a substitute. An id listed twice is loaded twice.

    `stop` gives the page up: a function that raises, like `attempt.check` or `deadline(5)`. It is called in the
    caller's thread before each load starts and after the last has ended. Once it raises no load starts, those that have
    started are waited for, and its error is raised, also when every item was loaded or there was none to load.

    Args:
        concurrency: the most loads handed to threads at a time; less than 1 means 10.
        logger: gets the warnings; without one, this module's.
        raise_if_all: if every load failed, each with one of these, raise the first error instead of returning an
            empty page. Pass what means that the store as a whole cannot be read.

    Raises: what `stop` raises, and what `raise_if_all` names.
    """
    chosen, meta = select_ids(ids, page, per_page, sort_key)
    futures = _load_each(chosen, load, concurrency if concurrency > 0 else DEFAULT_CONCURRENCY, stop or _never)
    failed = _left_out(chosen, futures, logger or _log)
    if len(failed) == len(chosen) and failed and all(isinstance(error, raise_if_all) for error in failed.values()):
        raise failed[0]
    items = [future.result() for place, future in enumerate(futures) if place not in failed]
    return items, adjust_item_count(meta, len(items))


def deadline(timeout_s: float, *, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Return a `stop` for load_page that raises TimeoutError once `timeout_s` from now have passed."""
    ends = clock() + timeout_s

    def stop() -> None:
        if clock() >= ends:
            raise TimeoutError(f"page not loaded in time timeout_s={timeout_s:g}; ask for fewer items")

    return stop


def _never() -> None:
    """Want the page to its end."""


def meta_of(total: int, page: int, per_page: int) -> PageMeta:
    """Place a page in a list of `total` (behaviour S21.1-S21.3, S22)."""
    page = max(page, 1)
    paged = per_page > 0
    pages = -(-total // per_page) if paged else min(total, 1)
    if paged and pages:
        page = min(page, pages)
    first = (page - 1) * per_page + 1 if paged else 1
    return PageMeta(
        page=page,
        per_page=per_page,
        total=total,
        total_pages=pages,
        has_prev=page > 1,
        has_next=page < pages,
        prev_page=page - 1,
        next_page=page + 1,
        from_=first if total else 0,
        to=min(first + per_page - 1, total) if paged and total else total,
    )


def _load_each(
    ids: Sequence[str], load: Callable[[str], T], concurrency: int, stop: Callable[[], None]
) -> list[Future[T]]:
    """Start a load per id, each once a slot is free and `stop` lets it; return when all have ended."""
    slots = threading.Semaphore(concurrency)
    futures: list[Future[T]] = []
    with ThreadPoolExecutor(min(concurrency, len(ids)) or 1, thread_name_prefix="load-page") as pool:
        for job_id in ids:
            slots.acquire()
            stop()
            future = pool.submit(load, job_id)
            future.add_done_callback(lambda _: slots.release())
            futures.append(future)
    stop()
    return futures


def _left_out(ids: Sequence[str], futures: Sequence[Future[T]], logger: logging.Logger) -> dict[int, Exception]:
    """Return the errors of the loads that failed, by their place in the page, and warn of each; an exit is none."""
    failed: dict[int, Exception] = {}
    for place, (job_id, future) in enumerate(zip(ids, futures, strict=True)):
        error = future.exception()
        if isinstance(error, Exception):
            logger.warning("job left out of page, its load failed job_id=%s error=%r", shown(job_id), error)
            failed[place] = error
    return failed


def _ranked(items: Sequence[Rankable], start: int, stop: int) -> list[Rankable]:
    """Return `sorted(items, reverse=True)[start:stop]`, sorting only the items that a sample puts near that range.

    A sample that misleads costs a full sort, never a wrong page. Of 1e6 shuffled ids this takes 25 ms at either end and
    90 ms in the middle, a full sort 350 ms; heapq.nlargest takes 16 ms for page 1, but 220 ms if the list is ascending,
    as buckets list it (then: 47 ms, full sort 60 ms).
    """
    low, high = _bounds(items, start, stop)
    rest = items if high is None else [item for item in items if item <= high]
    near = rest if low is None else [item for item in rest if item >= low]
    above = len(items) - len(rest)
    if start < above or stop > above + len(near):
        return sorted(items, reverse=True)[start:stop]
    return sorted(near, reverse=True)[start - above : stop - above]


def _bounds(items: Sequence[Rankable], start: int, stop: int) -> tuple[Rankable | None, Rankable | None]:
    """Guess the lowest and highest item of a range of the descending order; None where the range has no such bound."""
    step = len(items) // _SAMPLE
    if step < 4:
        return None, None
    sample = sorted(items[::step], reverse=True)
    margin = int(2 * len(sample) ** 0.5)  # four standard deviations of a sample's median
    first = start // step - margin
    last = stop // step + margin
    return sample[last] if last < len(sample) else None, sample[first] if first >= 0 else None
