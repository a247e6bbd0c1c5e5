"""What was read is kept for a while, and never comes back once it was deleted (behaviour S25, S26)."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents.errors import Canceled, Misconfigured, Unavailable
from projections.cache import IdList, NoIdList, TTLCache, cache_key
from tests.vectors import vectors

LONG = 10  # seconds that nothing here takes; a test that waits this long has failed


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Value:
    """A value that can be weakly referenced."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> Iterator[TTLCache[Any]]:
    cache: TTLCache[Any] = TTLCache(ttl=10, clock=clock)
    yield cache
    cache.close()


@pytest.fixture
def lists(clock: Clock) -> IdList:
    return IdList(ttl=10, clock=clock)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give a function that returns once that many more Waiters wait: at another's scan, or within their own."""
    waiting, wait = threading.Semaphore(0), threading.Event.wait

    def counted(event: threading.Event, timeout: float | None = None) -> bool:
        if isinstance(threading.current_thread(), Waiter):
            waiting.release()
        return wait(event, timeout)

    def joined(callers: int) -> None:
        for _ in range(callers):
            assert waiting.acquire(timeout=LONG)

    monkeypatch.setattr(threading.Event, "wait", counted)
    return joined


class Caller(threading.Thread):
    """A thread that loads a list and keeps what came of it."""

    def __init__(self, lists: IdList, collect: Callable[[], list[str]], timeout_s: float | None = None) -> None:
        super().__init__(daemon=True)
        self._load: Callable[[], list[str]] = lambda: lists.load("jobs/", collect, timeout_s=timeout_s)
        self._outcome: list[str] | BaseException = []
        self.start()

    def run(self) -> None:
        try:
            self._outcome = self._load()
        except BaseException as error:
            self._outcome = error

    def outcome(self) -> Any:
        """Return the list or the error."""
        self.join(LONG)
        assert not self.is_alive()
        return self._outcome


class Waiter(Caller):
    """A caller that is to join another caller's scan."""


def remover_of(cache: TTLCache[Any]) -> threading.Thread:
    """Return the background thread that the first set of `cache` starts."""
    before = set(threading.enumerate())
    cache.set("first", 1)
    (thread,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "ttl-cache-remover")
    return thread


def never() -> list[str]:
    raise AssertionError("collected although it should not be")


class Scan:
    """A collect that says when it has begun and goes on when told."""

    def __init__(self, outcome: list[str] | BaseException) -> None:
        self.outcome = outcome
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.calls = 0

    def __call__(self) -> list[str]:
        self.calls += 1
        self.begun.set()
        assert self.go_on.wait(LONG)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def start(lists: IdList, scan: Scan) -> Caller:
    """Begin a scan in a thread of its own."""
    caller = Caller(lists, scan)
    assert scan.begun.wait(LONG)
    return caller


# the key


@pytest.mark.parametrize("vector", vectors("cache_key"))
def test_key_is_the_kit_s(vector: dict[str, Any]) -> None:
    """A text is held under the key that the kit uses."""
    assert vector["out"]["key"] == cache_key(vector["in"]["id"])


@pytest.mark.parametrize("vector", vectors("cache_key"))
def test_value_is_found_under_its_key(cache: TTLCache[Any], vector: dict[str, Any]) -> None:
    """What was set under a text is found under the key it stands for."""
    cache.set(vector["in"]["id"], 1)

    assert 1 == cache.get(vector["out"]["key"])


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_key_of_a_key_is_itself(text: str) -> None:
    """A key stands for itself, whatever the text was."""
    assert cache_key(text) == cache_key(cache_key(text))


# TTLCache


def test_unknown_is_the_default(cache: TTLCache[Any]) -> None:
    """An id that was never set has the default, none without one."""
    assert (None, "?") == (cache.get("a"), cache.get("a", "?"))


def test_value_is_handed_out_as_it_is(cache: TTLCache[Any]) -> None:
    """The very object that was set is returned, not a copy."""
    value = Value()

    cache.set("a", value)

    assert value is cache.get("a")


def test_value_lives_to_the_end_of_its_ttl(cache: TTLCache[Any], clock: Clock) -> None:
    """At its expiry a value is still there."""
    cache.set("a", 1)
    clock.now += 10

    assert 1 == cache.get("a")


def test_value_is_gone_after_its_ttl(cache: TTLCache[Any], clock: Clock) -> None:
    """After its expiry a value is hidden."""
    cache.set("a", 1)
    clock.now += 10.001

    assert None is cache.get("a")


