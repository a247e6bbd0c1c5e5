"""What the SQLite log promises beyond every recorder: threads, processes, forks, durability, errors and its schema."""

import asyncio
import contextlib
import multiprocessing
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import IntegrityError

from jobevents import errors
from jobevents.backends import sqliteschema, sqlitewal, wake
from jobevents.backends.sql import Tables, time_text
from jobevents.backends.sqlite import SqliteRecorder, ddl, migrate
from jobevents.backends.sqliteerrors import translate
from jobevents.events import Event, JobProgressed, JobStarted
from jobevents.job import Job, fold
from jobevents.log import EventLog
from jobevents.store import JobLog, run_of
from tests.histories import AT, JOB, blank, ids, make, queued, stored, write

WAIT_S = 20  # far beyond what any of this takes
spawn = multiprocessing.get_context("spawn")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
needs_sockets = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no local sockets here")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def recorder(path: Path) -> Iterator[SqliteRecorder]:
    made = SqliteRecorder.open(path)
    yield made
    made.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory whose parents every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        directory.chmod(0o755)
        yield directory
        directory.chmod(0o755)


@contextlib.contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Hold the file's write lock, as another program might."""
    outsider = sqlite3.connect(path, isolation_level=None)
    outsider.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        outsider.rollback()
        outsider.close()


def start(target: Callable[..., Any], *args: Any) -> Any:
    process = spawn.Process(target=target, args=args)
    process.start()
    return process


def finish(*processes: Any) -> None:
    """Wait for processes and see that all went well."""
    for process in processes:
        process.join(WAIT_S)
    assert [0] * len(processes) == [process.exitcode for process in processes]


def in_fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked child and return its exit code."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


# Threads: one commit for many callers


def under_way(recorder: SqliteRecorder) -> int:
    """How many writes have begun: one past the queue, which holds the lock, and those in the queue."""
    return recorder.file._writing.locked() + len(recorder.file._group._calls)


def test_threads_share_commits(path: Path, recorder: SqliteRecorder) -> None:
    """What queues up behind a commit under way is one transaction, of which other connections see all or nothing."""
    with ThreadPoolExecutor(20) as pool:
        with write_lock(path):
            futures = [pool.submit(recorder.insert_events, [blank("job0")])]
            wait_until(lambda: under_way(recorder) == 1)
            futures += [pool.submit(recorder.insert_events, [blank(f"job{n}")]) for n in range(1, 20)]
            wait_until(lambda: under_way(recorder) == 20)
        inserted = sorted(number for future in futures for number in future.result(WAIT_S))

    assert list(range(1, 21)) == inserted
    assert inserted == ids(recorder.select_notifications(None, 100))


def test_conflict_of_one_thread_spares_the_others(path: Path, recorder: SqliteRecorder) -> None:
    """Of callers in one transaction, those with a taken place or key fail; the others are committed whole."""
    write(recorder, queued("held", key="k"))
    recorder.insert_events([blank("taken")])
    with ThreadPoolExecutor(20) as pool:
        with write_lock(path):
            pool.submit(recorder.insert_events, [blank("alone")])
            wait_until(lambda: under_way(recorder) == 1)
            good = [pool.submit(recorder.insert_events, [blank(f"job{n}", 1), blank(f"job{n}", 2)]) for n in range(6)]
            conflicts = [pool.submit(recorder.insert_events, [blank(f"bad{n}"), blank("taken")]) for n in range(6)]
            no_key = [pool.submit(write, recorder, queued(f"keyless{n}", key="k")) for n in range(6)]
            wait_until(lambda: under_way(recorder) == 19)
        results = [future.result(WAIT_S) for future in good]
        failures = [type(future.exception(WAIT_S)) for future in [*conflicts, *no_key]]

    assert [IntegrityError] * 6 + [errors.KeyTaken] * 6 == failures
    assert all(second == first + 1 for first, second in results)
    assert {"held", "taken", "alone", *(f"job{n}" for n in range(6))} == {
        event.originator_id for event in recorder.select_notifications(None, 100)
    }


def test_call_that_loses_the_common_transaction_spares_the_others(path: Path, recorder: SqliteRecorder) -> None:
    """An error that rolls everything back, as a full disk does, is its caller's alone: the others are done again."""

    def lose(cursor: sqlite3.Cursor) -> None:
        cursor.connection.rollback()
        raise sqlite3.OperationalError("disk is full")

    with ThreadPoolExecutor(4) as pool:
        good = []
        with write_lock(path):
            for name in ("alone", "leader", "before"):
                good.append(pool.submit(recorder.insert_events, [blank(name)]))
                wait_until(lambda: under_way(recorder) == len(good))
            lost = pool.submit(recorder.file.write, lose)
            wait_until(lambda: under_way(recorder) == 4)
        assert [[1], [2], [3]] == [call.result(WAIT_S) for call in good]
        assert isinstance(lost.exception(WAIT_S), errors.Unavailable)

    assert ["alone", "leader", "before"] == [event.originator_id for event in recorder.select_notifications(None, 9)]


