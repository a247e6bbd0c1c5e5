"""How a whole log stands: its queues, workers, schedules and projector, what is parked, counts and time series. No HTTP."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from jobevents import overview
from jobevents.census import Census, Tally, Waiting
from jobevents.errors import InvalidValue, JobEventsError
from jobevents.jobs import Jobs
from jobevents.registry import Registry
from jobevents.status import State
from projections.api.listing import head_of
from projections.api.problems import CannotFilter
from projections.api.shapes import (
    ParkedList,
    ProjectorSeen,
    QueueList,
    ScheduleList,
    SeriesBar,
    StateCount,
    Stats,
    Storage,
    TableSize,
    ViewSeen,
    WorkerList,
)
from projections.health import HEARTBEAT_S, Health, age_of_next, idle_since, read_health, troubles
from projections.index import Index
from projections.lost import Losses
from projections.parked import list_parked

T = TypeVar("T")

KEPT_S: Final = 2.0  # how old a count may be: counting a million rows takes a database 0.1 s
SLOW_S: Final = 0.05  # a count that takes longer is made aside, while pages show the one before
STALE_S: Final = 30.0  # but none that is older
STORAGE_S: Final = 60.0  # how old what is said of sizes may be
MAX_BARS: Final = 500
MAX_PARKED: Final = 200

_NO_REGISTRY: Final = "this server does not know the kinds of jobs: start it with --registry, or create_app(registry=)"


class Kept(NamedTuple, Generic[T]):
    """Something that was read, and when."""

    value: T
    at: datetime  # when the read began: everything committed before is in it


class Keeper(Generic[T]):
    """Keeps what a read returned for a while; those who ask meanwhile share one read. Safe for threads."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], datetime], kept_s: float = KEPT_S) -> None:
        self._read = read
        self._clock = clock
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._held: tuple[Kept[T], float] | None = None
        self._took_s = 0.0

    def get(self) -> Kept[T]:
        """Return it, read again if it is too old; what the read raises is not kept."""
        with self._lock:
            if self._held is None or time.monotonic() - self._held[1] > self._kept_s:
                began, started = self._clock(), time.monotonic()
                self._held = Kept(self._read(), began), started
                self._took_s = time.monotonic() - started
            return self._held[0]

    def soon(self) -> Kept[T]:
        """Return it as `get` does, or where reading takes long as it was lately, and have it read again aside."""
        held = self._held
        if held is None or self._took_s < SLOW_S or (age := time.monotonic() - held[1]) > STALE_S:
            return self.get()
        if age > self._kept_s and not self._lock.locked():
            threading.Thread(target=self._read_aside, name="count", daemon=True).start()
        return held[0]

    def _read_aside(self) -> None:
        with suppress(JobEventsError):  # whoever asks when it is too old is told
            self.get()


