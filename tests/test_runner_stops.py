"""Handlers that must stop: timeouts, cancels, and the end of their process. Each leaves a history that says what happened."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from jobevents.errors import Abandon, QueueClosed
from jobevents.events import CancelRequested, JobCanceled, JobFailed, JobRequeued, JobStarted, TransitionRefused
from jobevents.execution import Executor
from jobevents.jobs import Jobs
from jobevents.queue import Reservation
from jobevents.registry import Registry
from jobevents.runner import JobRunner
from jobevents.store import JobRun, JobStore
from jobevents.wiring import connect
from projections.why import explain
from tests.jobstates import other_jobs
from tests.listqueue import ListQueue
from tests.runners import PATIENCE_S, Gate, Runners, obedient


def types(jobs: Jobs, job_id: str) -> list[str]:
    """Return a history in short."""
    return [event.type for event in jobs.history(job_id)]


def of(jobs: Jobs, job_id: str, cls: type) -> list[Any]:
    """Return a job's events of one type."""
    return [event for event in jobs.history(job_id) if isinstance(event, cls)]


async def sleeping(ctx: Any) -> None:
    """A coroutine that is asleep until it is cancelled."""
    await asyncio.sleep(PATIENCE_S)


# Timeouts


@pytest.mark.parametrize("kind", ["asks", "sleeps in a coroutine"])
def test_a_handler_that_times_out_has_failed(runners: Runners, gate: Gate, kind: str) -> None:
    """It was asked to stop and did; it is failed, not canceled, and says after how long."""
    handler = obedient(gate) if kind == "asks" else sleeping
    runners.registry.job("render", timeout=0.1)(handler)
    runners.start()

    job_id = runners.jobs.submit("render")
    [job] = runners.ended(job_id)

    assert ("failed", "TimedOut", "timed out after 0.1 s") == (job.state, job.error_kind, job.error)
    assert ["JobQueued", "JobStarted", "JobFailed"] == types(runners.jobs, job_id)


def test_a_handler_that_timed_out_is_tried_again(runners: Runners, gate: Gate) -> None:
    """While it has tries left: a timeout is a failure as any."""
    runners.registry.job("render", timeout=0.1, max_attempts=2, backoff=lambda attempt, job_id: 0.0)(obedient(gate))
    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("failed", 2, 2) == (job.state, job.starts, gate.calls)


def test_what_a_handler_raises_after_its_time_is_told(runners: Runners, gate: Gate) -> None:
    """The error says that the time was over, and what the handler made of it."""

    @runners.registry.job("render", timeout=0.1)
    def render(ctx: Any) -> None:
        while not ctx.canceled:
            gate.opened.wait(0.01)
        raise OSError("torn apart")

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert "timed out after 0.1 s: torn apart" == job.error


def test_work_that_is_done_after_all_is_done(runners: Runners, gate: Gate) -> None:
    """A handler that returns within its grace has done its work: the truth is that it succeeded."""

    @runners.registry.job("render", timeout=0.1)
    def render(ctx: Any) -> str:
        while not ctx.canceled:
            gate.opened.wait(0.01)
        return "late"

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("succeeded", "late") == (job.state, job.result)


def test_a_handler_that_ignores_its_timeout_has_failed(runners: Runners, gate: Gate) -> None:
    """After its grace it is given up, and another job takes its place; what it comes to at last is refused."""
    runners.registry.job("stuck", timeout=0.1, stop_grace=0.1)(gate)
    runners.registry.job("next")(lambda ctx: None)
    runners.start(workers=1)

    stuck_id = runners.jobs.submit("stuck")
    [stuck] = runners.ended(stuck_id)
    [following] = runners.ended(runners.jobs.submit("next"))
    gate.opened.set()
    runners.wait(lambda: bool(of(runners.jobs, stuck_id, TransitionRefused)))

    assert ("failed", "succeeded") == (stuck.state, following.state)
    assert "timed out after 0.1 s: did not stop within 0.1 s" == stuck.error
    assert ("failed", None) == (runners.jobs.job(stuck_id).state, runners.jobs.job(stuck_id).result)
    assert 1 == runners.jobs.counts.snapshot()["handlers_given_up"]


