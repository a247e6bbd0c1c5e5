"""All queues of ours beside a list that is sorted at every call: whatever happens, they hand out the same runs."""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobevents.queue import MemoryQueue, Reservation
from jobevents.testing.runs import run
from tests.clock import START, Clock
from tests.queues import timed_jobs

LEASE_S = 30.0


class Wanted(NamedTuple):
    """A run as the list keeps it; sorted, they stand in the order in which they are handed out."""

    priority: int  # negative: the highest stands first
    due: datetime
    place: int
    id: str
    queue: str


class QueueModel(RuleBasedStateMachine):
    """A queue in memory, the queues over both logs, and the list: the same is done to all four."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.logs = [
            timed_jobs(self.clock, path, claim_s=LEASE_S) for path in (None, Path(self.directory.name) / "jobs.db")
        ]
        memory = MemoryQueue(clock=self.clock, monotonic=self.clock.monotonic, lease_s=LEASE_S)
        self.queues = [memory, *(jobs.queue for jobs in self.logs)]
        self.waiting: dict[str, Wanted] = {}
        self.held: dict[
            str, tuple[Wanted, float, list[Reservation]]
        ] = {}  # until when, and by whom: nobody after a delay
        self.count = 0

    def reserved(self) -> list[str]:
        """Return the runs that somebody may acknowledge."""
        return sorted(run_id for run_id, (_, _, reservations) in self.held.items() if reservations)

    def teardown(self) -> None:
        for jobs in self.logs:
            jobs.close()
        self.directory.cleanup()

    @rule(
        queue=st.sampled_from(["a", "b"]),
        name=st.sampled_from(["x", "y"]),
        priority=st.integers(-1, 1),
        delay=st.integers(-5, 40),
    )
    def enqueue(self, queue: str, name: str, priority: int, delay: int) -> None:
        self.count += 1
        due = self.clock() + timedelta(seconds=delay)
        run_id = f"r{self.count * 7919 % 1000}"
        for each in self.queues:
            each.enqueue(run(run_id, queue=queue, job_name=name, priority=priority, scheduled_at=due, created_at=START))
        self.waiting[run_id] = Wanted(-priority, due, self.count, run_id, queue)

    @rule(asked=st.sets(st.sampled_from(["a", "b", "c"])), limit=st.integers(1, 4))
    def reserve(self, asked: set[str], limit: int) -> None:
        due = [one for one in self.waiting.values() if one.due <= self.clock() and (not asked or one.queue in asked)]
        expected = [one.id for one in sorted(due)[:limit]]

        answers = [each.reserve(sorted(asked), limit=limit, timeout_s=0) for each in self.queues]

        assert [expected] * len(self.queues) == [[one.run.id for one in answer] for answer in answers]
        for run_id, *reservations in zip(expected, *answers, strict=True):
            self.held[run_id] = self.waiting.pop(run_id), self.clock.monotonic() + LEASE_S, reservations

    @precondition(lambda self: self.reserved())
    @rule(data=st.data(), delay=st.sampled_from([0.0, 7.0]))
    def give_back(self, data: st.DataObject, delay: float) -> None:
        run_id = data.draw(st.sampled_from(self.reserved()))
        wanted, _, reservations = self.held.pop(run_id)
        for reservation in reservations:
            reservation.ack(RuntimeError("no slot"), delay_s=delay)
        if delay:
            self.held[run_id] = wanted, self.clock.monotonic() + delay, []
        else:
            self.waiting[run_id] = wanted

    @precondition(lambda self: self.reserved())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(self.reserved()))
        _, _, reservations = self.held.pop(run_id)
        for jobs in self.logs:
            with jobs.attempt(run_id):
                pass
        for reservation in reservations:
            reservation.ack()

    @precondition(lambda self: self.waiting or self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted({**self.waiting, **self.held})))

        removed = [each.remove(run_id) for each in self.queues]

        assert [self.waiting.pop(run_id, None) is not None] * len(self.queues) == removed

    @rule(seconds=st.sampled_from([1, 5, 29, 30, -20]))
    def elapse(self, seconds: int) -> None:
        self.clock.move(seconds)
        for run_id, (wanted, until, _) in list(self.held.items()):
            if until <= self.clock.monotonic():
                del self.held[run_id]
                self.waiting[run_id] = wanted

    @invariant()
    def all_have_the_same_length(self) -> None:
        assert [len(self.waiting)] * len(self.queues) == [len(each) for each in self.queues]


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
