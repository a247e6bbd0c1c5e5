"""Floors: below which version a job's events were erased, so that a late write does not bring them back.

`ctl/v1/floor/{hh}/{job}.json`, written by compare-and-swap, and only ever higher. Who creates a job's first event looks
before and after; who goes on from a head that is not its own of a moment ago looks afterwards, and takes back what it wrote.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from jobevents.assertions import Instant
from jobevents.backends.blobnames import Names
from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Conflict, Corrupt, NotFound


class Floor(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object says."""

    version: int  # every event of a lower version was erased
    chain: str = ""  # of the last one of them
    at: Instant | None = None  # when that was asked for
    actor: str = ""  # who asked
    reason: str = ""


class Floors:
    """The floors of one log. Safe for threads, and between processes."""

    def __init__(self, blobs: Blobs, names: Names) -> None:
        self._blobs = blobs
        self._names = names

    def get(self, job_id: str) -> int:
        """Return the job's floor; 0 when nothing of it was erased. One read.

        Raises:
            Corrupt: it cannot be read, and what it protects is not known.
        """
        floor = self.look(job_id)[0]
        return floor.version if floor else 0

    def raise_to(self, job_id: str, version: int) -> int:
        """Raise the floor, unless it is as high already, and return it: a read, and a write where it rises."""
        return self.put(job_id, Floor(version))

    def put(self, job_id: str, wanted: Floor) -> int:
        """Raise the floor as `raise_to` does, with what else is to be kept."""
        while True:
            floor, generation, _ = self.look(job_id)
            if floor and floor.version >= wanted.version:
                return floor.version
            try:
                self._blobs.put(
                    self._names.floor(job_id),
                    msgspec.json.encode(wanted),
                    if_generation=generation,
                    content_type="application/json",
                    cache_control="no-store",
                )
            except Conflict:
                continue  # somebody else raised it: how high?
            return wanted.version

    def look(self, job_id: str) -> tuple[Floor | None, str, datetime | None]:
        """Return the floor, its generation, and when it was stored, by the store's clock; None where there is none.

        Raises:
            Corrupt: as `get`.
        """
        try:
            blob = self._blobs.get(self._names.floor(job_id))
        except NotFound:
            return None, ABSENT, None
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            return msgspec.json.decode(blob.data, type=Floor), blob.generation, blob.stored_at
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise Corrupt(f"floor cannot be read job_id={job_id} error={error} data={blob.data[:80]!r}") from error

    def job_ids(self) -> Iterator[str]:
        """Yield the jobs that have one: one listing."""
        for entry in self._blobs.list(self._names.floors):
            job_id, dot, _ = entry.name.rpartition("/")[2].rpartition(".json")
            if dot:
                yield job_id
