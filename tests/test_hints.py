"""Projecting from hints and sweeps: whatever the bus does, statuses become the fold of the log, and the index its jobs.

The numbers are those of the list of faults that the protocol of the log on objects has to stand.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jobevents import codec
from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.blobnames import Names, Slot
from jobevents.blobs import Blob, Blobs
from jobevents.bus import Delivery, Notice
from jobevents.errors import PermissionDenied, Unavailable
from jobevents.records import status_name
from jobevents.status import Status, encode
from projections.hints import Hints
from projections.parked import list_parked, requeue
from projections.status import StatusView
from projections.statuswriter import CODE_VERSION
from projections.sweeper import PARTS, Terms
from tests.hinting import SUBSCRIPTION, Clouded, Replica, analysts, live_through


@pytest.fixture
def world() -> Iterator[Clouded]:
    made = Clouded()
    yield made
    made.close()


class Pausing:
    """Blobs of a process that stands still at its next write of a status while others go on."""

    def __init__(self, inner: Blobs) -> None:
        self._inner = inner
        self.meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, name: str, data: bytes, **options: Any) -> str:
        if name.endswith("status.json") and self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()
        return self._inner.put(name, data, **options)


class Away:
    """Blobs of a process that are refused, in whole or in part, for as long as there is an error."""

    def __init__(self, inner: Blobs, *, methods: str, part: str) -> None:
        self._inner = inner
        self._methods = methods
        self._part = part
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in self._methods.split():
            return call

        def asked(blob: str, *given: Any, **options: Any) -> Any:
            if self.error is not None and self._part in blob:
                raise self.error
            return call(blob, *given, **options)

        return asked


class Sick:
    """A log that cannot be read now and then."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.error: Exception | None = None
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read_raw(self, job_id: str, **options: Any) -> Any:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self._inner.read_raw(job_id, **options)


def test_hints_bring_the_views_up_to_date(world: Clouded) -> None:
    """What is published is in status and index soon, acknowledged, and a sweep finds nothing more."""
    replica = world.replica()
    for n in range(20):
        world.work(f"song-{n}")

    replica.settle()

    assert world.is_right()
    assert 0 == replica.sweep()
    assert "republished" not in world.jobs.counts.snapshot()


def test_one_look_at_the_log_a_message(world: Clouded) -> None:
    """A message costs the read of its own event alone, once the job's status was written here; its first one more."""
    sick = Sick(world.jobs.log)
    replica = world.replica(log=sick)
    world.jobs.submit("render", id="song")
    replica.settle()
    with world.jobs.attempt("song"):
        replica.settle()
    replica.settle()

    assert 3 == len(world.jobs.history("song"))
    assert 3 == sick.reads


def test_a_late_message_of_a_deleted_job_brings_nothing_back(world: Clouded) -> None:
    """Another replica has taken it out of the views; this one, which wrote its status before, finds out by its next write."""
    late, other = world.replica(), world.replica()
    world.jobs.submit("render", id="song")
    late.settle()
    assert late.status.watches("song")
    world.publisher.is_mute = True
    with world.jobs.attempt("song"):
        pass
    world.jobs.delete("song")
    world.publisher.is_mute = False
    other.sweep()
    assert world.is_right()

    records = world.jobs.log.read_raw("song")
    world.bus.publisher().publish([Notice(r.job_id, r.version, r.type, r.data) for r in records[1:3]])
    while world.bus.subscriber(SUBSCRIPTION).pull(0, 0) or late.hints.step(0) or not late.hints.is_idle():
        late.projector.step()
        world.time.now += 1.0

    assert world.is_right()
    assert [] == world.indexed()


def test_fault_03_crash_between_append_and_publish(world: Clouded) -> None:
    """The sweep finds the event, publishes it before the views have it, and everybody gets it."""
    got = analysts(world)
    replica = world.replica()
    world.work("before")
    replica.settle()
    world.publisher.is_mute = True
    world.work("lost")
    world.jobs.submit("render", id="begun")
    world.publisher.is_mute = False
    with world.jobs.attempt("begun"):  # its first event was lost, these are not
        replica.settle()

    assert replica.sweep() >= 3

    assert world.is_right()
    assert world.events() == got()
    assert world.jobs.counts.snapshot()["sweeper_repaired"] >= 3


