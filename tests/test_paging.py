"""Pages of job ids: which ids, in which order, and how their items are loaded (behaviour S21-S24)."""

import logging
import random
import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobevents import ids as job_ids
from jobevents.errors import Canceled, PermissionDenied, Unavailable
from projections.paging import PageMeta, adjust_item_count, deadline, load_page, select_ids
from tests.vectors import vectors

law = settings(deadline=None)  # a busy machine breaks no law

SORT_KEYS = {
    None: None,
    "none": None,
    "nil": None,
    "jobid": job_ids.sort_key,
    "constant": lambda _: "same",
    "after_dash": lambda job_id: job_id.partition("-")[2],
}


def meta_of(fields: dict[str, Any]) -> PageMeta:
    return msgspec.convert(fields, PageMeta)


def in_bytes(listed: list[str]) -> list[str]:
    return sorted(listed, key=lambda job_id: job_id.encode("utf-8", "surrogatepass"), reverse=True)


def walk(listed: list[str], per_page: int, sort_key: Any = None) -> list[str]:
    """Read every page as a list page's "next" link would."""
    seen, page = [], 1
    while True:
        chosen, meta = select_ids(listed, page, per_page, sort_key)
        seen += chosen
        if not meta.has_next:
            return seen
        page = meta.next_page


# the vectors


@pytest.mark.parametrize("vector", vectors("select_ids"))
def test_selects_as_the_kit_does(vector: dict[str, Any]) -> None:
    """A page has the ids and the meta that the kit gives it."""
    asked, expected = vector["in"], vector["out"]

    chosen, meta = select_ids(asked["ids"], asked["page"], asked["per_page"], SORT_KEYS[asked.get("sort_key")])

    assert (expected["ids"], meta_of(expected["meta"])) == (chosen, meta)


@pytest.mark.parametrize("vector", vectors("page_meta_json"))
def test_meta_has_the_kit_s_json(vector: dict[str, Any]) -> None:
    """A meta encodes to the kit's bytes."""
    asked = vector["in"]

    _, meta = select_ids(asked["ids"], asked["page"], asked["per_page"])

    assert vector["out"]["bytes"].encode() == msgspec.json.encode(meta)


@pytest.mark.parametrize("vector", vectors("adjust_item_count"))
def test_adjusts_as_the_kit_does(vector: dict[str, Any]) -> None:
    """A meta for fewer items says what the kit's says."""
    asked = vector["in"]

    assert meta_of(vector["out"]["meta"]) == adjust_item_count(meta_of(asked["meta"]), asked["count"])


