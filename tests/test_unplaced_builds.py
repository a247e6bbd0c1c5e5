"""Rebuilds over a log without one sequence: beside the live views, compared, promoted, rolled back; nothing newer is replaced."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from jobevents import wiring, wiring_builds
from jobevents.errors import NotFound
from jobevents.job import fold
from jobevents.records import status_name
from projections.bulk import Bulk
from projections.diff import ViewsDiff, diff_indexes, diff_statuses
from projections.indexview import IndexView
from projections.rebuild import list_kept
from projections.statusswap import Place
from projections.verify import verify
from tests.hinting import Clouded


@pytest.fixture
def world() -> Iterator[Clouded]:
    """Three jobs that have ended, one that waits, one that is deleted; shown by a projector that no longer runs."""
    made = Clouded()
    for job_id in ("a", "b", "c", "gone"):
        made.work(job_id)
    made.jobs.submit("render", id="waits")
    made.jobs.delete("gone")
    made.replica().sweep()
    assert made.is_right()
    yield made
    made.close()


def spoil(world: Clouded) -> None:
    """Make a status say something else, remove one, and have one that no log knows; and lose the index."""
    data = world.stored("a")
    assert data is not None
    world.blobs.put(status_name("a"), data.replace(b"succeeded", b"failed"))
    world.blobs.delete(status_name("b"))
    world.blobs.put(status_name("ghost"), data.replace(b'"a"', b'"ghost"'))
    world.blobs.delete("index/v1/MANIFEST.json")


def blobs(world: Clouded) -> dict[str, bytes]:
    found = {}
    for entry in world.blobs.list("jobs/"):
        blob = world.blobs.get(entry.name)
        assert blob is not None
        found[entry.name] = bytes(blob.data)
    return found


def compare(world: Clouded, build: str) -> tuple[list[tuple[str, str]], ViewsDiff]:
    total, root = ViewsDiff(), f"rebuild/{build}"
    with Bulk(world.blobs) as bulk:
        places = Place("jobs/"), Place(f"{root}/jobs/")
        found = list(diff_statuses(world.jobs.log, world.blobs, bulk, *places, total, lambda: None))
    return [(one.job_id, one.kind) for one in (*found, *diff_indexes(world.blobs, "", root))], total


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_rebuild_makes_the_views_right(world: Clouded, *, is_archived: bool) -> None:
    """Whatever was wrong: replaced, put back, removed; the deleted job stays away, and what was replaced can be put back."""
    if is_archived:
        archive = pytest.importorskip("projections.archive")
        assert 3 == archive.Archive(world.blobs).extend(world.jobs.log).jobs
    right = blobs(world)
    spoil(world)
    spoilt = blobs(world)

    report = wiring.rebuild(world.jobs, threads=2)

    assert (right, True) == (blobs(world), world.is_right())
    assert (4, 2, 2, 1, 4) == (report.statuses, report.same, report.replaced, report.removed, report.indexed)
    assert 2 == wiring.roll_back(world.jobs, report.build, threads=2)  # `b` was not there; the index neither
    back = {name: data for name, data in spoilt.items() if "ghost" not in name}
    assert back.items() <= blobs(world).items()
    with pytest.raises(NotFound):
        wiring.roll_back(world.jobs, report.build)


def test_a_build_beside_is_compared_and_promoted(world: Clouded) -> None:
    """What comes after it was made, a deletion too, is in it when it is swapped in, and in the index that is put back."""
    before = blobs(world)
    build = wiring_builds.build_beside(world.jobs, threads=2).build
    assert (([], ViewsDiff(compared=4)), before) == (compare(world, build), blobs(world))
    spoil(world)
    assert {("a", "differs"), ("b", "only-right"), ("ghost", "only-left"), ("a", "index")} <= set(
        compare(world, build)[0]
    )
    world.work("new")
    world.jobs.rerun("c")
    world.jobs.delete("b")

    report = wiring_builds.promote(world.jobs, build, threads=2)

    assert world.is_right()
    assert (4, []) == (report.indexed, list_kept(world.blobs))
    world.work("newer")
    world.replica().sweep()
    assert world.is_right()


def test_nothing_newer_is_replaced_while_others_project(world: Clouded) -> None:
    """A projector that goes on while a build is swapped in: statuses and index are as the log says afterwards."""
    build = wiring_builds.build_beside(world.jobs, threads=2).build
    replica = world.replica()
    swapped: list[int] = []

    def meanwhile() -> None:
        if not swapped:
            world.jobs.rerun("c")
            world.jobs.delete("waits")
            world.work("new")
            replica.settle()
        swapped.append(1)

    wiring_builds.promote(world.jobs, build, on_swapped=meanwhile, threads=2)

    assert world.is_right()
    replica.settle()
    assert world.is_right()


def test_what_comes_while_the_index_is_swapped_is_in_it(world: Clouded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that came and one that went after the log was listed last, right before the new index was stored."""
    build = wiring_builds.build_beside(world.jobs, threads=2).build
    put = world.blobs.put

    def meanwhile(name: str, *args: Any, **options: Any) -> str:
        if name == "index/v1/MANIFEST.json" and world.stored("new") is None:
            monkeypatch.undo()
            world.work("new")
            world.jobs.delete("c")
        return put(name, *args, **options)

    monkeypatch.setattr(world.blobs, "put", meanwhile)
    wiring_builds.promote(world.jobs, build, threads=2)

    assert ["a", "b", "new", "waits"] == world.indexed()


def test_what_nobody_published_is_owed(world: Clouded) -> None:
    """A rebuild publishes nothing, and hides nothing from those who do: every event reaches the bus once they look."""
    world.jobs.bus = world.bus
    world.publisher.is_down = True
    world.work("silent")
    world.publisher.is_down = False
    sent = len(world.publisher.sent)

    wiring.rebuild(world.jobs, threads=2)

    assert (sent, True) == (len(world.publisher.sent), world.is_right())
    world.replica().sweep()
    assert {("silent", n) for n in range(1, 5)} <= {(one.job_id, one.version) for one in world.publisher.sent}
    assert set(world.events()) == {(one.job_id, one.version) for one in world.publisher.sent}


def test_what_verify_finds_is_mended(world: Clouded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status, one of no job, and the index, and these alone; one that is missing may be on its way."""
    monkeypatch.setattr("projections.secondlook.PATIENCE_S", 0.0)
    right = blobs(world)
    status_of_b = (status_name("b"), right[status_name("b")])
    spoil(world)
    index = IndexView(world.blobs)
    index.take([msgspec.structs.replace(fold(world.jobs.log.read("b")), job_id="ghost")], 1)
    index.flush(everything=True)

    report = wiring_builds.mend(world.jobs, verify(world.jobs), threads=2)

    assert (right.items() - blobs(world).items(), ["a", "b", "c", "waits"]) == ({status_of_b}, world.indexed())
    assert (1, 1, 4) == (report.replaced, report.removed, report.indexed)


def test_only_one_view(world: Clouded) -> None:
    """Statuses alone, gone on with: how far each job is, is read from the statuses that were built."""
    build = wiring_builds.build_beside(world.jobs, ["status"], threads=2).build
    world.jobs.rerun("a")
    world.blobs.delete(status_name("a"))

    report = wiring_builds.promote(world.jobs, build, threads=2)

    assert (world.expected("a"), 0, 1) == (world.stored("a"), report.indexed, report.replaced)
