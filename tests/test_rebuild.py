"""Rebuilding the views: what the log says takes the place of what is live, and nothing newer is ever lost."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import StoredEvent

from jobevents import codec, wiring
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import Conflict, InvalidValue, Misconfigured, NotFound
from jobevents.events import JobFailed
from jobevents.job import DELETED, fold
from jobevents.records import status_name
from jobevents.testing.faults import Call, Died, FailingBlobs, Fault
from projections.index import Index
from projections.indexview import IndexView
from projections.manifest import ALL, LETTERS, OTHER
from projections.parked import discard, list_parked
from projections.rebuild import Rebuilt
from tests.histories import make
from tests.index_model import manifest, newest_first, told
from tests.jobstates import LIVES, bring, other_jobs
from tests.projecting import World

GHOST = b'{"job_id":"ghost-1","state":"running","attempts":1,"updated_at":"2026-07-26T12:00:31Z","version":5}'
FOREIGN = b'{"job_id":"%s","state":"failed","error":"disk full","attempts":1,"updated_at":"2026-07-26T13:00:00Z"}'


@pytest.fixture
def world() -> World:
    return World()


def populate(world: World) -> dict[str, str]:
    """A job for each life, by its name."""
    return {life: bring(world.jobs, life) for life in LIVES}


def project(world: World) -> None:
    wiring.projector(world.jobs, leased=False).run_once()


def rebuild(world: World, *views: str, blobs: Blobs | None = None) -> Rebuilt:
    """Rebuild from one thread, a second after whatever was before, as a process of its own would."""
    world.time.now += 1
    return wiring.rebuild(other_jobs(world.jobs, blobs=blobs or world.blobs), views, threads=1)


def when(met: Callable[[Call], bool], do: Callable[[], object]) -> Callable[[Call], None]:
    """A hook for FailingBlobs that does something once, right before the first call that is meant."""
    is_done = []

    def hook(call: Call) -> None:
        if not is_done and met(call):
            is_done.append(call)
            do()

    return hook


def writes(job_id: str) -> Callable[[Call], bool]:
    return lambda call: call == ("put", status_name(job_id))


def reads(job_id: str) -> Callable[[Call], bool]:
    return lambda call: call == ("get", status_name(job_id))


def live(blobs: Blobs) -> dict[str, tuple[bytes, dict[str, str]]]:
    """All live statuses with their metadata."""
    found = {}
    for entry in blobs.list("jobs/"):
        blob = blobs.get(entry.name)
        assert blob is not None
        found[entry.name.split("/")[1]] = blob.data, dict(blob.metadata)
    return found


def statuses(blobs: Blobs) -> dict[str, bytes]:
    return {job_id: data for job_id, (data, _) in live(blobs).items()}


def right_statuses(world: World) -> dict[str, bytes]:
    """What the log's histories fold to."""
    found = {job_id: world.expected(job_id) for job_id in {record.job_id for record in world.jobs.log.scan()}}
    return {job_id: data for job_id, data in found.items() if data is not None}


def right_index(world: World) -> dict[str, list[str]]:
    """What the index has to tell: the ids of every sequence, newest first."""
    log = world.jobs.log
    folds = {record.job_id: fold(log.read(record.job_id)) for record in log.scan()}
    states = {job_id: job.state for job_id, job in folds.items() if job.state != DELETED}
    lists = {ALL: newest_first(list(states))}
    for name in LETTERS:
        lists[name] = newest_first(
            [one for one, state in states.items() if (state if state in LETTERS else OTHER) == name]
        )
    return lists


def assert_right(world: World) -> None:
    assert right_statuses(world) == statuses(world.blobs)
    assert right_index(world) == told(world.blobs)


def leftovers(world: World) -> list[str]:
    """What lies below `rebuild/`, but for what a roll-back needs."""
    names = [entry.name for entry in world.blobs.list("rebuild/")]
    return [name for name in names if name.split("/")[2] != "before"]


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
def test_a_rebuild_from_nothing_is_what_a_projector_gives(kind: str, tmp_path: Path) -> None:
    """Statuses are the same byte for byte, metadata included, and so is the index."""
    made: dict[str, Callable[[], Blobs]] = {
        "memory": MemoryBlobs,
        "files": lambda: FileBlobs(tmp_path / "blobs"),
        "sqlite": lambda: SqliteBlobs(tmp_path / "blobs.db"),
    }
    world = World(made[kind]())
    populate(world)
    projected = MemoryBlobs()
    wiring.projector(other_jobs(world.jobs, blobs=projected), leased=False).run_once()

    report = rebuild(world)

    assert live(projected) == live(world.blobs)
    assert told(projected) == told(world.blobs)
    assert (len(LIVES) - 1, len(LIVES) - 1) == (report.replaced, report.indexed)
    assert [] == leftovers(world)
    world.blobs.close()


