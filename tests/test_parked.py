"""Parked jobs: what a view cannot take stops that job for that view, and nothing else, until a person says what to do."""

import base64
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobevents import codec, doctor
from jobevents.blobs import BlobEntry, MemoryBlobs
from jobevents.cli import app
from jobevents.errors import Conflict, InvalidValue, Unavailable
from jobevents.job import Job, fold
from jobevents.records import status_bytes, status_name
from jobevents.testing.faults import Call, FailingBlobs
from projections import folding
from projections.parked import Entry, discard, list_parked, raw, requeue
from projections.projector import Projector
from tests.projecting import UNKNOWN, World

LOOK_S = 5.0


@pytest.fixture
def world() -> World:
    return World()


def entries(world: World) -> list[Entry]:
    return list(list_parked(world.blobs))


def a_poisoned_job(world: World, data: bytes = UNKNOWN) -> str:
    """A job with one event that is well, and one that is not."""
    job_id = world.jobs.submit("render")
    world.poison(job_id, data)
    return job_id


def look(world: World, projector: Projector) -> None:
    """Let the time pass until the projector looks at the parked jobs, and have it do so."""
    world.time.sleep(LOOK_S)
    projector.step()


def mend(world: World, job_id: str, version: int) -> None:
    """Put an event in the place of one that cannot be read, as an upgrade makes it readable."""
    recorder: Any = world.jobs.log.recorder
    number = recorder._stored_events_index[job_id][version]
    body = codec.encode(_annotated(job_id, version))
    title = codec.seal(body, codec.link("", body))  # what comes next goes on from some chain
    recorder._stored_events[number] = type(recorder._stored_events[number])(job_id, version, "JobAnnotated", title)


def _annotated(job_id: str, version: int) -> Any:
    from jobevents.events import JobAnnotated
    from tests.histories import AT

    return JobAnnotated(job_id=job_id, version=version, id="m", at=AT, title="mended")


@pytest.mark.parametrize(
    "data",
    [
        UNKNOWN,
        b'{"type":"JobAnnotated","job_id":"a","version":2,"id":"x","at":"soon"}',
        b"\xff\xfe not utf-8",
        b"[" * 100_000,
        b"",
    ],
    ids=["unknown type", "newer schema", "not UTF-8", "too deep", "empty"],
)
def test_poison_parks_its_job_alone(world: World, data: bytes) -> None:
    """An event that cannot be decoded parks its job with its bytes and the error; every other job flows."""
    poisoned = a_poisoned_job(world, data)
    other = world.jobs.submit("render")

    world.projector().run_once()

    [entry] = entries(world)
    assert (poisoned, 2, "status", "JobPaused", "parked") == (
        entry.parked.job_id,
        entry.parked.version,
        entry.parked.view,
        entry.parked.type,
        entry.parked.status,
    )
    assert (data, "2") == (raw(entry.parked), entry.parked.cursor)
    assert entry.parked.error.startswith("Corrupt: ")
    assert world.expected(other) == world.stored(other)


def test_an_entry_has_the_agreed_name_and_form(world: World) -> None:
    """The blob is named by view, hash and version, and is JSON that a person can read; other bytes are base64."""
    poisoned = a_poisoned_job(world, b"\xff")

    world.projector().run_once()

    [entry] = entries(world)
    blob = world.blobs.get(entry.name)
    assert blob is not None
    fields = json.loads(blob.data)
    assert entry.name.startswith("parked/v1/status/")
    assert entry.name.endswith(f"/{poisoned}/0000000002.json")
    assert 2 == len(entry.name.split("/")[3])
    assert base64.b64encode(b"\xff").decode() == fields["data_base64"]


def test_a_parked_job_is_shown_as_it_was_before(world: World) -> None:
    """The view has the job up to the poison; nothing later of it, however much comes."""
    poisoned = a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()
    world.poison(poisoned)
    projector.run_once()

    [entry] = entries(world)
    assert 2 == entry.parked.version
    assert status_bytes(fold(world.jobs.log.read(poisoned, until=1))) == world.stored(poisoned)
    assert int(world.jobs.log.last_cursor()) == world.positions().stored("status")