def test_a_coroutine_that_blocks_its_loop_holds_up_nobody_for_long(runners: Runners, gate: Gate) -> None:
    """Given up, it keeps the loop to itself: the next coroutine gets another."""

    @runners.registry.job("stuck", timeout=0.1, stop_grace=0.1)
    async def stuck(ctx: Any) -> None:
        gate(ctx)

    @runners.registry.job("next")
    async def following(ctx: Any) -> str:
        return "ran"

    runners.start()

    [failed] = runners.ended(runners.jobs.submit("stuck"))
    [done] = runners.ended(runners.jobs.submit("next"))

    assert ("failed", "ran") == (failed.state, done.result)


# Cancels


@pytest.mark.parametrize("where", ["here", "in another process"])
@pytest.mark.parametrize("kind", ["asks", "sleeps in a coroutine"])
def test_a_running_job_is_canceled_within_two_seconds(runners: Runners, gate: Gate, where: str, kind: str) -> None:
    """Its handler stops, and the history says who asked and why; no try follows, though there are some left."""
    handler = obedient(gate) if kind == "asks" else sleeping
    runners.registry.job("render", max_attempts=5)(handler)
    runners.start()
    job_id = runners.jobs.submit("render")
    runners.in_state(job_id, "running")

    (runners.jobs if where == "here" else other_jobs(runners.jobs)).cancel(job_id, actor="ops", reason="cost")
    [job] = runners.ended(job_id)

    assert ("canceled", "ops", "cost") == (job.state, job.canceled_by, job.cancel_reason)
    assert ["JobQueued", "JobStarted", "CancelRequested", "JobCanceled"] == types(runners.jobs, job_id)
    [asked], [ended] = of(runners.jobs, job_id, CancelRequested), of(runners.jobs, job_id, JobCanceled)
    assert (ended.at - asked.at).total_seconds() < 2


def test_can_08_a_handler_that_ignores_a_cancel_is_canceled(runners: Runners, gate: Gate) -> None:
    """CAN-08 (a): within its grace; the late result is refused, and the worker takes the next job."""
    runners.registry.job("stuck", stop_grace=0.1)(gate)
    runners.registry.job("next")(lambda ctx: None)
    runners.start(workers=1)
    job_id = runners.jobs.submit("stuck")
    gate.wait_until_entered()

    other_jobs(runners.jobs).cancel(job_id, actor="ops")
    [job] = runners.ended(job_id)
    [following] = runners.ended(runners.jobs.submit("next"))
    gate.opened.set()
    runners.wait(lambda: bool(of(runners.jobs, job_id, TransitionRefused)))

    assert ("canceled", "ops", "succeeded") == (job.state, job.canceled_by, following.state)
    assert (None, 1) == (runners.jobs.job(job_id).result, gate.calls)


def test_a_job_that_is_canceled_by_force_has_ended_at_once(runners: Runners, gate: Gate) -> None:
    """Long before its handler's grace is over; what that comes to is refused, and that it was by force stays on the event."""
    runners.registry.job("stuck", stop_grace=PATIENCE_S, max_concurrent=1)(gate)
    runners.start(workers=2)
    job_id = runners.jobs.submit("stuck")
    gate.wait_until_entered()

    asked = runners.jobs.cancel(job_id, actor="ops")
    ended = runners.jobs.cancel(job_id, force=True, actor="ana", reason="it holds the slot")
    again = runners.jobs.cancel(job_id, force=True)
    job = runners.jobs.job(job_id)
    runners.jobs.submit("stuck")
    gate.wait_until_entered()  # the slot is free
    gate.opened.set()
    runners.wait(lambda: bool(of(runners.jobs, job_id, TransitionRefused)))

    assert ("requested", "canceled", "already final") == (asked, ended, again)
    assert ("canceled", "ops") == (job.state, job.canceled_by)
    kinds = ["JobQueued", "JobStarted", "CancelRequested", "JobCanceled", "TransitionRefused"]
    assert kinds == types(runners.jobs, job_id)
    [event] = of(runners.jobs, job_id, JobCanceled)
    assert (True, 2, "ana") == (event.forced, event.start, event.actor)
    assert "ana canceled it by force" in " ".join(one.text for one in explain(runners.jobs.history(job_id)))


@pytest.mark.parametrize("queue", ["own", "another's"])
def test_can_06_a_job_canceled_before_a_runner_is_up_is_never_run(url: str, gate: Gate, queue: str) -> None:
    """CAN-06: a cancel is state: there was no runner, everything was closed and opened again; it is not counted, and not run."""
    registry = Registry()
    registry.job("render")(gate)
    registry.job("next")(lambda ctx: None)
    lists = ListQueue()
    with connect(url) as jobs:
        before = Runners(jobs, lists if queue != "own" else None)
        before.make()
        job_id, next_id = jobs.submit("render", delay=0.1), jobs.submit("next")
        jobs.cancel(job_id, actor="ops")
        assert 1 == len(before.queue)
        with connect(url) if url.startswith("sqlite") else nullcontext(jobs) as again:
            after = Runners(again, lists if queue != "own" else None)
            after.start(registry=registry)
            [job, following] = after.ended(job_id, next_id)
            after.stop()

    assert ("canceled", 0, "succeeded", 0) == (job.state, job.starts, following.state, gate.calls)


