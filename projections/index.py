"""Read the sorted index: a page of the ids of any state, or what follows a cursor, for the manifest and two chunks at most.

Pages are numbered by count and are a view of the moment, like those of `paging`. A cursor is a place in the order, not a
count: who follows cursors to the end sees every job that is there throughout exactly once, whatever is inserted, moved or
deleted meanwhile.
"""

import base64
import binascii
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

import msgspec

from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Corrupt, InvalidValue, NotFound
from jobevents.ids import shown
from projections.chunks import ANEW, DEFAULT_CACHED, ChunkRef, Chunks, rank
from projections.manifest import ALL, LETTERS, OTHER, ManifestBlob, Stored, root_of
from projections.paging import PageMeta, meta_of

T = TypeVar("T")

MAX_PER_PAGE = 200  # ids an answer: no more lie in two chunks for certain (`Sizes.least`)
DEFAULT_PER_PAGE = 20  # behaviour S34

_CURSOR_MARK = b"j1:"  # what a cursor holds before the id: the form of what follows


class IdSlice(msgspec.Struct, frozen=True):
    """Some ids, newest first, and where to go on."""

    ids: list[str]
    cursor: str  # give it to `after`; "" when nothing older is there


class Index:
    """The index as its readers see it. Safe for threads.

    Every call reads the manifest, if it has changed. A state is one of the six, `other` for the jobs in any state of open
    text, or "" for all jobs. Without a manifest, as before the first flush of an IndexView, there are no jobs: `position`
    tells the two apart.
    """

    def __init__(self, blobs: Blobs, prefix: str = "", *, cached_chunks: int = DEFAULT_CACHED) -> None:
        """Read the index below the log's prefix; keep the `cached_chunks` used last in memory, 0.2 MB each at most."""
        root = root_of(prefix)
        self._manifest = ManifestBlob(blobs, f"{root}MANIFEST.json")
        self._chunks = Chunks(blobs, f"{root}chunk/", cached=cached_chunks)
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    def exists(self) -> bool:
        """Tell whether an index was ever flushed."""
        return self._load().stored.generation != ABSENT

    def position(self) -> int:
        """Return the place in the log up to which everything is in the index; 0 for none."""
        return self._load().stored.manifest.position

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, those of open text together as `other`, and `all`."""
        loaded = self._load()
        return {name: loaded.sequence(name).total for name in (*LETTERS, ALL)}

    def page(self, state: str = "", page: int = 1, per_page: int = DEFAULT_PER_PAGE) -> tuple[list[str], PageMeta]:
        """Return a page of ids and its place, as `paging.select_ids` would from the whole list: at most two reads of chunks.

        Args:
            page: 1-based; less than 1 means 1, past the end means the last page.
            per_page: more than 200, or 0 and less, which elsewhere asks for everything, means 200; the meta says so.

        Raises:
            InvalidValue: there is no such state.
            Corrupt: the index cannot be read as one.
            Unavailable, PermissionDenied: what the store says.
        """
        name, capped = _named(state), bounded(per_page)

        def select(loaded: "_Loaded") -> tuple[list[str], PageMeta]:
            sequence = loaded.sequence(name)
            meta = meta_of(sequence.total, page, capped)
            newer = max(meta.from_ - 1, 0)  # ids on the pages before
            return self._ids(sequence, sequence.total - meta.to, sequence.total - newer), meta

        return self._read(select)

    def after(self, cursor: str = "", limit: int = DEFAULT_PER_PAGE, state: str = "") -> IdSlice:
        """Return the ids that come after a cursor, newest first; from the newest on without one. Costs what a page costs.

        Args:
            cursor: of an earlier slice, of whatever state: it is a place in the order of all jobs.
            limit: capped as `per_page` is.

        Raises:
            InvalidValue: it is no cursor, or there is no such state.
            Corrupt, Unavailable, PermissionDenied: as `page`.
        """
        name, place = _named(state), rank(id_in(cursor)) if cursor else ""

        def select(loaded: "_Loaded") -> IdSlice:
            sequence = loaded.sequence(name)
            stop = self._count_before(sequence, place) if place else sequence.total
            start = max(0, stop - bounded(limit))
            ids = self._ids(sequence, start, stop)
            return IdSlice(ids, cursor_after(ids[-1]) if start else "")

        return self._read(select)

    def _read(self, select: Callable[["_Loaded"], T]) -> T:
        """Select from the newest manifest, a second time if a chunk of it was collected since it was read."""
        try:
            return select(self._load())
        except NotFound:
            try:
                return select(self._load())
            except NotFound as error:
                raise Corrupt(f"chunk of the index is missing: {error}; {ANEW}") from error

    def _load(self) -> "_Loaded":
        with self._lock:
            loaded = self._loaded
        stored = self._manifest.load(loaded.stored if loaded else None)
        if loaded is None or stored is not loaded.stored:
            loaded = _Loaded(stored)
            with self._lock:
                self._loaded = loaded
        return loaded

    def _ids(self, sequence: "_Sequence", start: int, stop: int) -> list[str]:
        """Return the ids from `start` to `stop`, counted from the oldest, in descending order."""
        ids: list[str] = []
        number = bisect_right(sequence.ends, start)
        while start + len(ids) < stop:
            ref = sequence.refs[number]
            first = sequence.ends[number] - ref.count
            ids += self._chunks.get(ref).ids[max(start - first, 0) : stop - first]
            number += 1
        ids.reverse()
        return ids

    def _count_before(self, sequence: "_Sequence", place: str) -> int:
        """Return how many ids of the sequence are older than a place: one read of a chunk, which holds the next of them."""
        number = bisect_left(sequence.refs, place, key=_first_rank) - 1
        if number < 0:
            return 0
        ref = sequence.refs[number]
        return sequence.ends[number] - ref.count + bisect_left(self._chunks.get(ref).ids, place, key=rank)


class _Sequence:
    """One sequence of a manifest, with the places where its chunks end."""

    __slots__ = ("ends", "refs", "total")

    def __init__(self, refs: Sequence[ChunkRef]) -> None:
        self.refs = refs
        self.ends = list(accumulate(ref.count for ref in refs))
        self.total = self.ends[-1] if refs else 0


class _Loaded:
    """A manifest made ready for reading; each sequence when it is first asked for."""

    __slots__ = ("_sequences", "stored")

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self._sequences: dict[str, _Sequence] = {}

    def sequence(self, name: str) -> _Sequence:
        sequence = self._sequences.get(name)
        if sequence is None:
            sequence = self._sequences[name] = _Sequence(self.stored.manifest.sequences.get(name, []))
        return sequence


def bounded(per_page: int) -> int:
    """Return how many rows an answer has that was asked for with `per_page`."""
    return per_page if 0 < per_page < MAX_PER_PAGE else MAX_PER_PAGE


def cursor_after(job_id: str) -> str:
    """Return the cursor of the place right after a job: letters, digits, `-` and `_`."""
    return base64.urlsafe_b64encode(_CURSOR_MARK + job_id.encode()).decode().rstrip("=")


def id_in(cursor: str) -> str:
    """Return the job that a cursor is the place right after.

    Raises:
        InvalidValue: it is no cursor.
    """
    try:
        held = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if held.startswith(_CURSOR_MARK) and len(held) > len(_CURSOR_MARK):
            return held.removeprefix(_CURSOR_MARK).decode()
    except (binascii.Error, ValueError):
        pass
    raise InvalidValue(
        f"not a cursor cursor={shown(cursor)}: give one that an earlier slice returned, or none to begin"
    )


def _named(state: str) -> str:
    if state == "":
        return ALL
    if state in LETTERS:
        return state
    raise InvalidValue(
        f"jobs are not listed by this state state={shown(state)}: give one of {', '.join(LETTERS)};"
        f" {OTHER} lists all states of open text"
    )


def _first_rank(ref: ChunkRef) -> str:
    return rank(ref.first)
