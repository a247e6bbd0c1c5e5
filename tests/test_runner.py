"""The runner: handlers are called with what they need, and how they end is how their jobs end."""

import asyncio
import contextlib
import logging
import threading
from typing import Any

import msgspec
import pytest

from jobevents.attempt import PROGRESS_INTERVAL_S, Attempt
from jobevents.errors import Abandon, InvalidValue, Misconfigured, Snooze
from jobevents.events import JobFailed, JobProgressed, JobStarted, TransitionRefused
from jobevents.jobs import Jobs
from jobevents.runlog import LINES_LIMIT, SIZE_LIMIT
from jobevents.wiring import connect
from tests.listqueue import ListQueue
from tests.runners import Gate, Runners


def of(jobs: Jobs, job_id: str, cls: type) -> list[Any]:
    """Return a job's events of one type."""
    return [event for event in jobs.history(job_id) if isinstance(event, cls)]


# What a handler gets and gives


class Song(msgspec.Struct):
    """Params."""

    number: int


def test_what_a_handler_returns_is_the_result(runners: Runners) -> None:
    """Of a function and of a coroutine function; what it set as the result goes before."""
    job = runners.registry.job
    job("plain")(lambda ctx: {"n": ctx.params})

    @job("coroutine")
    async def coroutine(ctx: Any) -> int:
        return int(ctx.params) + 1

    @job("set")
    def set_(ctx: Any) -> str:
        ctx.result("set")
        return "returned"

    runners.start()

    ended = runners.ended(*[runners.jobs.submit(name, 7) for name in ("plain", "coroutine", "set")])

    assert [("succeeded", {"n": 7}), ("succeeded", 8), ("succeeded", "set")] == [
        (one.state, one.result) for one in ended
    ]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_context_says_what_the_job_is(runners: Runners, kind: str) -> None:
    """Id, number of the try, params as the Struct, when it times out, and that it is wanted."""
    seen: list[Any] = []

    def look(ctx: Any) -> None:
        seen.append((ctx.job_id, ctx.attempt, ctx.params, ctx.deadline is not None, ctx.canceled, ctx.trace))

    async def look_later(ctx: Any) -> None:
        look(ctx)

    runners.registry.job("render", params=Song)(look if kind == "def" else look_later)
    runners.start()

    job_id = runners.jobs.submit("render", Song(7))
    runners.ended(job_id)

    assert [(job_id, 1, Song(7), True, False, "")] == seen


def test_a_coroutine_may_await_what_it_says_or_not(runners: Runners) -> None:
    """All of it is written, in order, before the outcome."""

    @runners.registry.job("render")
    async def render(ctx: Any) -> None:
        await ctx.progress(10)
        for percent in range(11, 100):
            ctx.progress(percent)
        await ctx.log("first")
        ctx.log("second")
        ctx.annotate(title="Song 7")
        await ctx.check()
        await ctx.result("done")

    runners.start()

    job_id = runners.jobs.submit("render")
    [job] = runners.ended(job_id)

    assert ("succeeded", "done", 99, "Song 7") == (job.state, job.result, job.progress, job.title)
    assert ["first", "second"] == [line.message for line in runners.jobs.run_logs.logs(job_id)]
    assert 10 == of(runners.jobs, job_id, JobProgressed)[0].percent


def test_coroutines_run_beside_each_other(runners: Runners) -> None:
    """As many as there are workers, in one event loop."""
    meeting: asyncio.Barrier | None = None
    loops = set()

    @runners.registry.job("render")
    async def render(ctx: Any) -> None:
        nonlocal meeting
        loops.add(asyncio.get_running_loop())
        meeting = meeting or asyncio.Barrier(4)
        await meeting.wait()

    runners.start(workers=4)

    ended = runners.ended(*runners.jobs.submit_many([{"name": "render"}] * 4))

    assert {"succeeded"} == {job.state for job in ended}
    assert 1 == len(loops)


# How handlers end

