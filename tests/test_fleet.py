"""The whole of it, in processes: workers that are killed, projectors that are killed, Pub/Sub that goes away and comes back.

`make fleet` makes it as large as it is meant, with the log in a bucket and in files: 3,000 jobs, an outage of 20 s. Without it, a
small part in a bucket.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobevents import codec, connect
from jobevents.backends.pubsub import PubSubBus
from jobevents.backends.pubsubsubscriber import Terms
from jobevents.errors import AppendUnknown, Conflict, Unavailable
from jobevents.events import Event, JobSucceeded
from jobevents.job import SUCCEEDED, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from jobevents.testing.bus import subscribed
from projections.index import Index
from tests.cli import start
from tests.fleet import DEADLINE_S, job_ids
from tests.gcs_proxy import GcsProxy
from tests.pubsub_server import PubSubServer

pytest_plugins = ("tests.pubsub", "tests.gcs")

WORKERS, PROJECTORS, SUBMITTERS = 4, 2, 8
JOBS = int(os.environ.get("JOBEVENTS_FLEET_JOBS", "40"))
OUTAGE_S = float(os.environ.get("JOBEVENTS_FLEET_OUTAGE_S", "2"))
SETTLE_S = 60.0 + 6 * OUTAGE_S  # a killed projector's messages come again after 20 s, its role is free after 15 s


@pytest.fixture(params=["gcs", "files"] if "JOBEVENTS_FLEET_JOBS" in os.environ else ["gcs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int, dict[str, str]]:
    """The URL of an empty log, how many jobs to run on it, and what its processes need in their environment."""
    if request.param == "files":
        return f"file://{tmp_path}/log", JOBS, {}
    bucket = str(request.getfixturevalue("gcs_bucket"))
    proxy: GcsProxy = request.getfixturevalue("gcs_proxy")
    proxy.keeps_requests = False
    return f"gs://{bucket}/tenant", JOBS, {"STORAGE_EMULATOR_HOST": proxy.url}


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
    for process in started:
        process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_fleet_survives(
    place: tuple[str, int, dict[str, str]],
    pubsub_server: PubSubServer,
    topic: str,
    tmp_path: Path,
    processes: list["subprocess.Popen[str]"],
) -> None:
    """Every status is the fold, the index is whole, nothing has succeeded twice, and a stranger got every event."""
    bare, count, env = place
    url = f"{bare}?topic={topic}"
    env = {**env, "PUBSUB_EMULATOR_HOST": pubsub_server.host}
    pubsub_server.topics.add(topic)
    rans = [tmp_path / f"ran-{n}" for n in range(WORKERS)]

    def project() -> None:
        sweep = ("--sweep-hours", "0.003", "--sweep-seconds", "2")
        processes.append(start("project", "--create", "--url", url, *sweep, cwd=tmp_path, env=env))

    quick = PubSubBus(topic, terms=Terms(ack_deadline_s=10))  # what a dead projector held is delivered again after this
    subscribed(quick, "jobs-projector").close()
    with connect(url) as jobs:
        assert jobs.bus is not None
        stranger = subscribed(jobs.bus, "stranger")
        for _ in range(PROJECTORS):
            project()
        workers = [_worker(url, count, n, ran, env) for n, ran in enumerate(rans)]
        processes += workers
        _submit(jobs, count, lambda: _until(lambda: _ran(rans) > count // 6, "work is under way"))
        _until(lambda: _ran(rans) > count // 3, "a third has run")
        pubsub_server.unavailable()
        for victim in (processes[0], workers[0], workers[1]):
            victim.kill()
        time.sleep(OUTAGE_S)
        pubsub_server.unavailable(False)
        for worker in workers[2:]:
            _, err = worker.communicate(timeout=DEADLINE_S)
            assert 0 == worker.returncode, err
        _until(lambda: _has_all(Index(jobs.blobs, jobs.prefix), count), "the index is whole", seconds=SETTLE_S)
        late = job_ids(count)
        _until(lambda: _are_shown(jobs, late), "every status is the fold of the log", seconds=SETTLE_S)

        histories: dict[str, list[Event]] = {}
        for record in jobs.log.scan():
            histories.setdefault(record.job_id, []).append(codec.decode(record.data))
        assert job_ids(count) == sorted(histories)
        for job_id, history in histories.items():
            assert SUCCEEDED == fold(history).state
            assert 1 == Counter(type(event) for event in history)[JobSucceeded], job_id
            assert status_bytes(fold(history)) == _stored(jobs, job_id)
        assert _has_all(Index(jobs.blobs, jobs.prefix), count)
        events = {(job_id, event.version) for job_id, history in histories.items() for event in history}
        got: set[tuple[str, int]] = set()
        _until(lambda: _take(stranger, got) >= events, "the stranger has every event", seconds=SETTLE_S)


def _worker(url: str, count: int, seed: int, ran: Path, env: dict[str, str]) -> "subprocess.Popen[str]":
    root = Path(__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fleet", url, str(count), str(seed), str(ran)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _submit(jobs: Jobs, count: int, after_half: Callable[[], None]) -> None:
    """Submit every job that no worker has begun yet: a task may be delivered before its record is there.

    As whoever submits does: again, with the same id, when the store did not answer for as long as an append waits.
    """

    def submit(job_id: str) -> None:
        ends = time.monotonic() + DEADLINE_S
        while True:
            try:
                with suppress(Conflict):  # a worker was first
                    jobs.submit("render", id=job_id, external=True)
                return
            except (AppendUnknown, Unavailable):
                assert time.monotonic() < ends, f"it could not be submitted: {job_id}"

    ids = job_ids(count)
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit, ids[: count // 2]))
        after_half()
        list(pool.map(submit, ids[count // 2 :]))


def _ran(rans: list[Path]) -> int:
    return sum(len(ran.read_text().splitlines()) for ran in rans if ran.exists())


def _has_all(index: Index, count: int) -> bool:
    return index.exists() and {index.counts()[state] for state in ("all", SUCCEEDED)} == {count}


def _are_shown(jobs: Jobs, late: list[str]) -> bool:
    """Look at the jobs whose status was not the fold of the log yet, and keep in `late` those of which it still is not."""
    late[:] = [one for one in late if _stored(jobs, one) != status_bytes(fold(jobs.log.read(one)))]
    return not late


def _stored(jobs: Jobs, job_id: str) -> bytes:
    try:
        blob = jobs.blobs.get(jobs.blob_name(status_name(job_id)))
    except LookupError:
        return b""
    assert blob is not None
    return bytes(blob.data)


def _take(subscriber: Any, got: set[tuple[str, int]]) -> set[tuple[str, int]]:
    taken = subscriber.pull(1000, 0.1)
    got |= {(one.notice.job_id, one.notice.version) for one in taken if one.notice}
    subscriber.ack(taken)
    return got


def _until(holds: Callable[[], bool], what: str, *, seconds: float = DEADLINE_S) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"it never came to be that {what}"
        time.sleep(0.1)
    print(f"{what}: {time.monotonic() - began:.1f} s")