def test_sto_12_any_thread_may_use_and_close_it(recorder: SqliteRecorder) -> None:
    """STO-12: made here, used by 20 threads and an event loop's executor, closed by another thread, twice."""

    def use(n: int) -> int:
        write(recorder, queued(f"job{n}"))
        assert recorder.runs.get(f"job{n}") is not None
        return len(recorder.select_events(f"job{n}"))

    async def in_executor() -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(use, n) for n in range(20, 25)))

    with ThreadPoolExecutor(20) as pool:
        assert [1] * 20 == list(pool.map(use, range(20)))
        assert [1] * 5 == asyncio.run(in_executor())
        assert 25 == recorder.max_notification_id()
        pool.submit(recorder.close).result(WAIT_S)
        pool.submit(recorder.close).result(WAIT_S)

    with pytest.raises(errors.Unavailable, match="closed"):
        recorder.select_events(JOB)
    with pytest.raises(errors.Unavailable, match="closed"):
        recorder.insert_events([blank("late")])


# Processes


def submit_jobs(path: Path, who: int, count: int) -> None:
    recorder = SqliteRecorder.open(path, synchronous="normal")
    for n in range(count):
        write(recorder, queued(f"job-{who}-{n}"))
    recorder.close()


def start_jobs(path: Path, worker: str, total: int) -> None:
    recorder = SqliteRecorder.open(path, synchronous="normal")
    seen = 0
    with recorder.subscribe(topics=["JobQueued"]) as tail:
        for event in tail:
            with contextlib.suppress(IntegrityError):
                started = make(JobStarted, str(event.originator_id), 2, attempt=1, worker=worker)
                write(recorder, started, job=fold([queued(str(event.originator_id))]))
            seen += 1
            if seen == total:
                break
    recorder.close()


def list_slowly(path: Path, stop: Any) -> None:
    recorder = SqliteRecorder.open(path)
    while not stop.is_set():
        recorder.file.read(lambda cursor: [cursor.execute("SELECT count(*) FROM job_runs"), stop.wait(0.05)])
    recorder.close()


@pytest.mark.slow
def test_sto_05_writers_of_six_processes_see_no_lock(path: Path) -> None:
    """STO-05: two submit, three work, one reads slowly, an outsider holds the lock for 2 s: no error, each job once."""
    migrate(path)
    stop = spawn.Event()
    reader = start(list_slowly, path, stop)
    others = [start(submit_jobs, path, who, 60) for who in range(2)]
    others += [start(start_jobs, path, f"w{n}", 120) for n in range(3)]
    recorder = SqliteRecorder.open(path)
    wait_until(lambda: (recorder.max_notification_id() or 0) > 20)
    with write_lock(path):
        stop.wait(2)
    finish(*others)
    stop.set()
    finish(reader)

    kinds = [event.topic for event in recorder.select_notifications(None, 1000)]
    recorder.close()
    assert (120, 120) == (kinds.count("JobQueued"), kinds.count("JobStarted"))


def test_lock_held_beyond_the_limit_is_unavailable(path: Path) -> None:
    """A typed error after the stated time, nothing written, and it works again when the lock is gone."""
    recorder = SqliteRecorder.open(path, lock_timeout_s=0.1)
    with write_lock(path), pytest.raises(errors.Unavailable, match=r"database is locked path=.*jobs\.db"):
        recorder.insert_events([blank()])

    assert [1] == recorder.insert_events([blank()])
    recorder.close()


def test_limit_counts_from_the_call(path: Path) -> None:
    """Callers that queue behind one that waits for a lock in vain do not wait for the limit once more."""
    recorder = SqliteRecorder.open(path, lock_timeout_s=1)
    with write_lock(path), ThreadPoolExecutor(3) as pool:
        began = time.monotonic()
        futures = [pool.submit(recorder.insert_events, [blank(f"job{n}")]) for n in range(3)]
        failures = [type(future.exception(WAIT_S)) for future in futures]

    assert [errors.Unavailable] * 3 == failures
    assert time.monotonic() - began < 1.8
    recorder.close()


def test_readers_do_not_wait_for_a_writer(path: Path, recorder: SqliteRecorder) -> None:
    """A write transaction under way hides nothing that was committed before."""
    write(recorder, queued())
    with write_lock(path):
        assert 1 == len(recorder.select_events(JOB))


