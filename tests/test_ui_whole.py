"""The pages of the whole: overview, queues, workers, schedules, projector and audit, and the figures on them."""

import itertools
import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents import Registry, connect
from jobevents.blobs import MemoryBlobs
from jobevents.errors import Unavailable
from jobevents.jobs import Jobs
from jobevents.schedules import in_words
from jobevents.testing.faults import Call, FailingBlobs
from projections.api import create_app
from projections.api.access import Anonymous
from projections.api.recent import Noted, Recent
from projections.api.standing import Keeper
from projections.ui.measures import figures, spread
from projections.ui.sparks import sparks
from projections.ui.words import size
from tests.api import Past, fill, project
from tests.clock import Clock
from tests.http import Client, client_of
from tests.test_ui_job import text_of

pytest_plugins = ("tests.api_fixtures",)

START = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


def test_the_whole_at_a_glance(api: Client, past: Past, jobs: Jobs) -> None:
    """Counts, times and lag are there; what a kind of log cannot have is named as that, and is no failure."""
    project(jobs)

    said = text_of(api.get("/overview"))

    assert re.search(r"Queued 1 ", said)
    assert re.search(r"Failed, and held 1 ", said)
    assert re.search(r"Views behind 0 events", said)
    assert jobs.log.ordered == ("waited for a worker 2" in said)
    assert (jobs.desk is None) == ("Not to be had here: this log keeps no table of runs" in said)
    assert "Cannot be read" not in said


@pytest.mark.parametrize("path", ["/overview", "/queues", "/workers", "/schedules", "/projector", "/audit"])
def test_a_part_that_cannot_be_read_says_so(path: str) -> None:
    """With the store of the views away, no page fails as a whole, and none shows an empty part for an unread one."""

    def refuse(call: Call) -> None:
        raise Unavailable("the bucket is away")

    with (
        connect("memory://", blobs=FailingBlobs(MemoryBlobs(), before=refuse)) as jobs,
        client_of(create_app(jobs)) as api,
    ):
        fill(jobs)
        answer = api.get(path)

    assert 200 == answer.status_code
    assert ("the bucket is away" in answer.text) == (path in ("/overview", "/projector"))
    assert "No projector has run" not in answer.text


def test_runs_that_may_never_end(api: Client, jobs: Jobs, clock: Clock) -> None:
    """A job that has been running for long is on the page, with why; one that has just begun is not."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    job_id = jobs.submit("render")
    with jobs.attempt(job_id, worker="w1"):
        fine = text_of(api.get("/overview"))
        clock.move(2 * 3600)
        late = text_of(api.get("/overview"))

    assert "Stuck Nothing" in fine
    assert job_id in late
    assert "more than an hour" in late or "its worker is gone" in late


def test_what_is_paused_and_by_whom(api: Client, past: Past, jobs: Jobs) -> None:
    """A paused queue is shown with who and why, also one with a quote in its name."""
    if jobs.desk is None:
        assert "Not to be had here" in text_of(api.get("/queues"))
        return
    jobs.pause(queue='sl"ow', actor="ana", reason="disk is full")

    said = text_of(api.get("/queues"))

    assert 'sl"ow' in said
    assert "paused by ana: disk is full" in said


def test_how_much_of_a_limit_is_used(jobs: Jobs) -> None:
    """A kind of which only so many may run is shown with how many do, and with what becomes of the next; others are not."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    registry = Registry()
    registry.job("mix", max_concurrent=2, on_busy="skip")(print)
    registry.job("settle", max_concurrent=4)(print)
    registry.job("render")(print)
    for number in range(2):
        jobs.attempt(jobs.submit("mix", id=f"mix-{number}")).__enter__()

    with client_of(create_app(jobs, registry=registry)) as api:
        answer, told = text_of(api.get("/queues")), api.get("/api/queues").json()["limits"]

    assert "mix 2 of 2 is skipped" in answer
    assert "settle 0 of 4 may start" in answer
    assert [("mix", 2, 2), ("settle", 0, 4)] == [(one["job"], one["running"], one["most"]) for one in told]


