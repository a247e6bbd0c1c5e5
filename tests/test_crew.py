"""The threads of a runner: whatever ended is recorded while others go on."""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

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


def _put(crew: Crew, *names: str) -> None:
    crew.put([_reservation(name) for name in names])


def _reservation(name: str) -> Reservation:
    return Reservation(Job(job_id=name, name=name), lambda _error, _delay_s: None)