def open_and_write(path: Path, n: int) -> None:
    recorder = SqliteRecorder.open(path)
    write(recorder, queued(f"job{n}"))
    recorder.close()


def test_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """Whoever comes first makes the directory and the schema; the others wait."""
    path = tmp_path / "new" / "data" / "jobs.db"

    finish(*[start(open_and_write, path, n) for n in range(4)])

    recorder = SqliteRecorder.open(path)
    assert 4 == recorder.max_notification_id()
    recorder.close()


def write_and_tell(path: Path, pipe: Any) -> None:
    recorder = SqliteRecorder.open(path)
    for n in range(10_000):
        recorder.insert_events([blank(version=n + 1)])
        pipe.send(n + 1)


def test_killed_process_keeps_what_it_was_told_is_written(path: Path) -> None:
    """Every insert that returned is there after a kill, with nothing torn, and the file opens."""
    ear, mouth = spawn.Pipe(duplex=False)
    process = start(write_and_tell, path, mouth)
    for _ in range(50):
        assert ear.poll(WAIT_S)
        told = ear.recv()
    process.kill()
    process.join(WAIT_S)
    while ear.poll():
        told = ear.recv()

    recorder = SqliteRecorder.open(path)
    versions = [event.originator_version for event in recorder.select_events(JOB)]
    recorder.close()
    assert list(range(1, len(versions) + 1)) == versions
    assert told <= len(versions)


# Forks


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sto_13_children_open_their_own_connections(recorder: SqliteRecorder) -> None:
    """STO-13: four children read and write a hundred times and close; the parent goes on as if nothing had happened."""
    write(recorder, queued())
    assert recorder.runs.get(JOB) is not None

    def work(child: int) -> None:
        for n in range(100):
            assert len(recorder.select_events(JOB)) == 1
            if n % 10 == 0:
                recorder.insert_events([blank(f"child{child}", n)])
        recorder.close()

    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda child: in_fork(lambda: work(child)), range(4)))

    assert [0] * 4 == codes
    assert [42] == recorder.insert_events([blank("parent")])


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sto_13_fork_amid_reads_and_writes(recorder: SqliteRecorder) -> None:
    """A child forked while other threads read and write inherits none of their locks and no half a transaction."""
    stop = threading.Event()

    def busy(n: int) -> int:
        version = 0
        while not stop.is_set():
            version += 1
            recorder.insert_events([blank(f"busy{n}", version)])
            recorder.select_events(f"busy{n}", desc=True, limit=1)
        return version

    def work(child: int) -> None:
        recorder.insert_events([blank("child", child)])
        with recorder.subscribe(gt=(recorder.max_notification_id() or 1) - 1) as tail:
            next(tail)

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(busy, n) for n in range(3)]
        codes = [in_fork(lambda child=child: work(child)) for child in range(1, 6)]
        stop.set()
        written = [thread.result(WAIT_S) for thread in threads]

    assert [0] * 5 == codes
    assert written == [len(recorder.select_events(f"busy{n}")) for n in range(3)]
    assert 5 == len(recorder.select_events("child"))


def test_sto_13_spawned_children(path: Path, recorder: SqliteRecorder) -> None:
    """A spawned process opens the same file beside this one."""
    write(recorder, queued())

    finish(start(open_and_write, path, 1), start(open_and_write, path, 2))

    assert 3 == recorder.max_notification_id()


