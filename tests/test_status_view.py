"""The status view: guarded saves, coalescing, positions, foreign writes, and statuses that vanish."""

import itertools
import logging
import random
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blob, MemoryBlobs
from jobevents.emit import By, Decide
from jobevents.errors import Conflict, InvalidValue, NotFound, PermissionDenied, Unavailable
from jobevents.events import Event, JobAnnotated, JobProgressed, JobStarted, JobSucceeded
from jobevents.job import Job, fold
from jobevents.records import status_bytes, status_name
from jobevents.testing.faults import Call, FailingBlobs
from projections.inline import InlineStatus
from projections.status import StatusView
from projections.statuswriter import CODE_VERSION, StatusWriter
from projections.view import Unstorable
from tests.histories import AT, JOB, make, queued
from tests.projecting import World, stored

NAME = status_name(JOB)
BY = By(actor="w")


class SlowBlobs(MemoryBlobs):
    """Blobs that take one write of a name a second, and refuse what comes sooner, as a bucket does."""

    min_write_interval_s = 1.05

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.written: dict[str, list[float]] = {}

    put_many = None  # type: ignore[assignment]  # a bucket has none

    def put(self, name: str, data: bytes, **options: Any) -> str:
        now = self.world.time.now
        if now - self.written.get(name, [-2.0])[-1] < 1.0:
            raise Unavailable(f"429 name={name}")
        generation = super().put(name, data, **options)
        self.written.setdefault(name, []).append(now)
        return generation


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def slow() -> World:
    """A world whose blobs have a least interval; without the second write path of the memory store."""
    world = World()
    world.blobs = SlowBlobs(world)
    return world


def history(*rest: Event) -> list[Event]:
    return [queued(), make(JobStarted, version=2, attempt=1), *rest]


def progressed(version: int, percent: int) -> Event:
    return make(JobProgressed, version=version, start=2, percent=percent)


RUNNING = fold(history())
HALF = fold(history(progressed(3, 50)))
DONE = fold(history(progressed(3, 50), make(JobSucceeded, version=4, start=2)))


def look(world: World) -> Blob:
    blob = world.blobs.get(NAME)
    assert blob is not None
    return blob


def a_running_job(world: World) -> tuple[str, StatusView]:
    """A job that runs, its status stored by the view."""
    job_id = world.jobs.submit("render")
    world.jobs.emitter.change(job_id, lambda job: [partial(JobStarted, attempt=1)], BY)
    view = world.view()
    save(view, world.jobs.job(job_id), 2)
    progress(world, job_id)
    return job_id, view


def progress(world: World, job_id: str) -> None:
    world.jobs.emitter.change(job_id, lambda job: [partial(JobProgressed, start=2, percent=50)], BY)


def finish(world: World, job_id: str) -> None:
    world.jobs.emitter.change(job_id, lambda job: [partial(JobSucceeded, start=2)], BY)


def annotate(n: int) -> Decide:
    return lambda job: [partial(JobAnnotated, title=f"title {n}")]


def save(view: StatusView, job: Job, position: int) -> int:
    view.take([job], position)
    return view.flush(everything=True)


def test_a_status_is_the_fold(world: World) -> None:
    """What is stored is the job's status byte for byte, with the folded job and the code's version beside it."""
    save(world.view(), DONE, 4)

    blob = look(world)
    assert status_bytes(DONE) == blob.data
    assert DONE == msgspec.json.decode(blob.metadata["job"], type=Job)
    assert str(CODE_VERSION) == blob.metadata["code"]


def test_a_large_job_is_stored_without_its_fold(world: World) -> None:
    """A folded job that an object's metadata cannot hold is left out of it; the status is whole."""
    large = fold([queued(params={"text": "x" * 9000})])

    save(world.view(), large, 1)

    assert {"code", "chain"} == look(world).metadata.keys()
    assert status_bytes(large) == look(world).data


def test_gcs_04_no_cache_keeps_a_status() -> None:
    """Every write of a status, first, later and after a conflict, says that nobody may cache it (GCS-04)."""
    headers: list[tuple[str, str]] = []

    class Noting(MemoryBlobs):
        put_many = None  # type: ignore[assignment]

        def put(self, name: str, data: bytes, **options: Any) -> str:
            if name == NAME and "content_type" in options:
                headers.append((options["content_type"], options["cache_control"]))
            return super().put(name, data, **options)

    world = World(Noting())
    view = world.view()
    save(view, RUNNING, 2)
    save(world.view(), HALF, 3)
    save(view, DONE, 4)

    assert len(headers) >= 3
    assert {("application/json; charset=utf-8", "no-store")} == set(headers)


