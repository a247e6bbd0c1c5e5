"""The store over the logs in memory and in SQLite keeps the contract; and how what it is told stands in the history."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents import jobstore
from jobevents.assertions import RunChanges
from jobevents.errors import AlreadyCanceled, KeyTaken
from jobevents.events import CancelRequested, Event, JobCanceled, JobDeleted, JobQueued, JobRecorded
from jobevents.job import Job
from jobevents.jobs import Jobs
from jobevents.store import JobRun, JobStore, RunError, RunFilter
from jobevents.testing import Clock, Died, JobStoreContract
from jobevents.testing.outages import Snapshot, reader_of
from jobevents.testing.runs import CANCEL, Elapse, changed, ended, run
from jobevents.testing.strategies import json_values
from jobevents.wiring import connect, projector
from tests.clock import START


class TestJobStore(JobStoreContract):
    """The store over each log keeps the contract."""

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        return jobs.store

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, url: str) -> Snapshot:
        return reader_of(url)


def test_a_run_that_waits_is_queued_like_any_other(jobs: Jobs) -> None:
    """Its first event is JobQueued, by whom it names, at the time at which it was made."""
    made = START - timedelta(seconds=1)

    jobs.store.create(run(triggered_by="ann", params={"song": 7}, priority=3, created_at=made))

    (event,) = jobs.history("a")
    assert isinstance(event, JobQueued)
    assert ("ann", made, {"song": 7}, 3) == (event.actor, event.at, event.params, event.priority)


def test_a_run_that_says_more_is_recorded(jobs: Jobs) -> None:
    """What JobQueued has no place for makes the first event a JobRecorded with all that was said."""
    jobs.store.create(run(capture_logs="always"))

    (event,) = jobs.history("a")
    assert isinstance(event, JobRecorded)
    assert event.run is not None
    assert ("queued", "always") == (event.state, event.run.capture_logs)


def test_an_update_records_what_is_new(jobs: Jobs) -> None:
    """Fields that are as they were are not said again."""
    jobs.store.create(run())

    changed(jobs.store, "a", progress=40, worker_id="w1")

    assert RunChanges(progress=40, worker_id="w1") == jobs.history("a")[-1].run  # type: ignore[attr-defined]


def test_an_update_with_nothing_new_records_nothing(jobs: Jobs, clock: Clock) -> None:
    """The history does not grow, and `updated_at` stays."""
    jobs.store.create(run())
    clock.move(5)

    found = changed(jobs.store, "a")

    assert (1, START) == (len(jobs.history("a")), found.updated_at)


def test_a_job_submitted_is_a_run(jobs: Jobs) -> None:
    """What Jobs writes, the store reads, and the other way round."""
    job_id = jobs.submit("render", {"song": 7})
    with jobs.attempt(job_id) as attempt:
        attempt.result({"n": 1})

    found = jobs.store.get(job_id)

    assert ("succeeded", {"song": 7}, {"n": 1}) == (found.status, found.params, found.result)


def test_a_record_counts_on(jobs: Jobs) -> None:
    """A job whose tries were asserted is started with the next one."""
    jobs.store.create(run(attempt=3, max_attempts=5))

    with jobs.attempt("a") as attempt:
        number = attempt.number

    assert (3, 3) == (number, jobs.store.get("a").attempt)


def test_a_new_attempt_forgets_what_was_asserted_of_the_last(jobs: Jobs) -> None:
    """Asserted error and duration go with the attempt that they were of; what is asked of the run stays."""
    asserted = RunError(code="E", status=507, message="no space", tail=["x"])
    jobs.store.create(ended(status="failed", error=asserted, duration_ms=77, capture_logs="always"))

    with jobs.attempt("a"):
        found = jobs.store.get("a")

    assert (None, 0, "always") == (found.error, found.duration_ms, found.capture_logs)


def test_can_06_a_requested_cancel_outlives_everybody(jobs: Jobs) -> None:
    """CAN-06: nobody is at work when a queued run's cancel is asked for; whoever comes to start it cancels it."""
    jobs.store.create(run())
    jobs.store.request_cancel("a", "bob", "wrong song")

    with pytest.raises(AlreadyCanceled):
        jobs.attempt("a").__enter__()

    assert [JobQueued, CancelRequested, JobCanceled] == [type(event) for event in jobs.history("a")]
    assert ("canceled", "bob", "wrong song") == (
        jobs.store.get("a").status,
        jobs.store.get("a").canceled_by,
        jobs.store.get("a").cancel_reason,
    )