def test_fault_03_a_lost_end_is_found_by_the_look_at_the_unfinished(world: Clouded) -> None:
    """Within the bound of W1, at the cost of the unfinished jobs alone."""
    got = analysts(world)
    replica = world.replica(terms=Terms(open_s=60, operations_s=1e9))
    world.jobs.submit("render", id="song")
    replica.settle()
    world.publisher.is_mute = True
    with world.jobs.attempt("song"):
        pass
    world.publisher.is_mute = False

    replica.sweeper._is_loaded = True  # no part of W2 is due
    assert 2 == replica.sweeper.look_at_unfinished()
    replica.settle()

    assert world.is_right()
    assert world.events() == got()


@pytest.mark.parametrize(
    ("methods", "part", "said"),
    [
        pytest.param("get put delete list", "", "503 away", id="503 of everything"),
        pytest.param("put", "status.json", "429 too many writes of one name", id="429 of statuses"),
    ],
)
def test_fault_06_and_07_the_projector_is_degraded_and_loses_nothing(
    world: Clouded, methods: str, part: str, said: str
) -> None:
    """A store that refuses for a minute: what waits is bounded, health says what is held up, and then all is right."""
    away, sick = Away(world.blobs, methods=methods, part=part), Sick(world.jobs.log)
    replica = world.replica(blobs=away, log=sick, most=30)
    world.work("before")
    replica.settle()
    assert ("ok", []) == (replica.service.condition().state, replica.service.condition().held_up)

    away.error = Unavailable(said)
    sick.error = None if part else away.error
    for second in range(60):
        world.work(f"song-{second}")
        replica.turn(1.0)
        assert replica.inflow.depth() <= 30 + 4

    condition = replica.service.condition()
    assert (True, "degraded", []) == (condition.ok, condition.state, condition.problems)
    assert any(said in one for one in condition.held_up)
    away.error = sick.error = None
    world.time.now += 60  # the longest pause of who tries again
    replica.settle()
    assert "ok" == replica.service.condition().state
    assert world.is_right()


def test_fault_08_pubsub_down_ten_minutes(world: Clouded) -> None:
    """Appends go on, statuses follow by the sweep alone, and every event is published afterwards."""
    got = analysts(world)
    replica = world.replica(terms=Terms(operations_s=1e9))
    world.work("before")
    replica.settle()
    world.publisher.is_down = True
    for minute in range(10):
        world.work(f"down-{minute}")
        world.time.now += 60
        replica.sweeper.hurry()
        replica.sweeper.step()
        for _ in range(30):
            replica.turn()
        assert world.stored(f"down-{minute}") == world.expected(f"down-{minute}")

    assert world.is_right()
    assert world.jobs.counts.snapshot()["publish_owed"] > 0
    world.publisher.is_down = False
    world.time.now += 60
    assert replica.arrears.pay() > 0

    replica.settle()
    assert world.events() == got()
    assert [] == list(world.blobs.list("ctl/v1/unpublished/"))


def test_fault_09_doubled_reversed_lost_and_late(world: Clouded) -> None:
    """Messages a hundred times, backwards, one lost, one three days late: the same bytes as without all that."""
    world.bus.create(SUBSCRIPTION)
    world.publisher.is_mute = True
    for n in range(5):
        world.work(f"song-{n}")
    world.publisher.is_mute = False
    records = list(world.jobs.log.scan())
    notices = [Notice(r.job_id, r.version, r.type, r.data, codec.decode(r.data).id) for r in records]
    late, lost = notices[1], notices[7]
    replica = world.replica()

    world.publisher.publish([one for one in reversed(notices) if one not in (late, lost)] * 100)
    replica.settle()
    world.time.now += 3 * 86_400
    world.publisher.publish([late] * 100)
    replica.settle()

    assert replica.sweep() <= 1
    assert world.is_right()