def test_prj_01_a_late_state_changes_nothing(world: World) -> None:
    """Whatever the order of a job's states, each doubled, they end in the same bytes (PRJ-01)."""
    states = [fold([queued()]), RUNNING, HALF, DONE] * 2
    shuffled = random.Random(1)
    ends = set()
    for _ in range(200):
        shuffled.shuffle(states)
        blobs = MemoryBlobs()
        writer = StatusWriter(blobs)
        for job in states:
            writer.save(writer.show(job))
        ends.add(stored(blobs, JOB))

    assert {status_bytes(DONE)} == ends


def test_gcs_03_a_paused_writer_does_not_win(world: World) -> None:
    """A writer that paused before its write finds the newer state there and leaves it (GCS-03)."""
    other = world.view()
    paused = FailingBlobs(world.blobs, before=lambda call: call.method == "put" and save(other, DONE, 4))
    late = StatusWriter(paused)

    written = late.save(late.show(HALF))

    assert not written
    assert status_bytes(DONE) == look(world).data


def test_a_new_job_costs_one_write(world: World) -> None:
    """The status of a job that is likely new is created without a read."""
    counting = FailingBlobs(world.blobs)

    save(world.view(counting), fold([queued()]), 1)

    assert [Call("put", NAME)] == counting.calls


def test_a_job_written_before_costs_one_write(world: World) -> None:
    """A status that this process wrote last is overwritten without a read."""
    counting = FailingBlobs(world.blobs)
    view = world.view(counting)
    save(view, RUNNING, 2)
    counting.calls.clear()

    save(view, DONE, 4)

    assert [Call("put", NAME)] == counting.calls


def test_older_code_leaves_what_newer_code_wrote(world: World) -> None:
    """Of two codes that show the same version, the newer one's bytes stay."""
    save(world.view(code=CODE_VERSION + 1), DONE, 4)
    before = look(world)

    save(world.view(), DONE, 4)

    assert before == look(world)


def test_newer_code_writes_the_same_version_again(world: World) -> None:
    """Newer code replaces what older code wrote for the same version."""
    save(world.view(), DONE, 4)

    save(world.view(code=CODE_VERSION + 1), DONE, 4)

    assert str(CODE_VERSION + 1) == look(world).metadata["code"]


def test_only_the_last_state_of_a_job_is_written(world: World) -> None:
    """Several states of a job that are taken before a flush are one write."""
    counting = FailingBlobs(world.blobs)
    view = world.view(counting)
    view.take([RUNNING], 2)
    view.take([HALF], 3)
    view.take([DONE], 4)

    view.flush()

    assert [Call("put", NAME)] == [call for call in counting.calls if call.method == "put"]
    assert status_bytes(DONE) == look(world).data


def test_a_table_stores_a_flush_in_one_transaction(tmp_path: Path) -> None:
    """Where blobs can put many at once, a flush is one call, and all jobs are there."""
    calls: list[int] = []

    class Noting(SqliteBlobs):
        def put_many(self, puts: Any, **headers: Any) -> list[str | None]:
            calls.append(len(puts))
            return super().put_many(puts, **headers)

    world = World(Noting(tmp_path / "blobs.db"))
    jobs = [fold([queued(f"{JOB}{n}")]) for n in range(50)]
    view = world.view()
    view.take(jobs, 50)
    view.flush()

    assert [50] == calls
    assert [status_bytes(job) for job in jobs] == [stored(world.blobs, job.job_id) for job in jobs]
    world.jobs.close()