# Waking


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def next_in_thread(tail: Any) -> tuple[threading.Thread, list[Any]]:
    """Wait for a subscription's next event in a thread that has been seen to wait."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(next(tail, None) for _ in range(1)))
    thread.start()
    return thread, found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that only wake when they are woken."""
    monkeypatch.setattr("jobevents.backends.tail.PATIENCE_S", 60.0)
    monkeypatch.setattr(wake, "POLL_S", 60.0)
    monkeypatch.setattr(wake, "HINTED_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_commit_wakes_subscribers_of_its_process(recorder: SqliteRecorder) -> None:
    """No poll is needed between threads."""
    with recorder.subscribe() as tail:
        thread, found = next_in_thread(tail)
        recorder.insert_events([blank()])
        thread.join(WAIT_S)

    assert [1] == ids(found)


@needs_sockets
@pytest.mark.usefixtures("patient")
def test_commit_wakes_subscribers_of_other_processes(open_directory: Path) -> None:
    """A datagram does it: neither poll could within the time of this test."""
    path = open_directory / "jobs.db"
    recorder = SqliteRecorder.open(path)
    with recorder.subscribe() as tail:
        thread, found = next_in_thread(tail)
        finish(start(open_and_write, path, 1))
        thread.join(WAIT_S)

    assert [1] == ids(found)
    recorder.close()


@pytest.mark.parametrize("lack", ["no AF_UNIX", "path too long"])
def test_without_sockets_the_poll_wakes(path: Path, monkeypatch: pytest.MonkeyPatch, lack: str) -> None:
    """Where no socket can be bound, other processes' commits are seen all the same."""
    monkeypatch.setattr("jobevents.backends.tail.PATIENCE_S", 60.0)
    if lack == "no AF_UNIX":
        monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    else:
        monkeypatch.setattr(wake, "_PATH_LIMIT", 10)
    recorder, other = SqliteRecorder.open(path), SqliteRecorder.open(path)
    with recorder.subscribe() as tail:
        thread, found = next_in_thread(tail)
        other.insert_events([blank()])
        thread.join(WAIT_S)

    assert [1] == ids(found)
    assert ["jobs.db"] == [name for name in names(path.parent) if not name.startswith("jobs.db-")]
    recorder.close()
    other.close()


@pytest.mark.skipif(os.name == "nt", reason="an open file is not stamped there")
def test_the_poll_asks_the_database_only_after_a_write_to_its_log(path: Path) -> None:
    """A file's time says so once it is old enough to show every later write, and the disk has been waited for."""
    recorder = SqliteRecorder.open(path)
    recorder.insert_events([blank()])
    log = path.with_name("jobs.db-wal")
    assert sqlitewal.last_change(path) is None, "written just now"
    os.utime(log, ns=(0, time.time_ns() - 1_500_000_000))
    assert sqlitewal.last_change(path) is None, "its commit may wait for the disk; files may be stamped by two seconds"
    os.utime(log, ns=(0, time.time_ns() - 2_500_000_000))
    before = sqlitewal.last_change(path)
    assert before is not None
    assert before == sqlitewal.last_change(path)
    asked: list[object] = []
    listener = wake.Wake(path.parent / "none", lambda: asked.append(0), partial(sqlitewal.last_change, path))
    listener.listen(threading.Event())
    time.sleep(3 * wake.HINTED_S)
    listener.close()
    assert len(asked) <= 2, "when it began to listen, and at its first poll"
    recorder.insert_events([blank("other")])
    os.utime(log, ns=(0, time.time_ns() - 2_100_000_000))
    assert sqlitewal.last_change(path) not in (None, before)
    recorder.close()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no such sockets")
def test_who_listens_is_found_where_directories_are_stamped_by_whole_seconds(open_directory: Path) -> None:
    """A second process listens within the second in which the first one began to: the directory's time stands still."""
    directory = open_directory / "wake"
    first, second, speaker = (wake.Wake(directory, lambda: 0) for _ in range(3))
    first.listen(threading.Event())
    stamp = time.time_ns() - 1_000_000_000
    os.utime(directory, ns=(stamp, stamp))
    speaker.announce()
    heard = threading.Event()
    second.listen(heard)
    os.utime(directory, ns=(stamp, stamp))

    speaker.announce()

    assert heard.wait(WAIT_S)
    for one in (first, second, speaker):
        one.close()


@pytest.mark.usefixtures("patient")
def test_stop_ends_a_waiting_subscription_at_once(recorder: SqliteRecorder) -> None:
    """From another thread, with no commit to wake it."""
    tail = recorder.subscribe()
    thread, found = next_in_thread(tail)

    tail.stop()
    thread.join(WAIT_S)

    assert [None] == found


@needs_sockets
def test_socket_of_a_dead_process_is_removed(open_directory: Path) -> None:
    """What a killed listener left is cleared away by the next commit."""
    recorder = SqliteRecorder.open(open_directory / "jobs.db")
    directory = open_directory / "jobs.db.wake"
    directory.mkdir()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(directory / "1-dead.sock"))
    dead.close()

    recorder.insert_events([blank()])

    assert [] == names(directory)
    recorder.close()


@needs_sockets
def test_close_leaves_no_thread_and_no_socket(open_directory: Path) -> None:
    """Neither a subscription that was stopped nor one that was not leaves anything."""
    before = threading.active_count()
    recorder = SqliteRecorder.open(open_directory / "jobs.db")
    recorder.subscribe().stop()
    recorder.subscribe()
    assert "jobs.db.wake" in names(open_directory)

    recorder.close()

    assert (["jobs.db"], before) == (names(open_directory), threading.active_count())


# Ids, times, durability


def test_ids_are_never_given_out_twice(recorder: SqliteRecorder) -> None:
    """A reader that stands at a deleted newest event does not pass over the next one."""
    recorder.insert_events([blank(version=1), blank(version=2)])
    recorder.file.write(lambda cursor: cursor.execute("DELETE FROM job_events WHERE notification_id = 2"))

    assert [3] == recorder.insert_events([blank(version=2)])