def test_fault_10_acknowledgement_lost(world: Clouded) -> None:
    """What is delivered again changes nothing and is acknowledged again."""
    replica = world.replica()
    world.work("song")
    acks: list[Sequence[Delivery]] = []
    real = replica.subscriber.ack
    replica.subscriber.ack = acks.append  # type: ignore[method-assign]  # the acknowledgements get lost
    for _ in range(20):
        replica.turn()
    before = world.blobs.get(status_name("song"))
    replica.subscriber.ack = real  # type: ignore[method-assign]
    world.time.now += 30  # the deadline passes

    replica.settle()

    assert acks
    assert before == world.blobs.get(status_name("song"))
    assert world.is_right()
    assert [] == world.bus.subscriber(SUBSCRIPTION).pull(10, 0)


def test_fault_11_subscription_deleted(world: Clouded) -> None:
    """It is made anew, and what was published meanwhile is found by a sweep of everything."""
    replica = world.replica()
    world.work("before")
    replica.settle()
    world.bus.delete(SUBSCRIPTION)
    world.work("meanwhile")

    replica.turn()  # notices, and has the sweeper hurry
    replica.sweeper.step()
    replica.settle()
    world.work("after")
    replica.settle()

    assert world.is_right()
    assert 1 == world.jobs.counts.snapshot().get("sweeper_repaired", 0) // 3
    assert 2 == replica.subscriber.epoch


def test_fault_12_two_projectors(world: Clouded) -> None:
    """They share the messages, and what each writes the other respects."""
    got = analysts(world)
    first, second = world.replica(), world.replica()
    for n in range(30):
        world.work(f"song-{n}")
        first.turn()
        second.turn()

    first.settle()
    second.settle()

    assert world.is_right()
    assert world.events() == got()


def test_fault_12_old_and_new_code_together(world: Clouded) -> None:
    """Of one version of a job, what newer code wrote stays."""
    replica = world.replica()
    world.work("song")
    replica.settle()
    newer = StatusView(world.blobs, positions=_Nowhere(), code=CODE_VERSION + 1, threads=1)
    newer.position()
    newer.take([world.jobs.emitter.load("song")], 1)
    newer.flush(everything=True)
    newer.close()

    older = world.replica()
    world.publisher.publish([Notice(r.job_id, r.version, r.type, r.data) for r in world.jobs.log.read_raw("song")])
    older.settle()

    blob = world.blobs.get(status_name("song"))
    assert blob is not None
    assert str(CODE_VERSION + 1) == blob.metadata["code"]


class _Nowhere:
    def stored(self, view: str) -> int:
        return 0

    def advance(self, view: str, position: int) -> int:
        return position


def test_fault_13_projector_paused_with_a_write_under_way(world: Clouded) -> None:
    """It wakes half an hour later and finds a newer status: that stays."""
    pausing = Pausing(world.blobs)
    sleeper = world.replica(blobs=pausing)
    world.jobs.submit("render", id="song")

    def meanwhile() -> None:
        world.time.now += 1800
        other = world.replica()
        with world.jobs.attempt("song"):
            pass
        other.sweep()
        assert world.is_right()

    pausing.meanwhile = meanwhile
    sleeper.settle()

    assert pausing.meanwhile is None
    assert world.is_right()


def test_fault_16_poison_is_parked_and_others_flow(world: Clouded) -> None:
    """An event that cannot be folded holds up its own job alone; requeued by newer code, it goes on."""
    replica = world.replica()
    world.jobs.submit("render", id="bad")
    world.jobs.submit("render", id="good")
    replica.settle()
    good = _annotated(world, "bad")
    data = b'{"type":"JobPaused","job_id":"bad","version":2,"id":"x","at":"2026-07-26T12:00:31Z"}'
    name = world.jobs.log.recorder.names.event(_slot("bad", 2))  # type: ignore[attr-defined]  # of objects
    world.blobs.put(name, data)
    world.publisher.publish([Notice("bad", 2, "JobPaused", data, "x")])
    with world.jobs.attempt("good"):
        pass
    replica.settle()

    entries = list(list_parked(world.blobs))
    assert {("bad", 2)} == {(one.parked.job_id, one.parked.version) for one in entries}
    assert world.stored("good") == world.expected("good")

    world.blobs.put(name, good)  # as if newer code could read it
    for entry in entries:
        requeue(world.blobs, entry)
    world.time.now += 60
    replica.turn()
    replica.settle()
    assert world.stored("bad") == world.expected("bad")
    assert [] == list(list_parked(world.blobs))