def test_a_poisoned_first_event_shows_nothing(world: World) -> None:
    """A job whose first event cannot be read has no status, and is parked."""
    world.poison("broken-1", version=1)

    world.projector().run_once()

    assert ["broken-1"] == [entry.parked.job_id for entry in entries(world)]
    assert world.stored("broken-1") is None


def test_a_hole_in_a_history_parks_the_job(world: World) -> None:
    """An event that does not follow the one before it is poison too."""
    job_id = world.jobs.submit("render")
    world.poison(job_id, codec.encode(_annotated(job_id, 5)), version=5)

    world.projector().run_once()

    [entry] = entries(world)
    assert (5, True) == (entry.parked.version, "hole" in entry.parked.error)


def test_an_event_of_another_slot_parks_the_job(world: World) -> None:
    """Bytes that name another job or version are not folded into this one."""
    job_id = world.jobs.submit("render")
    world.poison(job_id, codec.encode(_annotated("somebody-else", 2)))

    world.projector().run_once()

    assert ["another slot" in entry.parked.error for entry in entries(world)] == [True]


def test_del_07_a_fold_that_raises_three_times_parks_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DEL-07: a fold that raises is tried three times for its event, then the job is parked, loudly; others go on."""
    good, bad = world.jobs.submit("render"), world.jobs.submit("render")
    world.work(bad)
    tried: list[int] = []

    def broken(events: Any, job: Job | None = None, *, job_id: str = "") -> Job:
        events = list(events)
        for event in events:
            if event.job_id == bad and event.version == 3:
                tried.append(event.version)
                raise ZeroDivisionError("in the fold")
        return fold(events, job, job_id=job_id)

    monkeypatch.setattr(folding, "fold", broken)
    with caplog.at_level(logging.ERROR):
        world.projector().run_once()

    [entry] = entries(world)
    assert f"job_id={bad} version=3" in caplog.text
    assert 1 == world.jobs.counts.snapshot()["parked"]
    assert (bad, 3, "ZeroDivisionError: in the fold") == (entry.parked.job_id, entry.parked.version, entry.parked.error)
    assert 1 + 3 == len(tried)  # once with its whole batch
    assert world.expected(good) == world.stored(good)


def test_a_fold_that_raises_once_parks_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes well the second time is no poison."""
    job_id = world.jobs.submit("render")
    raised: list[int] = []

    def flaky(events: Any, job: Job | None = None, *, job_id: str = "") -> Job:
        if len(raised) < 2:
            raised.append(1)
            raise ZeroDivisionError
        return fold(events, job, job_id=job_id)

    monkeypatch.setattr(folding, "fold", flaky)
    world.projector().run_once()

    assert [] == entries(world)
    assert world.expected(job_id) == world.stored(job_id)


class Picky:
    """A view that cannot take one job."""

    name = "picky"

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.tries = 0
        self.taken: set[str] = set()
        self.at = 0

    def position(self) -> int:
        return self.at

    def take(self, jobs: Sequence[Job], position: int) -> None:
        for job in jobs:
            if job.job_id == self.refused:
                self.tries += 1
                raise KeyError(job.job_id)
        self.taken |= {job.job_id for job in jobs}
        self.at = position

    def flush(self, *, everything: bool = False) -> int:
        return self.at

    def next_flush_s(self) -> float | None:
        return None


def test_a_job_that_a_view_cannot_take_is_parked(world: World) -> None:
    """A view's own error for one job parks it for that view after three tries; others and other views are not touched."""
    ids = [world.jobs.submit("render") for _ in range(3)]
    picky = Picky(ids[1])

    world.projector(world.view(), picky).run_once()

    [entry] = entries(world)
    assert ("picky", ids[1], 1) == (entry.parked.view, entry.parked.job_id, entry.parked.version)
    assert world.jobs.log.read_raw(ids[1])[0].data == raw(entry.parked)
    assert 1 + 3 == picky.tries
    assert {ids[0], ids[2]} == picky.taken
    assert [world.expected(one) for one in ids] == [world.stored(one) for one in ids]


