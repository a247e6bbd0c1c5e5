"""Where the log keeps its objects below its prefix: pure names, and back.

`hh`, two hex digits of a hash of the job's id, spreads the names over the store's key range: names that follow each other
would all be written at one place of it, which Cloud Storage slows down above about 1,000 writes a second.
"""

import re
from hashlib import blake2b
from typing import NamedTuple

import msgspec

PARTS = tuple(f"{number:02x}" for number in range(256))
"""All values of `hh`, in their order."""

_is_slot = re.compile(r"[0-9a-f]{2}/([^/]+)/(\d{10})\.json").fullmatch
_is_chunk = re.compile(r"[0-9a-f]{2}/([^/]+)/(\d{10})-(\d{8})\.ndjson").fullmatch


class Slot(NamedTuple):
    """The place of one event."""

    job_id: str
    version: int


class ChunkPlace(NamedTuple):
    """The place of a chunk of log lines: its first line is number `first` of the start `start`."""

    job_id: str
    start: int
    first: int


class Names:
    """The names of one log's objects."""

    def __init__(self, prefix: str = "") -> None:
        root = f"{prefix}/" if prefix else ""
        self.log = f"{root}log/v1/"
        self.floors = f"{root}ctl/v1/floor/"
        self.keys = f"{root}keys/v1/"
        self.lines = f"{root}joblogs/v1/"

    def history(self, job_id: str) -> str:
        """Return what the names of all events of a job begin with."""
        return f"{self.log}{part_of(job_id)}/{job_id}/"

    def event(self, slot: Slot) -> str:
        """Return the name of an event."""
        return f"{self.history(slot.job_id)}{slot.version:010d}.json"

    def slot(self, name: str) -> Slot | None:
        """Return the slot that an object is in; None for what is no event of ours."""
        found = _is_slot(name.removeprefix(self.log))
        return Slot(found[1], int(found[2])) if found else None

    def floor(self, job_id: str) -> str:
        """Return the name of a job's floor."""
        return f"{self.floors}{part_of(job_id)}/{job_id}.json"

    def key(self, name: str, key: str) -> str:
        """Return the name of the object that says who holds an idempotency key of a kind of job."""
        return f"{self.keys}{blake2b(msgspec.json.encode([name, key]), digest_size=16).hexdigest()}.json"

    def lines_of(self, job_id: str) -> str:
        """Return what the names of all chunks of a job's log lines begin with."""
        return f"{self.lines}{part_of(job_id)}/{job_id}/"

    def chunk(self, place: ChunkPlace) -> str:
        """Return the name of a chunk of log lines."""
        return f"{self.lines_of(place.job_id)}{place.start:010d}-{place.first:08d}.ndjson"

    def chunk_place(self, name: str) -> ChunkPlace | None:
        """Return the place of a chunk; None for what is none of ours."""
        found = _is_chunk(name.removeprefix(self.lines))
        return ChunkPlace(found[1], int(found[2]), int(found[3])) if found else None


def part_of(job_id: str) -> str:
    """Return `hh` of a job."""
    return blake2b(job_id.encode(), digest_size=8).hexdigest()[:2]
