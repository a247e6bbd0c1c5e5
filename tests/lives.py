"""Processes that tests start and kill: a warm parent forks them on command, so that each is at work within milliseconds.

Run as `python -m tests.lives`: every line of input is a JSON list of roles, [name, {argument: value}], that are forked
together; when all have ended the next line is read. What a process says is a line of JSON on the common output:
[pid, what, ...], written whole in one call, so that a kill never leaves a part of it.
"""

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from jobevents import JobRunner, Registry, connect
from jobevents.backends import sqlite
from jobevents.context import JobContext
from jobevents.errors import IllegalTransition, Refused, Unavailable
from jobevents.events import Event
from jobevents.job import Job
from jobevents.jobs import Jobs
from jobevents.store import RunFilter

LINES = 3  # log lines of an attempt
assert sqlite  # imported before the forks, which do without


class Said(NamedTuple):
    """A line of one of the processes."""

    pid: int
    what: str  # born, ended, failed, or a role's own word
    rest: list[Any]


class Lives:
    """The parent of the processes, seen from the test."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.lives"]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._parent.stdout is not None
        self._output = self._parent.stdout.fileno()
        self._partial = b""
        self._kept: deque[Said] = deque()
        self.living: set[int] = set()  # whose end was not heard yet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # the parent waits for its children, and we for the parent
            for pid in self.living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.hear_for(1.0)  # so that it can say that they have ended
        for pipe in (self._parent.stdin, self._parent.stdout):
            assert pipe is not None
            pipe.close()
        self._parent.wait()

    def start(self, *roles: tuple[str, dict[str, Any]]) -> list[int]:
        """Fork a process for each role, and return their ids."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(roles).encode() + b"\n")
        kept: list[Said] = []
        pids: list[int] = []
        while len(pids) < len(roles):
            said = self.hear()
            if said.what == "born":
                pids.append(said.pid)
            else:
                kept.append(said)
        self._kept.extend(kept)
        return pids

    def hear(self) -> Said:
        """Return the next line, waiting for it."""
        if self._kept:
            return self._kept.popleft()
        while b"\n" not in self._partial:
            data = os.read(self._output, 65536)
            assert data, "the parent of the processes has died"
            self._partial += data
        line, _, self._partial = self._partial.partition(b"\n")
        pid, what, *rest = json.loads(line)
        if what == "born":
            self.living.add(pid)
        elif what == "ended":
            self.living.discard(pid)
        return Said(pid, what, rest)

    def hear_for(self, seconds: float) -> list[Said]:
        """Return what is said within a time."""
        heard = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._kept or b"\n" in self._partial or select.select([self._output], [], [], left)[0]:
                heard.append(self.hear())
        return heard

    def hear_until(self, what: str, times: int = 1) -> list[Said]:
        """Return all that is said until something was said so many times."""
        heard: list[Said] = []
        while times:
            heard.append(self.hear())
            times -= heard[-1].what == what
        return heard

    def end(self, pid: int, how: signal.Signals) -> list[Said]:
        """Signal a role that was started alone, unless it has ended, and return what is said until it has."""
        if pid not in self.living:
            return []
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        return self.hear_until("ended")


def say(what: str, *rest: Any) -> None:
    """Tell the test something."""
    os.write(1, json.dumps([os.getpid(), what, *rest]).encode() + b"\n")


def acknowledge(job: Job, events: Sequence[Event]) -> None:
    """Tell the test of events whose append has returned: an observer of Jobs."""
    for event in events:
        say("appended", event.job_id, event.version, event.id)


# --- roles


def write(url: str, seed: int, threads: int) -> None:
    """Do with jobs all that can be done, in several threads, until killed."""
    with connect(url) as jobs:
        jobs.observe(acknowledge)
        in_threads(lambda number: _write_for_ever(jobs, random.Random(seed * 100 + number)), threads)


def _write_for_ever(jobs: Jobs, rng: random.Random) -> None:
    mine: list[str] = []
    while True:
        many = [{"name": "render", "params": {"n": n}} for n in range(rng.randint(1, 3))]
        mine += jobs.submit_many(many) if len(many) > 1 else [jobs.submit("mix", key=f"key-{rng.random()}")]
        with suppress(Refused, ZeroDivisionError), jobs.attempt(rng.choice(mine)) as attempt:
            _work(attempt, rng)
        with suppress(IllegalTransition):
            commands: list[Callable[[str], object]] = [jobs.cancel, jobs.rerun, jobs.retry, jobs.history]
            rng.choice(commands)(rng.choice(mine))
        if len(mine) > 5:
            jobs.delete(mine.pop(rng.randrange(len(mine))))


def _work(attempt: Any, rng: random.Random) -> None:
    attempt.progress(10, "began")
    attempt.annotate(title=f"try {attempt.number}", output="x" * rng.randint(0, 2000))
    for line in range(LINES):
        attempt.log(f"line {line}")
    attempt.progress(rng.randint(11, 99))
    if rng.random() < 0.2:
        raise ZeroDivisionError("as tests do")
    attempt.result({"lines": LINES})


