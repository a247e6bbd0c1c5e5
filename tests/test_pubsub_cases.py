"""Faults that users of other systems have met, by the id of their case, over Pub/Sub and hints."""

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents import codec, connect, wiring
from jobevents.blobs import MemoryBlobs
from jobevents.bus import InProcessBus, Notice, notice, notice_of
from jobevents.errors import JobEventsError
from jobevents.events import Event, JobProgressed, JobQueued, JobStarted, JobSucceeded
from jobevents.log import Head
from jobevents.records import status_name
from jobevents.testing.faults import Died, FailingBlobs
from jobevents.wiring_bus import service
from projections.parked import list_parked
from tests.cli import start
from tests.hinting import SUBSCRIPTION, Clouded
from tests.pubsub_server import PubSubServer

pytest_plugins = ("tests.pubsub",)


@pytest.fixture
def world() -> Iterator[Clouded]:
    made = Clouded()
    yield made
    made.close()


def write(world: Clouded, job_id: str) -> list[Notice]:
    """Write queued, running, progress and succeeded into the log, untold; return what would tell of them."""
    common: dict[str, Any] = {"job_id": job_id, "at": world.now()}
    events: list[Event] = [
        JobQueued(version=1, id=f"{job_id}-1", name="render", **common),
        JobStarted(version=2, id=f"{job_id}-2", attempt=1, **common),
        JobProgressed(version=3, id=f"{job_id}-3", start=2, percent=50, **common),
        JobSucceeded(version=4, id=f"{job_id}-4", start=2, **common),
    ]
    return [notice_of(event) for event in world.jobs.log.append(events, heads={job_id: Head(0, "")})]


def test_prj_01_any_order_and_doubling_ends_in_the_same_bytes(world: Clouded) -> None:
    """PRJ-01: all orders of four messages, each doubled: the status is the fold, whatever came when."""
    replica = world.replica()
    sender = world.bus.publisher()
    for number, order in enumerate(itertools.permutations(range(4))):
        job_id = f"song-{number}"
        notices = write(world, job_id)
        for place in order:
            sender.publish([notices[place], notices[place]])
            replica.turn(0.02)

    replica.settle()

    assert world.is_right()
    assert 0 == replica.sweep()


@pytest.mark.parametrize("fault", ["refuse", "lose reply", "die"])
def test_prj_05_stopped_anywhere_a_restart_ends_right(fault: Any) -> None:
    """PRJ-05: the projector fails or dies at the n-th call of the store, for every n; another goes on and all is right."""
    for at in itertools.count(1):
        world = Clouded()
        try:
            failing = FailingBlobs(world.blobs, at=at, fault=fault)
            first = world.replica(blobs=failing)
            world.work("song")
            world.jobs.submit("render", id="gone")
            _drive(first)
            world.jobs.delete("gone")
            _drive(first)
            world.time.now += 60  # what it held is delivered again
            second = world.replica()
            second.settle()
            second.sweep()
            assert world.is_right(), at
            if not failing.met:
                return
        finally:
            world.close()


def _drive(replica: Any) -> None:
    try:
        for _ in range(15):
            replica.turn()
        replica.sweeper.step()
    except (Died, JobEventsError):
        return


