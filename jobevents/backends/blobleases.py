"""Worker leases as blobs: `workers/v1/{worker}.json`, aged by the store's clock.

How old another's lease is follows from two times that the store itself gave: when it was stored, and when we last wrote
ourselves. No machine's wall clock is asked. What this process saw with its own eyes goes before that: a lease that it saw
change within its life is alive, and one that it saw unchanged for so long is dead, however a store's clock was set.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from jobevents.backends.blobclock import StoreClock
from jobevents.blobs import Blob, Blobs
from jobevents.errors import Conflict, NotFound
from jobevents.workers import Lease, Sighting

_PLAIN_LIMIT = 200  # bytes of an identity that stands in its blob's name: files allow elements of 240


class _Eyes(NamedTuple):
    """What we saw of one lease."""

    generation: str
    first: float  # when we first saw this generation: it is no younger than that; monotonic
    last: float  # when we last did
    before: float  # when we last saw the one before: it is no older than that; -inf: never


class BlobLeases:
    """One object for each worker. Requests: `renew` a put and a get, `look` a get a worker, `list` a list and a get each.

    Who has not renewed lately also writes, reads and removes one object to learn the store's time. Where that has seconds
    only (Cloud Storage), so have the ages.
    """

    def __init__(self, blobs: Blobs, prefix: str = "", *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._blobs = blobs
        self._at = f"{prefix}/workers/v1/" if prefix else "workers/v1/"
        self._clock = StoreClock(blobs, prefix, monotonic=monotonic)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._eyes: dict[str, _Eyes] = {}

    def renew(self, lease: Lease) -> None:
        name = self._name(lease.worker)
        self._blobs.put(name, msgspec.json.encode(lease), content_type="application/json", cache_control="no-store")
        self._clock.read_off(name)

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        found = (self._see(self._name(worker)) for worker in sorted(workers))
        return {seen.lease.worker: seen for seen, _ in filter(None, found)}

    def list(self) -> Sequence[Sighting]:
        names = [entry.name for entry in self._blobs.list(self._at)]
        with self._lock:
            self._eyes = {name: eyes for name, eyes in self._eyes.items() if name in names}
        found = [seen for seen, _ in filter(None, map(self._see, names))]
        return sorted(found, key=lambda seen: seen.lease.worker)

    def drop(self, worker: str, *, if_dead: bool = False) -> bool:
        name = self._name(worker)
        if not if_dead:
            return self._blobs.delete(name)
        found = self._see(name)
        if found is None or found[0].is_alive:
            return False
        try:
            return self._blobs.delete(name, if_generation=found[1].generation)
        except Conflict:  # renewed this instant
            return False

    def _name(self, worker: str) -> str:
        plain = quote(worker, safe="")
        return f"{self._at}{plain if len(plain) <= _PLAIN_LIMIT else blake2b(worker.encode()).hexdigest()[:64]}.json"

    def _see(self, name: str) -> tuple[Sighting, Blob] | None:
        """Return a lease and its blob; None when there is none that can be read."""
        began = self._monotonic()
        try:
            blob = self._blobs.get(name)
            lease = msgspec.json.decode(blob.data if blob else b"", type=Lease)
        except (NotFound, msgspec.MsgspecError, RecursionError):
            return None
        if blob is None:  # only for a conditional get
            return None
        return Sighting(lease, self._age(name, blob, began)), blob

    def _age(self, name: str, blob: Blob, began: float) -> float:
        told = (self._clock.now() - blob.stored_at).total_seconds()
        now = self._monotonic()
        with self._lock:
            eyes = self._eyes.get(name)
            if eyes is None:
                eyes = _Eyes(blob.generation, now, began, -math.inf)
            elif eyes.generation != blob.generation:
                eyes = _Eyes(blob.generation, now, began, eyes.last)
            self._eyes[name] = eyes._replace(last=began)
        return max(0.0, now - eyes.first, min(told, now - eyes.before))
