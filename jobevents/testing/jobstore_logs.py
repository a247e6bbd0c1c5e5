"""The part of the store's contract about log lines and about what is purged."""

# ruff: noqa: SIM300 - the expected value stands first

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from jobevents.errors import Conflict, NotFound
from jobevents.store import Cutoffs, JobLog, JobStore
from jobevents.testing.blob_races import together
from jobevents.testing.clock import START
from jobevents.testing.runs import FINAL, SPELLINGS, changed, ended, listed, run

SPACING = 1_000_000  # of the numbers of two attempts' lines


def line(seq: int, run_id: str = "a", **fields: Any) -> JobLog:  # Any: the fields of a JobLog
    """Return a log line, written at START."""
    return JobLog(
        **{"run_id": run_id, "seq": seq, "attempt": 1, "at": START, "level": "info", "message": "m", **fields}
    )


def days(number: float) -> datetime:
    """Return the time so many days before START."""
    return START - timedelta(days=number)


class JobStoreLogs:
    """Promises about lines, and about what is kept; `JobStoreContract` includes them."""

    remembers_purged = True

    # lines

    def test_a_line_comes_back_whole(self, store: JobStore) -> None:
        """Every field is read as it was written."""
        store.create(run())
        written = line(1, attempt=2, level="warn", message="ü\n😀", attrs={"a": [1, {"b": None}]})

        store.append_logs([written])

        assert [written] == list(store.logs("a"))

    def test_log_01_lines_ascend_over_attempts(self, store: JobStore) -> None:
        """LOG-01: the number says the order, whatever order and however many at once they were written in."""
        store.create(run())
        lines = [line(attempt * SPACING + n, attempt=attempt) for attempt in (1, 2, 3) for n in range(1, 41)]
        batches = [lines[at : at + 15] for at in range(0, len(lines), 15)]

        def write(number: int) -> str:
            store.append_logs(batches[-1 - number][::-1])
            return ""

        together(write)

        assert lines == list(store.logs("a"))

    def test_log_02_a_reader_gets_every_line_once(self, store: JobStore) -> None:
        """LOG-02: three attempts of a hundred lines, read in pages of thirty by the last number seen."""
        store.create(run())
        lines = [line(attempt * SPACING + n, attempt=attempt) for attempt in (1, 2, 3) for n in range(1, 101)]
        read: list[JobLog] = []

        for at in range(0, 300, 50):
            store.append_logs(lines[at : at + 50])
            while page := store.logs("a", read[-1].seq if read else 0, 30):
                read += page

        assert lines == read

    @pytest.mark.parametrize(
        ("after", "limit", "expected"),
        [(0, 0, [1, 2, 3]), (1, 0, [2, 3]), (0, 2, [1, 2]), (1, 1, [2]), (3, 5, []), (0, -1, [1, 2, 3])],
    )
    def test_lines_after_a_number(self, store: JobStore, after: int, limit: int, expected: list[int]) -> None:
        """Above the cursor, at most `limit`, 0 or less for all."""
        store.create(run())
        store.append_logs([line(seq) for seq in (1, 2, 3)])

        assert expected == [found.seq for found in store.logs("a", after, limit)]

    def test_no_lines_are_a_no_op(self, store: JobStore) -> None:
        """An empty batch is written without a word."""
        store.create(run())

        store.append_logs([])

        assert [] == list(store.logs("a"))

    def test_lines_are_of_one_run(self, store: JobStore) -> None:
        """The lines of another run, even of one batch, are its own."""
        for run_id in ("a", "aa"):
            store.create(run(run_id))

        store.append_logs([line(1), line(2, "aa"), line(3)])

        assert [1, 3] == [found.seq for found in store.logs("a")]

    def test_a_batch_sent_again_is_there_once(self, store: JobStore) -> None:
        """After a lost reply a batch may come again; what is there stays as it is."""
        store.create(run())
        store.append_logs([line(1)])

        store.append_logs([line(1, message="other"), line(2)])

        assert [line(1), line(2)] == list(store.logs("a"))

    # what is purged

    def test_sto_03_old_finished_runs_go(self, store: JobStore) -> None:
        """STO-03: by when they finished, not by when they were made; what has not finished stays."""
        old: dict[str, Any] = {"created_at": days(30), "started_at": days(30)}
        store.create(run("running", **{**old, "status": "running"}))
        store.create(run("tomorrow", **{**old, "started_at": None, "scheduled_at": days(-1)}))
        store.create(run("retrying", **{**old, "attempt": 2}))
        store.create(ended("yesterday", **{**old, "finished_at": days(1)}))
        store.create(ended("long-ago", **{**old, "finished_at": days(20)}))

        count = store.purge(days(7), days(7))

        assert 1 == count
        assert ["retrying", "running", "tomorrow", "yesterday"] == sorted(listed(store))

    @pytest.mark.parametrize("status", FINAL)
    def test_every_end_is_an_end(self, store: JobStore, status: str) -> None:
        """A run goes however it finished, and nothing of it is left."""
        store.create(ended(status=status, finished_at=days(20)))
        store.append_logs([line(1)])

        store.purge(days(7), days(30))

        with pytest.raises(NotFound):
            store.get("a")
        assert [] == list(store.logs("a"))

    def test_the_time_itself_is_kept(self, store: JobStore) -> None:
        """Only what finished before it is old."""
        store.create(ended(finished_at=days(7)))

        assert 0 == store.purge(days(7), days(7))

    def test_tim_02_one_instant_in_three_zones(self, store: JobStore) -> None:
        """TIM-02: what is listed, in which order and what is purged follows the instant, however it is written."""
        for number, when in enumerate(SPELLINGS):
            store.create(ended(f"a{number}", created_at=when, finished_at=when))
        read = [store.get(f"a{number}") for number in range(3)]
        since = [listed(store, from_=when, to=when) for when in SPELLINGS]
        kept = [store.purge(when, when) for when in SPELLINGS]

        assert {(START, START)} == {(one.created_at, one.finished_at) for one in read}
        assert all(one.created_at.tzinfo is not None for one in read)
        assert [["a2", "a1", "a0"]] * 3 == since
        assert [0, 0, 0] == kept
        assert 3 == store.purge(SPELLINGS[0] + timedelta(microseconds=1), START)

    def test_many_are_purged(self, store: JobStore) -> None:
        """More than one batch goes, and a second purge finds nothing."""
        for number in range(230):
            store.create(ended(f"a{number}", finished_at=days(20)))

        assert (230, 0) == (store.purge(days(7), days(7)), store.purge(days(7), days(7)))
        assert [] == listed(store)

    def test_old_lines_go_before_their_run(self, store: JobStore) -> None:
        """Lines have a time of their own to be kept."""
        store.create(ended(finished_at=days(3)))
        store.append_logs([line(1, at=days(9)), line(2, at=days(2))])

        store.purge(days(30), days(7))

        assert [2] == [found.seq for found in store.logs("a")]

    def test_an_unfinished_run_keeps_its_lines(self, store: JobStore) -> None:
        """Nothing of what still runs is purged, however long it has been running."""
        store.create(run(status="running", created_at=days(30)))
        store.append_logs([line(1, at=days(20))])

        store.purge(days(7), days(7))

        assert [1] == [found.seq for found in store.logs("a")]

    def test_kinds_are_kept_as_long_as_they_ask(self, store: JobStore) -> None:
        """A kind of job may have times of its own, longer or shorter than those of the others."""
        for name in ("render", "mix", "settle"):
            store.create(ended(name, job_name=name, finished_at=days(20)))
            store.append_logs([line(1, name, at=days(20))])
        own = {"mix": Cutoffs(days(30), days(10)), "settle": Cutoffs(days(30), days(30))}

        count = store.purge(days(7), days(7), but=own)

        assert (1, ["mix", "settle"]) == (count, sorted(listed(store)))
        assert [[], [1]] == [[found.seq for found in store.logs(name)] for name in ("mix", "settle")]

    def test_a_purged_run_takes_nothing_more(self, store: JobStore) -> None:
        """What a worker says of it afterwards brings no part of it back."""
        store.create(ended(finished_at=days(20)))
        late = store.get("a")
        store.purge(days(7), days(7))

        with pytest.raises(NotFound):
            store.update(msgspec.structs.replace(late, progress=50))
        with pytest.raises(NotFound):
            store.request_cancel("a", "bob", "")

        assert [] == listed(store)

    def test_a_purged_id_stays_taken(self, store: JobStore) -> None:
        """A run that is gone never comes back as another one."""
        if not self.remembers_purged:
            pytest.skip("this store forgets what it purged")
        store.create(ended(finished_at=days(20)))
        store.purge(days(7), days(7))

        with pytest.raises(Conflict):
            store.create(run())

        assert [] == listed(store)

    def test_a_purge_meets_a_run_that_goes_on(self, store: JobStore) -> None:
        """A failed run that is queued again while the purge runs is either gone or whole."""
        for number in range(40):
            store.create(ended(f"a{number}", status="failed", finished_at=days(20)))

        def work(number: int) -> str:
            if number == 0:
                store.purge(days(7), days(7))
            else:
                for turn in range(40):
                    with suppress(NotFound, Conflict):
                        changed(store, f"a{turn}", status="queued", finished_at=None)
            return ""

        together(work)

        assert {"queued"} >= {store.get(run_id).status for run_id in listed(store)}
