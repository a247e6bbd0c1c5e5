"""Pages of 50 ids, newest first, of any state and at any depth."""

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice

from benchmarks.data import SEED, STATES, job_ids, states
from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting
from jobevents.blobs import FileBlobs
from jobevents.ids import sort_key
from jobevents.job import Job
from projections.chunks import DEFAULT_CACHED
from projections.index import Index
from projections.indexview import IndexView
from projections.paging import select_ids

PER_PAGE = 50
_PAGES = 200  # a repetition
_SORTED_IDS = 400_000  # a repetition that sorts each time: as many pages as make this many ids

Page = Callable[[str, int], Sequence[str]]  # (state or "", number) -> ids


def index(setting: Setting) -> None:
    """Build the index of `size` jobs in files."""
    with closing(FileBlobs(setting.prepared)) as blobs:
        view = IndexView(blobs)
        pairs = zip(job_ids(setting.size), states(setting.size), strict=True)
        position = 0
        while part := list(islice(pairs, 50_000)):
            position += len(part)
            view.take([Job(job_id=job_id, version=1, state=state) for job_id, state in part], position)
            view.flush(everything=True)


def table(setting: Setting) -> None:
    """Write the same jobs into a table with an index for each of the two orders asked for."""
    with closing(sqlite3.connect(log_path(setting.prepared))) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT NOT NULL, sort_key TEXT NOT NULL)")
        rows = zip(job_ids(setting.size), states(setting.size), strict=True)
        connection.executemany("INSERT INTO jobs VALUES (?, ?, ?)", ((i, state, sort_key(i)) for i, state in rows))
        connection.execute("CREATE INDEX by_order ON jobs (sort_key, id)")
        connection.execute("CREATE INDEX by_state ON jobs (state, sort_key, id)")
        connection.commit()


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """projections.index.Index over files, which keeps one chunk: the manifest is looked at, the chunks are read."""
    with _reading(setting, cached_chunks=1) as repeat:
        yield repeat


@contextmanager
def ours_cached(setting: Setting) -> Iterator[Repeat]:
    """The same with as many chunks in memory as by default: all of a small index, a twentieth of a large one."""
    with _reading(setting, cached_chunks=DEFAULT_CACHED) as repeat:
        yield repeat


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """A slice of a list that is held in memory, sorted, for each state."""
    lists = _lists(setting.size)

    def page(state: str, number: int) -> list[str]:
        return lists[state][(number - 1) * PER_PAGE : number * PER_PAGE]

    yield _turning(page, asked_of(_lengths(lists), _PAGES))


@contextmanager
def peer(setting: Setting) -> Iterator[Repeat]:
    """SQLite's LIMIT and OFFSET over an index of the order, and count(*) for the number of pages."""
    with closing(sqlite3.connect(log_path(setting.prepared))) as connection:

        def page(state: str, number: int) -> list[str]:
            where, values = (" WHERE state = ?", [state]) if state else ("", [])
            connection.execute(f"SELECT count(*) FROM jobs{where}", values).fetchone()
            select = f"SELECT id FROM jobs{where} ORDER BY sort_key DESC, id DESC LIMIT {PER_PAGE} OFFSET ?"
            return [job_id for (job_id,) in connection.execute(select, [*values, (number - 1) * PER_PAGE])]

        yield _turning(page, asked_of(_lengths(_lists(setting.size)), _PAGES))


@contextmanager
def sorting(setting: Setting) -> Iterator[Repeat]:
    """paging.select_ids: the whole list is sorted for each page, as the Go kit does it."""
    ids = job_ids(setting.size)
    random.Random(SEED).shuffle(ids)
    asked = asked_of({"": setting.size}, max(1, _SORTED_IDS // setting.size))
    yield _turning(lambda _, number: select_ids(ids, number, PER_PAGE)[0], asked)


@contextmanager
def _reading(setting: Setting, *, cached_chunks: int) -> Iterator[Repeat]:
    with closing(FileBlobs(setting.prepared)) as blobs:
        kept = Index(blobs, cached_chunks=cached_chunks)
        counts = kept.counts()
        asked = asked_of({"": counts["all"], **{state: counts[state] for state in STATES}}, _PAGES)
        yield _turning(lambda state, number: kept.page(state, number, PER_PAGE)[0], asked)


def _lists(size: int) -> dict[str, list[str]]:
    """Return the ids of each state, and of all under "", newest first."""
    ids = job_ids(size)
    lists: dict[str, list[str]] = {"": ids[::-1], **{state: [] for state in STATES}}
    for job_id, state in reversed(list(zip(ids, states(size), strict=True))):
        lists[state].append(job_id)
    return lists


def _lengths(lists: dict[str, list[str]]) -> dict[str, int]:
    return {state: len(found) for state, found in lists.items()}


def asked_of(lengths: dict[str, int], pages: int) -> list[tuple[str, int]]:
    """Return full pages, each page of each state as likely as any other."""
    full = [length // PER_PAGE for length in lengths.values()]
    rng = random.Random(SEED)
    return [(state, rng.randint(1, lengths[state] // PER_PAGE)) for state in rng.choices(list(lengths), full, k=pages)]


def _turning(page: Page, asked: Sequence[tuple[str, int]]) -> Repeat:
    def work() -> int:
        for state, number in asked:
            if len(page(state, number)) != PER_PAGE:
                raise LookupError(f"page is not full state={state} page={number}")
        return len(asked)

    return lambda: work
