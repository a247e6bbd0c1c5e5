"""`jobevents project` on a log of objects: hints from Pub/Sub, the sweep, its health, its stop."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.bus import InProcessBus, message_schema
from jobevents.errors import Misconfigured
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from jobevents.wiring_bus import service
from projections.healthz import HealthServer
from projections.index import Index
from projections.service import ProjectorService
from projections.sweeper import Terms
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture
from tests.pubsub_server import PubSubServer

pytest_plugins = ("tests.pubsub",)


def until(holds: Callable[[], Any], *, seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it never came to be"
        time.sleep(0.02)


def is_right(jobs: Jobs) -> bool:
    """Tell whether every status is the fold of its history, and the index has every job."""
    ids = sorted({record.job_id for record in jobs.log.scan()})
    return all(stored(jobs, one) == status_bytes(fold(jobs.log.read(one))) for one in ids) and (
        len(ids) == Index(jobs.blobs, jobs.prefix).counts()["all"]
    )


def stored(jobs: Jobs, job_id: str) -> bytes:
    try:
        blob = jobs.blobs.get(jobs.blob_name(status_name(job_id)))
    except LookupError:
        return b""
    assert blob is not None
    return bytes(blob.data)


def work(jobs: Jobs, count: int, prefix: str = "song") -> None:
    for n in range(count):
        with jobs.attempt(jobs.submit("render", id=f"{prefix}-{n}")):
            pass


@pytest.fixture
def bus() -> Iterator[InProcessBus]:
    made = InProcessBus()
    yield made
    made.close()


@pytest.fixture
def jobs(bus: InProcessBus) -> Iterator[Jobs]:
    """Jobs on a log of objects in memory, whose events go out by a bus in memory."""
    with connect("memory://?log=blobs", bus=bus) as made:
        yield made


@pytest.fixture
def running(jobs: Jobs) -> Iterator[ProjectorService]:
    """The service in a thread of its own."""
    made = service(jobs, "projector", create=True)
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_the_service_keeps_the_views_in_step(jobs: Jobs, running: ProjectorService) -> None:
    """Events that come are in the views soon, and it says that it is well."""
    work(jobs, 10)

    until(lambda: is_right(jobs))
    until(lambda: running.condition().waiting == 0)
    assert running.condition().ok


@pytest.mark.slow
def test_what_was_there_before_the_subscription_is_found(jobs: Jobs) -> None:
    """A new subscription has the sweep go through everything at once."""
    work(jobs, 5, "old")
    made = service(jobs, "projector", create=True)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        until(lambda: is_right(jobs))
        until(lambda: made.condition().complete_through is not None)
    finally:
        made.stop()
        thread.join(20)


def test_fault_28_a_stop_stores_what_was_taken(bus: InProcessBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statuses that wait for their second are written before the end; what was not taken is delivered again."""
    monkeypatch.setattr(MemoryBlobs, "min_write_interval_s", 1.05)
    with connect("memory://?log=blobs", bus=bus) as jobs:
        made = service(jobs, "projector", create=True)
        thread = threading.Thread(target=made.run)
        thread.start()
        jobs.submit("render", id="song")
        until(lambda: stored(jobs, "song"))
        with jobs.attempt("song"):
            pass
        until(lambda: made._inflow.taken("song").version == 3)
        began = time.monotonic()
        made.stop()
        thread.join(20)

        assert time.monotonic() - began < 10
        assert is_right(jobs)
        jobs.submit("render", id="after")
        assert ["after"] == [one.notice.job_id for one in bus.subscriber("projector").pull(10, 0) if one.notice]


