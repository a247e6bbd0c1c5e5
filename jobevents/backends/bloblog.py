"""The log as objects: one immutable object for each event, created in its slot or not at all.

eventsourcing's AggregateRecorder over the port `Blobs`, so that memory, files and a bucket run the very same protocol. An
append is linearizable per job: a slot is created by one writer, whatever replies are lost and however late a write lands.
There is no order across jobs, and a call of several events is written one after the other: where it is cut short, its first
events are there. Calls over several jobs go through these in the order of their ids, so that of two calls over the same jobs
the first at the first job is the first at all.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Protocol

from eventsourcing.persistence import AggregateRecorder, IntegrityError, StoredEvent

from jobevents import codec
from jobevents.backends.blobappend import Heads, SlotAppender, is_below, slot_of
from jobevents.backends.blobfloors import Floors
from jobevents.backends.blobnames import PARTS, Names, Slot
from jobevents.backends.fan import Fan
from jobevents.backoff import Backoff
from jobevents.blobs import Blob, Blobs
from jobevents.erasure import Eraser
from jobevents.errors import (
    AppendUnknown,
    Conflict,
    JobEventsError,
    KeyTaken,
    Misconfigured,
    NotFound,
)
from jobevents.job import Job
from jobevents.limits import Limit
from jobevents.log import NO_HEADS, Head, Record
from jobevents.telemetry import Counts

PROBES = 4  # reads of what may be the next event before a list, which costs twelve times a read
SHORT = 2  # events of a history that is read by probes from its first on
RELISTS = 3  # of a listing that was made while events were written, and has a hole
LONG = 1000  # events of a job from which on they are listed: what a list gives at a time


class AtAppend(Protocol):
    """What takes part in an append: what a job's rows are on a log in a database."""

    def before(self, jobs: Sequence[Job], events: Sequence[StoredEvent]) -> Callable[[], None]:
        """Take what the jobs will need, before their events are written, and return what gives it back; refuse by raising."""
        ...

    def after(self, jobs: Sequence[Job]) -> None:
        """Let go of what the jobs do not need any more: their events are in the log."""
        ...


