"""The logs in memory and in SQLite keep the contract, and behave as a dictionary of lists does."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobevents import codec
from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.backends.sqlitefile import Synchronous
from jobevents.errors import Conflict, InvalidValue
from jobevents.events import Event, JobProgressed, JobRecorded, new_event_id
from jobevents.job import fold
from jobevents.log import EventLog, Head
from jobevents.store import run_of
from jobevents.testing import LogContract
from jobevents.testing.log_events import AT, bare, note, queued


def memory_log() -> EventLog:
    """Return an empty log in memory."""
    recorder = MemoryRecorder()
    return EventLog(recorder, recorder.translate)


def sqlite_log(path: Path, synchronous: Synchronous = "normal") -> EventLog:
    """Open the log in a file."""
    recorder = SqliteRecorder.open(path, synchronous=synchronous)
    return EventLog(recorder, recorder.translate)


class TestMemoryLog(LogContract):
    """The log in memory keeps the contract."""

    @pytest.fixture
    def log(self) -> Iterator[EventLog]:
        log = memory_log()
        yield log
        log.close()


class TestSqliteLog(LogContract):
    """The log in a SQLite file keeps the contract, every commit on the disk."""

    synchronous: Synchronous = "full"

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        log = sqlite_log(tmp_path / "jobs.db", self.synchronous)
        yield log
        log.close()

    def test_row_that_no_table_takes_is_invalid(self, log: EventLog) -> None:
        """A row that breaks the table's rules is no Conflict, after which a caller tries again for ever."""
        event = JobRecorded(job_id="a", version=1, id=new_event_id(), at=AT, state="failed", changes={"command": None})

        with pytest.raises(InvalidValue, match="job_id=a"):
            log.append([event], rows=[fold([event])])

        assert [] == log.read("a")


class TestSqliteNormalLog(TestSqliteLog):
    """The log in a SQLite file keeps the contract, a commit left to the operating system."""

    synchronous = "normal"


Asked: TypeAlias = list[tuple[str, str]]  # job and text of each event of a call
JOBS = st.sampled_from(["a", "A", "b-1"])
CALLS = st.lists(st.tuples(JOBS, st.text(max_size=8)), min_size=1, max_size=4)


class MemoryModel(RuleBasedStateMachine):
    """A log beside a dictionary from job to its events, and the list of all events: both always say the same."""

    persistent = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.log = self.open()
        self.jobs: dict[str, list[Event]] = {}
        self.all: list[Event] = []
        self.calls: list[list[Event]] = []

    def open(self) -> EventLog:
        return memory_log()

    def teardown(self) -> None:
        self.log.close()
        self.directory.cleanup()

    def events(self, asked: Asked) -> list[Event]:
        """Make the events that follow what the jobs have."""
        versions = {job_id: len(events) for job_id, events in self.jobs.items()}
        made: list[Event] = []
        for job_id, text in asked:
            version = versions[job_id] = versions.get(job_id, 0) + 1
            if version == 1:
                made.append(queued(job_id, params=text))
            elif text:
                made.append(note(job_id, version, text))
            else:
                made.append(
                    JobProgressed(job_id=job_id, version=version, id=new_event_id(), at=AT, start=1, percent=version)
                )
        return made

    def refused(self, events: Sequence[Event], error: type[Exception]) -> None:
        """Append what cannot be; the invariants say that nothing came of it."""
        with pytest.raises(error):
            self.log.append(events, rows=[fold([event for event in events if event.version == 1])])

    @rule(asked=CALLS, with_heads=st.booleans())
    def append(self, asked: Asked, with_heads: bool) -> None:
        events = self.events(asked)
        rows = []
        for job_id in {event.job_id for event in events}:
            self.jobs.setdefault(job_id, [])
            rows.append(fold([*self.jobs[job_id], *(event for event in events if event.job_id == job_id)]))
        heads = {job_id: self.head(job_id) for job_id in self.jobs} if with_heads else None

        stored = self.log.append(events, heads=heads, rows=rows)

        assert events == bare(stored)
        self.calls.append(stored)
        self.all += stored
        for event in stored:
            self.jobs[event.job_id].append(event)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), with_heads=st.booleans())
    def append_again(self, data: st.DataObject, with_heads: bool) -> None:
        stored = data.draw(st.sampled_from(self.calls))
        heads = {job_id: self.head(job_id) for job_id in self.jobs} if with_heads else None

        assert stored == self.log.append(bare(stored), heads=heads)

    @precondition(lambda self: self.all)
    @rule(data=st.data(), before=st.lists(st.tuples(JOBS, st.text(max_size=3)), max_size=2))
    def append_to_a_taken_slot(self, data: st.DataObject, before: Asked) -> None:
        taken = data.draw(st.sampled_from(self.all))
        beside = [event for event in self.events(before) if event.job_id != taken.job_id]

        self.refused([*beside, note(taken.job_id, taken.version)], Conflict)

    @rule(job_id=JOBS, beyond=st.integers(1, 3), before=st.lists(st.tuples(JOBS, st.text(max_size=3)), max_size=2))
    def append_beyond_a_hole(self, job_id: str, beyond: int, before: Asked) -> None:
        beside = [event for event in self.events(before) if event.job_id != job_id]

        self.refused([*beside, note(job_id, self.head(job_id).version + 1 + beyond)], InvalidValue)

    @rule(job_id=JOBS, after=st.integers(0, 6), until=st.none() | st.integers(0, 6))
    def read(self, job_id: str, after: int, until: int | None) -> None:
        assert self.jobs.get(job_id, [])[after:until] == self.log.read(job_id, after=after, until=until)

    @rule(data=st.data(), batch=st.integers(1, 5), limit=st.none() | st.integers(0, 9))
    def scan(self, data: st.DataObject, batch: int, limit: int | None) -> None:
        place = data.draw(st.integers(0, len(self.all)))
        cursor = list(self.log.scan(limit=place))[-1].cursor if place else ""

        found = [record.event() for record in self.log.scan(cursor, limit=limit, batch=batch)]

        assert self.all[place:][:limit] == found

    @precondition(lambda self: self.persistent)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()

    @invariant()
    def both_say_the_same(self) -> None:
        assert self.all == [record.event() for record in self.log.scan()]
        for job_id in ("a", "A", "b-1"):
            events = self.jobs.get(job_id, [])
            assert self.head(job_id) == self.log.head(job_id)
            assert [] == codec.chain_breaks(record.data for record in self.log.read_raw(job_id))
            run = self.log.recorder.runs.get(job_id)  # type: ignore[attr-defined]  # both recorders keep rows
            assert (run_of(fold(events)) if events else None) == run

    def head(self, job_id: str) -> Head:
        events = self.jobs.get(job_id)
        return Head(events[-1].version, events[-1].chain) if events else Head(0, "")


class SqliteModel(MemoryModel):
    """The same of a SQLite file, which may be closed and opened at any time."""

    persistent = True

    def open(self) -> EventLog:
        return sqlite_log(Path(self.directory.name) / "jobs.db")


TestMemoryModel = MemoryModel.TestCase
TestMemoryModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestSqliteModel = SqliteModel.TestCase
TestSqliteModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
