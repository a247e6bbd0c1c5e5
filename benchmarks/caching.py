"""The cache of statuses: ten reads of ids that are held for each write, as the pages of a UI do it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Lock

from benchmarks.lookups import HELD, alternating
from benchmarks.model import Repeat, Setting
from projections.cache import TTLCache


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """projections.cache.TTLCache: the least recently used leaves first, ids in any spelling."""
    with closing(TTLCache[bytes](max_entries=HELD)) as cache:
        yield alternating(cache.get, cache.set, setting.size)


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """A dict under a lock: nothing expires, nothing leaves."""
    held: dict[str, bytes] = {}
    lock = Lock()

    def get(key: str) -> bytes | None:
        with lock:
            return held.get(key)

    def put(key: str, value: bytes) -> None:
        with lock:
            held[key] = value

    yield alternating(get, put, setting.size)