def test_reading_does_not_extend_a_life(cache: TTLCache[Any], clock: Clock) -> None:
    """A value that is read all the time expires all the same."""
    cache.set("a", 1)
    for _ in range(11):
        cache.get("a")
        clock.now += 1

    assert None is cache.get("a")


def test_setting_renews_a_life(cache: TTLCache[Any], clock: Clock) -> None:
    """A value that is set again lives for a whole ttl from then."""
    cache.set("a", 1)
    clock.now += 8
    cache.set("a", 2)
    clock.now += 8

    assert 2 == cache.get("a")


@pytest.mark.parametrize("ttl", [0, -1])
def test_no_ttl_means_ten_minutes(clock: Clock, ttl: float) -> None:
    """A ttl of 0 or less is the default."""
    cache: TTLCache[int] = TTLCache(ttl=ttl, clock=clock)
    cache.set("a", 1)
    clock.now += 600
    at_ttl = cache.get("a")
    clock.now += 0.001

    assert (1, None) == (at_ttl, cache.get("a"))
    cache.close()


def test_deleted_is_gone(cache: TTLCache[Any]) -> None:
    """A deleted value is gone, and deleting what is not there is fine."""
    cache.set("a", 1)
    cache.delete("dir/a")
    cache.delete("a")

    assert (None, 0) == (cache.get("a"), len(cache))


def test_expired_values_are_removed(cache: TTLCache[Any], clock: Clock) -> None:
    """Removing drops the expired values and keeps the others."""
    cache.set("old", 1)
    clock.now += 6
    cache.set("new", 2)
    clock.now += 6
    held = len(cache)

    cache.remove_expired()

    assert (2, 1, 2) == (held, len(cache), cache.get("new"))


def test_expired_values_are_removed_in_the_background() -> None:
    """A value leaves memory after its ttl although nobody asks for it."""
    cache, gone, value = TTLCache[Any](ttl=0.001), threading.Event(), Value()
    weakref.finalize(value, gone.set)

    cache.set("a", value)
    del value

    assert gone.wait(LONG)
    cache.close()


def test_full_it_drops_the_least_recently_used(clock: Clock) -> None:
    """A full cache makes room by dropping what was not used for longest."""
    cache: TTLCache[int] = TTLCache(max_entries=2, clock=clock)
    cache.set("a", 1)
    cache.set("b", 2)
    cache.get("a")
    cache.set("c", 3)

    assert (1, None, 3, 2) == (cache.get("a"), cache.get("b"), cache.get("c"), len(cache))
    cache.close()


def test_room_for_nothing_is_refused() -> None:
    """A cache that could hold nothing cannot be made."""
    with pytest.raises(Misconfigured, match="max_entries=0"):
        TTLCache(max_entries=0)


def test_values_may_use_the_cache_as_they_die() -> None:
    """Values whose finalizers use the cache leave it whole, however they leave it."""
    cache: TTLCache[Any] = TTLCache(ttl=600, max_entries=3)
    turns = iter(range(2_000))

    class Busy:
        def __del__(self) -> None:
            turn = next(turns, None)
            if turn is not None:
                cache.delete(f"k{turn % 5}")
                cache.set(f"k{turn % 7}", turn if turn % 3 else Busy())

    for turn in range(1_000):
        cache.set(f"k{turn % 6}", Busy())
        cache.delete(f"k{turn % 4}")

    cache.set("a", 1)
    assert (1, True) == (cache.get("a"), len(cache) <= 3)
    cache.close()


def test_close_ends_the_thread(cache: TTLCache[Any]) -> None:
    """Closing, any number of times, ends the background thread."""
    remover = remover_of(cache)

    cache.close()
    cache.close()
    remover.join(LONG)

    assert not remover.is_alive()


def test_closed_it_still_works(cache: TTLCache[Any], clock: Clock) -> None:
    """A closed cache sets, gets and hides what has expired, but keeps it in memory."""
    cache.close()
    cache.set("a", 1)
    fresh = cache.get("a")
    clock.now += 11

    assert (1, None, 1) == (fresh, cache.get("a"), len(cache))


def test_closed_before_its_first_value_it_keeps_no_thread(cache: TTLCache[Any]) -> None:
    """A cache that was closed first ends the thread that its first value starts."""
    before = set(threading.enumerate())

    cache.close()
    cache.set("a", 1)

    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive()


def test_dropped_it_ends_its_thread() -> None:
    """A cache that nobody holds any more is freed, and its thread ends at once."""
    cache: TTLCache[Any] = TTLCache()
    remover, gone = remover_of(cache), weakref.ref(cache)

    del cache
    gc.collect()
    remover.join(LONG)

    assert (None, False) == (gone(), remover.is_alive())