def _slot(job_id: str, version: int) -> Any:
    from jobevents.backends.blobnames import Slot

    return Slot(job_id, version)


def _annotated(world: Clouded, job_id: str) -> bytes:
    """Return what the second event of a job could be."""
    from jobevents.events import JobAnnotated

    first = world.jobs.history(job_id)[0]
    body = codec.encode(JobAnnotated(job_id=job_id, version=2, id="y", at=world.now(), title="mended"))
    return codec.seal(body, codec.link(first.chain, body))


@pytest.mark.parametrize("job_id", ["../../etc/passwd", "a/b", "", "x" * 4000, "nul\0", "\u202egnos"])
def test_fault_23_wild_ids_cost_no_read(world: Clouded, job_id: str) -> None:
    """A message with an id that is none is dropped before anything is asked of the store."""
    sick = Sick(world.jobs.log)
    replica = world.replica(log=sick)
    world.bus.publisher().publish([Notice(job_id, 1, "JobQueued", b"{}", "x")])
    unreadable = _through_pubsub(replica)

    replica.settle()

    assert unreadable
    assert 0 == sick.reads
    assert 1 == world.jobs.counts.snapshot()["notice_forged"]


def _through_pubsub(replica: Replica) -> bool:
    """Have deliveries read as the Pub/Sub subscriber reads them: memory hands notices on as they are."""
    from jobevents.bus import read_message
    from jobevents.errors import Corrupt

    real = replica.subscriber.pull

    def pull(limit: int, wait_s: float) -> list[Delivery]:
        found = []
        for one in real(limit, wait_s):
            assert one.notice is not None
            try:
                found.append(Delivery(one.token, read_message(one.notice.data, one.notice.attributes())))
            except Corrupt as error:
                found.append(Delivery(one.token, None, str(error)))
        return found

    replica.subscriber.pull = pull  # type: ignore[method-assign]
    return True


@pytest.mark.parametrize("job_id", ["song", "nobody"])
def test_fault_24_forged_messages_are_dropped(world: Clouded, job_id: str) -> None:
    """An event that somebody made up, well chained even, is neither folded nor published on; it is counted."""
    replica = world.replica()
    world.jobs.submit("render", id="song")
    replica.settle()
    before = world.stored("song")
    known = world.jobs.history("song")[0]
    from jobevents.events import JobSucceeded

    body = codec.encode(JobSucceeded(job_id=job_id, version=2, id="forged", at=world.now(), start=1))
    forged = codec.seal(body, codec.link(known.chain, body))
    world.bus.publisher().publish([Notice(job_id, 2, "JobSucceeded", forged, "forged")])

    replica.settle()

    assert before == world.stored("song")
    assert world.is_right()
    assert 1 == world.jobs.counts.snapshot()["notice_unfounded"]


def test_fault_24_other_bytes_than_the_logs_change_nothing(world: Clouded) -> None:
    """A message with a slot that is in the log and bytes that are not: the log's are folded."""
    world.bus.create(SUBSCRIPTION)
    world.publisher.is_mute = True
    world.jobs.submit("render", id="song")
    world.publisher.is_mute = False
    record = world.jobs.log.read_raw("song")[0]
    world.bus.publisher().publish([Notice("song", 1, record.type, record.data.replace(b"render", b"delete"), "x")])
    replica = world.replica()

    replica.settle()

    assert world.is_right()
    assert 1 == world.jobs.counts.snapshot()["notice_forged"]


def test_fault_25_views_removed_during_live_traffic(world: Clouded) -> None:
    """Statuses and index deleted while events come: they are made again from the log, and no status is ever older."""
    replica = world.replica()
    for n in range(10):
        world.jobs.submit("render", id=f"song-{n}")
    replica.settle()
    for prefix in ("jobs/", "index/"):
        for entry in list(world.blobs.list(prefix)):
            world.blobs.delete(entry.name)

    versions: list[int] = []
    replica.sweeper.hurry()
    for n in range(10):
        with world.jobs.attempt(f"song-{n}"):
            replica.turn()
            replica.sweeper.step()
        versions.append(_version(world, "song-0"))
    replica.settle()
    replica.sweep()

    assert world.is_right()
    assert versions == sorted(versions)


