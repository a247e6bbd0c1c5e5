"""A time that tests move by hand."""

from collections.abc import Callable


class FakeTime:
    """A clock that moves when somebody sleeps on it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []
        self.while_asleep: Callable[[], object] | None = None  # run once, at the next sleep

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        call, self.while_asleep = self.while_asleep, None
        if call is not None:
            call()
