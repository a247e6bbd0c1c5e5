"""What every event log promises, as a pytest class: subclass it and give it the fixture `log`."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from jobevents import codec
from jobevents.errors import AppendUnknown, Conflict, InvalidValue
from jobevents.events import EVENT_TYPES, Event
from jobevents.log import EventLog, Head
from jobevents.testing.log_census import LogCensus
from jobevents.testing.log_events import bare, ids_in, ids_of, note, notes, one_of_each, queued
from jobevents.testing.log_feeds import LogFeeds
from jobevents.testing.log_races import LogRaces
from jobevents.testing.log_rows import LogRows


class LogContract(LogFeeds, LogRows, LogCensus, LogRaces):
    """The log's behaviour; the fixture must give an empty log to each test, and close it."""

    ordered = True  # one sequence over all jobs, in commit order
    whole_calls = True  # of the events of one call, all are there or none
    races = 200  # fewer where a write takes long
    many = 1100  # fewer, as above, in hundreds, but over `at_a_time`
    at_a_time = 500  # events that a scan of many reads at a time
    keeps_rows = True  # a row of each job's current state, in the transaction of its events: `recorder.runs`

    @pytest.fixture
    def log(self) -> EventLog:
        raise NotImplementedError("override the fixture `log` with an empty log")

    # appending and reading

    def test_read_gives_what_was_appended(self, log: EventLog) -> None:
        """Events of every type come back with every field, in order of version."""
        events = one_of_each("a")

        log.append(events)

        assert set(EVENT_TYPES) == {event.type for event in log.read("a")}
        assert events == bare(log.read("a"))

    def test_append_returns_what_read_gives(self, log: EventLog) -> None:
        """The events returned carry the chain that is stored with them."""
        stored = log.append(one_of_each("a"))

        assert log.read("a") == stored
        assert all(event.chain for event in stored)

    def test_chain_covers_every_event(self, log: EventLog) -> None:
        """Each event's chain follows from its body and the chain before, over calls too."""
        for version in (1, 2):
            log.append([note("a", version)])
        log.append(notes("a", (3, 4)))

        assert [] == codec.chain_breaks(record.data for record in log.read_raw("a"))

    def test_stored_bytes_are_the_canonical_form(self, log: EventLog) -> None:
        """What is stored is the codec's body and chain, byte for byte, whatever the backend."""
        stored = log.append(one_of_each("a"))

        expected = [codec.seal(codec.encode(event), event.chain) for event in stored]
        assert expected == [record.data for record in log.read_raw("a")]

    def test_several_jobs_in_one_call(self, log: EventLog) -> None:
        """One call may append to several jobs, their events mixed."""
        log.append([note("b", 1)])
        events: list[Event] = [note("a", 1), note("b", 2), note("a", 2), note("c", 1)]

        stored = log.append(events)

        assert events == bare(stored)
        assert [1, 2] == [event.version for event in log.read("a")]
        assert [1, 2] == [event.version for event in log.read("b")]
        assert [1] == [event.version for event in log.read("c")]

    def test_jobs_with_alike_ids_are_apart(self, log: EventLog) -> None:
        """An id is exact: neither case nor a common start mixes two jobs."""
        alike = ["a", "A", "aa", "a-1", "a_1", "a-10"]
        for job_id in alike:
            log.append([note(job_id, 1, job_id)])

        assert alike == [event.title for job_id in alike for event in log.read(job_id)]  # type: ignore[attr-defined]

    def test_large_payload(self, log: EventLog) -> None:
        """A payload of 64 KiB comes back whole."""
        event = queued("a", params="x" * (64 * 1024 - 2))

        log.append([event])

        assert [event] == bare(log.read("a"))

    @pytest.mark.parametrize(
        "text", ["作品 ✓", "\U0001f600", "e\u0301", "\u2028</script>&", "\ufeff\uffff", 'a"\\\n\t']
    )
    def test_text(self, log: EventLog, text: str) -> None:
        """Any Unicode text comes back as it was given."""
        event = queued("a", params={text: text})

        log.append([event])

        assert [event] == bare(log.read("a"))

    # what is gone on from

    @pytest.mark.parametrize("known", [Head(3, "0" * 32), Head(2, "0" * 32)], ids=["missing", "another"])
    @pytest.mark.parametrize("more", [False, True], ids=["one", "several"])
    def test_append_after_what_is_not_there(self, log: EventLog, known: Head, more: bool) -> None:
        """A caller's head that the log does not have, as after an older copy was put back, is a Conflict; nothing is written."""
        stored = log.append(notes("a", (1, 2)))
        beside = [note("b", 1)] if more else []

        with pytest.raises(Conflict, match="older copy"):
            log.append([*beside, note("a", known.version + 1)], heads={"a": known})

        assert stored == log.read("a")
        assert not log.read("b")

    def test_append_after_a_known_head(self, log: EventLog) -> None:
        """Heads that are as the caller knows them are gone on from, of several jobs in one call, each by several events."""
        heads = {job_id: Head(1, log.append([note(job_id, 1)])[0].chain) for job_id in ("a", "b")}

        log.append([note("a", 2), note("b", 2), note("c", 1), note("a", 3)], heads=heads)

        assert {"a": [1, 2, 3], "b": [1, 2], "c": [1]} == {
            job_id: [event.version for event in log.read(job_id)] for job_id in ("a", "b", "c")
        }
        assert all(
            [] == codec.chain_breaks(record.data for record in log.read_raw(job_id)) for job_id in ("a", "b", "c")
        )

    # the same again

    def test_append_again(self, log: EventLog) -> None:
        """A call repeated with the same event ids succeeds, returns what is stored, and writes nothing."""
        events = [*notes("a", (1, 2)), note("b", 1)]
        stored = log.append(events)

        again = log.append(events)

        assert stored == again
        assert 3 == len(list(log.scan()))

    def test_append_again_after_later_events(self, log: EventLog) -> None:
        """A repeated call succeeds also when others have appended since."""
        stored = log.append(notes("a", (1, 2)))
        log.append(notes("a", (3, 4)))

        again = log.append(bare(stored))

        assert stored == again
        assert [1, 2, 3, 4] == [event.version for event in log.read("a")]

    def test_append_again_with_the_head_of_now(self, log: EventLog) -> None:
        """A repeated call succeeds also when the caller has looked at the head meanwhile."""
        stored = log.append(notes("a", (1, 2)))

        again = log.append(bare(stored), heads={"a": log.head("a")})

        assert stored == again

    # conflicts

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_conflict(self, log: EventLog, version: int) -> None:
        """Another event in a slot, the last or an earlier one, is refused; what is there stays."""
        stored = log.append(notes("a", (1, 2, 3)))

        with pytest.raises(Conflict, match=f"job_id=a version={version}"):
            log.append([note("a", version)])

        assert stored == log.read("a")

    def test_conflict_writes_nothing_of_the_call(self, log: EventLog) -> None:
        """When one event of a call meets another in its slot, those after it are not written."""
        stored = log.append(notes("a", (1, 2)))

        with pytest.raises(Conflict):
            log.append(notes("a", (2, 3, 4)))

        assert stored == log.read("a")

    @pytest.mark.parametrize("order", ["taken first", "taken last"])
    def test_conflict_writes_nothing_of_other_jobs(self, log: EventLog, order: str) -> None:
        """When a slot of one job is taken, nothing is written to the other jobs of the call."""
        log.append([note("b", 1)])
        events: list[Event] = [note("b", 1), note("a", 1), note("c", 1)]

        with pytest.raises(Conflict):
            log.append(events if order == "taken first" else events[::-1])

        assert [0, 1, 0] == [log.head(job_id).version for job_id in "abc"]

    def test_part_of_a_call_is_not_the_call(self, log: EventLog) -> None:
        """Events that were stored do not make up for one that was not: the whole call is refused."""
        first = note("a", 1)
        log.append([first, note("a", 2)])

        with pytest.raises(Conflict):
            log.append([first, note("a", 2)])

        assert 2 == log.head("a").version

    # holes

    @pytest.mark.parametrize("versions", [(2,), (5,), (1, 3), (1, 2, 4), (0,), (-1,), (0, 1), (1, 1), (2, 1)])
    def test_hole_in_a_new_job(self, log: EventLog, versions: tuple[int, ...]) -> None:
        """Versions start at 1 and go up by one: anything else is refused, and nothing is written."""
        with pytest.raises(InvalidValue, match="hole"):
            log.append(notes("a", versions))

        assert Head(0, "") == log.head("a")

    @pytest.mark.parametrize("with_heads", [False, True])
    @pytest.mark.parametrize("versions", [(4,), (3, 5), (9,)])
    def test_hole_after_what_is_there(self, log: EventLog, versions: tuple[int, ...], *, with_heads: bool) -> None:
        """A hole after a job's last event is refused, whether the caller gave its head or not."""
        log.append(notes("a", (1, 2)))
        heads = {"a": log.head("a")} if with_heads else None

        with pytest.raises(InvalidValue, match="hole"):
            log.append(notes("a", versions), heads=heads)

        assert 2 == log.head("a").version

    def test_hole_writes_nothing_of_other_jobs(self, log: EventLog) -> None:
        """A hole in one job refuses the whole call."""
        with pytest.raises(InvalidValue):
            log.append([note("a", 1), note("b", 2)])

        assert [] == list(log.scan())

    # what was cut short

    def test_a_call_that_was_cut_short_is_completed(self, log: EventLog) -> None:
        """Where a call may have left its first events, the same call again writes the others."""
        if self.whole_calls:
            pytest.skip("this log cuts no call short")
        events: list[Event] = [*notes("a", (1, 2, 3)), *notes("b", (1, 2))]
        log.append(events[:1])
        log.append([events[3]])

        stored = log.append(events)

        assert events == bare(stored)
        assert events == bare([*log.read("a"), *log.read("b")])
        assert [] == codec.chain_breaks(record.data for record in log.read_raw("a"))

    def test_the_outcome_of_an_append_is_found(self, log: EventLog) -> None:
        """By its id an event is known to be there, to have lost its slot, or not to be there yet."""
        stored = log.append([note("a", 1)])

        asked = [AppendUnknown("a", 1, stored[0].id), AppendUnknown("a", 1, "other"), AppendUnknown("a", 2, "late")]

        assert [True, False, None] == [log.resolve(one) for one in asked]

    # heads

    def test_head_given(self, log: EventLog) -> None:
        """An append onto the head that the caller knows is chained to it."""
        stored = log.append([note("a", 1)])

        log.append(notes("a", (2, 3)), heads={"a": Head(1, stored[0].chain)})

        assert [] == codec.chain_breaks(record.data for record in log.read_raw("a"))

    def test_head_of_one_job_given(self, log: EventLog) -> None:
        """Jobs whose head is not given are looked up beside one whose head is."""
        log.append([note("a", 1), note("b", 1)])

        log.append([note("a", 2), note("b", 2)], heads={"a": log.head("a")})

        for job_id in "ab":
            assert [] == codec.chain_breaks(record.data for record in log.read_raw(job_id))

    def test_stale_head(self, log: EventLog) -> None:
        """An append onto a head that is no longer the last is a Conflict, and nothing is written."""
        log.append([note("a", 1)])
        stale = log.head("a")
        stored = log.append([note("a", 2)])

        with pytest.raises(Conflict):
            log.append(notes("a", (2, 3)), heads={"a": stale})

        assert ids_of(stored) == ids_in(log, "a")[1:]

    def test_head(self, log: EventLog) -> None:
        """The head is version and chain of the last event."""
        stored = log.append([*notes("a", (1, 2, 3)), note("b", 1)])

        assert Head(3, stored[2].chain) == log.head("a")

    def test_unknown_job(self, log: EventLog) -> None:
        """A job that was never appended to has no events, and its head is 0."""
        log.append([note("a", 1)])

        assert [] == log.read("b")
        assert [] == log.read_raw("b")
        assert Head(0, "") == log.head("b")

    @pytest.mark.parametrize(
        ("after", "until", "found"),
        [
            (0, None, [1, 2, 3, 4]),
            (2, None, [3, 4]),
            (4, None, []),
            (9, None, []),
            (0, 2, [1, 2]),
            (1, 3, [2, 3]),
            (2, 2, []),
            (3, 9, [4]),
            (0, 0, []),
        ],
    )
    def test_read_a_part(self, log: EventLog, after: int, until: int | None, found: list[int]) -> None:
        """A part of a history begins after one version and ends with another."""
        log.append([*notes("a", range(1, 5)), *notes("b", range(1, 5))])

        assert found == [event.version for event in log.read("a", after=after, until=until)]