class BlobRecorder(AggregateRecorder):
    """Events as objects. Safe for threads and between processes; a forked child may go on with it.

    Requests: an append is one create (for a job's first event two reads more, for one of a job that this process has not
    appended to within a minute one, and another for a head that was not just read), what came after an event one read of
    nothing and one for each event, a history a list and a read for each event.
    """

    is_durable = True
    whole_calls = False  # a call that is cut short leaves its first events

    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        once: Blobs | None = None,
        backoff: Backoff | None = None,
        fan: Fan | None = None,
        at_append: Sequence[AtAppend] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the log below `prefix`.

        Args:
            once: the same store, where a `put` is one request that is not tried again; `blobs` itself if not given.
            backoff: how an append is tried again; its deadline is when an append's outcome is unknown.
            at_append: what else an append brings about, in order.
        """
        self.names = Names(prefix)
        self.floors = Floors(blobs, self.names)
        self.eraser: Eraser | None = None  # what takes events out; given by whoever puts the log together
        self.at_append = at_append
        self._blobs = blobs
        self._fan = fan or Fan()
        self._heads = Heads(monotonic)
        self._appender = SlotAppender(once or blobs, self.names, self.floors, self._heads, backoff or Backoff())

    def count_in(self, counts: Counts) -> None:
        """Count there what is tried again, and what nobody knows the outcome of."""
        self._appender.counts = counts

    # writing

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        rows: Sequence[Job] = (),
        limits: Sequence[Limit] = (),
        follows: Mapping[str, Head] = NO_HEADS,
        **kwargs: Any,  # Any: as in the library
    ) -> None:
        """Create each event in its slot.

        Args:
            stored_events: 0..n, of any jobs; of each job in order.
            rows: the jobs as they are after these events.
            limits: none: nothing here counts the running jobs.
            follows: the heads that events go on from: a read for each that was not seen within the last minute.
            kwargs: passed over.

        Raises:
            IntegrityError: another event is in a slot; nothing was written, but where another took it this instant.
            Gone: the job was erased.
            KeyTaken: an unfinished job holds the idempotency key of a row; nothing was written.
            AppendUnknown: no reply until the deadline: an event may be there, or come to be.
            PermissionDenied, Unavailable: what the store says; nothing of this event was written.
        """
        self._refuse_limits(limits)
        self._refuse_doubles(stored_events)
        if not stored_events:
            return
        ordered = sorted(stored_events, key=attrgetter("originator_id", "originator_version"))
        self._heed_heads(follows)
        self._refuse_taken(ordered)
        undo = self._before(rows, ordered)
        written, errors = self._write([list(own) for _, own in groupby(ordered, key=attrgetter("originator_id"))])
        unknown = next((error for error in errors if isinstance(error, AppendUnknown)), None)
        if unknown is not None:
            raise unknown  # it may be in the log, and need what was taken for it
        if errors:
            if not written:
                for give_back in undo:
                    give_back()
            raise errors[0]
        for one in self.at_append:
            one.after(rows)

    def _write(self, histories: Sequence[Sequence[StoredEvent]]) -> tuple[int, list[Exception]]:
        """Append to the first job, then to all others at a time; return how many events were written, and what went wrong."""
        first = self._write_history(histories[0])
        others = [] if first[1] else self._fan.map(self._write_history, histories[1:])
        return sum(count for count, _ in (first, *others)), [error for _, error in (first, *others) if error]

    def _write_history(self, events: Sequence[StoredEvent]) -> tuple[int, Exception | None]:
        """Append a job's events one after the other, up to the first that goes wrong."""
        for count, event in enumerate(events):
            try:
                self._appender.append(event)
            except (JobEventsError, IntegrityError) as error:
                return count, error
        return len(events), None

    def _before(self, rows: Sequence[Job], events: Sequence[StoredEvent]) -> list[Callable[[], None]]:
        """Prepare, and return how to undo it; where a key is taken and a slot, too, it is the slot that is told of."""
        try:
            return [one.before(rows, events) for one in self.at_append]
        except KeyTaken as taken:
            if any(event.originator_version <= 1 and self._look(slot_of(event)) for event in events):
                raise IntegrityError("another event is in the slot") from taken
            raise

    def _refuse_limits(self, limits: Sequence[Limit]) -> None:
        if limits:
            raise Misconfigured("this log does not count the running jobs: limits need a log in a database")

    def _refuse_doubles(self, events: Sequence[StoredEvent]) -> None:
        if len({slot_of(event) for event in events}) < len(events):
            raise IntegrityError("two events of one call are for one slot")

    def _heed_heads(self, follows: Mapping[str, Head]) -> None:
        """Refuse to go on from an event that is not there, as in a log that was replaced by an older copy."""
        unsure = [one for one in follows.items() if not self._heads.bears_out(*one)]
        found = self._fan.map(lambda one: self._look(Slot(one[0], one[1].version)), unsure)
        for (job_id, head), blob in zip(unsure, found, strict=True):
            if blob is None:
                self._appender.heed_floor(Slot(job_id, head.version))
            if blob is None or not blob.data.endswith(codec.tail(head.chain)):
                raise IntegrityError(
                    f"another history than the one gone on from job_id={job_id} version={head.version}"
                )

    def _refuse_taken(self, events: Sequence[StoredEvent]) -> None:
        """Refuse a call over several jobs that cannot be whole: one read for each, all at a time."""
        firsts = [next(own) for _, own in groupby(events, key=attrgetter("originator_id"))]
        if len(firsts) < 2:
            return
        found = self._fan.map(lambda event: self._look(slot_of(event)), firsts)
        for event, blob in zip(firsts, found, strict=True):
            if blob is not None:
                raise IntegrityError(f"another event is in the slot {slot_of(event)}")

    # reading

    def hint(self, job_id: str, version: int) -> None:
        """Expect a history to end about there, as another says: it is looked for from there on. 0: it is likely short."""
        self._heads.hint(Slot(job_id, version))

    def select_events(
        self,
        originator_id: Any,  # Any: a UUID, too, in the library
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return a part of a job's history; see the library's.

        What follows an event, a job's first few, and what is likely short, is read one after the other until there is nothing;
        the whole is listed, and read at a time. Of a job that is being erased the whole is its tombstone, whatever is there
        still, or came late.
        """
        job_id = str(originator_id)
        if desc and limit == 1 and (last := self._last(job_id, lte)) is not None:
            return [last] if gt is None or last.originator_version > gt else []
        expected = self._heads.expected(job_id)
        is_short = (lte is not None and lte <= PROBES) or (expected is not None and expected <= SHORT)
        if not desc and (gt or is_short):
            found = self._following(job_id, gt or 0, lte)
            if found or gt:  # else it has none, or what came first was erased: a list tells
                return found[:limit]
        slots = self._listed(job_id, gt, lte)
        events = self._read_all((slots[::-1] if desc else slots)[:limit])
        is_whole = bool(gt or limit or not slots or len(slots) >= slots[-1].version)
        return events if is_whole else [one for one in events if one.topic == codec.TOMBSTONE] or events

    def _following(self, job_id: str, after: int, until: int | None) -> list[StoredEvent]:
        """Return the events after one that is there: by reads, and by a list when there are more than a few."""
        found: list[StoredEvent] = []
        for version in range(after + 1, after + 1 + PROBES):
            if until is not None and version > until:
                return found
            event = self._read(Slot(job_id, version))
            if event is None:
                return found
            found.append(event)
        if until is not None and until <= after + PROBES:
            return found
        return found + self._read_all(self._listed(job_id, after + PROBES, until))

    def _last(self, job_id: str, until: int | None) -> StoredEvent | None:
        """Return the last event, up to a version; None when it takes a list to find it."""
        if until is not None:
            return self._read(Slot(job_id, until)) if until >= 0 else None
        expected = self._heads.expected(job_id)
        found = self._following(job_id, max(0, expected - 1), None) if expected is not None else []
        return found[-1] if found else None

    def _listed(self, job_id: str, after: int | None, until: int | None) -> list[Slot]:
        """Return the slots that are filled, from one list, in order."""
        slots: list[Slot] = []
        for _ in range(RELISTS):
            slots = [
                slot
                for slot in self._slots(self.names.history(job_id), Slot(job_id, (after or 0) + 1) if after else None)
                if until is None or slot.version <= until
            ]
            if not slots or slots[-1].version - slots[0].version == len(slots) - 1:
                break  # else it was listed while events were written: an earlier one was not there yet
        return slots

    def _read_all(self, slots: Sequence[Slot]) -> list[StoredEvent]:
        """Read events at a time; those that were erased meanwhile are left out."""
        return [event for event in self._fan.map(self._read, slots) if event is not None]

    def _read(self, slot: Slot) -> StoredEvent | None:
        blob = self._look(slot)
        return None if blob is None else StoredEvent(slot.job_id, slot.version, _type(blob), bytes(blob.data))

    def _look(self, slot: Slot) -> Blob | None:
        """Return what is in a slot, and remember that it is there."""
        try:
            blob = self._blobs.get(self.names.event(slot))
        except NotFound:
            return None
        if blob is not None:
            self._heads.note(slot, blob.data)
        return blob

    def _slots(self, prefix: str, start: Slot | None = None) -> Iterator[Slot]:
        for entry in self._blobs.list(prefix, start=self.names.event(start) if start else ""):
            slot = self.names.slot(entry.name)
            if slot is not None:
                yield slot

    # all jobs

    def scan_records(self, cursor: str, batch: int) -> Iterator[Record]:
        """Yield every event, by the names of the objects: part after part, a job's in order; the cursor is a name.

        An event that is written behind the cursor meanwhile is for the next scan. A list for each thousand events, and a
        read for each, `batch` at a time.
        """
        after = self.names.slot(self.names.log + cursor) if cursor else None
        slots = (slot for slot in self._slots(self.names.log, after) if slot != after)
        while page := list(islice(slots, batch)):
            for slot, event in zip(page, self._fan.map(self._read, page), strict=True):
                if event is not None:  # else it was erased meanwhile
                    name = self.names.event(slot).removeprefix(self.names.log)
                    yield Record(name, slot.job_id, slot.version, event.topic, event.state)

    def iter_by_job(self, start: str, batch: int) -> Iterator[Record]:
        """Yield every job's events, from a job on, by id: all parts are listed first, for the ids, which are held."""
        return self.iter_tails(start, lambda _: 0)

    def iter_tails(self, start: str, after: Callable[[str], int]) -> Iterator[Record]:
        """Yield the events of every job after a version that is known of it: of a job that has no more, nothing is read."""
        slots = (slot for slots in self._fan.map(lambda part: list(self.last_slots(part)), PARTS) for slot in slots)
        heads = {slot.job_id: slot.version for slot in slots if slot.job_id >= start}
        for job_id in sorted(heads, key=str.encode):
            known, head = after(job_id), heads[job_id]
            # By the head that was listed: one that is missing, erased or lost, hides none of those behind it.
            wanted = [Slot(job_id, n) for n in range(known + 1, min(head, known + LONG) + 1)]
            if head > known + LONG:
                wanted = self._listed(job_id, known or None, None)
            for event in self._read_all(wanted):
                yield Record("", job_id, event.originator_version, event.topic, event.state)

    def last_slots(self, part: str, *, after: str = "") -> Iterator[Slot]:
        """Yield the last event's slot of every job of a part of the log, by job id, after the job `after`: lists alone.

        Args:
            part: one of `blobnames.PARTS`.
        """
        last: Slot | None = None
        prefix = f"{self.names.log}{part}/"
        start = f"{prefix}{after}0" if after else ""  # `0` is the character after the slash of the job's own events
        for entry in self._blobs.list(prefix, start=start):
            slot = self.names.slot(entry.name)
            if slot is None:
                continue
            if last is not None and slot.job_id != last.job_id:
                yield last
            last = slot
        if last is not None:
            yield last

    def drop_ghosts(self, job_id: str) -> int:
        """Remove what landed below a job's floor after that was raised, by who could not take it back.

        What was there before is left to the erasure, which waits an hour; so is a job that began in the very moment in which
        its key was given to another, or was gone on with since. A read, for a job with a floor a list and the reads of it, too;
        return how many there were. For sweepers, at a job that nobody knew.
        """
        floor, _, raised_at = self.floors.look(job_id)
        slots = list(self._slots(self.names.history(job_id))) if floor else []
        if floor is None or raised_at is None or (floor.version == 1 and len(slots) > 1):
            return 0
        ghosts = [slot for slot in slots if is_below(slot, floor.version)]
        found = zip(ghosts, self._fan.map(self._look, ghosts), strict=True)
        late = [self.names.event(slot) for slot, blob in found if blob is not None and blob.stored_at > raised_at]
        return sum(self._fan.map(self._blobs.delete, late))

    def translate(self, error: BaseException) -> JobEventsError:
        """Return our error for one of eventsourcing; ours comes back as it is."""
        return error if isinstance(error, JobEventsError) else Conflict(f"somebody else wrote first error={error}")

    def close(self) -> None:
        """End the threads; any number of times. The blobs are closed by whoever opened them."""
        self._fan.close()


def _type(blob: Blob) -> str:
    """Return the type of a stored event: as its metadata says, or, where another program wrote it, its bytes."""
    known = blob.metadata.get("type")
    return codec.type_of(blob.data) if known is None else known
