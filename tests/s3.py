"""Fixtures for S3: moto's server behind the strict proxy, a fresh bucket for each test.

A test module says `pytest_plugins = ("tests.s3",)`.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from jobevents.backends.s3 import S3Blobs
from jobevents.backoff import Backoff
from tests.fake_time import FakeTime
from tests.s3_proxy import S3Proxy

_INSTALL = "python -m pip install 'moto[s3,server]' boto3"
_START_S = 30.0


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """Moto in a process of its own, and the proxy before it."""
    if find_spec("moto") is None or find_spec("flask_cors") is None:
        message = f"moto is not installed; S3 is NOT tested. Run: {_INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    proxy = S3Proxy()
    output = tmp_path_factory.mktemp("s3") / "moto.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    run = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with output.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", run], stdout=log, stderr=log)
    give_up = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            break
        time.sleep(0.05)
    else:
        process.kill()
        pytest.fail(f"moto does not answer: {output.read_text(errors='replace')[-500:]}")
    proxy.start(port)
    yield proxy
    proxy.stop()
    process.terminate()
    process.wait(10)


@pytest.fixture
def s3_proxy(s3_server: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """The proxy without faults, named in the environment; fails the test for calls that nobody should make."""
    s3_server.reset()
    given = {
        "AWS_ENDPOINT_URL_S3": s3_server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield s3_server
    assert [] == s3_server.violations


@pytest.fixture
def s3_bucket(s3_proxy: S3Proxy) -> str:
    """The name of a bucket made for this test."""
    name = f"test-{uuid.uuid4().hex}"
    assert 200 == s3_proxy.ask("PUT", f"/{name}").status
    return name


@pytest.fixture
def s3_time() -> FakeTime:
    """The time by which `s3_blobs` waits between its tries."""
    return FakeTime()


@pytest.fixture
def s3_blobs(s3_bucket: str, s3_time: FakeTime) -> Iterator[S3Blobs]:
    """The bucket as blobs, with waits that take no time."""
    blobs = S3Blobs(s3_bucket, backoff=Backoff(sleep=s3_time.sleep, clock=s3_time.clock))
    yield blobs
    blobs.close()