def test_what_the_log_takes(past: Past, jobs: Jobs) -> None:
    """Where it is kept in tables, their rows and sizes are on the page; elsewhere nothing is said of it."""
    with client_of(create_app(jobs)) as api:
        said, told = text_of(api.get("/projector")), api.get("/api/storage")

    if jobs.desk is None:
        assert 400 == told.status_code
    else:
        assert (4 if jobs.desk.census.sizes() else 0) == len(told.json()["items"])
    assert ("Storage" in said) == (told.status_code == 200 and bool(told.json()["items"]))
    if "Storage" in said:
        assert re.search(r"Jobs, as they are now job_runs 3 [\d.]+ kB", said)
    assert ["0 B", "999 B", "1.0 kB", "9.9 kB", "12 MB", "3.5 GB", "1000.0 TB"] == [
        size(n) for n in (0, 999, 1000, 9_900, 12_000_000, 3_500_000_000, 10**15)
    ]


def test_schedules_in_words(jobs: Jobs) -> None:
    """A periodic job says when in words, when next, and what became of its last run."""
    registry = Registry()
    registry.job("settle", schedule="0 3 * * 1-5 Europe/Rome")(print)

    with client_of(create_app(jobs, registry=registry)) as api:
        said = text_of(api.get("/schedules"))

    if jobs.desk is not None:
        assert "At 03:00 on Monday through Friday, Europe/Rome" in said
        assert "none yet" in said
    assert "Every 1h30m" == in_words("every  1h30m")


def test_who_did_what(api: Client, past: Past, jobs: Jobs) -> None:
    """What people and programs asked for is listed with the reason, by actor; what workers say of their work is not."""
    jobs.cancel(past.waiting, actor="bob", reason="customer withdrew")
    jobs.retry(past.failed, actor="carla")

    said = text_of(api.get("/audit"))
    bobs = text_of(api.get("/audit?actor=BOB"))
    tries = text_of(api.get("/audit", params={"act": "asked for another try"}))

    if not jobs.log.ordered:
        assert "Not to be had here" in said
        return
    assert "bob canceled" in said
    assert "customer withdrew" in said
    assert past.failed not in bobs
    assert past.waiting in bobs
    assert f"carla asked for another try {past.failed}" in tries
    assert "JobStarted" not in said


def test_looking_back_misses_nothing(jobs: Jobs) -> None:
    """Whatever the size of an answer, and of a look, every event is found once, newest first."""
    if not jobs.log.ordered:
        pytest.skip("the log has no one order")
    fill(jobs)
    recent = Recent(jobs.log, kept=2)
    everything = [(one.job_id, one.version) for one in jobs.log.scan()]

    for limit in (1, 2, 3, 100):
        found, place = list[tuple[str, int]](), 0
        while True:
            part, place = recent.before(place, lambda one: True, limit)
            found += [(one.job_id, one.version) for one in part]
            if not place:
                break
        assert everything[::-1] == found
    assert everything[-2:] == [(one.job_id, one.version) for one in recent.read()]


def noted(type: str, at: float, job_id: str = "a", **fields: Any) -> Noted:
    """An event so many seconds after the start."""
    return Noted(position=1, job_id=job_id, version=1, type=type, at=START + timedelta(seconds=at), **fields)


def test_how_long_jobs_waited_and_ran() -> None:
    """Waiting counts from when a job was due, running to its end, by the kind that it was queued as."""
    found = figures(
        [
            noted("JobQueued", 0, due=START + timedelta(seconds=2), note="render"),
            noted("JobQueued", 0, "b", due=START, note="mix"),
            noted("JobStarted", 3),
            noted("JobFailed", 5, due=START + timedelta(seconds=10)),
            noted("JobStarted", 14),
            noted("JobSucceeded", 20),
            noted("TransitionRefused", 21),
            noted("JobRequeued", 22, "c", note="lost", due=START),
        ]
    )

    assert (1000, 4000) == (found.waits.p50 and min(1000, found.waits.p50), found.waits.most)
    assert (2, 6000, ["render"]) == (found.runs.count, found.runs.most, [one.name for one in found.by_kind])
    assert (1, 1, 8) == (found.refused, found.lost, found.events)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60))