def test_dropped_it_is_freed_also_after_its_thread_has_run() -> None:
    """The background thread does not hold on to a cache between two passes."""
    cache, passed, freed, value = TTLCache[Any](ttl=0.001), threading.Event(), threading.Event(), Value()
    weakref.finalize(value, passed.set)
    weakref.finalize(cache, freed.set)
    cache.set("a", value)
    del value
    assert passed.wait(LONG)

    del cache

    assert freed.wait(LONG)


# loads in flight


def test_a_load_is_stored(cache: TTLCache[Any]) -> None:
    """A load that nothing came in between of is stored."""
    token = cache.begin("dir/a")

    assert (True, 1) == (cache.set("a", 1, token=token), cache.get("a"))


@pytest.mark.parametrize("loaded_first", [True, False], ids=["held before", "absent before"])
def test_cac_01_a_deleted_item_does_not_come_back(cache: TTLCache[Any], loaded_first: bool) -> None:
    """A load that began before a delete is not stored after it."""
    if loaded_first:
        cache.set("a", "old")
    token = cache.begin("a")
    cache.delete("dir/a")

    assert (False, None) == (cache.set("a", "old", token=token), cache.get("a"))


def test_cac_01_an_updated_item_does_not_go_back(cache: TTLCache[Any]) -> None:
    """A load that began before an update does not replace it."""
    token = cache.begin("a")
    cache.set("a", "new")

    assert (False, "new") == (cache.set("a", "old", token=token), cache.get("a"))


def test_cac_01_the_load_after_a_delete_is_stored(cache: TTLCache[Any]) -> None:
    """A load that began after the delete is stored, whenever the older one ends."""
    old = cache.begin("a")
    cache.delete("a")
    new = cache.begin("a")
    cache.set("a", "new", token=new)

    assert (False, "new") == (cache.set("a", "old", token=old), cache.get("a"))


def test_cac_01_changes_of_other_items_do_not_matter(cache: TTLCache[Any]) -> None:
    """A load is stored although another id was set and deleted meanwhile."""
    token = cache.begin("a")
    cache.set("b", 1)
    cache.delete("b")

    assert cache.set("a", 1, token=token)


def test_cac_01_a_token_is_good_for_its_id_only(cache: TTLCache[Any]) -> None:
    """The token of one id stores nothing under another."""
    token = cache.begin("a")

    assert (False, None) == (cache.set("b", 1, token=token), cache.get("b"))


def test_cac_01_a_list_scanned_before_an_invalidate_is_not_kept(lists: IdList) -> None:
    """A scan that began before the invalidate is not stored: the next load scans again."""
    stale = Scan(["deleted"])
    starter = start(lists, stale)
    lists.invalidate("jobs/")
    stale.go_on.set()
    starter.outcome()

    assert (["fresh"], ["fresh"]) == (lists.load("jobs/", lambda: ["fresh"]), lists.load("jobs/", never))


def test_cac_01_a_list_scanned_before_an_invalidate_is_not_joined(lists: IdList) -> None:
    """A load after the invalidate scans by itself although an older scan runs, and the older one changes nothing."""
    stale = Scan(["deleted"])
    starter = start(lists, stale)
    lists.invalidate("jobs/")
    fresh = lists.load("jobs/", lambda: ["fresh"])
    stale.go_on.set()

    assert (["deleted"], ["fresh"], ["fresh"]) == (starter.outcome(), fresh, lists.load("jobs/", never))


def test_cac_01_a_stale_scan_does_not_end_the_one_after_it(lists: IdList, joined: Callable[[int], None]) -> None:
    """The scan begun after the invalidate can be joined still when the older one has ended."""
    stale, fresh = Scan(["deleted"]), Scan(["fresh"])
    first = start(lists, stale)
    lists.invalidate("jobs/")
    second = start(lists, fresh)
    stale.go_on.set()
    first.outcome()

    waiter = Waiter(lists, never)
    joined(1)
    fresh.go_on.set()

    assert (["fresh"], ["fresh"]) == (waiter.outcome(), second.outcome())


# threads


