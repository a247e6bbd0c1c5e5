"""The log in a bucket, behind the strict proxy: the contracts, and the faults that only a network has."""

import os
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from jobevents import wiring_builds
from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.gcs import GcsBlobs
from jobevents.backoff import Backoff
from jobevents.errors import AlreadyRunning, AppendUnknown, Misconfigured, NotFound, PermissionDenied, Unavailable
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.records import status_bytes, status_name
from jobevents.store import JobStore, RunFilter
from jobevents.testing import Clock, JobStoreContract
from jobevents.testing.runs import Elapse
from jobevents.wiring import connect
from tests.bloblogs import BlobLogContract, Indexed, bucket_jobs, close_buckets, index, write_status
from tests.fake_time import FakeTime
from tests.gcs_proxy import GcsProxy

pytest_plugins = ("tests.gcs",)


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    close_buckets()


@pytest.fixture
def jobs(gcs_blobs: GcsBlobs, gcs_time: FakeTime, clock: Clock) -> Jobs:
    """One process's jobs, with waits that take no time."""
    return bucket_jobs(gcs_blobs, clock, gcs_time, once=gcs_blobs.once(), threads=16)


@pytest.fixture
def other(gcs_bucket: str, clock: Clock) -> Jobs:
    """Another process's jobs, over connections of its own."""
    blobs = GcsBlobs(gcs_bucket)
    return bucket_jobs(blobs, clock, once=blobs.once(), threads=16)


def kinds(jobs: Jobs, job_id: str) -> list[str]:
    return [event.type for event in jobs.history(job_id)]


class TestGcsLog(BlobLogContract):
    """The log keeps the contract."""

    races = 5

    @pytest.fixture
    def log(self, gcs_blobs: GcsBlobs, gcs_time: FakeTime) -> Iterator[EventLog]:
        backoff = Backoff(sleep=gcs_time.sleep, clock=gcs_time.clock)
        recorder = BlobRecorder(gcs_blobs, "log-1", once=gcs_blobs.once(), backoff=backoff)
        log = EventLog(recorder, recorder.translate)
        yield log
        log.close()


class TestGcsStore(JobStoreContract):
    """The store over it keeps the contract; its lists are of the index."""

    @pytest.fixture
    def store(self, jobs: Jobs) -> JobStore:
        return Indexed(jobs)  # type: ignore[return-value]  # by __getattr__

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.mark.slow
    def test_many_are_purged(self, store: JobStore) -> None:
        """As everywhere, by some thousand requests."""
        super().test_many_are_purged(store)

    @pytest.mark.slow
    def test_a_purge_meets_a_run_that_goes_on(self, store: JobStore) -> None:
        """As everywhere, by some thousand requests."""
        super().test_a_purge_meets_a_run_that_goes_on(store)


@pytest.mark.parametrize("lost", [1, 3])
def test_fault_04_reply_lost_and_landed(jobs: Jobs, gcs_proxy: GcsProxy, lost: int) -> None:
    """An append whose reply was lost is found by its id: one event, and success."""
    gcs_proxy.drop_reply("upload", times=lost)

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_04_reply_lost_and_landed_late(jobs: Jobs, gcs_proxy: GcsProxy, gcs_time: FakeTime) -> None:
    """A write that arrives while the same is tried again is one event."""
    held = gcs_proxy.hold("upload")
    gcs_time.while_asleep = held.land

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_04_landed_after_its_slot_was_taken(jobs: Jobs, other: Jobs, gcs_proxy: GcsProxy) -> None:
    """It is refused by the store."""
    jobs.submit("render", id="a")
    held = gcs_proxy.hold("upload")
    gcs_proxy.fail(503, "upload", times=1000)
    with pytest.raises(AppendUnknown) as unknown:
        jobs.cancel("a")
    gcs_proxy.reset()
    other.cancel("a", actor="bob")

    assert 412 == held.land()
    assert jobs.log.resolve(unknown.value) is False


def test_fault_05_two_writers_one_slot(jobs: Jobs, other: Jobs, gcs_proxy: GcsProxy) -> None:
    """Of two deliveries one is granted; the other folds what it wrote, and is refused."""
    jobs.submit("render", id="a")
    attempt = other.attempt("a")
    other.presence.vouch()
    jobs.presence.vouch()
    gcs_proxy.before("upload", attempt.__enter__)

    with pytest.raises(AlreadyRunning), jobs.attempt("a"):
        raise AssertionError("granted twice")

    attempt.__exit__(None, None, None)
    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, "a")


def test_fault_06_store_away_for_a_minute(jobs: Jobs, gcs_proxy: GcsProxy, gcs_time: FakeTime) -> None:
    """An append waits for half a minute, then its outcome is unknown; later it is found not to be there, and is made."""
    gcs_proxy.fail(503, "upload", times=10_000)

    with pytest.raises(AppendUnknown) as unknown:
        jobs.submit("render", {"song": 7}, id="a")

    assert 15 < sum(gcs_time.sleeps) <= 60
    gcs_proxy.reset()
    assert jobs.log.resolve(unknown.value) is None
    assert "a" == jobs.submit("render", {"song": 7}, id="a")
    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_07_too_many_writes(jobs: Jobs, gcs_proxy: GcsProxy) -> None:
    """An append that is told to slow down waits, and is one event."""
    gcs_proxy.fail(429, "upload", times=3, message="rateLimitExceeded")

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


ASKS: dict[str, Callable[[Jobs], object]] = {
    "download": lambda jobs: jobs.store.list(RunFilter()),
    "list": lambda jobs: jobs.history("a"),
    "upload": lambda jobs: jobs.cancel("a"),
}


