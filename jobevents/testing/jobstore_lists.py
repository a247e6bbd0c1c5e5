"""The part of the store's contract about finding runs: by key, by state, in lists."""

# ruff: noqa: SIM300 - the expected value stands first

from datetime import timedelta
from typing import Any

import pytest

from jobevents.errors import KeyTaken
from jobevents.store import JobStore, RunFilter
from jobevents.testing.blob_races import together
from jobevents.testing.clock import START
from jobevents.testing.runs import FINAL, changed, ended, listed, run


class JobStoreLists:
    """Promises to those who look for runs; `JobStoreContract` includes them."""

    # by key

    @pytest.mark.parametrize("status", ["queued", "running", "waiting"])
    def test_an_unfinished_run_holds_its_key(self, store: JobStore, status: str) -> None:
        """The run is found by kind and key, whatever it does until it finishes."""
        store.create(run(idem_key="k", status=status))

        assert store.get("a") == store.find_active("render", "k")

    @pytest.mark.parametrize("status", FINAL)
    def test_a_finished_run_holds_no_key(self, store: JobStore, status: str) -> None:
        """Neither one that finishes nor one that was finished from the start is ever found."""
        store.create(run(idem_key="k"))
        changed(store, "a", status=status, finished_at=START)
        store.create(ended("b", status=status, idem_key="k"))

        assert store.find_active("render", "k") is None

    @pytest.mark.parametrize(("job", "key"), [("render", "other"), ("mix", "k"), ("render", ""), ("", "")])
    def test_a_key_is_of_one_kind(self, store: JobStore, job: str, key: str) -> None:
        """Another key, another kind of job, or no key at all finds nobody."""
        store.create(run(idem_key="k"))
        store.create(run("b"))

        assert store.find_active(job, key) is None

    def test_a_key_is_free_again(self, store: JobStore) -> None:
        """After the end of its holder the key is another run's."""
        store.create(run(idem_key="k"))
        changed(store, "a", status="canceled", finished_at=START)

        store.create(run("b", idem_key="k"))

        found = store.find_active("render", "k")
        assert found is not None
        assert "b" == found.id

    def test_a_key_is_taken(self, store: JobStore) -> None:
        """A second unfinished run with the key is refused, the holder named, and nothing stored."""
        store.create(run(idem_key="k"))

        with pytest.raises(KeyTaken) as refused:
            store.create(run("b", idem_key="k"))

        assert ("a", "k") == (refused.value.job_id, refused.value.key)
        assert ["a"] == listed(store)

    def test_one_of_eight_gets_a_key(self, store: JobStore) -> None:
        """Of eight runs with one key created at once, one is stored."""

        def create(number: int) -> str:
            store.create(run(f"a{number}", idem_key="k"))
            return f"a{number}"

        (winner,) = together(create).values()

        assert [winner] == listed(store)

    def test_a_run_is_never_found_finished(self, store: JobStore) -> None:
        """While one run after the other takes the key and finishes, whoever is found has not finished."""
        found = []

        def work(number: int) -> str:
            for turn in range(20):
                if number == 0:
                    store.create(run(f"a{turn}", idem_key="k"))
                    changed(store, f"a{turn}", status="succeeded", finished_at=START)
                elif (active := store.find_active("render", "k")) is not None:
                    found.append(active.status)
            return ""

        together(work)

        assert {"queued"} >= set(found)

    # running

    def test_running_ids_are_sorted_and_of_one_kind(self, store: JobStore) -> None:
        """Only what runs now, and is of that kind."""
        for run_id in ("b", "c", "a"):
            store.create(run(run_id, status="running"))
        store.create(run("d"))
        store.create(run("e", status="running", job_name="mix"))
        changed(store, "c", status="failed", finished_at=START)

        assert ["a", "b"] == list(store.running_ids("render"))

    # lists

    def test_the_newest_come_first(self, store: JobStore) -> None:
        """By the time in the id, then by id, both descending."""
        expected = ["b-20260727-000000-0", "c-20260726-000000-0", "a-20260726-000000-0"]
        for run_id in sorted(expected):
            store.create(run(run_id))

        assert expected == listed(store)

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({"job": "render"}, ["c", "a"]),
            ({"statuses": ("queued", "failed")}, ["b", "a"]),
            ({"trigger": "schedule"}, ["b"]),
            ({"queue": "slow"}, ["c"]),
            ({"queue": "slow", "statuses": ("queued",)}, []),
            ({"job": "nothing"}, []),
            ({"from_": START + timedelta(minutes=1), "to": START + timedelta(minutes=2)}, ["c", "b"]),
            ({"to": START}, ["a"]),
            ({"from_": START + timedelta(minutes=3)}, []),
        ],
    )
    def test_lists_are_filtered(self, store: JobStore, asked: dict[str, Any], expected: list[str]) -> None:
        """By kind, states, trigger, queue and time of creation, both ends included, all at once."""
        store.create(run("a"))
        store.create(run("b", job_name="mix", trigger="schedule", created_at=START + timedelta(minutes=1)))
        store.create(run("c", queue="slow", status="running", created_at=START + timedelta(minutes=2)))

        assert expected == listed(store, **asked)

    def test_lists_are_paged(self, store: JobStore) -> None:
        """The total counts all that match; a page past the end is empty."""
        for number in range(5):
            store.create(run(f"a{number}"))

        pages = [store.list(RunFilter(page=number, per_page=2)) for number in (1, 3, 4)]

        assert [["a4", "a3"], ["a0"], []] == [[one.id for one in page.runs] for page in pages]
        assert [(5, 1, 2), (5, 3, 2), (5, 4, 2)] == [(page.total, page.page, page.per_page) for page in pages]

    @pytest.mark.parametrize(("page", "per_page"), [(0, 50), (-1, 50), (7, 0), (1, -1)])
    def test_odd_page_numbers_mean_the_first_or_all(self, store: JobStore, page: int, per_page: int) -> None:
        """A page below 1 is the first; without a size all are on one."""
        for number in range(3):
            store.create(run(f"a{number}"))

        assert ["a2", "a1", "a0"] == listed(store, page=page, per_page=per_page)
