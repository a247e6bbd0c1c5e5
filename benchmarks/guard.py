"""The guard: a task that is delivered once more after its job has succeeded."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks.data import SEED
from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting, Work
from jobevents import connect
from jobevents.errors import AlreadySucceeded
from jobevents.jobs import Jobs

_ASKED = 1000  # deliveries a repetition


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """jobs.attempt refuses a job that this process has not seen before."""
    path = log_path(setting.prepared)

    def repeat() -> Work:
        jobs = connect(f"sqlite:///{path}", blobs="memory://")  # a new process's memory of jobs: none

        def work() -> int:
            return _refused(jobs, asked)

        opened.append(jobs)
        jobs.get(asked[0])  # connections are open
        return work

    opened: list[Jobs] = []
    with connect(f"sqlite:///{path}", blobs="memory://") as jobs:
        asked = _asked([record.job_id for record in jobs.log.scan() if record.version == 1])
    yield repeat
    for jobs in opened:
        jobs.close()


@contextmanager
def ours_again(setting: Setting) -> Iterator[Repeat]:
    """jobs.attempt refuses a job that this process has worked on or refused before."""
    with connect(f"sqlite:///{log_path(setting.prepared)}", blobs="memory://") as jobs:
        asked = _asked([record.job_id for record in jobs.log.scan() if record.version == 1])
        yield lambda: lambda: _refused(jobs, asked)


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """A bare SELECT of the state by primary key."""
    with closing(sqlite3.connect(log_path(setting.prepared), isolation_level=None)) as connection:
        asked = _asked([job_id for (job_id,) in connection.execute("SELECT id FROM job_runs ORDER BY sort_key, id")])
        select = "SELECT status FROM job_runs WHERE id = ?"

        def work() -> int:
            for job_id in asked:
                if connection.execute(select, (job_id,)).fetchone() != ("succeeded",):
                    raise LookupError(job_id)
            return len(asked)

        yield lambda: work


def _asked(found: list[str]) -> list[str]:
    return random.Random(SEED).sample(found, k=min(_ASKED, len(found)))


def _refused(jobs: Jobs, asked: list[str]) -> int:
    refused = 0
    for job_id in asked:
        try:
            with jobs.attempt(job_id):
                raise RuntimeError(f"granted job_id={job_id}")
        except AlreadySucceeded:
            refused += 1
    return refused
