"""The log on blobs, in memory and in files, keeps the contracts of logs and of stores."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.blobnames import PARTS
from jobevents.backends.fan import Fan
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.commands import Submission
from jobevents.errors import Canceled, Unavailable
from jobevents.events import JobProgressed
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.store import JobStore, RunFilter
from jobevents.testing import Clock, JobStoreContract
from jobevents.testing.log_events import notes
from jobevents.testing.runs import Elapse
from jobevents.wiring import connect
from tests.bloblogs import BlobLogContract, Indexed, Wire, bucket_jobs, close_buckets, index, write_status
from tests.cli import CommandLine, jobevents

__all__ = ["jobevents"]  # a fixture


@pytest.fixture(params=["memory", "files"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """An empty store of each kind that needs no server."""
    return MemoryBlobs() if request.param == "memory" else FileBlobs(tmp_path)


class TestBlobLog(BlobLogContract):
    """In memory and in files."""

    @pytest.fixture
    def log(self, blobs: Blobs) -> Iterator[EventLog]:
        recorder = BlobRecorder(blobs, "log-1")
        log = EventLog(recorder, recorder.translate)
        yield log
        log.close()


class TestBlobStore(JobStoreContract):
    """The store over the log in memory; its lists are of the index."""

    @pytest.fixture
    def jobs(self, clock: Clock) -> Iterator[Jobs]:
        with connect("memory://?log=blobs", clock=clock) as made:
            yield made

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        return Indexed(jobs)  # type: ignore[return-value]  # by __getattr__

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move


def test_the_command_line_over_files(tmp_path: Path, jobevents: CommandLine) -> None:
    """Jobs of a log of objects are submitted, shown and canceled; lists are of the index, and say so where there is none."""
    url = ("--url", f"file://{tmp_path}")
    job_id = jobevents("submit", "--create", "render", *url).json["job_id"]

    assert "queued" in jobevents("show", job_id, *url).out
    assert "no index yet" in jobevents("list", *url).err
    with connect(url[1]) as jobs:
        index(jobs)
    assert job_id in jobevents("list", *url, "--json").out
    assert job_id in jobevents("list", *url, "--after", "", "--json").out
    assert job_id in jobevents("list", *url, "--job", "render", "--json").out
    assert job_id not in jobevents("list", *url, "--job", "mix", "--json").out
    assert 0 == jobevents("cancel", job_id, *url).code
    assert "JobCanceled" in jobevents("events", job_id, *url, "--json").out
    assert 0 == jobevents("doctor", *url).code


def test_following_says_that_there_is_no_order(tmp_path: Path, jobevents: CommandLine) -> None:
    """What a log of objects cannot do is said with what can be done."""
    done = jobevents("tail", "--url", f"file://{tmp_path}")

    assert (True, True) == (done.code > 0, "topic" in done.err)


def test_two_processes_are_two_clients_of_one_log(tmp_path: Path, clock: Clock) -> None:
    """What one wrote the other reads, at once: no head that is remembered hides it."""
    url = f"file://{tmp_path}"
    with connect(url, clock=clock) as one, connect(url, clock=clock) as two:
        job_id = one.submit("render")
        assert "queued" == two.get(job_id).state
        one.cancel(job_id)

        assert "canceled" == two.get(job_id).state
        assert two.log.head(job_id) == one.log.head(job_id)


def test_a_scan_of_heads_goes_on_from_any_job() -> None:
    """By lists alone, part by part: each job's last event, resumed after any of them."""
    recorder = BlobRecorder(MemoryBlobs(), "log-1")
    log = EventLog(recorder, recorder.translate)
    lengths = {f"a-{number}": number % 3 + 1 for number in range(40)} | {"a": 2, "a0": 1, "a-": 1}
    for job_id, length in lengths.items():
        log.append(notes(job_id, range(1, length + 1)))

    found = {part: list(recorder.last_slots(part)) for part in PARTS}

    assert lengths == {slot.job_id: slot.version for slots in found.values() for slot in slots}
    for part, slots in found.items():
        for place, slot in enumerate(slots):
            assert slots[place + 1 :] == list(recorder.last_slots(part, after=slot.job_id))


def test_gcs_01_progress_is_spaced(clock: Clock) -> None:
    """GCS-01: two hundred progress events in twenty seconds are three in the log, and the last said is there at the end."""
    jobs = bucket_jobs(MemoryBlobs(clock=clock), clock)
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        for percent in range(200):
            attempt.progress(percent / 2)
            clock.move(0.1)

    told = [event.percent for event in jobs.history(job_id) if isinstance(event, JobProgressed)]
    assert (99.5, 3) == (told[-1], len(told))
    assert "succeeded" == jobs.get(job_id).state
    close_buckets()