# The end of a process


@pytest.mark.parametrize("how", ["stop", "SIGTERM", "SIGINT"])
def test_shd_03_a_stop_lets_handlers_finish(runners: Runners, gate: Gate, how: str) -> None:
    """SHD-03: by call and by signals: what runs is finished, nothing new is begun, and `run` returns."""
    runners.registry.job("render")(gate)
    runner = runners.make(workers=1, grace_s=PATIENCE_S)
    ids = runners.jobs.submit_many([{"name": "render"}] * 2)
    main = threading.main_thread().ident or 0

    def stop_it() -> None:
        gate.wait_until_entered()
        if how == "stop":
            threading.Thread(target=runner.stop).start()
        else:
            signal.pthread_kill(main, signal.Signals[how])
        runners.wait(runner._stopping.is_set)
        gate.opened.set()

    threading.Thread(target=stop_it).start()
    runner.run()

    states = sorted(runners.jobs.job(job_id).state for job_id in ids)
    assert (["queued", "succeeded"], 1) == (states, gate.calls)


def test_shd_01_what_does_not_finish_is_queued_again(runners: Runners, gate: Gate) -> None:
    """SHD-01: asked after its grace, it stops; the same try is made by the next runner, to its end."""
    runners.registry.job("render")(obedient(gate))
    runner = runners.start()
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()

    runner.stop(grace_s=0.1)
    given_back = runners.jobs.job(job_id)
    runners.registry = type(runners.registry)()
    runners.registry.job("render")(lambda ctx: ctx.attempt)
    runners.start()
    [job] = runners.ended(job_id)

    assert ("queued", 0) == (given_back.state, given_back.tries)
    assert ("succeeded", 1, 2) == (job.state, job.result, job.starts)
    assert ["shutdown"] == [event.cause for event in of(runners.jobs, job_id, JobRequeued)]


