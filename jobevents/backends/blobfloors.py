"""Floors: below which version a job's events were erased, so that a late write does not bring them back.

`ctl/v1/floor/{hh}/{job}.json`, written by compare-and-swap, and only ever higher. Who creates a job's first event looks
before and after; who goes on from a head that it has not seen lately looks afterwards, and takes back what it wrote.
"""

import msgspec

from jobevents.backends.blobnames import Names
from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Conflict, Corrupt, NotFound


class Floor(msgspec.Struct, frozen=True):
    """What the object says."""

    version: int  # every event of a lower version was erased


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
        return self._read(job_id)[0]

    def raise_to(self, job_id: str, version: int) -> int:
        """Raise the floor, unless it is as high already, and return it: a read, and a write where it rises."""
        while True:
            floor, generation = self._read(job_id)
            if floor >= version:
                return floor
            try:
                self._blobs.put(
                    self._names.floor(job_id),
                    msgspec.json.encode(Floor(version)),
                    if_generation=generation,
                    content_type="application/json",
                    cache_control="no-store",
                )
            except Conflict:
                continue  # somebody else raised it: how high?
            return version

    def _read(self, job_id: str) -> tuple[int, str]:
        """Return the floor and its generation."""
        try:
            blob = self._blobs.get(self._names.floor(job_id))
        except NotFound:
            return 0, ABSENT
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            return msgspec.json.decode(blob.data, type=Floor).version, blob.generation
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise Corrupt(f"floor cannot be read job_id={job_id} error={error} data={blob.data[:80]!r}") from error
