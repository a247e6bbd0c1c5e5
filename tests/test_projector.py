"""The projector: one loop from the log to the views, right after any crash, error or rival."""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents import doctor, wiring
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import Corrupt, Misconfigured, PermissionDenied, Unavailable
from jobevents.job import Job
from jobevents.lease import RoleLease
from jobevents.log import EventLog
from jobevents.testing.faults import Call, Died, FailingBlobs, Fault
from projections.health import Health, read_health
from projections.index import Index
from projections.indexview import IndexView
from tests.projecting import World, stored


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[World]:
    world = World(SqliteBlobs(tmp_path / "blobs.db"), url=f"sqlite:///{tmp_path}/jobs.db")
    yield world
    world.jobs.close()


def fill(world: World, count: int = 6) -> list[str]:
    """Jobs in every stage of a life: queued, succeeded, canceled, deleted, in turn."""
    ids = [world.jobs.submit("render", {"n": n}) for n in range(count)]
    for n, job_id in enumerate(ids):
        match n % 4:
            case 1:
                world.work(job_id)
            case 2:
                world.jobs.cancel(job_id)
            case 3:
                world.work(job_id)
                world.jobs.delete(job_id)
    return ids


def assert_projected(world: World, ids: Sequence[str]) -> None:
    assert [world.expected(job_id) for job_id in ids] == [world.stored(job_id) for job_id in ids]


class Noting:
    """A view that keeps what it was given."""

    def __init__(self, name: str = "noting", position: int = 0) -> None:
        self.name = name
        self.at = position
        self.given: list[tuple[list[tuple[str, int]], int]] = []

    def position(self) -> int:
        return self.at

    def take(self, jobs: Sequence[Job], position: int) -> None:
        self.given.append(([(job.job_id, job.version) for job in jobs], position))
        self.at = position

    def flush(self, *, everything: bool = False) -> int:
        return self.at

    def next_flush_s(self) -> float | None:
        return None


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 1000])
def test_every_status_is_the_fold_of_its_history(world: World, batch: int) -> None:
    """Whatever the size of a batch, each status ends as the fold of all its events, and a deleted one is gone."""
    ids = fill(world, 12)

    world.projector(batch=batch).run_once()

    assert_projected(world, ids)
    assert int(world.jobs.log.last_cursor()) == world.positions().stored("status")


def test_an_empty_log_is_projected(world: World) -> None:
    """There is nothing to do, and nothing is written but how it is."""
    world.projector().run_once()

    assert ["ctl/v1/projector/status.json"] == [entry.name for entry in world.blobs.list("")]


def test_it_goes_on_where_it_ended(world: World) -> None:
    """A new projector reads after the recorded position, and folds on what it has not seen from the log."""
    ids = fill(world)
    world.projector().run_once()
    world.work(ids[0])
    view = Noting(position=world.positions().stored("status"))

    world.projector(view).run_once()

    assert [([(ids[0], 4)], int(world.jobs.log.last_cursor()))] == view.given


def test_a_job_is_given_once_a_batch(world: World) -> None:
    """Of several events of a job in a batch the view gets one job, as it is after the last of them."""
    ids = [world.jobs.submit("render") for _ in range(2)]
    world.work(ids[0])
    view = Noting()

    world.projector(view).run_once()

    assert [([(ids[0], 4), (ids[1], 1)], 5)] == view.given


