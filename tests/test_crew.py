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


def _put(crew: Crew, *names: str) -> None:
    crew.put([Reservation(Job(job_id=name, name=name), lambda _error, _delay_s: None) for name in names])
