"""Limits, and queues and stores of somebody else's: what is handed out, to whom, and what is done when they fail."""

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobevents import execution, foreign
from jobevents.errors import NotFound, Unavailable
from jobevents.events import JobRequeued, JobSkipped, JobStarted
from jobevents.jobs import Jobs
from jobevents.queue import MemoryQueue, Reservation
from jobevents.registry import Registry
from jobevents.store import JobRun, RunError
from jobevents.storequeue import StoreQueue
from jobevents.wiring import connect
from tests.listqueue import ListQueue
from tests.runners import PATIENCE_S, Gate, Runners


@pytest.fixture
def lists(runners: Runners) -> ListQueue:
    """A queue of somebody else's, for the runners of the test."""
    queue = ListQueue()
    runners.queue = queue
    return queue


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to wait for a slot waits for a moment."""
    monkeypatch.setattr(execution, "BUSY_S", 0.05)


# Limits


def test_no_more_run_than_a_job_lets(runners: Runners, gate: Gate, swift: None) -> None:
    """Over all runners of the log; the others wait, without a try, and run when there is room."""
    running = 0
    most = 0
    lock = threading.Lock()
    met = threading.Event()

    @runners.registry.job("render", max_concurrent=2)
    def render(ctx: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                met.set()
        met.wait(PATIENCE_S)  # for the other that may run
        threading.Event().wait(0.02)  # so that a third would meet it
        with lock:
            running -= 1

    for _ in range(2):
        runners.start()

    ended = runners.ended(*runners.jobs.submit_many([{"name": "render"}] * 12))

    assert 2 == most
    assert {("succeeded", 1)} == {(job.state, job.starts) for job in ended}


def test_no_more_run_than_a_queue_lets(runners: Runners, gate: Gate, swift: None) -> None:
    """Of whatever kind; another queue's run beside them."""
    runners.registry.job("a", queue="slow")(gate)
    runners.registry.job("b", queue="slow", on_busy="skip")(gate)
    runners.registry.job("c")(lambda ctx: None)
    runners.start(queue_limits={"slow": 1})
    first = runners.jobs.submit("a")
    gate.wait_until_entered()

    second, beside = runners.jobs.submit("b"), runners.jobs.submit("c")
    runners.ended(beside)
    waiting = runners.jobs.job(second)
    gate.opened.set()
    ended = runners.ended(first, second)

    assert ("queued", 0) == (waiting.state, waiting.starts)
    assert ["succeeded", "succeeded"] == [job.state for job in ended]


def test_a_backlog_of_what_is_full_holds_up_nothing_else(runners: Runners, gate: Gate) -> None:
    """A hundred wait for the slot of one that runs: they are not tried one after the other, and another kind is run."""
    runners.registry.job("render", max_concurrent=1)(gate)
    runners.registry.job("next")(lambda ctx: None)
    runners.jobs.submit_many([{"name": "render"}] * 100)
    runners.start(workers=2)
    gate.wait_until_entered()

    runners.ended(runners.jobs.submit("next"))

    assert 1 == gate.calls
    assert runners.jobs.counts.snapshot()["guard_hits_Busy"] < 20
    gate.opened.set()
    gate.wait_until_entered(3)


def test_a_busy_job_may_be_skipped(runners: Runners, gate: Gate) -> None:
    """It ends as skipped without a start, and says why."""
    runners.registry.job("render", max_concurrent=1, on_busy="skip")(gate)
    runners.start()
    runners.jobs.submit("render")
    gate.wait_until_entered()

    job_id = runners.jobs.submit("render")
    [job] = runners.ended(job_id)

    assert ("skipped", 0) == (job.state, job.starts)
    [skipped] = [event for event in runners.jobs.history(job_id) if isinstance(event, JobSkipped)]
    assert ("runner", True) == (skipped.actor, "job_name=render most=1" in skipped.reason)
    run = runners.jobs.store.get(job_id)
    assert RunError(code="SKIPPED", message=skipped.reason) == run.error