def test_a_worker_of_others_is_not_taken_for_dead(jobs: Jobs) -> None:
    """A start that a store's caller asserted has no lease with us: the reaper leaves it alone."""
    jobs.store.create(run())
    changed(jobs.store, "a", status="running", worker_id="theirs-1")

    jobs.reap()

    assert "running" == jobs.store.get("a").status


def test_a_key_that_is_taken_refuses_an_update(jobs: Jobs) -> None:
    """A finished run may not come back over the key of another one."""
    jobs.store.create(ended(status="failed", idem_key="k"))
    jobs.store.create(run("b", idem_key="k"))

    with pytest.raises(KeyTaken):
        changed(jobs.store, "a", status="queued", idem_key="k")

    assert "failed" == jobs.store.get("a").status


def test_what_is_secret_is_scrubbed(clock: Clock) -> None:
    """Params, results and errors pass the hook that those of attempts pass."""

    def scrub(value: Any) -> Any:
        return "***" if isinstance(value, str) else {"secret": "***"} if value else value

    with connect("memory://", clock=clock, scrub=scrub) as jobs:
        error = RunError(message="s3cret", stack="s3cret", tail=["s3cret"], fields={"a": "s3cret"})
        jobs.store.create(ended(params={"p": "s3cret"}, result={"r": "s3cret"}, error=error))

        assert "s3cret" not in str(jobs.history("a"))


def test_a_job_nobody_asserted_does_not_grow() -> None:
    """What a store's caller may assert costs no byte where nobody did."""
    stored = msgspec.json.decode(msgspec.json.encode(Job(job_id="a")))

    assert {"job_id": "a"} == stored


STATES = st.sampled_from(["queued", "running", "failed", "skipped", "waiting"])  # those that may all follow each other
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
NAMES = st.text("abc-", max_size=4)
ERRORS = st.builds(
    RunError,
    code=NAMES,
    status=st.integers(0, 599),
    message=st.text("xyz", max_size=3),
    fields=st.dictionaries(NAMES, st.integers(), max_size=1).filter(
        lambda one: all(-(2**63) <= v < 2**63 for v in one.values())
    ),
    stack=NAMES,
    tail=st.lists(NAMES, max_size=2),
)
RUNS = st.builds(
    JobRun,
    id=st.just("a"),
    job_name=st.sampled_from(["render", "mix"]),
    queue=st.sampled_from(["default", "slow"]),
    params=json_values(3),
    status=STATES,
    triggered_by=NAMES,
    idem_key=NAMES,
    attempt=st.integers(0, 9),
    max_attempts=st.integers(0, 9),
    scheduled_at=TIMES,
    started_at=st.none() | TIMES,
    finished_at=st.none() | TIMES,
    duration_ms=st.integers(0, 10**6),
    progress=st.integers(0, 100) | st.floats(0.5, 99.5),
    progress_message=NAMES,
    result=json_values(3),
    error=st.none() | ERRORS,
    worker_id=NAMES,
    capture_logs=st.sampled_from(["", "off"]),
    replay_of=NAMES,
    root_id=st.just("a"),
    created_at=TIMES,
    updated_at=TIMES,
    priority=st.integers(-3, 3),
    external=st.booleans(),
)


