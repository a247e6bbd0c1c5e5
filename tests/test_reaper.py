"""The reaper: what becomes of the jobs of dead workers, whoever else is at work on them, and wherever it is cut off."""

import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent

from jobevents import errors, reaper
from jobevents.attempt import Attempt
from jobevents.backends.memory import MemoryRecorder
from jobevents.events import JobFailed, JobSucceeded, TransitionRefused
from jobevents.jobs import Jobs
from jobevents.lease import RoleLease
from jobevents.reaper import Reaped, WorkerSeen
from jobevents.status import State, Status
from jobevents.workers import Lease, MemoryLeases, Sighting
from tests.turns import Turns
from tests.working import LEASE_S, Machine, machine, told

INTERLEAVINGS = 1000


@pytest.fixture(params=["memory", "sqlite"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A machine with processes over each log."""
    with machine(request.param, tmp_path) as made:
        yield made


def die_at(process: Jobs, **wanted: Any) -> str:
    """Submit a job and start it in a process that gives no sign of life from then on."""
    job_id = process.submit("render", **wanted)
    process.attempt(job_id).__enter__()
    return job_id


# what becomes of a lost job


def test_liv_01_a_killed_worker_leaves_no_job_running(workers: Machine) -> None:
    """LIV-01: after its lease and a pass the job waits again, its try counted, and the history says why."""
    first, second = workers.start(), workers.start()
    job_id = die_at(first, max_attempts=3)
    worker = first.job(job_id).worker
    workers.elapse(LEASE_S, second)

    done = second.reap()

    job, last = second.job(job_id), second.history(job_id)[-1]
    assert Reaped(requeued=1, leases_dropped=1) == done
    assert ("queued", 1, []) == (job.state, job.tries, list(second.runs.running_ids("render")))
    assert "JobRequeued(lost, 2)" == told([last])[0]
    assert ("reaper", f"the worker was last seen 30 s ago worker={worker} lease_s=30") == (last.actor, last.reason)
    assert 1 == second.counts.snapshot()["lost_jobs_queued"]


def test_ret_05_a_job_without_a_try_left_has_failed(workers: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """RET-05: for good, and its error says which worker was lost and when; status, history, row and the log line agree."""
    first, second = workers.start(), workers.start()
    job_id = die_at(first)
    worker = first.job(job_id).worker
    workers.elapse(LEASE_S, second)

    done = second.reap()

    text = f"the worker was lost: the worker was last seen 30 s ago worker={worker} lease_s=30"
    status, row, last = second.get(job_id), second.runs.get(job_id), second.history(job_id)[-1]
    assert isinstance(last, JobFailed)
    assert (1, None, "WorkerLost") == (done.failed, last.retry_at, last.kind)
    assert (State.FAILED, text) == (status.state, status.error)
    assert row is not None
    assert row.error is not None
    assert ("failed", text) == (row.status, row.error.message)
    line = f"a job was lost: it has failed, as no try was left job_id={job_id} why={last.reason}"
    assert [line] == [record.message for record in caplog.records]


def test_ret_05_a_job_with_a_try_left_is_due_again(workers: Machine) -> None:
    """RET-05: queued with the time of its next try and the reason; status, history and row agree."""
    first, second = workers.start(), workers.start()
    job_id = die_at(first, max_attempts=2)
    workers.elapse(LEASE_S, second)

    second.reap()

    row = second.runs.get(job_id)
    assert row is not None
    assert (State.QUEUED, "queued", workers.wall(), 2) == (
        second.get(job_id).state,
        row.status,
        row.scheduled_at,
        row.attempt,
    )


def test_del_12_a_poison_job_is_tried_as_often_as_it_may_be(workers: Machine) -> None:
    """DEL-12: a job that kills each worker is counted when it is claimed, and has failed after its last try."""
    watcher = workers.start()
    job_id = watcher.submit("render", max_attempts=3)
    states = []
    for _ in range(3):
        workers.start().attempt(job_id).__enter__()
        workers.elapse(LEASE_S, watcher)
        watcher.reap()
        states.append((watcher.job(job_id).state, watcher.job(job_id).starts))

    assert [("queued", 1), ("queued", 2), ("failed", 3)] == states


@pytest.mark.parametrize("external", [True, False], ids=["marked", "never queued"])
def test_a_job_of_the_users_own_queue_waits_in_any_case(workers: Machine, external: bool) -> None:
    """How often it is tried is that queue's affair: it is never failed for its tries."""
    first, second = workers.start(), workers.start()
    if external:
        job_id = die_at(first, external=True)
    else:
        job_id = "delivered-before-its-record"
        first.attempt(job_id).__enter__()
    workers.elapse(LEASE_S, second)

    second.reap()

    assert "queued" == second.job(job_id).state


def test_can_08_a_job_that_was_to_be_canceled_is(workers: Machine) -> None:
    """CAN-08 b: its worker was killed after the request; it is canceled, not retried, in the name of who asked."""
    first, second = workers.start(), workers.start()
    job_id = die_at(first, max_attempts=3)
    second.cancel(job_id, actor="ops", reason="cost")
    workers.elapse(LEASE_S, second)

    done = second.reap()

    job = second.job(job_id)
    assert (1, "canceled", "ops", "cost") == (done.canceled, job.state, job.canceled_by, job.cancel_reason)


def test_can_08_a_hung_handler_is_canceled_at_its_deadline(workers: Machine) -> None:
    """CAN-08 a: it lives and ignores the request; past its deadline the job is canceled, and what it says later is refused."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render", max_attempts=3)
    with first.attempt(job_id, deadline_s=10) as hung:
        second.cancel(job_id, actor="ops")
        workers.elapse(10, first, second)
        second.reap()
        hung.result("late")

    assert "canceled" == second.job(job_id).state
    assert ["JobCanceled(2)", "TransitionRefused(JobSucceeded, 2)"] == told(second.history(job_id))[-2:]


def test_a_job_past_its_deadline_is_lost_beside_a_living_lease(workers: Machine) -> None:
    """A request killed inside a container that lives on."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render", max_attempts=2)
    first.attempt(job_id, deadline_s=60).__enter__()
    workers.elapse(59, first, second)
    before = second.reap().requeued
    workers.elapse(1, first, second)

    assert (0, 1) == (before, second.reap().requeued)
    assert "the deadline has passed" in second.history(job_id)[-1].reason


def test_liv_04_a_living_worker_is_left_alone(workers: Machine) -> None:
    """LIV-04: however long it takes; and when the signs of life end, the rescue comes."""
    first, second = workers.start(), workers.start()
    job_id = die_at(first, max_attempts=2)
    rescued = []
    for _ in range(10):
        workers.elapse(60, first, second)
        rescued.append(second.reap().requeued)
    workers.elapse(LEASE_S, second)
    rescued.append(second.reap().requeued)

    assert [0] * 10 + [1] == rescued
    assert 1 == second.job(job_id).starts


def test_liv_13_waiting_jobs_are_left_alone(workers: Machine) -> None:
    """LIV-13: what is only queued is not lost, however old it is."""
    process = workers.start()
    due = workers.wall() + timedelta(days=5)
    waiting = [process.submit("render", at=due), process.submit("render", queue="paused")]
    workers.elapse(3 * 86_400)

    done = workers.start().reap()

    assert (Reaped(), [1, 1]) == (done, [process.job(job_id).version for job_id in waiting])


def test_a_job_that_a_record_calls_running_is_left_alone(workers: Machine) -> None:
    """Nobody can know whether somebody works on it."""
    process = workers.start()
    job_id = process.submit("render")
    process.statuses(Status).save(job_id, Status(command="render", state=State.RUNNING, title="by hand"))
    workers.elapse(10 * LEASE_S, process)

    process.reap()

    assert "running" == process.job(job_id).state


def test_a_process_takes_its_own_jobs_for_alive(workers: Machine) -> None:
    """Resumed after a stop past its lease, it does not reap itself before it has renewed."""
    process = workers.start()
    job_id = process.submit("render")
    with process.attempt(job_id):
        workers.elapse(2 * LEASE_S)
        done = process.reap()

    assert (0, 0, "succeeded") == (done.requeued, done.failed, process.job(job_id).state)


def test_an_outcome_that_was_not_recorded_is_found_out(workers: Machine) -> None:
    """The process lives, and its attempt ended without a word in the log: the job is given back."""
    process = workers.start()
    job_id = die_at(process, max_attempts=2)
    process.presence.leave(job_id)

    process.reap()

    assert "its outcome could not be recorded" in process.history(job_id)[-1].reason


def test_the_leases_of_the_dead_go_when_they_hold_nothing(workers: Machine) -> None:
    """A pass removes them; those of the living stay."""
    first, second = workers.start(), workers.start()
    die_at(first, max_attempts=2)
    with second.attempt(second.submit("render")):
        workers.elapse(LEASE_S, second)
        second.reap()

        assert [second.presence.enter("any")] == [one.worker for one in second.workers()]


def test_all_pages_are_gone_through(workers: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that leave the list while it is read make no other be passed over."""
    monkeypatch.setattr(reaper, "PAGE", 3)
    first, second = workers.start(), workers.start()
    jobs = [die_at(first, max_attempts=2) for _ in range(10)]
    workers.elapse(LEASE_S, second)

    assert 10 == second.reap().requeued
    assert {"queued"} == {second.job(job_id).state for job_id in jobs}


def test_liv_09_what_cannot_be_read_blocks_nobody(
    workers: Machine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIV-09: of ten lost jobs two cannot be read: eight are given back at once, the two are set aside, told of once."""
    monkeypatch.setattr(reaper, "PAGE", 4)
    first = workers.start()
    jobs = [die_at(first, max_attempts=2) for _ in range(10)]
    for job_id, data in ((jobs[2], b'{"type":"JobStart'), (jobs[7], b'{"type":"JobTeleported","job_id":"x"}')):
        first.log.recorder.insert_events([StoredEvent(job_id, 3, "JobProgressed", data)])
    second = workers.start()
    workers.elapse(LEASE_S, second)

    with caplog.at_level(logging.WARNING):
        passes = [second.reap() for _ in range(2)]

    assert [(8, 2), (0, 2)] == [(done.requeued, done.set_aside) for done in passes]
    assert 2 == second.counts.snapshot()["lost_jobs_set_aside"]
    assert 2 == len([one for one in caplog.records if "cannot be given back" in one.message])


# races


class SteppedRecorder(MemoryRecorder):
    """The log in memory, each read and each append a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(0)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        self.turns.step()
        return super().insert_events(stored_events, **kwargs)

    def select_events(self, *args: Any, **kwargs: Any) -> Sequence[StoredEvent]:
        self.turns.step()
        return super().select_events(*args, **kwargs)


class SteppedLeases(MemoryLeases):
    """Leases in memory, each call a step of its own."""

    def __init__(self, recorder: SteppedRecorder, worked: Machine) -> None:
        super().__init__(monotonic=worked.steady.monotonic)
        self._recorder = recorder

    def renew(self, lease: Lease) -> None:
        self._recorder.turns.step()
        super().renew(lease)

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        self._recorder.turns.step()
        return super().look(workers)


def test_liv_05_a_late_success_against_the_reaper() -> None:
    """LIV-05: in a thousand interleavings one result is accepted, and a late one is recorded as refused, once."""
    recorder = SteppedRecorder()
    worked = Machine(lambda: recorder)
    leases = SteppedLeases(recorder, worked)
    first, second, third = (worked.start(leases=leases) for _ in range(3))
    came_to: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for seed in range(INTERLEAVINGS):
        job_id = first.submit("render", max_attempts=5)
        late = first.attempt(job_id)
        late.__enter__()
        worked.elapse(LEASE_S, second, third)
        recorder.turns = Turns(seed)

        def resume(late: Attempt = late) -> None:
            first.presence.beat()
            late.result("late")
            late.__exit__(None, None, None)

        recorder.turns.run(resume, second.reap)
        if second.job(job_id).state == "queued":
            with third.attempt(job_id) as attempt:
                attempt.result("second")

        history = told(third.history(job_id))[2:]
        came_to.setdefault(tuple(history), set()).add(tuple(recorder.turns.order))
        assert 1 == sum(isinstance(event, JobSucceeded) for event in third.history(job_id))
    worked.stop()

    refused = "TransitionRefused(JobSucceeded, 2)"
    accepted = {("JobSucceeded(2)",)}
    lost = {history for history in came_to if history[0] == "JobRequeued(lost, 2)"}
    assert set(came_to) == accepted | lost
    assert {1} == {history.count(refused) for history in lost}
    assert {"JobSucceeded(5)", "JobSucceeded(4)"} >= {one for history in lost for one in history if "Succeeded(" in one}
    assert min(len(orders) for orders in came_to.values()) > 3
    assert sum(len(orders) for orders in came_to.values()) > 20


def test_liv_05_a_late_success_against_a_redelivery() -> None:
    """LIV-05: with the guard of a redelivery in the race as well, one result is accepted, and no more than one refused."""
    recorder = SteppedRecorder()
    worked = Machine(lambda: recorder)
    leases = SteppedLeases(recorder, worked)
    first, second, third = (worked.start(leases=leases) for _ in range(3))
    seen = set()
    for seed in range(INTERLEAVINGS):
        job_id = first.submit("render", max_attempts=5)
        late = first.attempt(job_id)
        late.__enter__()
        worked.elapse(LEASE_S, second, third)
        recorder.turns = Turns(seed)

        def deliver(job_id: str = job_id) -> None:
            try:
                with third.attempt(job_id):
                    pass
            except errors.Refused:
                return

        recorder.turns.run(partial(late.__exit__, None, None, None), second.reap, deliver)
        deliver()

        history = third.history(job_id)
        succeeded = [event.start for event in history if isinstance(event, JobSucceeded)]
        refused = [event.start for event in history if isinstance(event, TransitionRefused)]
        seen.add(tuple(told(history)))
        assert 1 == len(succeeded)
        assert ([] if succeeded == [2] else [2]) == refused
    worked.stop()

    assert len(seen) >= 3


def test_liv_05_in_threads_that_race(workers: Machine) -> None:
    """LIV-05: and without a schedule, at the same instant: one result is accepted each time, the late one is refused."""
    first, second = workers.start(), workers.start()
    gate = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            job_id = first.submit("render", max_attempts=5)
            late = first.attempt(job_id)
            late.__enter__()
            workers.elapse(LEASE_S, second)

            def finish(late: Attempt = late) -> None:
                gate.wait(20)
                late.__exit__(None, None, None)

            def reap() -> None:
                gate.wait(20)
                second.reap()

            for done in [pool.submit(finish), pool.submit(reap)]:
                done.result(20)
            history = told(second.history(job_id))[2:]
            assert history in (
                ["JobSucceeded(2)"],
                ["JobRequeued(lost, 2)", "TransitionRefused(JobSucceeded, 2)"],
            )


def reap_into(done: list[Reaped], process: Jobs) -> None:
    """Make a pass and keep what it came to."""
    done.append(process.reap())


def test_two_reapers_at_once_are_safe() -> None:
    """In any interleaving of two passes each job is given back once."""
    recorder = SteppedRecorder()
    worked = Machine(lambda: recorder)
    leases = SteppedLeases(recorder, worked)
    first, second, third = (worked.start(leases=leases) for _ in range(3))
    for seed in range(200):
        jobs = [die_at(first, max_attempts=5) for _ in range(3)]
        worked.elapse(LEASE_S, second, third)
        recorder.turns = Turns(seed)
        done: list[Reaped] = []

        recorder.turns.run(partial(reap_into, done, second), partial(reap_into, done, third))

        assert 3 == sum(one.requeued for one in done)
        assert [3, 3, 3] == [first.job(job_id).version for job_id in jobs]
    worked.stop()


class Killed(BaseException):
    """Stands for the end of the process."""


class MortalRecorder(MemoryRecorder):
    """The log in memory; the n-th append from now on is the last, done or not."""

    left = 10**9
    is_done = False

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        self.left -= 1
        if self.left:
            return super().insert_events(stored_events, **kwargs)
        if self.is_done:
            super().insert_events(stored_events, **kwargs)
        raise Killed


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_reaper_that_is_killed_leaves_nothing_half_done(at: int, is_done: bool) -> None:
    """Killed at any append, before it or after: the next pass does the rest, and no job is given back twice."""
    recorder = MortalRecorder()
    worked = Machine(lambda: recorder)
    first, second, third = (worked.start() for _ in range(3))
    jobs = [die_at(first, max_attempts=5) for _ in range(5)]
    worked.elapse(LEASE_S, second, third)
    recorder.left, recorder.is_done = at, is_done

    with pytest.raises(Killed):
        second.reap()
    recorder.left = 10**9
    done = third.reap()

    assert 5 - at + (not is_done) == done.requeued
    assert [["JobQueued", "JobStarted(1)", "JobRequeued(lost, 2)"]] * 5 == [told(first.history(one)) for one in jobs]
    worked.stop()


# the thread


def test_one_process_at_a_time_reaps(tmp_path: Path) -> None:
    """The first takes the role and keeps it; when it closes, another has it at its next look."""
    with machine("memory", tmp_path) as worked:
        first, second, third = (worked.start() for _ in range(3))
        job_id = die_at(first, max_attempts=5)
        third._reaper.beat()
        worked.elapse(LEASE_S, second, third)

        second._reaper.beat()
        before = second.job(job_id).state
        third.close()
        second._reaper.beat()

        assert ("running", "queued") == (before, second.job(job_id).state)


def test_a_role_that_cannot_be_asked_for_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once only cost more: where the role's store is away, the pass is made."""

    def away(self: RoleLease) -> bool:
        raise errors.Unavailable("the store is away")

    monkeypatch.setattr(RoleLease, "hold", away)
    with machine("memory", tmp_path) as worked:
        first, second = worked.start(), worked.start()
        job_id = die_at(first, max_attempts=5)
        worked.elapse(LEASE_S, second)

        second._reaper.beat()

        assert "queued" == second.job(job_id).state


def test_passes_go_on_after_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pass that fails is counted each time and told of once, and the next does its work."""
    with machine("memory", tmp_path) as worked:
        first, second = worked.start(), worked.start()
        job_id = die_at(first, max_attempts=5)
        worked.elapse(LEASE_S, second)
        whole = second._reaper._runs

        class Away:
            def running(self, **_: Any) -> Any:
                raise errors.Unavailable("the store is away")

        second._reaper._runs = Away()  # type: ignore[assignment]  # only what a pass calls
        with caplog.at_level(logging.WARNING):
            waits = [second._reaper.beat() for _ in range(3)]
        second._reaper._runs = whole
        second._reaper.beat()

        assert [LEASE_S / 2] * 3 == waits
        assert 3 == second.counts.snapshot()["reaper_passes_failed"]
        assert 1 == len(
            [one for one in caplog.records if "a pass of the reaper failed and is made again in" in one.message]
        )
        assert "queued" == second.job(job_id).state


# who works


def test_workers_are_listed_with_what_they_hold(workers: Machine) -> None:
    """The living first, the dead with what waits to be given back, and those of whom no lease is left."""
    first, second, third = workers.start(), workers.start(), workers.start()
    dead, gone = die_at(first), die_at(third)
    third.presence.leases.drop(third.job(gone).worker)
    workers.elapse(LEASE_S, second)
    mine = die_at(second)

    found = second.workers()

    expected = [
        (second.job(mine).worker, True, [mine], 0.0),
        (first.job(dead).worker, False, [dead], 30.0),
        (third.job(gone).worker, False, [gone], None),
    ]
    assert expected == [(one.worker, one.is_alive, one.jobs, one.last_seen_s) for one in found]


def test_an_idle_worker_is_listed(workers: Machine) -> None:
    """One that holds nothing is alive all the same."""
    process = workers.start()
    with process.attempt(process.submit("render")):
        pass

    assert [(True, [])] == [(one.is_alive, one.jobs) for one in process.workers()]
    assert isinstance(process.workers()[0], WorkerSeen)


def test_another_reaps_when_the_one_with_the_role_was_killed(tmp_path: Path) -> None:
    """Its own jobs are given back within two leases of its death: one for its life, one for its role."""
    with machine("memory", tmp_path) as worked:
        first, second = worked.start(), worked.start()
        job_id = die_at(first, max_attempts=5)
        first._reaper.beat()
        second._reaper.beat()

        for _ in range(4):
            worked.elapse(LEASE_S / 2, second)
            second._reaper.beat()

        assert "queued" == second.job(job_id).state