def _version(world: Clouded, job_id: str) -> int:
    try:
        blob: Blob | None = world.blobs.get(status_name(job_id))
    except LookupError:
        return 0
    assert blob is not None
    return int(blob.metadata.get("code") is not None and __import__("json").loads(blob.data).get("version", 0))


def test_fault_29_an_independent_subscriber_gets_everything(world: Clouded) -> None:
    """Half of the messages lost in any way: who subscribed has every (job, n) once all is swept."""
    got = analysts(world)
    replica = world.replica()
    rng = random.Random(29)
    for n in range(25):
        world.publisher.is_mute = rng.random() < 0.5
        world.jobs.submit("render", id=f"song-{n}")
        world.publisher.is_mute = rng.random() < 0.5
        with world.jobs.attempt(f"song-{n}"):
            world.publisher.is_mute = rng.random() < 0.5
        for _ in range(3):
            replica.turn()
    world.publisher.is_mute = False

    replica.settle()
    replica.sweep()

    assert world.events() == got()
    assert world.is_right()


def test_a_log_that_cannot_be_read_loses_no_message(world: Clouded) -> None:
    """Messages are kept while the store is away, and looked into when it is back."""
    sick = Sick(world.jobs.log)
    replica = world.replica(log=sick)
    world.work("song")
    sick.error = Unavailable("down")
    for _ in range(50):
        replica.turn()
    assert isinstance(replica.hints.error, Unavailable)
    assert world.stored("song") is None

    sick.error = None
    world.time.now += 60
    replica.settle()

    assert world.is_right()
    assert replica.hints.error is None


def test_a_foreign_status_is_found_by_the_look_at_the_unfinished(world: Clouded) -> None:
    """Another service wrote `succeeded` over our `running`: it becomes an event, everybody is told (fault 30)."""
    got = analysts(world)
    replica = world.replica()
    world.jobs.submit("render", id="song")
    attempt = world.jobs.attempt("song")
    attempt.__enter__()
    replica.settle()
    world.blobs.put(status_name("song"), encode(Status(job_id="song", state="succeeded", command="render")))

    replica.sweep()

    assert "JobRecorded" == world.jobs.history("song")[-1].type
    assert world.is_right()
    assert world.events() == got()


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_a_foreign_status_over_a_job_that_was_given_up_is_found_by_the_rotation(world: Clouded, state: str) -> None:
    """Another service ran a job again that had failed: that is a fact; a canceled one stays what it is, and says so."""
    got = analysts(world)
    replica = world.replica()
    world.jobs.submit("render", id="song")
    if state == "canceled":
        world.jobs.cancel("song")
    else:
        with pytest.raises(ValueError, match="no tape"), world.jobs.attempt("song"):
            raise ValueError("no tape")
    replica.settle()
    world.blobs.put(status_name("song"), encode(Status(job_id="song", state="succeeded", command="render")))

    replica.sweeper.rotate()
    replica.settle()

    assert ("JobRecorded" if state == "failed" else "TransitionRefused") == world.jobs.history("song")[-1].type
    assert world.is_right()
    assert world.events() == got()


def test_a_foreign_status_of_a_deleted_job_goes(world: Clouded) -> None:
    """The job does not come back, and nothing is kept of what was said of it (fault 32)."""
    replica = world.replica()
    world.work("gone")
    world.jobs.delete("gone")
    replica.settle()
    world.blobs.put(status_name("gone"), encode(Status(job_id="gone", state="running", title="again")))

    replica.sweep()

    assert world.stored("gone") is None
    assert world.is_right()


def test_a_removed_status_of_an_unfinished_job_is_written_again(world: Clouded) -> None:
    """W1 holds the stored status of every unfinished job against the log."""
    replica = world.replica()
    world.jobs.submit("render", id="song")
    replica.settle()
    world.blobs.delete(status_name("song"))

    replica.sweep()

    assert world.is_right()
    assert 1 == world.jobs.counts.snapshot()["statuses_mended"]