def test_views_that_are_right_are_left_as_they_are(world: World) -> None:
    """Nothing is written over a right status: its generation stays."""
    populate(world)
    project(world)
    before = {entry.name: entry.generation for entry in world.blobs.list("jobs/")}

    report = rebuild(world)

    assert before == {entry.name: entry.generation for entry in world.blobs.list("jobs/")}
    assert (report.statuses, 0) == (report.same, report.replaced)


def test_a_status_written_inline_is_right_too() -> None:
    """The process that emits, the projector and a rebuild write the same."""
    world = World(inline=True)
    ids = [world.jobs.submit("render") for _ in range(3)]
    world.work(ids[0])
    world.jobs.cancel(ids[1], reason="too late")

    report = rebuild(world)

    assert (3, 0) == (report.same, report.replaced)


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no record": lambda data: b"{}",
    "altered": lambda data: data.replace(b'"attempts":1', b'"attempts":7'),
    "of an older version": lambda data: data.replace(b'"version":3', b'"version":2'),
    "of a version that never was": lambda data: data.replace(b'"version":3', b'"version":99'),
    "rewritten by a tool that keeps no metadata": lambda data: data,
    "gone": lambda data: None,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_status_is_mended(world: World, damage: str) -> None:
    """Whatever became of a status, a rebuild brings back what the history says, and touches no other."""
    job_id = populate(world)["succeeded"]
    project(world)
    right = live(world.blobs)
    data = DAMAGE[damage](right[job_id][0])
    world.blobs.delete(status_name(job_id))
    if data is not None:
        world.blobs.put(status_name(job_id), data)

    report = rebuild(world)

    assert right == live(world.blobs)
    assert (1, len(right) - 1) == (report.replaced, report.same)


@pytest.mark.parametrize("job", ["never was", "was deleted"])
def test_a_ghost_is_removed(world: World, job: str) -> None:
    """A status with a version that the log cannot produce goes."""
    ids = populate(world)
    project(world)
    ghost = ids["deleted"] if job == "was deleted" else "ghost-1"
    world.blobs.put(status_name(ghost), GHOST.replace(b"ghost-1", ghost.encode()))

    report = rebuild(world)

    assert_right(world)
    assert 1 == report.removed


def test_another_services_record_of_an_unknown_job_is_left(world: World) -> None:
    """A record without a version may wait to be imported: it stays."""
    data = FOREIGN % b"theirs-1"
    world.blobs.put(status_name("theirs-1"), data)

    report = rebuild(world)

    assert {"theirs-1": data} == statuses(world.blobs)
    assert 1 == report.foreign


def test_what_another_service_wrote_over_a_status_is_left_to_the_projector(world: World) -> None:
    """A rebuild does not undo it: the projector comes by afterwards, and makes it an event."""
    job_id = bring(world.jobs, "running")
    data = FOREIGN % job_id.encode()
    world.write_foreign(job_id, data)

    report = rebuild(world)
    left = statuses(world.blobs)
    project(world)
    project(world)  # the event that the first one appended

    assert 1 == report.foreign
    assert {job_id: data} == left
    assert "failed" == world.jobs.get(job_id).state
    assert_right(world)


def test_a_status_ahead_of_the_build_is_left(world: World) -> None:
    """What happened and was projected after the build is newer, and stays."""
    job_id = bring(world.jobs, "running")

    def go_on() -> None:
        world.jobs.cancel(job_id)
        project(world)

    report = rebuild(world, blobs=FailingBlobs(world.blobs, before=when(reads(job_id), go_on)))

    assert_right(world)
    assert 1 == report.newer


def test_a_status_written_between_the_look_and_the_write_wins(world: World) -> None:
    """The write is conditional on what was seen."""
    job_id = bring(world.jobs, "running")

    def go_on() -> None:
        world.jobs.cancel(job_id)
        project(world)

    report = rebuild(world, blobs=FailingBlobs(world.blobs, before=when(writes(job_id), go_on)))

    assert_right(world)
    assert (0, 1) == (report.replaced, report.newer)


