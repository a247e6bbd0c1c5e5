"""Postgres lost at any moment: cut connections, ended sessions, servers that crash, writers that are killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobevents import connect
from jobevents.backends.postgres import PostgresRecorder, migrate
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgressession import Session
from jobevents.backends.postgresurl import parse
from jobevents.errors import AppendUnknown, Unavailable
from jobevents.events import Event
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.log import EventLog, Record
from jobevents.store import JobLog
from jobevents.testing.log_events import AT, bare, note, queued
from jobevents.workers import Lease
from tests import test_crash
from tests.lives import Lives
from tests.postgres_proxy import Side, Wire
from tests.postgres_server import Cluster
from tests.test_crash import Survived

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def wire(postgres: Cluster) -> Iterator[Wire]:
    """A wire to the server."""
    with Wire(postgres.port) as wire:
        yield wire


def over(url: str, wire: Wire, **options: Any) -> str:
    """Return a URL by way of a wire."""
    place, _, schema = url.partition("?")
    head, _, database = place.rpartition("/")
    more = "".join(f"&{key}={value}" for key, value in options.items())
    return f"{head.rpartition(':')[0]}:{wire.port}/{database}?{schema}{more}"


def opened(url: str) -> EventLog:
    """Open a log."""
    recorder = PostgresRecorder.open(url)
    return EventLog(recorder, recorder.translate)


def line(seq: int) -> JobLog:
    return JobLog(run_id="a", seq=seq, attempt=1, at=AT, level="info", message="m")


CALLS: dict[str, Callable[[Jobs, int], object]] = {
    "append": lambda jobs, n: jobs.log.append([note("a", 2 + n)]),
    "append two jobs": lambda jobs, n: jobs.log.append([note(f"b{n}", 1), note(f"c{n}", 1)]),
    "read": lambda jobs, _: jobs.log.read("a"),
    "scan": lambda jobs, _: list(jobs.log.scan()),
    "submit": lambda jobs, n: jobs.submit("render", id=f"job-{n}", key=f"k{n}"),
    "list": lambda jobs, _: jobs.runs.list(_everything()),
    "lines": lambda jobs, n: jobs.run_logs.append_logs([line(n)]),
    "lease": lambda jobs, n: jobs.presence.leases.renew(_lease(n)),
    "put": lambda jobs, n: jobs.blobs.put(f"a/{n}", b"1", if_generation="0"),
    "put over": lambda jobs, _: jobs.blobs.put("over", b"1"),
    "put many": lambda jobs, n: jobs.blobs.put_many([(f"m/{n}", b"1", "0", {}), (f"n/{n}", b"1", "0", {})]),  # type: ignore[attr-defined]
}


def _everything() -> Any:
    from jobevents.store import RunFilter

    return RunFilter(per_page=0)


def _lease(n: int) -> Lease:
    return Lease(worker=f"w{n}", host="h", pid=1, started_at=AT, version="1", lease_s=30.0)


@pytest.mark.parametrize("side", ["asked", "answered"])
@pytest.mark.parametrize("name", list(CALLS))
def test_a_connection_cut_at_any_parcel_is_not_noticed(postgres_url: str, wire: Wire, name: str, side: Side) -> None:
    """Whatever of a call's talk with the server is the last to go through, the call succeeds, and its effect is there once."""
    with connect(over(postgres_url, wire)) as jobs:
        jobs.log.append([queued("a")], rows=[fold([queued("a")])])
        answers = []
        for n in range(1, 30):
            wire.cut_at(n, side)
            answers.append(CALLS[name](jobs, n - 1))
            if not wire.is_cut:
                break

        assert 2 <= len(answers) < 29  # at least one cut was met, and then there was nothing left to cut
        if name == "append":
            assert list(range(1, 2 + len(answers))) == [event.version for event in jobs.log.read("a")]
        if name == "put many":
            assert all(all(answer) for answer in answers)  # type: ignore[call-overload]
        cursors = [int(record.cursor) for record in jobs.log.scan()]
        assert sorted(set(cursors)) == cursors


def test_a_lost_reply_that_nobody_can_ask_for_is_unknown(postgres_url: str, wire: Wire) -> None:
    """The commit's reply is lost and the server stays away: AppendUnknown names the event, which may be there."""
    log = opened(over(postgres_url, wire, timeout_s=0.3))
    event = queued("a")

    wire.cut_at(1, "answered", for_good=True)
    with pytest.raises(AppendUnknown) as unknown:
        log.append([event])

    assert ("a", 1, event.id) == (unknown.value.job_id, unknown.value.version, unknown.value.event_id)
    with closing(opened(postgres_url)) as other:
        assert [event] == bare(other.read("a"))
    log.close()