class Standing:
    """Answers about the whole. Safe for threads."""

    def __init__(self, jobs: Jobs, index: Index, registry: Registry | None = None) -> None:
        self._jobs = jobs
        self._index = index
        self.registry = registry if registry is not None else jobs.registry  # the kinds of jobs; None: not known here
        self._tally = Keeper(self._count, jobs.emitter.clock)
        self._queues = Keeper(self._find_queues, jobs.emitter.clock)
        self._lost = Keeper(Losses(jobs).by_queue, jobs.emitter.clock)
        self._storage = Keeper(self._measure, jobs.emitter.clock, STORAGE_S)
        self._stale = Keeper(self._find_stale, jobs.emitter.clock)
        self._waiting = Keeper(lambda: self.table().waiting(jobs.emitter.clock()), jobs.emitter.clock)

    @property
    def has_registry(self) -> bool:
        """Tell whether the kinds of jobs are known here."""
        return self.registry is not None

    def tally(self) -> Kept[list[Tally]]:
        """Return how many jobs are in each state, by queue; of a log without a table all under the queue "", from the index."""
        return self._tally.get()

    def tally_soon(self) -> Kept[list[Tally]]:
        """Return the same for a page that must not wait: where counting takes long, as it was half a minute ago at most."""
        return self._tally.soon()

    def waiting(self) -> Kept[Sequence[Waiting]]:
        """Return since when queues wait.

        Raises:
            CannotFilter: the log keeps no table of runs.
        """
        return self._waiting.get()

    def queues(self) -> Kept[QueueList]:
        """Return the queues, what is paused, and how much of their limits the kinds of jobs use.

        Raises:
            CannotFilter: the log keeps no table of runs.
        """
        self.table()
        kept = self._queues.get()
        queues, limits = kept.value
        return Kept(QueueList(queues, self._jobs.paused(), limits), kept.at)

    def _find_queues(self) -> tuple[list[overview.QueueSeen], list[overview.LimitSeen]]:
        queues = overview.queues(self._jobs)
        if any(one.running for one in queues):
            lost = self._lost.get().value
            for one in queues:
                one.lost = lost[one.queue]
        return queues, overview.limits(self._jobs, self.registry or ())

    def workers(self) -> WorkerList:
        """Return who works, and what each holds: one read a page of running jobs, and their leases."""
        return WorkerList(self._jobs.workers())

    def storage(self) -> Kept[Storage]:
        """Return what the log takes, as it was a minute ago at most.

        Raises:
            CannotFilter: the log keeps no tables.
        """
        return self._storage.get()

    def _measure(self) -> Storage:
        return Storage([TableSize(*one) for one in self.table().sizes()])

    def schedules(self) -> ScheduleList:
        """Return the periodic jobs: one read each."""
        if self.registry is None:
            return ScheduleList([], _NO_REGISTRY)
        return ScheduleList(overview.schedules(self._jobs, self.registry), "")

    def projector(self) -> ProjectorSeen:
        """Return how well each view is: one read of each, and one of the log's end."""
        head = head_of(self._jobs)
        now = self._jobs.emitter.clock()
        found = read_health(self._jobs.blobs, self._jobs.prefix)
        return ProjectorSeen([self._view(one, head, now) for one in found], head)

    def _view(self, health: Health, head: int, now: datetime) -> ViewSeen:
        since = idle_since(health, now)
        if not self._jobs.log.ordered:  # no places to compare: as its projector last saw it
            return ViewSeen(health, health.lag_events, health.lag_s, troubles(health, None, now), since)
        waiting = max(0, head - health.position)
        lag_s = age_of_next(self._jobs.log, health.position, now) if waiting else 0.0
        return ViewSeen(health, waiting, lag_s, troubles(health, head, now), since)

    def stale(self) -> list[str]:
        """Return of which views events have waited for more than two minutes, or may have; none where nobody ever projected.

        As it was two seconds ago at most: strangers ask for it.
        """
        return self._stale.get().value

    def _find_stale(self) -> list[str]:
        return [
            f"view={one.health.view} lag_events={one.lag_events} lag_s={one.lag_s:.0f}"
            + (f" idle_since={one.idle_since.isoformat()}" if one.idle_since else "")
            for one in self.projector().items
            if one.lag_s > HEARTBEAT_S or (one.idle_since and not self._jobs.log.ordered)
        ]

    def parked(self, view: str, limit: int) -> ParkedList:
        """Return what the views could not take, at most so many: one read each."""
        entries = list(islice(list_parked(self._jobs.blobs, self._jobs.prefix, view), limit + 1))
        bare = [msgspec.structs.replace(entry.parked, data="", data_base64="") for entry in entries[:limit]]
        return ParkedList(bare, len(entries) > limit)

    def stats(self, since: datetime | None, step_s: int, bars: int) -> Stats:
        """Return counts and a time series.

        Args:
            since: begin of the series, the fraction of its second cut; None: so that it ends with the bar of now.

        Raises:
            CannotFilter: the log keeps no table of runs. InvalidValue: the series leaves the calendar.
        """
        kept = self.tally()
        states = dict.fromkeys(State, 0)
        for one in kept.value:
            states[one.state] = states.get(one.state, 0) + one.jobs  # type: ignore[index,call-overload]  # open text too
        begin = self._begin(since, step_s, bars)
        series = self._series(begin, step_s, bars)
        counts = [StateCount(*one) for one in kept.value]
        lost = self._lost.get().value.total() if states[State.RUNNING] else 0
        return Stats({str(state): jobs for state, jobs in states.items()}, counts, begin, step_s, series, kept.at, lost)

    def _begin(self, since: datetime | None, step_s: int, bars: int) -> datetime:
        if since is None:
            now = int(self._jobs.emitter.clock().timestamp())
            return datetime.fromtimestamp(now - now % step_s - step_s * (bars - 1), UTC)
        try:
            datetime.fromtimestamp(since.timestamp() + step_s * bars, UTC)
        except (ValueError, OverflowError):
            raise InvalidValue(
                f"series leaves the calendar since={since.isoformat()} step={step_s} bars={bars}"
            ) from None
        return since.replace(microsecond=0)

    def _series(self, begin: datetime, step_s: int, bars: int) -> list[SeriesBar]:
        first = int(begin.timestamp())
        series = [SeriesBar(datetime.fromtimestamp(first + step_s * number, UTC), 0, {}, {}) for number in range(bars)]
        for bar in self.table().series(begin, step_s, bars):
            at = series[bar.number]
            if bar.state:
                at.ended[bar.state], at.duration_ms[bar.state] = bar.jobs, bar.duration_ms
            else:
                series[bar.number] = msgspec.structs.replace(at, created=bar.jobs)
        return series

    def table(self) -> Census:
        """Return the counts and lists of the table of runs.

        Raises:
            CannotFilter: there is none.
        """
        if self._jobs.desk is None:
            raise CannotFilter("this log keeps no table of runs, which is what this is counted from")
        return self._jobs.desk.census

    def _count(self) -> list[Tally]:
        if self._jobs.desk is not None:
            return list(self._jobs.desk.census.tally())
        return [Tally("", state, jobs) for state, jobs in self._index.counts().items() if state != "all"]