def test_put_many_finds_what_others_wrote(tmp_path: Path) -> None:
    """Statuses of an earlier process are found by the refusal, looked at together, and overwritten."""
    world = World(SqliteBlobs(tmp_path / "blobs.db"))
    ids = [f"{JOB}{n}" for n in range(5)]
    first = world.view()
    first.take([fold([queued(one)]) for one in ids], 5)
    first.flush()

    started = [fold([queued(one), make(JobStarted, one, 2, attempt=1)]) for one in ids]
    second = world.view()
    second.position()
    second.take(started, 10)
    second.flush()

    assert [status_bytes(job) for job in started] == [stored(world.blobs, one) for one in ids]
    world.jobs.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_put_many_is_put_many_times(tmp_path: Path, kind: str) -> None:
    """Each of many is written as a put would, or not at all when another generation is stored."""
    blobs: Any = MemoryBlobs() if kind == "memory" else SqliteBlobs(tmp_path / "blobs.db")
    generation = blobs.put("a", b"1")

    done = blobs.put_many(
        [("a", b"2", generation, {"k": "v"}), ("b", b"2", "0", {}), ("c", b"2", "7", {})], content_type="text/plain"
    )

    found = {entry.name: entry.generation for entry in blobs.list("")}
    assert [found["a"], found["b"], None] == done
    assert (b"2", {"k": "v"}) == (blobs.get("a").data, blobs.get("a").metadata)
    assert "c" not in found
    blobs.close()


# coalescing


def test_progress_waits_for_its_interval(slow: World) -> None:
    """A second state of a job within the blob's interval is held until it is over."""
    view = slow.view()
    save(view, RUNNING, 2)

    view.take([HALF], 3)
    at_once = view.flush()
    wait_s = view.next_flush_s()
    slow.time.sleep(1.05)

    assert (2, pytest.approx(1.05)) == (at_once, wait_s)
    assert 3 == view.flush()
    assert status_bytes(HALF) == look(slow).data


def test_prj_08_the_last_progress_lands(slow: World) -> None:
    """A thousand states in a second, then silence: few writes, and the last one is there (PRJ-08)."""
    view = slow.view()
    for n in range(1000):
        view.take([fold(history(*(progressed(3 + k, k % 100) for k in range(n + 1))))] if n % 100 == 99 else [], 3 + n)
        view.flush()
        slow.time.sleep(0.001)
    last = fold(history(*(progressed(3 + k, k % 100) for k in range(1000))))
    view.take([last], 1003)
    view.flush(everything=True)

    assert status_bytes(last) == look(slow).data
    assert len(slow.blobs.written[NAME]) <= 3  # type: ignore[attr-defined]


def test_gcs_01_a_hot_object_is_written_at_its_pace(slow: World) -> None:
    """200 states in two seconds and the end: no write comes too soon, the end is stored within an interval (GCS-01)."""
    view = slow.view()
    events: list[Event] = []
    for n in range(200):
        events.append(progressed(3 + n, n % 100))
        view.take([fold(history(*events))], 3 + n)
        view.flush()
        slow.time.sleep(0.01)
    view.take([fold(history(*events, make(JobSucceeded, version=203, start=2)))], 203)
    ended = slow.time.now
    view.flush(everything=True)

    written = slow.blobs.written[NAME]  # type: ignore[attr-defined]
    assert min(b - a for a, b in itertools.pairwise(written)) >= 1.0
    assert b'"succeeded"' in look(slow).data
    assert written[-1] - ended <= 1.05


def test_a_final_state_goes_first(slow: World) -> None:
    """Of jobs that are due together, those that came to rest are written first."""
    order: list[str] = []
    view = slow.view(FailingBlobs(slow.blobs, before=lambda call: order.append(call.name)))
    running = [fold([queued(f"{JOB}{n}"), make(JobStarted, f"{JOB}{n}", 2, attempt=1)]) for n in range(40)]

    view.take([*running, DONE], 100)
    view.flush()

    assert NAME == order[0]
    assert 41 == len(order)


def test_saves_go_out_at_the_same_time(slow: World) -> None:
    """Where each write waits for its store, several are under way at once."""
    meeting = threading.Barrier(4)
    view = slow.view(FailingBlobs(slow.blobs, before=lambda call: meeting.wait(10)), threads=4)
    jobs = [fold([queued(f"{JOB}{n}")]) for n in range(8)]

    view.take(jobs, 8)
    position = view.flush()

    assert 8 == position  # one after the other, the barrier would have broken
    view.close()


def test_other_jobs_do_not_wait_for_a_hot_one(slow: World) -> None:
    """A job that waits for its interval holds up no other; only the position waits."""
    view = slow.view()
    save(view, RUNNING, 2)
    other = fold([queued(f"{JOB}x")])

    view.take([HALF, other], 4)
    position = view.flush()

    assert (2, status_bytes(other)) == (position, stored(slow.blobs, f"{JOB}x"))


# positions