def test_an_append_that_was_never_sent_is_unavailable(postgres_url: str, wire: Wire) -> None:
    """Nothing went out: the caller may rely on it that nothing was written."""
    log = opened(over(postgres_url, wire, timeout_s=0.3))

    wire.shut()
    with pytest.raises(Unavailable, match="port="):
        log.append([queued("a")])

    with closing(opened(postgres_url)) as other:
        assert [] == other.read("a")
    log.close()


def test_an_error_on_a_connection_that_is_lost_is_not_the_last_word(postgres: Cluster, postgres_url: str) -> None:
    """A write meets its own first try, whose reply was lost, and loses its connection too: it is made a third time."""
    database = PostgresDatabase(parse(postgres_url))
    tries: list[int] = []

    def write(connection: Session) -> str:
        tries.append(len(tries))
        if tries == [0]:
            raise psycopg.OperationalError("reply was lost")
        if tries == [0, 1]:
            with postgres.connect() as killer:
                killer.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
            with suppress(psycopg.Error):
                connection.execute("SELECT 1")
            raise psycopg.errors.UniqueViolation("slot is taken")
        return "written"

    assert "written" == database.write(write)
    database.close()


@pytest.mark.slow
def test_sessions_ended_all_the_while_are_not_noticed(postgres: Cluster, postgres_url: str) -> None:
    """Five hundred sessions are ended, while threads append, read and follow: no error, nothing lost or doubled.

    Whoever ends them lets everybody come through now and then, as a server does that is not down: a machine so slow that no
    connection lives for one statement would be an outage, of which callers are told.
    """
    victim = f"{postgres_url}&application_name=victim"
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"
    stop = threading.Event()
    came_through = dict.fromkeys([*range(4), "read", "follow"], 0)  # how often

    def append(number: int) -> list[Event]:
        stored: list[Event] = []
        while not stop.is_set():
            stored += log.append([note(f"job-{number}", len(stored) + 1)])
            came_through[number] += 1
        return stored

    def read() -> None:
        while not stop.is_set():
            before = len(log.read("job-0"))
            assert before <= len(log.read("job-0"))
            assert len(list(log.scan(limit=500))) <= 500
            came_through["read"] += 1

    def follow() -> list[Record]:
        seen = []
        for record in feed:
            seen.append(record)
            came_through["follow"] += 1
            if record.job_id == "end":
                break
        return seen

    rng = random.Random(9)
    ended = 0
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        log = stack.enter_context(closing(opened(victim)))
        feed = stack.enter_context(log.subscribe())
        stack.callback(stop.set)  # whatever goes wrong here, nobody goes on for ever
        killer = stack.enter_context(postgres.connect())
        following = pool.submit(follow)
        reading = pool.submit(read)
        working = [pool.submit(append, n) for n in range(4)]
        while ended < 500:
            for _ in range(rng.randint(1, 8)):
                ended += killer.execute(end).rowcount
                stop.wait(rng.uniform(0, 0.03))
            before = came_through.copy()
            while any(came_through[who] == before[who] for who in before):
                for one in (following, reading, *working):
                    if one.done():
                        one.result()
                stop.wait(0.01)
        stop.set()
        stored = [one.result(60) for one in working]
        reading.result(60)
        log.append([note("end", 1)])
        seen = following.result(60)

        for number in range(4):
            assert stored[number] == log.read(f"job-{number}")
            assert list(range(1, len(stored[number]) + 1)) == [event.version for event in stored[number]]
        assert list(log.scan()) == seen


def test_sto_09_a_server_that_crashed_while_idle(postgres: Cluster, postgres_url: str) -> None:
    """STO-09: all connections are dead; the next calls, and a feed that waits, go on without a restart of ours."""
    with connect(postgres_url) as jobs, jobs.log.subscribe() as feed:
        jobs.submit("render", id="before")
        next(feed)

        postgres.crash()

        assert "queued" == jobs.get("before").state
        jobs.submit("render", id="after")
        assert "after" == next(feed).job_id


def test_sto_09_a_server_that_crashes_during_an_attempt(postgres: Cluster, postgres_url: str) -> None:
    """STO-09: the handler does not notice, and its outcome is recorded."""
    with connect(postgres_url) as jobs:
        job_id = jobs.submit("render")
        with jobs.attempt(job_id) as attempt:
            attempt.log("before")

            postgres.crash()

            attempt.progress(50)
            attempt.log("after")
            attempt.result("done")

        assert ("succeeded", "done") == (jobs.job(job_id).state, jobs.job(job_id).result)
        assert ["before", "after"] == [found.message for found in jobs.run_logs.logs(job_id)]


