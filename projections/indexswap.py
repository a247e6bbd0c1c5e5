"""Swap one index in for another in a single write of the live manifest; its chunks are copied beside the live ones before.

A copy has an id of its own, so that whatever still deletes a chunk that went out of use can never mean one that came back.
"""

import msgspec

from jobevents.blobs import Blobs
from jobevents.errors import Conflict, Corrupt, Misconfigured, NotFound
from projections.bulk import Bulk
from projections.chunks import ChunkRef, Chunks
from projections.manifest import CODE_VERSION, Manifest, ManifestBlob, Stored, retire, root_of

_AT_ONCE = 64  # chunks of 0.2 MB in memory


class IndexCopies:
    """Copies the chunks of the index below one prefix to the one below another, each once."""

    def __init__(self, blobs: Blobs, bulk: Bulk, source: str, target: str) -> None:
        """Copy nothing yet."""
        self._bulk = bulk
        self._source = Chunks(blobs, f"{root_of(source)}chunk/", cached=1)
        self._target = Chunks(blobs, f"{root_of(target)}chunk/", cached=1)
        self._copies: dict[str, ChunkRef] = {}  # id of a chunk -> its copy

    def copy(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the copies of its chunks, and nothing retired: a read and a write for each not copied yet.

        Raises:
            NotFound: a chunk is gone.
            Corrupt: one cannot be read.
        """
        missing = [ref for refs in manifest.sequences.values() for ref in refs if ref.id not in self._copies]
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            self._copies.update(zip([ref.id for ref in some], self._bulk.map(self._copied, some), strict=True))
        sequences = {name: [self._copies[ref.id] for ref in refs] for name, refs in manifest.sequences.items()}
        return msgspec.structs.replace(manifest, sequences=sequences, retired=[])

    def _copied(self, ref: ChunkRef) -> ChunkRef:
        return self._target.put(self._source.get(ref))


class IndexSwap:
    """The index below one prefix on its way to the place of another."""

    def __init__(self, blobs: Blobs, bulk: Bulk, *, source: str, live: str, kept: str | None) -> None:
        """Write nothing yet.

        Args:
            kept: prefix below which the replaced index is kept; None: it is not.
        """
        self._blobs = blobs
        self._live_name = manifest_name(live)
        self._live = ManifestBlob(blobs, self._live_name)
        self._source = ManifestBlob(blobs, manifest_name(source))
        self._kept = ManifestBlob(blobs, manifest_name(kept)) if kept is not None else None
        self._in = IndexCopies(blobs, bulk, source, live)
        self._out = IndexCopies(blobs, bulk, live, kept or source)

    def positions(self) -> tuple[int, int]:
        """Return how far the live index is, and how far the one that is to replace it: a read each."""
        return self._stored().manifest.position, self._source.load().manifest.position

    def run(self) -> int | None:
        """Swap, and return how many jobs are in the new index; None when the live one was written meanwhile: look again.

        The index that was there is kept as far as it can be read; a broken one is not.

        Raises:
            Misconfigured: newer code has written the live index.
        """
        stored = self._stored()
        built = self._source.load().manifest
        if stored.manifest.code > CODE_VERSION:
            raise Misconfigured(
                f"index was written by newer code written_by={stored.manifest.code} this={CODE_VERSION}; upgrade this process"
            )
        new = self._in.copy(built)
        self._keep(stored)
        retired = retire(stored.manifest.retired, stored.manifest.live(), but=new.live())
        try:
            self._live.save(msgspec.structs.replace(new, retired=retired), stored)
        except Conflict:
            return None
        return sum(ref.count for ref in new.sequences.get("all", []))

    def _stored(self) -> Stored:
        """Return the live manifest; an empty one in the place of what cannot be read."""
        try:
            return self._live.load()
        except Corrupt:
            blob = self._blobs.get(self._live_name)
            return Stored(Manifest(), blob.generation if blob else "", None)

    def _keep(self, stored: Stored) -> None:
        if self._kept is None or not stored.manifest.position:
            return
        try:
            copied = self._out.copy(stored.manifest)
        except (NotFound, Corrupt):
            return
        self._kept.save(copied, self._kept.load())


def manifest_name(prefix: str) -> str:
    """Return the name of the manifest of the index below a prefix."""
    return f"{root_of(prefix)}MANIFEST.json"