@given(st.lists(RUNS, min_size=1, max_size=4))
def test_whatever_is_said_is_what_is_read(said: list[JobRun]) -> None:
    """After any updates the run is the last one said, all fields of it."""
    with connect("memory://", clock=Clock()) as jobs:
        jobs.store.create(said[0])
        first = jobs.store.get("a")
        for one in said[1:]:
            jobs.store.update(one)

        left = {name: getattr(first, name) for name in CANCEL}
        left["updated_at"] = jobs.store.get("a").updated_at
        left["triggered_by"] = next((one.triggered_by for one in reversed(said) if one.triggered_by), "")

        assert said[0].updated_at == first.updated_at
        assert msgspec.structs.replace(said[-1], **left) == jobs.store.get("a")


def test_sto_03_purge_looks_at_the_state_and_the_end(jobs: Jobs, clock: Clock) -> None:
    """STO-03: of jobs a month old only the one that ended long ago goes, and the count says one."""
    gone, lately, running, later = (jobs.submit("render", {"n": n}) for n in range(4))
    retrying = jobs.submit("render", max_attempts=2)
    with jobs.attempt(gone):
        pass
    held = jobs.attempt(running)
    held.__enter__()
    with pytest.raises(ZeroDivisionError), jobs.attempt(retrying):
        raise ZeroDivisionError
    clock.move(timedelta(days=29).total_seconds())
    jobs.retry(retrying)
    with jobs.attempt(lately):
        pass
    week = clock() - timedelta(days=7)

    count = jobs.store.purge(week, week)

    assert 1 == count
    assert sorted([lately, running, later, retrying]) == sorted(one.id for one in jobs.store.list(RunFilter()).runs)
    assert [JobDeleted] == [type(event) for event in jobs.history(gone)][-1:]
    held.give_back()


def fill(jobs: Jobs, name: str) -> None:
    """Have a hundred jobs end that said 800 KiB in all."""
    for number in range(100):
        with jobs.attempt(jobs.submit("render", id=f"{name}-{number}")) as attempt:
            attempt.log(random.Random(number).randbytes(4000).hex())


def test_the_space_of_what_is_purged_comes_back(tmp_path: Path, clock: Clock) -> None:
    """What is written next goes where rows and lines were: the file grows by the events alone, and VACUUM makes it small."""
    url, path = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", tmp_path / "jobs.db"

    def size(jobs: Jobs) -> int:
        recorder: Any = jobs.log.recorder
        recorder.file.query("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size

    with connect(url, clock=clock) as jobs:
        fill(jobs, "first")
        before = size(jobs)
        clock.move(60)
        jobs.store.purge(clock(), clock())
        fill(jobs, "second")
        after = size(jobs)
        clock.move(60)
        jobs.store.purge(clock(), clock())
        recorder: Any = jobs.log.recorder
        recorder.file.query("VACUUM")
        emptied = size(jobs)

    assert before > 800_000
    assert after < 1.3 * before
    assert emptied < 0.4 * before


def test_sto_04_a_purge_that_crashed_is_done_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STO-04: the process dies in the midst of fifty; after a second purge nothing is left of them in any part."""
    monkeypatch.setattr(jobstore, "PURGE_BATCH", 10)
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    purged = 0

    def die(job: Job, events: Sequence[Event]) -> None:
        nonlocal purged
        purged += isinstance(events[-1], JobDeleted)
        if purged == 25:
            raise Died

    with connect(url, clock=clock) as jobs:
        for number in range(50):
            with jobs.attempt(jobs.submit("render", id=f"a{number}")) as attempt:
                attempt.log("line")
        projector(jobs, leased=False).run_once()
        jobs.observe(die)
        clock.move(60)
        with pytest.raises(Died):
            jobs.store.purge(clock(), clock())
    with connect(url, clock=clock) as jobs:
        left = [one.id for one in jobs.store.list(RunFilter(per_page=0)).runs]

        jobs.store.purge(clock(), clock())
        projector(jobs, leased=False).run_once()

        assert 20 == len(left)
        assert [] == jobs.store.list(RunFilter()).runs
        assert [] == [line for n in range(50) for line in jobs.store.logs(f"a{n}")]
        assert [] == [entry.name for entry in jobs.blobs.list("jobs/")]
        assert 0 == len(jobs.queue)