def test_refused_insert_uses_up_no_id(recorder: SqliteRecorder) -> None:
    """Ids are without holes as long as nothing is deleted."""
    recorder.insert_events([blank()])
    with pytest.raises(IntegrityError):
        recorder.insert_events([blank("other"), blank()])

    assert [2] == recorder.insert_events([blank("other")])


def test_tim_02_identical_instants_are_identical_text(recorder: SqliteRecorder) -> None:
    """TIM-02: what other programs read in the table is one text for one instant."""
    for n, text in enumerate(["2026-07-26T13:30:00-08:00", "2026-07-26T22:30:00+01:00", "2026-07-26T21:30:00+00:00"]):
        write(recorder, queued(f"j{n}", at=AT.fromisoformat(text)))

    assert [("2026-07-26T21:30:00.000000Z", 3)] == recorder.file.query(
        "SELECT created_at, count(*) FROM job_runs GROUP BY created_at"
    )


def test_tim_03_order_of_text_is_order_of_time() -> None:
    """TIM-03: fixed width, whatever the fraction."""
    micros = [0, 1, 100_000, 150_000, 500_000, 500_001, 999_999]

    texts = [time_text(AT.replace(microsecond=micro)) for micro in micros]

    assert texts == sorted(texts)
    assert {27} == {len(text) for text in texts}


@pytest.mark.parametrize(("synchronous", "level"), [("full", 2), ("normal", 1)])
def test_durability_is_what_was_asked_for(path: Path, synchronous: Any, level: int) -> None:
    """FULL: each commit is on disk before it returns; the file keeps a write-ahead log in both cases."""
    recorder = SqliteRecorder.open(path, synchronous=synchronous)

    found = recorder.file.write(lambda cursor: cursor.execute("PRAGMA synchronous").fetchone())

    assert [(level,), ("wal",)] == [found, *recorder.file.query("PRAGMA journal_mode")]
    recorder.close()


# Files that cannot be used


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be read as one " * 20, b"short"])
def test_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    """Corrupt, and every byte stays."""
    path.write_bytes(content)

    for attempt in (SqliteRecorder.open, migrate):
        with pytest.raises(errors.Corrupt, match=r"path=.*jobs\.db"):
            attempt(path)

    assert content == path.read_bytes()


def test_torn_database_is_left_as_it_is(path: Path) -> None:
    """A file cut in the middle is Corrupt when it is read, and every byte stays."""
    recorder = SqliteRecorder.open(path)
    for n in range(100):
        write(recorder, queued(f"job{n}"))
    recorder.close()
    content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)

    with pytest.raises(errors.Corrupt):
        SqliteRecorder.open(path).select_notifications(None, 1000)

    assert content == path.read_bytes()


def test_deleted_file_is_not_made_anew(path: Path) -> None:
    """A log whose file vanished says so; it does not go on in an empty one."""
    recorder = SqliteRecorder.open(path)
    recorder.close()
    path.unlink()
    with pytest.raises(errors.Misconfigured, match="no database"):
        SqliteRecorder.open(path, create=False)

    recorder = SqliteRecorder.open(path)
    recorder.insert_events([blank()])
    for left in path.parent.glob("jobs.db*"):
        left.unlink()
    for use in (recorder.max_notification_id, lambda: recorder.insert_events([blank("other")])):
        with pytest.raises(errors.Unavailable, match="gone"):
            use()
    recorder.close()
    assert not path.exists()


def test_restored_file_is_read_and_written(path: Path) -> None:
    """When another file stands at the path, a log that is open goes on in that one."""
    recorder, backup = SqliteRecorder.open(path), path.with_name("backup.db")
    recorder.insert_events([blank("a")])
    recorder.file.query("VACUUM INTO ?", (str(backup),))
    recorder.insert_events([blank("b"), blank("c")])
    for left in path.parent.glob("jobs.db*"):
        left.unlink()
    backup.rename(path)

    assert 1 == recorder.max_notification_id()
    assert [2] == recorder.insert_events([blank("d")])
    recorder.close()


