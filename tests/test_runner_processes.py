"""Runners as processes: told to stop under load, crashed by their own jobs, and killed one after another."""

import os
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.events import JobRequeued, JobStarted, JobSucceeded
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from tests.lives import Lives, Said

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"), pytest.mark.slow]


def calls_of(heard: list[Said]) -> Counter[tuple[str, int]]:
    """Return how often the handler was called for each job and try."""
    return Counter((one.rest[0], one.rest[1]) for one in heard if one.what == "called")


def finals(jobs: Jobs) -> int:
    """Return how many jobs are final."""
    return jobs.runs.list(RunFilter(statuses=("succeeded", "failed", "canceled"), per_page=1)).total


def test_shd_01_a_deploy_under_load_loses_nothing(tmp_path: Path) -> None:
    """SHD-01: handlers of ten seconds, a grace of one: the process ends in time, all is queued with the same try, and run."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url) as jobs, Lives() as lives:
        ids = jobs.submit_many([{"name": "work"}] * 12)
        [old] = lives.start(("run", {"url": url, "what": "sleep", "seconds": 10.0, "grace_s": 1.0}))
        heard = lives.hear_until("called", 4)
        began = time.monotonic()
        os.kill(old, signal.SIGTERM)
        heard += lives.hear_until("ended")
        took = time.monotonic() - began

        left = [jobs.job(job_id) for job_id in ids]
        [new] = lives.start(("run", {"url": url, "what": "sleep"}))
        heard += lives.hear_until("called", 12)
        os.kill(new, signal.SIGTERM)
        heard += lives.hear_until("ended")

        assert [0, 0] == [one.rest[0] for one in heard if one.what == "ended"]
        assert {("queued", 0)} == {(job.state, job.tries) for job in left}
        assert took < 5
        assert {("succeeded", 1)} == {(job.state, job.result) for job in map(jobs.job, ids)}
        causes = [event.cause for job_id in ids for event in jobs.history(job_id) if isinstance(event, JobRequeued)]
        assert ["shutdown"] * 4 == causes


def test_del_12_a_job_that_kills_its_runner_is_given_up(tmp_path: Path) -> None:
    """DEL-12: the runner is started again each time; after its tries the job has failed, and the others have run."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    heard: list[Said] = []
    with connect(url) as jobs, Lives() as lives:
        poison = jobs.submit("work", max_attempts=3)
        for _ in range(3):
            lives.start(("run", {"url": url, "what": "crash", "lease_s": 0.3}))
            heard += lives.hear_until("ended")
        [pid] = lives.start(("run", {"url": url, "what": "sleep", "lease_s": 0.3}))
        beside = jobs.submit("work")
        while finals(jobs) < 2:
            heard += lives.hear_for(0.1)
        os.kill(pid, signal.SIGTERM)
        heard += lives.hear_until("ended")

        job = jobs.job(poison)
        assert ("failed", "WorkerLost", 3) == (job.state, job.error_kind, job.starts)
        assert {(poison, 1): 1, (poison, 2): 1, (poison, 3): 1, (beside, 1): 1} == calls_of(heard)


def test_runners_that_are_killed_all_the_while_lose_and_double_nothing(tmp_path: Path) -> None:
    """Eight processes, 2,000 runs, SIGKILL one after another: each run final, one result accepted, calls as the history says."""
    url, total, processes = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", 2000, 8
    role: tuple[str, dict[str, Any]] = ("run", {"url": url, "what": "sleep", "seconds": 0.05})
    heard: list[Said] = []
    killed = 0
    with connect(url) as jobs, ExitStack() as stack:
        ids = jobs.submit_many([{"name": "work", "max_attempts": 100}] * total)
        lives = [stack.enter_context(Lives()) for _ in range(processes)]
        pids = [one.start(role)[0] for one in lives]
        while finals(jobs) < total:
            for one in lives:
                heard += one.hear_for(0.06)  # each lives for four seconds: long enough to give back what others held
            turn = killed % processes
            os.kill(pids[turn], signal.SIGKILL)
            heard += lives[turn].hear_until("ended")
            [pids[turn]] = lives[turn].start(role)
            killed += 1
        for one, pid in zip(lives, pids, strict=True):
            os.kill(pid, signal.SIGTERM)
            heard += one.hear_until("ended")
        histories = {job_id: jobs.history(job_id) for job_id in ids}

    calls = calls_of(heard)
    starts = [(i, e.attempt) for i, history in histories.items() for e in history if isinstance(e, JobStarted)]
    results = {i: [e for e in history if isinstance(e, JobSucceeded)] for i, history in histories.items()}
    assert [] == [one.rest for one in heard if one.what == "failed"]
    assert {1} == {len(found) for found in results.values()}
    assert {1} == set(calls.values())
    assert set(calls) <= set(starts)
    assert len(starts) - len(calls) <= 4 * killed  # killed between the commit of the start and the call
    assert all((job_id, found[0].result) in calls for job_id, found in results.items())
    assert killed >= processes