def test_a_job_that_is_new_costs_no_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose first event is in the batch, or that was folded before, is not read from the log."""
    reads: list[str] = []
    read, read_raw = EventLog.read, EventLog.read_raw
    monkeypatch.setattr(
        EventLog, "read", lambda log, job_id, **options: (reads.append(job_id), read(log, job_id, **options))[1]
    )
    monkeypatch.setattr(EventLog, "read_raw", lambda log, job_id: (reads.append(job_id), read_raw(log, job_id))[1])
    job_id = world.jobs.submit("render")
    projector = world.projector(Noting())
    projector.run_once()
    world.work(job_id)
    reads.clear()

    projector.run_once()

    assert [] == reads


def test_each_view_goes_at_its_own_pace(world: World) -> None:
    """A view that is ahead is given only what is new to it; one behind is caught up in the same loop."""
    ids = fill(world, 4)
    last = int(world.jobs.log.last_cursor())
    ahead, behind = Noting("ahead", last - 1), Noting("behind")

    world.projector(ahead, behind, batch=3).run_once()

    assert [[ids[3]]] == [[job_id for job_id, _ in jobs] for jobs, _ in ahead.given]
    assert last == behind.at
    assert len(behind.given) > 1


def test_a_view_far_behind_holds_up_no_other(world: World) -> None:
    """While a new view is taken through a long history, what is new reaches the others in every cycle."""
    for _ in range(20):
        world.jobs.submit("render")
    ahead, behind = Noting("ahead", 20), Noting("behind")
    projector = world.projector(ahead, behind, batch=3)
    world.jobs.submit("render")

    projector.step()

    assert (21, 3) == (ahead.at, behind.at)


def test_status_and_index_agree(world: World) -> None:
    """Both views, fed by one projector, show the same jobs."""
    ids = fill(world, 20)

    world.projector(world.view(), IndexView(world.blobs, monotonic=world.time.clock)).run_once()

    index = Index(world.blobs)
    living = {job_id for job_id in ids if world.stored(job_id) is not None}
    assert living == set(index.page(per_page=100)[0])
    assert 5 == index.counts()["succeeded"]


def test_prj_12_projecting_repeats_no_effect(world: World) -> None:
    """A replay into fresh views appends nothing, tells no observer, and gives the same bytes (PRJ-12)."""
    ids = fill(world, 20)
    world.projector().run_once()
    told: list[Any] = []
    world.jobs.observe(lambda job, events: told.append(job))
    before = world.jobs.log.last_cursor()
    fresh = World(MemoryBlobs())
    view = fresh.view()
    view._writer._adopt = None  # a fresh view of the same log knows no write side

    fresh.jobs = world.jobs
    fresh.projector(view).run_once()

    assert ([], before) == (told, world.jobs.log.last_cursor())
    assert [world.stored(one) for one in ids] == [fresh.stored(one) for one in ids]


# live


def test_it_follows_the_log(on_sqlite: World) -> None:
    """A running projector stores what is committed while it runs, and ends when it is told, the lease given up."""
    projector = wiring.projector(on_sqlite.jobs, ["status"])
    view: Any = projector._lanes[0].view
    flush, last, arrived = view.flush, [0], threading.Event()

    def watched(**options: Any) -> int:
        stored_position: int = flush(**options)
        if 0 < last[0] <= stored_position:
            arrived.set()
        return stored_position

    view.flush = watched
    stop = threading.Event()
    thread = threading.Thread(target=projector.run, args=(stop,))
    thread.start()

    ids = fill(on_sqlite)
    last[0] = int(on_sqlite.jobs.log.last_cursor())
    projector.wake()
    arrived.wait(20)
    stop.set()
    projector.wake()
    thread.join()

    assert_projected(on_sqlite, ids)
    assert '{"holder":"","ttl_s":15.0}' == read(on_sqlite.blobs, "ctl/v1/lease/projector-status.json").decode()


def test_a_commit_wakes_it(world: World) -> None:
    """A projector that waits at the log's end is woken by a commit: it need not wait for its patience."""
    waited = threading.Event()
    view = Noting()

    class Waking(Noting):
        def next_flush_s(self) -> float | None:
            waited.set()
            return None

    view = Waking()
    projector = wiring.projector(world.jobs, ["status"], leased=False)
    projector._lanes[0].view = view
    stop = threading.Event()
    thread = threading.Thread(target=projector.run, args=(stop,))
    thread.start()
    waited.wait(10)

    seen = threading.Event()
    take = view.take
    view.take = lambda jobs, position: (take(jobs, position), seen.set())[0]  # type: ignore[method-assign]
    world.jobs.submit("render")

    assert seen.wait(10)
    stop.set()
    projector.wake()
    thread.join()


def test_it_waits_and_does_not_spin(world: World) -> None:
    """At the log's end each cycle is followed by a wait, none longer than the patience."""
    fill(world)
    projector = world.projector()
    stop = threading.Event()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.time.sleep(seconds)
        if len(waits) == 50:
            stop.set()

    projector._wait = wait
    projector.run(stop)

    assert all(0 < seconds <= 1.0 for seconds in waits)


# crashes and rivals


@pytest.mark.parametrize("fault", ["die", "die after", "refuse", "lose reply"])
@pytest.mark.parametrize("kind", ["memory", "index too"])
def test_prj_05_stopped_anywhere_it_ends_the_same(fault: Fault, kind: str) -> None:
    """Stopped at any call of the store, by a crash or an error, a restart ends as if undisturbed (PRJ-05)."""
    at, met = 0, True
    while met:
        at += 1
        world = World()
        ids = fill(world, 8)
        failing = FailingBlobs(world.blobs, at=at, fault=fault)

        def views(blobs: Blobs) -> list[Any]:
            index = [IndexView(blobs, flush_interval_s=0, monotonic=world.time.clock)] if kind == "index too" else []  # noqa: B023
            return [world.view(blobs), *index]  # noqa: B023

        try:
            world.projector(*views(failing), blobs=failing, batch=4).run_once()
        except Died:
            world.projector(*views(world.blobs), batch=3).run_once()
        met = failing.met

        assert_projected(world, ids)
        if kind == "index too":
            living = {job_id for job_id in ids if world.stored(job_id) is not None}
            assert living == set(Index(world.blobs).page(per_page=100)[0])
    assert at > 10