def test_what_a_life_costs(clock: Clock) -> None:
    """A job from its submission to its end by one process: no list, one write for each event, two for its key."""
    wire = Wire(MemoryBlobs(clock=clock))
    jobs = bucket_jobs(wire, clock)

    job_id = jobs.submit("render", key="k")
    with jobs.attempt(job_id):
        pass

    asked = Counter((method, name.split("/")[1]) for method, name in wire.calls if "workers" not in name)
    assert {
        ("put", "log"): 3,
        ("put", "keys"): 1,
        ("delete", "keys"): 1,
        ("get", "ctl"): 2,  # the floor, before and after the first event
        ("get", "jobs"): 1,  # the status, before the start is granted
    } == asked
    close_buckets()


@pytest.mark.parametrize("has_status", [False, True])
def test_what_a_delivery_to_another_process_costs(clock: Clock, *, has_status: bool) -> None:
    """A worker that knows nothing of a job looks at its status, its first event and, when its start is written, its floor.

    It lists nothing.
    """
    store = MemoryBlobs(clock=clock)
    submitter = bucket_jobs(store, clock)
    job_id = submitter.submit("render", {"text": "ü \U0001f600"})
    if has_status:
        write_status(submitter, job_id)
    wire = Wire(store)
    worker = bucket_jobs(wire, clock)

    attempt = worker.attempt(job_id)
    attempt.__enter__()

    asked = Counter((method, name.split("/")[1]) for method, name in wire.calls if "workers" not in name)
    if has_status:
        assert {("get", "jobs"): 1, ("get", "log"): 1, ("put", "log"): 1, ("get", "ctl"): 1} == asked
    else:
        assert {("get", "jobs"): 2, ("get", "log"): 2, ("put", "log"): 1, ("get", "ctl"): 1} == asked
    assert {"text": "ü \U0001f600"} == attempt.params
    close_buckets()


def test_the_head_of_a_long_history_is_two_requests(clock: Clock) -> None:
    """A process that does not know the job lists it and reads its last event, whatever came before."""
    wire = Wire(MemoryBlobs(clock=clock))
    bucket_jobs(wire, clock).log.append(notes("a", range(1, 51)))
    log = bucket_jobs(wire, clock).log
    wire.calls.clear()

    assert 50 == log.head("a").version

    assert ["list", "get"] == [method for method, _ in wire.calls]
    close_buckets()


def test_looks_at_a_cancel_are_spaced(clock: Clock) -> None:
    """A handler that asks all the time whether to stop costs two reads in five seconds, and hears of it within that."""
    wire = Wire(MemoryBlobs(clock=clock))
    jobs = bucket_jobs(wire, clock)
    job_id = jobs.submit("render")
    heard: list[bool] = []

    with contextlib.suppress(Canceled), jobs.attempt(job_id) as attempt:
        wire.calls.clear()
        for turn in range(100):
            if turn == 50:
                jobs.cancel(job_id)
            heard.append(attempt.canceled)
            clock.move(0.1)
        asked = [method for method, name in wire.calls if method == "get" and "log/v1" in name]
        attempt.check()

    assert (False, True) == (heard[50 - 1], heard[-1])
    assert 4 == len(asked)
    close_buckets()


def test_threads_that_ask_for_threads_come_to_an_end(clock: Clock) -> None:
    """A page of histories, each read by threads from within a thread: more of both than there are."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        job_ids = [f"a{number}" for number in range(40)]
        jobs.submit_many([Submission(name="render", id=job_id, key=job_id) for job_id in job_ids])
        for job_id in job_ids:
            with jobs.attempt(job_id):
                pass
        store = jobs.blobs
        index(jobs)

        cold = bucket_jobs(store, clock, threads=4, prefix=jobs.prefix)

        assert 40 == len(cold.store.list(RunFilter(job="render")).runs)
    close_buckets()


def test_many_at_a_time_fail_as_one() -> None:
    """The first error is raised when all calls have ended: none goes on behind the caller's back."""
    ended: list[int] = []

    def call(number: int) -> int:
        if number == 1:
            raise Unavailable("one")
        ended.append(number)
        return number

    fan = Fan(4)
    with pytest.raises(Unavailable, match="one"):
        fan.map(call, range(20))
    fan.close()

    assert [number for number in range(20) if number != 1] == sorted(ended)
    assert [0, 2] == fan.map(lambda number: 2 * number, range(2))
    fan.close()


def test_a_dead_workers_job_is_given_back(clock: Clock) -> None:
    """The reaper finds running jobs by the index, asks the log who holds each, and requeues what the dead held."""
    store = MemoryBlobs(clock=clock)
    dead, living = bucket_jobs(store, clock), bucket_jobs(store, clock)
    for jobs, job_id in ((dead, "a"), (living, "b")):
        jobs.submit("render", id=job_id, max_attempts=2)
        jobs.attempt(job_id).__enter__()
    index(living)
    assert ["a", "b"] == living.store.running_ids("render")
    dead.presence.leases.drop(dead.job("a").worker)

    reaped = living.reap()

    assert (1, 0) == (reaped.requeued, reaped.failed)
    assert ["queued", "running"] == [living.get(job_id).state for job_id in "ab"]
    assert ["b"] == [job_id for worker in living.workers() for job_id in worker.jobs]
    close_buckets()
