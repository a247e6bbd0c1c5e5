"""The log on blobs through a bad day: each fault by its number in the protocol, and what is right."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import IntegrityError, StoredEvent

from jobevents import codec
from jobevents.backends.bloberasures import RIPE_S
from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.blobnames import Names, Slot
from jobevents.backoff import Backoff
from jobevents.blobs import FileBlobs, MemoryBlobs
from jobevents.commands import Submission
from jobevents.doctor import examine
from jobevents.emit import By
from jobevents.errors import (
    AlreadyRunning,
    AlreadySucceeded,
    AppendUnknown,
    Conflict,
    Corrupt,
    Gone,
    InvalidValue,
    JobEventsError,
    KeyTaken,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from jobevents.events import TransitionRefused
from jobevents.files import write_new
from jobevents.job import DELETED
from jobevents.jobs import Jobs
from jobevents.store import JobLog, RunFilter
from jobevents.testing import Clock, Died, FailingBlobs
from jobevents.testing.faults import Fault
from jobevents.wiring_erase import erasing
from tests.bloblogs import Wire, bucket_jobs, close_buckets, index, write_status
from tests.clock import START
from tests.fake_time import FakeTime

NAMES = Names("log-1")


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    close_buckets()


@pytest.fixture
def store(clock: Clock) -> MemoryBlobs:
    """The store behind all wires, by the clock."""
    return MemoryBlobs(clock=clock)


@pytest.fixture
def wire(store: MemoryBlobs) -> Wire:
    """One process's wire to the store."""
    return Wire(store)


@pytest.fixture
def time() -> FakeTime:
    """The time by which appends wait."""
    return FakeTime()


@pytest.fixture
def jobs(wire: Wire, clock: Clock, time: FakeTime) -> Jobs:
    """One process's jobs, over its wire."""
    return bucket_jobs(wire, clock, time)


@pytest.fixture
def other(store: MemoryBlobs, clock: Clock) -> Jobs:
    """Another process's jobs, over a wire that is well."""
    return bucket_jobs(store, clock)


def kinds(jobs: Jobs, job_id: str) -> list[str]:
    return [event.type for event in jobs.history(job_id)]


def is_sound(jobs: Jobs, job_id: str) -> bool:
    """Tell whether a history has no hole and no break of its chain."""
    raw = jobs.log.read_raw(job_id)
    return [] == codec.chain_breaks(one.data for one in raw) and list(range(1, len(raw) + 1)) == [
        one.version for one in raw
    ]


def test_fault_01_crash_before_the_write(store: MemoryBlobs, clock: Clock, other: Jobs) -> None:
    """A process that dies before its write has changed nothing."""
    dying = bucket_jobs(FailingBlobs(store, at=2, fault="die"), clock)

    with pytest.raises(Died):
        dying.submit("render", id="a")

    with pytest.raises(NotFound):
        other.get("a")
    assert "a" == other.submit("render", id="a")


def test_fault_02_crash_after_the_write(store: MemoryBlobs, clock: Clock, other: Jobs) -> None:
    """A process that dies before the reply has written: the delivery's next try finds the job, and makes no second one."""
    dying = bucket_jobs(FailingBlobs(store, at=2, fault="die after"), clock)

    with pytest.raises(Died):
        dying.submit("render", {"song": 7}, id="a")

    assert "a" == other.submit("render", {"song": 7}, id="a")
    assert ["JobQueued"] == kinds(other, "a")


@pytest.mark.parametrize("times", [1, 3])
def test_fault_04_reply_lost_and_landed(jobs: Jobs, wire: Wire, times: int) -> None:
    """The write whose reply was lost is found by its id: one event, and success."""
    wire.lose_reply("put", "log/v1", times=1)
    wire.refuse("get", "log/v1", times=times - 1)

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_04_reply_lost_and_landed_late(jobs: Jobs, wire: Wire, time: FakeTime) -> None:
    """A write that lands after the same was tried again is one event all the same."""
    held = wire.hold("log/v1")
    time.while_asleep = held.land

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_04_landed_after_another_decision(jobs: Jobs, wire: Wire, other: Jobs) -> None:
    """A write that comes after its slot was taken by another is refused, and stays unwritten for good."""
    jobs.submit("render", id="a")
    held = wire.hold("log/v1")
    wire.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown) as unknown:
        jobs.cancel("a", actor="ann")
    wire.calm()
    with other.attempt("a"):
        pass

    held.land()

    assert jobs.log.resolve(unknown.value) is False
    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(other, "a")
    assert "already final" == jobs.cancel("a", actor="ann")


def test_fault_04_nobody_decides_again_before_it_is_known(jobs: Jobs, wire: Wire) -> None:
    """While it is unknown what came of an append, nothing else is tried on the job; then it is found, and not done twice."""
    jobs.submit("render", id="a")
    wire.lose_reply("put", "log/v1")
    wire.refuse("get", "log/v1", times=1000)
    wire.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown):
        jobs.cancel("a", actor="ann")
    with pytest.raises(Unavailable):
        jobs.cancel("a", actor="bob")
    wire.calm()

    assert "already final" == jobs.cancel("a", actor="bob")
    (_, canceled) = jobs.history("a")
    assert ("JobCanceled", "ann") == (canceled.type, canceled.actor)