def test_a_busy_job_may_take_the_place_of_another(runners: Runners, gate: Gate, swift: None) -> None:
    """What runs is canceled by the runner, then it is run itself."""
    stops = threading.Semaphore(0)

    @runners.registry.job("render", max_concurrent=1, on_busy="replace")
    def render(ctx: Any) -> str:
        stops.release()
        while ctx.params == "first":
            ctx.check()
            gate.opened.wait(0.01)
        return "ran"

    runners.start()
    first = runners.jobs.submit("render", "first")
    assert stops.acquire(timeout=PATIENCE_S)

    second = runners.jobs.submit("render", "second")
    replaced, done = runners.ended(first, second)

    assert ("canceled", "runner", f"replaced by job_id={second}") == (
        replaced.state,
        replaced.canceled_by,
        replaced.cancel_reason,
    )
    assert ("succeeded", "ran") == (done.state, done.result)


# Which runs are handed out


def test_a_runner_takes_from_its_queues_alone(runners: Runners) -> None:
    """By default those of its jobs and the default one."""
    runners.registry.job("fast", queue="fast")(lambda ctx: None)
    runners.registry.job("slow", queue="slow")(lambda ctx: None)
    runners.start(queues=["fast"])

    slow, fast = runners.jobs.submit("slow"), runners.jobs.submit("fast")
    runners.ended(fast)

    assert "queued" == runners.jobs.job(slow).state
    runners.start()
    runners.ended(slow)


@pytest.mark.parametrize("queue", ["own", "another's"])
def test_what_another_task_queue_delivers_is_never_handed_out(runners: Runners, gate: Gate, queue: str) -> None:
    """An external job waits for its delivery, also when it was given back."""
    if queue != "own":
        runners.queue = ListQueue()
    runners.registry.job("render")(gate)
    runners.registry.job("next")(lambda ctx: None)
    runners.start()

    job_id = runners.jobs.submit("render", external=True)
    attempt = runners.jobs.attempt(job_id)
    attempt.__enter__()
    attempt.give_back()
    runners.ended(runners.jobs.submit("next"))

    assert ("queued", 0) == (runners.jobs.job(job_id).state, gate.calls)


@pytest.mark.parametrize("queue", ["own", "another's"])
def test_tim_09_the_far_future_waits_quietly(runners: Runners, queue: str) -> None:
    """TIM-09: in 30 days and in the year 9999 nothing happens, in a millisecond and in the past it does; the wait is quiet."""
    if queue != "own":
        runners.queue = MemoryQueue()
    runners.registry.job("render")(lambda ctx: None)
    now = datetime.now(UTC)
    far = [now + timedelta(days=30), datetime(9999, 12, 31, tzinfo=UTC)]
    near = [now + timedelta(milliseconds=1), datetime(1, 1, 2, tzinfo=UTC)]
    runners.start()

    waiting = [runners.jobs.submit("render", at=at) for at in far]
    runners.ended(*[runners.jobs.submit("render", at=at) for at in near])
    before = time.process_time()
    threading.Event().wait(0.5)  # what is measured is how little happens meanwhile
    used_s = time.process_time() - before

    assert {"queued"} == {runners.jobs.job(job_id).state for job_id in waiting}
    assert used_s < 0.25


# A queue of somebody else's


@pytest.mark.parametrize("make", [ListQueue, MemoryQueue])
def test_handlers_do_not_know_which_queue_it_is(runners: Runners, make: Any) -> None:
    """Retries, snoozes, delays and priorities work over a queue of somebody else's too."""
    runners.queue = make()
    tries: list[int] = []

    @runners.registry.job("render", max_attempts=3, backoff=lambda attempt, job_id: 0.01)
    def render(ctx: Any) -> str:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise OSError("no disk")
        return "done"

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render", delay=0.05))

    assert ("succeeded", "done", [1, 2, 3]) == (job.state, job.result, tries)


