"""Keep what was read for a while: TTLCache holds single values, IdList whole lists of ids (behaviour S25, S26).

Both may be used from any thread. Neither brings back what was deleted while it was being read: a load that began
before the change is not stored (`TTLCache.begin`), a scan that began before it neither stored nor joined (`IdList`).
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, NewType, TypeVar, overload

from lru import LRU

from jobevents import ids
from jobevents.errors import Canceled, InvalidJobId, Misconfigured

V = TypeVar("V")
D = TypeVar("D")

Token = NewType("Token", object)  # stands for a load in flight; made by TTLCache.begin

DEFAULT_TTL_S = 600.0  # behaviour S25
DEFAULT_LIST_TTL_S = 60.0  # behaviour S26
DEFAULT_MAX_ENTRIES = 10_000  # a status of 1 KB each: about 10 MB
DEFAULT_MAX_LISTS = 100  # one prefix or schema a tenant; a list of 1e6 ids holds about 100 MB


def cache_key(text: str) -> str:
    """Return the job id that `text` stands for, or `text` as given if it stands for none (behaviour S25)."""
    try:
        return ids.sanitize(text)
    except InvalidJobId:
        return text


class TTLCache(Generic[V]):
    """Hold values by job id for `ttl` seconds from when they were set, the least recently used leaving first when full.

    Values are handed out as they are, not copied. Reading does not extend a life; an expired value is never returned.
    A daemon thread, started by the first `set`, removes expired values until `close`; it does not keep the cache alive
    and ends with it. A process forked after that first `set` has no such thread: there, `max_entries` bounds memory.
    """

    def __init__(
        self,
        ttl: float = DEFAULT_TTL_S,
        max_entries: int = DEFAULT_MAX_ENTRIES,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty cache.

        Args:
            ttl: seconds from `set` to expiry; 0 or less means ten minutes.
            max_entries: values held at most, and loads in flight remembered at most; at least 1.
            clock: seconds, never going back.
        """
        if max_entries < 1:
            raise Misconfigured(f"cache cannot hold anything max_entries={max_entries}; give at least 1")
        self._ttl = ttl if ttl > 0 else DEFAULT_TTL_S
        self._clock = clock
        # Re-entrant: dropping a value may run a finalizer that uses the cache.
        self._lock = threading.RLock()
        self._entries: LRU[str, tuple[str, V, float]] = LRU(max_entries)  # key, value, expiry
        self._loads: LRU[str, Token] = LRU(max_entries)
        self._remover: threading.Thread | None = None
        # The one queue whose put may be called from a finalizer: https://docs.python.org/3/library/queue.html
        self._closing: SimpleQueue[None] = SimpleQueue()

    @overload
    def get(self, job_id: str) -> V | None: ...
    @overload
    def get(self, job_id: str, default: D) -> V | D: ...
    def get(self, job_id: str, default: D | None = None) -> V | D | None:
        """Return the value, or `default` if there is none or it has expired."""
        key = cache_key(job_id)
        with self._lock:
            entry = self._entries.get(key)
        if entry is None or self._clock() > entry[2]:
            return default
        return entry[1]

    def begin(self, job_id: str) -> Token:
        """Note that a load of the value begins; give the token to the `set` that ends it.

        A load that is given up needs no end. Loads of one id that overlap share a token: the first to end is stored.
        """
        key = cache_key(job_id)
        with self._lock:
            token = self._loads.get(key)
            if token is None:
                token = self._loads[key] = Token(object())
            return token

    def set(self, job_id: str, value: V, *, token: Token | None = None) -> bool:
        """Hold `value` for a whole ttl from now; return whether it was stored.

        With a token of `begin` it is stored only if the id was neither set nor deleted since; without one, always.
        """
        key = cache_key(job_id)
        with self._lock:
            if token is not None and token is not self._loads.get(key):
                return False
            self._loads.pop(key, None)
            # lru-dict breaks if a value that it drops runs code that uses it again: hold what leaves until it is done.
            leaving = self._entries.pop(key, None), self._entries.peek_last_item()
            self._entries[key] = (key, value, self._clock() + self._ttl)
            if self._remover is None:
                self._remover = _start_remover(self, self._closing, self._ttl)
        del leaving
        return True

    def delete(self, job_id: str) -> None:
        """Drop the value, if there is one, and what loads that have begun will bring."""
        key = cache_key(job_id)
        with self._lock:
            self._loads.pop(key, None)
            self._entries.pop(key, None)

    def remove_expired(self) -> None:
        """Drop every expired value; the background thread calls this. Costs a pass over all values."""
        with self._lock:
            held = self._entries.values()
        now = self._clock()
        for entry in held:
            key, _, expiry = entry
            if now > expiry:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]

    def close(self) -> None:
        """End the background thread; any number of times. The cache still works, but expired values stay in memory."""
        self._closing.put(None)

    def __len__(self) -> int:
        """Return the number of values held, expired ones that were not removed yet among them."""
        return len(self._entries)

    len = __len__  # the name a queue has it under