def test_fault_05_two_writers_one_slot(jobs: Jobs, wire: Wire, other: Jobs) -> None:
    """One wins; the loser folds what the winner wrote, and decides again."""
    jobs.submit("render", id="a")
    other.get("a")
    wire.before("put", "0000000002", lambda: other.cancel("a", actor="bob"))

    with pytest.raises(Exception, match="canceled"), jobs.attempt("a"):
        raise AssertionError("not granted")

    assert ["JobQueued", "JobCanceled"] == kinds(jobs, "a")
    assert is_sound(jobs, "a")


def test_fault_05_two_deliveries_one_grant(jobs: Jobs, wire: Wire, other: Jobs) -> None:
    """Of two deliveries at once one is granted; the other is told that the job runs."""
    jobs.submit("render", id="a")
    entered = contextlib.ExitStack()
    wire.before("put", "0000000002", lambda: entered.enter_context(other.attempt("a")))

    with pytest.raises(AlreadyRunning), jobs.attempt("a"):
        raise AssertionError("granted twice")
    entered.close()

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(jobs, "a")


def test_fault_06_store_away_for_a_minute(jobs: Jobs, wire: Wire, time: FakeTime) -> None:
    """An append waits for half a minute and then says that it is not known; the same call finds its event and adds nothing."""
    wire.refuse("put", "log/v1", times=1000)

    with pytest.raises(AppendUnknown):
        jobs.submit("render", {"song": 7}, id="a")

    assert 20 < sum(time.sleeps) <= 30
    wire.calm()
    assert "a" == jobs.submit("render", {"song": 7}, id="a")
    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_06_is_counted_and_told(jobs: Jobs, wire: Wire) -> None:
    """Tries that were made again are counted; an outcome that nobody knows is bad, and the doctor says so."""
    wire.refuse("put", "log/v1", times=2)
    jobs.submit("render", id="a")
    assert {"appends_retried": 2} == jobs.counts.snapshot()

    wire.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown):
        jobs.submit("render", id="b")
    wire.calm()

    assert 1 == jobs.counts.snapshot()["appends_unknown"]
    [found] = [one for one in examine(jobs) if one.check == "appends"]
    assert not found.ok
    assert "1 appends of unknown outcome" in found.found


def test_fault_06_refused_after_a_lost_reply(jobs: Jobs, wire: Wire) -> None:
    """Who may not write any more after a lost reply does not know what came of it, and does not say that nothing did."""
    wire.lose_reply("put", "log/v1")
    wire.refuse("get", "log/v1")
    wire.refuse("put", "log/v1", error=PermissionDenied("403"))

    with pytest.raises(AppendUnknown) as unknown:
        jobs.submit("render", id="a")

    assert jobs.log.resolve(unknown.value)


def test_fault_06_away_right_after_a_create(jobs: Jobs, wire: Wire) -> None:
    """Where it cannot be seen whether a job was erased meanwhile, its first event is not known to stay."""
    wire.before("put", "log/v1", lambda: wire.refuse("get", "floor"))

    with pytest.raises(AppendUnknown):
        jobs.submit("render", {"song": 7}, id="a")

    assert "a" == jobs.submit("render", {"song": 7}, id="a")
    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_06_outcome_waits_for_the_store(jobs: Jobs, wire: Wire) -> None:
    """A worker whose store is away for a while at its end loses nothing."""
    jobs.submit("render", id="a")

    with jobs.attempt("a") as attempt:
        attempt.result({"seconds": 181})
        wire.refuse("put", "log/v1", times=5)

    assert {"seconds": 181} == jobs.job("a").result


def test_fault_07_too_many_writes(jobs: Jobs, wire: Wire) -> None:
    """A create that is told to slow down waits and is written once."""
    wire.refuse("put", "log/v1", times=3, error=Unavailable("429 rate limit"))

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


def test_fault_14_zombie_finishes_after_the_job_was_given_away(jobs: Jobs, other: Jobs, clock: Clock) -> None:
    """Its outcome is refused and recorded as refused; the new worker's counts."""
    jobs.submit("render", id="a")
    zombie = jobs.attempt("a", deadline_s=10)
    zombie.__enter__()
    clock.move(11)
    with other.attempt("a") as attempt:
        attempt.result("of the second")

    zombie.result("of the first")
    zombie.__exit__(None, None, None)

    assert "of the second" == other.job("a").result
    last = other.history("a")[-1]
    assert isinstance(last, TransitionRefused)
    assert 2 == last.start


def test_fault_15_clocks_apart(jobs: Jobs, store: MemoryBlobs) -> None:
    """The order is that of the versions, whatever the clocks of the writers say."""
    early = Clock(START - timedelta(hours=1))
    behind = bucket_jobs(store, early)
    jobs.submit("render", id="a")

    with behind.attempt("a"):
        early.move(-600)

    events = jobs.history("a")
    assert ["JobQueued", "JobStarted", "JobSucceeded"] == [event.type for event in events]
    assert events[0].at > events[1].at > events[2].at
    assert "succeeded" == jobs.get("a").state


