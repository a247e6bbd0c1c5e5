"""A world in one thread: processes over the real classes, a store, a bus and a time that all follow from one seed.

Each process is a greenlet. Every request to the store and every wait is a place where another process may go on, where a
reply may be lost, a write may land minutes later, a process may be stopped for half an hour or die. Nothing waits for real,
and nothing is left to the machine: a seed that fails fails again.
"""

import contextlib
import heapq
import itertools
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from greenlet import GreenletExit, getcurrent, greenlet

from jobevents import codec
from jobevents.backends.blobfloors import Floors
from jobevents.backends.blobnames import Names
from jobevents.blobs import Blob, BlobEntry, MemoryBlobs
from jobevents.bus import InProcessBus, Notice
from jobevents.errors import Unavailable
from jobevents.testing import Died
from projections.statuswriter import code_of, version_of

EPOCH = datetime(2026, 11, 29, tzinfo=UTC)
TIMEOUT_S = 5.0  # of a request
WRITE_EVERY_S = 1.0  # to one name: more is refused with 429
LIVES_S = 90.0  # how long the processes of a world go on
DAY_S = 86_400.0


class Faults(msgspec.Struct, frozen=True):
    """How often what goes wrong, of one."""

    refused: float = 0.03  # 429, 503: nothing was done
    lost_request: float = 0.02  # nothing was done, and nobody says so
    lost_reply: float = 0.04  # it was done, and nobody says so
    cut_off: float = 0.004  # it was done, nobody says so, and the process reaches nothing for a while
    late: float = 0.02  # it is done minutes after its caller was told that it failed
    crash: float = 0.004  # of a process, at a request or a wait
    pause: float = 0.002  # of a process, for up to half an hour
    lost_hint: float = 0.15  # a message that is not sent: a crash between append and publish
    doubled: float = 0.2  # a message
    delayed: float = 0.1  # a message, by up to three days
    bus_down: float = 0.1  # a publish that wants an answer, of which half were sent


NO_FAULTS = Faults(**dict.fromkeys(Faults.__struct_fields__, 0.0))


class Broken(AssertionError):
    """An invariant does not hold."""