class IdList:
    """Hold lists of ids by the text of their prefix for `ttl` seconds from when they were stored (behaviour S26).

    Keys are taken as they are. Nothing is removed in the background: the keys are few, and `max_lists` bounds them.
    """

    def __init__(
        self,
        ttl: float = DEFAULT_LIST_TTL_S,
        *,
        max_lists: int = DEFAULT_MAX_LISTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty cache; `ttl` in seconds, 0 or less means one minute."""
        if max_lists < 1:
            raise Misconfigured(f"cache cannot hold anything max_lists={max_lists}; give at least 1")
        self._ttl = ttl if ttl > 0 else DEFAULT_LIST_TTL_S
        self._clock = clock
        self._lock = threading.RLock()
        self._lists: LRU[str, tuple[tuple[str, ...], float]] = LRU(max_lists)
        self._scans: dict[str, _Scan] = {}

    def load(self, key: str, collect: Callable[[], Iterable[str]], *, timeout_s: float | None = None) -> list[str]:
        """Return a copy of the list, calling `collect` if it is not held.

        Callers that miss at the same time share one `collect`, which runs in the thread of the first of them. Its error
        goes to all of them and is not kept; but if it was the first caller that gave up (Canceled, TimeoutError or an
        exit), the others try once more.

        Args:
            timeout_s: how long to wait for another caller's `collect`, which then goes on and fills the cache. Bounds
                neither one's own `collect` nor a hit.

        Raises: what `collect` raises, and TimeoutError.
        """
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        retried = False
        while True:
            with self._lock:
                held = self._lists.get(key)
                if held is not None and self._clock() <= held[1]:
                    return list(held[0])
                running = self._scans.get(key)
                if running is None:
                    scan = self._scans[key] = _Scan()
            if running is None:
                return self._run(key, scan, collect)
            error = running.wait(key, ends)
            if error is None:
                return list(running.found)
            if retried or not _gave_up(error):
                raise error
            retried = True

    def invalidate(self, key: str) -> None:
        """Drop the list; a scan that runs now is neither stored nor joined by later loads."""
        with self._lock:
            self._lists.pop(key, None)
            self._scans.pop(key, None)

    def __len__(self) -> int:
        """Return the number of lists held, expired ones among them."""
        return len(self._lists)

    len = __len__

    def _run(self, key: str, scan: "_Scan", collect: Callable[[], Iterable[str]]) -> list[str]:
        """Collect for everybody who waits for `scan`; store the list unless the key was invalidated meanwhile."""
        try:
            scan.found = tuple(collect())
        except BaseException as error:
            scan.error = error
            raise
        finally:
            with self._lock:
                if self._scans.get(key) is scan:
                    del self._scans[key]
                    if scan.error is None:
                        self._lists[key] = (scan.found, self._clock() + self._ttl)
            scan.ended.set()
        return list(scan.found)


class NoIdList(IdList):
    """Hold nothing: every load collects (behaviour S26.6)."""

    def load(self, key: str, collect: Callable[[], Iterable[str]], *, timeout_s: float | None = None) -> list[str]:
        """Return what `collect` gives."""
        return list(collect())


class _Scan:
    """A `collect` that runs, or has run, and what came of it."""

    __slots__ = ("ended", "error", "found")

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.found: tuple[str, ...] = ()
        self.error: BaseException | None = None

    def wait(self, key: str, ends: float | None) -> BaseException | None:
        """Wait for the end, at most until `ends` (by time.monotonic); return the error of the scan."""
        if not self.ended.wait(None if ends is None else max(ends - time.monotonic(), 0)):
            raise TimeoutError(f"list still being collected by another caller key={ids.shown(key)}; ask again")
        return self.error


def _gave_up(error: BaseException) -> bool:
    """Tell whether a scan failed because its caller wanted no more of it, not because the list cannot be read."""
    return isinstance(error, Canceled | TimeoutError) or not isinstance(error, Exception)


def _start_remover(cache: TTLCache[V], closing: SimpleQueue[None], ttl: float) -> threading.Thread:
    """Start the thread that removes expired values; it ends at `close` and when the cache is garbage collected."""
    weakref.finalize(cache, closing.put, None)
    # An expired value stays in memory for a tenth of the ttl longer, a minute at most; a tiny ttl must not spin.
    every_s = min(max(ttl / 10, 0.05), 60.0)
    thread = threading.Thread(
        target=_remove_expired, args=(weakref.ref(cache), closing, every_s), name="ttl-cache-remover", daemon=True
    )
    thread.start()
    return thread


def _remove_expired(cache: weakref.ref[TTLCache[V]], closing: SimpleQueue[None], every_s: float) -> None:
    """Remove expired values every `every_s` seconds, holding the cache only while at it."""
    while True:
        try:
            return closing.get(timeout=every_s)
        except Empty:
            held = cache()
            if held is None:
                return None
            held.remove_expired()
            del held
