"""Fixtures for Pub/Sub: the stand-in of ours, always; Google's emulator where its jar is found.

A test module says `pytest_plugins = ("tests.pubsub",)`.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents import devcloud
from jobevents.backends.pubsub import PubSubBus
from jobevents.backends.pubsubsubscriber import Terms
from tests.pubsub_server import PubSubServer

_START_S = 30.0


@pytest.fixture(scope="session")
def pubsub_stand_in() -> Iterator[PubSubServer]:
    """The stand-in, listening."""
    server = PubSubServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pubsub_server(pubsub_stand_in: PubSubServer, monkeypatch: pytest.MonkeyPatch) -> PubSubServer:
    """The stand-in without topics and faults, named in PUBSUB_EMULATOR_HOST."""
    pubsub_stand_in.reset()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_stand_in.host)
    return pubsub_stand_in


@pytest.fixture(scope="session")
def pubsub_jar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Google's emulator in a process of its own: host and port."""
    jar, java = devcloud.pubsub_jar(), shutil.which("java")
    if jar is None or java is None:
        what = "java" if jar else f"the emulator's jar (in its package's place, or named by {devcloud.JAR})"
        pytest.skip(
            f"no {what}: Google's Pub/Sub emulator is NOT tested. Run: apt-get install google-cloud-cli-pubsub-emulator"
        )
    output = tmp_path_factory.mktemp("pubsub") / "emulator.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with output.open("wb") as log:
        process = subprocess.Popen(
            devcloud.leashed(
                [java, "-Xmx512m", "-XX:+UseSerialGC", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"]
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _await(process, port, output)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.fixture(params=["stand-in", "jar"])
def pubsub_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each server in turn, named in PUBSUB_EMULATOR_HOST."""
    if request.param == "stand-in":
        return str(request.getfixturevalue("pubsub_server").host)
    host = str(request.getfixturevalue("pubsub_jar"))
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
    return host


@pytest.fixture
def topic() -> str:
    """The name of a topic that is not there yet, in a project of its own."""
    return f"projects/test-{uuid.uuid4().hex[:12]}/topics/jobs"


@pytest.fixture
def pubsub(pubsub_host: str, topic: str) -> Iterator[PubSubBus]:
    """A topic on each server."""
    bus = PubSubBus(
        topic, terms=Terms(ack_deadline_s=10)
    )  # a pull broken off on the emulator keeps what it took for so long
    bus.create_topic()
    yield bus
    bus.close()


def _await(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    give_up = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5) as probe:
            probe.settimeout(2)
            probe.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if b"Ok" in probe.recv(1000):
                return
        time.sleep(0.1)
    pytest.fail(f"the Pub/Sub emulator does not answer: {output.read_text(errors='replace')[-500:]}")
