"""The index as the sweeper reads it: which jobs are unfinished, and the version of every job of a part of the log."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b

from jobevents.blobs import Blobs
from jobevents.errors import NotFound
from jobevents.job import CANCELED, FAILED, QUEUED, RUNNING, SKIPPED
from projections.chunks import ANEW, ChunkRef, Chunks
from projections.manifest import ALL, OTHER, Manifest, ManifestBlob, root_of

UNFINISHED = (QUEUED, RUNNING, OTHER)  # a state of open text is not final for all we know
GIVEN_UP = (FAILED, CANCELED, SKIPPED)
HELD = 100_000  # jobs whose versions are held at once: 20 MB
FRESH_S = 3600.0  # how long what was read is good for: a job that went on since is looked at once more, for three reads
_PARTS = 256


class IndexCensus:
    """Reads the index, chunk by chunk. For one thread.

    Cost: the manifest and the chunks (2,000 jobs each) of what is asked for; `versions` reads all of them, once for as many
    neighbouring parts as hold 100,000 jobs.
    """

    def __init__(self, blobs: Blobs, prefix: str = "", *, monotonic: Callable[[], float] = time.monotonic) -> None:
        root = root_of(prefix)
        self._manifest = ManifestBlob(blobs, f"{root}MANIFEST.json")
        self._chunks = Chunks(blobs, f"{root}chunk/", cached=1)
        self._monotonic = monotonic
        self._held: dict[str, dict[str, int]] = {}  # part -> job id -> version
        self._read_at = 0.0

    def unfinished(self) -> Iterator[tuple[str, int]]:
        """Yield (job id, version) of every job in a state that is not final, as of now; one may come twice.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        for state in UNFINISHED:
            yield from self._sequence(state)

    def given_up(self, parts: Collection[str]) -> Iterator[tuple[str, int]]:
        """Yield (job id, version) of every job of these parts in a final state that is no success; one may come twice.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        sequences = self._load().sequences
        for state in filter(sequences.get, GIVEN_UP):
            yield from ((job_id, version) for job_id, version in self._sequence(state) if part_of(job_id) in parts)

    def everything(self) -> Iterator[tuple[str, int]]:
        """Yield (job id, version) of every job, as of now; one may come twice.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        yield from self._sequence(ALL)

    def versions(self, part: str) -> Mapping[str, int]:
        """Return the version of every job of a part, by id; as of an hour ago at most.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        if part not in self._held or self._monotonic() - self._read_at > FRESH_S:
            self._read_at = self._monotonic()
            self._held = self._read(int(part, 16))
        return self._held[part]

    def forget(self) -> None:
        """Read anew what is asked for from now on."""
        self._held.clear()

    def _read(self, first: int) -> dict[str, dict[str, int]]:
        total = sum(ref.count for ref in self._load().sequences.get(ALL, ()))
        width = max(1, min(_PARTS, _PARTS * HELD // max(1, total)))
        held: dict[str, dict[str, int]] = {f"{n:02x}": {} for n in range(first, min(first + width, _PARTS))}
        for job_id, version in self._sequence(ALL):
            mine = held.get(part_of(job_id))
            if mine is not None:
                mine[job_id] = version
        return held

    def _sequence(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield what a sequence holds; where a chunk was replaced meanwhile, from the start of what took its place."""
        refs = list(self._load().sequences.get(name, ()))
        while refs:
            try:
                chunk = self._chunks.get(refs[0])
            except NotFound:
                refs = self._from(name, refs[0])
                continue
            yield from zip(chunk.ids, chunk.versions, strict=True)
            del refs[0]

    def _from(self, name: str, gone: ChunkRef) -> list[ChunkRef]:
        refs = list(self._load().sequences.get(name, ()))
        if any(ref.id == gone.id for ref in refs):
            raise NotFound(f"chunk of the index is missing id={gone.id}; {ANEW}")
        first = next((n for n, ref in enumerate(refs) if ref.first > gone.first), len(refs))
        return refs[max(0, first - 1) :]

    def _load(self) -> Manifest:
        return self._manifest.load().manifest


def part_of(job_id: str) -> str:
    """Return the part of the log that a job is in: the first byte of a hash of its id."""
    return blake2b(job_id.encode(), digest_size=8).hexdigest()[:2]