BROKEN = {
    "deep": b"[" * 100_000,
    "no text": b'{"type":"JobCanceled","job_id":"a","version":2,"id":"\xff","at":"2026-01-01T00:00:00Z"}',
    "cut": b'{"type":"JobCanceled"',
    "unknown": b'{"type":"JobTeleported","job_id":"a","version":2,"id":"x","at":"2026-01-01T00:00:00Z"}',
    "another slot": b'{"type":"JobCanceled","job_id":"b","version":2,"id":"x","at":"2026-01-01T00:00:00Z"}',
    "empty": b"",
}


@pytest.mark.parametrize("data", list(BROKEN.values()), ids=list(BROKEN))
def test_fault_17_what_cannot_be_read(jobs: Jobs, store: MemoryBlobs, data: bytes) -> None:
    """An event that cannot be read is Corrupt where it is asked for, kept as it is, and stops no other job."""
    jobs.submit("render", id="a")
    jobs.submit("render", id="b")
    name = NAMES.event(Slot("a", 2))
    store.put(name, data)

    for ask in (lambda: jobs.get("a"), lambda: jobs.cancel("a"), lambda: jobs.attempt("a").__enter__()):
        with pytest.raises(Corrupt):
            ask()
    with jobs.attempt("b"):
        pass

    assert data in [record.data for record in jobs.log.scan()]
    assert "succeeded" == jobs.get("b").state


UNSTORABLE: dict[str, Any] = {
    "nan": float("nan"),
    "beyond 64 bits": 2**70,
    "lone surrogate": "\ud800",
    "deep": msgspec.json.decode(b"[" * 500 + b"]" * 500),
    "bytes": b"\xff",
}


@pytest.mark.parametrize("value", list(UNSTORABLE.values()), ids=list(UNSTORABLE))
def test_fault_18_values_that_cannot_be_stored(jobs: Jobs, wire: Wire, value: object) -> None:
    """They are refused before anything is read or written."""
    with pytest.raises(InvalidValue):
        jobs.submit("render", {"value": value})

    assert [] == wire.calls


def test_fault_19_payload_over_the_limit(jobs: Jobs, wire: Wire) -> None:
    """It is refused with its size and the limit, before anything is read or written."""
    with pytest.raises(InvalidValue, match="limit=65536"):
        jobs.submit("render", {"text": "x" * 70_000})

    assert [] == wire.calls


class Disk:
    """A disk on which nothing more fits from its n-th write on, until there is room: the half of a file is written."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.writes = 0
        self.is_cleared = False

    def write_new(self, path: Path, data: bytes) -> None:
        self.writes += 1
        if self._at <= self.writes and not self.is_cleared:
            write_new(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_new(path, data)


@pytest.mark.parametrize("at", range(1, 13))
def test_fault_21_disk_full(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Wherever it fills up: a clean error that says why, what was acknowledged stays, and with room it goes on by itself."""
    disk = Disk(at)
    monkeypatch.setattr("jobevents.files.write_new", disk.write_new)
    jobs = bucket_jobs(FileBlobs(tmp_path), clock, FakeTime())
    steps: list[Callable[[], object]] = [
        lambda: jobs.submit("render", {"song": 7}, id="a", key="k"),
        lambda: jobs.cancel("a"),
        lambda: write_status(jobs, "a"),
        lambda: index(jobs),
    ]
    errors: list[JobEventsError] = []
    for done, step in enumerate(steps):
        try:
            step()
        except JobEventsError as error:
            errors.append(error)
            disk.is_cleared = True
            kept = len(jobs.log.read("a")), min(done, 2)
            step()

    [error] = errors
    assert kept[0] >= kept[1]
    assert isinstance(error, AppendUnknown | Unavailable)
    assert "No space left" in str(error.__cause__ or error)
    assert ["JobQueued", "JobCanceled"] == kinds(jobs, "a")
    assert is_sound(jobs, "a")
    assert ["a"] == [run.id for run in jobs.store.list(RunFilter()).runs]
    assert [] == list((tmp_path / ".blobs" / "unfinished").iterdir())


ASKS: dict[str, tuple[str, str, Callable[[Jobs], object]]] = {
    "event, written": ("put", "log/v1", lambda jobs: jobs.cancel("a")),
    "event, read": ("get", "log/v1", lambda jobs: jobs.get("a")),
    "history": ("list", "log/v1", lambda jobs: jobs.history("a")),
    "status": ("get", "status.json", lambda jobs: jobs.attempt("a").__enter__()),
    "floor": ("get", "ctl/v1/floor", lambda jobs: jobs.submit("render")),
    "key, written": ("put", "keys/v1", lambda jobs: jobs.submit("render", key="new")),
    "key, read": ("get", "keys/v1", lambda jobs: jobs.store.find_active("render", "k")),
    "lines": ("list", "joblogs/v1", lambda jobs: jobs.run_logs.logs("a")),
    "lease": ("put", "workers/v1", lambda jobs: jobs.attempt("a").__enter__()),
    "index": ("get", "index/v1", lambda jobs: jobs.store.list(RunFilter())),
}


