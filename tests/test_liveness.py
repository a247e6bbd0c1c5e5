"""Life and death of workers, as the guard and the presence of a process see them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobevents import errors
from jobevents.events import JobStarted
from jobevents.status import State, Status
from tests.working import LEASE_S, Machine, machine, told

WAIT_S = 20  # far beyond what any of this takes


@pytest.fixture(params=["memory", "sqlite"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A machine with processes over each log."""
    with machine(request.param, tmp_path) as made:
        yield made


# the guard


def test_a_living_worker_keeps_its_job(workers: Machine) -> None:
    """However long the work takes: only the sign of life counts (LIV-04)."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        workers.elapse(3600, first)

        with pytest.raises(errors.AlreadyRunning, match="worker="), second.attempt(job_id):
            pass

    assert ["JobQueued", "JobStarted(1)", "JobSucceeded(2)"] == told(second.history(job_id))


def test_the_job_of_a_dead_worker_is_started_again(workers: Machine) -> None:
    """The guard fences the lost start off and grants the next in one append, and says why."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render", max_attempts=2)
    lost = first.attempt(job_id)
    lost.__enter__()
    workers.elapse(LEASE_S, second)

    with second.attempt(job_id) as attempt:
        assert (2, 4) == (attempt.number, attempt.start)

    history = second.history(job_id)
    assert ["JobQueued", "JobStarted(1)", "JobRequeued(lost, 2)", "JobStarted(2)", "JobSucceeded(4)"] == told(history)
    worker = first.history(job_id)[1].actor
    assert f"the worker was last seen 30 s ago worker={worker} lease_s=30" == history[2].reason
    assert "" == history[3].reason
    assert 1 == second.counts.snapshot()["lost_starts_taken_over"]


def test_a_lease_taken_away_by_hand_is_gone(workers: Machine) -> None:
    """A worker without a lease holds nothing."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    first.attempt(job_id).__enter__()
    holder = first.job(job_id).worker

    first.presence.leases.drop(holder)
    with second.attempt(job_id):
        pass

    assert f"the worker has no lease worker={holder}" == second.history(job_id)[2].reason


def test_a_lease_taken_away_by_hand_comes_back(workers: Machine) -> None:
    """A living worker has it again with its next renewal, and keeps its job."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        first.presence.leases.drop(first.job(job_id).worker)
        first.presence.beat()

        with pytest.raises(errors.AlreadyRunning), second.attempt(job_id):
            pass


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["forth", "back"])
def test_a_clock_that_is_set_takes_no_life(workers: Machine, step_s: float) -> None:
    """The wall clock steps an hour while a worker works: it goes on, and nobody else gets its job."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        workers.wall.move(step_s)

        with pytest.raises(errors.AlreadyRunning), second.attempt(job_id):
            pass

    assert State.SUCCEEDED == second.get(job_id).state


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["forth", "back"])
def test_a_clock_that_is_set_hides_no_death(workers: Machine, step_s: float) -> None:
    """The wall clock steps an hour while a worker dies: it is found out all the same."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    first.attempt(job_id).__enter__()

    workers.wall.move(step_s)
    workers.elapse(LEASE_S, second)
    with second.attempt(job_id):
        pass

    assert State.SUCCEEDED == second.get(job_id).state


def test_a_worker_stopped_for_less_than_its_lease_goes_on(workers: Machine) -> None:
    """SIGSTOP for two thirds of the lease, right before a renewal was due: nothing happened."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        workers.elapse(LEASE_S - 0.001, second)

        with pytest.raises(errors.AlreadyRunning), second.attempt(job_id):
            pass

    assert State.SUCCEEDED == first.get(job_id).state


def test_a_worker_stopped_past_its_lease_is_refused(workers: Machine) -> None:
    """It resumes, renews and goes on working; its outcome is recorded as refused, once, and changes nothing."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id) as late:
        workers.elapse(LEASE_S, second)
        with second.attempt(job_id) as attempt:
            attempt.result("second")
        first.presence.beat()
        late.progress(99)
        late.result("first")

    job = second.job(job_id)
    assert ("succeeded", "second", None) == (job.state, job.result, job.progress)
    assert ["JobSucceeded(4)", "TransitionRefused(JobSucceeded, 2)"] == told(second.history(job_id))[4:]
    assert {"outcomes_refused": 1, "events_of_old_starts_dropped": 1} == first.counts.snapshot()