def test_a_thread_that_dies_ends_the_service(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not left half alive: it ends with the error, to be started anew."""
    made = service(jobs, "projector", create=True)

    def broken(*args: object) -> int:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(made._sweeper, "step", broken)
    with pytest.raises(ZeroDivisionError):
        made.run()


def test_health_is_served(jobs: Jobs, running: ProjectorService) -> None:
    """200 while it is well, 503 with the reasons when no cycle was completed for two hours; counters for whoever counts."""
    server = HealthServer(running.condition, host="127.0.0.1", port=0)
    try:
        until(lambda: _get(server, "/healthz")[0] == 200)
        jobs.counts.add("notice_forged", 3)
        metrics = _get(server, "/metrics")[1]
        assert "jobevents_notice_forged_total 3\n" in metrics
        assert "jobevents_projector_ok 1.000\n" in metrics
        assert 404 == _get(server, "/other")[0]

        running._monotonic = lambda: time.monotonic() + 7300
        code, text = _get(server, "/healthz")
        assert 503 == code
        assert ["no cycle of the sweep was completed for 2 hours"] == json.loads(text)["problems"]
    finally:
        server.close()


def _get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_lasting_trouble_is_bad_health(jobs: Jobs, bus: InProcessBus) -> None:
    """A bus that cannot be pulled from for two minutes is said to be the reason."""
    now = [0.0]
    made = service(jobs, "mistyped")
    made._monotonic = lambda: now[0]
    made._began = 0.0
    assert made._hints is not None
    made._hints.step(0)
    assert made.condition().ok
    now[0] = 130.0

    condition = made.condition()

    assert not condition.ok
    assert "no such subscription" in condition.problems[0]
    made._hints.close()


def test_a_log_with_one_sequence_has_no_need_of_it() -> None:
    """Asking for it on such a log is a mistake, and is said to be one."""
    with connect("memory://") as jobs, pytest.raises(Misconfigured, match="sequence"):
        service(jobs)


def test_a_subscription_needs_a_topic() -> None:
    """Without one nothing would ever come."""
    with connect("memory://?log=blobs") as jobs, pytest.raises(Misconfigured, match="topic"):
        service(jobs, "projector")


def test_once_without_a_bus(jobevents: CommandLine, tmp_path: Path) -> None:
    """The sweep alone finds everything."""
    url = f"file://{tmp_path}/log"
    with connect(url) as jobs:
        work(jobs, 3)

        told = jobevents("project", "--once", "--url", url)

        assert (0, True) == (told.code, told.json["ok"])
        assert is_right(jobs)


@pytest.mark.slow
def test_once_takes_what_waits(pubsub_server: PubSubServer, topic: str, jobevents: CommandLine, tmp_path: Path) -> None:
    """Messages that wait are acknowledged, and what was published before the subscription is found."""
    url = f"file://{tmp_path}/log?topic={topic}"
    pubsub_server.topics.add(topic)
    with connect(url) as jobs:
        work(jobs, 2, "before")
        assert 0 == jobevents("project", "--once", "--create", "--url", url).code
        assert is_right(jobs)
        work(jobs, 2, "after")
    with connect(url) as jobs:
        told = jobevents("project", "--once", "--url", url)

        assert 0 == told.code
        assert is_right(jobs)
    name = f"{topic.rpartition('/topics/')[0]}/subscriptions/jobs-projector"
    assert 0 == pubsub_server.waiting(name)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--subscription", "nobody"), "--create"),
        (("--view", "status"), "--view"),
        (("--subscription", "a/b"), "subscription"),
    ],
)
def test_a_mistake_is_told(
    pubsub_server: PubSubServer, topic: str, jobevents: CommandLine, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    """What cannot work ends at once with what to change."""
    pubsub_server.topics.add(topic)
    (tmp_path / "log").mkdir()

    told = jobevents("project", "--once", "--url", f"file://{tmp_path}/log?topic={topic}", *args)

    assert told.code > 0
    assert said in told.err


def test_a_log_in_a_database_takes_no_subscription(jobevents: CommandLine) -> None:
    """It is followed by its own sequence."""
    with connect("sqlite:///jobs.db"):
        told = jobevents("project", "--once", "--subscription", "x")

    assert 2 == told.code


def test_the_schema_is_printed(jobevents: CommandLine) -> None:
    """Consumers in other languages get the schema from the command line."""
    assert message_schema() == jobevents("schema").json


@pytest.mark.slow
def test_the_command_runs_until_sigterm(pubsub_server: PubSubServer, topic: str, tmp_path: Path) -> None:
    """A process of its own: its health is answered, statuses follow, SIGTERM ends it with exit 0."""
    url = f"file://{tmp_path}/log?topic={topic}"
    pubsub_server.topics.add(topic)
    port = _free_port()
    process = start(
        "project", "--create", "--url", url, "--port", str(port),
        cwd=tmp_path, env={"PUBSUB_EMULATOR_HOST": pubsub_server.host},
    )  # fmt: skip
    try:
        with connect(url) as jobs:
            work(jobs, 5)
            until(lambda: is_right(jobs))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
                assert json.loads(reply.read())["ok"]
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()

    assert (0, "") == (process.returncode, "".join(line for line in err.splitlines() if "rror" in line))
    assert json.loads(out)["ok"]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends a child whose parent was killed")
def test_the_emulators_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """No emulator is left behind, whatever ended `dev-cloud`."""
    process = start("dev-cloud", cwd=tmp_path)
    assert process.stdout is not None
    cloud = json.loads(process.stdout.readline())
    process.kill()
    process.communicate()

    until(lambda: all(_is_gone(pid) for pid in cloud["processes"]))


def _is_gone(pid: int) -> bool:
    return subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode != 0


@pytest.mark.slow
def test_the_emulators_start_with_one_command(
    tmp_path: Path, jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jobevents dev-cloud` prints what to use: a job is submitted and projected with it; Ctrl-C ends everything."""
    process = start("dev-cloud", cwd=tmp_path)
    try:
        assert process.stdout is not None
        cloud = json.loads(process.stdout.readline())
        for name, value in cloud["env"].items():
            monkeypatch.setenv(name, value)
        for args in (("submit", "render", "{}", "--id", "song"), ("project", "--once", "--create")):
            done = jobevents(*args)
            assert 0 == done.code, (args, done)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()

    assert 0 == process.returncode
    assert all(_is_gone(pid) for pid in cloud["processes"])


@pytest.mark.slow
def test_a_projector_of_a_database_is_healthy_too(tmp_path: Path) -> None:
    """--port answers for a log with one sequence as well: a container is asked, whatever its log is."""
    port = _free_port()
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url) as jobs:
        jobs.submit("render", id="song")
        process = start("project", "--url", url, cwd=tmp_path, env={"PORT": str(port)})
        try:
            until(lambda: stored(jobs, "song"))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
                condition = json.loads(reply.read())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=15)
        finally:
            process.kill()
            process.communicate()

    assert (True, 0) == (condition["ok"], process.returncode)


