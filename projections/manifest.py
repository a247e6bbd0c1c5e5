"""The manifest of the index: which chunks make up each sequence, and up to which place in the log. One blob, one CAS.

Content and position change in the same write, so that after any crash they fit each other. Measured, with ids of 32
characters: 57 bytes a chunk, so that 1,000,000 jobs in 1,335 chunks make a manifest of 77 KB. Chunks that were replaced add
15 bytes each until they are collected: 2 to 10 a flush, so up to 9 KB at a flush in 10 s, 90 KB at one a second.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from jobevents.assertions import Instant
from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Corrupt, NotFound
from jobevents.job import CANCELED, FAILED, QUEUED, RUNNING, SKIPPED, SUCCEEDED
from projections.chunks import ANEW, ChunkRef

ALL = "all"
"""The sequence of all jobs."""

OTHER = "other"
"""The sequence of the jobs in a state of open text (behaviour S5.2), all such states together.

A sequence for each would let whoever writes records make the manifest as large as he likes: it is read with every page and
written with every flush.
"""

LETTERS = {QUEUED: "q", RUNNING: "r", SUCCEEDED: "s", FAILED: "f", CANCELED: "c", SKIPPED: "k", OTHER: "o"}
"""Sequence of a state -> what stands for it in a chunk; for ever, like the name of a field."""

CODE_VERSION = 1  # of this projection: raise it when the same jobs give another index


class Retired(msgspec.Struct, frozen=True, omit_defaults=True):
    """Chunks that were replaced: kept for readers that hold an older manifest, then deleted."""

    chunks: list[str]  # their ids
    at: Instant | None = None  # not later retired than this, by the store's clock; None: not known yet


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole index, but for what is in the chunks."""

    position: int = 0  # place in the log up to which everything is in
    code: int = 0  # version of the code that wrote it
    sequences: dict[str, list[ChunkRef]] = {}  # ALL, and the key in LETTERS of each state that some job is in
    retired: list[Retired] = []  # oldest first

    def live(self) -> Iterator[str]:
        """Yield the ids of the chunks in use."""
        for refs in self.sequences.values():
            for ref in refs:
                yield ref.id


class Stored(msgspec.Struct, frozen=True):
    """A manifest as it is in the store."""

    manifest: Manifest
    generation: str  # ABSENT: there is none, and the manifest is empty
    stored_at: datetime | None  # by the store's clock; None when it was not read but written just now


NOTHING = Stored(Manifest(), ABSENT, None)
"""What is stored before the first write."""


class ManifestBlob:
    """Reads and writes the manifest; one call each."""

    def __init__(self, blobs: Blobs, name: str) -> None:
        self._blobs = blobs
        self._name = name

    def load(self, known: Stored | None = None) -> Stored:
        """Return what is stored now; `known` itself if it still is that.

        Raises:
            Corrupt: the bytes are no manifest.
        """
        try:
            blob = self._blobs.get(self._name, if_changed=known.generation if known else None)
        except NotFound:
            return NOTHING
        if blob is None:
            assert known is not None  # noqa: S101  # None only for if_changed
            return known
        try:
            return Stored(_decode(blob.data), blob.generation, blob.stored_at)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Corrupt(f"manifest is unreadable name={self._name} reason={error}: {ANEW}") from error

    def save(self, manifest: Manifest, over: Stored) -> Stored:
        """Write `manifest` over the generation it was made from, in one step.

        Raises:
            Conflict: somebody else wrote first.
        """
        generation = self._blobs.put(
            self._name,
            _encode(manifest),
            if_generation=over.generation,
            content_type="application/json",
            cache_control="no-store",
        )
        return Stored(manifest, generation, None)


def retire(retired: Sequence[Retired], chunk_ids: Iterable[str], *, but: Iterable[str] = ()) -> list[Retired]:
    """Return the list with chunks that go out of use now; what has no time yet is one batch, the last.

    Args:
        but: chunks in use, which are taken off the list.
    """
    kept = set(but)
    if kept:
        left = (Retired([chunk for chunk in batch.chunks if chunk not in kept], batch.at) for batch in retired)
        retired = [batch for batch in left if batch.chunks]
    added = sorted(set(chunk_ids) - kept)
    if not added:
        return list(retired)
    if retired and retired[-1].at is None:
        return [*retired[:-1], Retired([*retired[-1].chunks, *added])]
    return [*retired, Retired(added)]


def root_of(prefix: str) -> str:
    """Return what the names of all blobs of the index below a log's prefix begin with."""
    return f"{prefix}/index/v1/" if prefix else "index/v1/"


def sequence_of(state: str) -> str:
    """Return the sequence that holds the jobs of a state."""
    return state if state in LETTERS else OTHER


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest).decode
