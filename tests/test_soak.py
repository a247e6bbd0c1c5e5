"""Four workers that are killed and stopped all the time: every job ends, and each start in the history was one of the handler."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents import codec
from jobevents.events import Event, JobRequeued, JobStarted, JobSucceeded, TransitionRefused
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from jobevents.wiring import connect
from tests.soak import LEASE_S, STOP_S, Victim

pytest.importorskip("fcntl", reason="kills are kept out of one moment by file locks")

SOAK_S = float(os.environ.get("JOBEVENTS_SOAK_S", "10"))  # make test: a minute; make soak: ten
WORKERS = 4
WAITING = 30  # jobs kept in stock
SETTLE_S = 90.0  # far beyond what the rest takes when nobody dies any more


class Soak:
    """Submits, cancels, kills and stops, as its seed decides."""

    def __init__(self, jobs: Jobs, url: str, directory: Path, seed: int) -> None:
        self._jobs = jobs
        self._url = url
        self._directory = directory
        self._rng = random.Random(seed)
        self._victims = [self._born() for _ in range(WORKERS)]
        self.said: list[str] = []
        self.done: Counter[str] = Counter()

    def _born(self) -> Victim:
        return Victim(self._url, self._directory, self._rng.randrange(10**9))

    def run(self, seconds: float) -> None:
        """Let them die, each every few seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._rng.uniform(0.1, 0.9))
            self._stock_up()
            self._strike()

    def settle(self) -> list[int]:
        """Let the rest be worked off in peace, and return the exit codes of the workers."""
        until = time.monotonic() + SETTLE_S
        while self._count("queued", "running") and time.monotonic() < until:
            self._replace_dead()
            time.sleep(0.1)
        return [victim.end() for victim in self._victims]

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        self.said += [victim.close() for victim in self._victims]

    def _count(self, *states: str) -> int:
        return self._jobs.runs.list(RunFilter(statuses=states, per_page=1)).total

    def _stock_up(self) -> None:
        for _ in range(WAITING - self._count("queued")):
            self._jobs.submit("soak", max_attempts=self._rng.randint(1, 6))
        if self._rng.random() < 0.3:
            running = self._jobs.runs.list(RunFilter(statuses=("queued", "running"))).runs
            self._jobs.cancel(self._rng.choice(running).id, actor="soak")
            self.done["cancels"] += 1

    def _strike(self) -> None:
        self._replace_dead()
        awake = [victim for victim in self._victims if not victim.is_stopped]
        if not awake:
            return
        victim = self._rng.choice(awake)
        if self._rng.random() < 0.3:
            victim.stop(self._rng.uniform(*STOP_S))
            self.done["stops"] += 1
        else:
            victim.kill()
            self.done["kills"] += 1
            self._replace_dead()

    def _replace_dead(self) -> None:
        for number, victim in enumerate(self._victims):
            if victim.is_dead:
                self.said.append(victim.close())
                self._victims[number] = self._born()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """The process that watches; it makes no attempt, so it has no lease."""
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as made:
        yield made


def histories(jobs: Jobs) -> dict[str, list[Event]]:
    """Return the history of every job."""
    return {run.id: jobs.history(run.id) for run in jobs.runs.list(RunFilter(per_page=0)).runs}


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 3 * SETTLE_S)
def test_every_job_ends_though_its_workers_die(jobs: Jobs, tmp_path: Path) -> None:
    """Starts in the history are starts of the handler, every job is final, one result each, and nothing is left over."""
    threads = set(threading.enumerate())
    soak = Soak(jobs, f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", tmp_path, seed=4)

    try:
        soak.run(SOAK_S)
        codes = soak.settle()
    finally:
        soak.close()

    told = histories(jobs)
    print(f"{len(told)} jobs, {dict(soak.done)}, {jobs.runs.list(RunFilter(per_page=1)).total} rows", end=" ")
    check_starts(told, (tmp_path / "starts").read_text().splitlines())
    check_ends(jobs, told)
    assert [0] * WORKERS == codes
    assert [] == [text for text in soak.said if "Traceback" in text]
    check_nothing_left(jobs, tmp_path)
    assert set() == set(threading.enumerate()) - threads


def check_starts(told: dict[str, list[Event]], lines: list[str]) -> None:
    """Each start that was granted is one line of the handler, and no more."""
    granted = [
        f"{job} {event.version}" for job, events in told.items() for event in events if type(event) is JobStarted
    ]

    assert sorted(granted) == sorted(lines)
    assert len(granted) > len(told) / 2


def check_ends(jobs: Jobs, told: dict[str, list[Event]]) -> None:
    """Every job is final, with one result at most, whole and unbroken; some were lost, some outcomes came too late."""
    states = Counter(jobs.job(job_id).state for job_id in told)
    assert {"succeeded", "failed", "canceled"} >= set(states)
    for job_id, events in told.items():
        refused = [event.start for event in events if isinstance(event, TransitionRefused)]
        assert sum(isinstance(event, JobSucceeded) for event in events) == (jobs.job(job_id).state == "succeeded")
        assert len(refused) == len(set(refused))
        assert [] == codec.chain_breaks(record.data for record in jobs.log.read_raw(job_id))
    lost = [event for events in told.values() for event in events if isinstance(event, JobRequeued)]
    print(f"{dict(states)}, {len(lost)} starts lost")
    assert states["succeeded"]
    assert all(event.cause == "lost" for event in lost)


def check_nothing_left(jobs: Jobs, directory: Path) -> None:
    """When the leases of the killed have run out a pass removes them; nothing lies about but the log, its blobs and the count."""
    until = time.monotonic() + 10 * LEASE_S
    while jobs.workers() and time.monotonic() < until:
        time.sleep(0.1)
        jobs.reap()
    assert [] == jobs.workers()
    jobs.close()
    assert {"jobs.db", "jobs-blobs", "starts"} == {path.name for path in directory.iterdir()}