def test_a_status_of_newer_code_is_left(world: World) -> None:
    """Of the same version, what newer code made of it stays."""
    bring(world.jobs, "running")
    world.projector(world.view(code=99)).run_once()
    before = live(world.blobs)

    report = rebuild(world, "status")

    assert before == live(world.blobs)
    assert (1, 0) == (report.newer, report.replaced)


@pytest.mark.parametrize("moment", ["before the look", "before the write"])
@pytest.mark.parametrize("is_projected", [True, False])
def test_a_job_deleted_after_the_build_does_not_come_back(world: World, moment: str, is_projected: bool) -> None:
    """The build has its status, the log its tombstone: in the end there is no status."""
    ids = populate(world)
    job_id = ids["running"]
    met = reads(job_id) if moment == "before the look" else writes(job_id)

    def delete() -> None:
        world.jobs.delete(job_id)
        if is_projected:
            project(world)

    rebuild(world, blobs=FailingBlobs(world.blobs, before=when(met, delete)))

    assert job_id not in statuses(world.blobs)
    project(world)
    assert_right(world)


def test_a_job_that_began_after_the_build_is_no_ghost(world: World) -> None:
    """The build does not have it, the log does: it stays, in the index too."""
    job_id = bring(world.jobs, "running")

    def begin() -> None:
        bring(world.jobs, "succeeded")
        project(world)

    report = rebuild(world, blobs=FailingBlobs(world.blobs, before=when(reads(job_id), begin)))

    assert_right(world)
    assert 0 == report.removed


def test_the_index_is_never_replaced_by_an_older_one(world: World) -> None:
    """When the live index moves on while the build's chunks are copied, the build catches up before it takes its place."""
    populate(world)
    project(world)
    is_chunk = lambda call: call.method == "put" and call.name.startswith("index/v1/chunk/")  # noqa: E731

    def go_on() -> None:
        bring(world.jobs, "succeeded")
        project(world)

    rebuild(world, blobs=FailingBlobs(world.blobs, before=when(is_chunk, go_on)))

    assert right_index(world) == told(world.blobs)
    assert int(world.jobs.log.last_cursor()) == Index(world.blobs).position()


@pytest.mark.parametrize("moment", ["the first status is read", "the first chunk is copied", "the manifest is written"])
def test_of_two_rebuilds_one_wins(world: World, moment: str) -> None:
    """The second to end finds its build removed by the first, and puts nothing of it in the place of what is right."""
    ids = populate(world)
    project(world)
    damage(world, ids)
    meets: dict[str, Callable[[Call], bool]] = {
        "the first status is read": lambda call: call.method == "get" and call.name.startswith("jobs/"),
        "the first chunk is copied": lambda call: call.method == "put" and call.name.startswith("index/v1/chunk/"),
        "the manifest is written": lambda call: call == ("put", "index/v1/MANIFEST.json"),
    }

    with suppress(Conflict):
        rebuild(world, blobs=FailingBlobs(world.blobs, before=when(meets[moment], lambda: rebuild(world))))

    assert_right(world)


@pytest.mark.parametrize("harm", ["manifest cut short", "manifest gone", "chunk cut short", "chunk gone"])
def test_a_broken_index_is_mended(world: World, harm: str) -> None:
    """What says "rebuild the index" is mended by that."""
    populate(world)
    project(world)
    what, how = harm.split(" ", 1)
    name = "index/v1/MANIFEST.json" if what == "manifest" else f"index/v1/chunk/{next(manifest(world.blobs).live())}"
    world.blobs.delete(name)
    if how == "cut short":
        world.blobs.put(name, b'{"posit')

    rebuild(world, "index")

    assert right_index(world) == told(world.blobs)


def test_an_index_beyond_the_logs_end_is_replaced(world: World) -> None:
    """The log was put back to an earlier state, the index was not: the log decides, and a projector goes on from it."""
    other = World(world.blobs)
    for _ in range(9):
        bring(other.jobs, "succeeded")
    project(other)
    for entry in list(world.blobs.list("jobs/")):
        world.blobs.delete(entry.name)
    bring(world.jobs, "running")

    rebuild(world)
    bring(world.jobs, "failed")
    project(world)

    assert_right(world)