@pytest.mark.parametrize(("method", "part", "ask"), list(ASKS.values()), ids=list(ASKS))
def test_fault_22_permission_denied(
    store: MemoryBlobs, clock: Clock, jobs: Jobs, method: str, part: str, ask: Callable[[Jobs], object]
) -> None:
    """On each kind of object it is what it is: not tried again, never "not found", never an empty page (GCS-06, GCS-08)."""
    jobs.submit("render", id="a", key="k")
    write_status(jobs, "a")
    index(jobs)
    wire = Wire(store)
    fresh = bucket_jobs(wire, clock)
    fresh.emitter.load("a") if part == "log/v1" and method != "list" else None
    wire.refuse(method, part, times=1000, error=PermissionDenied("403"))
    wire.calls.clear()

    with pytest.raises(PermissionDenied):
        ask(fresh)

    assert 1 == sum(call[0] == method and part in call[1] for call in wire.calls)


@pytest.mark.parametrize("job_id", ["", "..", "a/b", "a\\b", "../a", "a\n", "x" * 200, "\ud800", "a\x00"])
def test_fault_23_wild_ids(jobs: Jobs, wire: Wire, job_id: str) -> None:
    """They are refused before any I/O."""
    asks: list[Callable[[], object]] = [
        lambda: jobs.submit("render", id=job_id),
        lambda: jobs.get(job_id),
        lambda: jobs.history(job_id),
        lambda: jobs.cancel(job_id),
        lambda: jobs.attempt(job_id),
    ]

    for ask in asks:
        with pytest.raises(InvalidValue):
            ask()

    assert [] == wire.calls