def test_cac_02_a_storm_of_threads_leaves_it_whole() -> None:
    """Sixteen threads that get, set, load, delete, count and close all at once break nothing."""
    cache: TTLCache[int] = TTLCache(ttl=0.001, max_entries=40)
    begin, ends, longest = threading.Barrier(16), time.monotonic() + 1.0, []

    def storm(seed: int) -> None:
        begin.wait(LONG)
        turn = seed
        while time.monotonic() < ends:
            turn += 1
            key = f"k{turn * 7 % 50}"
            cache.set(key, turn)
            cache.get(f"k{turn % 50}")
            cache.set(key, turn, token=cache.begin(key))
            cache.delete(f"k{turn * 3 % 50}")
            if turn % 50 == 0:
                cache.remove_expired()
            if turn > 500 + seed:
                cache.close()
            longest.append(len(cache))

    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(storm, seed) for seed in range(16)]:
            done.result(LONG)

    cache.set("after", 1, token=cache.begin("after"))
    assert (True, True) == (max(longest) <= 40, len(cache) <= 40)


def test_cac_02_after_a_storm_it_works(clock: Clock) -> None:
    """A cache on which sixteen threads raced to expire the same values holds and expires as before."""
    cache: TTLCache[int] = TTLCache(ttl=10, max_entries=50, clock=clock)
    for n in range(50):
        cache.set(f"k{n}", n)
    clock.now += 11
    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(cache.remove_expired) for _ in range(64)]:
            done.result(LONG)

    cache.set("a", 1)

    assert (1, 1) == (cache.get("a"), len(cache))
    cache.close()


def test_cac_02_closing_from_many_threads_is_closing_once() -> None:
    """Threads that all close at once end the background thread and raise nothing."""
    cache: TTLCache[int] = TTLCache()
    remover = remover_of(cache)
    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(cache.close) for _ in range(64)]:
            done.result(LONG)
    remover.join(LONG)

    assert not remover.is_alive()


# IdList


def test_list_is_collected_once(lists: IdList) -> None:
    """A second load is answered from what the first one stored."""
    lists.load("jobs/", lambda: ["a"])

    assert (["a"], 1) == (lists.load("jobs/", never), len(lists))


def test_empty_list_is_kept(lists: IdList) -> None:
    """An empty list is held like any other."""
    lists.load("jobs/", list)

    assert [] == lists.load("jobs/", never)


def test_keys_are_taken_as_they_are(lists: IdList) -> None:
    """Texts that name one job are different keys here."""
    lists.load("jobs/", lambda: ["a"])

    assert ["b"] == lists.load("jobs", lambda: ["b"])


def test_list_lives_to_the_end_of_its_ttl(lists: IdList, clock: Clock) -> None:
    """A list lives for a ttl from its storing, whether it is read or not, and is collected again after it."""
    lists.load("jobs/", lambda: ["a"])
    clock.now += 10
    at_ttl = lists.load("jobs/", never)
    clock.now += 0.001

    assert (["a"], ["b"]) == (at_ttl, lists.load("jobs/", lambda: ["b"]))


def test_expired_lists_count(lists: IdList, clock: Clock) -> None:
    """An expired list is counted until it is replaced."""
    lists.load("jobs/", lambda: ["a"])
    clock.now += 11

    assert 1 == len(lists)


@pytest.mark.parametrize("ttl", [0, -1])
def test_no_list_ttl_means_one_minute(clock: Clock, ttl: float) -> None:
    """A ttl of 0 or less is the default."""
    lists = IdList(ttl=ttl, clock=clock)
    lists.load("jobs/", lambda: ["a"])
    clock.now += 60
    at_ttl = lists.load("jobs/", never)
    clock.now += 0.001

    assert (["a"], ["b"]) == (at_ttl, lists.load("jobs/", lambda: ["b"]))


def test_lists_are_copies(lists: IdList) -> None:
    """Neither the collector's list nor one that was handed out can change what is held."""
    collected = ["a"]
    lists.load("jobs/", lambda: collected).append("b")
    collected.append("c")
    lists.load("jobs/", never).append("d")

    assert ["a"] == lists.load("jobs/", never)


def test_invalidated_is_collected_again(lists: IdList) -> None:
    """An invalidated list is dropped, the others stay, and invalidating an unknown key is fine."""
    lists.load("jobs/", lambda: ["a"])
    lists.load("other/", lambda: ["b"])
    lists.invalidate("jobs/")
    lists.invalidate("unknown/")

    assert (["c"], ["b"]) == (lists.load("jobs/", lambda: ["c"]), lists.load("other/", never))


def test_too_many_lists_drop_the_least_recently_used(clock: Clock) -> None:
    """No more lists are held than there is room for."""
    lists = IdList(max_lists=2, clock=clock)
    for key in "abc":
        lists.load(key, lambda: ["x"])

    assert (2, ["y"]) == (len(lists), lists.load("a", lambda: ["y"]))


