"""The part of the log contract about counts over the rows, and lists of them that are followed from place to place."""

# ruff: noqa: SIM300 - the expected value stands first

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from jobevents.census import Bar, Census, Order, Tally, Waiting
from jobevents.events import Event, JobCanceled, JobDeleted, JobQueued, JobStarted, JobSucceeded, new_event_id
from jobevents.log import EventLog
from jobevents.store import RunFilter
from jobevents.testing.log_events import AT, queued
from jobevents.testing.log_rows import store

_START = AT.replace(microsecond=0)
_MINUTE = timedelta(minutes=1)


class LogCensus:
    """Promises of logs that keep rows; `LogContract` includes them, and skips them where `keeps_rows` is False."""

    keeps_rows = True

    @pytest.fixture
    def census(self, log: EventLog) -> Census:
        """The counts of the log."""
        if not self.keeps_rows:
            pytest.skip("this log keeps no rows")
        return log.recorder.desk.census  # type: ignore[attr-defined, no-any-return]  # recorders that keep rows have it

    def test_nothing_to_count(self, log: EventLog, census: Census) -> None:
        """Without jobs there is nothing, and no error."""
        found = census.tally(), census.waiting(AT), census.series(_START, 60, 10), census.after(RunFilter(), "", 10)

        assert ([], [], [], []) == tuple(map(list, found))

    def test_jobs_by_queue_and_state(self, log: EventLog, census: Census) -> None:
        """Every job counts once, in the state that it is in now; a deleted one does not."""
        for job_id, queue in (("a", "slow"), ("b", "slow"), ("c", "fast"), ("d", "fast")):
            store(log, [_queued(job_id, queue)])
        store(log, [_event(JobStarted, "b", 2, attempt=1)])
        store(log, [_event(JobDeleted, "d", 2)])

        assert [Tally("fast", "queued", 1), Tally("slow", "queued", 1), Tally("slow", "running", 1)] == list(
            census.tally()
        )

    def test_what_its_tables_take(self, log: EventLog, census: Census) -> None:
        """Events, jobs, log lines, and all there is; rows that are no estimate are exact, and what was not measured says so."""
        for job_id in "abc":
            store(log, [queued(job_id)])

        found = census.sizes()

        if not found:
            pytest.skip("this log keeps nothing")
        *tables, whole = found
        assert (3, "", True) == (len(tables), whole.table, (whole.size_bytes or 0) > 0)
        assert all(one.table and (one.size_bytes is None or one.size_bytes > 0) for one in tables)
        exact = [one.rows for one in tables if one.rows is not None and not one.is_estimate]
        assert [3, 3, 0][: len(exact)] == exact

    def test_queues_that_wait(self, log: EventLog, census: Census) -> None:
        """A queue waits since its first job was due: not for one that is due later, runs, or is delivered by others."""
        store(log, [_queued("a", "slow", scheduled_at=AT + _MINUTE)])
        store(log, [_queued("b", "slow", scheduled_at=AT + 2 * _MINUTE)])
        store(log, [_queued("c", "later", scheduled_at=AT + 9 * _MINUTE)])
        store(log, [_queued("d", "theirs", external=True)])
        store(log, [_queued("e", "runs"), _event(JobStarted, "e", 2, attempt=1)])

        assert [Waiting("slow", AT + _MINUTE)] == list(census.waiting(AT + 5 * _MINUTE))

    def test_what_was_created_and_ended_when(self, log: EventLog, census: Census) -> None:
        """Each bar counts from its first instant to the next one's; what lies outside is not counted."""
        for job_id, start, end in (("a", 0, 30), ("b", 0, 61), ("c", 60, 119), ("d", 150, 179)):
            first = _queued(job_id, "slow", at=_START + timedelta(seconds=start))
            began = _event(JobStarted, job_id, 2, attempt=1, at=_START + timedelta(seconds=start))
            done = _event(JobSucceeded, job_id, 3, start=2, at=_START + timedelta(seconds=end))
            store(log, [first, began, done])
        store(log, [_queued("x", "slow", at=_START - _MINUTE), _event(JobCanceled, "x", 2, at=_START)])
        store(log, [_queued("y", "slow", at=_START + 3 * _MINUTE)])

        ended = [bar for bar in census.series(_START, 60, 3) if bar.state]
        created = [bar for bar in census.series(_START, 60, 3) if not bar.state]

        assert {Bar(0, "canceled", 1, 0), Bar(0, "succeeded", 1, 30_000), Bar(1, "succeeded", 2, 120_000)} == {
            bar for bar in ended if bar.number < 2
        }
        assert [Bar(2, "succeeded", 1, 29_000)] == [bar for bar in ended if bar.number == 2]
        assert [Bar(0, "", 2, 0), Bar(1, "", 1, 0), Bar(2, "", 1, 0)] == created

    def test_following_a_list(self, log: EventLog, census: Census) -> None:
        """From place to place, every row is seen once, newest first, and those without a time in their id last."""
        ids = [f"j-20260726-12000{second}-{letter}" for second in (1, 2) for letter in "ab"] + ["x-1", "y-2"]
        for job_id in ids:
            store(log, [queued(job_id)])

        seen: list[str] = []
        while part := census.after(RunFilter(), seen[-1] if seen else "", 4):
            seen += [run.id for run in part]

        assert [
            *("j-20260726-120002-b", "j-20260726-120002-a", "j-20260726-120001-b", "j-20260726-120001-a"),
            *("y-2", "x-1"),
        ] == seen

    def test_other_orders(self, log: EventLog, census: Census) -> None:
        """Oldest first, and by the end: only what has one; pages follow each other, and the count is of all that match."""
        for second, (job_id, end) in enumerate(
            (("j-20260726-120001-a", 9), ("j-20260726-120002-b", 0), ("x", 5), ("y", 7))
        ):
            store(log, [_queued(job_id, "slow" if job_id != "x" else "fast", at=AT + timedelta(seconds=second))])
            if end:
                store(log, [_event(JobCanceled, job_id, 2, at=AT + timedelta(seconds=end))])

        def seen(order: Order, filter: RunFilter = RunFilter(), size: int = 2) -> tuple[list[str], set[int]]:  # noqa: B008
            pages = [census.page(filter, order, offset, size) for offset in range(0, 6, size)]
            return [run.id[-1] for rows, _ in pages for run in rows], {total for _, total in pages}

        assert (["b", "a", "y", "x"], {4}) == seen("newest")
        assert (["x", "y", "a", "b"], {4}) == seen("oldest")
        assert (["a", "y", "x"], {3}) == seen("ended")
        assert (["a", "y"], {2}) == seen("ended", RunFilter(queue="slow"), 1)

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (RunFilter(queue="slow"), ["b", "ab", "a"]),
            (RunFilter(queue="slow", statuses=("running",)), ["b"]),
            (RunFilter(prefix="a"), ["ab", "a"]),
            (RunFilter(prefix="ab"), ["ab"]),
            (RunFilter(prefix="A"), []),
            (RunFilter(job="render", queue="fast"), ["c"]),
            (RunFilter(from_=AT + _MINUTE), ["c"]),
            (RunFilter(to=AT, prefix="a"), ["ab", "a"]),
        ],
    )
    def test_following_what_matches(
        self, log: EventLog, census: Census, wanted: RunFilter, expected: list[str]
    ) -> None:
        """Only rows that match are seen, by whatever the filter names; pages have the same."""
        for job_id, queue in (("a", "slow"), ("ab", "slow"), ("b", "slow")):
            store(log, [_queued(job_id, queue)])
        store(log, [_event(JobStarted, "b", 2, attempt=1)])
        store(log, [_queued("c", "fast", at=AT + _MINUTE)])

        assert expected == [run.id for run in census.after(wanted, "", 10)]
        assert expected == [run.id for run in log.recorder.runs.list(wanted).runs]  # type: ignore[attr-defined]


def _queued(
    job_id: str, queue: str, *, at: datetime = AT, scheduled_at: datetime | None = None, external: bool = False
) -> Event:
    first: JobQueued = queued(job_id)
    return msgspec.structs.replace(first, queue=queue, at=at, scheduled_at=scheduled_at, external=external)


def _event(kind: type[Event], job_id: str, version: int, **fields: Any) -> Event:  # Any: fields of several types
    common: dict[str, Any] = {"job_id": job_id, "version": version, "id": new_event_id(), "at": AT}
    return kind(**{**common, **fields})