READ_ONLY = """
import os, sys
from jobevents import errors
from jobevents.backends.sqlite import SqliteRecorder
from tests.histories import blank
import eventsourcing.sqlite
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
recorder = SqliteRecorder.open(sys.argv[1])
assert len(recorder.select_events("job")) == 1, "reading works"
assert recorder.runs.get("job") is None
try:
    recorder.insert_events([blank("other")])
except errors.PermissionDenied as error:
    assert sys.argv[1] in str(error), error
    assert "let this user write" in str(error), error
    recorder.close()
else:
    sys.exit("it was written")
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="no users here")
@pytest.mark.parametrize("what", ["file", "directory", "both"])
def test_read_only_file_can_be_read_and_says_why_it_cannot_be_written(open_directory: Path, what: str) -> None:
    """PermissionDenied at the first write, with the path and what to do; opening and reading work."""
    path = open_directory / "jobs.db"
    recorder = SqliteRecorder.open(path)
    recorder.insert_events([blank("job")])
    recorder.close()
    path.chmod(0o444 if what in ("file", "both") else 0o666)
    open_directory.chmod(0o555 if what in ("directory", "both") else 0o777)

    result = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, timeout=WAIT_S
    )

    assert (0, "") == (result.returncode, result.stderr)
    assert what == "file" or stat.S_IMODE(open_directory.stat().st_mode) == 0o555


FULL = """
import resource, sys
from jobevents import errors
from jobevents.backends.sqlite import SqliteRecorder
from tests.histories import StoredEvent
recorder = SqliteRecorder.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
written = 0
try:
    while True:
        recorder.insert_events([StoredEvent("job", written + 1, "t", bytes(5000))])
        written += 1
except errors.Unavailable as error:
    assert "disk" in str(error), error
assert 5 < written < 100, written
for _ in range(3):
    try:
        recorder.insert_events([StoredEvent("job", written + 1, "t", bytes(5000))])
        sys.exit("it was written")
    except errors.Unavailable:
        pass
assert len(recorder.select_events("job")) == written, "reading works"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorder.insert_events([StoredEvent("job", written + 1, "t", bytes(5000))])
assert [e.originator_version for e in recorder.select_events("job")] == list(range(1, written + 2))
recorder.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits here")
def test_sto_06_full_disk_is_unavailable_until_there_is_room(path: Path) -> None:
    """STO-06: each insert fails whole with a typed error, reading goes on, nothing accepted is lost, and room is enough."""
    result = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=WAIT_S)

    assert (0, "") == (result.returncode, result.stderr)


def test_sto_06_full_database_says_so(path: Path, recorder: SqliteRecorder) -> None:
    """STO-06: SQLite's own word for it is recognised, and the hint is to free space."""

    def fill(cursor: sqlite3.Cursor) -> None:
        cursor.execute("PRAGMA max_page_count = 1")
        cursor.execute(
            "INSERT INTO job_events (originator_id, originator_version, topic, state) VALUES ('a', 1, 't', zeroblob(9999))"
        )

    with pytest.raises(errors.Unavailable, match=r"disk is full .*free some space"):
        recorder.file.write(fill)

    assert [1] == recorder.insert_events([blank("a")])


def test_path_that_is_a_directory_is_misconfigured(tmp_path: Path) -> None:
    """It says to name a file in it."""
    with pytest.raises(errors.Misconfigured, match="directory"):
        SqliteRecorder.open(tmp_path)


def test_parent_that_is_a_file_is_misconfigured(path: Path) -> None:
    """No directory can be made there."""
    path.write_text("")

    with pytest.raises(errors.Misconfigured, match="part of it is a file"):
        SqliteRecorder.open(path / "jobs.db")


@pytest.mark.parametrize("option", [{"synchronous": "off"}, {"tables": ("job runs", "")}, {"tables": ("one", "ONE")}])
def test_option_that_cannot_work_is_misconfigured(path: Path, option: dict[str, Any]) -> None:
    """Before a file is made."""
    with pytest.raises(errors.Misconfigured):
        SqliteRecorder.open(path, **option)

    assert not path.exists()


@pytest.mark.parametrize("name", [":memory:", "", " "])
def test_path_that_is_no_file_is_misconfigured(name: str) -> None:
    """It names the log in memory."""
    with pytest.raises(errors.Misconfigured, match="memory://"):
        SqliteRecorder.open(name)


def test_unknown_error_keeps_its_words(path: Path) -> None:
    """What SQLite said stands in our error's message."""
    assert "strange thing" in str(translate(sqlite3.DatabaseError("strange thing"), path))


# Schema


def test_missing_directory_is_made(tmp_path: Path) -> None:
    """The first command of the README works in an empty directory."""
    recorder = SqliteRecorder.open(tmp_path / "data" / "deep" / "jobs.db")

    assert [1] == recorder.insert_events([blank()])
    recorder.close()


def test_empty_file_is_a_new_one(path: Path) -> None:
    """What a full disk or `touch` left is no obstacle."""
    path.touch()

    SqliteRecorder.open(path).close()

    assert path.stat().st_size > 0