def test_prj_08_the_last_of_many_lands(world: Clouded, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRJ-08: many states in a moment, then silence: few writes of the status, and the last state is there."""
    monkeypatch.setattr(MemoryBlobs, "min_write_interval_s", 1.05)  # as Cloud Storage has it
    failing = FailingBlobs(world.blobs)
    replica = world.replica(blobs=failing)
    attempt = world.jobs.attempt(world.jobs.submit("render", id="song"))
    with attempt:
        for n in range(200):
            attempt.annotate(take=str(n))
            if n % 20 == 0:
                replica.turn(0.05)

    for _ in range(150):  # the index holds back for ten seconds
        replica.turn(0.1)

    writes = [call for call in failing.calls if (call.method, call.name) == ("put", status_name("song"))]
    assert world.is_right()
    assert len(writes) <= 4


def test_prj_09_what_this_version_does_not_know(world: Clouded) -> None:
    """PRJ-09: an unknown key of an event is passed over; an unknown event is kept, and parks its job alone."""
    replica = world.replica()
    world.bus.create("other")
    names = world.jobs.log.recorder.names  # type: ignore[attr-defined]  # of objects
    at = "2026-08-01T12:00:00Z"
    for job_id, fields in {
        "newer": {"type": "JobQueued", "name": "render", "mood": "blue"},
        "paused": {"type": "JobPaused", "mood": "blue"},
    }.items():
        body = msgspec.json.encode({**fields, "job_id": job_id, "version": 1, "id": job_id, "at": at})
        data = codec.seal(body, codec.link("", body))
        world.blobs.put(f"{names.history(job_id)}{1:010d}.json", data)
        world.bus.publisher().publish([notice(job_id, 1, str(fields["type"]), data)])
    world.work("plain")

    replica.settle()

    assert world.stored("newer") is not None
    assert world.stored("plain") == world.expected("plain")
    assert {"paused"} == {entry.parked.job_id for entry in list_parked(world.blobs)}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"job": "song", "state": "succeeded", "percent": 100}, id="flat, without type and version"),
        pytest.param(
            {"type": "JobQueued", "job_id": "song", "version": 1, "id": "x", "name": "render"}, id="without a time"
        ),
    ],
)
def test_prj_10_an_older_layout_is_not_read_as_nothing(world: Clouded, body: dict[str, Any]) -> None:
    """PRJ-10: an event of another layout parks its job by its id and shows nothing of it, never a job without a state."""
    replica = world.replica()
    data = msgspec.json.encode(body)
    world.blobs.put(f"{world.jobs.log.recorder.names.history('song')}{1:010d}.json", data)  # type: ignore[attr-defined]  # of objects
    world.bus.publisher().publish([notice("song", 1, "JobQueued", data)])
    world.work("plain")

    replica.settle()

    assert ["song"] == [entry.parked.job_id for entry in list_parked(world.blobs, view="status")]
    assert world.stored("song") is None
    assert ["plain"] == world.indexed()


def test_prj_12_a_rebuild_publishes_nothing(tmp_path: Path) -> None:
    """PRJ-12: making the views anew sends no message."""
    bus = InProcessBus()
    bus.create("all")
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", bus=bus) as jobs:
        jobs.submit("render", id="song")
        wiring.projector(jobs, leased=False).run_once()
        assert jobs.relay is not None
        jobs.relay.close()
        before = len(bus.subscriber("all").pull(100, 0))

        wiring.rebuild(jobs)

    assert 1 == before
    assert [] == bus.subscriber("all").pull(100, 0)


@pytest.mark.slow
def test_del_07_an_error_of_one_event_is_not_swallowed(pubsub_server: PubSubServer, topic: str, tmp_path: Path) -> None:
    """DEL-07: the bad event is parked with its error, counted and acknowledged; others go on; none is delivered for ever."""
    pubsub_server.topics.add(topic)
    with connect(f"file://{tmp_path}/log?topic={topic}") as jobs:
        made = service(jobs, "p", create=True)
        jobs.submit("render", id="bad")
        name = jobs.log.recorder.names.history("bad")  # type: ignore[attr-defined]  # of objects
        data = b'{"type":"JobPaused","job_id":"bad","version":2,"id":"x","at":"2026-08-01T12:00:00Z"}'
        jobs.blobs.put(f"{name}{2:010d}.json", data)
        pubsub_server.inject(topic, data, {"job": "bad", "n": "2", "id": "x", "type": "JobPaused"})
        jobs.submit("render", id="good")

        assert made.run_once()

        entries = list(list_parked(jobs.blobs))
        assert {("bad", 2)} == {(one.parked.job_id, one.parked.version) for one in entries}
        assert all("JobPaused" in one.parked.error for one in entries)
        assert 2 == jobs.counts.snapshot()["parked"]  # in each view
        assert jobs.blobs.get(status_name("good"))
    assert 0 == pubsub_server.waiting(f"{topic.rpartition('/topics/')[0]}/subscriptions/p")


_EMITS = """
import sys, time, signal
from jobevents import connect
with connect(sys.argv[1]) as jobs:
    for n in range(16):
        jobs.submit("render", id=f"song-{n}")
    if sys.argv[2] == "raise":
        raise SystemExit("a fault of the caller's")
    if sys.argv[2] == "sigterm":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["normal", "raise", "sigterm", "unclosed"])