def test_a_deleted_job_leaves_the_views_for_good(world: Clouded) -> None:
    """Also when its tombstone had no message; and no sweep brings it back."""
    replica = world.replica()
    world.work("kept")
    world.work("gone")
    replica.settle()
    world.publisher.is_mute = True
    world.jobs.delete("gone")
    world.publisher.is_mute = False

    replica.sweep()
    replica.sweep()

    assert ["kept"] == world.indexed()
    assert world.stored("gone") is None
    assert world.is_right()


def erased(world: Clouded, job_id: str) -> None:
    """Erase a job of which no message tells from now on."""
    recorder = world.jobs.log.recorder
    assert isinstance(recorder, BlobRecorder)
    world.publisher.is_mute = True
    world.jobs.delete(job_id)
    world.publisher.is_mute = False
    last = world.jobs.log.head(job_id).version
    recorder.floors.raise_to(job_id, last)
    for version in range(1, last):
        world.blobs.delete(recorder.names.event(Slot(job_id, version)))


def test_a_job_that_was_erased_while_nobody_projected_leaves_the_views(world: Clouded) -> None:
    """What was erased between the version that the index has and the tombstone hides it from who reads on (fault 26)."""
    first = world.replica()
    world.jobs.submit("render", id="gone")
    world.jobs.submit("render", id="kept")
    first.settle()
    world.publisher.is_mute = True
    with world.jobs.attempt("gone"):
        pass
    erased(world, "gone")
    world.blobs.delete(status_name("gone"))
    replica = world.replica()

    replica.sweeper.rotate()
    replica.settle()

    assert ["kept"] == world.indexed()
    assert world.is_right()


def test_the_end_of_an_erased_job_is_published_though_it_was_owed_with_what_is_gone(world: Clouded) -> None:
    """An independent subscriber hears that it was deleted (fault 29)."""
    got = analysts(world)
    first = world.replica()
    world.jobs.submit("render", id="gone")
    first.settle()
    world.publisher.is_mute = True
    world.jobs.cancel("gone")
    world.jobs.delete("gone")
    world.publisher.is_mute, world.publisher.is_down = False, True
    first.sweep()
    world.publisher.is_down = False
    erased(world, "gone")

    first.arrears.pay()

    assert ("gone", 3) in got()


def test_what_lands_late_below_a_floor_goes_though_its_end_is_known(world: Clouded) -> None:
    """A sweeper that has taken the tombstone itself takes out what a zombie wrote since (fault 26)."""
    replica = world.replica()
    world.work("gone")
    name = Names().event(Slot("gone", 2))
    blob = world.blobs.get(name)
    erased(world, "gone")
    replica.sweep()
    assert blob is not None
    world.blobs.put(name, blob.data, metadata=blob.metadata)

    replica.sweep()

    assert [("gone", 5)] == world.events()
    assert [] == list(world.blobs.list("parked/"))


def test_a_first_event_that_lands_after_its_key_was_taken_over_is_swept_away(world: Clouded) -> None:
    """Its process died before it could take it back: the job that nobody knew does not come to be, in no view."""
    replica = world.replica()
    world.publisher.is_mute = True
    world.jobs.submit("render", id="late")
    recorder = world.jobs.log.recorder
    assert isinstance(recorder, BlobRecorder)
    name = recorder.names.event(Slot("late", 1))
    blob = world.blobs.get(name)
    assert blob is not None
    world.blobs.delete(name)
    recorder.floors.raise_to("late", 1)
    world.jobs.submit("render", id="kept")
    world.time.now += 61
    world.blobs.put(name, blob.data, metadata=blob.metadata)
    world.publisher.is_mute = False

    replica.sweep()

    assert 1 == world.jobs.counts.snapshot()["ghosts_dropped"]
    assert [("kept", 1)] == world.events()
    assert ["kept"] == world.indexed()
    assert world.stored("late") is None
    assert world.is_right()


def test_a_crash_loses_nothing_that_was_not_acknowledged(world: Clouded) -> None:
    """A replica that dies between its views: another gets the messages, and the index is made whole."""
    first = world.replica()
    world.work("song")
    for _ in range(3):
        first.hints.step(0)
        first.projector._lanes[0].prepare()
        first.status.position()
    world.time.now += 30

    second = world.replica()
    second.settle()

    assert world.is_right()


