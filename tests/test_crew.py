"""The threads of a runner: whatever ended is recorded while others go on."""

import random
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

from jobevents.crew import Crew, Task
from jobevents.execution import Ran
from jobevents.job import Job
from jobevents.queue import Reservation

WAIT_S = 10.0


class Log:
    """Records ends, and begins runs by the name of their job; a turn that begins `held` waits."""

    def __init__(self, handlers: dict[str, Task]) -> None:
        self._handlers = handlers
        self.recorded = threading.Event()
        self.begins = threading.Event()  # the turn that begins `held`
        self.may_begin = threading.Event()

    def turn(self, endings: Sequence[Any], reservations: Sequence[Reservation]) -> list[Task]:
        if endings:
            self.recorded.set()
        names = [one.job_name for one in reservations]
        if "held" in names:
            self.begins.set()
            self.may_begin.wait(WAIT_S)
        return [self._handlers[name] for name in names]


def test_an_end_does_not_wait_for_the_handlers_of_others() -> None:
    """Runs are mostly over at once; one ends in another's turn, whose runs then take long: its end is recorded meanwhile."""
    begun, go, over, release = (threading.Event() for _ in range(4))

    def ends() -> Ran:
        begun.set()
        go.wait(WAIT_S)
        over.set()
        return Ran(ending=cast(Any, "the end"))

    def long() -> Ran:
        release.wait(WAIT_S)
        return Ran()

    log = Log({"instant": Ran, "ends": ends, "held": long, "long": long})
    crew = Crew(3, log.turn, ahead=0, monotonic=time.monotonic)
    crew.start()
    put = partial(_put, crew)
    for _ in range(20):
        put("instant")
        assert crew.wait_until_idle(WAIT_S)
    put("ends")
    assert begun.wait(WAIT_S)
    put("held", "long")
    assert log.begins.wait(WAIT_S)
    go.set()
    assert over.wait(WAIT_S)
    time.sleep(0.02)  # it is at the door of the turn
    log.may_begin.set()

    is_recorded = log.recorded.wait(1)
    release.set()
    crew.close()

    assert is_recorded
    assert crew.wait_until_idle(WAIT_S)


def test_threads_fetch_runs_themselves_until_there_are_none() -> None:
    """What a turn has room for it fetches; whoever waits for room is asked for runs again once a fetch finds too few."""
    left = [_reservation("instant") for _ in range(100)]
    fetched: list[int] = []
    at_end = threading.Event()

    def fetch(room: int) -> list[Reservation]:
        found = [left.pop() for _ in range(min(room, len(left)))]
        fetched.append(len(found))
        if not left:
            at_end.set()
        return found

    begun = threading.Semaphore(0)

    def instant() -> Ran:
        begun.release()
        return Ran(ending=cast(Any, "the end"))

    crew = Crew(3, Log({"instant": instant}).turn, fetch=fetch, ahead=4, monotonic=time.monotonic)
    crew.start()
    assert 7 == crew.wait_for_room(WAIT_S), "nothing was put yet"
    _put(crew, *["instant"] * 7)
    for _ in range(107):
        assert begun.acquire(timeout=WAIT_S)
    assert at_end.is_set()
    assert max(fetched) <= 7
    assert crew.wait_until_idle(WAIT_S)
    assert 7 == crew.wait_for_room(WAIT_S), "the last fetch found fewer than there was room for"
    fetched.clear()
    _put(crew, "instant")
    assert begun.acquire(timeout=WAIT_S)
    assert crew.wait_until_idle(WAIT_S)
    assert not fetched, "whoever put it has just looked"
    crew.close()


def test_what_is_fetched_in_the_moment_of_the_close_is_given_back() -> None:
    """Nothing is begun after it, and whoever waits for the crew to be idle waits for that, too."""
    fetches, may_go = threading.Event(), threading.Event()
    begun, given_back = [], []

    def fetch(room: int) -> list[Reservation]:
        fetches.set()
        may_go.wait(WAIT_S)
        return [_reservation("fetched") for _ in range(room)]

    def run() -> Ran:
        begun.append(threading.get_ident())
        return Ran(ending=cast(Any, "the end"))

    log = Log({"instant": run, "fetched": run})
    crew = Crew(2, log.turn, fetch=fetch, give_back=given_back.append, ahead=0, monotonic=time.monotonic)
    crew.start()
    assert 2 == crew.wait_for_room(WAIT_S)
    _put(crew, "instant", "instant")
    assert fetches.wait(WAIT_S)
    crew.close()
    assert not crew.wait_until_idle(0.01)
    so_far = len(begun)
    may_go.set()

    assert crew.wait_until_idle(WAIT_S)
    assert so_far == len(begun) <= 2
    assert given_back
    assert {"fetched"} == {one.job_name for one in given_back}


