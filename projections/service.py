"""The projector as a service on a log without one sequence: hints and the sweep feed it, one process of any number.

Three threads: one pulls messages and reads what they point at, one sweeps, one folds and stores. They meet in the sequence of
`inflow`. Several replicas share the subscription, so that each gets a part of the messages; the views are guarded, so that
two that work on one job are right, only dearer.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from jobevents.assertions import Instant
from jobevents.boundary import clean_text
from jobevents.telemetry import Counts
from projections.hints import Hints
from projections.inflow import Inflow
from projections.projector import Projector
from projections.sweeper import Sweeper

STOP_S = 10.0  # for what was taken and is not stored yet: Cloud Run kills ten seconds after SIGTERM
CYCLE_S = 7200.0  # without a completed cycle of the sweep for so long is bad
TROUBLE_S = 120.0  # of the bus, or of a view, for so long is bad
QUIET_PULLS = 3  # without a message: nothing more waits in the subscription

State = Literal["ok", "degraded", "bad"]  # degraded: something is held up and tried again; nothing is lost

logger = logging.getLogger(__name__)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is."""

    ok: bool  # not bad: an outage that passes by itself is no reason to start it anew
    state: State
    problems: list[str]  # what is bad, each with what holds it up; empty unless it is
    held_up: list[str]  # what is tried again just now, each with why, and has not lasted long enough to be bad
    positions: dict[str, int]  # of each view: how many of the events that came to this process are stored
    waiting: int  # events found by hints and sweep, and not stored in every view
    complete_through: Instant | None  # every event before it is in the views; None: not known yet
    swept_s: float | None  # seconds since the last completed cycle of the sweep; None: none yet
    counts: dict[str, int]