def test_shd_01_what_does_not_hear_is_queued_again(
    runners: Runners, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """SHD-01: a handler of ten seconds that asks for nothing: given back while it still runs, and refused at its end."""
    caplog.set_level(logging.INFO, "jobevents.runner")
    runners.registry.job("render")(gate)
    runner = runners.start(stop_grace_s=0.1)
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()

    began = time.monotonic()
    runner.stop(grace_s=0.1)
    took = time.monotonic() - began
    gate.opened.set()
    runners.wait(lambda: bool(of(runners.jobs, job_id, TransitionRefused)))

    assert ("queued", 0) == (runners.jobs.job(job_id).state, runners.jobs.job(job_id).tries)
    assert took < 2
    assert [
        "stopping: nothing new is begun, handlers may take 0.1 s more count=1",
        "handlers are asked to stop now count=1",
        "handlers do not stop: their jobs are queued again, with the same try count=1",
        "stopped",
    ] == [record.message for record in caplog.records if record.name == "jobevents.runner"]


@pytest.mark.parametrize(
    ("raised", "expected"), [(OSError("torn"), "queued"), (Abandon("hopeless"), "failed")], ids=["an error", "abandon"]
)
def test_what_a_handler_raises_when_its_process_ends(
    runners: Runners, gate: Gate, raised: Exception, expected: str
) -> None:
    """Asked to stop, an error is how it stopped: the job is given back; unless it says that it is hopeless."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        gate.entered.release()
        while not ctx.canceled:
            gate.opened.wait(0.01)
        raise raised

    runner = runners.start()
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()

    runner.stop(grace_s=0)

    assert expected == runners.jobs.job(job_id).state


def test_a_coroutine_is_given_back_when_its_process_ends(runners: Runners) -> None:
    """Its task is cancelled, and what it was doing is cleaned up."""
    cleaned: list[str] = []
    entered = threading.Event()

    @runners.registry.job("render")
    async def render(ctx: Any) -> None:
        entered.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            cleaned.append(ctx.job_id)

    runner = runners.start()
    job_id = runners.jobs.submit("render")
    assert entered.wait(PATIENCE_S)

    runner.stop(grace_s=0)

    assert ("queued", [job_id]) == (runners.jobs.job(job_id).state, cleaned)


def test_a_canceled_job_is_not_given_back(runners: Runners, gate: Gate) -> None:
    """A cancel was asked for, then the process ended: nobody wants it again."""
    runners.registry.job("render")(gate)
    runner = runners.start()
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()
    other_jobs(runners.jobs).cancel(job_id)

    runner.stop(grace_s=0)

    assert "canceled" == runners.jobs.job(job_id).state


def test_a_second_signal_hurries(runners: Runners, gate: Gate) -> None:
    """The grace is not waited for: what runs is given back at once."""
    runners.registry.job("render")(gate)
    runner = runners.make(grace_s=PATIENCE_S, stop_grace_s=PATIENCE_S)
    job_id = runners.jobs.submit("render")
    main = threading.main_thread().ident or 0

    def twice() -> None:
        gate.wait_until_entered()
        signal.pthread_kill(main, signal.SIGTERM)
        runners.wait(lambda: runner._stopping.is_set())
        signal.pthread_kill(main, signal.SIGTERM)

    threading.Thread(target=twice).start()
    began = time.monotonic()
    runner.run()

    assert "queued" == runners.jobs.job(job_id).state
    assert time.monotonic() - began < PATIENCE_S / 2


class SlyQueue(ListQueue):
    """A queue that has its runner stopped between the pop of a run and its hand-out."""

    runner: JobRunner

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Reserve, and let the stop come before the runner has it."""
        found = super().reserve(queues, limit=limit, timeout_s=timeout_s)
        if found:
            threading.Thread(target=self.runner.stop).start()
            assert self.runner._stopping.wait(PATIENCE_S)
        return found


def test_shd_02_no_job_is_begun_after_the_stop(runners: Runners, gate: Gate) -> None:
    """SHD-02: 200 times, the stop comes just when a run is reserved: given back at once, no try counted."""
    queue = SlyQueue()
    runners.queue = queue
    runners.registry.job("render")(gate)
    job_id = runners.jobs.submit("render")
    for _ in range(200):
        queue.runner = runners.make(workers=1)
        queue.runner.start()
        assert queue.runner._stopping.wait(PATIENCE_S)
        queue.runner.stop()

    assert (0, 1, ["JobQueued"]) == (gate.calls, len(queue), types(runners.jobs, job_id))


def test_shd_02_a_job_that_comes_while_it_stops_is_left_alone(runners: Runners, gate: Gate) -> None:
    """SHD-02: idle in its wait, then told to stop, then a job comes: it is not started, and the queue has it."""
    runners.registry.job("render")(gate)
    for _ in range(10):
        runner = runners.start()
        stopping = threading.Thread(target=runner.stop)
        stopping.start()
        runners.wait(lambda runner=runner: runner._stopping.is_set())
        job_id = runners.jobs.submit("render")
        stopping.join()
        assert (["JobQueued"], 1) == (types(runners.jobs, job_id), len(runners.queue))
        runners.jobs.cancel(job_id)

    assert 0 == gate.calls


class HookedQueue(ListQueue):
    """A queue that calls before it takes an acknowledgement: of a run that was begun, or of one that is to come again."""

    def __init__(self, hook: Callable[[str, BaseException | None], object]) -> None:
        super().__init__()
        self._hook = hook

    def _settle(self, run: JobRun, error: BaseException | None, delay_s: float) -> None:
        self._hook(run.id, error)
        super()._settle(run, error, delay_s)


@pytest.mark.parametrize("most", [0, 5], ids=["begun in a turn", "begun by itself"])
def test_shd_02_a_handler_is_not_entered_after_the_stop(runners: Runners, gate: Gate, most: int) -> None:
    """SHD-02: the stop comes when the start is in the log, and before the handler: given back with the same try."""
    stopping: list[threading.Thread] = []

    def stop(job_id: str, error: BaseException | None) -> None:
        if not stopping:
            stopping.append(threading.Thread(target=runner.stop))
            stopping[0].start()
            assert runner._stopping.wait(PATIENCE_S)

    runners.queue = HookedQueue(stop)
    runners.registry.job("render", max_concurrent=most)(gate)
    runner = runners.start()
    job_id = runners.jobs.submit("render")
    assert runner._ended.wait(PATIENCE_S)

    job = runners.jobs.job(job_id)
    assert ("queued", 0, 0) == (job.state, job.tries, gate.calls)
    assert ["JobQueued", "JobStarted", "JobRequeued"] == types(runners.jobs, job_id)


def test_shd_02_a_run_that_waits_for_a_thread_is_not_begun_after_the_stop(runners: Runners, gate: Gate) -> None:
    """SHD-02: where it is begun by itself, it may wait for that when the stop comes: it goes back, with no event."""
    runners.registry.job("render")(gate)
    job_id = runners.jobs.submit("render")
    executor = Executor(runners.jobs, runners.registry, may_begin=lambda: False, monotonic=time.monotonic)
    errors: list[BaseException | None] = []

    executor.run(Reservation(runners.jobs.job(job_id), lambda error, delay_s: errors.append(error)))

    assert [QueueClosed] == [type(error) for error in errors]
    assert ["JobQueued"] == types(runners.jobs, job_id)


def test_a_stop_does_not_wait_for_a_queue_that_is_away(
    runners: Runners, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for a thread cannot be handed back for now: the handler is asked to stop in time all the same."""
    monkeypatch.setattr("jobevents.runner.STOP_GRACE_S", 0.1)
    back = threading.Event()
    runners.queue = HookedQueue(lambda job_id, error: error is None or back.wait(PATIENCE_S))
    runners.registry.job("render")(obedient(gate))
    runner = runners.start(workers=1, prefetch=5)
    runners.jobs.submit_many([{"name": "render"}] * 3)
    gate.wait_until_entered()
    runners.wait(lambda: len(runner._crew._ready) == 2)

    began = time.monotonic()
    runner.stop(grace_s=0)

    assert time.monotonic() - began < PATIENCE_S / 2
    assert 1 == gate.calls
    back.set()
    runners.wait(lambda: len(runners.queue) == 3)


def test_a_run_that_waits_behind_a_slow_queue_is_left_to_others(
    runners: Runners, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue does not answer who tells it that a run was begun, and nothing is handled: what waits goes back all the same."""
    monkeypatch.setattr("jobevents.runner.AHEAD_LIMIT_S", 0.1)
    heard = threading.Event()
    runners.queue = queue = HookedQueue(lambda job_id, error: error is not None or heard.wait(PATIENCE_S))
    runners.registry.job("render")(gate)
    runners.jobs.submit_many([{"name": "render"}] * 3)
    runners.start(workers=1, prefetch=5)

    runners.wait(lambda: queue.put_back >= 2)

    assert 0 == gate.calls
    gate.opened.set()
    heard.set()


class DeafQueue(ListQueue):
    """A queue that does not answer how much is in it, once it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.asked, self.back = threading.Event(), threading.Event()

    def __len__(self) -> int:
        if self.is_away:
            self.asked.set()
            self.back.wait(PATIENCE_S)
        return super().__len__()


def test_a_stop_does_not_wait_for_a_sweep(runners: Runners, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be in the queue is just being looked for, and that does not end: the handler is asked to stop in time."""
    monkeypatch.setattr("jobevents.foreign.SWEEP_S", 0.02)
    monkeypatch.setattr("jobevents.runner.STOP_GRACE_S", 0.1)
    runners.queue = queue = DeafQueue()
    runners.registry.job("render")(obedient(gate))
    runner = runners.start()
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()
    queue.is_away = True
    assert queue.asked.wait(PATIENCE_S)

    began = time.monotonic()
    runner.stop(grace_s=0)

    assert time.monotonic() - began < PATIENCE_S / 2
    assert "queued" == runners.jobs.job(job_id).state
    queue.back.set()


def test_a_slow_queue_holds_up_no_handler_of_others(runners: Runners, gate: Gate) -> None:
    """Two runs are begun together, and the queue takes its time to hear that of the first: the second is handled."""
    first_id = ""
    heard = threading.Event()
    runners.queue = HookedQueue(lambda job_id, error: job_id != first_id or heard.wait(PATIENCE_S))
    runners.registry.job("render")(gate)
    first_id, other_id = runners.jobs.submit_many([{"name": "render"}] * 2)
    runners.start(workers=2)

    gate.wait_until_entered()
    gate.opened.set()
    runners.ended(other_id)

    assert (1, "running") == (gate.calls, runners.jobs.job(first_id).state)
    heard.set()
    runners.ended(first_id)


def test_a_runner_that_was_stopped_before_its_start_has_ended(runners: Runners, gate: Gate) -> None:
    """A signal's handler may be faster than `run`: it returns at once, and so does another stop."""
    runners.registry.job("render")(gate)
    job_id = runners.jobs.submit("render")
    runner = runners.make()

    runner.stop()
    runner.run()
    runner.stop()

    assert (["JobQueued"], 0) == (types(runners.jobs, job_id), gate.calls)


class HangingStore:
    """A store that does not answer who asks it of one job, once that runs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.hangs_for = ""
        self.asked, self.back = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def is_cancel_requested(self, job_id: str) -> bool:
        """Hang."""
        if job_id == self.hangs_for:
            self.asked.set()
            self.back.wait(PATIENCE_S)
        return False


def test_a_handler_times_out_while_nobody_hears_who_is_canceled(runners: Runners, gate: Gate) -> None:
    """A look for the cancel of one does not return: the time of another is over all the same."""
    with connect("memory://") as archive:
        store = HangingStore(archive.store)
        runners.registry.job("long")(gate)
        runners.registry.job("render", timeout=0.1)(obedient(gate))
        runners.start(store=store)
        long_id = runners.jobs.submit("long")
        gate.wait_until_entered()
        store.hangs_for = long_id
        assert store.asked.wait(PATIENCE_S)

        [job] = runners.ended(runners.jobs.submit("render"))

        assert ("failed", "running") == (job.state, runners.jobs.job(long_id).state)
        store.back.set()
        gate.opened.set()
        runners.stop()


def test_shd_05_runs_that_were_fetched_ahead_are_given_back(runners: Runners, gate: Gate) -> None:
    """SHD-05: one runs, four wait for the worker; after the stop the four are there for others, without a try."""
    runners.registry.job("render")(gate)
    runner = runners.start(workers=1, prefetch=5)
    ids = runners.jobs.submit_many([{"name": "render"}] * 5)
    gate.wait_until_entered()
    runners.wait(lambda: len(runner._crew._ready) == 4)

    threading.Thread(target=runner.stop, kwargs={"grace_s": PATIENCE_S}).start()
    runners.wait(lambda: len(runners.queue) == 4)
    gate.opened.set()
    runner.stop()

    jobs = [runners.jobs.job(job_id) for job_id in ids]
    assert ["queued"] * 4 + ["succeeded"] == sorted(job.state for job in jobs)
    assert [0, 0, 0, 0, 1] == sorted(job.starts for job in jobs)


def test_a_run_that_waits_too_long_for_a_worker_is_left_to_others(runners: Runners, gate: Gate) -> None:
    """Fetched ahead behind a handler that takes its time, it goes back to the queue after a second."""
    runners.registry.job("render")(gate)
    runners.start(workers=1, prefetch=1)
    runners.jobs.submit_many([{"name": "render"}] * 2)
    gate.wait_until_entered()

    other = runners.start(workers=1, prefetch=0)
    gate.wait_until_entered()

    assert 2 == gate.calls
    assert other is not None


def test_a_closed_queue_stops_the_runner(runners: Runners, gate: Gate) -> None:
    """What runs may finish, and `run` returns."""
    runners.registry.job("render")(gate)
    runner = runners.make()
    job_id = runners.jobs.submit("render")

    def close_it() -> None:
        gate.wait_until_entered()
        runners.queue.close()
        runners.wait(runner._stopping.is_set)
        gate.opened.set()

    threading.Thread(target=close_it).start()
    runner.run()

    assert "succeeded" == runners.jobs.job(job_id).state
    with pytest.raises(QueueClosed):
        runners.queue.reserve()


def test_the_histories_are_what_a_person_would_expect(runners: Runners, gate: Gate) -> None:
    """A timeout, a cancel and a deploy, each with its events and no other."""
    runners.registry.job("slow", timeout=0.1)(obedient(gate))
    runners.registry.job("long")(obedient(gate))
    runner = runners.start()
    slow, canceled, deployed = (runners.jobs.submit(name) for name in ("slow", "long", "long"))
    gate.wait_until_entered(3)
    runners.jobs.cancel(canceled)
    runners.ended(slow, canceled)

    runner.stop(grace_s=0)

    assert [
        ["JobQueued", "JobStarted", "JobFailed"],
        ["JobQueued", "JobStarted", "CancelRequested", "JobCanceled"],
        ["JobQueued", "JobStarted", "JobRequeued"],
    ] == [types(runners.jobs, job_id) for job_id in (slow, canceled, deployed)]
    assert (JobFailed, JobStarted) == (type(runners.jobs.history(slow)[-1]), type(runners.jobs.history(slow)[1]))
