"""A process killed at any moment loses nothing that it was told is written, and stands in nobody's way (fault 20)."""

import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from jobevents import codec, connect
from jobevents.errors import AlreadyRunning
from jobevents.events import JobDeleted, JobRequeued, JobStarted, JobSucceeded, TransitionRefused
from jobevents.job import DELETED, fold
from jobevents.joblogs import LINES_PER_START
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.store import RunFilter, run_of
from tests.lives import LINES, Lives

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

KILLED = 100
SEED = 20

Slot: TypeAlias = tuple[str, int]


class Survived(NamedTuple):
    """What is left of a hundred writers of one file."""

    path: Path
    told: dict[Slot, str]  # ids of the events that were acknowledged
    seen: list[Record]  # the feed as it was read now and then, from where the last reading ended
    jobs: Jobs

    def job_ids(self) -> list[str]:
        return sorted({record.job_id for record in self.jobs.log.scan()})


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    """Kill a hundred writers of one file, each within a few moments."""
    path = tmp_path_factory.mktemp("crash") / "jobs.db"
    url = f"sqlite:///{path}"
    rng = random.Random(SEED)
    told: dict[Slot, str] = {}
    seen: list[Record] = []
    with Lives() as lives:
        for life in range(KILLED):
            (pid,) = lives.start(("write", {"url": url, "seed": life, "threads": rng.randint(1, 4)}))
            heard = lives.hear_for(rng.uniform(0.05, 0.15))
            os.kill(pid, signal.SIGKILL)
            heard += lives.hear_until("ended")
            assert {"appended", "ended"} >= {one.what for one in heard}, heard
            told |= {(one.rest[0], one.rest[1]): one.rest[2] for one in heard if one.what == "appended"}
            if life % 4 == 3:
                with connect(url) as jobs:
                    seen += jobs.log.scan(seen[-1].cursor if seen else "")
    with connect(url) as jobs:
        yield Survived(path, told, seen, jobs)


@pytest.mark.slow
def test_a_killed_writer_loses_no_acknowledged_event(survived: Survived) -> None:
    """Every event whose append returned is in the log, in its slot, with its id."""
    found = {(record.job_id, record.version): record.event().id for record in survived.jobs.log.scan()}

    assert len(survived.told) > KILLED
    assert survived.told == {slot: found.get(slot) for slot in survived.told}


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_histories(survived: Survived) -> None:
    """The versions of every job are 1, 2, 3 and on, and its chain is unbroken."""
    for job_id in survived.job_ids():
        records = survived.jobs.log.read_raw(job_id)

        assert list(range(1, len(records) + 1)) == [record.version for record in records]
        assert [] == codec.chain_breaks(record.data for record in records)


@pytest.mark.slow
def test_a_killed_writer_has_no_id_given_out_twice(survived: Survived) -> None:
    """What was read between the kills is the feed of the end: no id went to another event, none came in later below."""
    cursors = [int(record.cursor) for record in survived.jobs.log.scan()]
    with closing(sqlite3.connect(survived.path)) as reader:
        (highest,) = reader.execute("SELECT seq FROM sqlite_sequence WHERE name = 'job_events'").fetchone()

    assert list(survived.jobs.log.scan(limit=len(survived.seen))) == survived.seen
    assert sorted(set(cursors)) == cursors
    assert cursors[-1] == highest


@pytest.mark.slow
def test_a_killed_writer_leaves_rows_that_follow_from_the_log(survived: Survived) -> None:
    """The row of every job is the fold of its events; a deleted job has none, and nothing else has one."""
    folded = [fold(survived.jobs.log.read(job_id)) for job_id in survived.job_ids()]
    living = [job for job in folded if job.state != DELETED]

    assert len(living) < len(folded)
    assert {job.job_id: run_of(job) for job in living} == {
        run.id: run for run in survived.jobs.runs.list(RunFilter(per_page=0)).runs
    }


