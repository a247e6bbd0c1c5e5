"""Reads and writes of a cache, the same for all caches. Standard library only, as a peer runs alone."""

import random
from collections.abc import Callable

from benchmarks.model import Repeat

HELD = 10_000  # values
_READS = 10  # for each write
_SEED = 20260726


def alternating(get: Callable[[str], bytes | None], put: Callable[[str, bytes], object], size: int) -> Repeat:
    """Return what does `size` reads and writes in all, once every value is held."""
    rng = random.Random(_SEED)
    keys = [f"render-20260726-120031-{rng.randbytes(6).hex()}" for _ in range(HELD)]
    value = b'{"job_id":"render-20260726-120031-0123456789ab","state":"succeeded"}'
    for key in keys:
        put(key, value)
    rounds = [rng.choices(keys, k=_READS + 1) for _ in range(size // (_READS + 1))]

    def work() -> int:
        for first, *others in rounds:
            put(first, value)
            for key in others:
                if get(key) is None:
                    raise LookupError(key)
        return len(rounds) * (_READS + 1)

    return lambda: work
