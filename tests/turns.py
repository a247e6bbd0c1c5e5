"""Several actors in threads of their own, of which one moves at a time, in an order that a seed decides."""

import random
import threading
from collections.abc import Callable

WAIT_S = 60.0  # far beyond what any step takes


class Turns:
    """Runs actors step by step; where an actor calls `step`, another may go on before it does."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._back = threading.Semaphore(0)
        self._mine = threading.local()
        self.order: list[int] = []  # who moved, by number

    def run(self, *actors: Callable[[], object]) -> None:
        """Run all actors to their end, and raise what one of them raised."""
        turns = [threading.Semaphore(0) for _ in actors]
        errors: list[BaseException] = []
        alive = set(range(len(actors)))

        def play(number: int) -> None:
            self._mine.turn = turns[number]
            self._await(turns[number])
            try:
                actors[number]()
            except BaseException as error:
                errors.append(error)
            alive.discard(number)
            self._back.release()

        threads = [threading.Thread(target=play, args=(number,)) for number in alive]
        for thread in threads:
            thread.start()
        while alive:
            number = self._rng.choice(sorted(alive))
            self.order.append(number)
            turns[number].release()
            self._await(self._back)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def step(self) -> None:
        """Let the others go before; nothing in a thread that is no actor's."""
        turn = getattr(self._mine, "turn", None)
        if turn is not None:
            self._back.release()
            self._await(turn)

    @staticmethod
    def _await(turn: threading.Semaphore) -> None:
        if not turn.acquire(timeout=WAIT_S):
            raise TimeoutError("an actor waits for another, outside of its steps")
