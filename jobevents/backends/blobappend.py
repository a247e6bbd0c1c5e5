"""One event into its slot: created once, whatever replies are lost, and not at all where its job was erased.

Each rule is a step of its own, with what goes wrong without it:

- `_put`: create-only, always one name and one content. Else a stale write replaces what is there.
- `_read_back`: after every reply that does not settle it. Else a transition is written twice.
- an empty slot proves nothing: the write may land yet. So the same is tried again, until a deadline; then it is AppendUnknown.
- `_heed_floor_before`, `_heed_floor_after`: else the late first event of an erased job brings it back.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from eventsourcing.persistence import IntegrityError, StoredEvent
from lru import LRU

from jobevents import codec
from jobevents.backends.blobfloors import Floors
from jobevents.backends.blobnames import Names, Slot
from jobevents.backoff import Backoff
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import AppendUnknown, Conflict, Corrupt, Gone, NotFound, PermissionDenied, Unavailable
from jobevents.log import Head
from jobevents.telemetry import Counts

HEADS = 16_384  # jobs whose last version is remembered, 0.2 KiB each
# How long what was seen is taken for what is: an erasure waits an hour between its floor and its deletes.
FRESH_S = 60.0

_JSON = "application/json; charset=utf-8"


class _Seen(NamedTuple):
    """The end of a history as it was seen."""

    version: int
    end: bytes  # of the stored event: its chain
    at: float  # monotonic
    unerased_at: float = -math.inf  # monotonic: until then at least the job is known to have had no floor above its end


class Heads:
    """The last event of jobs as this process saw it, and when. A hint: what is forgotten costs a request."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: LRU[str, _Seen] = LRU(HEADS)

    def now(self) -> float:
        """Return the time by which is told what was a moment ago."""
        return self._monotonic()

    def note(self, slot: Slot, data: bytes) -> None:
        """Note an event that is there now; ours begin with version 1, the library's may with 0."""
        if slot.version < 1:
            return
        known = self._seen.get(slot.job_id)
        if known is None or known.version <= slot.version:
            unerased_at = known.unerased_at if known else -math.inf
            self._seen[slot.job_id] = _Seen(slot.version, data[-codec.TAIL :], self._monotonic(), unerased_at)

    def note_ours(self, slot: Slot, data: bytes, began: float) -> None:
        """Note an event that was appended, by who began to at an instant and has heeded the floor."""
        self.note(slot, data)
        known = self._seen.get(slot.job_id)
        if known is not None:
            self._seen[slot.job_id] = known._replace(unerased_at=max(known.unerased_at, began))

    def hint(self, slot: Slot) -> None:
        """Expect a history to end about there, as a status says; version 0: there is no status, so that it is likely short."""
        if slot.job_id not in self._seen:
            self._seen[slot.job_id] = _Seen(slot.version, b"", -math.inf)

    def expected(self, job_id: str) -> int | None:
        """Return the highest version that was seen or hinted at; None when nothing is remembered."""
        known = self._seen.get(job_id)
        return known.version if known else None

    def is_unerased(self, job_id: str) -> bool:
        """Tell whether a job was known within the last minute to have no floor: what follows its end was then never there.

        That an event is there does not tell: its history is read while an erasure takes it away, a part of it at a time.
        """
        known = self._seen.get(job_id)
        return known is not None and self._monotonic() - known.unerased_at <= FRESH_S

    def bears_out(self, job_id: str, head: Head) -> bool:
        """Tell whether a history is known to go on from a head: it was seen a moment ago, or there is more already."""
        known = self._seen.get(job_id)
        if known is None or known.version < head.version or self._monotonic() - known.at > FRESH_S:
            return False
        return known.version > head.version or known.end == codec.tail(head.chain)


