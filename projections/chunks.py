"""Chunks of the index: runs of job ids in order, each an immutable blob of its own, kept in memory by its id.

The order is `rank`, ascending: the oldest job first, jobs whose id holds no time before all others. A chunk's id is random
and its blob is only ever created, so that what was read once under an id is right for good.
"""

import os
import threading
from collections.abc import Iterator

import msgspec
from lru import LRU

from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Conflict, Corrupt
from jobevents.ids import sort_key

DEFAULT_CACHED = 64  # chunks in memory: 2,000 ids of 32 characters each take 0.2 MB, so 13 MB

_NO_TIME = "0" * 14  # before every sort key: those begin with the year 2000
_TRIES = 3  # of a random id of 48 bits that is taken


def rank(job_id: str) -> str:
    """Return the text by which ids are ordered: the time in the id, then the id (behaviour S21, ascending)."""
    return (sort_key(job_id) or _NO_TIME) + job_id


ANEW = "make it anew with: jobevents rebuild --view index"  # what mends an index that cannot be read


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some neighbours of one sequence, a column each; never changed once it is stored."""

    ids: list[str]  # ascending by rank, each once
    versions: list[int]  # version of the job when it was put there, for each id
    states: str = ""  # in the sequence of all jobs: the letter of each one's state; empty in those of one state


class ChunkRef(msgspec.Struct, frozen=True, array_like=True):
    """What the manifest says of a chunk."""

    id: str  # names the blob: 12 hexadecimal digits
    first: str  # its first id
    count: int  # ids in it


class Chunks:
    """The chunks below one prefix. Safe for threads, which then may read one chunk twice."""

    def __init__(self, blobs: Blobs, root: str, *, cached: int = DEFAULT_CACHED) -> None:
        """Use the blobs whose names begin with `root`; keep the `cached` chunks used last in memory."""
        self.unnamed: set[str] = set()  # stored here, and named by no manifest yet; the view empties it
        self._blobs = blobs
        self._root = root
        self._cache: LRU[str, Chunk] = LRU(cached)
        self._lock = threading.Lock()

    def get(self, ref: ChunkRef) -> Chunk:
        """Return a chunk: one read, none if it is in memory.

        Raises:
            NotFound: it was retired and collected; a newer manifest does not name it.
            Corrupt: its bytes are not the chunk.
        """
        with self._lock:
            chunk = self._cache.get(ref.id)
        if chunk is None:
            blob = self._blobs.get(self._root + ref.id)
            assert blob is not None  # noqa: S101  # None only for if_changed
            chunk = _decoded(blob.data, self._root + ref.id, ref.count)
            self._keep(ref.id, chunk)
        return chunk

    def put(self, chunk: Chunk) -> ChunkRef:
        """Store a chunk that is not empty, under a new id: one write."""
        data = _encode(chunk)
        for _ in range(_TRIES):
            chunk_id = os.urandom(6).hex()
            try:
                self._blobs.put(self._root + chunk_id, data, if_generation=ABSENT, content_type="application/json")
            except Conflict:
                continue
            self.unnamed.add(chunk_id)
            self._keep(chunk_id, chunk)
            return ChunkRef(chunk_id, chunk.ids[0], len(chunk.ids))
        raise Conflict(f"no free name for a chunk prefix={self._root} tries={_TRIES}; is the random source broken?")

    def delete(self, chunk_id: str) -> None:
        """Remove a chunk that no reader needs any more; one that is gone already is fine."""
        self._blobs.delete(self._root + chunk_id)
        with self._lock:
            self._cache.pop(chunk_id, None)

    def list(self) -> Iterator[str]:
        """Yield the ids of all chunks that are stored, of use or not: one listing."""
        for entry in self._blobs.list(self._root):
            yield entry.name.removeprefix(self._root)

    def _keep(self, chunk_id: str, chunk: Chunk) -> None:
        with self._lock:
            self._cache[chunk_id] = chunk


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Chunk).decode


def _decoded(data: bytes, name: str, count: int) -> Chunk:
    try:
        chunk = _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(f"chunk of the index is unreadable name={name} reason={error}: {ANEW}") from error
    columns = len(chunk.ids), len(chunk.versions), len(chunk.states) or count
    if columns != (count, count, count):
        raise Corrupt(f"chunk of the index is not whole name={name} columns={columns} count={count}: {ANEW}")
    return chunk