@pytest.mark.slow
def test_sto_09_a_server_that_crashes_under_load(postgres: Cluster, postgres_url: str) -> None:
    """STO-09: twice in the middle of four writers; every event that was acknowledged is there, in its slot, once."""
    log = opened(postgres_url)
    crashed = threading.Event()

    def write(number: int) -> list[Event]:
        stored: list[Event] = []
        while not crashed.is_set():
            stored += log.append([note(f"job-{number}", len(stored) + 1)])
        return stored

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, n) for n in range(4)]
        for _ in range(2):
            before = log.last_cursor() or "0"
            while int(log.last_cursor() or 0) < int(before) + 20:
                crashed.wait(0.01)
            postgres.crash()
        crashed.set()
        stored = [one.result(60) for one in writing]

    assert stored == [log.read(f"job-{n}") for n in range(4)]
    log.close()


@pytest.mark.slow
def test_sto_09_a_server_that_is_down_for_ten_seconds(postgres: Cluster, postgres_url: str) -> None:
    """STO-09: meanwhile a short-tempered caller is told, a patient one waits, and afterwards all goes on."""
    with connect(f"{postgres_url}&timeout_s=1") as hasty, connect(postgres_url) as patient:
        job_id = patient.submit("render")
        with ThreadPoolExecutor(1) as pool, patient.attempt(job_id) as attempt:
            postgres.stop(signal.SIGQUIT)
            try:
                with pytest.raises(Unavailable, match="cannot connect"):
                    hasty.get(job_id)
                waiting = pool.submit(lambda: patient.submit("render", id="waited"))
                time.sleep(9)  # what is tested is a time
            finally:
                postgres.start()
            attempt.result("done")
            assert "waited" == waiting.result(30)

        assert "succeeded" == hasty.get(job_id).state


@pytest.fixture(scope="module")
def survived(postgres: Cluster) -> Iterator[Survived]:
    """Have eight processes write, kill one after another and start others instead, and read the feed now and then."""
    rng = random.Random(20)
    told: dict[tuple[str, int], str] = {}
    seen: list[Record] = []
    url = postgres.url(schema="survived")
    migrate(url)
    with Lives() as lives, connect(url) as reader:
        for life in range(6):
            roles = [("write", {"url": url, "seed": 8 * life + n, "threads": rng.randint(1, 3)}) for n in range(8)]
            pids = lives.start(*roles)
            heard = lives.hear_until("appended", 50)
            for pid in pids:
                heard += lives.hear_for(rng.uniform(0.01, 0.1))
                os.kill(pid, signal.SIGKILL)
            heard += lives.hear_until("ended", len(pids) - sum(one.what == "ended" for one in heard))
            assert {"appended", "ended"} >= {one.what for one in heard}, heard
            told |= {(one.rest[0], one.rest[1]): one.rest[2] for one in heard if one.what == "appended"}
            seen += reader.log.scan(seen[-1].cursor if seen else "")
    with connect(url) as jobs:
        yield Survived(Path(), told, seen, jobs)


for _name, _test in vars(test_crash).items():
    if _name.startswith("test_a_killed_writer") and "id_given_out" not in _name:
        globals()[_name] = _test


@pytest.mark.slow
def test_a_killed_writer_makes_no_reader_pass_over_an_event(survived: Survived) -> None:
    """What was read while writers were killed is the beginning of the feed as it is at the end."""
    assert list(survived.jobs.log.scan(limit=len(survived.seen))) == survived.seen
    cursors = [int(record.cursor) for record in survived.jobs.log.scan()]
    assert sorted(set(cursors)) == cursors


_FORK = """
import os, sys, threading
from jobevents import connect
jobs = connect(sys.argv[1])
feed = jobs.log.subscribe()
jobs.submit("render", id="before")
children = []
for n in range(4):
    child = os.fork()
    if child == 0:
        for turn in range(25):
            jobs.submit("render", id=f"child-{n}-{turn}")
        jobs.close()
        os._exit(0)
    children.append(child)
for turn in range(25):
    jobs.submit("render", id=f"parent-{turn}")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
seen = [next(feed).job_id for _ in range(126)]
feed.close()
jobs.close()
print(codes, len(set(seen)), [thread.name for thread in threading.enumerate()])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_sto_13_forked_children_open_their_own(postgres_url: str) -> None:
    """STO-13: children and parent go on after a fork, each by connections of its own, and a child's close is its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FORK, postgres_url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "[0, 0, 0, 0] 126 ['MainThread']" == done.stdout.strip(), done.stderr