def test_quantiles_are_values(values: list[float]) -> None:
    """Each is one of the values, and they are in order."""
    found = spread("x", values)

    assert {found.p50, found.p95, found.p99, found.most} <= set(values)
    assert found.p50 <= found.p95 <= found.p99 <= found.most == max(values)  # type: ignore[operator]


def test_a_page_does_not_wait_for_a_long_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where counting takes long the last count is shown at once and made anew aside; too old, it is waited for."""
    monkeypatch.setattr("projections.api.standing.SLOW_S", 0.0)
    counts, may_count = itertools.count(), threading.Event()
    may_count.set()

    def count() -> int:
        may_count.wait(10)
        return next(counts)

    keeper = Keeper(count, Clock(), kept_s=0.0)
    first = keeper.soon().value
    may_count.clear()
    shown = keeper.soon().value
    may_count.set()
    ends = time.monotonic() + 10
    while keeper.soon().value == 0:
        assert time.monotonic() < ends
    monkeypatch.setattr("projections.api.standing.STALE_S", -1.0)
    before = keeper.get().value

    assert (0, 0) == (first, shown)
    assert keeper.soon().value > before


def test_what_ended_lately_of_each_queue_and_kind() -> None:
    """What ended in the last hour is drawn by its time and outcome; a try that is followed by another has ended nothing."""
    now = START + timedelta(hours=3)
    place = itertools.count(1)

    def noted(job_id: str, type: str, ago_min: float, **more: Any) -> Noted:
        at = now - timedelta(minutes=ago_min)
        return Noted(position=next(place), job_id=job_id, version=1, type=type, at=at, **more)

    history = [
        *(noted(job_id, "JobQueued", 170, queue="slow", note="mix") for job_id in "abcde"),
        noted("a", "JobSucceeded", 90),
        noted("b", "JobSucceeded", 59),
        noted("c", "JobFailed", 1),
        noted("d", "JobFailed", 1, due=now),
        noted("e", "JobCanceled", 1),
        noted("from-before", "JobSucceeded", 1),
    ]
    found = sparks(history, now, "queue")

    assert now - timedelta(hours=1) == found.since
    assert ["slow"] == list(found.of)
    assert ["mix"] == list(sparks(history, now, "kind").of)
    slow = found.of["slow"]
    assert (3, 1, 2) == (slow.ended, slow.failed, slow.most)
    assert (["0", "116"], ["116"]) == tuple(re.findall(r"M(\d+),", path) for path in (slow.good_path, slow.bad_path))
    assert START - timedelta(minutes=50) == sparks(history[:1], START - timedelta(minutes=50), "kind").since
    assert None is sparks([], now, "kind").since


def test_a_run_beside_the_schedule(jobs: Jobs) -> None:
    """The button orders a run as the schedule would have it, and takes the right to submit."""
    registry = Registry()
    registry.job("settle", schedule="0 3 * * *", queue="billing", max_attempts=4)(print)
    with client_of(create_app(jobs, registry=registry)) as api:
        page = unescape(api.get("/schedules").text)
        (said,) = re.findall(r'data-label="Run now"[^>]*data-body="([^>]*?)" data-reason="([^"]*)"', page)
        done = api.request("POST", "/api/jobs", json={**json.loads(said[0]), "reason": said[1]}).json()
    with client_of(create_app(jobs, registry=registry, access=Anonymous(name="eve", read_only=True))) as api:
        refused = api.get("/schedules").text

    job = jobs.job(done["job_id"])
    assert ("settle", "billing", 4) == (job.name, job.queue, job.max_attempts)
    assert "run by anonymous" == jobs.history(done["job_id"])[0].reason
    assert "Run now: eve has not the role submit" in refused