def test_what_waits_behind_a_task_that_is_not_over_at_once_is_done_by_others() -> None:
    """Ten runs begin in one turn, and the thread that is to be through with all of them in an instant is held by the first."""
    release, over = threading.Event(), threading.Semaphore(0)

    def held() -> Ran:
        release.wait(WAIT_S)
        return Ran()

    def instant() -> Ran:
        over.release()
        return Ran()

    crew = Crew(10, Log({"instant": instant, "stuck": held}).turn, ahead=0, monotonic=time.monotonic)
    crew.start()
    for _ in range(20):
        _put(crew, "instant")
        assert crew.wait_until_idle(WAIT_S)
        assert over.acquire(timeout=WAIT_S)
    _put(crew, "stuck", *["instant"] * 9)
    for _ in range(9):
        assert over.acquire(timeout=WAIT_S)
    release.set()
    assert crew.wait_until_idle(WAIT_S)
    crew.close()


def test_a_thread_that_became_free_while_another_fetched_fetches_for_itself() -> None:
    """One fetches for itself and begins what takes long; another's run ended meanwhile: it does not wait to be fed."""
    go_on, fetches, may_go, again, release = (threading.Event() for _ in range(5))
    over, begun = threading.Event(), threading.Semaphore(0)

    def fetch(room: int) -> list[Reservation]:
        if fetches.is_set():
            again.set()
        fetches.set()
        may_go.wait(WAIT_S)
        return [_reservation("long")] * room

    def ends(event: threading.Event) -> Ran:
        begun.release()
        event.wait(WAIT_S)
        over.set()
        return Ran(ending=cast(Any, "the end"))

    first = threading.Event()
    handlers = {"first": partial(ends, first), "second": partial(ends, go_on), "long": partial(ends, release)}
    crew = Crew(2, Log(handlers).turn, fetch=fetch, ahead=0, monotonic=time.monotonic)
    crew.start()
    assert 2 == crew.wait_for_room(WAIT_S)
    _put(crew, "first", "second")
    assert begun.acquire(timeout=WAIT_S)
    assert begun.acquire(timeout=WAIT_S)
    first.set()
    assert fetches.wait(WAIT_S)
    over.clear()
    go_on.set()
    assert over.wait(WAIT_S)
    time.sleep(0.02)  # it is at the door of the turn
    may_go.set()

    is_fetched = again.wait(1)
    release.set()
    crew.close()

    assert is_fetched
    assert crew.wait_until_idle(WAIT_S)


def test_there_is_never_room_for_less_than_none() -> None:
    """While an end is on its way to the log, with the start of what comes in its place, more is under way than may run."""
    log = Log({"instant": lambda: Ran(ending=cast(Any, "the end")), "held": Ran})
    crew = Crew(1, log.turn, ahead=0, monotonic=time.monotonic)
    _put(crew, "instant", "held")
    crew.start()
    assert log.begins.wait(WAIT_S)
    assert 2 == crew.busy

    assert 0 == crew.wait_for_room(0)

    log.may_begin.set()
    assert crew.wait_until_idle(WAIT_S)
    crew.close()


def test_what_waited_in_vain_is_not_fetched_again_while_that_lasts() -> None:
    """By the pace of what has ended, one may wait for the thread; it waited for a second, since what runs takes longer."""
    release, begun = threading.Event(), threading.Event()
    now = [0.0]

    def long() -> Ran:
        begun.set()
        release.wait(WAIT_S)
        return Ran()

    crew = Crew(1, Log({"instant": Ran, "long": long}).turn, monotonic=lambda: now[0])
    crew.start()
    _put(crew, "instant")
    assert crew.wait_until_idle(WAIT_S)
    assert 2 == crew.wait_for_room(WAIT_S), "one runs, one waits"
    _put(crew, "long", "instant")
    assert begun.wait(WAIT_S)
    now[0] = 1.0

    assert ["instant"] == [one.job_name for one in crew.take_back(1.0)]

    assert 0 == crew.wait_for_room(0)
    release.set()
    assert crew.wait_until_idle(WAIT_S)
    crew.close()