def test_two_projectors_interleaved_at_every_call() -> None:
    """Another projector that does whole cycles before any one call of the store: every status is right, none goes back."""
    at = 1
    while interleave(at):
        at += 1

    assert at > 10


def interleave(at: int) -> bool:
    """Have another projector and a worker work before the call number `at` of a projector; False when there is no such call."""
    world = World()
    ids = fill(world, 6)
    versions: dict[str, int] = {}
    other = world.projector(batch=5)

    def meddle(call: Call) -> None:
        watch(world, versions)
        if len(failing.calls) == at:
            ids.append(world.jobs.submit("render"))
            world.work(ids[0])
            world.jobs.delete(ids[1])
            while other.step():
                pass
        watch(world, versions)

    failing = FailingBlobs(world.blobs, before=meddle)
    world.projector(blobs=failing, batch=4).run_once()
    other.run_once()

    watch(world, versions)
    assert_projected(world, ids)
    return len(failing.calls) >= at


def watch(world: World, versions: dict[str, int]) -> None:
    """Assert that no stored status is older than it was before."""
    for entry in world.blobs.list("jobs/"):
        version = msgspec.json.decode(read(world.blobs, entry.name))["version"]
        assert versions.get(entry.name, 0) <= version
        versions[entry.name] = version


def read(blobs: Blobs, name: str) -> bytes:
    blob = blobs.get(name)
    assert blob is not None
    return blob.data


def test_two_at_once_are_right_without_a_lease(world: World) -> None:
    """Two projectors that take turns step by step, both active, end with every status right."""
    one, two = world.projector(batch=3), world.projector(batch=2)
    ids: list[str] = []
    for _ in range(6):
        ids += fill(world, 4)
        one.step()
        two.step()
        two.step()

    one.run_once()
    two.run_once()

    assert_projected(world, ids)


def leases(world: World, holder: str) -> dict[str, RoleLease]:
    return {"status": RoleLease(world.blobs, "projector-status", holder, monotonic=world.time.clock)}


def test_a_second_projector_stands_by(world: World) -> None:
    """While another holds the lease nothing is read or written but the lease."""
    world.projector(leases=leases(world, "a")).step()
    fill(world)
    calls = FailingBlobs(world.blobs)
    standby = world.projector(
        blobs=calls, leases={"status": RoleLease(calls, "projector-status", "b", monotonic=world.time.clock)}
    )

    for _ in range(3):
        standby.step()
        world.time.sleep(0.1)

    assert [Call("get", "ctl/v1/lease/projector-status.json")] == calls.calls
    assert {"status": 0} == standby.positions()


def test_a_standby_takes_over_from_the_dead(world: World) -> None:
    """When the holder writes no more the standby goes on, from the recorded position."""
    world.projector(leases=leases(world, "a")).step()
    ids = fill(world)
    standby = world.projector(leases=leases(world, "b"))

    for _ in range(5):
        standby.step()
        world.time.sleep(5.0)

    assert_projected(world, ids)


def test_a_standby_takes_over_at_once_from_one_that_ended(world: World) -> None:
    """A projector that ends gives its lease up: the standby's next look gets it."""
    stop = threading.Event()
    stop.set()
    first = world.projector(leases=leases(world, "a"))
    first.step()
    first.run(stop)
    ids = fill(world)

    world.projector(leases=leases(world, "b")).step()

    assert_projected(world, ids)


def test_who_lost_the_lease_stops(world: World) -> None:
    """A projector that was paused for longer than its lease lives stands by, and reads positions anew when it is back."""
    paused = world.projector(leases=leases(world, "a"))
    paused.step()
    other = world.projector(leases=leases(world, "b"))
    other.step()
    world.time.sleep(20)
    other.step()
    ids = fill(world)

    paused.step()

    assert all(world.stored(job_id) is None for job_id in ids)


# troubles