@pytest.mark.parametrize("log", ["file://{}/log?topic={}", "sqlite:///{}/jobs.db?synchronous=normal&topic={}"])
def test_del_09_a_process_that_ends_sends_what_it_has(
    pubsub_server: PubSubServer, topic: str, tmp_path: Path, log: str, end: str
) -> None:
    """DEL-09: however a process ends that may still do something, its last batch is sent."""
    if end == "unclosed" and log.startswith("sqlite"):
        pytest.skip("whoever relays next sends from the place that has not moved")
    pubsub_server.topics.add(topic)
    real, pubsub_server.fail = pubsub_server.fail, lambda method: time.sleep(0.05)  # type: ignore[func-returns-value]
    code = (
        _EMITS
        if end != "unclosed"
        else _EMITS.replace("with connect(sys.argv[1]) as jobs:", "jobs = connect(sys.argv[1])\nif 1:")
    )

    done = subprocess.run(
        [sys.executable, "-c", code, log.format(tmp_path, topic), end],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    pubsub_server.fail = real
    assert (end not in ("normal", "unclosed")) == (done.returncode != 0), done.stderr
    assert {f"song-{n}" for n in range(16)} == {attributes["job"] for attributes, _ in pubsub_server.published}


@pytest.mark.slow
def test_del_09_the_command_line_ends_by_sigterm_with_everything_sent(
    pubsub_server: PubSubServer, topic: str, tmp_path: Path
) -> None:
    """DEL-09: SIGTERM while the command waits at its end for a slow bus: the message goes out all the same."""
    pubsub_server.topics.add(topic)
    began: list[float] = []

    def slow(method: str) -> None:
        if method == "Publish":
            began.append(time.monotonic())
            time.sleep(1.0)

    pubsub_server.fail = slow
    process = start(
        "submit", "--create", "render", "{}", "--id", "song", "--url", f"file://{tmp_path}/log?topic={topic}",
        cwd=tmp_path, env={"PUBSUB_EMULATOR_HOST": pubsub_server.host},
    )  # fmt: skip
    while not began:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode in (0, 143)
    assert ["song"] == [attributes["job"] for attributes, _ in pubsub_server.published]


def test_dat_07_the_largest_payload_fits_a_message(pubsub_server: PubSubServer, topic: str, tmp_path: Path) -> None:
    """DAT-07: params at their limit go out whole; what is beyond is refused before anything is written."""
    pubsub_server.topics.add(topic)
    with connect(f"file://{tmp_path}/log?topic={topic}") as jobs:
        jobs.submit("render", "x" * (64 * 1024 - 100), id="large")
        with pytest.raises(JobEventsError, match=r"too large|limit"):
            jobs.submit("render", "x" * (90 * 1024), id="larger")

    assert ["large"] == [attributes["job"] for attributes, _ in pubsub_server.published]


def test_gcs_03_an_older_state_never_replaces_a_newer_one(world: Clouded) -> None:
    """GCS-03: a projector that folded up to an event and stopped before its write finds the newer status there."""
    stopped = world.replica()
    world.work("song")
    for _ in range(4):
        stopped.hints.step(0)  # it has the events, and has stored nothing
    with pytest.raises(JobEventsError):
        world.jobs.attempt("song").__enter__()
    world.jobs.rerun("song")
    world.bus.delete(SUBSCRIPTION)
    other = world.replica()
    other.sweep()

    for _ in range(20):
        stopped.projector.step()
        world.time.now += 0.1

    assert world.is_right()
