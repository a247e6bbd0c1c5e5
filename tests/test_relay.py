"""The relay: every event of a log in a database reaches the bus, from a place that never skips."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.bus import Bus, InProcessBus, Notice, Publisher
from jobevents.errors import Misconfigured, Unavailable
from jobevents.jobs import Jobs
from jobevents.lease import RoleLease
from jobevents.relay import Relay
from jobevents.telemetry import Counts
from jobevents.testing.bus import collect, places, subscribed
from jobevents.wiring import migrate
from jobevents.wiring_bus import split_topic
from projections.positions import TrackedPositions
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.pubsub_server import PubSubServer

pytest_plugins = ("tests.pubsub",)


def everything(jobs: Jobs) -> list[tuple[str, int]]:
    """(job, version) of every event in the log."""
    return sorted((record.job_id, record.version) for record in jobs.log.scan())


def work(jobs: Jobs, count: int, prefix: str = "song") -> None:
    for n in range(count):
        job_id = jobs.submit("render", id=f"{prefix}-{n}")
        with jobs.attempt(job_id):
            pass


class Flaky(Publisher):
    """A publisher that says when it fails, before or after the bus has the notices."""

    def __init__(self, bus: Bus) -> None:
        self._inner = bus.publisher()
        self.fails: list[str] = []

    def publish(self, notices: Sequence[Notice]) -> None:
        self._inner.publish(notices)

    def deliver(self, notices: Sequence[Notice]) -> None:
        fault = self.fails.pop(0) if self.fails else ""
        if fault != "before":
            self._inner.deliver(notices)
        if fault:
            raise Unavailable(f"down {fault}")

    def flush(self, deadline_s: float) -> int:
        return 0

    def close(self, deadline_s: float = 5.0) -> int:
        return 0


def a_relay(jobs: Jobs, publisher: Publisher, *, batch: int = 500, counts: Counts | None = None) -> Relay:
    recorder: Any = jobs.log.recorder
    return Relay(
        jobs.log,
        publisher,
        TrackedPositions(recorder),
        "bus:test",
        alarm=recorder,
        role=lambda: RoleLease(jobs.blobs, "relay", "me"),
        counts=counts or Counts(),
        batch=batch,
    )


@pytest.fixture
def bus() -> Iterator[InProcessBus]:
    made = InProcessBus()
    made.create("all")
    yield made
    made.close()


def received(bus: InProcessBus) -> list[tuple[str, int]]:
    return places(bus.subscriber("all").pull(100_000, 0))


def test_every_event_reaches_the_bus_by_itself(url: str, bus: InProcessBus) -> None:
    """What is appended goes out soon, bytes as they are in the log."""
    with connect(url, bus=bus) as jobs:
        work(jobs, 20)
        subscriber = bus.subscriber("all")
        found = collect(subscriber, 60)
        stored = {(one.job_id, one.version): one.data for one in jobs.log.scan()}

    assert sorted(stored) == places(found)
    assert stored == {(one.notice.job_id, one.notice.version): one.notice.data for one in found if one.notice}


@pytest.mark.parametrize("ending", [None, ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_del_09_a_process_that_ends_has_sent_everything(
    url: str, bus: InProcessBus, ending: type[BaseException] | None
) -> None:
    """DEL-09: the close waits until what was appended is out, also one by an exception."""
    with pytest.raises(ending) if ending else contextlib.nullcontext(), connect(url, bus=bus) as jobs:
        work(jobs, 16)
        if ending:
            raise ending

    assert 48 == len(set(received(bus)))


def test_del_09_what_nobody_sent_is_sent_by_the_next(url: str, bus: InProcessBus, tmp_path: Path) -> None:
    """DEL-09: what a process had not sent, or had no bus for, is: the first relay begins with the log's first event."""
    if url.startswith("memory"):
        url = f"sqlite:///{tmp_path}/other.db"
    with connect(url) as jobs:
        work(jobs, 3)
    with connect(url, bus=bus) as jobs:
        jobs.submit("render", id="last")
        expected = everything(jobs)

    assert expected == sorted(set(received(bus)))


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_failure_skips_nothing(jobs: Jobs, bus: InProcessBus, fault: str) -> None:
    """Whether the bus had the notices or not, the place has not moved, and they are sent again."""
    work(jobs, 10)
    publisher = Flaky(bus)
    publisher.fails = ["", fault, "", fault, fault]
    relay = a_relay(jobs, publisher, batch=3)

    failures = 0
    while relay.behind():
        try:
            relay.step()
        except Unavailable:
            failures += 1

    assert 3 == failures
    assert everything(jobs) == sorted(set(received(bus)))