def test_an_index_of_newer_code_is_left(world: World) -> None:
    """Older code replaces nothing that it does not understand."""
    bring(world.jobs, "running")
    project(world)
    newer = msgspec.structs.replace(manifest(world.blobs), code=99)
    world.blobs.put("index/v1/MANIFEST.json", msgspec.json.encode(newer))

    with pytest.raises(Misconfigured, match="upgrade"):
        rebuild(world)

    assert newer == manifest(world.blobs)


def test_a_rebuild_moves_the_projector_up(world: World) -> None:
    """What was rebuilt is not projected again: the live position is the build's."""
    populate(world)

    report = rebuild(world)

    assert report.position == world.positions().stored("status") == Index(world.blobs).position()


def test_a_projector_runs_through_a_swap(world: World) -> None:
    """One that has its index in memory, and jobs that wait to be stored, goes on right from the new one."""
    ids = populate(world)
    view = IndexView(world.blobs, monotonic=world.time.clock)
    projector = world.projector(world.view(), view)
    projector.run_once()
    world.jobs.cancel(ids["queued"])
    bring(world.jobs, "succeeded")
    projector.step()
    assert view.next_flush_s()

    rebuild(world)
    bring(world.jobs, "failed")
    world.jobs.delete(ids["skipped"])
    projector.run_once()

    assert_right(world)


def test_chunks_that_were_swapped_in_are_never_collected(world: World) -> None:
    """Not even those that the live collector took for orphans before the manifest named them."""
    populate(world)
    view = IndexView(world.blobs, monotonic=world.time.clock, horizon_s=10)
    projector = world.projector(view)
    projector.run_once()
    is_manifest = lambda call: call == ("put", "index/v1/MANIFEST.json")  # noqa: E731

    def sweep() -> None:
        world.time.now += 11
        bring(world.jobs, "queued")
        projector.run_once()

    rebuild(world, blobs=FailingBlobs(world.blobs, before=when(is_manifest, sweep)))
    for _ in range(4):
        sweep()

    assert right_index(world) == told(world.blobs)


def test_a_job_that_cannot_be_folded_is_reported(world: World) -> None:
    """Its live status, which is what a projector of other code made of it, stays; all others are rebuilt."""
    job_id, other = bring(world.jobs, "running"), bring(world.jobs, "queued")
    project(world)
    before = statuses(world.blobs)
    world.poison(job_id)
    world.blobs.delete(status_name(other))

    report = rebuild(world)

    assert [job_id] == report.parked
    assert before == statuses(world.blobs)


def test_a_job_that_cannot_be_read_at_all_is_no_ghost(world: World) -> None:
    """A history whose first event is undecodable is a history: its status is not removed."""
    world.poison("ghost-1")
    world.blobs.put(status_name("ghost-1"), GHOST)

    report = rebuild(world)

    assert (["ghost-1"], 0) == (report.parked, report.removed)
    assert {"ghost-1": GHOST} == statuses(world.blobs)


def test_a_parked_job_is_left_to_the_projector(world: World) -> None:
    """A projector that has not met it yet still parks it, so that a person finds it."""
    job_id = bring(world.jobs, "running")
    world.poison(job_id)

    rebuild(world)
    project(world)

    assert {job_id} == {entry.parked.job_id for entry in list_parked(world.blobs, view="status")}


def test_what_was_discarded_stays_discarded(world: World) -> None:
    """An event that a person had passed over is passed over by a build: statuses and index are as they were."""
    job_id = bring(world.jobs, "running")
    version = world.poison(job_id)
    world.jobs.log.recorder.insert_events([failed(world, job_id, version + 1)])
    project(world)
    for entry in list_parked(world.blobs):
        discard(world.blobs, entry)
    world.time.now += 60
    project(world)
    before, index = statuses(world.blobs), told(world.blobs)

    report = rebuild(world)

    assert ([], 1, 0) == (report.parked, report.same, report.replaced)
    assert (before, index) == (statuses(world.blobs), told(world.blobs))
    assert b'"state":"failed"' in before[job_id]


def failed(world: World, job_id: str, version: int) -> StoredEvent:
    """An event after one that cannot be folded, as newer code would have appended it."""
    event = make(JobFailed, job_id, version, at=world.now(), error="boom", start=2)
    return StoredEvent(job_id, version, event.type, codec.seal(codec.encode(event), codec.NO_CHAIN))


