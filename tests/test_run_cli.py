"""The commands of the runner: run, queues, schedules, pause, resume, tail and purge."""

import select
import signal
import subprocess
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents import connect
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture

URL = "sqlite:///jobs.db?synchronous=normal"

STUDIO = """
    import time
    from jobevents import Registry

    registry = Registry()
    other = []

    @registry.job("render")
    def render(ctx):
        ctx.log(f"renders {ctx.params}")
        return "rendered"

    @registry.job("slow", queue="slow")
    def slow(ctx):
        time.sleep(ctx.params)

    @registry.job("settle", schedule="every 1h", retain=0)
    def settle(ctx):
        pass
"""


@pytest.fixture
def studio(jobevents: CommandLine, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A module with a registry in the current directory, under a name of the test's own."""
    name = f"studio_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(STUDIO))
    return f"{name}:registry"


def with_jobs(do: Callable[[Jobs], Any], **options: Any) -> Any:
    """Do something with the jobs of the current directory."""
    with connect(URL, **options) as jobs:
        return do(jobs)


# run


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_runner_runs_until_it_is_told_to_stop(studio: str, tmp_path: Path, number: signal.Signals) -> None:
    """It finishes what runs, exits with 0, and the jobs are done."""
    job_id = with_jobs(lambda jobs: jobs.submit("render", 7))
    process = start("run", studio, "--url", URL, "--queue", "default", "--queue", "defalt", cwd=tmp_path)

    with connect(URL) as jobs, jobs.log.subscribe() as feed:
        for record in feed:
            if record.type == "JobSucceeded":
                break
    process.send_signal(number)
    _, err = process.communicate(timeout=30)

    assert 0 == process.returncode
    assert "3 kinds of jobs, 4 workers; Ctrl-C to stop" in err
    assert "is of the queue name='defalt'; did you mean default?" in err
    assert "rendered" == with_jobs(lambda jobs: jobs.job(job_id).result)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:registry", "no such module module='no_such_module'"),
        ("{module}:nothing", "it has registry: write MODULE:REGISTRY"),
        ("{module}:other", "it has registry"),
        ("{module}", "it has registry"),
    ],
)
def test_a_registry_that_is_not_there_is_told(jobevents: CommandLine, studio: str, name: str, message: str) -> None:
    """Exit 2, with what there is."""
    told = jobevents("run", name.format(module=studio.partition(":")[0]))

    assert 2 == told.code
    assert message in told.err.replace("\n", " ")


@pytest.mark.parametrize("options", [("--logs", "sometimes"), ("--log-level", "loud"), ("--workers", "0")])
def test_a_wrong_option_of_run_is_told(jobevents: CommandLine, studio: str, options: tuple[str, str]) -> None:
    """Exit 2."""
    assert 2 == jobevents("run", studio, *options).code


# queues, pause, resume


def test_queues_are_counted(jobevents: CommandLine) -> None:
    """What waits, runs and has failed, and how long the oldest has been due; what is paused is listed even when empty."""

    def fill(jobs: Jobs) -> datetime:
        first = jobs.submit("render")
        jobs.submit("render", delay=3600)
        jobs.submit("slow", queue="slow", external=True)
        with pytest.raises(OSError, match="no disk"), jobs.attempt(jobs.submit("render")):
            raise OSError("no disk")
        jobs.pause(queue="mixes", reason="no tape", actor="ana")
        run = jobs.runs.get(first)
        assert run is not None
        return run.scheduled_at

    due = with_jobs(fill)

    told = jobevents("queues")

    assert [
        {
            "queue": "default",
            "queued": 2,
            "running": 0,
            "failed": 1,
            "oldest_due": due.isoformat().replace("+00:00", "Z"),
            "paused_by": "",
            "lost": 0,
        },
        {
            "queue": "mixes",
            "queued": 0,
            "running": 0,
            "failed": 0,
            "oldest_due": None,
            "paused_by": "ana: no tape",
            "lost": 0,
        },
        {"queue": "slow", "queued": 1, "running": 0, "failed": 0, "oldest_due": None, "paused_by": "", "lost": 0},
    ] == told.json
    table = jobevents("queues", at_terminal=True).out
    assert "ana: no tape" in table
    assert "default" in table


def test_a_job_or_a_queue_is_paused_and_resumed(jobevents: CommandLine) -> None:
    """With who and why; twice is no error, and a resume of what is not paused is exit 1."""
    with_jobs(lambda jobs: jobs.submit("render"))

    first, again = jobevents("pause", "--job", "render", "--reason", "no tape"), jobevents("pause", "--job", "render")
    held = with_jobs(lambda jobs: jobs.paused())
    shown = jobevents("queues", at_terminal=True).out
    resumed, nothing = jobevents("resume", "--job", "render"), jobevents("resume", "--job", "render")

    assert [{"paused": True}, {"paused": False}] == [first.json, again.json]
    assert [("job", "render", "no tape")] == [(one.kind, one.name, one.reason) for one in held]
    assert "paused: the job render, by" in shown
    assert [(0, {"resumed": True}), (1, {"resumed": False})] == [(one.code, one.json) for one in (resumed, nothing)]
    assert 2 == jobevents("pause").code