def test_sto_06_an_unavailable_store_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A store that fails for a while is tried ever less often, counted, logged once; then all is stored (STO-06)."""
    ids = fill(world)
    down = [True]

    def fail(call: Call) -> None:
        if down[0] and call.name.startswith("jobs/"):
            raise Unavailable("503")

    projector = world.projector(blobs=FailingBlobs(world.blobs, before=fail))
    stop = threading.Event()

    def wait(seconds: float) -> None:
        assert 0 < seconds <= 1.0
        world.time.sleep(seconds)
        down[0] = world.time.now < 1060
        if world.time.now > 1090:
            stop.set()

    projector._wait = wait
    with caplog.at_level(logging.WARNING):
        projector.run(stop)

    assert_projected(world, ids)
    assert 5 < world.jobs.counts.snapshot()["projector_unavailable"] < 60
    assert 1 == caplog.text.count("is held up, and tries again until it works")
    assert 1 == caplog.text.count("the view status goes on after")


def test_a_refused_store_is_loud_and_tried_slowly(world: World) -> None:
    """Refused credentials are in the health, and tried again twice a minute, until they are mended."""
    ids = fill(world)
    refused = [True]

    def refuse(call: Call) -> None:
        if refused[0] and call.name.startswith("jobs/"):
            raise PermissionDenied("403")

    failing = FailingBlobs(world.blobs, before=refuse)
    projector = world.projector(blobs=failing)
    for _ in range(100):
        projector.step()
        world.time.sleep(1.0)
    error, tries = projector.health()[0].error, world.jobs.counts.snapshot()["projector_refused"]
    refused[0] = False
    world.time.sleep(30)
    projector.step()

    assert error.startswith("PermissionDenied")
    assert 4 == tries
    assert_projected(world, ids)
    assert "" == projector.health()[0].error


def test_one_view_in_trouble_holds_up_no_other(world: World) -> None:
    """While one view's store fails the other goes on."""

    def fail(call: Call) -> None:
        raise Unavailable("503")

    view = Noting()
    fill(world)
    projector = world.projector(world.view(FailingBlobs(world.blobs, before=fail)), view)

    for _ in range(3):
        projector.step()
        world.time.sleep(1)

    assert int(world.jobs.log.last_cursor()) == view.at
    assert 0 == world.positions().stored("status")


@pytest.mark.parametrize("error", [Unavailable("locked"), Corrupt("not a database")])
def test_a_log_in_trouble_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A log that cannot be read ends nothing: when it can again, the projector goes on."""
    ids = fill(world)
    projector = world.projector()
    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "_page", lambda *_: raised(error))
        for _ in range(10):
            assert not projector.step()
            world.time.sleep(1)
    world.time.sleep(30)

    projector.step()

    assert_projected(world, ids)


def raised(error: Exception) -> None:
    raise error


def test_once_can_be_ended(world: World) -> None:
    """A stop ends `run_once` before the log's end, with what was taken stored; it says so."""
    ids = [world.jobs.submit("render") for _ in range(10)]
    stop = threading.Event()
    view = world.view()
    take = view.take
    view.take = lambda jobs, position: (take(jobs, position), stop.set())[0]  # type: ignore[method-assign]

    done = world.projector(view, batch=3).run_once(stop)

    assert not done
    assert [True] * 3 + [False] * 7 == [world.stored(job_id) is not None for job_id in ids]


def test_once_gives_up_in_the_end(world: World) -> None:
    """`run_once` raises what it cannot get by: at once what a person must mend, after half a minute what is unavailable."""
    fill(world)

    def fail(call: Call) -> None:
        raise error

    for error, patience_s in ((PermissionDenied("403"), 0), (Unavailable("503"), 30)):
        began = world.time.now
        with pytest.raises(type(error)):
            world.projector(blobs=FailingBlobs(world.blobs, before=fail)).run_once()
        assert patience_s <= world.time.now - began <= patience_s + 10


def test_at_the_end_what_is_dirty_is_stored(world: World) -> None:
    """A stop flushes what waits for its interval before the lease is given up."""

    class Slow(MemoryBlobs):
        min_write_interval_s = 1.05
        put_many = None  # type: ignore[assignment]

    world = World(Slow())
    job_id = world.jobs.submit("render")
    projector = world.projector()
    projector.step()
    world.work(job_id)
    projector.step()
    held_back = world.stored(job_id)
    stop = threading.Event()
    stop.set()

    projector.run(stop)

    assert held_back != world.stored(job_id) == world.expected(job_id)


def test_an_index_that_was_deleted_is_built_again(world: World) -> None:
    """A view that finds its store gone starts from the position it has, and is whole again in a moment."""
    ids = [world.jobs.submit("render") for _ in range(3)]
    projector = world.projector(IndexView(world.blobs, flush_interval_s=0, monotonic=world.time.clock))
    projector.step()
    world.blobs.delete("index/v1/MANIFEST.json")
    ids.append(world.jobs.submit("render"))

    for _ in range(4):
        projector.step()
        world.time.sleep(1)

    assert set(ids) == set(Index(world.blobs).page()[0])