class Process:
    """One process of the world: a greenlet, and a wall clock that goes its own way."""

    def __init__(self, world: "World", name: str, work: Callable[["Process"], None]) -> None:
        self.world = world
        self.name = name
        self.skew_s = world.random.uniform(-3600, 3600)
        self.is_dead = False
        self.stopped_until = 0.0
        self.cut_off_until = 0.0
        self._greenlet = greenlet(lambda: self._run(work))

    def clock(self) -> datetime:
        """Return the time as this machine has it: up to an hour wrong, and now and then set back."""
        if self.world.random.random() < 0.01 * self.world.rage:
            self.skew_s -= self.world.random.uniform(0, 1800)
        return EPOCH + timedelta(seconds=self.world.now + self.skew_s)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, and others go on."""
        self.world.at(max(0.0, seconds), self.go_on)
        self.wait()

    def wait(self) -> None:
        """Let others go on until something calls `go_on`; this may be the end of the process."""
        if self.is_dead:
            raise Died(f"{self.name} is dead")
        self.world.hub.switch()
        if self.is_dead:
            raise Died(f"{self.name} is dead")

    def go_on(self) -> None:
        """Go on with the greenlet; called by the world."""
        world = self.world
        if self.is_dead:
            return
        if world.now < self.stopped_until:
            world.at(self.stopped_until - world.now, self.go_on)
            return
        if world.happens("crash"):
            world.note(f"{self.name} dies")
            self.kill()
            return
        if world.happens("pause"):
            self.stopped_until = world.now + world.random.choice([20.0, 90.0, 1800.0])
            world.note(f"{self.name} is stopped")
            world.at(self.stopped_until - world.now, self.go_on)
            return
        self._greenlet.switch()

    def kill(self) -> None:
        """End the process where it stands: what it would still do comes to nothing."""
        self.is_dead = True
        with contextlib.suppress(Died, GreenletExit):
            self._greenlet.throw(GreenletExit)

    def start(self) -> None:
        """Begin with the work, as soon as others wait."""
        self.world.at(0.0, self.go_on)

    @property
    def has_ended(self) -> bool:
        return self.is_dead or self._greenlet.dead

    def _run(self, work: Callable[["Process"], None]) -> None:
        try:
            work(self)
        except (Died, GreenletExit):
            self.is_dead = True
        except Exception as error:
            self.world.failed = self.world.failed or error
            self.is_dead = True


class _Held(NamedTuple):
    at: float
    number: int
    call: Callable[[], object]


class World:
    """The store, the bus, the time, and what was seen of them. `run` goes on until nothing is left to happen."""

    def __init__(self, seed: int, faults: Faults = Faults()) -> None:  # noqa: B008  # frozen
        self.seed = seed
        self.random = random.Random(seed)
        self.faults = faults
        self.rage = 1.0
        self.now = 0.0
        self.store = MemoryBlobs(clock=self.store_clock)
        self.bus = InProcessBus(ack_deadline_s=20, backlog=10**6, monotonic=self.monotonic)
        self.heard: set[tuple[str, int]] = set()  # (job, n) that the bus has taken: what an independent subscriber gets
        self.acknowledged: dict[
            tuple[str, int], str
        ] = {}  # (job, n) -> the id of the event that its writer was told is kept
        self.processes: list[Process] = []
        self.story: list[str] = []  # what happened, for a seed that fails
        self.failed: BaseException | None = None
        self.hub = getcurrent()
        self._queue: list[_Held] = []
        self._numbers = itertools.count()
        self.replaced: list[
            tuple[str, Blob]
        ] = []  # names, and records of other services that a status of ours replaced
        self.ghosts: set[str] = set()  # ids of events that came into the log below their job's floor
        self._written: dict[str, float] = {}  # name -> when

    def monotonic(self) -> float:
        return 1000.0 + self.now

    def store_clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def note(self, what: str) -> None:
        self.story.append(f"{self.now:10.3f}  {what}")

    def happens(self, fault: str) -> bool:
        chance: float = getattr(self.faults, fault)
        return chance > 0 and self.random.random() < chance

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Have `call` made after so many seconds."""
        heapq.heappush(self._queue, _Held(self.now + seconds, next(self._numbers), call))

    def process(self, name: str, work: Callable[[Process], None]) -> Process:
        made = Process(self, name, work)
        self.processes.append(made)
        made.start()
        return made

    def run(self, until: float | None = None) -> None:
        """Go on until nothing is left to happen, or a time."""
        while self._queue and (until is None or self._queue[0].at <= until):
            held = heapq.heappop(self._queue)
            self.now = max(self.now, held.at)
            held.call()
            if self.failed is not None:
                raise self.failed
        if until is not None:
            self.now = max(self.now, until)

    def calm(self) -> None:
        """Let nothing go wrong from now on; what is under way still arrives."""
        self.faults, self.rage = NO_FAULTS, 0.0
        for process in self.processes:
            process.stopped_until = process.cut_off_until = 0.0

    # the store

    def carry_out(self, method: str, name: str, do: Callable[[], Any]) -> Any:  # Any: what the store says
        """Do what a request asks, and hold what it does against what may happen in a store."""
        if method == "put" and name.startswith(("jobs/", "index/")):
            last = self._written.get(name)
            if last is not None and self.now - last < WRITE_EVERY_S:
                raise Unavailable("429 too many writes of one name")
        watched = name.endswith("status.json") or name.startswith("log/")
        before = self._peek(name) if watched else None
        result = do()
        if method == "put":
            self._written[name] = self.now
        if watched and method == "put":
            self._watch(name, before)
        return result

    def _watch(self, name: str, before: Blob | None) -> None:
        after = self._peek(name)
        if after is not None and name.startswith("log/"):
            event = codec.decode(after.data)
            if event.version < Floors(self.store, Names()).get(event.job_id):
                self.ghosts.add(event.id)
        if before is None or after is None:
            return
        if name.startswith("log/"):
            raise Broken(f"two events in one slot name={name}")
        was, now = (version_of(before), code_of(before)), (version_of(after), code_of(after))
        if now[0] and not was[0]:
            self.replaced.append((name, before))
        if was[0] and now[0] and now < was:
            raise Broken(f"a status went backwards name={name} from={was} to={now}")

    def _peek(self, name: str) -> Blob | None:
        return self.store._blobs.get(name)