class SlotAppender:
    """Creates events in their slots. Safe for threads."""

    def __init__(self, once: Blobs, names: Names, floors: Floors, heads: Heads, backoff: Backoff) -> None:
        """Write to `once`, where a call is one request that is not tried again."""
        self._once = once
        self._names = names
        self._floors = floors
        self._heads = heads
        self._backoff = backoff
        self.counts = Counts()  # `appends_retried` and `appends_unknown`; those of whoever puts the log together

    def append(self, event: StoredEvent) -> None:
        """Create an event in its slot.

        Raises:
            IntegrityError: the slot was taken before this call.
            Gone: the job was erased.
            AppendUnknown: no reply until the deadline: the event may be there, or come to be.
            Unavailable, PermissionDenied: what the store says; nothing was written.
        """
        slot, began = slot_of(event), self._heads.now()
        self._heed_floor_before(slot, event)
        if not self._create(slot, event):
            raise IntegrityError(f"another event is in the slot {slot}")
        try:
            self._heed_floor_after(slot, event)
        except (Unavailable, PermissionDenied) as error:  # it was created, and may have to go again
            raise self._unknown(slot, event) from error
        self._heads.note_ours(slot, event.state, began)

    def _unknown(self, slot: Slot, event: StoredEvent) -> AppendUnknown:
        self.counts.add("appends_unknown")
        return _unknown(slot, event)

    def _create(self, slot: Slot, event: StoredEvent) -> bool:
        """Create a slot by tries of one name and one content; False when it was taken before this call."""
        tries = self._backoff.start()
        unsure: Unavailable | None = None  # why a write of ours may have landed, or land yet
        while True:
            try:
                self._put(slot, event)
                return True
            except (Conflict, Unavailable) as error:
                if isinstance(error, Unavailable):
                    self.counts.add("appends_retried")
                answer, unsure = error, error if isinstance(error, Unavailable) else unsure
            except PermissionDenied as error:
                if unsure:
                    raise self._unknown(slot, event) from error
                raise
            try:
                found = self._read_back(slot)
            except (Unavailable, PermissionDenied) as error:
                if not unsure:
                    raise
                if isinstance(error, PermissionDenied) or not tries.pause():
                    raise self._unknown(slot, event) from error
                continue
            if found is not None:
                is_ours = found.data == event.state
                if is_ours and unsure is None:  # by an earlier call, which may have failed before it looked
                    self._heed_floor_after(slot, event)
                return is_ours and unsure is not None
            self._heed_emptied(slot, answer)
            if not tries.pause():
                raise self._unknown(slot, event) if unsure else _emptied(slot) from answer

    def _put(self, slot: Slot, event: StoredEvent) -> None:
        """Send the write once: Conflict says that the slot is taken, Unavailable nothing."""
        self._once.put(
            self._names.event(slot),
            event.state,
            if_generation=ABSENT,
            content_type=_JSON,
            metadata={"type": event.topic},
        )

    def _read_back(self, slot: Slot) -> Blob | None:
        """Return what is in a slot now; that there is nothing proves nothing of a write under way."""
        try:
            return self._once.get(self._names.event(slot))
        except NotFound:
            return None

    def _heed_emptied(self, slot: Slot, answer: Conflict | Unavailable) -> None:
        """Where a slot was taken and is empty now, it was deleted: do not fill it again below a floor."""
        if isinstance(answer, Conflict):
            self.heed_floor(slot)

    def _heed_floor_before(self, slot: Slot, event: StoredEvent) -> None:
        """Do not begin a job that was erased."""
        if slot.version <= 1:
            self._heed_or_take_back(slot, event)

    def _heed_floor_after(self, slot: Slot, event: StoredEvent) -> None:
        """Take back what was created below a floor, unless there was none a moment ago."""
        if slot.version <= 1 or not self._heads.is_unerased(slot.job_id):
            self._heed_or_take_back(slot, event)

    def _heed_or_take_back(self, slot: Slot, event: StoredEvent) -> None:
        try:
            self.heed_floor(slot)
        except Gone:
            found = self._read_back(slot)
            if found is not None and found.data == event.state:
                self._once.delete(self._names.event(slot), if_generation=found.generation)
            raise

    def heed_floor(self, slot: Slot) -> None:
        """Refuse a slot in which no event may be.

        Raises:
            Gone: the job was erased.
        """
        floor = self._floors.get(slot.job_id)
        if is_below(slot, floor):
            raise Gone(f"the job was erased job_id={slot.job_id} floor={floor}")


def slot_of(event: StoredEvent) -> Slot:
    """Return the place of a stored event."""
    return Slot(str(event.originator_id), event.originator_version)


def is_below(slot: Slot, floor: int) -> bool:
    """Tell whether an event must not be: no job with a floor has a first one."""
    return slot.version < floor or (floor > 0 and slot.version <= 1)


def _emptied(slot: Slot) -> Unavailable:
    return Unavailable(f"slot is emptied all the time job_id={slot.job_id} version={slot.version}")


def _unknown(slot: Slot, event: StoredEvent) -> AppendUnknown:
    try:
        event_id = codec.decode(event.state).id
    except Corrupt:
        event_id = ""
    return AppendUnknown(slot.job_id, slot.version, event_id)