def test_a_signal_ends_it_with_everything_stored(tmp_path: Path) -> None:
    """`jobevents project` ends on SIGTERM with exit 0, the lease given up, and says how the views are."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    world = World(url=url, blobs=FileBlobs(tmp_path / "jobs-blobs"))
    job_id = world.jobs.submit("render")
    command = [sys.executable, "-m", "jobevents", "project", "--url", url, "--view", "status", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while world.stored(job_id) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)

    assert 0 == process.returncode
    assert (1, 0) == (json.loads(out)[0]["position"], json.loads(out)[0]["lag_events"])
    assert '"holder":""' in read(world.blobs, "ctl/v1/lease/projector-status.json").decode()
    world.jobs.close()


# health


def health(world: World) -> Health:
    return next(iter(read_health(world.blobs)))


def test_health_tells_how_far_a_view_is(world: World) -> None:
    """The stored health has position, lag, heartbeat, and the instant through which the view is complete."""
    fill(world)
    projector = world.projector()
    began = world.now()

    projector.run_once()

    found = health(world)
    last = int(world.jobs.log.last_cursor())
    assert (last, last, 0, 0.0, 0) == (found.position, found.head, found.lag_events, found.lag_s, found.parked)
    assert (began, began) == (found.complete_through, found.heartbeat)


def test_lag_is_measured_in_events_and_seconds(world: World) -> None:
    """What waits is counted, and as old as its first event."""
    projector = world.projector()
    projector.run_once()
    fill(world, 3)
    waiting = int(world.jobs.log.last_cursor())
    world.time.sleep(7)

    found = projector.health()[0]

    assert (waiting, 7.0) == (found.lag_events, found.lag_s)


def test_complete_through_waits_for_what_is_held_back() -> None:
    """Events that wait for their blob's interval are not in the view yet: the instant does not pass them."""

    class Slow(MemoryBlobs):
        min_write_interval_s = 1.05
        put_many = None  # type: ignore[assignment]

    world = World(Slow())
    job_id = world.jobs.submit("render")
    projector = world.projector()
    projector.step()
    first = world.now()
    world.time.sleep(0.5)
    world.work(job_id)
    projector.step()
    held_back = projector.health()[0].complete_through
    world.time.sleep(1.05)
    projector.step()

    assert first == held_back
    assert first + timedelta(seconds=0.5) <= (projector.health()[0].complete_through or first)


def test_health_is_written_now_and_then(world: World) -> None:
    """A projector with nothing to do writes its health every ten seconds."""
    calls = FailingBlobs(world.blobs)
    projector = world.projector(blobs=calls)

    for _ in range(60):
        projector.step()
        world.time.sleep(0.5)

    assert 3 == calls.calls.count(Call("put", "ctl/v1/projector/status.json"))


def test_doctor_is_content_with_a_projector_that_works(world: World) -> None:
    """The views are among what `doctor` finds, with their figures for programs."""
    fill(world)
    world.projector().run_once()

    found = next(one for one in doctor.examine(world.jobs) if one.check == "view status")

    assert found.ok
    assert health(world) == found.facts
    assert "nobody projects since" in found.found  # by the real clock: what is well is not called at work


def test_doctor_finds_a_projector_that_stands_still(world: World) -> None:
    """Events that wait while no cycle was completed for two minutes are bad."""
    world.projector().run_once()
    fill(world)

    found = next(one for one in doctor.examine(world.jobs) if one.check == "view status")

    assert not found.ok  # by the real clock, the heartbeat is months away
    assert "events wait" in found.found


# wiring


def test_wiring_knows_the_views(world: World) -> None:
    """Asked for no view it makes all of them; an unknown one is refused with those that there are."""
    assert {"status": 0, "index": 0} == wiring.projector(world.jobs).positions()
    with pytest.raises(Misconfigured, match="status, index"):
        wiring.projector(world.jobs, ["statuses"])


def test_it_projects_on_sqlite(on_sqlite: World) -> None:
    """The log and the statuses in SQLite files, through the wiring: every status is the fold, and positions survive."""
    ids = fill(on_sqlite, 12)

    wiring.projector(on_sqlite.jobs).run_once()

    assert_projected(on_sqlite, ids)
    assert int(on_sqlite.jobs.log.last_cursor()) == on_sqlite.positions().stored("status")
    assert stored(on_sqlite.blobs, ids[0]) is not None
