"""What was erased of a log on blobs: the floor first, and an hour later the objects below it.

Who writes does not look at the floor where it has appended within a minute: an event created in a slot that was just emptied
would be lost, and what it says would stay. So an erasure asked for is finished by asking again, or by `unfinished`.
"""

from collections.abc import Iterator
from datetime import datetime

from jobevents.backends.blobclock import StoreClock
from jobevents.backends.blobfloors import Floor
from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.blobnames import PARTS
from jobevents.backends.fan import Fan
from jobevents.blobs import BlobEntry, Blobs
from jobevents.codec import TOMBSTONE, deleted_before
from jobevents.erasure import Erased
from jobevents.store import NEVER

RIPE_S = 3600.0  # from the floor to the first delete: far beyond the minute in which a head is trusted, and half one of tries
_KEPT = (
    "a bucket keeps removed objects for as long as its soft delete and its versions say (7 days by default on Cloud Storage): "
    "see that both are off, or wait so long"
)


class BlobErasures:
    """An Eraser over a log on blobs: a list and a delete for each object."""

    def __init__(self, blobs: Blobs, recorder: BlobRecorder, clock: StoreClock, fan: Fan) -> None:
        """Erase nothing yet."""
        self._blobs = blobs
        self._names = recorder.names
        self._floors = recorder.floors
        self._recorder = recorder
        self._clock = clock
        self._fan = fan

    def get(self, job_id: str) -> int:
        """Return the floor; 0 for none."""
        return self._floors.get(job_id)

    def record(self, job_id: str) -> Erased | None:
        """Return what is kept of an erasure: what the floor says."""
        floor = self._floors.look(job_id)[0]
        if floor is None:
            return None
        return Erased(job_id, floor.version, floor.chain, floor.at or NEVER, floor.actor, floor.reason)

    def erase(self, erased: Erased) -> int:
        """Raise the floor and remove log lines; remove the events below it when its hour is over; see `Eraser.erase`."""
        floor = Floor(erased.version, erased.chain, erased.at, erased.actor, erased.reason)
        version = self._floors.put(erased.job_id, floor)
        self._remove([entry.name for entry in self._blobs.list(self._names.lines_of(erased.job_id))])
        if self.wait_s(erased.job_id):
            return 0
        slots = ((entry.name, self._names.slot(entry.name)) for entry in self._history(erased.job_id))
        below = [name for name, slot in slots if slot is not None and slot.version < version]
        # The first by itself: without it no job is seen in the rest.
        return self._remove(below[:1]) + self._remove(below[1:])

    def wait_s(self, job_id: str) -> float:
        """Return the rest of the hour since the floor was raised, by the store's clock."""
        stored_at = self._floors.look(job_id)[2]
        if stored_at is None:
            return RIPE_S
        return max(0.0, RIPE_S - (self._clock.now() - stored_at).total_seconds())

    def unfinished(self) -> Iterator[str]:
        """Yield the jobs with an object below their floor: a list of all floors, and one for each job that has one."""
        for job_id in list(self._floors.job_ids()):
            floor = self._floors.get(job_id)
            first = next((self._names.slot(entry.name) for entry in self._history(job_id)), None)
            if first is not None and first.version < floor:
                yield job_id

    def deleted(self, before: datetime) -> Iterator[str]:
        """Yield the deleted jobs: a list of the whole log, and a read of each job's last event; see `Eraser.deleted`."""
        for part in PARTS:
            slots = self._recorder.last_slots(part)
            last = (self._recorder.select_events(slot.job_id, gt=slot.version - 1) for slot in slots)
            found = (one.state for events in last for one in events if one.topic == TOMBSTONE)
            yield from deleted_before(found, before, self.get)

    def scrub(self) -> list[str]:
        """Say what a bucket keeps; memory and files keep nothing."""
        return [_KEPT] if self._blobs.min_write_interval_s else []

    def _history(self, job_id: str) -> Iterator[BlobEntry]:
        return self._blobs.list(self._names.history(job_id))

    def _remove(self, names: list[str]) -> int:
        return sum(self._fan.map(self._blobs.delete, names))