def test_a_worker_that_lost_its_job_may_know(workers: Machine) -> None:
    """`check` stops the work of an attempt that is not the job's any more."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    late = first.attempt(job_id)
    late.__enter__()
    workers.elapse(LEASE_S, second)
    with second.attempt(job_id), pytest.raises(errors.Canceled) as stopped:
        late.check()
    late.__exit__(errors.Canceled, stopped.value, None)

    assert ["JobSucceeded(4)", "TransitionRefused(JobCanceled, 2)"] == told(second.history(job_id))[4:]


def test_liv_03_a_restarted_worker_is_another_one(workers: Machine) -> None:
    """LIV-03: restarted at once under the same name, it renews its own lease and not its predecessor's."""
    before = workers.start()
    job_id = before.submit("render", max_attempts=2)
    before.attempt(job_id, worker="w1").__enter__()
    after = workers.start()
    other = after.submit("render")

    with after.attempt(other, worker="w1"):
        workers.elapse(LEASE_S, after)
        reaped = after.reap()

    names = [
        event.worker for event in (before.history(job_id)[1], after.history(other)[1]) if type(event) is JobStarted
    ]
    assert ["w1", "w1"] == [name.split("-")[0] for name in names]
    assert 2 == len(set(names))
    assert (1, "queued") == (reaped.requeued, after.job(job_id).state)


def test_liv_10_a_timed_out_attempt_goes_on_beside_its_retry(workers: Machine) -> None:
    """LIV-10: what it still says changes nothing, and its log lines stay those of the first try."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render", max_attempts=2)
    with first.attempt(job_id, deadline_s=5) as late:
        workers.elapse(5, first)
        with second.attempt(job_id) as attempt:
            late.progress(10, "late")
            late.log("late")
            attempt.log("in time")
            attempt.result("second")
        late.result("first")

    status = second.get(job_id)
    assert (State.SUCCEEDED, 2, "second") == (status.state, status.attempts, second.job(job_id).result)
    assert [(1, "late"), (2, "in time")] == [(line.attempt, line.message) for line in second.run_logs.logs(job_id)]
    assert "the deadline has passed" in second.history(job_id)[2].reason


def test_a_deadline_counts_beside_a_living_lease(workers: Machine) -> None:
    """A request killed inside a container that lives on is lost when its deadline has passed, not before."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    first.attempt(job_id, deadline_s=60).__enter__()
    workers.elapse(59, first)
    with pytest.raises(errors.AlreadyRunning), second.attempt(job_id):
        pass

    workers.elapse(1, first)
    with second.attempt(job_id) as attempt:
        assert 2 == attempt.number


def test_can_08_a_canceled_job_of_a_dead_worker_is_not_run_again(workers: Machine) -> None:
    """CAN-08 b: killed after the request, it is canceled by whoever meets it, in the name of who asked."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render", max_attempts=3)
    first.attempt(job_id).__enter__()
    second.cancel(job_id, actor="ops", reason="cost")
    workers.elapse(LEASE_S, second)

    with pytest.raises(errors.AlreadyCanceled), second.attempt(job_id):
        pytest.fail("the handler must not run")

    job = second.job(job_id)
    assert ("canceled", "ops", "cost") == (job.state, job.canceled_by, job.cancel_reason)
    assert "JobCanceled(2)" == told(second.history(job_id))[-1]


def test_a_cancel_by_another_process_is_seen_within_a_second(workers: Machine) -> None:
    """The worker asks the log at most twice a second, and not less often when it is asked."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id) as attempt:
        before = attempt.canceled
        second.cancel(job_id)
        workers.elapse(0.999, first)

        assert (False, True) == (before, attempt.canceled)


