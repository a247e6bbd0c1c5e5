"""`jobevents workers` and what doctor says of workers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from jobevents import console, doctor
from jobevents.cli_workers import list_workers
from jobevents.jobs import Jobs
from jobevents.wiring import connect

Printed = Callable[[], str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty log."""
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    """A process that works."""
    with connect(url) as made:
        yield made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A wide terminal that keeps what was printed."""
    made = Console(width=400, record=True, force_terminal=True)
    monkeypatch.setattr(console, "out", made)
    monkeypatch.setattr(console, "wants_json", lambda asked: asked)
    return made


def start(jobs: Jobs, count: int = 1) -> list[str]:
    """Start jobs, and leave them running."""
    ids = [jobs.submit("render", max_attempts=2) for _ in range(count)]
    for job_id in ids:
        jobs.attempt(job_id, worker="w1").__enter__()
    return sorted(ids)


def test_json_has_everything(jobs: Jobs, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A program gets one document: a list of workers with all that is known of each."""
    ids = start(jobs, 5)

    list_workers(url, reap=False, as_json=True)

    (found,) = json.loads(capsys.readouterr().out)
    assert (jobs.job(ids[0]).worker, True, ids, 30.0) == (
        found["worker"],
        found["is_alive"],
        found["jobs"],
        found["lease_s"],
    )
    assert {"last_seen_s", "host", "pid", "started_at", "version"} < set(found)


def test_a_table_shows_who_lives_and_what_each_holds(jobs: Jobs, url: str, terminal: Console) -> None:
    """A line a worker: state, when it was last seen, how many jobs, and the first of them."""
    ids = start(jobs, 5)
    gone = connect(url)
    (lost,) = start(gone)
    dead = gone.job(lost).worker
    gone.presence.leases.drop(dead)

    list_workers(url, reap=False, as_json=False)

    lines = terminal.export_text().splitlines()
    assert ["worker", "state"] == lines[0].split()[:2]
    assert [jobs.job(ids[0]).worker, "alive", "0", "s", "ago"] == lines[1].split()[:5]
    assert lines[1].endswith(f"5: {', '.join(ids[:3])} and 2 more")
    assert [dead, "dead", "-", "-", "-", "1:", lost] == lines[2].split()
    gone.close()


def test_no_workers_are_told_in_words(jobs: Jobs, url: str, terminal: Console) -> None:
    """An empty list says when there would be one."""
    list_workers(url, reap=False, as_json=False)

    assert terminal.export_text().startswith("no workers")


def test_the_jobs_of_the_dead_are_given_back_when_asked(jobs: Jobs, url: str, terminal: Console) -> None:
    """Where no process works, a person can have it done."""
    (job_id,) = start(jobs)
    jobs.presence.leases.drop(jobs.job(job_id).worker)

    list_workers(url, reap=True, as_json=False)

    assert "queued" == jobs.job(job_id).state
    assert terminal.export_text().startswith("no workers")


def workers_finding(jobs: Jobs) -> doctor.Finding:
    """Return what doctor says of workers."""
    return next(finding for finding in doctor.examine(jobs) if finding.check == "workers")


def test_doctor_counts_workers(jobs: Jobs) -> None:
    """Living workers and what they hold are well."""
    start(jobs, 2)

    assert doctor.Finding("workers", True, "1 alive, 0 dead, 2 jobs held") == workers_finding(jobs)


def test_doctor_names_the_jobs_of_the_dead(jobs: Jobs) -> None:
    """What a dead worker holds is not well; doctor names it, and what to do."""
    (job_id,) = start(jobs)
    jobs.presence.leases.drop(jobs.job(job_id).worker)

    found = workers_finding(jobs)

    expected = (
        f"0 alive, 1 dead, 1 jobs held, 1 by dead workers: {job_id}; any process that works gives them back within a lease; "
        "to do it now: jobevents workers --reap"
    )
    assert (False, expected) == (found.ok, found.found)