def test_what_the_sweep_alone_found_is_let_go_of() -> None:
    """Without a bus nothing is held in memory once it is stored."""
    with connect("memory://?log=blobs") as jobs:
        made = service(jobs, terms=Terms(rotation_s=0.5, operations_s=10_000))
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            work(jobs, 3)
            until(lambda: is_right(jobs))
            until(lambda: made.condition().waiting == 0)
        finally:
            made.stop()
            thread.join(20)


@pytest.mark.slow
def test_topic_and_subscription_lost_together(pubsub_server: PubSubServer, topic: str, tmp_path: Path) -> None:
    """An emulator that was started anew has neither: both are made again, and what was published meanwhile is found."""
    pubsub_server.topics.add(topic)
    with connect(f"file://{tmp_path}/log?topic={topic}") as jobs:
        made = service(jobs, "p", create=True, terms=Terms(open_s=0.5, calm_s=0.5, operations_s=100_000))
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            work(jobs, 2, "before")
            until(lambda: is_right(jobs))
            with pubsub_server._changed:
                pubsub_server.topics.clear()
                pubsub_server.subscriptions.clear()
            work(jobs, 2, "meanwhile")
            until(lambda: is_right(jobs), seconds=60)
            work(jobs, 2, "after")
            until(lambda: is_right(jobs), seconds=60)
        finally:
            made.stop()
            thread.join(20)

    assert jobs.counts.snapshot()["subscription_recreated"] >= 2
