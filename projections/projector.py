"""The projector: reads the log in its one order, folds each changed job once, and keeps the views in step.

Catching up and following are one loop. Its effect is exactly once: views are guarded and idempotent, and a position is
recorded only after everything up to it is stored, so that after a crash a part is done again, and changes nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, runtime_checkable

from jobevents.blobs import Blobs
from jobevents.errors import JobEventsError
from jobevents.log import Record
from jobevents.telemetry import Counts
from projections.folding import Batch, Folder, Recall
from projections.health import Health
from projections.lane import Lane, Lease
from projections.positions import Tracker
from projections.recovery import Recovery
from projections.view import Feed, View

BATCH = 1000  # events read at once: about 0.4 MB
PATIENCE_S = 1.0  # the log is read again after this even if nobody woke us: a hint may be lost
HEALTH_EVERY_S = 10.0
LOOK_EVERY_S = 5.0  # at the parked jobs
SLOW_LOOK_EVERY_S = 30.0  # where a look is billed
ONCE_DEADLINE_S = 30.0  # how long `run_once` puts up with a store that is unavailable


@runtime_checkable
class Alarm(Protocol):
    """Sets events when something was committed to the log: its recorder."""

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every commit from now on."""
        ...

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone."""
        ...


@runtime_checkable
class Follower(Tracker, Alarm, Protocol):
    """A recorder that a projector can follow: it wakes, and it keeps positions."""


class Projector:
    """Keeps views in step with a log that has one sequence. One thread runs it; `wake` may be called from any.

    Several at once are right, only dearer; leases keep it at one for each view. A job that cannot be folded, or that a view
    cannot take, is parked for that view and holds up no other. No error of a store ends it.
    """

    def __init__(
        self,
        log: Feed,
        views: Sequence[View],
        *,
        alarm: Alarm,
        blobs: Blobs,
        prefix: str = "",
        leases: Mapping[str, Lease] | None = None,
        holder: str = "",
        counts: Counts | None = None,
        recall: Recall | None = None,
        complete_through: Callable[[], datetime | None] | None = None,
        batch: int = BATCH,
        look_every_s: float | None = None,
        health_every_s: float = HEALTH_EVERY_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            alarm: wakes the projector after a commit.
            blobs: where parked jobs and the health are kept.
            leases: by the name of the view; a view without one is projected at once.
            holder: this process's identity, for the health.
            recall: how far a job is that was not folded lately, where reading a history is dear.
            complete_through: until when the log is complete in the views, where its sequence does not say.
            look_every_s: how often to look at what was asked of parked jobs; 5 s, or 30 s on a store with a least interval
                between two writes of a name.
            wait: waits so many seconds; by default, until woken.
        """
        if look_every_s is None:
            look_every_s = SLOW_LOOK_EVERY_S if blobs.min_write_interval_s > 0 else LOOK_EVERY_S
        self._log = log
        self._alarm = alarm
        self._batch = batch
        self._clock = clock
        self._woken = threading.Event()
        self._wait = wait or self._woken.wait
        self._folder = Folder(log, recall=recall)
        counts = counts or Counts()
        self._reading = Recovery("the projector's reading of the log", counts, monotonic=monotonic)
        self._lanes = [
            Lane(
                view,
                log=log,
                folder=self._folder,
                blobs=blobs,
                prefix=prefix,
                lease=(leases or {}).get(view.name),
                holder=holder,
                counts=counts,
                look_every_s=look_every_s,
                health_every_s=health_every_s,
                clock=clock,
                complete_through=complete_through,
                monotonic=monotonic,
            )
            for view in views
        ]

    def run(self, stop: threading.Event) -> None:
        """Project until `stop` is set, seen at the next `wake`; then store what was taken, and give up the leases."""
        self._alarm.listen(self._woken)
        try:
            while not stop.is_set():
                self._woken.clear()
                if not self.step() and not stop.is_set():
                    self._wait(self._idle_s())
        finally:
            self._alarm.unlisten(self._woken)
            self._end()

    def run_once(self, stop: threading.Event | None = None) -> bool:
        """Project until everything that is in the log now is stored; no lease is asked for. False when `stop` was set before.

        Raises:
            PermissionDenied, Corrupt, Misconfigured: what a store says.
            Unavailable: a store has been so for 30 s.
        """
        head = int(self._log.last_cursor() or 0)
        while stop is None or not stop.is_set():
            self._woken.clear()
            has_more = self.step(leased=False)
            for lane in self._lanes:
                if lane.is_active and lane.stored < head <= lane.taken and not lane.recovery.wait_s:
                    lane.attempt(partial(lane.flush, everything=True))
            self._raise_trouble()
            if all(lane.is_active and lane.stored >= head for lane in self._lanes):
                self._end()
                return True
            if not has_more:
                self._wait(self._idle_s())
        self._end()
        return False

    def step(self, *, leased: bool = True) -> bool:
        """Do one cycle: read a batch, fold, give, store what is due. Tell whether more waits in the log.

        Views that are near each other share what is read; one that is far behind holds up no other.
        """
        began = self._clock()
        lanes = sorted((lane for lane in self._lanes if lane.prepare(leased=leased)), key=lambda lane: lane.taken)
        has_more = False
        while lanes:
            near = [lane for lane in lanes if lane.taken <= lanes[0].taken + self._batch]
            lanes = lanes[len(near) :]
            has_more |= self._step_together(near, began)
        return has_more

    def wake(self) -> None:
        """Have the projector look at once."""
        self._woken.set()

    def positions(self) -> dict[str, int]:
        """Return how far each view is stored, as far as this projector knows. Reads nothing."""
        return {lane.view.name: lane.stored for lane in self._lanes}

    def troubles(self) -> dict[str, Exception | None]:
        """Return what holds up each view, and the reading of the log; None where all is well. Reads nothing."""
        views: dict[str, Exception | None] = {f"view {lane.view.name}": lane.recovery.error for lane in self._lanes}
        return {"reading": self._reading.error, **views}

    def health(self) -> list[Health]:
        """Return how each view is.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        return [lane.measure() for lane in self._lanes]

    def _step_together(self, lanes: Sequence[Lane], began: datetime) -> bool:
        records = self._read(lanes[0].taken)
        if records is None:
            return False
        batch = Batch(records, self._folder) if records else None
        has_more = len(records) == self._batch
        for lane in lanes:
            lane.attempt(partial(self._advance, lane, batch, None if has_more else began))
        return has_more

    def _advance(self, lane: Lane, batch: Batch | None, reached_end: datetime | None) -> None:
        if batch is not None:
            lane.take(batch)
        else:
            lane.check_log()
        if reached_end is not None:
            lane.health.reached(lane.taken, reached_end)
        elif lane.may_hold():
            return
        lane.flush()
        lane.health.cycled(lane.stored)
        lane.report()

    def _read(self, position: int) -> list[Record] | None:
        """Return the next batch; None while the log cannot be read."""
        if self._reading.wait_s:
            return None
        try:
            records = list(self._log.scan(str(position), limit=self._batch, batch=self._batch))
        except JobEventsError as error:
            self._reading.failed(error)
            return None
        self._reading.succeeded()
        return records

    def _idle_s(self) -> float:
        held_up_s = self._reading.wait_s
        return min(PATIENCE_S, held_up_s or min((lane.wait_s() for lane in self._lanes), default=PATIENCE_S))

    def _raise_trouble(self) -> None:
        for recovery in (self._reading, *(lane.recovery for lane in self._lanes)):
            if recovery.error is not None and (recovery.is_loud or recovery.lasts_s > ONCE_DEADLINE_S):
                raise recovery.error

    def _end(self) -> None:
        """Store what was taken and say how it stands; a store that is in trouble now is not waited for."""
        for lane in self._lanes:
            if lane.is_active and lane.attempt(partial(lane.flush, everything=True)):
                lane.health.cycled(lane.stored)
                lane.attempt(partial(lane.report, now=True))
            lane.attempt(lane.leave)