def test_fault_27_forgotten_heads_change_nothing(wire: Wire, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one head, jobs in turn are appended to as ever: what was forgotten is looked for again."""
    monkeypatch.setattr("jobevents.backends.blobappend.HEADS", 1)
    monkeypatch.setattr("jobevents.emit.CACHED_JOBS", 1)
    jobs = bucket_jobs(wire, clock)
    for job_id in "abc":
        jobs.submit("render", id=job_id)

    for job_id in "abc":
        with jobs.attempt(job_id) as attempt:
            attempt.annotate(title=job_id)

    assert [["JobQueued", "JobStarted", "JobAnnotated", "JobSucceeded"]] * 3 == [kinds(jobs, one) for one in "abc"]


def test_fault_30_foreign_success_over_our_running(jobs: Jobs, other: Jobs, store: MemoryBlobs) -> None:
    """What another service wrote over the status is adopted before a start is granted: the job is not run again."""
    jobs.submit("render", id="a")
    jobs.attempt("a", deadline_s=0).__enter__()
    write_status(jobs, "a")
    record = msgspec.json.decode(store.get("log-1/jobs/a/status.json").data)  # type: ignore[union-attr]
    record.pop("version")
    store.put("log-1/jobs/a/status.json", msgspec.json.encode({**record, "state": "succeeded"}))

    with pytest.raises(AlreadySucceeded), other.attempt("a"):
        raise AssertionError("run again")

    assert ["JobQueued", "JobStarted", "JobSucceeded"] == kinds(other, "a")
    assert "foreign" == other.history("a")[-1].actor


def test_fault_30_foreign_status_without_a_log(other: Jobs, store: MemoryBlobs) -> None:
    """A job that another service finished before this log began is imported, and not run again."""
    status = {"job_id": "a", "command": "render", "state": "succeeded", "updated_at": "2026-01-01T00:00:00Z"}
    store.put("log-1/jobs/a/status.json", msgspec.json.encode(status))

    with pytest.raises(AlreadySucceeded), other.attempt("a"):
        raise AssertionError("run again")

    assert ["JobImported"] == kinds(other, "a")


def test_fault_31_rerun_with_a_stale_status(jobs: Jobs, other: Jobs, store: MemoryBlobs) -> None:
    """A status that says succeeded stops nothing when the log goes on: the rerun is granted."""
    jobs.submit("render", id="a")
    with jobs.attempt("a"):
        pass
    write_status(jobs, "a")
    jobs.rerun("a", actor="ann")

    with other.attempt("a") as attempt:
        assert 5 == attempt.start

    assert "succeeded" == other.get("a").state


def test_guard_refuses_by_the_status_and_one_probe(jobs: Jobs, store: MemoryBlobs, clock: Clock) -> None:
    """A fresh process refuses a finished job by reads of its status and its last event's place alone: it lists nothing."""
    jobs.submit("render", id="a")
    with jobs.attempt("a"):
        pass
    write_status(jobs, "a")
    wire = Wire(store)
    fresh = bucket_jobs(wire, clock)

    with pytest.raises(AlreadySucceeded), fresh.attempt("a"):
        raise AssertionError("run again")

    read = [name.removeprefix("log-1/") for method, name in wire.calls if method == "get" and "workers" not in name]
    assert ["jobs/a/status.json", NAMES.event(Slot("a", 3))[6:], NAMES.event(Slot("a", 4))[6:]] == read
    assert "list" not in [method for method, _ in wire.calls]


def test_a_status_of_other_code_is_not_gone_on_from(jobs: Jobs, other: Jobs, store: MemoryBlobs) -> None:
    """What another version of the fold made is left alone: the history is folded anew."""
    jobs.submit("render", id="a")
    write_status(jobs, "a")
    blob = store.get("log-1/jobs/a/status.json")
    assert blob is not None
    forged = blob.metadata["job"].replace("render", "forged")
    store.put("log-1/jobs/a/status.json", blob.data, metadata={**blob.metadata, "code": "99", "job": forged})

    assert "render" == other.job("a").name


def test_a_status_that_the_log_does_not_bear_out_is_not_gone_on_from(
    jobs: Jobs, other: Jobs, store: MemoryBlobs
) -> None:
    """A fold whose chain is not that of the event in its place is dropped: the log is the truth."""
    jobs.submit("render", id="a")
    write_status(jobs, "a")
    blob = store.get("log-1/jobs/a/status.json")
    assert blob is not None
    forged = blob.metadata["job"].replace(jobs.log.head("a").chain, "0" * 32).replace("render", "forged")
    store.put("log-1/jobs/a/status.json", blob.data, metadata={**blob.metadata, "job": forged})

    assert "render" == other.job("a").name


# floors


def erase(jobs: Jobs, store: MemoryBlobs, job_id: str) -> None:
    """Erase a job as the protocol has it: the tombstone, the floor under it, and nothing below."""
    jobs.delete(job_id)
    last = jobs.log.head(job_id).version
    jobs.log.recorder.floors.raise_to(job_id, last)  # type: ignore[attr-defined]  # a BlobRecorder
    for version in range(1, last):
        store.delete(NAMES.event(Slot(job_id, version)))


def test_an_erased_job_does_not_begin_again(jobs: Jobs, other: Jobs, store: MemoryBlobs) -> None:
    """Its id is refused for good, and nothing is left of the try (fault 32, of its log)."""
    jobs.submit("render", id="a")
    erase(jobs, store, "a")

    with pytest.raises(Gone):
        other.submit("render", id="a")

    with pytest.raises(NotFound):
        store.get(NAMES.event(Slot("a", 1)))


def test_a_floor_that_rises_during_a_create_takes_it_back(jobs: Jobs, wire: Wire, store: MemoryBlobs) -> None:
    """Who reads no floor, writes, and reads one, removes what it wrote."""
    floors = bucket_jobs(store, Clock()).log.recorder.floors  # type: ignore[attr-defined]
    wire.before("put", "log/v1", lambda: floors.raise_to("a", 5))

    with pytest.raises(Gone):
        jobs.submit("render", id="a")

    with pytest.raises(NotFound):
        store.get(NAMES.event(Slot("a", 1)))


def test_a_writer_with_an_old_head_takes_back_what_was_erased(
    jobs: Jobs, other: Jobs, store: MemoryBlobs, clock: Clock
) -> None:
    """An append from a head not seen for a minute looks for a floor, and leaves nothing below it (fault 26)."""
    jobs.submit("render", id="a")
    other.cancel("a")
    other.rerun("a")
    erase(other, store, "a")
    clock.move(61)

    with pytest.raises(Gone):
        jobs.cancel("a")

    assert [4] == [record.version for record in other.log.read_raw("a")]


def test_a_history_read_while_it_is_erased_is_not_gone_on_from(wire: Wire, clock: Clock, other: Jobs) -> None:
    """Its first event was there a moment ago, what followed is not there any more: no end to write after (fault 26)."""
    store = wire.blobs
    other.submit("render", id="a")
    other.cancel("a")
    other.rerun("a")
    wire.before("get", NAMES.event(Slot("a", 2)), lambda: erase(other, store, "a"))

    with pytest.raises(Gone):
        bucket_jobs(wire, clock).cancel("a")

    assert [4] == [record.version for record in other.log.scan()]


def test_an_append_whose_floor_could_not_be_read_is_not_kept_without_it(
    wire: Wire, store: MemoryBlobs, clock: Clock, other: Jobs
) -> None:
    """Its outcome is unknown; when it is tried again the event is found in its slot, and goes all the same (fault 26)."""
    other.submit("render", id="a")
    jobs = bucket_jobs(wire, clock)
    jobs.get("a")
    other.cancel("a")
    wire.before("put", NAMES.event(Slot("a", 2)), lambda: erase(other, store, "a"))
    wire.refuse("get", "ctl/v1/floor")
    with pytest.raises(AppendUnknown):
        jobs.cancel("a")

    with pytest.raises((Gone, NotFound)):
        jobs.cancel("a")

    assert [3] == [record.version for record in other.log.scan()]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_erasure_that_is_cut_short_is_read_as_erased_and_can_be_finished(
    jobs: Jobs, wire: Wire, store: MemoryBlobs, clock: Clock, version: int
) -> None:
    """Its eraser dies between two deletes: the job is its tombstone, and asking again takes out the rest."""
    jobs.submit("render", id="a")
    jobs.cancel("a")
    jobs.rerun("a")
    assert not erasing(jobs).erase("a", By()).is_done
    clock.move(RIPE_S)
    wire.refuse("delete", NAMES.event(Slot("a", version)), times=1000)

    with pytest.raises(Unavailable):
        erasing(jobs).erase("a", By())

    fresh = bucket_jobs(store, clock)
    assert DELETED == fresh.emitter.load("a").state
    assert erasing(fresh).erase("a", By()).is_done
    assert [4] == [record.version for record in fresh.log.scan()]


def test_an_erasure_that_ripens_while_it_is_asked_for_is_not_said_to_be_done(
    jobs: Jobs, wire: Wire, clock: Clock
) -> None:
    """Its hour is over a moment after the events were left for it: who asked is told to ask again."""
    jobs.submit("render", id="a")
    erasing(jobs).erase("a", By())
    clock.move(RIPE_S - 1)
    wire.before("list", "parked", lambda: None)  # what is there is counted first
    wire.before("list", "parked", lambda: clock.move(2))

    receipt = erasing(jobs).erase("a", By())

    assert (False, 2) == (receipt.is_done, len(list(jobs.log.scan())))
    assert erasing(jobs).erase("a", By()).is_done
    assert [2] == [record.version for record in jobs.log.scan()]


def test_a_slot_that_was_deleted_is_no_conflict_with_nobody(jobs: Jobs, wire: Wire, store: MemoryBlobs) -> None:
    """A create refused for an object that is gone when it is read looks for a floor, and begins again."""
    name = NAMES.event(Slot("a", 1))
    store.put(name, b"{}")
    wire.before("get", name, lambda: store.delete(name))

    jobs.submit("render", id="a")

    assert ["JobQueued"] == kinds(jobs, "a")


# keys


def test_a_key_whose_holder_never_began_is_taken_over(
    store: MemoryBlobs, clock: Clock, jobs: Jobs, other: Jobs
) -> None:
    """A process that died between key and event holds it for a minute; then the key is another's, and the dead one's late
    event does not stay."""
    dying = Wire(store)
    held = dying.hold("log/v1")
    dying.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown):
        bucket_jobs(dying, clock).submit("render", id="a", key="k")
    with pytest.raises(KeyTaken):
        jobs.submit("render", {"song": 8}, id="b", key="k")
    clock.move(61)

    jobs.submit("render", {"song": 8}, id="b", key="k")
    clock.move(1)
    held.land()

    assert 1 == other.log.recorder.drop_ghosts("a")  # type: ignore[attr-defined]  # a BlobRecorder: what a sweeper does
    assert [] == other.log.read("a")
    active = other.store.find_active("render", "k")
    assert active is not None
    assert "b" == active.id
    with pytest.raises(Gone):
        other.submit("render", id="a", key="k2")