ENDINGS = [
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseExceptionGroup("two", [OSError("a"), KeyboardInterrupt()]),
    ExceptionGroup("one", [ValueError("b")]),
    RecursionError("deep"),
]


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
def test_whatever_a_handler_raises_is_recorded(runners: Runners, ending: BaseException, kind: str) -> None:
    """The job has failed, with the type in its error, and the runner takes the next."""

    def end(ctx: Any) -> None:
        raise ending

    async def end_later(ctx: Any) -> None:
        raise ending

    runners.registry.job("end")(end if kind == "def" else end_later)
    runners.registry.job("next")(lambda ctx: None)
    runners.start(workers=1)

    ended = runners.ended(runners.jobs.submit("end"), runners.jobs.submit("next"))

    assert [("failed", type(ending).__name__), ("succeeded", "")] == [(job.state, job.error_kind) for job in ended]
    assert ended[0].error


def test_a_job_that_nobody_registered_fails(runners: Runners) -> None:
    """Behaviour M7: it was never started, and its error says which name is missing."""
    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("failed", "JOB_NOT_FOUND", 0) == (job.state, job.error_kind, job.starts)
    assert "render" in job.error


def test_params_that_do_not_fit_fail_at_once(runners: Runners) -> None:
    """Submitted by who does not know the Struct: no other try changes them, and the handler is not called."""
    gate = Gate()
    runners.registry.job("render", params=Song, max_attempts=5)(gate)
    job_id = runners.jobs.submit("render", {"number": "7"}, max_attempts=5)
    runners.start()

    [job] = runners.ended(job_id)

    assert ("failed", "UnfitParams", 1, 0) == (job.state, job.error_kind, job.tries, gate.calls)
    assert "path=$.number" in job.error


def test_a_submission_beside_a_runner_is_checked(runners: Runners) -> None:
    """Params that do not fit are refused with the path, and nothing is written; the job's own values are taken."""
    runners.registry.job("render", params=Song, queue="slow", max_attempts=5)(lambda ctx: None)
    runners.make()

    with pytest.raises(InvalidValue, match=r"path=\$\.number"):
        runners.jobs.submit("render", {"number": "7"})
    job = runners.jobs.job(runners.jobs.submit("render", {"number": 7}))

    assert ("slow", 5) == (job.queue, job.max_attempts)


# Other tries


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_ret_01_a_job_is_tried_as_often_as_it_may_be(runners: Runners, kind: str) -> None:
    """RET-01: by one runner after the other: 1, 2, 3 and then failed for good; queued when it first was."""
    seen: list[Any] = []

    def render(ctx: Any) -> None:
        seen.append(ctx.attempt)
        raise OSError(f"no disk {ctx.attempt}")

    async def render_later(ctx: Any) -> None:
        render(ctx)

    runners.registry.job("render", max_attempts=3, backoff=lambda attempt, job_id: 0.01)(
        render if kind == "def" else render_later
    )
    runners.make()
    job_id = runners.jobs.submit("render")
    queued_at = runners.jobs.get(job_id).queued_at
    for tries in (1, 2, 3):
        runner = runners.start()
        runners.wait(lambda tries=tries: runners.jobs.job(job_id).tries >= tries)
        runner.stop()

    job = runners.jobs.job(job_id)
    assert ([1, 2, 3], "failed", "no disk 3", 3) == (seen, job.state, job.error, job.starts)
    assert queued_at == job.queued_at


def test_a_retry_waits_as_the_backoff_says(runners: Runners) -> None:
    """It is asked for the wait before the next try, by its number and the job's id."""
    asked: list[Any] = []

    def backoff(attempt: int, job_id: str) -> float:
        asked.append((attempt, job_id))
        return 3600.0

    @runners.registry.job("render", max_attempts=2, backoff=backoff)
    def render(ctx: Any) -> None:
        raise OSError("no disk")

    runners.start()

    job_id = runners.jobs.submit("render")
    runners.wait(lambda: bool(of(runners.jobs, job_id, JobFailed)))

    [failed] = of(runners.jobs, job_id, JobFailed)
    assert [(2, job_id)] == asked
    assert 3600 == round((failed.retry_at - failed.at).total_seconds())


def test_what_is_abandoned_is_not_tried_again(runners: Runners) -> None:
    """Abandon gives up at once."""

    @runners.registry.job("render", max_attempts=5)
    def render(ctx: Any) -> None:
        raise Abandon("hopeless")

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("failed", "hopeless", 1) == (job.state, job.error, job.starts)


