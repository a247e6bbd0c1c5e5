"""The command `serve`: a real server in a process of its own, and when it refuses to start."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from jobevents import connect
from tests.cli import COMMAND, CommandLine
from tests.cli import jobevents as jobevents  # a fixture


@contextmanager
def served(*args: str, cwd: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Start a server on a free port; give where it is, and the process."""
    command = [*COMMAND, "serve", "--port", "0", *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            place = re.search(r"http://\S+:[0-9]+", line)
            assert place, line + process.stderr.read()
            yield place[0], process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_answers_until_it_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """A real server answers over a socket while nobody works, and a signal ends it well."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url) as jobs:
        job_id = jobs.submit("render", title="Song 7")

    with served("--url", url, "--read-only", cwd=tmp_path) as (place, process):
        with httpx.Client(base_url=place, trust_env=False) as client:
            found = client.get(f"/api/jobs/{job_id}").json()
            listed = client.get("/api/jobs").json()["items"]
            features = client.get("/api/features").json()
            took_s = min(client.get("/healthz").elapsed.total_seconds() for _ in range(20))
            traversal = client.get("/api/jobs/..%2f..%2fx/status")
        process.send_signal(number)
        code = process.wait(20)

    assert ("Song 7", [job_id], ["read"]) == (found["title"], [one["job_id"] for one in listed], features["roles"])
    assert 400 == traversal.status_code
    assert took_s < 0.03  # 0.04 where small packets wait for each other
    assert 0 == code


def test_a_signal_ends_what_is_followed(tmp_path: Path) -> None:
    """Who follows holds up no stop."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    connect(url).close()

    with (
        served("--url", url, cwd=tmp_path) as (place, process),
        httpx.stream("GET", f"{place}/api/stream", trust_env=False) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        code = process.wait(10)

    assert 0 == code


def test_sec_03_it_does_not_open_to_the_world(jobevents: CommandLine) -> None:
    """Beyond loopback it refuses to start without authentication, and says what to do."""
    told = jobevents("serve", "--host", "0.0.0.0")

    assert 2 == told.code
    assert "--open-to-all" in told.err


def test_a_port_that_is_taken(tmp_path: Path, jobevents: CommandLine) -> None:
    """A port that is taken is an error that names it."""
    connect("sqlite:///jobs.db").close()
    with served("--url", f"sqlite:///{tmp_path}/jobs.db", cwd=tmp_path) as (place, _):
        told = jobevents("serve", "--port", place.rpartition(":")[2])

    assert 2 == told.code
    assert f"port={place.rpartition(':')[2]}" in told.err