def test_symbolic_link_is_the_file_it_points_to(open_directory: Path) -> None:
    """What lies beside the database lies in one place, whatever path a process was given."""
    link = open_directory / "link.db"
    link.symlink_to(open_directory / "jobs.db")
    recorder = SqliteRecorder.open(link)

    assert open_directory / "jobs.db" == recorder.file.path
    recorder.close()


def test_recorder_let_go_leaves_the_file_open(path: Path) -> None:
    """A table outlives the recorder that it came from."""
    recorder = SqliteRecorder.open(path)
    write(recorder, queued())
    file, runs = recorder.file, recorder.runs
    del recorder

    assert runs.get(JOB) is not None
    file.close()


def test_path_may_hold_any_character(tmp_path: Path) -> None:
    """A path is a path, never part of a URI's syntax."""
    recorder = SqliteRecorder.open(tmp_path / "a b?mode=ro#c%20ö.db")
    recorder.insert_events([blank()])
    recorder.close()

    assert ["a b?mode=ro#c%20ö.db"] == names(tmp_path)


def test_sto_15_nothing_migrates_unasked(path: Path) -> None:
    """STO-15: a database without our schema is refused with the command to run, and stays as it is."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE mine (x)")

    with pytest.raises(errors.Misconfigured, match=r"jobevents migrate --url sqlite:///.*jobs\.db"):
        SqliteRecorder.open(path)

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert [("mine",)] == connection.execute("SELECT name FROM sqlite_master").fetchall()


def test_sto_15_older_schema_is_refused_and_migrated_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STO-15: a program that needs a step more names it; the one before goes on beside it, also after the step."""
    old = SqliteRecorder.open(path)
    old.insert_events([blank()])
    known = sqliteschema.VERSION
    steps = {
        **sqliteschema.MIGRATIONS,
        known + 1: lambda tables: [f'ALTER TABLE "{tables.runs}" ADD COLUMN "note" TEXT'],
    }
    monkeypatch.setattr(sqliteschema, "MIGRATIONS", steps)
    monkeypatch.setattr(sqliteschema, "VERSION", known + 1)

    with pytest.raises(errors.Misconfigured, match=f"found={known} needed={known + 1}: run `jobevents migrate"):
        SqliteRecorder.open(path)
    applied = migrate(path)
    new = SqliteRecorder.open(path)
    for n, recorder in enumerate([old, new] * 100):
        write(recorder, queued(f"job{n}"))

    assert ([known + 1], 201) == (applied, new.max_notification_id())
    old.close()
    new.close()


def test_sto_15_migrate_runs_once_under_concurrency(path: Path) -> None:
    """STO-15: of eight at once, one applies the steps; again, nobody does."""
    with ThreadPoolExecutor(8) as pool:
        applied = list(pool.map(migrate, [path] * 8))

    assert list(sqliteschema.MIGRATIONS) == [version for versions in applied for version in versions]
    assert [] == migrate(path)


def test_newer_schema_is_refused(path: Path) -> None:
    """An old program does not touch what it does not know."""
    migrate(path)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO job_schema VALUES (99, 'tomorrow')")
    connection.close()

    for attempt in (SqliteRecorder.open, migrate):
        with pytest.raises(errors.Misconfigured, match=f"found=99 known={sqliteschema.VERSION}: upgrade jobevents"):
            attempt(path)


def test_printed_ddl_makes_the_schema(path: Path) -> None:
    """Those who apply it themselves get a database that opens."""
    connection = sqlite3.connect(path)
    connection.executescript(ddl(("runs", "lines")))
    connection.close()

    recorder = SqliteRecorder.open(path, tables=("runs", "lines"))

    assert [1] == recorder.insert_events([blank()])
    recorder.close()


def test_tables_have_the_names_they_were_given(path: Path) -> None:
    """Behaviour T5: rows and lines go where they were told, and other names are refused."""
    recorder = SqliteRecorder.open(path, tables=("my_runs", ""))
    write(recorder, queued())
    recorder.run_logs.append_logs([JobLog(run_id=JOB, seq=1, attempt=1, at=AT, level="info", message="m")])

    assert [(1, 1)] == recorder.file.query("SELECT (SELECT count(*) FROM my_runs), (SELECT count(*) FROM job_run_logs)")
    recorder.close()
    with pytest.raises(errors.Misconfigured, match="missing=job_runs"):
        SqliteRecorder.open(path)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT id FROM job_runs WHERE job_name = 'n' AND status = 'running' ORDER BY id", "job_runs_listing"),
        (
            "SELECT id FROM job_runs WHERE status = 'queued' AND scheduled_at <= 'x' ORDER BY scheduled_at",
            "job_runs_poll",
        ),
        ("SELECT id FROM job_runs ORDER BY sort_key DESC, id DESC LIMIT 50", "job_runs_order"),
    ],
)
def test_queries_use_their_index(recorder: SqliteRecorder, query: str, index: str) -> None:
    """Behaviour T8: listing, polling and paging look at no more rows than they need."""
    plan = " ".join(str(row[3]) for row in recorder.file.query(f"EXPLAIN QUERY PLAN {query}"))

    assert index in plan


