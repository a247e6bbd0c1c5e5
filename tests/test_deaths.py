"""Worker processes that are killed, stopped and ended for real, and what the processes beside them make of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobevents.jobs import Jobs
from jobevents.wiring import connect
from tests.working import told

LEASE_S = 2.0
WAIT_S = 60.0  # far beyond what any of this takes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signals here")]

WORKER = """
import os, sys
from jobevents import connect
url, job_id, lease_s, how = sys.argv[1:]
with connect(url, lease_s=float(lease_s)) as jobs, jobs.attempt(job_id) as attempt:
    print(attempt.number, flush=True)
    if how == "crash":
        os._exit(137)
    sys.stdin.readline()
    attempt.result("of the child")
"""


class Child:
    """A worker process that has begun a job, and goes on when it is told."""

    def __init__(self, url: str, job_id: str, how: str = "wait") -> None:
        command = [sys.executable, "-c", WORKER, url, job_id, str(LEASE_S), how]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.number = int(self._process.stdout.readline())

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def go_on(self) -> int:
        """Let the handler end, and return the process's exit code."""
        self._process.communicate("\n", timeout=WAIT_S)
        return self._process.returncode

    def bury(self) -> int:
        """Wait for the end of a process that ends by itself or was killed."""
        self._process.communicate(timeout=WAIT_S)
        return self._process.returncode


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty log."""
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    """A process beside the others that works, and so reaps."""
    with connect(url, lease_s=LEASE_S) as made:
        with made.attempt(made.submit("warm-up")):
            pass
        yield made


def until(true: Callable[[], bool]) -> bool:
    """Wait until it is true; False when that takes too long."""
    give_up = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)  # another process cannot set an event of ours
    return True


def test_liv_01_a_killed_workers_job_is_given_back_by_itself(jobs: Jobs, url: str) -> None:
    """LIV-01: kill -9; the process beside it gives the job back, unasked, not before the lease has run out."""
    job_id = jobs.submit("render", max_attempts=2)
    child = Child(url, job_id)
    killed = time.monotonic()
    child.send(signal.SIGKILL)
    child.bury()

    assert until(lambda: jobs.job(job_id).state == "queued")

    assert time.monotonic() - killed > LEASE_S / 3
    assert ["JobQueued", "JobStarted(1)", "JobRequeued(lost, 2)"] == told(jobs.history(job_id))
    assert until(lambda: len(jobs.workers()) == 1)


def test_a_stop_shorter_than_the_lease_is_nothing(jobs: Jobs, url: str) -> None:
    """SIGSTOP for a third of a lease: the worker goes on, and its result is the job's."""
    job_id = jobs.submit("render", max_attempts=2)
    child = Child(url, job_id)
    child.send(signal.SIGSTOP)
    time.sleep(LEASE_S / 3)  # real time is what is tested
    jobs.reap()

    child.send(signal.SIGCONT)

    assert 0 == child.go_on()
    assert ["JobQueued", "JobStarted(1)", "JobSucceeded(2)"] == told(jobs.history(job_id))


def test_a_stop_past_the_lease_loses_the_job(jobs: Jobs, url: str) -> None:
    """SIGSTOP until another has done it: the worker goes on, and its result is recorded as refused, once."""
    job_id = jobs.submit("render", max_attempts=2)
    child = Child(url, job_id)
    child.send(signal.SIGSTOP)
    assert until(lambda: jobs.job(job_id).state == "queued")
    with jobs.attempt(job_id) as attempt:
        attempt.result("ours")

    child.send(signal.SIGCONT)

    assert 0 == child.go_on()
    expected = ["JobRequeued(lost, 2)", "JobStarted(2)", "JobSucceeded(4)", "TransitionRefused(JobSucceeded, 2)"]
    assert expected == told(jobs.history(job_id))[2:]
    assert "ours" == jobs.job(job_id).result


def test_del_12_a_handler_that_ends_its_process_is_tried_three_times(jobs: Jobs, url: str) -> None:
    """DEL-12: os._exit(137) each time: after the third try the job has failed, and other jobs go on."""
    job_id = jobs.submit("render", max_attempts=3)
    numbers = []
    for _ in range(3):
        child = Child(url, job_id, "crash")
        numbers.append((child.number, child.bury()))
        assert until(lambda: jobs.job(job_id).state != "running")

    with jobs.attempt(jobs.submit("other")) as other:
        other.result(os.getpid())
    assert [(1, 137), (2, 137), (3, 137)] == numbers
    assert ("failed", "WorkerLost", 3) == (
        jobs.job(job_id).state,
        jobs.job(job_id).error_kind,
        jobs.job(job_id).starts,
    )