def test_the_sweep_goes_on_where_it_was(world: Clouded) -> None:
    """A rotation takes its time, survives a restart, and tells until when the views are complete, by the store's clock."""
    terms = Terms(rotation_s=2560, operations_s=1e9)
    first = world.replica(terms=terms)
    world.work("song")
    first.turn()
    first.sweeper.step()  # all of it, as the subscription is new
    for _ in range(100):
        first.sweeper.step()
        first.turn(10)
    began = first.sweeper.complete_through()
    assert 90 <= first.sweeper.standing.next_part <= 101

    second = world.replica(terms=terms)
    for _ in range(160):
        second.sweeper.step()
        second.turn(10)
    second.settle()

    through = second.sweeper.complete_through()
    assert began is not None
    assert through is not None
    assert through > began
    assert world.is_right()


def test_a_part_is_listed_in_its_turn(world: Clouded) -> None:
    """Each of the 256 parts once a rotation, no faster than the budget."""
    replica = world.replica(terms=Terms(rotation_s=2560, operations_s=1e9))
    listed: list[str] = []
    real = replica.sweeper._parts.last_slots

    class Listing:
        def last_slots(self, part: str, *, after: str = "") -> Any:
            listed.append(part)
            return real(part)

        def drop_ghosts(self, job_id: str) -> int:
            raise AssertionError("nothing is there")

    replica.sweeper._parts = Listing()
    for _ in range(2560):
        replica.sweeper.step()
        world.time.now += 1

    assert list(PARTS) == listed[:256]
    assert len(listed) <= 257


def test_the_budget_slows_the_sweep_down(world: Clouded) -> None:
    """So many operations a second, and no more."""
    replica = world.replica(terms=Terms(operations_s=50))
    for n in range(200):
        world.jobs.submit("render", id=f"song-{n}")
    replica.settle()
    before = world.time.now

    replica.sweeper.look_at_unfinished()

    assert world.time.now - before >= 200 * 2 / 50 - 1


def test_no_permission_is_told_and_nothing_is_taken_for_gone(world: Clouded) -> None:
    """Where the log may not be read no job is taken for unfounded (fault 22)."""
    sick = Sick(world.jobs.log)
    replica = world.replica(log=sick)
    world.work("song")
    sick.error = PermissionDenied("no")

    for _ in range(20):
        replica.turn()

    assert isinstance(replica.hints.error, PermissionDenied)
    assert not replica.hints.is_idle()
    assert "notice_unfounded" not in world.jobs.counts.snapshot()


def test_pulling_stops_while_the_views_are_behind(world: Clouded) -> None:
    """What is found and not stored is bounded: the rest waits in the subscription."""
    replica = world.replica(most=10)
    for n in range(30):
        world.jobs.submit("render", id=f"song-{n}")
    for _ in range(5):
        replica.hints.step(0)

    assert isinstance(replica.hints, Hints)
    assert replica.inflow.depth() <= 30
    replica.settle()
    assert world.is_right()


@pytest.mark.parametrize("seed", range(int(os.environ.get("JOBEVENTS_SEEDS", "40"))))
def test_whatever_happens_the_views_end_right(seed: int) -> None:
    """Lost, doubled, late and disordered messages, outages, deaths and pauses of two replicas: in the end all is right."""
    world = Clouded()
    try:
        live_through(world, random.Random(seed))
    finally:
        world.close()


@pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff\xfe", b"", b'{"type":1}', b"null"])
def test_fault_17_bytes_that_nobody_can_read_park_their_job_alone(world: Clouded, data: bytes) -> None:
    """Whatever lies in a slot of the log: its job is parked with the bytes, everything else flows, and nothing comes back."""
    replica = world.replica()
    world.jobs.submit("render", id="bad")
    replica.settle()
    world.blobs.put(world.jobs.log.recorder.names.event(_slot("bad", 2)), data)  # type: ignore[attr-defined]  # of objects
    world.publisher.publish([Notice("bad", 2, "JobPaused", data)])
    world.work("good")

    replica.settle()
    replica.sweep()

    assert world.stored("good") == world.expected("good")
    assert {"bad"} == {entry.parked.job_id for entry in list_parked(world.blobs)}
    assert [] == world.bus.subscriber(SUBSCRIPTION).pull(10, 0)
