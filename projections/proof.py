"""Proof of one job's history: each event in its place, none missing, doubled or changed since it was written. Pure.

What cannot be told from one history alone: that its last events are missing, or that a part up to the end was written anew with
a chain of its own. The row, the status and an older root tell that; `verify` holds them against the log.
"""

from collections.abc import Sequence

import msgspec

from jobevents import boundary, codec
from jobevents.errors import Corrupt
from jobevents.events import Event, JobDeleted
from jobevents.job import DELETED, Job, fold
from jobevents.log import Record


class Flaw(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is not as it should be."""

    check: str  # where: log, rows, status, index, root, or the name of another check
    kind: str  # altered, missing, swapped, duplicated, forked, misplaced, unreadable; absent, behind, ahead, differs, stray …
    said: str  # for people, without the job's id
    job_id: str = ""
    version: int = 0  # of the event that is meant; 0: the job as a whole


class Proof(msgspec.Struct):
    """One history, looked at."""

    job_id: str
    records: Sequence[Record]  # as they are stored, by version
    events: list[Event]  # decoded, as far as the history can be read without a gap
    job: Job | None  # folded to its end; None when it cannot be
    flaws: list[Flaw] = []
    owed: int | None = None  # version that views have to have, at the least; None: the last one

    @property
    def version(self) -> int:
        """Version of the last event."""
        return self.records[-1].version

    @property
    def chain(self) -> str:
        """Chain hash of the last event; "" when it has none."""
        return chain_of(self.records[-1])

    def at(self, version: int) -> Job | None:
        """Return the job as it was after an event; None when it cannot be folded so far."""
        if self.job is not None and version == self.job.version:
            return self.job
        return fold(self.events[:version], job_id=self.job_id) if 0 < version <= len(self.events) else None

    def version_at(self, position: int) -> int:
        """Return the version that the job had at a place in the log; 0: it was not there yet."""
        if int(self.records[-1].cursor) <= position:
            return self.version
        return max((one.version for one in self.records if int(one.cursor) <= position), default=0)


def chain_of(record: Record) -> str:
    """Return the chain hash in a record; "" when it has none."""
    try:
        return codec.unseal(record.data)[1]
    except Corrupt:
        return ""


def prove(records: Sequence[Record], floor: int = 0) -> Proof:
    """Look at one job's whole history.

    Args:
        records: 1..n, of one job, by version; of a slot that holds several, all of them.
        floor: events of lower versions were erased, and may be missing.
    """
    look = _Look(records, floor)
    look.slots()
    look.bodies()
    look.links()
    look.fold()
    return look.proof


class _Look:
    """One history under way."""

    def __init__(self, records: Sequence[Record], floor: int) -> None:
        self.proof = Proof(records[0].job_id, records, [], None)
        self._erased = max(floor - 1, 0)  # the last version that may be missing
        self._records = {record.version: record for record in reversed(records)}  # of a slot, the first committed
        self._events: dict[int, Event] = {}  # by slot, as far as they can be decoded
        self._seals: dict[int, tuple[bytes, str]] = {}  # by slot: body and chain
        self._spoilt: set[int] = set()  # slots of which something was said, so that what follows from it need not be

    def slots(self) -> None:
        """Find slots that are empty, or hold more than one event."""
        seen: dict[int, list[Record]] = {}
        for record in self.proof.records:
            seen.setdefault(record.version, []).append(record)
        for version, several in seen.items():
            if len(several) > 1:
                same = len({record.data for record in several}) == 1
                what = "the same event" if same else "different events, each as if it were the one"
                self._say(
                    "duplicated" if same else "forked", version, f"#{version} is there {len(several)} times: {what}"
                )
        first, last = self._erased + 1, max(seen)
        for low, high in _ranges([version for version in range(first, last) if version not in seen]):
            which = f"#{low} is missing" if low == high else f"#{low} to #{high} are missing"
            self._say("missing", low, f"{which}; the history goes on to #{last}")
            self._spoilt.update(range(low, high + 1))

    def bodies(self) -> None:
        """Find events that cannot be read, or are not of their slot."""
        found: dict[int, Event] = {}
        for version, record in self._records.items():
            try:
                self._seals[version] = codec.unseal(record.data)
                found[version] = codec.decode(record.data)
            except Corrupt as error:
                self._say("unreadable", version, f"#{version} cannot be read: {error}")
        own = self.proof.job_id
        places = {event.version: slot for slot, event in found.items() if event.job_id == own and event.version == slot}
        for slot, event in sorted(found.items()):
            if event.job_id != own:
                self._say(
                    "misplaced",
                    slot,
                    f"#{slot} holds an event of another job: {boundary.visible(event.job_id)} #{event.version}",
                )
            elif event.version == slot:
                if event.type != self._records[slot].type:
                    kept = self._records[slot].type
                    said = f"#{slot} is kept as {boundary.visible(kept, 80)} and says that it is {event.type}"
                    self._say("altered", slot, said, spoils=False)
                self._events[slot] = event
            elif event.version in places:
                self._say("duplicated", slot, f"#{slot} is a copy of #{event.version}")
            else:
                self._misplaced(slot, event, found)

    def _misplaced(self, slot: int, event: Event, found: dict[int, Event]) -> None:
        other = found.get(event.version)
        if other is not None and other.job_id == self.proof.job_id and other.version == slot:
            if slot < event.version:
                self._say("swapped", slot, f"#{slot} and #{event.version} are swapped: each holds the other")
            self._spoilt.add(event.version)
        else:
            self._say("misplaced", slot, f"#{slot} holds #{event.version}")

    def links(self) -> None:
        """Find events that do not follow from the one before."""
        for version in sorted(self._records):
            if version in self._spoilt or version - 1 in self._spoilt:
                continue
            before = self._seals.get(version - 1)
            if before is None and version > 1:  # erased
                continue
            body, chain = self._seals[version]
            if codec.link(before[1] if before else codec.NO_CHAIN, body) == chain:
                continue
            after = f"#{version} does not follow from #{version - 1}: one of them was altered after it was written"
            self._say("altered", version, after if version > 1 else "#1 was altered after it was written", spoils=False)

    def fold(self) -> None:
        """Fold what can be folded, from the beginning on."""
        proof, last = self.proof, self.proof.version
        if self._erased and last in self._events and isinstance(self._events[last], JobDeleted):
            proof.job = Job(job_id=proof.job_id, version=last, chain=proof.chain, state=DELETED)
            return
        while (event := self._events.get(len(proof.events) + 1)) is not None:
            proof.events.append(event)
        if len(proof.events) == last:
            try:
                proof.job = fold(proof.events, job_id=proof.job_id)
            except Exception as error:  # noqa: BLE001  # whatever it is, the history cannot be folded, and that is what is asked
                self._say("unreadable", last, f"cannot be folded: {type(error).__name__}: {error}")

    def _say(self, kind: str, version: int, said: str, *, spoils: bool = True) -> None:
        if spoils:
            self._spoilt.add(version)
        self.proof.flaws.append(Flaw("log", kind, said, self.proof.job_id, version))


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as (first, last) of each run without a gap."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
