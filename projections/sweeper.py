"""The sweeper: finds in the log what no message told of, so that nothing else is needed to bring a view up to date.

W1 looks behind the last known version of every unfinished job, and at its status: was it written by another service? W2 goes
through the whole log, a 256th at a time, by lists alone, and finds jobs that nobody knows and versions that the index has
not; what landed of such a job after it was erased goes. On its way it looks once at the status of each job that is not done for
good: did another service take it up again? W3: when a subscription was lost, W2 at full speed. One process at a
time does it, by lease; two are only dearer.

Cost: W1 two reads for each unfinished job, every five minutes while nothing is amiss and every minute while something is. W2
a list for each thousand events, all of them once a day: about $1.5 a month for each million jobs of ten events, and a third
of that for reading the index beside it, and two reads for each job that failed, was canceled or skipped: $24 a month for each
million of those. Both keep within `operations_s`.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple, Protocol

import msgspec

from jobevents.blobs import Blobs
from jobevents.errors import JobEventsError
from jobevents.events import JobDeleted
from jobevents.telemetry import Counts
from projections.arrears import Arrears
from projections.inflow import read_through
from projections.inlet import Inlet
from projections.recovery import Recovery
from projections.rotation import Rotation, Standing

PARTS = tuple(f"{number:02x}" for number in range(256))  # of the log, by a hash of the job's id
_PAGE = 64  # jobs looked at at once
_LIST = 1000  # events a list
_HELD = 100_000  # jobs of the index whose versions are held at once, beside those of one more part: 20 MB
_LOOK_S = 1.0  # how late it is seen that there is a hurry

logger = logging.getLogger(__name__)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and at what cost."""

    open_s: float = 60.0  # between two looks at the unfinished jobs, while something is amiss
    calm_s: float = 300.0  # the same while messages come as they should
    rotation_s: float = 86_400.0  # in which all of the log is listed
    operations_s: float = 200.0  # reads and lists a second, at most
    threads: int = 16  # reads at once


class Parts(Protocol):
    """A log that lists itself by parts."""

    def last_slots(self, part: str, *, after: str = "") -> Iterator[tuple[str, int]]:
        """Yield (job id, last version) of every job of a part, by lists alone."""
        ...

    def drop_ghosts(self, job_id: str) -> int:
        """Remove what landed after the job was erased, or its key given to another; return how many events that were."""
        ...


class Census(Protocol):
    """The jobs that the index has."""

    def unfinished(self) -> Iterator[tuple[str, int]]:
        """Yield (job id, version) of every job in a state that is not final."""
        ...

    def versions(self, part: str) -> Mapping[str, int]:
        """Return the version of every job of a part, as of a while ago at most."""
        ...

    def given_up(self, parts: Collection[str]) -> Iterator[tuple[str, int]]:
        """Yield (job id, version) of every job of these parts that failed, was canceled or skipped."""
        ...

    def forget(self) -> None:
        """Read anew what is asked for from now on."""
        ...


class Lease(Protocol):
    """The claim of this process to be the one that sweeps; see `jobevents.lease`."""

    beat_s: float

    def hold(self) -> bool:
        """Take the role or keep it."""
        ...

    def release(self) -> None:
        """Give it up."""
        ...


class _Behind(NamedTuple):
    """A job that the index has not, or not as it is."""

    job_id: str
    at: int  # version in the index; 0: it has none
    version: int  # as it is listed