class World:
    """Runs that are handed out, waited for, taken back and handled by chance, and each of which must come to one thing."""

    def __init__(self, seed: int) -> None:
        self.random = chance = random.Random(seed)
        self.size = chance.choice([1, 2, 4, 10])
        self.waiting = [str(number) for number in range(60)]
        self.out: set[str] = set()  # reserved, and neither begun nor given back
        self.begun: list[str] = []
        self.recorded: list[str] = []
        self.at_once = self.most = 0
        self.lock = threading.RLock()
        self.slow = chance.choice([0.0, 0.1, 1.0])  # how many handlers are
        self.alone = chance.choice([0.0, 0.3])  # how many ends are recorded by themselves
        self.lag_s = chance.choice([0.0, 0.001])
        self.crew = Crew(
            self.size,
            self.turn,
            fetch=chance.choice([None, self.reserve, self.reserve]),
            give_back=self.give_back,
            ahead=chance.choice([0, 3, None]),
            monotonic=time.monotonic,
        )

    def draws(self, share: float) -> bool:
        with self.lock:
            return self.random.random() < share

    def reserve(self, room: int) -> list[Reservation]:
        assert room > 0
        time.sleep(self.lag_s if self.draws(0.5) else 0)
        with self.lock:
            found, self.waiting = self.waiting[:room], self.waiting[room:]
            self.out.update(found)
        return [_reservation("run", job_id) for job_id in found]

    def give_back(self, reservation: Reservation) -> None:
        with self.lock:
            self.out.remove(reservation.job_id)
            self.waiting.append(reservation.job_id)

    def turn(self, endings: Sequence[Any], reservations: Sequence[Reservation]) -> list[Task]:
        time.sleep(self.lag_s if self.draws(0.5) else 0)
        apart = [ending for ending in endings if self.draws(self.alone)]
        for ending in endings:
            if ending not in apart:
                self.record(ending)
        handled = [partial(self.handle, one.job_id) for one in reservations]
        return [*(partial(self.record, ending) for ending in apart), *handled]

    def record(self, job_id: str) -> Ran:
        with self.lock:
            self.recorded.append(job_id)
        return Ran()

    def handle(self, job_id: str) -> Ran:
        with self.lock:
            self.out.remove(job_id)
            self.begun.append(job_id)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.003 if self.draws(self.slow) else 0)
        with self.lock:
            self.at_once -= 1
        if self.draws(0.02):  # it was given up meanwhile
            self.crew.hire(partial(self.record, job_id))
            return Ran(stays=False)
        return Ran(ending=cast(Any, job_id)) if self.draws(0.7) else self.record(job_id)

    def feed(self, until: float) -> None:
        """Do what a runner does, with less patience, for some time or until all was handed out."""
        while time.monotonic() < until and len(self.recorded) < 60:
            found = self.reserve(room) if (room := self.crew.wait_for_room(0.02)) else []
            if found:
                assert self.crew.put(found)
            else:
                time.sleep(0.001)  # as a queue waits in which nothing is
            for one in self.crew.take_back(0.01):
                self.give_back(one)


@pytest.mark.parametrize("seed", range(16))
def test_each_run_is_begun_once_or_given_back_once(seed: int) -> None:
    """Whatever comes together: never more than threads at once, and at the end nothing is left."""
    world = World(seed)
    world.crew.start()
    world.feed(time.monotonic() + (0.01 if seed % 2 else WAIT_S))
    for one in world.crew.close():
        world.give_back(one)

    assert world.crew.wait_until_idle(WAIT_S)
    assert not world.out
    assert sorted(world.begun) == sorted(world.recorded)
    assert 60 == len({*world.begun, *world.waiting}) == len(world.begun) + len(world.waiting)
    assert world.most <= world.size
    assert seed % 2 or not world.waiting


def _put(crew: Crew, *names: str) -> None:
    crew.put([_reservation(name) for name in names])


def _reservation(name: str, job_id: str = "one") -> Reservation:
    return Reservation(Job(job_id=job_id, name=name), lambda _error, _delay_s: None)