def test_a_position_is_recorded_after_the_save(world: World) -> None:
    """While a write fails no position is recorded; what was taken waits and is written by the next flush."""
    view = world.view(FailingBlobs(world.blobs, at=1))
    view.take([RUNNING], 2)

    with pytest.raises(Unavailable):
        view.flush()

    assert 0 == world.positions().stored("status")
    assert 2 == view.flush() == world.positions().stored("status")
    assert status_bytes(RUNNING) == look(world).data


def test_a_failed_job_does_not_undo_the_others(world: World) -> None:
    """Of several jobs in a flush those that were stored are not written again after another failed."""
    failing = FailingBlobs(world.blobs, at=2)
    view = world.view(failing)
    jobs = [fold([queued(f"{JOB}{n}")]) for n in range(4)]
    view.take(jobs, 4)
    with pytest.raises(Unavailable):
        view.flush()
    failing.calls.clear()

    view.flush()

    assert 1 == len(failing.calls)


def test_another_projector_ahead_is_caught_up_with(world: World) -> None:
    """Where a higher position is recorded the view goes on from there."""
    world.positions().advance("status", 10)
    view = world.view()
    view.take([RUNNING], 2)

    assert 10 == view.flush()


def test_a_job_that_the_store_refuses_is_given_up(world: World) -> None:
    """After three tries a job is given up, aloud, before any position beyond it is recorded; the others are stored."""

    def refuse(call: Call) -> None:
        if call.name == NAME:
            raise InvalidValue("name cannot be a file here")

    view = world.view(FailingBlobs(world.blobs, before=refuse))
    other = fold([queued(f"{JOB}x")])
    view.take([RUNNING, other], 2)

    with pytest.raises(Unstorable) as given_up:
        view.flush(everything=True)

    assert (JOB, 2) == (given_up.value.job_id, given_up.value.version)
    assert 0 == world.positions().stored("status")
    assert 2 == view.flush()
    assert status_bytes(other) == stored(world.blobs, f"{JOB}x")


# foreign writes


def test_a_foreign_success_over_our_running_is_adopted(world: World) -> None:
    """A record without a version over a running job's status becomes the event that fits, by `foreign` (X9)."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, b'{"job_id":"%s","command":"render","state":"succeeded"}' % job_id.encode())

    save(view, world.jobs.job(job_id), 3)

    last = world.jobs.history(job_id)[-1]
    assert ("succeeded", "foreign") == (world.jobs.get(job_id).state, last.actor)
    assert world.expected(job_id) == world.stored(job_id)
    assert 1 == world.jobs.counts.snapshot()["status_adopted"]


def test_foreign_fields_are_adopted(world: World) -> None:
    """Service fields that a foreign record adds are kept in the log and stay in the status; progress is not lost."""
    job_id, view = a_running_job(world)
    shown = msgspec.json.decode(world.stored(job_id) or b"")
    del shown["version"]
    world.write_foreign(job_id, msgspec.json.encode({**shown, "output_dir": "gs://x", "pages": 3}))

    save(view, world.jobs.job(job_id), 3)

    status = msgspec.json.decode(world.stored(job_id) or b"")
    assert ("running", "gs://x", 3) == (status["state"], status["output_dir"], status["pages"])
    assert world.expected(job_id) == world.stored(job_id)


def test_a_foreign_write_over_a_finished_job_is_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What the transitions do not allow becomes one TransitionRefused, and the fold is written over it, aloud."""
    job_id, view = a_running_job(world)
    finish(world, job_id)
    save(view, world.jobs.job(job_id), 4)
    for n in range(2):
        world.write_foreign(job_id, b'{"job_id":"%s","state":"running","title":"%d"}' % (job_id.encode(), n))
        world.jobs.emitter.change(job_id, annotate(n), BY)
        save(view, world.jobs.job(job_id), 10 + n)

    refused = [event for event in world.jobs.history(job_id) if event.type == "TransitionRefused"]
    assert [(0, "JobRecorded", "succeeded")] == [(one.start, one.tried, one.state) for one in refused]  # type: ignore[attr-defined]
    assert "running" in refused[0].detail  # type: ignore[attr-defined]
    assert world.expected(job_id) == world.stored(job_id)
    assert 2 == world.jobs.counts.snapshot()["status_refused"]
    assert "written by another service" in caplog.text


