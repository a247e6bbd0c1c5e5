"""The whole loop: submit, dispatch, guarded handler, retry, over a service that dies, doubles and is redeployed."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobevents.backends.cloudtasks import EMULATOR, CloudTasksDispatch
from jobevents.events import Event, JobFailed, JobRequeued, JobStarted, JobSucceeded
from jobevents.wiring import connect
from tests.cloudtasks_server import CloudTasksServer, post
from tests.push_service import LEASE_S
from tests.tokens import ACCOUNT, Issuer

QUEUE = "projects/p/locations/l/queues/q"
JOBS = int(os.environ.get("JOBEVENTS_DELIVERIES", "150"))  # the thousand take two minutes


class Service:
    """The service under a supervisor: started again whenever it is dead."""

    def __init__(self, url: str, port: int, keys: Path, env: dict[str, str]) -> None:
        self._args = (url, str(port))
        self._keys = keys
        self._env = {**os.environ, **env}
        self.version = "old"
        self.starts = 0
        self._stopping = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.starts += 1
        more = (self.version, str(self._keys), str(self.starts))
        return subprocess.Popen([sys.executable, "-m", "tests.push_service", *self._args, *more], env=self._env)

    def _supervise(self) -> None:
        while not self._stopping.wait(0.05):
            if self._process.poll() is not None:
                self._process = self._start()

    def deploy(self, version: str) -> None:
        """Stop the old version by SIGTERM and start the new one, while it is at work."""
        self.version = version
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it for good."""
        self._stopping.set()
        self._thread.join(10)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        finally:
            self._process.kill()


@pytest.fixture
def tasks() -> Iterator[CloudTasksServer]:
    """A stand-in for Cloud Tasks with one queue."""
    server = CloudTasksServer()
    server.queues.add(QUEUE)
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_job_succeeds_once_whatever_happens_to_its_deliveries(
    tasks: CloudTasksServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doubled at random, its worker dead at random, redeployed in the middle; and the history of each says what happened."""
    monkeypatch.setenv(EMULATOR, tasks.host)
    google = Issuer()
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(google.keys))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    dispatch = CloudTasksDispatch(QUEUE, f"http://127.0.0.1:{port}", ACCOUNT)
    with connect(url, dispatch=dispatch, lease_s=LEASE_S) as jobs:
        jobs.presence.vouch()  # it gives back the jobs of the dead, too
        service = Service(url, port, keys, {EMULATOR: tasks.host, "QUEUE": QUEUE})
        try:
            wanted = [{"name": "render", "params": {"n": n}, "external": True, "max_attempts": 50} for n in range(JOBS)]
            ids = jobs.submit_many(wanted)
            deployed = threading.Event()

            def is_over() -> bool:
                done = jobs.desk.census.tally() if jobs.desk else []
                count = sum(one.jobs for one in done if one.state == "succeeded")
                if count > JOBS // 2 and not deployed.is_set():
                    deployed.set()
                    service.deploy("new")
                time.sleep(0.02)
                return count == JOBS

            answers = tasks.deliver(
                lambda task: post(task, google.token()),
                until=is_over,
                rng=random.Random(7),
                twice=0.3,
                patience_s=60 + JOBS,
            )
        finally:
            service.stop()
        histories = {job_id: jobs.history(job_id) for job_id in ids}

    assert {1} == {sum(isinstance(event, JobSucceeded) for event in events) for events in histories.values()}
    assert [] == [job_id for job_id, events in histories.items() if _unexplained(events)]
    assert {"old", "new"} == {_version(events) for events in histories.values()}
    assert service.starts > 2, "nothing died"
    assert any(isinstance(one, JobRequeued) and one.cause == "lost" for events in histories.values() for one in events)
    assert answers[200] >= JOBS
    assert {200, 503, 0} >= set(answers), answers
    kept = (tmp_path / "keys.json.done").read_text().split("\n")[:-1]
    assert set(ids) == {line.split()[0] for line in kept}


def _version(events: list[Event]) -> Any:
    return next(event.result["version"] for event in events if isinstance(event, JobSucceeded))


def _unexplained(events: list[Event]) -> bool:
    """Tell whether a job was started twice without an event that says why."""
    runs = False
    for event in events:
        if isinstance(event, JobStarted):
            if runs:
                return True
            runs = True
        elif isinstance(event, JobFailed | JobRequeued | JobSucceeded):
            runs = False
    return runs