@pytest.mark.parametrize("kind", list(ASKS))
def test_fault_22_permission_denied(jobs: Jobs, gcs_bucket: str, clock: Clock, gcs_proxy: GcsProxy, kind: str) -> None:
    """A refusal is never "not found" and never an empty page, and is not tried again (GCS-06, GCS-08)."""
    jobs.submit("render", id="a")
    write_status(jobs, "a")
    index(jobs)
    blobs = GcsBlobs(gcs_bucket)
    fresh = bucket_jobs(blobs, clock, once=blobs.once())
    gcs_proxy.fail(403, kind, times=1)

    with pytest.raises(PermissionDenied) as refused:
        ASKS[kind](fresh)

    assert not isinstance(refused.value, NotFound)
    assert refused.value.__cause__ is not None


def test_gcs_08_a_listing_that_breaks_is_no_short_history(
    jobs: Jobs, gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, clock: Clock
) -> None:
    """GCS-08: what could not be listed to its end is an error, never a shorter history."""
    jobs.submit("render", id="a")
    fresh = bucket_jobs(gcs_blobs, clock, gcs_time, once=gcs_blobs.once())
    gcs_proxy.fail(503, "list", times=1000)

    with pytest.raises(Unavailable):
        fresh.history("a")


def test_a_history_is_read_at_a_time(jobs: Jobs, other: Jobs, gcs_proxy: GcsProxy) -> None:
    """One list, then a read for each event, sixteen under way: the time is that of three requests, not of thirty."""
    jobs.submit("render", id="a")
    for number in range(15):
        jobs.cancel("a")
        jobs.rerun("a", actor=str(number))
    other.get("a")
    gcs_proxy.requests.clear()
    gcs_proxy.delay(0.03, "download", times=31)

    began = os.times().elapsed
    assert 31 == len(other.history("a"))
    took = os.times().elapsed - began

    assert ["list"] == [kind for kind in gcs_proxy.kinds() if kind != "download"]
    assert 31 == gcs_proxy.kinds().count("download")
    assert took < 0.9  # one after the other: 31 x 30 ms


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on(jobs: Jobs) -> None:
    """It makes connections and threads of its own, and both see what the other wrote."""
    jobs.submit("render", id="a")
    jobs.history("a")  # threads were made

    child = os.fork()
    if child == 0:
        try:
            jobs.cancel("a", actor="child")
            jobs.submit("render", id="b")
            os._exit(0 if len(jobs.history("a")) == 2 else 1)
        except BaseException:  # a test of the child must not run on in it
            os._exit(2)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert "child" == jobs.history("a")[1].actor
    assert "queued" == jobs.get("b").state


def test_a_whole_life_over_the_url(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """By the URL alone, with the limit of one write a second for a name: submitted, run, listed, run again, deleted."""
    gcs_proxy.limits_writes = True
    with connect(f"gs://{gcs_bucket}/team", inline=True) as jobs:
        job_id = jobs.submit("render", {"song": 7}, key="song-7")
        assert job_id == jobs.submit("render", {"song": 7}, key="song-7")
        with jobs.attempt(job_id) as attempt:
            attempt.progress(40, "mixing")
            attempt.log("hello")
            attempt.result({"seconds": 181})
        index(jobs)

        assert [job_id] == [run.id for run in jobs.store.list(RunFilter(statuses=("succeeded",))).runs]
        assert ["hello"] == [line.message for line in jobs.store.logs(job_id)]
    with connect(f"gs://{gcs_bucket}/team") as jobs:
        assert "succeeded" == jobs.get(job_id).state
        jobs.rerun(job_id)
        assert jobs.delete(job_id)
        assert [] == list(jobs.store.logs(job_id))


def test_a_mistyped_prefix_is_no_empty_log(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """Who only reads is told, and writes nothing there; also where the prefix of others begins like it, or is below it."""
    url = f"gs://{gcs_bucket}/team"
    with connect(url) as jobs:
        jobs.submit("render", id="a")
    gcs_proxy.requests.clear()

    for wrong in (f"gs://{gcs_bucket}/tea", f"gs://{gcs_bucket}"):
        with pytest.raises(Misconfigured, match=r"there is no log prefix=.*: is the path right"):
            connect(wrong, create=False)
    assert {"list"} == set(gcs_proxy.kinds())
    with connect(url, create=False) as jobs:
        assert "queued" == jobs.get("a").state


def test_many_threads_append_at_once(jobs: Jobs) -> None:
    """Sixteen threads with a job each: every event is there, each history whole."""

    def work(number: int) -> None:
        jobs.submit("render", id=f"a{number}")
        jobs.cancel(f"a{number}")

    threads = [Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [2] * 16 == [jobs.log.head(f"a{number}").version for number in range(16)]


@pytest.mark.slow
def test_views_are_built_beside_and_swapped_in(jobs: Jobs) -> None:
    """Over a bucket that takes one write a second of a name: from nothing, with what came since; all as the log says."""
    for job_id in "abc":
        jobs.submit("render", id=job_id)
    build = wiring_builds.build_beside(jobs, threads=4).build
    with jobs.attempt("a"):
        jobs.cancel("b")
    jobs.submit("render", id="d")
    jobs.delete("c")

    report = wiring_builds.promote(jobs, build, threads=4)

    assert (3, 3, 0) == (report.indexed, report.replaced, report.removed)
    shown = {job_id: jobs.blobs.get(jobs.blob_name(status_name(job_id))) for job_id in "abd"}
    assert {job_id: status_bytes(jobs.job(job_id)) for job_id in "abd"} == {
        job_id: blob.data for job_id, blob in shown.items() if blob is not None
    }
