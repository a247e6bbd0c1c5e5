"""Runners as processes: told to stop under load, crashed by their own jobs, and killed one after another."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from jobevents import connect
from jobevents.events import JobRequeued
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