def test_a_crash_between_append_and_publish_loses_nothing(tmp_path: Path, bus: InProcessBus) -> None:
    """A process that is killed after its append leaves the event to whoever relays next (faults 3 and 29)."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    code = f"import os, jobevents; jobevents.connect({url!r}).submit('render', id='killed'); os._exit(9)"
    assert 9 == subprocess.run([sys.executable, "-c", code], check=False).returncode

    with connect(url, bus=bus) as jobs:
        jobs.submit("render", id="next")

    assert [("killed", 1), ("next", 1)] == sorted(set(received(bus)))


def test_two_relays_of_one_log_skip_nothing(jobs: Jobs, bus: InProcessBus) -> None:
    """Both think that they have the role: everything is sent, most of it twice at the worst."""
    stop = threading.Event()

    def relay() -> None:
        mine = a_relay(jobs, bus.publisher(), batch=2)
        while not stop.is_set() or mine.behind() > 0:
            mine.step()

    threads = [threading.Thread(target=relay) for _ in range(2)]
    for thread in threads:
        thread.start()
    work(jobs, 30)
    stop.set()
    for thread in threads:
        thread.join()

    assert everything(jobs) == sorted(set(received(bus)))


def test_one_process_relays_at_a_time(url: str, bus: InProcessBus, tmp_path: Path) -> None:
    """With the lease, nothing is sent twice while nobody dies."""
    if url.startswith("memory"):
        pytest.skip("one process alone has it")
    with connect(url, bus=bus) as first, connect(url, bus=bus) as second:
        work(first, 5, "a")
        collected = collect(bus.subscriber("all"), 15)
        work(second, 5, "b")
        collected += collect(bus.subscriber("all"), 15)
        expected = everything(first)

    assert expected == places(collected)


def test_over_pubsub_itself(pubsub_server: PubSubServer, topic: str, tmp_path: Path) -> None:
    """`?topic=` in the URL, the real client, an outage in the middle: every event arrives, and the place outlives the process."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal&topic={topic}"
    pubsub_server.topics.add(topic)
    with connect(url) as jobs:
        assert jobs.bus is not None
        subscriber = subscribed(jobs.bus, "all")
        work(jobs, 3)
        first = collect(subscriber, 9)
        pubsub_server.unavailable()
        work(jobs, 3, "down")
        pubsub_server.unavailable(False)
        rest = collect(subscriber, 9)
        expected = everything(jobs)
        subscriber.ack(first + rest)
    with connect(url) as jobs:
        jobs.submit("render", id="later")

    assert expected == sorted(set(places(first + rest)))
    assert ("later", "1") == (pubsub_server.published[-1][0]["job"], pubsub_server.published[-1][0]["n"])


def test_a_log_that_nobody_appended_to_is_left_alone(url: str) -> None:
    """A process that only reads neither relays nor waits at its end."""
    began = time.monotonic()
    with connect(url, bus="pubsub://projects/p/topics/t") as jobs:
        jobs.workers()

    assert time.monotonic() - began < 5


def test_what_could_not_be_sent_is_said_at_the_close(jobs: Jobs, bus: InProcessBus) -> None:
    """The close does not wait for ever, and says how much is left."""
    publisher = Flaky(bus)
    publisher.fails = ["before"] * 10_000
    counts = Counts()
    relay = a_relay(jobs, publisher, counts=counts)
    jobs.observe(relay)
    work(jobs, 1)

    assert 3 == relay.close(0.3)
    assert 3 == counts.snapshot()["relay_unsent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_relays_too(tmp_path: Path, pubsub_server: PubSubServer, topic: str) -> None:
    """Parent and child append and relay, each with threads and connections of its own."""
    pubsub_server.topics.add(topic)
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal&topic={topic}") as jobs:
        jobs.submit("render", id="before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                jobs.submit("render", id="child")
                jobs.close()
                code = 0
            finally:
                os._exit(code)
        assert (child, 0) == os.waitpid(child, 0)
        jobs.submit("render", id="parent")

    assert {"before", "child", "parent"} == {attributes["job"] for attributes, _ in pubsub_server.published}


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("sqlite:///a.db?topic=projects/p/topics/t", "sqlite:///a.db"),
        ("sqlite:////a.db?synchronous=normal&topic=projects/p/topics/t", "sqlite:////a.db?synchronous=normal"),
        ("postgresql://u:p%40@h/d?topic=projects%2Fp%2Ftopics%2Ft&schema=x", "postgresql://u:p%40@h/d?schema=x"),
        ("memory://?topic=projects/p/topics/t", "memory://"),
    ],
)
def test_the_topic_is_no_part_of_the_log(url: str, bare: str) -> None:
    """The log's own URL is what it was."""
    assert (bare, "projects/p/topics/t") == split_topic(url)


@pytest.mark.parametrize("query", ["topic=", "topic=projects/p/topics/t&topic=projects/p/topics/u", "topic=jobs"])
def test_a_topic_that_cannot_be_is_refused(query: str) -> None:
    """A mistyped topic is an error at once, not a silence later."""
    with pytest.raises(Misconfigured):
        connect(f"memory://?{query}")


def test_the_projector_sends_what_a_killed_process_left(
    pubsub_server: PubSubServer, topic: str, tmp_path: Path, jobevents: CommandLine
) -> None:
    """`jobevents project` is a process that relays, though it appends nothing."""
    pubsub_server.topics.add(topic)
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url) as jobs:
        jobs.submit("render", id="left")

    told = jobevents("project", "--once", "--url", f"{url}&topic={topic}")

    assert (0, "left") == (told.code, pubsub_server.published[0][0]["job"])


def test_the_doctor_looks_at_the_bus(
    pubsub_server: PubSubServer, topic: str, tmp_path: Path, jobevents: CommandLine
) -> None:
    """A mistyped topic shows before the first event is missed."""
    url = f"sqlite:///{tmp_path}/jobs.db?topic={topic}"
    with connect(f"sqlite:///{tmp_path}/jobs.db"):
        missing = jobevents("doctor", "--url", url)
        pubsub_server.topics.add(topic)
        there = jobevents("doctor", "--url", url)

    found = {one["check"]: one for one in missing.json}
    assert (1, False) == (missing.code, found["bus"]["ok"])
    assert "NotFound" in found["bus"]["found"]
    assert 0 == there.code, there.out


def test_migrate_takes_the_same_url(tmp_path: Path) -> None:
    """The one URL of a service works for every command."""
    assert migrate(f"sqlite:///{tmp_path}/jobs.db?topic=projects/p/topics/t")