def test_only_what_landed_after_a_floor_is_a_ghost(jobs: Jobs, clock: Clock) -> None:
    """An acknowledged event that was there before stays: it is the erasure's, or its job began as the floor was raised."""
    recorder = jobs.log.recorder
    assert isinstance(recorder, BlobRecorder)
    for job_id, floor in (("begun", 1), ("erased", 2)):
        jobs.submit("render", id=job_id)
        jobs.cancel(job_id)
        clock.move(1)
        recorder.floors.raise_to(job_id, floor)
        clock.move(1)

    assert [0, 0] == [recorder.drop_ghosts(job_id) for job_id in ("begun", "erased")]
    assert [2, 2] == [len(jobs.log.read(job_id)) for job_id in ("begun", "erased")]


def test_a_holder_that_begins_while_it_is_looked_at_keeps_its_key(jobs: Jobs, wire: Wire, other: Jobs) -> None:
    """It was not there at one look and is at the next: that is no reason to take its key."""
    name = NAMES.key("render", "k")
    wire.refuse("put", "keys", error=Conflict("taken"))
    wire.before("get", "keys", lambda: other.submit("render", id="a", key="k"))

    with pytest.raises(KeyTaken) as taken:
        jobs.submit("render", {"song": 8}, id="b", key="k")

    assert ("a", True) == (taken.value.job_id, any(call == ("get", name) for call in wire.calls))


def test_a_submission_waits_for_the_job_that_has_just_taken_its_key(
    jobs: Jobs, store: MemoryBlobs, clock: Clock, time: FakeTime
) -> None:
    """Between a key and its job's first event there is a moment: who comes then is told the job all the same."""
    slow = Wire(store)
    held = slow.hold("log/v1")
    slow.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown):
        bucket_jobs(slow, clock).submit("render", {"song": 7}, id="a", key="k")
    time.while_asleep = held.land

    assert "a" == jobs.submit("render", {"song": 7}, id="b", key="k")
    assert 1 == len(time.sleeps)