def store(recorder: SqliteRecorder, *events: Event) -> Job:
    """Append a job's events by a log, each alone with its row; return the job after them."""
    log = EventLog(recorder, recorder.translate)
    for event in events:
        log.append([event], rows=[fold([event], fold(log.read(event.job_id)))])
    return fold(log.read(events[-1].job_id))


def test_a_large_file_is_not_read_for_its_sizes(recorder: SqliteRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it says that rows were not counted and tables not measured, and how large the file is."""
    monkeypatch.setattr("jobevents.backends.sqlitecensus._MEASURED", 4096)

    *tables, whole = recorder.desk.census.sizes()

    assert [(None, None)] * 3 == [(one.rows, one.size_bytes) for one in tables]
    assert (whole.size_bytes or 0) > 4096


def test_progress_leaves_the_indexes_alone(path: Path, recorder: SqliteRecorder) -> None:
    """What a running job says comes to the pages of its event and its row, and to none of an index over the rows."""
    log = path.with_name("jobs.db-wal")
    store(recorder, queued(), make(JobStarted, version=2, attempt=1))
    before = log.stat().st_size

    job = store(recorder, make(JobProgressed, version=3, start=2, percent=40))

    assert run_of(job) == recorder.runs.get(JOB)
    assert 4 >= (log.stat().st_size - before) // 4096  # the event, its slot, the last id given out, the row


@pytest.mark.parametrize(
    "change", ["DELETE FROM job_runs", "UPDATE job_runs SET version = 1, progress = 7, queue = 'x'"]
)
def test_row_not_as_of_the_event_before_is_written_whole(path: Path, recorder: SqliteRecorder, change: str) -> None:
    """An event heals the row of its job where that was lost, or is an older one."""
    store(recorder, queued(params={"song": 7}), make(JobStarted, version=2, attempt=1))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as outsider:
        outsider.execute(change)

    job = store(recorder, make(JobProgressed, version=3, start=2, percent=40))

    assert run_of(job) == recorder.runs.get(JOB)


def test_active_key_is_found_by_its_index(recorder: SqliteRecorder) -> None:
    """The partial index serves find_active, so its condition is spelled alike."""
    statement = recorder._rows._sql.find_active
    plan = " ".join(str(row[3]) for row in recorder.file.query(f"EXPLAIN QUERY PLAN {statement}", ("n", "k")))

    assert "job_runs_key" in plan


def test_backup_of_the_file_is_a_log(path: Path, recorder: SqliteRecorder) -> None:
    """A copy made by SQLite's own backup opens and goes on with its ids."""
    recorder.insert_events([stored(queued())])
    copy = path.with_name("copy.db")
    recorder.file.query("VACUUM INTO ?", (str(copy),))

    with contextlib.closing(SqliteRecorder.open(copy)) as other:
        assert [2] == other.insert_events([blank("next")])


def test_names_of_tables_have_defaults() -> None:
    """An empty name keeps the default (behaviour T5)."""
    assert ("job_runs", "lines") == Tables.named(("", "lines"))


def test_log_beside_the_file_is_bounded(path: Path, recorder: SqliteRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that overlap without a pause keep SQLite from beginning its log anew: it is emptied all the same."""
    monkeypatch.setattr(sqlitewal, "_LOG_BYTES", 2**20)
    monkeypatch.setattr(sqlitewal, "_EVERY_S", 0.0)
    log, done, sizes = path.with_name("jobs.db-wal"), threading.Event(), []
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT count(*) FROM n, job_schema"

    def read() -> None:
        while not done.is_set():
            recorder.file.query(slow)

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for number in range(1500):
            recorder.insert_events([blank(f"job-{number}")])
            sizes.append(log.stat().st_size)
        done.set()
        for reader in readers:
            reader.result()

    assert max(sizes) < 8 * 2**20


def test_log_that_is_read_for_long_stays(path: Path, recorder: SqliteRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that does not end costs the writers one wait, not one for each look at the log."""
    monkeypatch.setattr(sqlitewal, "_LOG_BYTES", 0)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM job_schema").fetchall()

    began = time.monotonic()
    for number in range(640):
        recorder.insert_events([blank(f"job-{number}")])
    took_s = time.monotonic() - began
    reader.close()

    assert took_s < 8.0
    assert 640 == recorder.max_notification_id()
