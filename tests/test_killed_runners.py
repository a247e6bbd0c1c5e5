"""Eight runners that are killed one after another, over a database that many processes share, and that crashes too.

`make kill` does it with 20,000 runs over each database; the suite with fewer.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from jobevents import connect
from jobevents.events import Event, JobFailed, JobRequeued, JobStarted, JobSucceeded, TransitionRefused
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from tests.lives import Lives, Said
from tests.postgres_server import Cluster

pytest_plugins = ("tests.postgres",)
pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"), pytest.mark.slow]

RUNS = int(os.environ.get("JOBEVENTS_KILL_RUNS", "800"))  # make kill: 20,000
PROCESSES = 8
WORKERS = 4  # handlers at once in each
WORK_S = 0.05  # a handler's
LIFE_S = 4.0  # of a process: long enough to give back what others held, whose lease is a second
BATCH = 500  # jobs submitted at once

Histories = dict[str, list[Event]]
T = TypeVar("T", bound=Event)


class World(NamedTuple):
    """A database, and how it crashes, where it can."""

    url: str
    crash: Callable[[], None] | None


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty log in each of the databases."""
    if request.param == "sqlite":
        return World(f"sqlite:///{tmp_path}/jobs.db", None)
    cluster: Cluster = request.getfixturevalue("postgres")
    return World(request.getfixturevalue("postgres_url"), cluster.crash)


class Runners:
    """Eight processes that run jobs, each killed when its turn comes, and begun again."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._role = ("run", {"url": url, "what": "sleep", "seconds": WORK_S})
        self._lives = [stack.enter_context(Lives()) for _ in range(PROCESSES)]
        self._pids = [one.start(self._role)[0] for one in self._lives]
        self.heard: list[Said] = []
        self.killed = 0

    def hear(self, seconds: float) -> None:
        """Take in what all of them say."""
        for one in self._lives:
            self.heard += (new := one.hear_for(seconds / PROCESSES))
            assert [] == [said.rest for said in new if said.what in ("failed", "stopped")]

    def kill_next(self) -> None:
        """End one wherever it is, and begin another in its place."""
        turn = self.killed % PROCESSES
        self.heard += self._lives[turn].end(self._pids[turn], signal.SIGKILL)
        [self._pids[turn]] = self._lives[turn].start(self._role)
        self.killed += 1

    def stop(self) -> None:
        """Tell all to end, and wait until they have."""
        for one, pid in zip(self._lives, self._pids, strict=True):
            self.heard += one.end(pid, signal.SIGTERM)


@pytest.mark.timeout(300 + RUNS // 10)
def test_runners_that_are_killed_all_the_while_lose_and_double_nothing(world: World) -> None:
    """Each run is final and has one result, handlers were called as the history says, also while the server crashed twice.

    However quick the machine is, it gets enough to do for a kill of each process.
    """
    crashes = [RUNS // 3, 2 * RUNS // 3] if world.crash else []
    began = time.monotonic()
    with connect(world.url) as jobs, ExitStack() as stack:
        ids = [job_id for many in batches(RUNS) for job_id in jobs.submit_many(many)]
        runners = Runners(world.url, stack)
        while (done := finals(jobs)) < len(ids):
            if runners.killed < PROCESSES and len(ids) - done < BATCH:
                ids += jobs.submit_many(next(batches(BATCH)))
            runners.hear(LIFE_S / PROCESSES)
            runners.kill_next()
            if crashes and done >= crashes[0]:
                crashes.pop(0)
                world.crash()
        runners.stop()
        histories = {job_id: jobs.history(job_id) for job_id in ids}
        states = Counter(jobs.job(job_id).state for job_id in ids)

    print(f"{len(ids)} runs in {time.monotonic() - began:.0f} s, {runners.killed} processes killed,", end=" ")
    check(histories, states, runners)
    assert [] == crashes
    assert runners.killed >= PROCESSES


def check(histories: Histories, states: Counter[str], runners: Runners) -> None:
    """Hold what was called against what the histories say."""
    calls = Counter((one.rest[0], one.rest[1]) for one in runners.heard if one.what == "called")
    starts = Counter((one.job_id, one.attempt) for one in of(histories, JobStarted))
    results = {job_id: [one for one in events if isinstance(one, JobSucceeded)] for job_id, events in histories.items()}
    lost = [one for one in of(histories, JobRequeued) if one.cause == "lost"]
    refused = sum(1 for _ in of(histories, TransitionRefused))
    print(f"{starts.total()} starts, {calls.total()} calls, {len(lost)} lost, {refused} late outcomes, {dict(states)}")

    assert [] == [one.rest for one in runners.heard if one.what == "failed"]
    assert {"succeeded": len(histories)} == states
    assert {1} == {len(found) for found in results.values()}
    assert {1} == set(calls.values()) == set(starts.values())
    assert set(calls) <= set(starts)
    # Killed between the commit of a start and the call: as many as a process has workers.
    assert starts.total() - calls.total() <= WORKERS * runners.killed
    assert all((job_id, found[0].result) in calls for job_id, found in results.items())
    assert starts.total() == len(histories) + len(lost)
    assert [] == list(of(histories, JobFailed))


def of(histories: Histories, kind: type[T]) -> Iterator[T]:
    """Yield the events of a type, of all jobs."""
    return (event for events in histories.values() for event in events if isinstance(event, kind))


def batches(total: int) -> Iterator[list[dict[str, object]]]:
    """Yield what is submitted at once, until it is so many in all."""
    for left in range(total, 0, -BATCH):
        yield [{"name": "work", "max_attempts": 100}] * min(BATCH, left)


def finals(jobs: Jobs) -> int:
    """Return how many jobs are final."""
    return jobs.runs.list(RunFilter(statuses=("succeeded", "failed", "canceled"), per_page=1)).total