def test_a_foreign_record_that_is_too_large_is_refused(world: World) -> None:
    """What no event may hold is told by one, and its place is taken by the status."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, b'{"job_id":"%s","state":"running","lyrics":"%s"}' % (job_id.encode(), b"x" * 70_000))

    save(view, world.jobs.job(job_id), 3)

    assert "record is too large" in getattr(world.jobs.history(job_id)[-1], "detail", "")
    assert world.expected(job_id) == world.stored(job_id)


def test_a_long_error_of_a_foreign_record_loses_its_middle(world: World) -> None:
    """The failure is kept whatever its length, and is not found again in what stands in its place."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, b'{"job_id":"%s","state":"failed","error":"%s"}' % (job_id.encode(), b"x" * 70_000))

    for position in (3, 4):
        save(view, world.jobs.job(job_id), position)

    assert ("failed", 1) == (world.jobs.get(job_id).state, world.types(job_id).count("JobRecorded"))
    assert "bytes cut" in world.jobs.get(job_id).error
    assert world.expected(job_id) == world.stored(job_id)


def test_equal_content_is_no_foreign_write(world: World) -> None:
    """A record that says what the log says is replaced without an event or a word."""
    job_id, _ = a_running_job(world)
    shown = msgspec.json.decode(world.stored(job_id) or b"")
    del shown["version"]
    world.write_foreign(job_id, msgspec.json.encode(shown))
    before = world.types(job_id)

    save(world.view(), world.jobs.job(job_id), 5)

    assert before == world.types(job_id)
    assert {} == world.jobs.counts.snapshot()
    assert world.expected(job_id) == world.stored(job_id)


def test_an_imported_record_is_no_foreign_write(world: World) -> None:
    """The record that a job was imported from is replaced without an event or a word."""
    record = b'{"job_id":"%s","command":"x","state":"failed","error":"e","updated_at":"2026-07-01T00:00:00Z","n":1}'
    world.write_foreign(JOB, record % JOB.encode())
    world.jobs.import_records(world.blobs, status_name, [JOB])

    save(world.view(), world.jobs.job(JOB), 1)

    assert ["JobImported"] == world.types(JOB)
    assert {} == world.jobs.counts.snapshot()
    assert world.expected(JOB) == world.stored(JOB)


def test_a_record_older_than_the_job_is_no_fact_after_it(world: World) -> None:
    """A record that was there before the job's first event does not take the job back; it is replaced aloud."""
    early = World(MemoryBlobs(clock=lambda: AT - timedelta(hours=1)))
    early.write_foreign(JOB, b'{"job_id":"%s","state":"queued"}' % JOB.encode())
    with early.jobs.attempt(JOB):
        pass

    save(early.view(), early.jobs.job(JOB), 2)

    assert ["JobStarted", "JobSucceeded"] == early.types(JOB)
    assert early.expected(JOB) == early.stored(JOB)
    assert 1 == early.jobs.counts.snapshot()["status_refused"]


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"state":1}', b"\xff"])
def test_an_unreadable_record_is_replaced_aloud(world: World, data: bytes) -> None:
    """What is no record is refused with its bytes on the event, and the fold is written over it."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, data)

    save(view, world.jobs.job(job_id), 3)

    assert "TransitionRefused" == world.types(job_id)[-1]
    assert world.expected(job_id) == world.stored(job_id)


def test_a_foreign_write_over_a_deleted_job_goes(world: World) -> None:
    """A record in the place of a deleted job is removed: a deleted job never comes back."""
    job_id, view = a_running_job(world)
    world.jobs.delete(job_id)
    world.write_foreign(job_id, b'{"state":"running"}')

    save(view, world.jobs.emitter.load(job_id), 3)

    assert world.stored(job_id) is None
    assert "JobDeleted" == world.types(job_id)[-1]


def test_a_status_that_vanished_is_reported_and_written_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A status removed under a living job comes back, with a warning and a count."""
    job_id, view = a_running_job(world)
    world.blobs.delete(status_name(job_id))

    progress(world, job_id)
    save(view, world.jobs.job(job_id), 3)

    assert world.expected(job_id) == world.stored(job_id)
    assert 1 == world.jobs.counts.snapshot()["status_vanished"]
    assert "removed by another" in caplog.text


