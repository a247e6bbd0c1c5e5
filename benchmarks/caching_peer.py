"""The peer of the cache: cachetools, alone in its environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from cachetools import TTLCache

from benchmarks.lookups import HELD, alternating
from benchmarks.model import Repeat, Setting


@contextmanager
def peer(setting: Setting) -> Iterator[Repeat]:
    """cachetools.TTLCache under a lock, as its documentation says for threads."""
    cache: TTLCache[str, bytes] = TTLCache(maxsize=HELD, ttl=600)
    lock = Lock()

    def get(key: str) -> bytes | None:
        with lock:
            value: bytes | None = cache.get(key)
            return value

    def put(key: str, value: bytes) -> None:
        with lock:
            cache[key] = value

    yield alternating(get, put, setting.size)
