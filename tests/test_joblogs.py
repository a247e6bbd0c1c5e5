"""Log lines on their way from an attempt to the table."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from jobevents.errors import Unavailable
from jobevents.job import Job
from jobevents.joblogs import BATCH_LINES, KEPT_LINES, LineBuffer
from jobevents.store import JobLog

NOW = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
JOB = Job(job_id="song-7", start=2, attempt=1)


class Table:
    """A table that can be out of reach."""

    def __init__(self) -> None:
        self.is_down = False
        self.calls = 0
        self.lines: list[str] = []

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        self.calls += 1
        if self.is_down:
            raise Unavailable("table is down")
        self.lines += [line.message for line in entries]

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        return []


@pytest.fixture
def table() -> Table:
    return Table()


def test_lines_wait_for_a_table_that_is_down(table: Table) -> None:
    """What could not be written is written with the next batch, in order."""
    buffer = LineBuffer(table)
    table.is_down = True
    buffer.add(JOB, NOW, "before", "info", {})
    with pytest.raises(Unavailable):
        buffer.flush()

    table.is_down = False
    buffer.add(JOB, NOW, "after", "info", {})
    buffer.flush()

    assert ["before", "after"] == table.lines


def test_a_table_that_stays_down_is_asked_once_a_batch_and_costs_bounded_memory(table: Table) -> None:
    """The newest lines are kept, and a line alone asks nobody."""
    buffer = LineBuffer(table)
    table.is_down = True
    for number in range(KEPT_LINES + BATCH_LINES):
        try:
            buffer.add(JOB, NOW, str(number), "info", {})
        except Unavailable:
            continue

    table.is_down = False
    buffer.flush()

    assert [str(number) for number in range(BATCH_LINES, KEPT_LINES + BATCH_LINES)] == table.lines
    assert KEPT_LINES // BATCH_LINES + 2 == table.calls


def test_a_flush_waits_for_the_one_under_way(table: Table) -> None:
    """Whoever flushes last, as at the end of an attempt, leaves with every line written, in order."""
    buffer = LineBuffer(table)
    asked, goes_on = threading.Event(), threading.Event()
    append = table.append_logs

    def slowly(entries: Sequence[JobLog]) -> None:
        asked.set()
        goes_on.wait(10)
        append(entries)

    table.append_logs = slowly  # type: ignore[method-assign]
    buffer.add(JOB, NOW, "before", "info", {})
    ticking = threading.Thread(target=buffer.flush)
    ticking.start()
    asked.wait(10)
    table.append_logs = append  # type: ignore[method-assign]
    buffer.add(JOB, NOW, "after", "info", {})
    last = threading.Thread(target=buffer.flush)
    last.start()

    last.join(0.05)
    goes_on.set()
    last.join(10)

    assert ["before", "after"] == table.lines
    ticking.join(10)