def test_of_two_submissions_with_a_key_one_is_made(clock: Clock) -> None:
    """Whatever step of the one the other falls into."""

    def submit(jobs: Jobs, job_id: str) -> None:
        try:
            jobs.submit("render", {"for": job_id}, id=job_id, key="k")
        except KeyTaken:
            refused.append(job_id)

    for at in range(1, 100):
        store = MemoryBlobs(clock=clock)
        other = bucket_jobs(store, clock)
        calls: list[object] = []
        refused: list[str] = []

        def meanwhile(call: object, at: int = at, other: Jobs = other, calls: list[object] = calls) -> None:
            calls.append(call)
            if len(calls) == at:
                submit(other, "b")

        submit(bucket_jobs(FailingBlobs(store, before=meanwhile), clock), "a")

        if len(calls) < at:
            break
        assert 1 == len(refused)
        assert [1 - (job_id in refused) for job_id in "ab"] == [other.log.head(job_id).version for job_id in "ab"]
    assert 4 < at < 99


def test_a_job_that_is_run_again_does_not_take_its_key_again(jobs: Jobs) -> None:
    """Its key went with its end: it may be another's by now, and stays so."""
    jobs.submit("render", id="a", key="k")
    jobs.cancel("a")
    jobs.submit("render", id="b", key="k")

    jobs.rerun("a")

    active = jobs.store.find_active("render", "k")
    assert active is not None
    assert "b" == active.id


def test_a_submission_that_lost_its_slot_gives_its_key_back(jobs: Jobs, wire: Wire, other: Jobs) -> None:
    """The key of a job that did not begin is free at once."""
    wire.refuse("put", "log/v1", error=PermissionDenied("403"))
    with pytest.raises(PermissionDenied):
        jobs.submit("render", id="a", key="k")

    assert "b" == other.submit("render", id="b", key="k")


def test_a_batch_that_meets_a_taken_key_leaves_the_others_free(jobs: Jobs, other: Jobs) -> None:
    """All or none of the keys of one call are taken."""
    other.submit("render", id="holder", key="k2")

    with pytest.raises(KeyTaken):
        jobs.submit_many([Submission(name="render", id=f"a{n}", key=f"k{n}", params=n) for n in (1, 2)])

    assert "b" == other.submit("render", id="b", key="k1")


# several jobs in one call


def test_what_is_unknown_of_one_job_is_said_before_what_is_refused_of_another(jobs: Jobs, wire: Wire) -> None:
    """Who hears of a refusal alone would take the whole call for unwritten."""
    wire.refuse("put", "/b/", error=PermissionDenied("403"))
    wire.refuse("put", "/c/", times=1000)

    with pytest.raises(AppendUnknown) as unknown:
        jobs.submit_many([Submission(name="render", id=job_id) for job_id in "abc"])

    assert "c" == unknown.value.job_id


# the recorder by itself


def test_a_recorder_knows_its_own_write(wire: Wire, time: FakeTime) -> None:
    """Also without the log above it, which knows events by their ids: a lost reply is a success, a repeated call is not."""
    recorder = BlobRecorder(wire, backoff=Backoff(sleep=time.sleep, clock=time.clock))
    event = StoredEvent("a", 1, "topic", b"state")
    wire.lose_reply("put", "log/v1")

    recorder.insert_events([event])

    with pytest.raises(IntegrityError):
        recorder.insert_events([event])


def test_a_slot_that_an_erasure_emptied_is_not_filled_again(jobs: Jobs, wire: Wire, store: MemoryBlobs) -> None:
    """A create refused for an object that is gone when it is read, below a floor: the job was erased meanwhile."""
    jobs.submit("render", id="a")
    name = NAMES.event(Slot("a", 2))
    store.put(name, b"{}")
    floors = jobs.log.recorder.floors  # type: ignore[attr-defined]  # a BlobRecorder

    def erase_it() -> None:
        floors.raise_to("a", 5)
        store.delete(name)

    wire.before("get", name, erase_it)

    with pytest.raises(Gone):
        jobs.cancel("a")

    with pytest.raises(NotFound):
        store.get(name)


# what a process goes on from


def test_a_fresh_process_reads_on_from_the_status(jobs: Jobs, store: MemoryBlobs, clock: Clock) -> None:
    """A job with a status costs no list: its last event is held against the status, and what came after it is read."""
    jobs.submit("render", id="a")
    with jobs.attempt("a"):
        write_status(jobs, "a")
    wire = Wire(store)

    assert "succeeded" == bucket_jobs(wire, clock).get("a").state

    assert ["get"] * 4 == [method for method, _ in wire.calls]


def test_observers_hear_of_what_was_found_out_later(jobs: Jobs, wire: Wire) -> None:
    """An append that was unknown and is found is told like any other, before the next decision on its job."""
    heard: list[str] = []
    jobs.observe(lambda job, events: heard.extend(event.type for event in events))
    wire.lose_reply("put", "log/v1")
    wire.refuse("get", "log/v1", times=1000)
    wire.refuse("put", "log/v1", times=1000)
    with pytest.raises(AppendUnknown):
        jobs.submit("render", {"song": 7}, id="a")
    wire.calm()

    jobs.submit("render", {"song": 7}, id="a")

    assert ["JobQueued"] == heard


