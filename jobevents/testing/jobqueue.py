"""What every queue promises, as a pytest class: subclass it and give it the fixtures `queue` and `elapse`.

class TestOurQueue(JobQueueContract):
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def queue(self, clock):
        queue = OurQueue(clock=clock, monotonic=clock.monotonic)
        yield queue
        queue.close()

    @pytest.fixture
    def elapse(self, clock):
        return clock.move
"""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobevents.errors import QueueClosed
from jobevents.queue import JobQueue, Reservation
from jobevents.testing.clock import START
from jobevents.testing.jobqueue_threads import JobQueueThreads
from jobevents.testing.outages import JobQueueOutages
from jobevents.testing.runs import SPELLINGS, Elapse, run


class JobQueueContract(JobQueueThreads, JobQueueOutages):
    """The queue's behaviour; the fixtures must give each test an empty queue, by a clock that stands still at START."""

    lease_s: float | None = (
        30.0  # how long a reservation is held that nobody acknowledges; None: without end, or unknown
    )

    @pytest.fixture
    def queue(self) -> Iterator[JobQueue]:
        raise NotImplementedError("override the fixture `queue` with an empty queue")

    @pytest.fixture
    def elapse(self) -> Elapse:
        """Let so many seconds pass, for what is due and for leases; a negative number sets back the clock of the first."""
        raise NotImplementedError("override the fixture `elapse` with what moves the queue's clock")

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        """Deal with a run as a runner does: where the queue shares the store, override it to store an end before the ack."""
        reservation.ack()

    def take(self, queue: JobQueue, *queues: str, limit: int = 1) -> list[str]:
        """Reserve what is due now, deal with it, and return the ids."""
        reservations = queue.reserve(queues, limit=limit, timeout_s=0)
        for reservation in reservations:
            self.handle(queue, reservation)
        return [reservation.run.id for reservation in reservations]

    # what is due

    def test_a_due_run_is_delivered(self, queue: JobQueue) -> None:
        """The run comes out as it went in, once."""
        wanted = run(params={"song": 7}, priority=2, max_attempts=3, scheduled_at=START, updated_at=START, root_id="a")
        queue.enqueue(wanted)

        (reservation,) = queue.reserve(timeout_s=0)
        self.handle(queue, reservation)

        assert wanted == reservation.run
        assert [] == queue.reserve(timeout_s=0)

    def test_an_empty_queue_gives_nothing(self, queue: JobQueue) -> None:
        """No runs at the timeout are no error."""
        assert [] == queue.reserve(timeout_s=0)
        assert [] == queue.reserve(timeout_s=0.01)

    def test_a_delayed_run_is_not_early(self, queue: JobQueue, elapse: Elapse) -> None:
        """Before its time it is not there, from then on it is."""
        queue.enqueue(run(scheduled_at=START + timedelta(seconds=10)))

        elapse(9.999)
        early = self.take(queue)
        elapse(0.001)

        assert ([], ["a"]) == (early, self.take(queue))

    def test_del_01_a_delay_longer_than_the_lease(self, queue: JobQueue, elapse: Elapse) -> None:
        """DEL-01: a run wanted later than a lease lasts is handed out once, at its time, however often one asks before."""
        delay = 5 * (self.lease_s or 1)
        queue.enqueue(run(scheduled_at=START + timedelta(seconds=delay)))
        handed_out = []

        for second in range(int(delay * 1.5)):
            handed_out += [(second, run_id) for run_id in self.take(queue)]
            elapse(1)

        assert [(int(delay), "a")] == handed_out

    def test_tim_02_one_instant_in_three_zones(self, queue: JobQueue, elapse: Elapse) -> None:
        """TIM-02: runs wanted at one instant are due together, however it is written, and come back with a zone."""
        for number, when in enumerate(SPELLINGS):
            queue.enqueue(run(f"a{number}", scheduled_at=when + timedelta(seconds=10)))

        elapse(9.999)
        early = self.take(queue)
        elapse(0.001)
        reservations = queue.reserve(limit=5, timeout_s=0)

        assert [] == early
        assert ["a0", "a1", "a2"] == [one.run.id for one in reservations]
        assert {START + timedelta(seconds=10)} == {one.run.scheduled_at for one in reservations}
        for one in reservations:
            self.handle(queue, one)

    @pytest.mark.parametrize(
        "when", [START + timedelta(days=30), datetime(9999, 12, 31, tzinfo=UTC)], ids=["a month", "the end of time"]
    )
    def test_tim_09_a_far_time_waits(self, queue: JobQueue, when: datetime) -> None:
        """TIM-09: no timer overflows; the run waits, and so does who wants it."""
        queue.enqueue(run(scheduled_at=when))

        assert [] == queue.reserve(timeout_s=0.02)
        assert 1 == len(queue)

    @pytest.mark.parametrize("when", [datetime(1, 1, 2, tzinfo=UTC), START - timedelta(microseconds=1)])
    def test_tim_09_a_time_that_has_passed_is_now(self, queue: JobQueue, when: datetime) -> None:
        """TIM-09: a run of the past is due."""
        queue.enqueue(run(scheduled_at=when))

        assert ["a"] == self.take(queue)

    @pytest.mark.parametrize("microsecond", [0, 1, 123_000, 123_456, 999_999])
    def test_rsv_06_times_to_the_microsecond(self, queue: JobQueue, elapse: Elapse, microsecond: int) -> None:
        """RSV-06: no digit of a time keeps its run from being handed out, not even one microsecond too early."""
        when = START + timedelta(seconds=1, microseconds=microsecond)
        queue.enqueue(run(scheduled_at=when))

        elapse((when - START).total_seconds() - 0.000_001)
        early = self.take(queue)
        elapse(0.000_001)

        assert ([], ["a"]) == (early, self.take(queue))

    def test_the_clock_is_set_back(self, queue: JobQueue, elapse: Elapse) -> None:
        """What was due is due again when the clock comes there again, and nothing is lost."""
        queue.enqueue(run(scheduled_at=START))
        queue.enqueue(run("b", scheduled_at=START + timedelta(seconds=5)))

        elapse(-3600)
        before = self.take(queue, limit=2)
        elapse(3600)
        at_start = self.take(queue, limit=2)
        elapse(5)

        assert ([], ["a"], ["b"]) == (before, at_start, self.take(queue, limit=2))

    # order

    def test_only_the_queues_asked_for(self, queue: JobQueue) -> None:
        """One, several or all queues; a name that no run has is no error."""
        for name in ("default", "slow", "odd"):
            queue.enqueue(run(name, queue=name))

        taken = [self.take(queue, "nothing", limit=9), self.take(queue, "slow", limit=9)]

        assert [[], ["slow"]] == taken
        assert ["default", "odd"] == sorted(self.take(queue, "odd", "default", limit=9))

    def test_no_names_are_all_queues(self, queue: JobQueue) -> None:
        """Who asks for none in particular gets the runs of every queue."""
        for name in ("default", "slow"):
            queue.enqueue(run(name, queue=name))

        assert ["default", "slow"] == sorted(self.take(queue, limit=9))

    def test_the_earliest_comes_first(self, queue: JobQueue, elapse: Elapse) -> None:
        """Of runs that are due, the one whose time came first."""
        for number in (3, 1, 2):
            queue.enqueue(run(f"a{number}", scheduled_at=START + timedelta(seconds=number)))
        elapse(10)

        assert ["a1", "a2", "a3"] == [run_id for _ in range(3) for run_id in self.take(queue)]

    def test_a_higher_priority_comes_first(self, queue: JobQueue, elapse: Elapse) -> None:
        """Priority goes before time, but nothing before its time, and over all kinds and queues."""
        queue.enqueue(run("low", priority=-5, queue="slow"))
        queue.enqueue(run("high", priority=7, job_name="mix", scheduled_at=START + timedelta(seconds=5)))
        queue.enqueue(run("middle"))
        queue.enqueue(run("later", priority=99, scheduled_at=START + timedelta(days=1)))
        first = self.take(queue)
        elapse(5)

        assert (["middle"], ["high", "low"]) == (first, self.take(queue, limit=9))

    def test_rsv_04_equals_come_as_they_went(self, queue: JobQueue) -> None:
        """RSV-04: of one time and priority, first in is first out, whatever the ids; nothing compares the runs themselves."""
        ids = [f"a{number * 7919 % 200}" for number in range(200)]
        for run_id in ids:
            queue.enqueue(run(run_id, params={run_id: None}))

        assert ids == [run_id for _ in range(20) for run_id in self.take(queue, limit=10)]

    def test_rsv_05_a_late_sorting_id_does_not_starve(self, queue: JobQueue) -> None:
        """RSV-05: while others arrive all the time in the same second, the first to come is the first to go."""
        queue.enqueue(run("z"))
        taken = []

        for number in range(10):
            queue.enqueue(run(f"a{number}"))
            taken += self.take(queue)

        assert ["z", *(f"a{number}" for number in range(9))] == taken

    def test_the_limit_is_kept(self, queue: JobQueue) -> None:
        """No more than asked for, and all that there are."""
        for number in range(5):
            queue.enqueue(run(f"a{number}"))

        assert [3, 2, 0] == [len(self.take(queue, limit=3)) for _ in range(3)]

    # again

    def test_a_run_waits_once(self, queue: JobQueue) -> None:
        """The same run enqueued again is still one."""
        queue.enqueue(run())
        queue.enqueue(run())

        assert (1, ["a"], []) == (len(queue), self.take(queue), self.take(queue))

    def test_what_is_reserved_is_nobody_elses(self, queue: JobQueue) -> None:
        """A run that somebody has is not handed out, before the acknowledgement and after."""
        queue.enqueue(run())
        (reservation,) = queue.reserve(timeout_s=0)
        meanwhile = queue.reserve(timeout_s=0)

        self.handle(queue, reservation)

        assert ([], []) == (meanwhile, queue.reserve(timeout_s=0))

    def test_an_error_makes_it_available(self, queue: JobQueue) -> None:
        """What could not be dealt with is handed out again at once."""
        for run_id in ("a", "b"):
            queue.enqueue(run(run_id))
        (reservation,) = queue.reserve(timeout_s=0)

        reservation.ack(RuntimeError("no database"))

        assert ["a", "b"] == sorted(self.take(queue, limit=2))

    def test_an_error_may_ask_for_time(self, queue: JobQueue, elapse: Elapse) -> None:
        """With a delay it is handed out again when that is over."""
        self._lease_s()
        queue.enqueue(run())
        (reservation,) = queue.reserve(timeout_s=0)
        reservation.ack(RuntimeError("no slot"), delay_s=2)

        elapse(1)
        early = self.take(queue)
        elapse(1)

        assert ([], ["a"]) == (early, self.take(queue))

    def test_only_the_first_ack_counts(self, queue: JobQueue) -> None:
        """A second one says nothing."""
        queue.enqueue(run())
        (reservation,) = queue.reserve(timeout_s=0)
        self.handle(queue, reservation)

        reservation.ack(RuntimeError("too late"))

        assert [] == queue.reserve(timeout_s=0)

    def test_a_crashed_worker_loses_nothing(self, queue: JobQueue, elapse: Elapse) -> None:
        """A run that was reserved and never acknowledged is handed out again when its lease has ended, and not before."""
        lease_s = self._lease_s()
        queue.enqueue(run())
        queue.reserve(timeout_s=0)

        elapse(lease_s - 1)
        early = self.take(queue)
        elapse(1)

        assert ([], ["a"]) == (early, self.take(queue))

    @pytest.mark.parametrize("error", [None, RuntimeError("too late")], ids=["handled", "failed"])
    def test_a_stale_ack_is_harmless(self, queue: JobQueue, elapse: Elapse, error: BaseException | None) -> None:
        """Who was too slow changes nothing for who has the run now."""
        lease_s = self._lease_s()
        queue.enqueue(run())
        (slow,) = queue.reserve(timeout_s=0)
        elapse(lease_s)
        (quick,) = queue.reserve(timeout_s=0)

        slow.ack(error)
        meanwhile = queue.reserve(timeout_s=0)
        quick.ack(RuntimeError("no database"))

        assert ([], ["a"]) == (meanwhile, self.take(queue))

    # removing and counting

    def test_a_waiting_run_is_removed(self, queue: JobQueue) -> None:
        """Once; it is never handed out."""
        for run_id in ("a", "b"):
            queue.enqueue(run(run_id))

        removed = [queue.remove("a"), queue.remove("a")]

        assert ([True, False], ["b"]) == (removed, self.take(queue, limit=9))

    def test_a_delayed_run_is_removed(self, queue: JobQueue, elapse: Elapse) -> None:
        """One that is not due is removed like any other."""
        queue.enqueue(run(scheduled_at=START + timedelta(seconds=5)))

        removed = queue.remove("a")
        elapse(10)

        assert (True, 0, []) == (removed, len(queue), self.take(queue))

    def test_a_reserved_run_is_not_removed(self, queue: JobQueue) -> None:
        """Who has it has it, until the end."""
        queue.enqueue(run())
        (reservation,) = queue.reserve(timeout_s=0)

        meanwhile = queue.remove("a")
        self.handle(queue, reservation)

        assert (False, False) == (meanwhile, queue.remove("a"))

    def test_nobody_is_not_removed(self, queue: JobQueue) -> None:
        """An id never seen is no error."""
        assert not queue.remove("nobody")

    def test_the_length_is_what_waits(self, queue: JobQueue) -> None:
        """One more for each run, those not yet due among them; one less for each that is handed out."""
        lengths = [len(queue)]
        for run_id, when in (("a", START), ("b", START + timedelta(days=1))):
            queue.enqueue(run(run_id, scheduled_at=when))
            lengths.append(len(queue))

        self.take(queue)

        assert ([0, 1, 2], 1) == (lengths, len(queue))

    # the end

    def test_a_closed_queue_says_so(self, queue: JobQueue) -> None:
        """Neither reserve nor enqueue does anything; close may be called again."""
        queue.enqueue(run())
        queue.close()
        queue.close()

        with pytest.raises(QueueClosed):
            queue.reserve(timeout_s=0)
        with pytest.raises(QueueClosed):
            queue.enqueue(run("b"))

    def test_a_reservation_outlives_the_close(self, queue: JobQueue) -> None:
        """What was handed out can still be acknowledged."""
        queue.enqueue(run())
        (reservation,) = queue.reserve(timeout_s=0)

        queue.close()

        self.handle(queue, reservation)

    def _lease_s(self) -> float:
        if self.lease_s is None:
            pytest.skip("this queue's leases do not end by the tests' clock")
        return self.lease_s