class ProjectorService:
    """One replica. `run` blocks; `stop` may be called from any thread, and from a signal's handler."""

    def __init__(
        self,
        projector: Projector,
        inflow: Inflow,
        sweeper: Sweeper,
        hints: Hints | None,
        *,
        counts: Counts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet.

        Args:
            hints: None: no bus; the sweep alone finds what is new.
        """
        self._projector = projector
        self._inflow = inflow
        self._sweeper = sweeper
        self._hints = hints
        self._counts = counts
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._began = monotonic()
        self._lasting = _Lasting()
        self._crashed: Exception | None = None

    def run(self, stop: threading.Event | None = None) -> None:
        """Project until `stop`; then store what was taken, within ten seconds, and give the rest back to the bus.

        Raises:
            Exception: what ended one of the threads, which no error of a store, the log or the bus does.
        """
        if stop is not None:
            self._stopping = stop
        ended = threading.Event()  # of the projector alone: it stores what the others have found
        threads = [threading.Thread(target=self._sweep, name="jobevents-sweeper", daemon=True)]
        if self._hints is not None:
            threads.append(threading.Thread(target=self._pull, name="jobevents-hints", daemon=True))
        projecting = threading.Thread(
            target=self._projector.run, args=(ended,), name="jobevents-projector", daemon=True
        )
        for thread in (projecting, *threads):
            thread.start()
        while not self._stopping.wait(0.2):
            if self._hints is None:
                self._inflow.drop(self.stored())
            if not projecting.is_alive():
                self._crashed = self._crashed or RuntimeError("the projector's thread has ended")
                self._stopping.set()
        ends = self._monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.1, ends - self._monotonic() - STOP_S / 2))
        ended.set()
        self._projector.wake()
        projecting.join(max(0.1, ends - self._monotonic()))
        if projecting.is_alive():
            self._counts.add("stopped_unstored")
            logger.warning(
                "not everything was stored before the end: what waits is delivered again waiting=%d",
                self._inflow.depth(),
            )
        if self._hints is not None:
            self._hints.close()
        if self._crashed is not None:
            raise self._crashed

    def run_once(self, stop: threading.Event | None = None) -> bool:
        """Sweep everything once, take what waits in the subscription, store it all; False when it was stopped before.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Misconfigured, NotFound: what log, store or bus says.
        """
        if stop is not None:
            self._stopping = stop
        self._take_waiting()
        found = self._sweeper.sweep()
        done = self._projector.run_once(self._stopping)
        if found:
            self._take_waiting()  # what the sweep has published comes to us, too
        if self._hints is not None:
            self._hints.close()
        self._inflow.drop(self.stored())
        return done and not self._stopping.is_set()

    def _take_waiting(self) -> None:
        """Take the messages that wait in the subscription, until none came for a moment, and store what they point at."""
        quiet = 0
        while self._hints is not None and quiet < QUIET_PULLS and not self._stopping.is_set():
            pulled = self._hints.step(0.5)
            if self._hints.error is not None:
                raise self._hints.error
            quiet = 0 if pulled else quiet + 1
            if self._inflow.depth():
                self._projector.run_once(self._stopping)

    def stop(self) -> None:
        """Have `run` end."""
        self._stopping.set()

    def stored(self) -> int:
        """Return the place in the sequence up to which every view is stored."""
        return min(self._projector.positions().values(), default=0)

    def condition(self) -> Condition:
        """Return how the service is. Reads nothing."""
        now = self._monotonic()
        cycled_at = self._sweeper.cycled_at
        problems = []
        if now - (self._began if cycled_at is None else cycled_at) > CYCLE_S:
            problems.append(f"no cycle of the sweep was completed for {CYCLE_S / 3600:.0f} hours")
        lasting, held_up = self._lasting.of(self._troubles(), now)
        problems += lasting
        return Condition(
            ok=not problems,
            state=_state(problems, held_up),
            problems=problems,
            held_up=held_up,
            positions=self._projector.positions(),
            waiting=self._inflow.depth(),
            complete_through=self._sweeper.complete_through(),
            swept_s=None if cycled_at is None else now - cycled_at,
            counts=self._counts.snapshot(),
        )

    def _troubles(self) -> dict[str, Exception | None]:
        return {
            "messages": self._hints.error if self._hints is not None else None,
            "sweep": self._sweeper.error,
            **self._projector.troubles(),
        }

    def _pull(self) -> None:
        hints = self._hints
        assert hints is not None  # noqa: S101  # the caller has looked
        with self._crash_ends_all():
            while not self._stopping.is_set():
                hints.step()
                if hints.error is not None:
                    self._sweeper.amiss()
                    self._stopping.wait(0.2)

    def _sweep(self) -> None:
        with self._crash_ends_all():
            self._sweeper.run(self._stopping.is_set, self._stopping.wait)

    @contextmanager
    def _crash_ends_all(self) -> Iterator[None]:
        """Have the service end, and be started anew, rather than go on without one of its threads."""
        try:
            yield
        except Exception as error:
            logger.exception("a thread of the projector has ended; the service stops")
            self._crashed = self._crashed or error
            self._stopping.set()


class FollowerHealth:
    """The condition of a projector that follows a log with one sequence: nothing of it may be held up for long."""

    def __init__(
        self, projector: Projector, counts: Counts, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._projector = projector
        self._counts = counts
        self._monotonic = monotonic
        self._lasting = _Lasting()

    def __call__(self) -> Condition:
        """Return how it is. Reads nothing."""
        problems, held_up = self._lasting.of(self._projector.troubles(), self._monotonic())
        return Condition(
            ok=not problems,
            state=_state(problems, held_up),
            problems=problems,
            held_up=held_up,
            positions=self._projector.positions(),
            waiting=0,
            complete_through=None,
            swept_s=None,
            counts=self._counts.snapshot(),
        )


def _state(problems: Sequence[str], held_up: Sequence[str]) -> State:
    return "bad" if problems else "degraded" if held_up else "ok"


class _Lasting:
    """Troubles, and since when each has lasted: after two minutes somebody has to know."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def of(self, troubles: dict[str, Exception | None], now: float) -> tuple[list[str], list[str]]:
        """Return what has been held up for two minutes and what for less, each with its reason."""
        self._since = {what: self._since.get(what, now) for what, error in troubles.items() if error is not None}
        lasting: list[str] = []
        held_up: list[str] = []
        for what, since in self._since.items():
            reason = clean_text(f"{type(troubles[what]).__name__}: {troubles[what]}", 500)
            (lasting if now - since > TROUBLE_S else held_up).append(f"{what} held up by {reason}")
        return lasting, held_up