class Sweeper:
    """Sweeps. For one thread; no error of a store leaves `step`."""

    def __init__(
        self,
        inlet: Inlet,
        parts: Parts,
        census: Census,
        blobs: Blobs,
        prefix: str = "",
        *,
        mend: Callable[[str], None],
        stored: Callable[[], int],
        arrears: Arrears | None = None,
        lease: Lease | None = None,
        terms: Terms | None = None,
        counts: Counts,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Read nothing yet.

        Args:
            mend: makes a job's status what the log says, and what another service wrote there a part of the log.
            stored: the place in the inlet's sequence up to which every view is stored.
        """
        self.cycled_at: float | None = None  # when W1 was last done, here or by the holder of the lease, monotonic
        self.standing = Standing()
        self._inlet = inlet
        self._parts = parts
        self._census = census
        self._rotation = Rotation(blobs, prefix)
        self._mend = mend
        self._stored = stored
        self._arrears = arrears
        self._lease = lease
        self._terms = terms or Terms()
        self._counts = counts
        self._monotonic = monotonic
        self._sleep = sleep
        self._recovery = Recovery("the sweep", counts, monotonic=monotonic)
        self._pool = ThreadPoolExecutor(self._terms.threads, thread_name_prefix="jobevents-sweep")
        self._is_ours = lease is None
        self._beat_at = 0.0
        self._open_at = 0.0
        self._part_at = 0.0
        self._is_loaded = False
        self._is_hurried = False
        self._is_amiss = True  # until a look at the unfinished jobs has found nothing
        self._reached: tuple[int, datetime] | None = None  # place that has to be stored for the rotation to be complete
        self._spent = 0
        self._stop: Callable[[], bool] = lambda: False

    @property
    def error(self) -> JobEventsError | None:
        """What holds the sweep up; None for nothing."""
        return self._recovery.error

    def hurry(self) -> None:
        """Go through the whole log as fast as the budget allows, from the next step on, whoever has the lease."""
        self._is_hurried = True

    def amiss(self) -> None:
        """Look at the unfinished jobs more often, until a look finds nothing."""
        self._is_amiss = True

    def run(self, stop: Callable[[], bool], wait: Callable[[float], object]) -> None:
        """Sweep until `stop` says so."""
        self._stop = stop
        while not stop():
            wait(min(self.step(), _LOOK_S))
        self.leave()

    def step(self) -> float:
        """Do what is due; return in how many seconds something will be."""
        if self._recovery.wait_s:
            return min(self._recovery.wait_s, 1.0)
        try:
            if self._is_hurried:
                self._is_hurried = False
                self.rotate()
            if not self._hold():
                self.cycled_at = self._monotonic()
                return 1.0
            self._do_due()
        except JobEventsError as error:
            self._recovery.failed(error)
            return min(self._recovery.wait_s, 1.0)
        self._recovery.succeeded()
        now = self._monotonic()
        return max(0.0, min(self._open_at, self._part_at, self._beat_at if self._lease else self._open_at) - now)

    def sweep(self) -> int:
        """Go through all of it once, now: W2 and then W1; return how many events were found.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        found = self.rotate()
        return found + self.look_at_unfinished()

    def rotate(self) -> int:
        """Go through the whole log (W2), parts at a time, and return how many events were found."""
        began = self._rotation.save(Standing(0, None, self.standing.complete_through))
        self._census.forget()
        found = done = 0
        while done < len(PARTS):
            known = self._known(PARTS[done : done + self._terms.threads])
            done += len(known)
            found += self._sweep_parts(known)
            if self._stop():
                return found
        self._reached = self._end(), began
        self.standing = self._finished()
        self._rotation.save(self.standing)
        self._is_loaded = True
        return found

    def look_at_unfinished(self) -> int:
        """Look behind every unfinished job (W1), pay what is owed to the bus; return how many events were found."""
        if self._arrears is not None:
            self._arrears.pay()
        found = 0
        jobs = iter(self._census.unfinished())
        while page := list(islice(jobs, _PAGE)):
            found += sum(self._pool.map(self._look_at, page))
            self._spend(2 * len(page))
            if self._stop():
                return found
        self._is_amiss = found > 0
        self.cycled_at = self._monotonic()
        self._counts.add("sweep_cycles")
        return found

    def leave(self) -> None:
        """Give the lease up and end the threads."""
        self._pool.shutdown()
        if self._lease is not None:
            try:
                self._lease.release()
            except JobEventsError as error:  # it runs out by itself
                self._recovery.failed(error)

    def complete_through(self) -> datetime | None:
        """Return the instant before which every stored event is in the views, by the store's clock; None: not known yet."""
        if self._reached is not None and self._stored() >= self._reached[0]:
            self.standing = msgspec.structs.replace(self.standing, complete_through=self._reached[1])
        return self.standing.complete_through

    def _hold(self) -> bool:
        if self._lease is not None and self._monotonic() >= self._beat_at:
            was_ours, self._is_ours = self._is_ours, self._lease.hold()
            self._beat_at = self._monotonic() + (self._lease.beat_s if self._is_ours else min(self._lease.beat_s, 1.0))
            self._is_loaded &= was_ours
        return self._is_ours

    def _do_due(self) -> None:
        if not self._is_loaded:
            self.standing, self._is_loaded = self._rotation.load(), True
        if self._monotonic() >= self._open_at:
            self.look_at_unfinished()
            wait_s = self._terms.open_s if self._is_amiss else max(self._terms.open_s, self._terms.calm_s)
            self._open_at = self._monotonic() + wait_s
        if self._monotonic() >= self._part_at:
            self._go_on()
            self._part_at = self._monotonic() + self._terms.rotation_s / len(PARTS)

    def _go_on(self) -> None:
        """Sweep the next part of the rotation, and say so where the next process finds it."""
        self.complete_through()  # so that it is written, too
        standing = self.standing
        if standing.began is None:
            standing = msgspec.structs.replace(standing, began=self._rotation.save(standing))
        part = PARTS[standing.next_part % len(PARTS)]
        self._sweep_parts({part: self._census.versions(part)})
        if standing.next_part + 1 < len(PARTS):
            standing = msgspec.structs.replace(standing, next_part=standing.next_part + 1)
        else:
            assert standing.began is not None  # noqa: S101  # set above
            self._reached = self._end(), standing.began
            standing = self._finished()
        self.standing = standing
        self._rotation.save(standing)

    def _finished(self) -> Standing:
        return Standing(0, None, self.complete_through())

    def _known(self, parts: Sequence[str]) -> dict[str, Mapping[str, int]]:
        """Return what the index has of the first of the parts, one at least: of as many as may be held at once."""
        known: dict[str, Mapping[str, int]] = {}
        for part in parts:
            known[part] = self._census.versions(part)
            if sum(map(len, known.values())) >= _HELD:
                break
        return known

    def _sweep_parts(self, known: Mapping[str, Mapping[str, int]]) -> int:
        """List parts at the same time, and bring up to date what is behind; return how many events were not known.

        Args:
            known: the version of each job that the index has, by part.
        """
        found = self._look_at_given_up(known)
        todo = [(part, "") for part in known]
        while todo and not self._stop():
            listed = list(self._pool.map(lambda one: self._list(one[0], one[1], known[one[0]]), todo))
            repaired = sum(self._pool.map(self._catch_up, chain.from_iterable(behind for _, behind, _ in listed)))
            self._spend(sum(1 + events // _LIST for events, _, _ in listed) + 2 * repaired)
            found += repaired
            todo = [(part, after) for (part, _), (_, _, after) in zip(todo, listed, strict=True) if after]
        return found

    def _look_at_given_up(self, parts: Collection[str]) -> int:
        """Look at the statuses of jobs that another service may take up again; those that succeeded are done for all."""
        found = 0
        jobs = self._census.given_up(parts)
        while (page := list(islice(jobs, _PAGE))) and not self._stop():
            found += sum(self._pool.map(self._look_at, page))
            self._spend(2 * len(page))
        return found

    def _list(self, part: str, after: str, known: Mapping[str, int]) -> tuple[int, list["_Behind"], str]:
        """List a part from a job on; return how many events that were, what is behind, and the job to go on after, if any."""
        stored = self._stored()
        events = 0
        behind: list[_Behind] = []
        for job_id, version in self._parts.last_slots(part, after=after):
            events += version
            at, taken = known.get(job_id, 0), self._inlet.inflow.taken(job_id)
            if at < version and (taken.version < version or taken.place <= stored):
                behind.append(_Behind(job_id, at, version))
            if len(behind) >= _PAGE:
                return events, behind, job_id
        return events, behind, ""

    def _catch_up(self, one: "_Behind") -> int:
        """Bring a job into the views that is not there, or not as it is now; return how many events were not known."""
        job_id, at, version = one
        taken = self._inlet.inflow.taken(job_id).version
        status = self._inlet.look(job_id)
        known = max(at, taken)
        if not max(at, status.version):
            self._drop_ghosts(job_id)
        is_shown = min(status.version, status.told) >= version
        after = version - 1 if is_shown else known or min(status.told, version - 1)
        until = version if is_shown else None
        records = read_through(self._inlet.log, job_id, version, after=min(after, version - 1), until=until)
        last = [record for record in records if record.version == version]
        if last and last[0].type == JobDeleted.__name__:
            if status.is_there:
                self._mend(job_id)  # written late, by somebody who had fallen behind, or by another service
            if not at and self._inlet.is_told(job_id):
                return 0  # nothing is kept of it in the index, which is why it is not known
        fresh = [] if is_shown else [record for record in records if record.version > after]
        if fresh:
            self._inlet.take(fresh, told=status.told)
            self._counts.add("sweeper_repaired", len(fresh))
        elif last:
            self._inlet.inflow.again(last[0])  # the index alone lacks it, or has it since it was read
        return len(fresh)

    def _drop_ghosts(self, job_id: str) -> None:
        """Remove what a process wrote, and died before it could take that back; of a job that nobody knew. One read."""
        dropped = self._parts.drop_ghosts(job_id)
        if dropped:
            self._counts.add("ghosts_dropped", dropped)
            logger.warning("events of an erased job came after all, and are removed job_id=%s", job_id)

    def _look_at(self, one: tuple[str, int]) -> int:
        job_id, version = one
        taken = self._inlet.inflow.taken(job_id)
        status = self._inlet.look(job_id)
        if status.version < version and taken.place <= self._stored():
            self._mend(job_id)
            self._counts.add("statuses_mended")
        return self._take(job_id, max(version, taken.version), status.told)

    def _take(self, job_id: str, after: int, told: int) -> int:
        records = self._inlet.log.read_raw(job_id, after=after)
        if not records:
            return 0
        self._inlet.take(records, told=told)
        self._counts.add("sweeper_repaired", len(records))
        return len(records)

    def _end(self) -> int:
        return int(self._inlet.inflow.last_cursor() or 0)

    def _spend(self, operations: int) -> None:
        """Rest for as long as what was spent takes at the pace that is allowed."""
        self._spent += operations
        while self._spent >= self._terms.operations_s and not self._stop():
            self._spent -= int(self._terms.operations_s)
            self._sleep(1.0)