@pytest.mark.parametrize("fault", ["die", "die after"])
def test_a_rebuild_that_dies_leaves_live_views_valid(fault: Fault) -> None:
    """Wherever it dies, each status is the old or the right one, the index is whole, and the next rebuild cleans up."""
    at = 0
    while True:
        at += 1
        world = World()
        ids = {life: bring(world.jobs, life) for life in ("running", "succeeded", "deleted")}
        project(world)
        damage(world, ids)
        index, damaged = told(world.blobs), statuses(world.blobs)
        failing = FailingBlobs(world.blobs, at=at, fault=fault)

        with suppress(Died):
            rebuild(world, blobs=failing)

        right = right_statuses(world)
        for job_id, data in statuses(world.blobs).items():
            assert data in (damaged.get(job_id), right.get(job_id)), at
        assert index == told(world.blobs), at
        rebuild(world)
        assert_right(world)
        assert [] == leftovers(world), at
        if not failing.met:
            break
    assert at > 50


def damage(world: World, ids: dict[str, str]) -> None:
    """One status cut short, one missing, one ghost."""
    world.blobs.put(status_name(ids["running"]), b'{"state":"run')
    world.blobs.delete(status_name(ids["succeeded"]))
    world.blobs.put(status_name("ghost-1"), GHOST)


def test_a_roll_back_puts_back_what_was_there(world: World) -> None:
    """Altered statuses, ghosts and the index are as before; what was missing is not taken away again."""
    ids = populate(world)
    project(world)
    name = status_name(ids["succeeded"])
    altered = statuses(world.blobs)[ids["succeeded"]].replace(b'"attempts":1', b'"attempts":7')
    world.blobs.put(name, altered, metadata={"code": "1"})
    world.blobs.put(status_name("ghost-1"), GHOST)
    before, index = live(world.blobs), told(world.blobs)
    build = rebuild(world).build
    assert before != live(world.blobs)

    count = wiring.roll_back(world.jobs, build)

    assert (before, index) == (live(world.blobs), told(world.blobs))
    assert 3 == count
    assert [] == list(world.blobs.list("rebuild/"))


def test_a_roll_back_never_goes_back(world: World) -> None:
    """A status that was behind stays as it is now, so do what came since and what was deleted; the index has all events."""
    ids = populate(world)
    project(world)
    stale = live(world.blobs)
    gone, moved, late = ids["running"], ids["queued"], ids["failed"]
    for job_id in (gone, moved):
        world.blobs.put(status_name(job_id), stale[job_id][0].replace(b'"attempts":0', b'"attempts":7'))
    world.blobs.put(status_name(late), stale[late][0].replace(b'"version":3', b'"version":2'))
    build = rebuild(world).build
    world.jobs.delete(gone)
    world.jobs.cancel(moved)
    bring(world.jobs, "succeeded")
    project(world)

    wiring.roll_back(world.jobs, build)

    assert_right(world)
    project(world)
    assert_right(world)


def test_a_roll_back_of_a_ghost_leaves_a_job_that_has_begun_since(world: World) -> None:
    """Its status is the log's now."""
    world.blobs.put(status_name("ghost-1"), GHOST)
    build = rebuild(world).build
    world.jobs.submit("render", id="ghost-1")
    project(world)

    with suppress(NotFound):
        wiring.roll_back(world.jobs, build)

    assert_right(world)


def test_an_index_that_was_rolled_back_is_never_collected(world: World) -> None:
    """Its chunks had gone out of use: they come back under other names, so that nothing deletes them."""
    populate(world)
    view = IndexView(world.blobs, monotonic=world.time.clock, horizon_s=10)
    projector = world.projector(world.view(), view)
    projector.run_once()
    build = rebuild(world).build
    wiring.roll_back(world.jobs, build)

    for _ in range(4):
        world.time.now += 11
        bring(world.jobs, "queued")
        projector.run_once()

    assert_right(world)


def test_only_the_last_build_can_be_rolled_back(world: World) -> None:
    """The next build removes what the one before had kept."""
    world.blobs.put(status_name("ghost-1"), GHOST)
    first = rebuild(world).build
    rebuild(world)

    with pytest.raises(NotFound, match="no build"):
        wiring.roll_back(world.jobs, first)


def test_a_build_is_rolled_back_once(world: World) -> None:
    """What was kept is gone afterwards."""
    world.blobs.put(status_name("ghost-1"), GHOST)
    build = rebuild(world).build
    wiring.roll_back(world.jobs, build)

    with pytest.raises(NotFound, match="no build"):
        wiring.roll_back(world.jobs, build)


