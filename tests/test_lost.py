"""Jobs whose workers are lost: wherever they are shown as running, it is said."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.capture import capture
from jobevents.errors import PermissionDenied, Unavailable
from jobevents.jobs import Jobs
from jobevents.status import State, Status
from jobevents.workers import MemoryLeases
from projections.api import create_app
from projections.lost import DEAR_S, KEPT_S, Losses
from projections.why import explain
from tests.api import project
from tests.clock import START, Clock
from tests.http import client_of
from tests.working import LEASE_S, Machine, machine


@pytest.fixture(params=["memory", "sqlite"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    with machine(request.param, tmp_path) as made:
        yield made


def begin(process: Jobs, **wanted: Any) -> str:
    """Submit a job, and begin an attempt at it that does not end."""
    job_id = process.submit("render")
    process.attempt(job_id, worker="w1", **wanted).__enter__()
    return job_id


def since(jobs: Jobs, job_id: str, losses: Losses | None = None) -> datetime | None:
    """Return since when a job is lost."""
    found = (losses or Losses(jobs)).of(jobs.job(job_id))
    return found.since if found else None


def test_a_dead_worker_is_told_of_with_its_last_sign_of_life(workers: Machine) -> None:
    """While its lease lives nothing is said; from then on, that it is lost since it was last seen."""
    first, watcher = workers.start(), workers.start()
    job_id = begin(first)
    workers.elapse(LEASE_S - 1, watcher)
    before = since(watcher, job_id)
    workers.elapse(1, watcher)

    found = Losses(watcher).of(watcher.job(job_id))

    assert found is not None
    worker = watcher.job(job_id).worker
    assert (None, START, worker) == (before, found.since, found.worker)
    assert f"the worker was last seen 30 s ago worker={worker} lease_s=30" == found.why
    assert "worker lost since 2026-08-01T12:00:00Z" == found.text


def test_a_job_past_its_deadline_is_lost_since_then(workers: Machine) -> None:
    """Whoever has it lives, and may have it taken away at any time."""
    first, watcher = workers.start(), workers.start()
    job_id, losses = begin(first, deadline_s=12), Losses(watcher)
    assert since(watcher, job_id, losses) is None
    workers.elapse(13, first)

    assert 12 == ((since(watcher, job_id, losses) or START) - START).total_seconds()


def test_who_ended_meanwhile_is_not_lost(workers: Machine) -> None:
    """A worker that ended its job, and then itself, after the job was read, has lost nothing."""
    first, watcher = workers.start(), workers.start()
    job_id = first.submit("render")
    with first.attempt(job_id):
        job = watcher.job(job_id)
    first.close()

    assert Losses(watcher).of(job) is None


@pytest.mark.parametrize(("interval_s", "kept_s"), [(0.0, KEPT_S), (1.05, DEAR_S)])
def test_what_was_found_well_is_believed_for_a_moment(
    workers: Machine, interval_s: float, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within it no lease is looked at, and no job is read; a dead worker is seen as soon as it is over."""
    first, watcher = workers.start(), workers.start()
    monkeypatch.setattr(type(watcher.blobs), "min_write_interval_s", interval_s)
    job_id, losses = begin(first), Losses(watcher)
    workers.elapse(LEASE_S - 1, watcher)

    seen = []
    for wait_s in (0.0, kept_s - 0.5, 0.5):
        workers.elapse(wait_s, watcher)
        seen.append(list(losses.listed([job_id])))

    assert [[], [], [job_id]] == seen


def test_on_a_log_of_objects(tmp_path: Path) -> None:
    """A worker of another process, whose lease is gone, is told of there too; nobody knows since when."""
    url = f"file://{tmp_path}/log"
    with connect(url) as first, connect(url) as watcher:
        job_id = begin(first)
        before = Losses(watcher).of(watcher.job(job_id))
        first.presence.leases.drop(first.job(job_id).worker)

        found = Losses(watcher).of(watcher.job(job_id))

    assert before is None
    assert found is not None
    assert (True, None, "worker lost") == (found.is_certain, found.since, found.text)