def test_a_snoozed_job_is_run_again_with_the_same_try(runners: Runners) -> None:
    """The try does not count."""
    seen: list[int] = []

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        seen.append(ctx.attempt)
        if len(seen) == 1:
            raise Snooze(0.05, "too early")

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("succeeded", [1, 1]) == (job.state, seen)


# What it says meanwhile


def test_log_02_lines_stand_in_order_over_tries(runners: Runners) -> None:
    """LOG-02: three tries by three runners, 100 lines each: read in pages of 30, each line once, in one rising sequence."""

    @runners.registry.job("render", max_attempts=3, backoff=lambda attempt, job_id: 0.0)
    def render(ctx: Any) -> None:
        for n in range(100):
            ctx.log(f"{ctx.attempt}/{n}")
        raise OSError("no disk")

    runners.make()
    job_id = runners.jobs.submit("render")
    for tries in (1, 2, 3):
        runner = runners.start()
        runners.wait(lambda tries=tries: runners.jobs.job(job_id).tries >= tries)
        runner.stop()

    lines: list[Any] = []
    while page := runners.jobs.run_logs.logs(job_id, lines[-1].seq if lines else 0, 30):
        lines += page
    assert [f"{attempt}/{n}" for attempt in (1, 2, 3) for n in range(100)] == [line.message for line in lines]
    assert [1] * 100 + [2] * 100 + [3] * 100 == [line.attempt for line in lines]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_log_05_an_endless_log_is_limited(runners: Runners, kind: str) -> None:
    """LOG-05: the first 1,000 lines are kept and how many were dropped; the job's end does not wait behind them."""

    def render(ctx: Any) -> None:
        for n in range(20_000):
            ctx.log(f"line {n}")

    async def render_later(ctx: Any) -> None:
        render(ctx)

    runners.registry.job("render")(render if kind == "def" else render_later)
    runners.start()

    job_id = runners.jobs.submit("render")
    [job] = runners.ended(job_id)

    lines = runners.jobs.run_logs.logs(job_id)
    assert ("succeeded", LINES_LIMIT + 1) == (job.state, len(lines))
    assert "19000 more lines were dropped" in lines[-1].message


def test_log_05_a_giant_line_is_cut(runners: Runners) -> None:
    """LOG-05: a line of 50 MB does not go beyond what an attempt's lines may take together."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        ctx.log("x" * 50_000_000)
        ctx.log("after it")

    runners.start()

    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    lines = runners.jobs.run_logs.logs(job_id)
    assert sum(len(line.message) for line in lines) < SIZE_LIMIT
    assert any("dropped" in line.message or "cut" in line.message for line in lines)


@pytest.mark.parametrize(
    ("policy", "fails", "kept"), [("off", True, 0), ("failure", False, 0), ("failure", True, 1), ("always", False, 1)]
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_records_of_logging_are_kept_as_the_job_says(
    runners: Runners, policy: Any, fails: bool, kept: int, kind: str
) -> None:
    """Never, when it failed, or always; none of another run's, or of what runs beside the handlers."""
    studio = logging.getLogger("studio")

    def render(ctx: Any) -> None:
        studio.warning("%s mixes", ctx.job_id)
        if fails:
            raise OSError("no disk")

    async def render_later(ctx: Any) -> None:
        await asyncio.sleep(0)
        render(ctx)

    runners.registry.job("render", logs=policy)(render if kind == "def" else render_later)
    runners.start()

    ids = runners.jobs.submit_many([{"name": "render"}] * 4)
    runners.ended(*ids)
    studio.warning("beside")

    found = {job_id: [line.message for line in runners.jobs.run_logs.logs(job_id)] for job_id in ids}
    assert {job_id: [f"{job_id} mixes"] * kept for job_id in ids} == found


def test_a_handler_captures_a_logger_itself(runners: Runners) -> None:
    """Within a block, or with the handler of `logging` that its context has."""
    studio = logging.getLogger("studio.desk")

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        studio.warning("before")
        with ctx.capture("studio.desk"):
            studio.warning("within")
        studio.addHandler(ctx.log_handler)
        studio.error("with the handler")
        studio.removeHandler(ctx.log_handler)

    runners.start()

    job_id = runners.jobs.submit("render")
    runners.ended(job_id)

    lines = runners.jobs.run_logs.logs(job_id)
    assert [("warn", "within"), ("error", "with the handler")] == [(line.level, line.message) for line in lines]