def test_a_queue_that_was_lost_is_filled_again(runners: Runners) -> None:
    """A durable log with a queue in memory: what was queued is there again at the start of a runner."""
    runners.registry.job("render")(lambda ctx: None)
    ids = runners.jobs.submit_many([{"name": "render"}] * 3)  # by a process that knows of no queue

    runners.queue = MemoryQueue()
    runners.start()

    assert {"succeeded"} == {job.state for job in runners.ended(*ids)}


class FailingQueue(ListQueue):
    """A queue that cannot be written when told so."""

    is_failing = False

    def enqueue(self, run: JobRun) -> None:
        """Enqueue, or fail as the clients of queues do."""
        if self.is_failing:
            raise ConnectionError("no route to the queue")
        super().enqueue(run)


@pytest.mark.parametrize("how", ["it failed", "the process died"])
def test_del_14_a_job_that_was_not_enqueued_is_so_in_time(
    runners: Runners, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """DEL-14: the job is kept, its key answers with it, and within a sweep it is enqueued and run."""
    monkeypatch.setattr(foreign, "SWEEP_S", 0.05)
    monkeypatch.setattr("jobevents.trouble.FIRST_S", 0.05)
    runners.queue = queue = FailingQueue()
    runners.registry.job("render")(lambda ctx: None)
    if how == "it failed":
        runners.start()
        queue.is_failing = True
    job_id = runners.jobs.submit("render", key="song-7")
    assert 0 == len(queue)
    queue.is_failing = False
    if how != "it failed":
        runners.start()

    again = runners.jobs.submit("render", key="song-7")

    assert job_id == again or runners.ended(job_id)
    [job] = runners.ended(job_id)
    assert "succeeded" == job.state


def test_what_a_queue_lost_is_brought_again(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is empty, and a run has been due for longer than a sweep."""
    monkeypatch.setattr(foreign, "SWEEP_S", 0.05)
    queue = ListQueue()
    runners.queue = queue
    runners.registry.job("render")(lambda ctx: None)
    runners.make()
    job_id = runners.jobs.submit("render")
    assert queue.remove(job_id)

    runners.start()

    assert "succeeded" == runners.ended(job_id)[0].state


def test_a_run_that_nobody_knows_is_dropped(runners: Runners, lists: ListQueue, gate: Gate) -> None:
    """A queue hands out what the log does not have: it is not run, and the next is."""
    runners.registry.job("render")(gate)
    runners.registry.job("next")(lambda ctx: None)
    lists.enqueue(JobRun(id="ghost", job_name="render"))
    runners.start()

    runners.ended(runners.jobs.submit("next"))
    runners.wait(lambda: len(lists) == 0)

    assert 0 == gate.calls
    with pytest.raises(NotFound):
        runners.jobs.job("ghost")


def test_a_stale_run_is_not_started(runners: Runners, lists: ListQueue, gate: Gate) -> None:
    """What a queue hands out twice is run once: it has failed for good meanwhile, or waits for its next try."""

    @runners.registry.job("failed")
    def failed(ctx: Any) -> None:
        raise OSError("no disk")

    runners.registry.job("waiting", max_attempts=2, backoff=lambda attempt, job_id: 3600)(failed)
    runners.registry.job("next")(lambda ctx: None)
    runners.make()
    ids = [runners.jobs.submit(name) for name in ("failed", "waiting")]
    stale = [runners.jobs.runs.get(job_id) for job_id in ids]
    runners.start()
    runners.wait(lambda: all(runners.jobs.job(job_id).tries for job_id in ids))

    for run in stale:
        assert run is not None
        lists.enqueue(run)
    runners.ended(runners.jobs.submit("next"))

    starts = [sum(isinstance(e, JobStarted) for e in runners.jobs.history(job_id)) for job_id in ids]
    assert [1, 1] == starts


def test_t35_a_pair_that_loses_runs_is_warned_of() -> None:
    """Behaviour T35: a log in memory, and a queue that may outlive it."""

    class Durable(ListQueue):
        """Says nothing of being in memory."""

        is_durable = True

    with connect("memory://") as jobs:
        with pytest.warns(RuntimeWarning, match="a log in memory behind a queue that may outlive it"):
            Runners(jobs, Durable()).make()
        Runners(jobs, ListQueue()).make()
        Runners(jobs).make()


# A store of somebody else's


@pytest.fixture
def archive() -> Iterator[Jobs]:
    """Jobs whose store is somebody else's to the runners of the test."""
    with connect("memory://") as opened:
        yield opened


def test_another_store_is_kept_in_step(runners: Runners, archive: Jobs) -> None:
    """Its runs are as the log's, after every event; its own log stays its own."""
    runners.registry.job("render")(lambda ctx: {"n": 1})
    runners.start(store=archive.store)

    job_id = runners.jobs.submit("render", {"song": 7})
    runners.ended(job_id)
    runners.wait(lambda: archive.store.get(job_id).status == "succeeded")

    mirrored, own = archive.store.get(job_id), runners.jobs.store.get(job_id)
    assert ("succeeded", {"n": 1}, {"song": 7}) == (mirrored.status, mirrored.result, mirrored.params)
    assert (own.attempt, own.worker_id, own.job_name) == (mirrored.attempt, mirrored.worker_id, mirrored.job_name)


def test_a_cancel_is_heard_from_another_store(runners: Runners, archive: Jobs, gate: Gate) -> None:
    """Who asked there, and why, is in the log."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        gate.entered.release()
        while True:
            ctx.check()
            gate.opened.wait(0.01)

    runners.start(store=archive.store)
    job_id = runners.jobs.submit("render")
    gate.wait_until_entered()

    archive.store.request_cancel(job_id, "ops", "cost")
    [job] = runners.ended(job_id)

    assert ("canceled", "ops", "cost") == (job.state, job.canceled_by, job.cancel_reason)


def test_the_own_store_is_not_mirrored_into_itself(runners: Runners) -> None:
    """Given as if it were another's, it changes nothing."""
    runners.registry.job("render")(lambda ctx: None)
    runners.start(store=runners.jobs.store)

    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == [event.type for event in runners.jobs.history(job_id)]


# When nothing works


class BrokenQueue(ListQueue):
    """A queue that fails at once, for ever, and counts."""

    calls = 0

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Fail."""
        self.calls += 1
        raise ConnectionError("no route to the queue")


def test_mem_03_a_queue_that_fails_is_asked_ever_less(runners: Runners, caplog: pytest.LogCaptureFixture) -> None:
    """MEM-03: after half a second, one more, and so on, with one line for all of it."""
    queue = BrokenQueue()
    runners.queue = queue
    runners.start()

    threading.Event().wait(1.0)  # in which a loop without a pause would call thousands of times

    assert 2 <= queue.calls <= 3
    assert 1 == sum("reserving runs failed" in record.message for record in caplog.records)


def test_mem_03_a_log_that_fails_is_asked_ever_less(
    runners: Runners, lists: ListQueue, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MEM-03: a run that cannot be started goes back, and no other is asked for meanwhile; the first success resets it."""
    monkeypatch.setattr("jobevents.trouble.FIRST_S", 0.1)
    calls = 0
    attempt = runners.jobs.attempt

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if not gate.opened.is_set():
            raise Unavailable("the disk is on fire")
        return attempt(*args, **options)

    monkeypatch.setattr(runners.jobs, "attempt", failing)
    runners.registry.job("render")(lambda ctx: None)
    runner = runners.start()
    ids = runners.jobs.submit_many([{"name": "render"}] * 20)

    runners.wait(lambda: calls > 4)
    threading.Event().wait(1.0)  # in which a loop without a pause would call thousands of times
    until_now = calls
    gate.opened.set()
    runners.ended(*ids)

    assert until_now < 20
    assert 0 == runner._working.wait_s
    assert 1 == sum("starting and ending runs failed" in record.message for record in caplog.records)
    assert set() == {type(event) for event in runners.jobs.history(ids[0])} & {JobRequeued}


def test_an_idle_runner_only_polls(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked in its wait: it asks for runs ten times a second in these tests; what that costs is a benchmark."""
    looks, waits = 0, 0
    claim, patience_s = StoreQueue._claim, StoreQueue._patience_s

    def counted_claim(self: StoreQueue, queues: Sequence[str], limit: int) -> list[Reservation]:
        nonlocal looks
        looks += 1
        return claim(self, queues, limit)

    def counted_patience_s(self: StoreQueue, queues: Sequence[str]) -> float:
        nonlocal waits
        waits += 1
        return patience_s(self, queues)

    monkeypatch.setattr(StoreQueue, "_claim", counted_claim)
    monkeypatch.setattr(StoreQueue, "_patience_s", counted_patience_s)
    runners.registry.job("render")(lambda ctx: None)
    runners.start()
    runners.ended(runners.jobs.submit("render"))
    threading.Event().wait(0.3)  # in which its end wakes those who wait
    looks = waits = 0
    threading.Event().wait(1.0)  # in which nothing is to do
    assert 1 <= waits <= 30, "one to the end of each reservation, and one that ends a moment before it"
    assert 1 <= looks <= 30, "one before a wait"


def test_registries_do_not_mix(runners: Runners) -> None:
    """A second runner with another registry runs its own jobs; what is submitted is checked by the first."""
    other = Registry()
    other.job("mix", queue="mixes")(lambda ctx: "mixed")
    runners.registry.job("render")(lambda ctx: "rendered")
    runners.start(queues=["default"])
    runners.start(registry=other, queues=["mixes"])

    ended = runners.ended(runners.jobs.submit("render"), runners.jobs.submit("mix", queue="mixes"))

    assert ["rendered", "mixed"] == [job.result for job in ended]


# pauses


@pytest.mark.parametrize("what", [{"job": "render"}, {"queue": "slow"}])
@pytest.mark.parametrize("kind", [MemoryQueue, ListQueue])
def test_what_is_paused_is_not_taken_from_a_foreign_queue(runners: Runners, kind: Any, what: dict[str, str]) -> None:
    """A kind of job or a queue waits, and no try is counted, whatever else runs meanwhile; resumed, it runs."""
    runners.queue = kind()
    runners.registry.job("render", queue="slow")(lambda ctx: None)
    runners.registry.job("mix")(lambda ctx: None)
    runners.jobs.pause(**what, actor="ann", reason="disk full")
    runners.start()

    waits = runners.jobs.submit("render")
    runners.ended(*[runners.jobs.submit("mix") for _ in range(20)])
    before = runners.jobs.job(waits)
    runners.jobs.resume(**what)
    [after] = runners.ended(waits)

    assert ("queued", 0) == (before.state, before.starts)
    assert ("succeeded", 1) == (after.state, after.starts)


def test_a_pause_while_a_foreign_queue_is_waited_for(runners: Runners, lists: ListQueue) -> None:
    """What is submitted after the pause has returned is not begun, though the wait for it had begun before."""
    runners.registry.job("render")(lambda ctx: None)
    runners.start()
    first = runners.jobs.submit("render")
    runners.ended(first)

    runners.jobs.pause(job="render")
    paused = runners.jobs.submit_many([{"name": "render"}] * 10)
    runners.wait(lambda: len(lists) == 10 and lists.put_back >= 10)
    states = {runners.jobs.job(job_id).state for job_id in paused}
    runners.jobs.resume(job="render")
    ended = runners.ended(*paused)

    assert {"queued"} == states
    assert {("succeeded", 1)} == {(job.state, job.starts) for job in ended}


def test_a_stop_while_all_is_paused(runners: Runners, lists: ListQueue) -> None:
    """A runner whose every queue is paused ends as soon as any other."""
    runners.registry.job("render")(lambda ctx: None)
    runners.jobs.pause(queue="default")
    runner = runners.start()
    job_id = runners.jobs.submit("render")

    began = time.monotonic()
    runner.stop()

    assert time.monotonic() - began < PATIENCE_S / 4
    assert "queued" == runners.jobs.job(job_id).state