class Shut(MemoryLeases):
    """Leases that cannot be looked at."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def look(self, workers: object) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [Unavailable("away"), PermissionDenied("not yours")])
def test_leases_that_cannot_be_read(workers: Machine, error: Exception) -> None:
    """It is said that nobody knows, with the reason, and the job is shown all the same."""
    job_id = begin(workers.start())
    watcher = workers.start(leases=Shut(error))

    found = Losses(watcher).of(watcher.job(job_id))

    assert found is not None
    assert (False, None, "worker may be lost") == (found.is_certain, found.since, found.text)
    assert str(error) in found.why


class Stuck(MemoryLeases):
    """Leases that cannot be renewed."""

    def renew(self, lease: object) -> None:
        raise Unavailable("disk full")


def test_who_cannot_renew_a_lease_judges_none(workers: Machine) -> None:
    """Until one lease after: when the store was away, all are old, and who lives is not known."""
    job_id = begin(workers.start())
    watcher = workers.start(leases=Stuck())
    with pytest.raises(Unavailable):
        watcher.attempt(watcher.submit("render")).__enter__()

    found = Losses(watcher).of(watcher.job(job_id))
    workers.elapse(LEASE_S)
    later = Losses(watcher).of(watcher.job(job_id))

    assert found is not None
    assert later is not None
    assert (False, True) == (found.is_certain, later.is_certain)
    assert "could not renew" in found.why


def test_what_was_said_to_run_has_no_lease(workers: Machine) -> None:
    """A record of another service says that it runs: nobody here knows who does it, and nobody is called lost."""
    jobs = workers.start()
    jobs.statuses().save("song-7", Status(job_id="song-7", state=State.RUNNING))

    assert Losses(jobs).of(jobs.job("song-7")) is None


def test_a_capture_does_not_say_who_lives(tmp_path: Path) -> None:
    """The jobs that ran then are shown as they were."""
    with connect(f"sqlite:///{tmp_path}/jobs.db", clock=Clock()) as jobs:
        job_id = begin(jobs)
        capture(jobs, tmp_path / "incident.jev", since=START, until=START + timedelta(hours=1))
    with connect(f"{tmp_path}/incident.jev") as shown:
        assert "running" == shown.job(job_id).state
        assert Losses(shown).of(shown.job(job_id)) is None


def test_counts_tell_how_many_of_those_that_run_are_lost(tmp_path: Path) -> None:
    """The queues and the figures of the API, and the page of the queues."""
    with machine("sqlite", tmp_path) as workers:
        first, watcher = workers.start(), workers.start()
        begin(first), begin(watcher)
        workers.elapse(LEASE_S, watcher)

        with client_of(create_app(watcher)) as api:
            (queue,), stats = api.get("/api/queues").json()["items"], api.get("/api/stats").json()
            page = api.get("/queues")

    assert ("default", 2, 1) == (queue["queue"], queue["running"], queue["lost"])
    assert (2, 1) == (stats["states"]["running"], stats["lost"])
    assert "(1 lost)" in page.text


def test_every_answer_about_it_says_so(workers: Machine) -> None:
    """The job, its status, its starts and the lists of the API; the explanation, and the page that shows it."""
    first, watcher = workers.start(), workers.start()
    job_id, other = begin(first), begin(watcher)
    project(watcher)
    workers.elapse(LEASE_S, watcher)
    when = "2026-08-01T12:00:00Z"

    with client_of(create_app(watcher)) as api:
        job, its_starts = api.get(f"/api/jobs/{job_id}").json(), api.get(f"/api/jobs/{job_id}/starts").json()
        status = api.get(f"/api/jobs/{job_id}/status")
        again = api.get(f"/api/jobs/{job_id}/status", headers={"If-None-Match": status.headers["etag"]})
        lists = [api.get(f"/api/jobs?{query}").json() for query in ("", "state=running", "cursor=")]
        page = api.get(f"/jobs/{job_id}")
        well = [api.get(f"/api/jobs/{other}").json().get("lost"), api.get(f"/api/jobs/{other}/status").headers]

    assert ("running", when, when) == (job["state"], job["lost"]["since"], its_starts["lost"]["since"])
    assert (200, when, 304, when) == tuple(
        part for one in (status, again) for part in (one.status_code, one.headers["x-worker-lost"])
    )
    assert [[job_id]] * 3 == [[one["job_id"] for one in found["lost"]] for found in lists]
    assert "But nobody is known to work on it since 12:00:00" in page.text
    assert None is well[0]
    assert "x-worker-lost" not in well[1]


def test_the_explanation_of_what_is_not_known(workers: Machine) -> None:
    """A worker without a lease is gone since nobody knows when; of one whose lease cannot be read, that is said."""
    first = workers.start()
    job_id = begin(first)
    events = first.history(job_id)

    def said(losses: Losses) -> str:
        return explain(events, lost=losses.of(first.job(job_id)))[0].text

    shut = workers.start(leases=Shut(Unavailable("away")))
    bare = workers.start(leases=MemoryLeases())

    assert "But nobody is known to work on it: the worker has no lease" in said(Losses(bare))
    assert "But whether its worker lives cannot be read: away" in said(Losses(shut))