def test_a_runner_leaves_no_handler_of_logging_behind(runners: Runners) -> None:
    """The one that takes all records is there while it runs."""
    before = list(logging.getLogger().handlers)

    runner = runners.start(logs="always")
    within = list(logging.getLogger().handlers)
    runner.stop()

    assert [1, 0] == [len(within) - len(before), len(logging.getLogger().handlers) - len(before)]


def test_progress_is_recorded_twice_a_second_at_most(runners: Runners) -> None:
    """However often a handler says it, and always the last."""

    @runners.registry.job("render")
    def render(ctx: Any) -> None:
        for n in range(1000):
            ctx.progress(n / 10)

    runners.start()

    job_id = runners.jobs.submit("render")
    [job] = runners.ended(job_id)

    took = (job.finished_at - job.started_at).total_seconds() if job.finished_at and job.started_at else 0
    assert len(of(runners.jobs, job_id, JobProgressed)) <= 2 + took / PROGRESS_INTERVAL_S
    assert 99.9 == job.progress


# The runner itself


def test_each_job_is_run_once_by_many_runners(runners: Runners) -> None:
    """Four runners of four workers each, over one log: every job succeeds, started once."""
    calls: list[str] = []
    runners.registry.job("render")(lambda ctx: calls.append(ctx.job_id))
    for _ in range(4):
        runners.start()

    ids = runners.jobs.submit_many([{"name": "render"}] * 200)
    runners.ended(*ids)

    assert sorted(ids) == sorted(calls)
    assert {1} == {len(of(runners.jobs, job_id, JobStarted)) for job_id in ids}


def test_del_02_a_lease_is_shorter_than_the_work(url: str) -> None:
    """DEL-02: the worker lives, so nobody takes its job: it is started once, though its lease ends three times meanwhile."""
    with connect(url, lease_s=0.3) as jobs, contextlib.ExitStack() as stack:
        runners = Runners(jobs, ListQueue())
        stack.callback(runners.stop)
        gate = Gate()
        runners.registry.job("render")(gate)
        for _ in range(3):
            runners.start()
        job_id = jobs.submit("render")
        gate.wait_until_entered()

        threading.Event().wait(1.0)  # three leases
        gate.opened.set()
        [job] = runners.ended(job_id)

        assert ("succeeded", 1, 1) == (job.state, job.starts, gate.calls)
        assert [] == of(jobs, job_id, TransitionRefused)


def test_a_runner_starts_once(runners: Runners) -> None:
    """A second start is refused; a second stop is not."""
    runner = runners.start()

    with pytest.raises(Misconfigured, match="starts once"):
        runner.start()
    runner.stop()
    runner.stop()
    with pytest.raises(Misconfigured, match="starts once"):
        runner.run()


@pytest.mark.parametrize("options", [{"workers": 0}, {"grace_s": -1}, {"stop_grace_s": -1}, {"prefetch": -1}], ids=str)
def test_a_runner_that_cannot_work_is_refused(runners: Runners, options: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(Misconfigured, match="a runner needs"):
        runners.make(**options)


def test_mem_01_what_a_coroutine_says_while_nothing_is_written_is_bounded(
    runners: Runners, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MEM-01: 100,000 times progress and a line behind a write that hangs: the last progress and the limited lines wait."""
    waiting: list[int] = []
    monkeypatch.setattr(Attempt, "annotate", lambda attempt, **fields: gate(attempt))

    @runners.registry.job("render")
    async def render(ctx: Any) -> None:
        ctx.annotate(title="hangs")
        for n in range(100_000):
            ctx.progress(n / 1000)
            ctx.log("line")
        waiting.append(ctx._send.__self__._calls._work_queue.qsize())
        gate.opened.set()

    runners.start()

    [job] = runners.ended(runners.jobs.submit("render"))

    assert ("succeeded", 99.999) == (job.state, job.progress)
    assert waiting[0] <= LINES_LIMIT + 2