def test_a_job_that_the_store_refuses_is_parked(world: World) -> None:
    """A job whose status the store will not have is parked after three tries; the rest is stored."""
    ids = [world.jobs.submit("render") for _ in range(3)]

    def refuse(call: Call) -> None:
        if call.name == status_name(ids[1]):
            raise InvalidValue("name cannot be a file here")

    failing = FailingBlobs(world.blobs, before=refuse)
    world.projector(blobs=failing).run_once()

    assert [ids[1]] == [entry.parked.job_id for entry in entries(world)]
    assert 3 == failing.calls.count(Call("put", status_name(ids[1])))
    assert [world.expected(ids[0]), None] == [world.stored(one) for one in ids[:2]]


def test_no_position_passes_what_is_not_parked_yet(world: World) -> None:
    """While an entry cannot be written, the position stays before the poison, so that a crash forgets nothing."""
    a_poisoned_job(world)

    def fail(call: Call) -> None:
        if call.method == "put" and call.name.startswith("parked/"):
            raise Unavailable("503")

    for _ in range(3):
        world.projector(blobs=FailingBlobs(world.blobs, before=fail)).step()
        assert 0 == world.positions().stored("status")

    world.projector().run_once()
    assert 1 == len(entries(world))


def test_parking_is_loud(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A parked job is an error in the log, a count, and bad in what `doctor` finds."""
    poisoned = a_poisoned_job(world)

    with caplog.at_level(logging.ERROR):
        world.projector().run_once()

    found = next(one for one in doctor.examine(world.jobs) if one.check == "view status")
    assert f"job_id={poisoned} version=2" in caplog.text
    assert 1 == world.jobs.counts.snapshot()["parked"]
    assert (False, True) == (found.ok, "1 jobs are parked" in found.found)


# requeue


def test_a_requeued_job_that_is_well_now_is_shown(world: World) -> None:
    """The running projector finds the request, folds the job from its first event, and the entry goes."""
    poisoned = a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()
    mend(world, poisoned, 2)
    world.jobs.cancel(poisoned)

    requeue(world.blobs, entries(world)[0])
    look(world, projector)

    assert [] == entries(world)
    assert world.expected(poisoned) == world.stored(poisoned)


def test_a_requeued_job_flows_on(world: World) -> None:
    """After a requeue that went well the job's later events are projected as any other's."""
    poisoned = a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()
    mend(world, poisoned, 2)
    requeue(world.blobs, entries(world)[0])
    look(world, projector)

    world.work(poisoned)
    projector.step()

    assert world.expected(poisoned) == world.stored(poisoned)


def test_a_requeue_that_fails_parks_again(world: World) -> None:
    """A job that is still bad is parked again, at the same entry, with the new error and time."""
    a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()
    [before] = entries(world)

    requeue(world.blobs, before)
    look(world, projector)

    [after] = entries(world)
    assert (before.name, "parked") == (after.name, after.parked.status)
    assert after.parked.parked_at > before.parked.parked_at


def test_a_requeue_that_fails_elsewhere_is_parked_there(world: World) -> None:
    """When the mended job stops at a later event the entry is that event's."""
    poisoned = a_poisoned_job(world)
    world.poison(poisoned)
    projector = world.projector()
    projector.run_once()
    mend(world, poisoned, 2)

    requeue(world.blobs, entries(world)[0])
    look(world, projector)

    assert [3] == [entry.parked.version for entry in entries(world)]
    assert status_bytes(fold(world.jobs.log.read(poisoned, until=2))) == world.stored(poisoned)


def test_the_next_projector_does_what_was_asked(world: World) -> None:
    """A request made while no projector runs is done by the next to start."""
    poisoned = a_poisoned_job(world)
    world.projector().run_once()
    mend(world, poisoned, 2)
    requeue(world.blobs, entries(world)[0])

    world.projector().run_once()

    assert [] == entries(world)
    assert world.expected(poisoned) == world.stored(poisoned)


@pytest.mark.parametrize("ask", [requeue, discard])
@pytest.mark.parametrize("fault", ["refuse", "lose reply"])
def test_a_request_survives_any_fault(ask: Any, fault: Any) -> None:
    """Whatever call of the store fails meanwhile, the job ends in the view, and the request is done with."""
    at, met = 0, True
    while met:
        at += 1
        world = World()
        poisoned = a_poisoned_job(world)
        world.projector().run_once()
        if ask is requeue:
            mend(world, poisoned, 2)
        ask(world.blobs, entries(world)[0])
        failing = FailingBlobs(world.blobs, at=at, fault=fault)
        projector = world.projector(blobs=failing)
        for _ in range(4):
            look(world, projector)
        met = failing.met

        version = json.loads(world.stored(poisoned) or b"{}")["version"]
        assert 2 == version
        assert all(entry.parked.is_passed for entry in entries(world))
    assert at > 4


# discard


def test_a_discarded_event_is_passed_over(world: World) -> None:
    """The job flows on as if the event had changed nothing, its later events too; the entry stays as the record of it."""
    poisoned = a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()

    discard(world.blobs, entries(world)[0])
    look(world, projector)
    world.poison(poisoned, codec.encode(_annotated(poisoned, 3)))
    projector.step()

    [entry] = entries(world)
    status = json.loads(world.stored(poisoned) or b"")
    assert ("discarded", True) == (entry.parked.status, entry.parked.is_passed)
    assert ("mended", 3) == (status["title"], status["version"])


def test_a_discard_holds_for_the_next_projector(world: World) -> None:
    """A projector that starts later passes the event over as well, however it comes by the job."""
    poisoned = a_poisoned_job(world)
    projector = world.projector()
    projector.run_once()
    discard(world.blobs, entries(world)[0])
    look(world, projector)
    world.poison(poisoned, codec.encode(_annotated(poisoned, 3)))

    world.projector().run_once()

    assert "mended" == json.loads(world.stored(poisoned) or b"")["title"]
    assert 1 == len(entries(world))


def test_a_discard_is_for_one_view(world: World) -> None:
    """The other view's job stays parked."""
    a_poisoned_job(world)
    picky = Picky("")
    projector = world.projector(world.view(), picky)
    projector.run_once()

    [entry] = [one for one in entries(world) if one.parked.view == "picky"]
    discard(world.blobs, entry)
    look(world, projector)

    assert {"status": "parked", "picky": "discarded"} == {e.parked.view: e.parked.status for e in entries(world)}


def test_two_bad_events_are_discarded_one_by_one(world: World) -> None:
    """After one event is passed over the job stops at the next bad one, which has an entry of its own."""
    poisoned = a_poisoned_job(world)
    world.poison(poisoned)
    projector = world.projector()
    projector.run_once()

    discard(world.blobs, entries(world)[0])
    look(world, projector)
    stops = {one.parked.version: one.parked.status for one in entries(world)}
    discard(world.blobs, entries(world)[1])
    look(world, projector)

    assert {2: "discarded", 3: "parked"} == stops
    assert 3 == json.loads(world.stored(poisoned) or b"")["version"]


# requests and rivals


def test_a_request_is_conditional(world: World) -> None:
    """An entry that was changed since it was listed is not changed unseen."""
    a_poisoned_job(world)
    world.projector().run_once()
    [entry] = entries(world)
    requeue(world.blobs, entry)

    with pytest.raises(Conflict):
        discard(world.blobs, entry)


def test_a_look_costs_a_listing(world: World) -> None:
    """Looking at parked jobs that nobody touched is one listing, and no read."""
    for _ in range(3):
        a_poisoned_job(world)
    counting = FailingBlobs(world.blobs)
    projector = world.projector(blobs=counting)
    projector.run_once()
    projector.step()
    counting.calls.clear()

    look(world, projector)

    assert [Call("list", "parked/v1/status/")] == [call for call in counting.calls if "parked" in call.name]


def test_a_bucket_is_looked_at_less_often() -> None:
    """Where a look is billed it comes every thirty seconds."""

    class Slow(MemoryBlobs):
        min_write_interval_s = 1.05

    counting = FailingBlobs(Slow())
    world = World(counting)
    projector = world.projector()
    for _ in range(61):
        projector.step()
        world.time.sleep(1)

    assert 3 == counting.calls.count(Call("list", "parked/v1/status/"))


def test_gcs_08_a_listing_that_breaks_off_is_not_the_whole(world: World) -> None:
    """A listing of parked jobs that fails half-way sets none of them free (GCS-08)."""
    for _ in range(3):
        a_poisoned_job(world)
    breaks = [False]

    class Breaking(FailingBlobs):
        def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
            for n, entry in enumerate(super().list(prefix, start=start, delimiter=delimiter)):
                if breaks[0] and n == 1:
                    raise Unavailable("503 on page 2")
                yield entry

    projector = world.projector(blobs=Breaking(world.blobs))
    projector.run_once()
    projector.step()
    breaks[0] = True
    look(world, projector)

    assert 3 == projector.health()[0].parked
    assert projector.health()[0].error.startswith("Unavailable")


def test_two_projectors_park_a_job_once(world: World) -> None:
    """Both find the poison; there is one entry, and a request that came between them is kept."""
    a_poisoned_job(world)
    first, second = world.projector(), world.projector()
    second._lanes[0].prepare()
    first.run_once()
    discard(world.blobs, entries(world)[0])

    second.step()
    look(world, second)

    assert ["discarded"] == [entry.parked.status for entry in entries(world)]
    assert 2 == json.loads(world.stored(entries(world)[0].parked.job_id) or b"")["version"]


def test_a_job_released_by_another_projector_loses_no_event(world: World) -> None:
    """A projector that still takes a job for parked finds out before it passes over an event of it."""
    poisoned = a_poisoned_job(world)
    first, second = world.projector(), world.projector()
    first.run_once()
    second.step()
    mend(world, poisoned, 2)
    requeue(world.blobs, entries(world)[0])
    look(world, first)
    world.work(poisoned)

    second.step()

    assert world.expected(poisoned) == world.stored(poisoned)


# the command line


def command(url: str, *args: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, [*args, "--url", url, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout else done.exception


def test_the_commands_from_parked_to_passed(tmp_path: Path) -> None:
    """`project --once`, `parked list`, `show`, `requeue`, `discard`: each tells programs what a person did."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    world = World(url=url, blobs=None)
    poisoned = a_poisoned_job(world)
    world.jobs.close()

    projected = command(url, "project", "--once", "--view", "status")
    listed = command(url, "parked", "list")
    shown = command(url, "parked", "show", poisoned)
    asked = command(url, "parked", "requeue", "--all")
    command(url, "project", "--once", "--view", "status")
    again = command(url, "parked", "list", "--view", "status")
    discarded = command(url, "parked", "discard", poisoned)
    at_last = command(url, "project", "--once", "--view", "status")

    assert (0, 1) == (projected[0], projected[1][0]["parked"])
    assert [(poisoned, "parked")] == [(one["job_id"], one["status"]) for one in listed[1]]
    assert UNKNOWN.decode() == shown[1][0]["data"]
    assert ["requeued", "parked", "discarded"] == [one[1][0]["status"] for one in (asked, again, discarded)]
    assert (0, 0) == (at_last[0], at_last[1][0]["parked"])


def test_a_command_that_finds_nothing_says_so(tmp_path: Path) -> None:
    """To requeue a job that is not parked is an error, and so is to name none."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    world = World(url=url)
    world.jobs.close()

    nothing = CliRunner().invoke(app, ["parked", "requeue", "a-1", "--url", url])
    unnamed = CliRunner().invoke(app, ["parked", "requeue", "--url", url])

    assert ("NotFound", "InvalidValue") == (type(nothing.exception).__name__, type(unnamed.exception).__name__)