def start(url: str, job_id: str, deadline_s: float | None) -> None:
    """Start a job and work on it until killed."""
    with connect(url) as jobs, jobs.attempt(job_id, deadline_s=deadline_s) as attempt:
        say("started", attempt.start)
        signal.pause()


def finish_late(url: str, job_id: str, deadline_s: float) -> None:
    """Start a job, fork in the attempt, and leave it in both processes after a signal: two outcomes of one start."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with connect(url) as jobs:
        with jobs.attempt(job_id, deadline_s=deadline_s) as attempt:
            say("started", attempt.start)
            signal.sigwait([signal.SIGUSR1])
            child = os.fork()
            attempt.result("late")
        if child:
            os.waitpid(child, 0)
        say("refused", jobs.counts.snapshot().get("outcomes_refused", 0))
    if not child:
        os._exit(0)


def submit(url: str, count: int, threads: int) -> None:
    """Submit jobs."""

    def some(_: int) -> None:
        for n in range(count // threads):
            say("submitted", jobs.submit("render", {"n": n}))

    with connect(url) as jobs:
        in_threads(some, threads)


def work(url: str, total: int, threads: int) -> None:
    """Work on queued jobs, whichever, until `total` jobs are all done."""
    with connect(url) as jobs:
        in_threads(lambda number: _work_all(jobs, total, random.Random(os.getpid() + number)), threads)


def _work_all(jobs: Jobs, total: int, rng: random.Random) -> None:
    while True:
        waiting = jobs.runs.list(RunFilter(statuses=("queued",), per_page=40)).runs
        if not waiting and jobs.runs.list(RunFilter(statuses=("succeeded",), per_page=1)).total == total:
            return
        rng.shuffle(waiting)
        for run in waiting:
            with suppress(Refused), jobs.attempt(run.id) as attempt:
                say("worked", run.id)
                attempt.progress(50)
                attempt.result(run.params)


def run(url: str, what: str, seconds: float = 0.0, grace_s: float = 5.0, lease_s: float = 1.0) -> None:
    """Run the jobs `work` until a signal: say each call, then do `what`: sleep for some seconds, or die as a kernel kills."""
    registry = Registry()

    @registry.job("work", logs="off")
    def handler(ctx: JobContext[Any]) -> int:
        say("called", ctx.job_id, ctx.attempt)
        if what == "crash":
            os._exit(137)
        if seconds:
            time.sleep(seconds)  # work that asks for nothing
        return ctx.attempt

    with _begun_again(lambda: connect(url, lease_s=lease_s, claim_s=lease_s)) as jobs:
        JobRunner(jobs, registry, workers=4, grace_s=grace_s, stop_grace_s=0.2).run()
        say("stopped")


def _begun_again(begin: Callable[[], Jobs]) -> Jobs:
    """Connect as a process does that its supervisor begins again for as long as the server is not there."""
    give_up = time.monotonic() + 30
    while True:
        try:
            return begin()
        except Unavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def look(url: str, path: str, total: int) -> None:
    """List jobs, each time within a snapshot that is read slowly, until `total` are done."""
    slow = sqlite3.connect(path)
    with connect(url) as jobs:
        done = 0
        while done < total:
            rows = slow.execute("SELECT id FROM job_runs")
            rows.fetchone()
            page = jobs.runs.list(RunFilter(per_page=0))
            done = sum(run.status == "succeeded" for run in page.runs)
            time.sleep(0.2)  # a slow reader is what this is about
            rows.fetchall()
            say("listed", page.total == len(page.runs))


def hold(path: str, seconds: float) -> None:
    """Hold the write lock."""
    outsider = sqlite3.connect(path, isolation_level=None, timeout=30)
    outsider.execute("BEGIN IMMEDIATE")
    say("holding")
    time.sleep(seconds)  # what an outsider does
    outsider.execute("ROLLBACK")


def in_threads(run: Callable[[int], object], threads: int) -> None:
    """Run in several threads, this one among them; an error in any is said."""

    def safely(number: int) -> None:
        try:
            run(number)
        except BaseException:
            say("failed", traceback.format_exc()[-3000:])

    others = [threading.Thread(target=safely, args=(number,)) for number in range(1, threads)]
    for other in others:
        other.start()
    safely(0)
    for other in others:
        other.join()


# --- the parent

ROLES = {role.__name__: role for role in (write, start, finish_late, submit, work, run, look, hold)}


def main() -> None:
    """Fork what each line of input asks for, and wait for it."""
    for line in sys.stdin:
        for name, arguments in (roles := json.loads(line)):
            if not os.fork():
                _live(name, arguments)
        for _ in roles:
            pid, status = os.wait()
            os.write(1, json.dumps([pid, "ended", os.waitstatus_to_exitcode(status)]).encode() + b"\n")


def _live(name: str, arguments: dict[str, Any]) -> None:
    try:
        say("born")
        ROLES[name](**arguments)
    except BaseException:
        say("failed", traceback.format_exc()[-3000:])
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
