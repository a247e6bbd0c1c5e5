"""The part of the log contract about rows: the current state of each job, in the transaction of its events."""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from jobevents.errors import Busy, Conflict, KeyTaken
from jobevents.events import Event, JobCanceled, JobDeleted, JobProgressed, JobStarted, new_event_id
from jobevents.job import fold
from jobevents.limits import Limit
from jobevents.log import EventLog
from jobevents.store import RunFilter, RunTable, run_of
from jobevents.testing.blob_races import together
from jobevents.testing.log_events import AT, ids_in, note, notes, one_of_each, queued


class LogRows:
    """Promises of logs that keep rows; `LogContract` includes them, and skips them where `keeps_rows` is False."""

    keeps_rows = True

    @pytest.fixture
    def runs(self, log: EventLog) -> RunTable:
        """The rows of the log."""
        if not self.keeps_rows:
            pytest.skip("this log keeps no rows")
        return log.recorder.runs  # type: ignore[attr-defined, no-any-return]  # recorders that keep rows have it

    def test_row_is_written_with_its_events(self, log: EventLog, runs: RunTable) -> None:
        """After an append the row is the fold of the job's events."""
        store(log, [queued("a", params={"song": 7})])
        store(log, notes("a", (2, 3)))

        assert run_of(fold(log.read("a"))) == runs.get("a")

    def test_row_follows_every_event(self, log: EventLog, runs: RunTable) -> None:
        """After each event of any type, appended alone, the row is the fold of the job's events."""
        events = one_of_each("a")[:-1]

        for number, event in enumerate(events, 1):
            store(log, [event])

            assert run_of(fold(events[:number])) == runs.get("a"), event.type

    def test_rows_of_several_jobs(self, log: EventLog, runs: RunTable) -> None:
        """One call writes the rows of all its jobs."""
        log.append([queued("a"), queued("b")], rows=[fold([queued("a")]), fold([queued("b")])])

        assert ["b", "a"] == [run.id for run in runs.list(RunFilter()).runs]

    def test_conflict_leaves_the_rows(self, log: EventLog, runs: RunTable) -> None:
        """A call that meets another event in a slot changes no row, of no job."""
        store(log, [queued("a")])
        before = runs.get("a")
        lost = [queued("b"), queued("a", params="other")]

        with pytest.raises(Conflict):
            log.append(lost, rows=[fold([event]) for event in lost])

        assert before == runs.get("a")
        assert runs.get("b") is None

    def test_key_taken(self, log: EventLog, runs: RunTable) -> None:
        """The key of an unfinished job is refused to another, which is named, and nothing is written."""
        store(log, [queued("a", key="k")])
        last = log.last_cursor()

        with pytest.raises(KeyTaken) as refused:
            store(log, [queued("b", key="k")])

        assert ("a", "k") == (refused.value.job_id, refused.value.key)
        assert [] == log.read("b")
        assert runs.get("b") is None
        assert last == log.last_cursor()

    def test_key_taken_writes_nothing_of_other_jobs(self, log: EventLog, runs: RunTable) -> None:
        """A key that is taken refuses the whole call, rows before it too."""
        store(log, [queued("a", key="k")])
        events = [queued("c"), queued("b", key="k"), queued("d")]

        with pytest.raises(KeyTaken):
            log.append(events, rows=[fold([event]) for event in events])

        assert ["a"] == [record.job_id for record in log.scan()]
        assert ["a"] == [run.id for run in runs.list(RunFilter()).runs]

    def test_key_twice_in_a_call(self, log: EventLog, runs: RunTable) -> None:
        """Two jobs of one call cannot hold one key."""
        events = [queued("a", key="k"), queued("b", key="k")]

        with pytest.raises(KeyTaken):
            log.append(events, rows=[fold([event]) for event in events])

        assert [] == list(log.scan())
        assert 0 == runs.list(RunFilter()).total

    def test_slot_conflict_is_no_taken_key(self, log: EventLog, runs: RunTable) -> None:
        """Where the slot is taken and the key too, it is the slot that is told of."""
        store(log, [queued("a", key="k")])
        store(log, [queued("b")])

        with pytest.raises(Conflict) as refused:
            store(log, [queued("b", key="k")])

        assert Conflict is type(refused.value)
        assert "a" == runs.find_active("render", "k")

    def test_own_key_is_not_taken(self, log: EventLog, runs: RunTable) -> None:
        """The repeated call of the job that holds the key succeeds."""
        event = queued("a", key="k")
        stored = store(log, [event])

        again = store(log, [event])

        assert stored == again
        assert "a" == runs.find_active("render", "k")

    def test_key_is_free_after_the_end(self, log: EventLog, runs: RunTable) -> None:
        """The key of a job that ended can be taken by the next, in the same call too."""
        store(log, [queued("a", key="k")])
        end = JobCanceled(job_id="a", version=2, id=new_event_id(), at=AT)
        events: list[Event] = [end, queued("b", key="k")]

        log.append(events, rows=[fold([end], fold(log.read("a"))), fold(events[1:])])

        assert "b" == runs.find_active("render", "k")

    def test_one_of_eight_gets_a_key(self, log: EventLog, runs: RunTable) -> None:
        """Of eight jobs with one key submitted at once, one is written and seven not at all."""
        for turn in range(20):

            def submit(number: int, turn: int = turn) -> str:
                store(log, [queued(f"a{turn}-{number}", key=f"k{turn}")])
                return f"a{turn}-{number}"

            (winner,) = together(submit).values()

            assert winner == runs.find_active("render", f"k{turn}")
        assert 20 == len(list(log.scan())) == runs.list(RunFilter()).total

    def test_older_row_does_not_replace_a_newer_one(self, log: EventLog, runs: RunTable) -> None:
        """A row of a lower version than the one there is passed over."""
        old = fold(store(log, [queued("a")]))
        store(log, [note("a", 2, "new")])

        log.append([queued("b")], rows=[old])

        assert run_of(fold(log.read("a"))) == runs.get("a")

    def test_row_is_never_older_than_the_log(self, log: EventLog, runs: RunTable) -> None:
        """A reader that reads the log first and the row then sees a row at least as new."""
        store(log, [queued("a")])
        behind = []

        def work(number: int) -> str:
            if number == 0:
                for version in range(2, 61):
                    made = JobProgressed(
                        job_id="a", version=version, id=new_event_id(), at=AT, start=1, percent=version
                    )
                    store(log, [made])
            else:
                while (version := log.head("a").version) < 60:
                    run = runs.get("a")
                    if run is None or (version > 1 and run.progress < version):
                        behind.append((version, run))
            return ""

        together(work)

        assert [] == behind

    def test_row_of_a_deleted_job_is_gone(self, log: EventLog, runs: RunTable) -> None:
        """A deleted job has events and no row, and its key is free."""
        store(log, [queued("a", key="k")])
        store(log, [JobDeleted(job_id="a", version=2, id=new_event_id(), at=AT)])

        store(log, [queued("b", key="k")])

        assert runs.get("a") is None
        assert ["b"] == [run.id for run in runs.list(RunFilter()).runs]
        assert 2 == len(ids_in(log, "a"))

    @pytest.mark.parametrize("limit", [Limit("job_name", "render", 3), Limit("queue", "default", 3)])
    def test_limit_is_exact(self, log: EventLog, runs: RunTable, limit: Limit) -> None:
        """Of eight jobs started at once as many run as the limit lets, and of the others nothing is written."""

        def start(number: int) -> str:
            store(log, [queued(f"a{number}")])
            with suppress(Busy):
                store(log, [started(f"a{number}")], limits=[limit])
            return ""

        together(start)

        running = runs.running_ids("render")
        assert 3 == len(running)
        assert [2 if f"a{n}" in running else 1 for n in range(8)] == [log.head(f"a{n}").version for n in range(8)]

    def test_limit_counts_its_own_kind(self, log: EventLog, runs: RunTable) -> None:
        """Running jobs of other kinds and queues do not count, nor those that ended."""
        for job_id in ("other", "ended"):
            first = queued(job_id) if job_id == "ended" else msgspec.structs.replace(queued(job_id), name="mix")
            store(log, [first, started(job_id)])
        store(log, [JobCanceled(job_id="ended", version=3, id=new_event_id(), at=AT, start=2)])
        store(log, [queued("a")])

        store(log, [started("a")], limits=[Limit("job_name", "render", 1), Limit("queue", "slow", 1)])

        assert ["a"] == list(runs.running_ids("render"))

    def test_limit_lets_a_job_start_over(self, log: EventLog, runs: RunTable) -> None:
        """A running job that is started anew takes no second place."""
        store(log, [queued("a"), started("a")])

        store(log, [started("a", 3)], limits=[Limit("job_name", "render", 1)])

        assert ["a"] == list(runs.running_ids("render"))

    def test_limit_names_itself(self, log: EventLog, runs: RunTable) -> None:
        """Busy says which limit is reached, and by whose start."""
        for job_id in ("a", "b"):
            store(log, [queued(job_id)])
        store(log, [started("a")])

        with pytest.raises(Busy) as refused:
            store(log, [started("b")], limits=[Limit("queue", "slow", 1), Limit("job_name", "render", 1)])

        assert ("b", "job_name", "render") == (refused.value.job_id, refused.value.column, refused.value.value)

    def test_slot_conflict_is_not_busy(self, log: EventLog, runs: RunTable) -> None:
        """Where somebody else took the slot, that is what is told: the decision has to be made again."""
        store(log, [queued("a"), started("a")])
        store(log, [queued("b"), note("b", 2)])

        with pytest.raises(Conflict):
            store(log, [started("b")], limits=[Limit("job_name", "render", 1)])


def started(job_id: str, version: int = 2) -> JobStarted:
    """Return the start of a job."""
    return JobStarted(job_id=job_id, version=version, id=new_event_id(), at=AT, attempt=1)


def store(log: EventLog, events: Sequence[Event], *, limits: Sequence[Limit] = ()) -> list[Event]:
    """Append the next events of one job, with the row that follows from them and all before."""
    job_id, first = events[0].job_id, events[0].version
    before = fold(log.read(job_id, until=first - 1), job_id=job_id)
    return log.append(events, rows=[fold(events, before)], limits=limits)