@pytest.mark.parametrize("vector", [v for v in vectors("load_page") if v.values[0]["out"]["ok"]])
def test_loads_as_the_kit_does(vector: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """A page has the items, the meta, the calls and the warnings that the kit's has."""
    asked, expected = vector["in"], vector["out"]
    calls: list[str] = []

    def load(job_id: str) -> str:
        calls.append(job_id)
        if job_id in asked.get("fail", []):
            raise ValueError("broken")
        return f"v:{job_id}"

    items, meta = load_page(
        asked["ids"],
        asked["page"],
        asked["per_page"],
        load,
        sort_key=SORT_KEYS[asked.get("sort_key")],
        concurrency=asked.get("concurrency", 10),
    )

    assert (expected["items"], meta_of(expected["meta"])) == (items, meta)
    assert (expected["calls"], expected["warnings"]) == (len(calls), len(caplog.records))


@pytest.mark.parametrize("vector", [v for v in vectors("load_page") if not v.values[0]["out"]["ok"]])
def test_a_canceled_page_raises_as_the_kit_does(vector: dict[str, Any]) -> None:
    """A page canceled before it began loads nothing and raises."""
    asked = vector["in"]
    calls: list[str] = []

    def stop() -> None:
        raise Canceled(vector["out"]["error"])

    with pytest.raises(Canceled):
        load_page(asked["ids"], asked["page"], asked["per_page"], calls.append, stop=stop)
    assert vector["out"]["calls"] == len(calls)


# laws


@law
@given(st.lists(st.text(st.characters(codec=None), max_size=4)), st.integers(1, 9))
@example(["\ud800", "\udfff", "\uffff", "\U00010000", "", "~", "é"], 2)
def test_order_is_that_of_the_bytes(listed: list[str], per_page: int) -> None:
    """Pages together are the whole list, duplicates too, in descending order of the bytes, whatever the text."""
    assert in_bytes(listed) == walk(listed, per_page)


@law
@given(
    st.lists(st.text("ab-019", max_size=6)),
    st.integers(1, 9),
    st.sampled_from([job_ids.sort_key, SORT_KEYS["after_dash"], SORT_KEYS["constant"]]),
)
def test_pages_partition_the_sorted_list(listed: list[str], per_page: int, sort_key: Any) -> None:
    """Pages together are the list by (key, id) descending: nothing twice, nothing left out."""
    assert sorted(listed, key=lambda job_id: (sort_key(job_id), job_id), reverse=True) == walk(
        listed, per_page, sort_key
    )


@law
@given(st.integers(0, 2**32), st.integers(4_096, 9_000), st.integers(1, 10_000), st.integers(1, 3_000))
def test_a_long_list_has_the_page_of_a_full_sort(seed: int, total: int, page: int, per_page: int) -> None:
    """The short cut for long lists never changes a page."""
    rng = random.Random(seed)
    listed = [f"{rng.randrange(rng.choice([3, 100, 10**9]))}" for _ in range(total)]

    chosen, meta = select_ids(listed, page, per_page)

    start = (meta.page - 1) * per_page
    assert sorted(listed, reverse=True)[start : start + per_page] == chosen


@pytest.mark.parametrize("page", [1, 2, 150, 299, 300])
def test_a_misleading_sample_does_not_change_a_page(page: int) -> None:
    """A list whose every n-th id differs from the others is paged like any other."""
    listed = [f"{'z' if place % 5 == 0 else 'a'}{place:05}" for place in range(6_000)]

    assert sorted(listed, reverse=True)[20 * (page - 1) : 20 * page] == select_ids(listed, page, 20)[0]


@law
@given(st.lists(st.text("abc", max_size=2)), st.integers(-3, 12), st.integers(-3, 12))
def test_meta_counts_what_the_page_holds(listed: list[str], page: int, per_page: int) -> None:
    """from and to enclose exactly the ids of the page, and are 0 if it has none."""
    chosen, meta = select_ids(listed, page, per_page)

    assert (len(chosen), bool(chosen)) == (meta.to - meta.from_ + 1 if chosen else meta.to, meta.from_ > 0)


@law
@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_the_last_adjustment_counts(total: int, per_page: int, first: int, second: int) -> None:
    """A meta adjusted twice is the one adjusted once, as long as something was left the first time."""
    _, meta = select_ids([str(n) for n in range(total)], 1, per_page)

    assert adjust_item_count(meta, second) == adjust_item_count(adjust_item_count(meta, first + 1), second)


def test_selecting_leaves_the_list_alone() -> None:
    """The caller's list is neither sorted nor handed out."""
    listed = ["a", "b"]

    chosen, _ = select_ids(listed, 1, 0)
    chosen.append("c")

    assert ["a", "b"] == listed


# loading


def test_never_more_loads_than_slots() -> None:
    """At most `concurrency` loads run at a time, and that many do."""
    full, lock, running, most = threading.Barrier(3), threading.Lock(), 0, 0

    def load(_: str) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(10)
        with lock:
            running -= 1

    load_page([str(n) for n in range(12)], 1, 0, load, concurrency=3)

    assert 3 == most


def test_a_load_is_handed_out_only_when_a_slot_is_free() -> None:
    """With one slot, each load has ended before the next is asked for: nothing queues up behind it."""
    happened: list[str] = []

    load_page(list("abcdefgh"), 1, 0, happened.append, concurrency=1, stop=lambda: happened.append("?"))

    assert list("?h?g?f?e?d?c?b?a?") == happened


def test_items_keep_the_order_of_the_page() -> None:
    """Items stand in the order of their ids although the first one is loaded last."""
    loaded = threading.Event()

    def load(job_id: str) -> str:
        if job_id == "c":
            assert loaded.wait(10)
        if job_id == "a":
            loaded.set()
        return job_id

    assert ["c", "b", "a"] == load_page(["a", "b", "c"], 1, 3, load)[0]


def test_no_load_starts_once_stopped() -> None:
    """A slot that frees up is asked for again: the stop is heard then, nothing starts, what has started ends."""
    both, ended, ended_at_stop = threading.Barrier(2), [], []
    asked = iter(range(20))

    def load(job_id: str) -> None:
        both.wait(10)
        ended.append(job_id)

    def stop() -> None:
        if next(asked) == 2:
            ended_at_stop.extend(ended)
            raise Canceled("enough")

    with pytest.raises(Canceled):
        load_page([str(n) for n in range(20)], 1, 0, load, concurrency=2, stop=stop)
    assert (2, True) == (len(ended), bool(ended_at_stop))


@pytest.mark.parametrize("listed", [[], ["a"]], ids=["empty", "all loaded"])
def test_a_stop_at_the_end_counts(listed: list[str]) -> None:
    """A page given up by its end raises although all was loaded, or there was nothing to load."""
    calls: list[None] = []

    def stop() -> None:
        calls.append(None)
        if len(calls) > len(listed):
            raise Canceled("too late")

    with pytest.raises(Canceled):
        load_page(listed, 1, 10, str, stop=stop)


def test_past_its_deadline_a_page_raises() -> None:
    """A page that is not loaded in time raises TimeoutError."""
    now = 0.0

    def load(_: str) -> None:
        nonlocal now
        now += 3

    with pytest.raises(TimeoutError, match="timeout_s=5"):
        load_page(["a", "b"], 1, 10, load, concurrency=1, stop=deadline(5, clock=lambda: now))


def test_an_exit_in_a_load_is_not_a_broken_row() -> None:
    """SystemExit from a load reaches the caller."""

    def load(_: str) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        load_page(["a"], 1, 10, load)


def test_a_duplicate_is_loaded_twice() -> None:
    """An id that is listed twice has two items."""
    assert ["a", "a"] == load_page(["a", "a"], 1, 10, str)[0]


def test_warnings_go_to_the_given_logger(caplog: pytest.LogCaptureFixture) -> None:
    """A failed load is told to the caller's logger, with the id made safe to print."""
    load_page(["a\n\ud800"], 1, 10, lambda job_id: {"a": 1}[job_id], logger=logging.getLogger("shop"))

    assert [("shop", logging.WARNING)] == [(record.name, record.levelno) for record in caplog.records]
    assert r"job_id='a\n\ud800'" in caplog.text


# the cases


def test_pag_01_page_numbers_are_a_view_of_the_moment() -> None:
    """While jobs come and go every page is a correct page of the list of its moment, and none is an error."""
    listed = [f"job-2026{n:06}" for n in range(500)]
    newest = 500
    for page in range(1, 40):
        chosen, meta = select_ids(listed, page, 20)
        start = (meta.page - 1) * 20
        assert sorted(listed, reverse=True)[start : start + 20] == chosen
        listed = listed[2:] + [f"job-2026{newest + n:06}" for n in range(3)]
        newest += 3


def test_pag_01_is_documented() -> None:
    """The module says what page numbers do while jobs are added, and who reads by cursor instead."""
    import projections.paging

    assert "a page is a view of the moment" in (projections.paging.__doc__ or "")


def test_pag_02_ties_at_a_page_border_are_neither_lost_nor_repeated() -> None:
    """50 jobs of one millisecond, read by sevens, are 50 distinct jobs."""
    rng = random.Random(2)
    listed = [f"c-20260803-024106-{rng.getrandbits(48):012x}" for _ in range(50)]

    assert sorted(listed, reverse=True) == walk(listed, 7, job_ids.sort_key)


def test_pag_04_order_is_by_the_time_in_the_id() -> None:
    """Mixed prefixes, widths and cases are ordered by time, ties by the id's bytes, ids without time last."""
    newest_first = [
        "video-recipe-20260803-024107-aaaaaaaaaaaa",
        "mv-20260803-024106-b",
        "mv-20260803-024106-B",
        "20260803024106-z",
        "c20260717-113045-1a2b3c4d",
        "C-20260716-113045-1a2b3c4d5e6f",
        "zzz",
        "job--99",
        "job--101",
        "Zzz",
    ]
    for seed in range(20):
        shuffled = random.Random(seed).sample(newest_first, len(newest_first))
        assert newest_first == walk(shuffled, 3, job_ids.sort_key)


def test_pag_05_a_broken_row_does_not_break_the_list(caplog: pytest.LogCaptureFixture) -> None:
    """The good rows of a page are shown, from and to count them, and each row left out is logged with its id."""
    broken = {"job-2": ValueError("truncated"), "job-5": KeyError("state"), "job-8": PermissionDenied("403")}

    def load(job_id: str) -> str:
        if job_id in broken:
            raise broken[job_id]
        return job_id

    items, meta = load_page([f"job-{n}" for n in range(10)], 1, 10, load)

    assert ["job-9", "job-7", "job-6", "job-4", "job-3", "job-1", "job-0"] == items
    assert (1, 7, 10) == (meta.from_, meta.to, meta.total)
    assert 3 == len(caplog.records)
    assert all(f"job_id='{job_id}'" in caplog.text for job_id in broken)


def test_pag_05_a_store_that_refuses_every_row_is_an_error() -> None:
    """A page of which nothing could be read for a reason that the caller named raises it."""

    def load(job_id: str) -> str:
        raise PermissionDenied(f"403 job_id={job_id}")

    with pytest.raises(PermissionDenied, match="job_id=b"):
        load_page(["a", "b"], 1, 10, load, raise_if_all=(PermissionDenied, Unavailable))


def test_pag_05_one_row_of_another_kind_keeps_the_page() -> None:
    """A page of which one row is broken by itself is not taken for a store that cannot be read."""

    def load(job_id: str) -> str:
        raise PermissionDenied("403") if job_id == "a" else ValueError("truncated")

    items, meta = load_page(["a", "b"], 1, 10, load, raise_if_all=(PermissionDenied,))

    assert ([], 0, 2) == (items, meta.to, meta.total)


@pytest.fixture(scope="module")
def many() -> list[str]:
    return [f"job-{n:06}" for n in range(200_000)]


@pytest.mark.parametrize(
    ("page", "per_page", "shown_page", "rows"),
    [
        (1, 20, 1, 20),
        (10_000, 20, 10_000, 20),
        (10**12, 20, 10_000, 20),
        (0, 20, 1, 20),
        (-(10**12), 20, 1, 20),
        (1, 10**9, 1, 200_000),
        (10**12, 10**9, 1, 200_000),
        (1, -1, 1, 200_000),
        (10**12, -1, 10**12, 200_000),
    ],
)
def test_pag_08_any_page_of_a_long_list(many: list[str], page: int, per_page: int, shown_page: int, rows: int) -> None:
    """Whatever page is asked for, it is a page of the list, found within a second of CPU time."""
    began = time.thread_time()

    chosen, meta = select_ids(many, page, per_page)

    assert (rows, shown_page, per_page, 200_000) == (len(chosen), meta.page, meta.per_page, meta.total)
    assert time.thread_time() - began < 1


def test_pag_08_a_page_loads_only_its_rows(many: list[str]) -> None:
    """Of a long list only the rows of the page are loaded, by no more threads than slots."""
    threads: set[int] = set()

    def load(job_id: str) -> str:
        threads.add(threading.get_ident())
        return job_id

    items, _ = load_page(many, 10**12, 20, load, concurrency=4)

    assert many[19::-1] == items
    assert len(threads) <= 4