# log lines


def line(seq: int, message: str = "m") -> JobLog:
    return JobLog(run_id="a", seq=seq, attempt=1, at=START, level="info", message=message)


def test_lines_that_another_process_wrote_stay(jobs: Jobs, other: Jobs) -> None:
    """A process that sees a run's lines for the first time looks what is there: what overlaps is left as it is."""
    jobs.submit("render", id="a")
    jobs.run_logs.append_logs([line(seq) for seq in (1, 2, 3)])

    other.run_logs.append_logs([line(seq, "other") for seq in (2, 3, 4)])

    assert ["m", "m", "m", "other"] == [one.message for one in jobs.run_logs.logs("a")]


@pytest.mark.parametrize("fault", ["lose reply", "refuse"])
def test_lines_whose_reply_was_lost_are_there_once(jobs: Jobs, wire: Wire, fault: str) -> None:
    """A batch that is sent again with more lines behind it is completed, nothing of it twice."""
    jobs.submit("render", id="a")
    if fault == "lose reply":
        wire.lose_reply("put", "joblogs")
    else:
        wire.refuse("put", "joblogs")
    with pytest.raises(Unavailable):
        jobs.run_logs.append_logs([line(1), line(2)])

    jobs.run_logs.append_logs([line(1), line(2), line(3)])

    assert [1, 2, 3] == [one.seq for one in jobs.run_logs.logs("a")]


def test_lines_of_a_deleted_job_are_dropped(jobs: Jobs, other: Jobs, store: MemoryBlobs) -> None:
    """A worker that speaks on after the deletion leaves nothing."""
    jobs.submit("render", id="a")
    jobs.run_logs.append_logs([line(1)])
    jobs.delete("a")

    jobs.run_logs.append_logs([line(2)])
    other.run_logs.append_logs([line(3)])

    assert [] == [entry.name for entry in store.list("log-1/joblogs")]


# crashes


def life(jobs: Jobs) -> None:
    """A job's life, each step of which may have been taken already."""
    jobs.submit("render", {"song": 7}, id="a", key="k")
    with contextlib.suppress(AlreadySucceeded), jobs.attempt("a", deadline_s=0) as attempt:
        attempt.log("hello")
        attempt.result({"seconds": 181})


@pytest.mark.parametrize("fault", ["die", "die after", "refuse", "lose reply"])
def test_a_crash_between_any_two_steps(clock: Clock, fault: Fault) -> None:
    """Wherever a process dies or is refused, the next one that does the same brings it to the same end, and nothing twice."""
    for at in range(1, 200):
        store = MemoryBlobs(clock=clock)
        failing = FailingBlobs(store, at=at, fault=fault)
        first = bucket_jobs(failing, clock)
        with contextlib.suppress(Died, Unavailable, AppendUnknown):
            life(first)
        if not failing.met:
            break
        clock.move(61)
        second = bucket_jobs(store, clock)
        if second.log.read("a") and second.job("a").is_final():
            assert "succeeded" == second.job("a").state
        else:
            life(second)

        told = kinds(second, "a")
        assert is_sound(second, "a"), told
        assert (1, 1) == (told.count("JobQueued"), told.count("JobSucceeded")), (at, told)
        assert "c" == second.submit("render", {"song": 8}, id="c", key="k"), (at, told)
        assert 1 <= len(second.run_logs.logs("a")) or fault in ("refuse", "lose reply"), (at, told)
    else:
        pytest.fail("the life does not end")


def test_two_lives_at_once_are_one(clock: Clock) -> None:
    """A second process that does the same between any two steps of the first: one job, run to its end once."""
    for at in range(1, 200):
        store = MemoryBlobs(clock=clock)
        other = bucket_jobs(store, clock)
        met: list[str] = []

        def meanwhile(_: object, other: Jobs = other, at: int = at, met: list[str] = met) -> None:
            met.append("")
            if len(met) == at:
                with contextlib.suppress(AlreadyRunning):
                    life(other)

        with contextlib.suppress(AlreadyRunning, AlreadySucceeded):
            life(bucket_jobs(FailingBlobs(store, before=meanwhile), clock))
        if len(met) < at:
            break

        told = kinds(other, "a")
        assert is_sound(other, "a"), told
        assert (1, 1) == (told.count("JobQueued"), told.count("JobSucceeded")), (at, told)
    else:
        pytest.fail("the life does not end")


def test_conflict_names_job_and_place(jobs: Jobs, other: Jobs) -> None:
    """A slot that another event has is a Conflict that says which."""
    jobs.submit("render", id="a")
    first = other.history("a")[0]

    with pytest.raises(Conflict, match="job_id=a version=1"):
        jobs.log.append([msgspec.structs.replace(first, id="another", chain="")])
