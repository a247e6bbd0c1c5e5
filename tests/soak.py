"""A worker of the soak, and what kills it: `python -m tests.soak URL DIRECTORY SEED` works until SIGTERM.

The handler's first act is a line in the file `starts`, job and start, in one write. A kill never falls between the grant and
that line (whoever kills takes the worker's lock): there the handler has not begun, and no count could agree.
"""

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from jobevents import connect, errors
from jobevents.attempt import Attempt
from jobevents.jobs import Jobs
from jobevents.store import RunFilter

LEASE_S = 1.5  # short, so that many deaths are found out in a minute
STOP_S = (0.2, 2.5)  # a stop: shorter than the lease, or longer
LONGEST_S = 0.4  # a handler's work
POISON = 0.02  # part of the handlers that end their process
FAULTY = 0.05  # part of the handlers that raise


class Victim:
    """A worker process, as the test sees it."""

    def __init__(self, url: str, directory: Path, seed: int) -> None:
        command = [sys.executable, "-m", "tests.soak", url, str(directory), str(seed)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._lock = directory / f"{self._process.pid}.lock"
        self._resuming: threading.Timer | None = None

    @property
    def is_dead(self) -> bool:
        """Tell whether it has ended, by itself or not."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once, wherever it is but between a grant and the handler's first act."""
        with locked(self._lock):
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @property
    def is_stopped(self) -> bool:
        """Tell whether it stands still."""
        return self._resuming is not None and self._resuming.is_alive()

    def stop(self, seconds: float) -> None:
        """Have it stand still for so long; a thread resumes it, since it may hold a lock that the caller waits for."""
        self._resuming = threading.Timer(seconds, self._process.send_signal, [signal.SIGCONT])
        self._process.send_signal(signal.SIGSTOP)
        self._resuming.start()

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def close(self) -> str:
        """Kill it if it still lives, remove its lock, and return what it said in its distress."""
        if self._resuming is not None:
            self._resuming.join()
        self._process.kill()
        _, said = self._process.communicate()
        self._lock.unlink(missing_ok=True)
        return said


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a worker's lock; the kernel frees that of a dead one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def work(jobs: Jobs, directory: Path, rng: random.Random, stopping: threading.Event) -> None:
    """Take waiting jobs, one after the other, until told to stop."""
    starts = os.open(directory / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lock = directory / f"{os.getpid()}.lock"
    while not stopping.is_set():
        waiting = jobs.runs.list(RunFilter(statuses=("queued",), per_page=20)).runs
        if not waiting:
            stopping.wait(0.05)
            continue
        with contextlib.suppress(errors.Refused, errors.Canceled, OSError), contextlib.ExitStack() as stack:
            with locked(lock):
                attempt = stack.enter_context(jobs.attempt(rng.choice(waiting).id))
                os.write(starts, f"{attempt.job_id} {attempt.start}\n".encode())
            handle(attempt, rng)
    os.close(starts)


def handle(attempt: Attempt, rng: random.Random) -> None:
    """Work a while, and end in one of the ways in which handlers end."""
    fate = rng.random()
    until = time.monotonic() + rng.uniform(0, LONGEST_S)
    while (left := until - time.monotonic()) > 0:
        attempt.progress(100 * (1 - left / LONGEST_S))
        attempt.check()
        time.sleep(min(left, 0.05))
    if fate < POISON:
        os._exit(137)
    if fate < POISON + FAULTY:
        raise OSError("the handler failed")
    attempt.result({"start": attempt.start})


def main(url: str, directory: str, seed: str) -> None:
    """Work until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with connect(url, lease_s=LEASE_S) as jobs:
        work(jobs, Path(directory), random.Random(seed), stopping)


if __name__ == "__main__":
    main(*sys.argv[1:])
