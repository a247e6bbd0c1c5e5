"""What `jobevents events` shows a person of a cancel, a timeout, a deploy and a dead worker, all by real processes."""

import os
import re
import signal
import textwrap
import time
from pathlib import Path

import pytest

from jobevents import connect
from jobevents.jobs import Jobs
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture
from tests.lives import Lives

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"), pytest.mark.slow]

URL = "sqlite:///jobs.db?synchronous=normal"
PATIENCE_S = 60.0
LEASE_S = 0.5
STUDIO = """
    import time
    from jobevents import Registry

    registry = Registry()

    def obedient(ctx):
        while True:
            ctx.check()
            time.sleep(0.01)

    registry.job("quick", timeout=0.3)(obedient)
    registry.job("long")(obedient)
"""


def wait_for(jobs: Jobs, job_id: str, state: str) -> None:
    """Wait until a job is in a state."""
    end = time.monotonic() + PATIENCE_S
    while jobs.get(job_id).state != state:
        assert time.monotonic() < end, f"{job_id} is {jobs.get(job_id).state}"
        time.sleep(0.02)


def shown(jobevents: CommandLine, job_id: str) -> list[str]:
    """Return what the command shows at a terminal, a line an event, without the blanks."""
    told = jobevents("events", job_id, at_terminal=True)
    assert 0 == told.code
    return [" ".join(line.split()) for line in told.out.splitlines() if line.strip()]


def check(lines: list[str], *expected: str) -> None:
    """Hold what is shown, but for its head, its foot and the times, against what is told of each event."""
    told = [line.split(" ", 2 if number == 0 else 3)[-1] for number, line in enumerate(lines[1:-1])]
    fits = [re.match(wanted, line) is not None for wanted, line in zip(expected, told, strict=True)]
    assert all(fits), told


def test_a_cancel_a_timeout_and_a_deploy(jobevents: CommandLine, tmp_path: Path) -> None:
    """Who asked and why, what each came to, and nothing that did not happen."""
    (tmp_path / "studio_shown.py").write_text(textwrap.dedent(STUDIO))
    with connect(URL) as jobs:
        quick, canceled, deployed = jobs.submit("quick"), jobs.submit("long"), jobs.submit("long")
        runner = start("run", "studio_shown:registry", "--grace", "0", "--url", URL, cwd=tmp_path)
        wait_for(jobs, canceled, "running")
        wait_for(jobs, deployed, "running")
        jobevents("cancel", canceled, "--actor", "ann", "--reason", "wrong song")
        wait_for(jobs, canceled, "canceled")
        wait_for(jobs, quick, "failed")
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=PATIENCE_S)

    assert 0 == runner.returncode
    started = r"JobStarted \S+ attempt=1 deadline="
    check(shown(jobevents, quick), "JobQueued name=quick", started, r"JobFailed \S+ error=timed out after 0.3 s")
    check(
        shown(jobevents, canceled),
        "JobQueued name=long",
        started,
        "CancelRequested ann wrong song",
        r"JobCanceled \S+ start=2",
    )
    check(shown(jobevents, deployed), "JobQueued name=long", started, r"JobRequeued \S+ cause=shutdown start=2")


def test_a_dead_worker(jobevents: CommandLine, tmp_path: Path) -> None:
    """The reaper gave the job back, it says why, and the next worker did it."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url, lease_s=LEASE_S) as jobs, Lives() as lives:
        job_id = jobs.submit("work", max_attempts=2)
        [dead] = lives.start(("run", {"url": url, "what": "sleep", "seconds": PATIENCE_S, "lease_s": LEASE_S}))
        lives.hear_until("called")
        lives.end(dead, signal.SIGKILL)
        [living] = lives.start(("run", {"url": url, "what": "sleep", "lease_s": LEASE_S}))
        wait_for(jobs, job_id, "succeeded")
        lives.end(living, signal.SIGTERM)

    check(
        shown(jobevents, job_id),
        "JobQueued max_attempts=2 name=work",
        r"JobStarted \S+ attempt=1",
        "JobRequeued reaper the worker was last seen",
        r"JobStarted \S+ attempt=2",
        r"JobSucceeded \S+ start=4 result=2",
    )
