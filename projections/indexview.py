"""The index as a view: keeps the sorted sequences of all jobs and of each state in step with the log.

A flush stores new chunks first and then, in one conditional write, the manifest that names them and the position in the log
that they reach. What a crash leaves is the old index, whole, and chunks that nobody names.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from jobevents.blobs import Blobs
from jobevents.errors import Conflict, Corrupt, Misconfigured, NotFound, Unavailable
from jobevents.job import DELETED, Job
from projections.chunks import ANEW, DEFAULT_CACHED, ChunkRef, Chunks, rank
from projections.collector import Collector
from projections.manifest import (
    ALL,
    CODE_VERSION,
    LETTERS,
    NOTHING,
    OTHER,
    Manifest,
    ManifestBlob,
    Retired,
    Stored,
    retire,
    root_of,
)
from projections.sequences import GONE, Change, Moves, Sizes, merge_all, merge_one, rewrite

DEFAULT_HORIZON_S = 600.0  # how long a reader may go on with a manifest that it has read
MANY = 100_000  # jobs that wait, at most 30 MB: then a flush is due at once
_SLOW_INTERVAL_S = 10.0  # a bucket bills each write: at a flush a second the index would double the bill
_FAST_INTERVAL_S = 1.0
_TRIES = 10  # each lost to another writer that moved the index on


class _Waiting(NamedTuple):
    """A job that was taken and is not stored yet."""

    version: int
    state: str  # letter, or GONE
    position: int  # of the `take` that brought it


class IndexView:
    """Writes the index; a View. Right beside other writers of the same index: of two, the one that is behind drops its work.

    A job's entry changes only when its state does, and only for a newer version. Of a deleted job nothing is kept: that an
    older state does not bring it back is owed to the positions, as what was taken before the stored position is dropped.
    A flush costs one write of the manifest, and for each chunk that a change falls into a read, if it is not in memory, and
    a write: of jobs in order of time that is the last chunk of each sequence. Measured on MemoryBlobs: a million such jobs in
    4.5 s; a million ids without a time in 40 s, as each flush falls into all chunks. Chunks no longer in use are deleted after
    `horizon_s`, by the store's clock, with some later flush.
    """

    name = "index"

    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        flush_interval_s: float | None = None,
        horizon_s: float = DEFAULT_HORIZON_S,
        many: int = MANY,
        sizes: Sizes | None = None,
        cached_chunks: int = DEFAULT_CACHED,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write the index below the log's prefix.

        Args:
            flush_interval_s: how long changes may be held back; 10 s on a store with a least interval between two writes of
                a name, 1 s on others if not given.
            horizon_s: how long a chunk is kept for readers once it is out of use.
            many: as many jobs as this are stored without waiting for the interval.
        """
        root = root_of(prefix)
        self._manifest = ManifestBlob(blobs, f"{root}MANIFEST.json")
        self._chunks = Chunks(blobs, f"{root}chunk/", cached=cached_chunks)
        self._collector = Collector(self._chunks, horizon_s, monotonic)
        self._least_s = blobs.min_write_interval_s
        default_s = _SLOW_INTERVAL_S if self._least_s > 0 else _FAST_INTERVAL_S
        self._interval_s = default_s if flush_interval_s is None else flush_interval_s
        self._many = many
        self._sizes = sizes or Sizes()
        self._monotonic = monotonic
        self._stored = NOTHING  # what this view's work is based on
        self._is_based = False  # `_stored` was read, and nothing older has taken its place
        self._gap = ""  # why it cannot be gone on from, until the next call of `position`
        self._waiting: dict[str, _Waiting] = {}
        self._taken = 0  # position of the last take
        self._waits_since: float | None = None
        self._wrote_at = -math.inf

    def position(self) -> int:
        """Return the position that the stored manifest holds, 0 when there is none, and go on from it. One read.

        What was taken and not stored is dropped: it is given again, unless the log does not know it any more.
        """
        stored = self._manifest.load(self._stored if self._is_based else None)
        self._forget()
        self._stored, self._gap = NOTHING, ""
        self._base_on(stored)
        return stored.manifest.position

    def take(self, jobs: Sequence[Job], position: int) -> None:
        """Hold jobs until they are due; no I/O. What was taken before the stored position is there already."""
        if self._gap or position < self._stored.manifest.position:
            return
        waiting = self._waiting
        for job in jobs:
            known = waiting.get(job.job_id)
            if known is None or known.version < job.version:
                state = GONE if job.state == DELETED else LETTERS.get(job.state, LETTERS[OTHER])
                waiting[job.job_id] = _Waiting(job.version, state, position)
        self._taken = max(self._taken, position)
        if self._waits_since is None and self._has_more():
            self._waits_since = self._monotonic()

    def flush(self, *, everything: bool = False) -> int:
        """Store what is due, or all that was taken, and return the stored position. See the class for the cost.

        Raises:
            Conflict: the index was deleted, or replaced by one that ends before what was taken since: call `position`, and
                go on from there. Until then every flush raises this and every take is dropped.
            Misconfigured: newer code has written the index.
            Corrupt: what is stored is no index.
            Unavailable, PermissionDenied: the store's trouble; nothing that was taken is lost, flush again.
        """
        if self._gap:
            raise Conflict(self._gap)
        if not self._is_based:
            self._base_on(self._manifest.load())
        wait_s = self.next_flush_s()
        if wait_s is not None and (everything or wait_s == 0):
            self._store()
        return self._stored.manifest.position

    def next_flush_s(self) -> float | None:
        """Return in how many seconds what waits is due: after the interval, or at once when it is many."""
        if self._waits_since is None:
            return None
        held_s = 0.0 if len(self._waiting) >= self._many else self._interval_s
        due = max(self._waits_since + held_s, self._wrote_at + self._least_s)
        return max(0.0, due - self._monotonic())

    def _has_more(self) -> bool:
        """Tell whether something was taken that the stored index does not have for certain."""
        return bool(self._waiting) or self._taken > self._stored.manifest.position

    def _store(self) -> None:
        """Bring all that waits into the stored index, on top of whatever another writer has stored meanwhile."""
        for _ in range(_TRIES):
            try:
                self._write()
            except Conflict:
                self._base_on(self._manifest.load(self._stored))
            except NotFound as error:  # a chunk that another writer has replaced and collected
                stored = self._manifest.load(self._stored)
                if stored is self._stored:
                    raise Corrupt(f"chunk of the index is missing: {error}; {ANEW}") from error
                self._base_on(stored)
            else:
                self._waiting.clear()
                self._waits_since = None
                return
        raise Unavailable(f"index is written by others all the time tries={_TRIES}; flush again")

    def _write(self) -> None:
        """Store the chunks and the manifest of the index with all that waits in it; nothing when that changes nothing.

        Raises:
            Conflict: another writer was first, or the stored index went back.
            NotFound: a chunk is gone.
        """
        retired = self._swept()
        before = self._stored.manifest
        sequences = self._rewritten(before.sequences)
        position = max(before.position, self._taken)
        after = Manifest(position, CODE_VERSION, sequences, before.retired if retired is None else retired)
        out_of_use = self._chunks.unnamed.union(before.live()).difference(after.live())
        after = msgspec.structs.replace(after, retired=retire(after.retired, out_of_use))
        if after != before:
            self._stored = self._manifest.save(after, self._stored)
            self._wrote_at = self._monotonic()
        self._chunks.unnamed.clear()

    def _swept(self) -> list[Retired] | None:
        """Return the list of retired chunks without what could be deleted; None when it is not time to look."""
        if not self._collector.is_due():
            return None
        listed = self._collector.listed()
        self._base_on(self._manifest.load())
        return self._collector.sweep(self._stored, listed - self._chunks.unnamed)

    def _rewritten(self, sequences: dict[str, list[ChunkRef]]) -> dict[str, list[ChunkRef]]:
        """Store the new chunks of each sequence; return all sequences as they are then, without empty ones."""
        changes = sorted(Change(rank(job_id), job_id, job.version, job.state) for job_id, job in self._waiting.items())
        if not changes:
            return sequences
        moves: Moves = {}
        merge = partial(merge_all, moves=moves)
        after = {ALL: list(rewrite(sequences.get(ALL, []), changes, merge, self._chunks, self._sizes))}
        for name, letter in LETTERS.items():
            refs = sequences.get(name, [])
            mine = moves.get(letter)
            after[name] = list(rewrite(refs, mine, merge_one, self._chunks, self._sizes)) if mine else refs
        return {name: refs for name, refs in after.items() if refs}

    def _base_on(self, stored: Stored) -> None:
        """Go on from what is stored now, dropping what it covers.

        Raises:
            Conflict: it ends before what this view's work was based on, so that something between is missing.
            Misconfigured: newer code has written it.
        """
        manifest = stored.manifest
        if manifest.code > CODE_VERSION:
            raise Misconfigured(
                f"index was written by newer code written_by={manifest.code} this={CODE_VERSION}; upgrade this process"
            )
        if manifest.position < self._stored.manifest.position:
            self._forget()
            self._gap = (
                f"index was replaced by an older one position={manifest.position}"
                f" expected={self._stored.manifest.position}: ask for the position, and go on from there"
            )
            raise Conflict(self._gap)
        self._stored, self._is_based = stored, True
        covered = [job_id for job_id, job in self._waiting.items() if job.position < manifest.position]
        for job_id in covered:
            del self._waiting[job_id]

    def _forget(self) -> None:
        self._waiting.clear()
        self._chunks.unnamed.clear()
        self._taken, self._waits_since, self._is_based = 0, None, False