def test_a_record_names_no_worker(workers: Machine) -> None:
    """A job that a record says is running may be started by who delivers it: nobody knows of a worker."""
    process = workers.start()
    job_id = process.submit("render")
    process.statuses(Status).save(job_id, Status(command="render", state=State.RUNNING, title="by hand"))

    assert ("running", "") == (process.job(job_id).state, process.job(job_id).worker)
    with process.attempt(job_id) as attempt:
        assert 2 == attempt.number
    assert "no worker is known to run the job" in [event.reason for event in process.history(job_id)]


def test_a_lost_outcome_does_not_hold_the_job(workers: Machine) -> None:
    """Its process lives, and its attempt ended without a word in the log: the job is started again, there too."""
    process = workers.start()
    job_id = process.submit("render")
    attempt = process.attempt(job_id)
    attempt.__enter__()
    process.presence.leave(job_id)  # as after an outcome that could not be recorded

    with process.attempt(job_id) as again:
        assert 2 == again.number

    assert "its outcome could not be recorded" in process.history(job_id)[2].reason


def test_an_attempt_in_the_same_process_keeps_its_job(workers: Machine) -> None:
    """A second delivery to the process that works on the job is refused, whatever name it works under."""
    process = workers.start()
    job_id = process.submit("render")
    with process.attempt(job_id):
        for name in ("", "other"):
            with pytest.raises(errors.AlreadyRunning), process.attempt(job_id, worker=name):
                pass

    assert ["JobQueued", "JobStarted(1)", "JobSucceeded(2)"] == told(process.history(job_id))


# how attempts end


@pytest.mark.parametrize(
    "ending", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), SystemExit("why"), BaseException("odd")], ids=repr
)
def test_liv_11_a_handler_ends_with_something_that_is_no_exception(workers: Machine, ending: BaseException) -> None:
    """LIV-11: the job has failed, with the type in its error, and the process takes the next."""
    process = workers.start()
    job_id, next_id = process.submit("render"), process.submit("render")

    with pytest.raises(type(ending)), process.attempt(job_id):
        raise ending
    with process.attempt(next_id):
        pass

    job = process.job(job_id)
    assert ("failed", type(ending).__name__) == (job.state, job.error_kind)
    assert State.SUCCEEDED == process.get(next_id).state


def test_del_04_a_redelivery_after_the_success_is_refused(workers: Machine) -> None:
    """DEL-04: the acknowledgement was lost, the task comes again: nothing runs, and nothing changes."""
    first, second = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        pass
    before = second.job(job_id)
    workers.elapse(600, second)

    with pytest.raises(errors.AlreadySucceeded), second.attempt(job_id):
        pytest.fail("the handler must not run")

    assert before == second.job(job_id)


@pytest.mark.parametrize(("over", "says"), [("succeeded", "succeeded already"), ("canceled", "canceled")])
def test_del_06_a_duplicate_is_no_failure_to_who_delivers_it(workers: Machine, over: str, says: str) -> None:
    """DEL-06: an endpoint that is pushed tasks tells a duplicate by its type, answers that it is dealt with, and runs nothing."""
    process = workers.start()
    job_id = process.submit("render", external=True)
    calls = 0

    def endpoint(delivered: str) -> tuple[int, str]:
        nonlocal calls
        try:
            with process.attempt(delivered):
                calls += 1
        except (errors.AlreadySucceeded, errors.AlreadyCanceled) as refused:
            return 200, str(refused)
        return 204, ""

    if over == "canceled":
        process.cancel(job_id)
    else:
        assert (204, "") == endpoint(job_id)
    before = process.job(job_id), calls
    status, body = endpoint(job_id)

    assert 200 == status
    assert says in body
    assert before == (process.job(job_id), calls)


def test_ret_01_the_try_is_carried_on_over_restarts(workers: Machine) -> None:
    """RET-01: each process counts on from the last, and the job was queued when it was first."""
    seen: list[tuple[int, int, Any]] = []
    job_id = workers.start().submit("render", max_attempts=3)
    for _ in range(3):
        process = workers.start()
        with pytest.raises(OSError), process.attempt(job_id) as attempt:
            raise OSError("always")
        status = process.get(job_id)
        seen.append((attempt.number, status.attempts, status.queued_at))
        workers.elapse(60)

    assert [(n, n, seen[0][2]) for n in (1, 2, 3)] == seen