def test_a_status_that_vanished_can_be_a_deletion(world: World) -> None:
    """With `adopt_deletes` a removed status is a deleted job."""
    job_id, _ = a_running_job(world)
    view = world.view(adopt_deletes=True)
    view.take([world.jobs.job(job_id)], 2)
    view.flush()
    world.blobs.delete(status_name(job_id))

    progress(world, job_id)
    save(view, world.jobs.job(job_id), 3)

    assert ("JobDeleted", "foreign") == (world.types(job_id)[-1], world.jobs.history(job_id)[-1].actor)
    assert world.stored(job_id) is None


def test_connect_takes_adopt_deletes() -> None:
    """`connect(adopt_deletes=True)` reaches the statuses written inline."""
    blobs = MemoryBlobs()
    world = World(blobs, inline=True, adopt_deletes=True)
    job_id = world.jobs.submit("render")
    blobs.delete(status_name(job_id))

    world.jobs.emitter.change(job_id, annotate(1), BY)

    assert "JobDeleted" == world.types(job_id)[-1]


def test_sto_01_a_late_write_is_no_ghost(world: World) -> None:
    """A writer that fell behind and creates the status of a job deleted meanwhile takes it away again (STO-01)."""
    job_id = world.jobs.submit("render")
    late = world.view()
    late.take([world.jobs.job(job_id)], 1)
    world.jobs.delete(job_id)
    ahead = world.view()
    save(ahead, world.jobs.emitter.load(job_id), 2)

    late.flush()

    assert world.stored(job_id) is None


def test_a_paused_writer_is_no_ghost(world: World) -> None:
    """A writer that paused for long between taking and storing asks the log whether the job is there still."""
    job_id = world.jobs.submit("render")
    late = world.view()
    late.take([world.jobs.job(job_id)], 1)
    world.jobs.delete(job_id)
    world.time.sleep(60)

    late.flush()

    assert world.stored(job_id) is None


def test_gcs_06_a_refused_read_is_not_an_absent_status(world: World) -> None:
    """Where reading is forbidden nothing is created, adopted or reported as vanished; the error is raised (GCS-06)."""
    job_id, _ = a_running_job(world)

    def forbid(call: Call) -> None:
        if call.method == "get":
            raise PermissionDenied("403")
        raise Conflict("412")

    forbidden = world.view(FailingBlobs(world.blobs, before=forbid))
    forbidden.take([world.jobs.job(job_id)], 3)

    with pytest.raises(PermissionDenied):
        forbidden.flush()

    assert {} == world.jobs.counts.snapshot()


def test_prj_10_an_older_layout_is_not_read_as_nothing(world: World) -> None:
    """A status without `version`, or with a required key missing, is a record to be looked at, never an empty one (PRJ-10)."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, b'{"command":"render","attempts":1}')

    save(view, world.jobs.job(job_id), 3)

    status = msgspec.json.decode(world.stored(job_id) or b"")
    assert (job_id, "running") == (status["job_id"], status["state"])


def test_prj_09_a_state_of_open_text_is_shown_as_it_is(world: World) -> None:
    """A foreign state that this code does not know is adopted word for word, with its fields (PRJ-09)."""
    job_id, view = a_running_job(world)
    world.write_foreign(job_id, b'{"job_id":"%s","state":"paused","why":"lunch"}' % job_id.encode())

    save(view, world.jobs.job(job_id), 3)

    status = msgspec.json.decode(world.stored(job_id) or b"")
    assert ("paused", "lunch") == (status["state"], status["why"])


# inline


def test_inline_adopts_as_the_projector_does(world: World) -> None:
    """A service without a projector notices a foreign write at its next event."""
    blobs = MemoryBlobs(clock=world.now)
    inline = World(blobs, inline=True)
    job_id = inline.jobs.submit("render")
    inline.write_foreign(job_id, b'{"job_id":"%s","command":"render","state":"running"}' % job_id.encode())

    inline.jobs.emitter.change(job_id, annotate(1), BY)

    assert "running" == inline.jobs.get(job_id).state
    assert inline.expected(job_id) == inline.stored(job_id)


def test_inline_logs_what_it_cannot_write(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A status that cannot be stored is a warning of the view, never an error of the work."""
    inline = InlineStatus(StatusWriter(FailingBlobs(world.blobs, at=1)), 0.0)

    with caplog.at_level(logging.WARNING):
        inline(RUNNING, [])

    assert "status not written" in caplog.text
    with pytest.raises(NotFound):
        world.blobs.get(NAME)