# schedules


def test_schedules_are_listed(jobevents: CommandLine, studio: str) -> None:
    """When each is due next, and what its last run came to."""
    jobevents("migrate")
    before = datetime.now(UTC)
    new = jobevents("schedules", studio).json
    with_jobs(lambda jobs: jobs.submit("settle", id="settle-20260801-120000-1", trigger="schedule"))
    [one] = jobevents("schedules", studio).json
    table = jobevents("schedules", studio, at_terminal=True).out

    assert ["", ""] == [new[0]["last_id"], new[0]["last_state"]]
    assert ("settle", "every 1h", "settle-20260801-120000-1", "queued") == (
        one["job"],
        one["schedule"],
        one["last_id"],
        one["last_state"],
    )
    assert timedelta() < datetime.fromisoformat(one["next_at"]) - before <= timedelta(hours=1, seconds=5)
    assert "every 1h" in table


# tail


def test_a_job_is_followed_to_its_end(jobevents: CommandLine) -> None:
    """Its events and log lines from the first, each line before the event that came after it; then it ends by itself."""

    def live(jobs: Jobs) -> str:
        job_id = jobs.submit("render", actor="ana")
        with jobs.attempt(job_id) as attempt:
            attempt.log("mixing")
        return job_id

    job_id = with_jobs(live)

    told = jobevents("tail", job_id)
    shown = jobevents("tail", job_id, at_terminal=True).out

    seen = [msgspec.json.decode(line) for line in told.out.splitlines()]
    assert ["JobQueued", "JobStarted", "mixing", "JobSucceeded"] == [
        one["event"]["type"] if "event" in one else one["line"]["message"] for one in seen
    ]
    assert 0 == told.code
    assert shown.index("JobStarted") < shown.index("mixing") < shown.index("JobSucceeded")


def test_a_job_that_nobody_knows_is_not_followed(jobevents: CommandLine) -> None:
    """Exit 1."""
    with_jobs(lambda jobs: None)

    assert 1 == jobevents("tail", "no-such-job").code


@pytest.mark.slow
def test_all_jobs_are_followed_until_ctrl_c(jobevents: CommandLine, tmp_path: Path) -> None:
    """From now on, with the lines of running jobs; Ctrl-C ends it in silence."""
    with connect(URL) as jobs:
        jobs.submit("before")
        process = start("tail", "--url", URL, cwd=tmp_path)
        first = _followed(process, jobs)
        with jobs.attempt(first) as attempt:
            attempt.log("mixing")
        lines = [_next(process) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=30)

    assert [{"JobStarted"}, {"mixing"}, {"JobSucceeded"}] == [
        {one["event"]["type"] if "event" in one else one["line"]["message"]} for one in lines
    ]
    assert ("", "", 0) == (rest, err, process.returncode)


def _next(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.readline())


def _followed(process: "subprocess.Popen[str]", jobs: Jobs) -> str:
    """Submit jobs until one is shown, and return the last one's id once it is."""
    assert process.stdout is not None
    submitted = [jobs.submit("render")]
    while not select.select([process.stdout], [], [], 0.2)[0]:
        submitted.append(jobs.submit("render"))
    while _next(process)["event"]["job_id"] != submitted[-1]:
        pass
    return submitted[-1]


# purge


def test_old_runs_are_purged_after_they_were_counted(jobevents: CommandLine, studio: str) -> None:
    """First a number, then with --yes; each kind for as long as its definition says; the unfinished stay."""

    def live(jobs: Jobs) -> None:
        for name in ("render", "settle"):
            with jobs.attempt(jobs.submit(name)):
                pass
        jobs.submit("settle")

    with_jobs(live)

    usual = jobevents("purge").json
    counted, done = jobevents("purge", studio).json, jobevents("purge", studio, "--yes").json
    again, all_ = jobevents("purge", studio).json, jobevents("purge", "--days", "0").json

    assert [{"would_purge": 0}, {"would_purge": 1}, {"purged": 1}, {"would_purge": 0}, {"would_purge": 1}] == [
        usual,
        counted,
        done,
        again,
        all_,
    ]
    assert ["render", "settle"] == sorted(
        with_jobs(lambda jobs: [run.job_name for run in jobs.runs.list(RunFilter(per_page=0)).runs])
    )