@pytest.mark.slow
def test_a_killed_writer_keeps_the_lines_of_attempts_that_succeeded(survived: Survived) -> None:
    """An attempt whose success is in the log has all its log lines."""
    for job_id in survived.job_ids():
        events = survived.jobs.log.read(job_id)
        if isinstance(events[-1], JobDeleted):
            continue
        written = {line.seq for line in survived.jobs.run_logs.logs(job_id)}

        for event in events:
            if isinstance(event, JobSucceeded):
                first = event.start * LINES_PER_START + 1
                assert set(range(first, first + LINES)) <= written


@pytest.mark.slow
def test_a_killed_writer_leaves_a_file_to_go_on_with(survived: Survived) -> None:
    """A job is submitted and done as if nothing had been."""
    job_id = survived.jobs.submit("render")

    with survived.jobs.attempt(job_id) as attempt:
        attempt.result("done")

    assert "succeeded" == survived.jobs.get(job_id).state


class Ticking:
    """The test's own time, later than that of the processes by as much as it says."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def lives() -> Iterator[Lives]:
    with Lives() as lives:
        yield lives


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def jobs(url: str, clock: Ticking) -> Iterator[Jobs]:
    with connect(url, clock=clock) as jobs:
        yield jobs


def kill_in_attempt(lives: Lives, url: str, job_id: str, deadline_s: float | None) -> int:
    """Kill a process within its attempt, and return the version of its start."""
    (pid,) = lives.start(("start", {"url": url, "job_id": job_id, "deadline_s": deadline_s}))
    (start,) = lives.hear_until("started")[-1].rest
    os.kill(pid, signal.SIGKILL)
    lives.hear_until("ended")
    return int(start)


@pytest.mark.parametrize("deadline_s", [None, 600])
def test_a_killed_attempt_leaves_its_job_running(lives: Lives, url: str, jobs: Jobs, deadline_s: float | None) -> None:
    """Nobody can tell a killed worker from a slow one: until the deadline the job is its, and started by no other."""
    job_id = jobs.submit("render")

    kill_in_attempt(lives, url, job_id, deadline_s)

    assert "running" == jobs.get(job_id).state
    with pytest.raises(AlreadyRunning), jobs.attempt(job_id):
        pass


def test_a_killed_attempt_is_taken_for_lost_after_its_deadline(
    lives: Lives, url: str, jobs: Jobs, clock: Ticking
) -> None:
    """The next attempt after the deadline requeues the job as lost and is its second try."""
    job_id = jobs.submit("render")
    start = kill_in_attempt(lives, url, job_id, 600)
    clock.ahead = timedelta(seconds=601)

    with jobs.attempt(job_id) as attempt:
        number = attempt.number

    lost, started, _ = jobs.history(job_id)[start:]
    assert isinstance(lost, JobRequeued)
    assert ("lost", start) == (lost.cause, lost.start)
    assert isinstance(started, JobStarted)
    assert (2, "succeeded") == (number, jobs.get(job_id).state)


def test_late_outcomes_of_a_lost_start_are_refused_and_recorded_once(
    lives: Lives, url: str, jobs: Jobs, clock: Ticking
) -> None:
    """What a start that was given up comes to changes nothing, and is recorded as refused once, though told twice."""
    job_id = jobs.submit("render")
    (pid,) = lives.start(("finish_late", {"url": url, "job_id": job_id, "deadline_s": 600}))
    (start,) = lives.hear_until("started")[-1].rest
    clock.ahead = timedelta(seconds=601)
    with jobs.attempt(job_id) as attempt:
        attempt.result("in time")

    os.kill(pid, signal.SIGUSR1)
    heard = lives.hear_until("ended")

    refused = [event for event in jobs.history(job_id) if isinstance(event, TransitionRefused)]
    assert [(start, "JobSucceeded", "succeeded")] == [(one.start, one.tried, one.state) for one in refused]
    assert [[1], [1]] == [one.rest for one in heard if one.what == "refused"]
    assert "in time" == jobs.job(job_id).result
