"""The part of the log contract in which threads meet."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from jobevents import codec
from jobevents.errors import Conflict
from jobevents.log import EventLog
from jobevents.testing.blob_races import THREADS, together
from jobevents.testing.log_events import ids_in, note, notes


class LogRaces:
    """Promises to writers of one job at once; `LogContract` includes them."""

    whole_calls = True
    races = 200  # slots that eight threads race for

    def test_one_of_eight_gets_a_slot(self, log: EventLog) -> None:
        """Of eight threads that append to one slot, one succeeds and seven meet a Conflict, every time."""
        won = []
        for version in range(1, self.races + 1):

            def claim(_: int, version: int = version) -> str:
                return log.append([note("a", version)])[0].id

            won.append(list(together(claim).values()))

        assert [1] * self.races == [len(winners) for winners in won]
        assert [winner for winners in won for winner in winners] == ids_in(log, "a")
        assert [] == codec.chain_breaks(record.data for record in log.read_raw("a"))

    def test_eight_that_append_the_same_succeed(self, log: EventLog) -> None:
        """Of eight threads that append one and the same event, all succeed, and it is stored once."""
        for version in range(1, min(20, self.races) + 1):
            event = note("a", version)

            told = together(lambda _, event=event: log.append([event])[0].chain)  # type: ignore[misc]

            assert [log.head("a").chain] * THREADS == list(told.values())
        assert min(20, self.races) == len(list(log.scan()))

    def test_calls_over_several_jobs_meet(self, log: EventLog) -> None:
        """Of eight calls over the same two jobs, in either order, one is written whole and seven not at all."""
        for version in range(1, min(20, self.races) + 1):

            def claim(number: int, version: int = version) -> str:
                events = [note("a", version, str(number)), note("b", version, str(number))]
                log.append(events if number % 2 else events[::-1])
                return str(number)

            (winner,) = together(claim).values()

            assert [winner] * 2 == [log.read(job_id)[-1].title for job_id in "ab"]  # type: ignore[attr-defined]

    def test_one_history_of_eight_writers(self, log: EventLog) -> None:
        """Eight threads that append to one job, each trying again after a Conflict, lose nothing and leave no hole."""

        turns = range(min(10, self.races))

        def write(number: int) -> str:
            for turn in turns:
                while not appended(log, f"{number}-{turn}"):
                    pass
            return ""

        together(write)

        events = log.read("a")
        assert list(range(1, THREADS * len(turns) + 1)) == [event.version for event in events]
        assert {f"{n}-{turn}" for n in range(THREADS) for turn in turns} == {
            event.title  # type: ignore[attr-defined]
            for event in events
        }
        assert [] == codec.chain_breaks(record.data for record in log.read_raw("a"))

    def test_reader_sees_whole_calls(self, log: EventLog) -> None:
        """A reader never sees a part of a call: events of one call are there together."""
        if not self.whole_calls:
            pytest.skip("this log writes a call's events one after the other")
        calls = 50

        def work(number: int) -> str:
            if number == 0:
                for first in range(1, 3 * calls, 3):
                    log.append(notes("a", range(first, first + 3)))
            else:
                while (count := len(log.read("a"))) < 3 * calls:
                    seen.add(count % 3)
            return ""

        seen = {0}
        together(work)

        assert {0} == seen


def appended(log: EventLog, title: str) -> bool:
    """Append an event at the head of job `a`, unless somebody else is first."""
    head = log.head("a")
    try:
        log.append([note("a", head.version + 1, title)], heads={"a": head})
    except Conflict:
        return False
    return True