def test_no_room_for_lists_is_refused() -> None:
    """A cache that could hold no list cannot be made."""
    with pytest.raises(Misconfigured, match="max_lists=0"):
        IdList(max_lists=0)


def test_error_of_an_iterator_is_not_kept(lists: IdList) -> None:
    """A listing that breaks half-way is an error, not a shorter list."""

    def half() -> Iterator[str]:
        yield "a"
        raise Unavailable("listing broke")

    with pytest.raises(Unavailable):
        lists.load("jobs/", half)
    assert 0 == len(lists)


def test_collect_runs_in_the_thread_of_the_caller(lists: IdList) -> None:
    """The scan runs where the first caller is, with its thread's state."""
    assert [threading.current_thread().name] == lists.load("jobs/", lambda: [threading.current_thread().name])


def test_a_waiter_leaves_when_its_time_is_up(lists: IdList) -> None:
    """A caller that waited long enough gets TimeoutError; the scan goes on and fills the cache."""
    scan = Scan(["a"])
    starter = start(lists, scan)

    with pytest.raises(TimeoutError, match="key='jobs/'"):
        lists.load("jobs/", never, timeout_s=0.001)
    scan.go_on.set()

    assert (["a"], ["a"]) == (starter.outcome(), lists.load("jobs/", never))


@pytest.mark.parametrize("gave_up", [Canceled("gone"), TimeoutError("late"), SystemExit(1)], ids=repr)
def test_a_waiter_scans_when_the_starter_gave_up(
    lists: IdList, joined: Callable[[int], None], gave_up: BaseException
) -> None:
    """That the first caller wanted no more of its scan is not the waiter's error: it scans by itself."""
    scan = Scan(gave_up)
    starter = start(lists, scan)
    waiter = Waiter(lists, lambda: ["a"])
    joined(1)
    scan.go_on.set()

    assert (gave_up, ["a"]) == (starter.outcome(), waiter.outcome())


def test_a_waiter_tries_again_only_once(lists: IdList, joined: Callable[[int], None]) -> None:
    """A second scan that was given up is the waiter's error."""
    first, second = Scan(Canceled("first")), Scan(Canceled("second"))
    start(lists, first)
    waiters = [Waiter(lists, second), Waiter(lists, second)]
    joined(2)
    first.go_on.set()
    joined(2)  # one as the starter, one at its scan
    second.go_on.set()

    assert [second.outcome] * 2 == [waiter.outcome() for waiter in waiters]
    assert 1 == second.calls


def test_cac_05_many_callers_share_one_scan(lists: IdList, joined: Callable[[int], None]) -> None:
    """Two hundred callers of an empty cache make one listing, and all get it."""
    scan = Scan(["a", "b"])
    starter = start(lists, scan)
    waiters = [Waiter(lists, never) for _ in range(199)]
    joined(199)
    scan.go_on.set()

    assert [["a", "b"]] * 200 == [caller.outcome() for caller in [starter, *waiters]]
    assert 1 == scan.calls


def test_cac_05_waiters_get_a_list_that_expires_at_once(joined: Callable[[int], None]) -> None:
    """With a ttl of a nanosecond those who waited get the value all the same."""
    lists, scan = IdList(ttl=1e-9), Scan(["a"])
    start(lists, scan)
    waiters = [Waiter(lists, never) for _ in range(50)]
    joined(50)
    scan.go_on.set()

    assert [["a"]] * 50 == [waiter.outcome() for waiter in waiters]


def test_cac_05_an_error_goes_to_all_and_is_not_kept(lists: IdList, joined: Callable[[int], None]) -> None:
    """A scan that fails fails for everybody who waits for it, and the next load scans again."""
    down = Unavailable("listing failed")
    scan = Scan(down)
    starter = start(lists, scan)
    waiters = [Waiter(lists, never) for _ in range(50)]
    joined(50)
    scan.go_on.set()

    assert [down] * 51 == [caller.outcome() for caller in [starter, *waiters]]
    assert ["a"] == lists.load("jobs/", lambda: ["a"])


def test_scans_of_other_keys_do_not_wait(lists: IdList) -> None:
    """A slow scan of one key does not hold up a load of another."""
    scan = Scan(["a"])
    starter = start(lists, scan)

    assert ["b"] == lists.load("other/", lambda: ["b"])
    scan.go_on.set()
    starter.outcome()


def test_no_list_collects_every_time() -> None:
    """NoIdList holds nothing."""
    lists = NoIdList()
    first = lists.load("jobs/", lambda: ["a"])
    lists.invalidate("jobs/")

    assert (["a"], ["b"], 0) == (first, lists.load("jobs/", lambda: ["b"]), len(lists))