@pytest.mark.parametrize("build", ["", "../jobs", "a/b", "2026*"])
def test_only_a_builds_name_is_taken_for_one(world: World, build: str) -> None:
    """What is no name of a build reaches no store."""
    with pytest.raises(InvalidValue, match="not the name of a build"):
        wiring.roll_back(world.jobs, build)


@pytest.mark.parametrize("fault", ["die", "die after"])
def test_a_roll_back_that_dies_is_done_by_the_next(fault: Fault) -> None:
    """Wherever it dies, asking again brings it to its end, or says that it was."""
    at = 0
    while True:
        at += 1
        world = World()
        ids = {life: bring(world.jobs, life) for life in ("running", "succeeded")}
        project(world)
        altered = statuses(world.blobs)[ids["succeeded"]].replace(b'"attempts":1', b'"attempts":7')
        world.blobs.put(status_name(ids["succeeded"]), altered, metadata={"code": "1"})
        before, index = statuses(world.blobs), told(world.blobs)
        build = rebuild(world).build
        failing = FailingBlobs(world.blobs, at=at, fault=fault)
        jobs = other_jobs(world.jobs, blobs=failing)

        with suppress(Died):
            wiring.roll_back(jobs, build, threads=1)
        assert index == told(world.blobs), at
        with suppress(NotFound):
            wiring.roll_back(world.jobs, build, threads=1)

        assert (before, index) == (statuses(world.blobs), told(world.blobs)), at
        if not failing.met:
            break
    assert at > 15


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_many_blobs_are_removed_at_once(kind: str, tmp_path: Path) -> None:
    """Those that are there go, those that are not are no error, all others stay."""
    blobs = MemoryBlobs() if kind == "memory" else SqliteBlobs(tmp_path / "blobs.db")
    for name in ("a", "b", "c"):
        blobs.put(name, b"1")

    count = blobs.delete_many(["c", "nothing", "a"])

    assert 2 == count
    assert ["b"] == [entry.name for entry in blobs.list("")]
    blobs.close()


class Counting(MemoryBlobs):
    """Blobs that note how many are put in one go, and read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def put_many(self, puts: Any, **headers: str) -> list[str | None]:
        self.most = max(self.most, len(puts))
        return super().put_many(puts, **headers)


def test_memory_does_not_grow_with_the_number_of_jobs() -> None:
    """Statuses are compared and replaced in batches."""
    blobs = Counting()
    world = World(blobs)
    world.jobs.submit_many([{"name": "render"}] * 1700)

    report = rebuild(world)

    assert 1700 == report.replaced
    assert blobs.most <= 1000


@pytest.mark.slow
def test_a_rebuild_beside_workers_and_a_projector() -> None:
    """While all go on, no status goes back, no job that was in the index is missing from it, and in the end all is right."""
    world = World()
    stop = threading.Event()
    wrong: list[str] = []
    done = [bring(world.jobs, "succeeded") for _ in range(40)]
    project(world)
    projector = wiring.projector(world.jobs)

    def work() -> None:
        while not stop.is_set():
            with other_jobs(world.jobs).attempt(world.jobs.submit("render")):
                pass

    def watch() -> None:
        versions: dict[str, int] = {}
        while not stop.is_set():
            for job_id, data in statuses_now(world.blobs).items():
                version = msgspec.json.decode(data)["version"]
                if version < versions.get(job_id, 0):
                    wrong.append(f"{job_id} went back from {versions[job_id]} to {version}")
                versions[job_id] = version
            missing = set(done) - set(told(world.blobs)[ALL])
            wrong.extend(f"{job_id} is not in the index" for job_id in missing)

    threads = [threading.Thread(target=call) for call in (work, watch, lambda: projector.run(stop))]
    for thread in threads:
        thread.start()
    for _ in range(8):
        rebuild(world)
    stop.set()
    projector.wake()
    for thread in threads:
        thread.join()

    assert [] == wrong
    project(world)
    assert_right(world)


def statuses_now(blobs: Blobs) -> dict[str, bytes]:
    """All live statuses while others write and delete them."""
    found = {}
    for entry in blobs.list("jobs/"):
        with suppress(NotFound):
            blob = blobs.get(entry.name)
            assert blob is not None
            found[entry.name] = blob.data
    return found