class SimBlobs:
    """The store as one process reaches it: a request takes time, and its reply may be lost."""

    min_write_interval_s = 1.05

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        found: Blob | None = self._ask("get", name, lambda: self._world.store.get(name, if_changed=if_changed))
        return found

    def put(self, name: str, data: bytes, *, if_generation: str | None = None, **headers: Any) -> str:
        generation: str = self._ask(
            "put", name, lambda: self._world.store.put(name, data, if_generation=if_generation, **headers)
        )
        return generation

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        gone: bool = self._ask("delete", name, lambda: self._world.store.delete(name, if_generation=if_generation))
        return gone

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        found: list[BlobEntry] = self._ask(
            "list", prefix, lambda: list(self._world.store.list(prefix, start=start, delimiter=delimiter))
        )
        return iter(found)

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self, method: str, name: str, do: Callable[[], Any]) -> Any:  # Any: what the store says
        world, process = self._world, self._process
        if process.is_dead:
            raise Died(f"{process.name} is dead")
        if world.now < process.cut_off_until:
            process.sleep(TIMEOUT_S)
            raise Unavailable("timeout: the store is not reached")
        there, back = world.random.expovariate(50), world.random.expovariate(50)
        if world.happens("refused"):
            process.sleep(there + back)
            raise Unavailable("503 injected")
        if world.happens("lost_request"):
            process.sleep(TIMEOUT_S)
            raise Unavailable("timeout: the request was lost")
        late = world.happens("late")
        if cut_off := world.happens("cut_off"):
            process.cut_off_until = world.now + world.random.uniform(5, 40)
            world.note(f"{process.name} is cut off")
        lost = late or cut_off or world.happens("lost_reply")
        if late:
            there = world.random.choice([6.0, 20.0, 70.0, 600.0])
            world.note(f"{process.name} {method} {name} is late by {there} s")
        outcome: list[Any] = []

        def arrive() -> None:
            try:
                outcome.append((world.carry_out(method, name, do), None))
            except Broken as broken:
                world.failed = world.failed or broken
            except Exception as error:  # the reply
                outcome.append((None, error))

        world.at(there, arrive)
        process.sleep(TIMEOUT_S if lost else there + back)
        if lost or not outcome:  # a process that was stopped may be here before its request
            raise Unavailable("timeout: the reply was lost")
        result, error = outcome[0]
        if error is not None:
            raise error
        return result


class SimPublisher:
    """The bus as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    def publish(self, notices: Sequence[Notice]) -> None:
        if not self._process.is_dead and not self._world.happens("lost_hint"):
            self._send(notices)

    def deliver(self, notices: Sequence[Notice]) -> None:
        self._process.sleep(self._world.random.expovariate(50))
        if self._world.happens("bus_down"):
            if self._world.random.random() < 0.5:
                self._send(notices)
            raise Unavailable("the bus is down")
        self._send(notices)

    def flush(self, deadline_s: float) -> int:
        return 0

    def close(self, deadline_s: float = 5.0) -> int:
        return 0

    def _send(self, notices: Sequence[Notice]) -> None:
        world = self._world
        world.heard.update((one.job_id, one.version) for one in notices)
        for one in notices:
            for _ in range(1 + world.happens("doubled")):
                slow = world.random.uniform(60, 3 * DAY_S) if world.happens("delayed") else world.random.expovariate(5)
                world.at(slow, lambda one=one: world.bus._send([one]))  # type: ignore[misc]  # the default binds


class _Inline:
    """A pool that does at once what it is given: a greenlet must stay in its thread."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Need nothing."""

    def map(self, call: Callable[..., Any], *items: Any) -> Iterator[Any]:
        return iter([call(*each) for each in zip(*items, strict=True)])

    def submit(self, call: Callable[..., Any], *items: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*items))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Nothing waits."""

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing waits."""


@contextlib.contextmanager
def one_thread(seed: int) -> Iterator[None]:
    """Have the real classes make no thread and no random name of their own, and say nothing: all of it goes wrong on purpose."""
    numbers = random.Random(seed + 1)
    made = random.Random(seed + 2)
    pools = (
        "projections.sweeper",
        "projections.hints",
        "projections.statuswriter",
        "jobevents.backends.fan",
        "jobevents.importing",
    )
    disabled = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        logging.disable()
        stack.callback(logging.disable, disabled)
        for module in pools:
            stack.enter_context(mock.patch(f"{module}.ThreadPoolExecutor", _Inline))
        stack.enter_context(mock.patch("jobevents.pulse.Pulse.start"))
        stack.enter_context(mock.patch("os.urandom", numbers.randbytes))
        stack.enter_context(mock.patch("jobevents.events._drawn", []))  # ids that were drawn before this world
        stack.enter_context(mock.patch("os.getpid", return_value=1))
        stack.enter_context(mock.patch("jobevents.backoff.random.Random", return_value=made))
        yield
