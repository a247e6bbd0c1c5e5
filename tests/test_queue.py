"""The queues keep the contract: in memory, over the logs in memory and in SQLite, and one of somebody else's."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from jobevents.backends.sql import DEFAULT_TABLES, RUN_COLUMNS, row_of
from jobevents.backends.sqlite import SqliteRecorder, migrate
from jobevents.backends.sqliteclaims import SqliteClaims
from jobevents.backends.sqliteschema import MIGRATIONS, VERSION
from jobevents.commands import CancelOutcome, Submission
from jobevents.errors import (
    Busy,
    Corrupt,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    QueueClosed,
    Refused,
    Snooze,
    Unavailable,
)
from jobevents.jobs import Jobs
from jobevents.pauses import Pause
from jobevents.queue import JobQueue, MemoryQueue, Reservation
from jobevents.store import JobRun
from jobevents.storequeue import StoreQueue
from jobevents.testing import Clock, JobQueueContract
from jobevents.testing.jobqueue_threads import AT_ONCE_S, PATIENCE_S, at_once, waiting
from jobevents.testing.outages import Snapshot, reader_of
from jobevents.testing.runs import Elapse, run
from jobevents.wiring import connect
from tests.clock import START
from tests.listqueue import ListQueue
from tests.queues import timed_jobs
from tests.racers import Racers


class TestMemoryQueue(JobQueueContract):
    """The queue in memory keeps the contract."""

    @pytest.fixture
    def queue(self, clock: Clock) -> Iterator[JobQueue]:
        queue = MemoryQueue(clock=clock, monotonic=clock.monotonic)
        yield queue
        queue.close()

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move


class TestListQueue(JobQueueContract):
    """A list of bytes that knows nothing of a log is as good a queue, though its reservations end with their process."""

    lease_s = None
    loops = 300  # it looks through all of the list for each

    @pytest.fixture
    def queue(self, clock: Clock) -> Iterator[JobQueue]:
        queue = ListQueue(clock=clock)
        yield queue
        queue.close()

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move


@pytest.fixture(params=["memory", "sqlite"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Jobs]:
    """Jobs over each log, whose claims end by the standing clock, too."""
    with timed_jobs(clock, tmp_path / "jobs.db" if request.param == "sqlite" else None) as made:
        yield made


class TestStoreQueue(JobQueueContract):
    """The queue that is the table of runs keeps the contract, over each log."""

    @pytest.fixture
    def queue(self, jobs: Jobs) -> JobQueue:
        self.jobs = jobs
        return jobs.queue

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move

    @pytest.fixture
    def snapshot(self, jobs: Jobs, tmp_path: Path) -> Snapshot:
        return reader_of(f"sqlite:///{tmp_path}/jobs.db") if jobs.log.is_durable else None

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        with self.jobs.attempt(reservation.run.id):
            pass
        reservation.ack()


def taken(queue: JobQueue, *queues: str, limit: int = 99) -> list[str]:
    """Reserve what is due now, and return the ids."""
    return [reservation.run.id for reservation in queue.reserve(queues, limit=limit, timeout_s=0)]


@pytest.fixture(params=["memory queue", "memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[JobQueue]:
    """Each queue of ours."""
    if request.param == "memory queue":
        yield MemoryQueue(clock=clock, monotonic=clock.monotonic)
        return
    with timed_jobs(clock, tmp_path / "jobs.db" if request.param == "sqlite" else None) as made:
        yield made.queue


@pytest.mark.parametrize("how", ["given back", "lease ended"])
def test_what_comes_back_has_its_old_place(queue: JobQueue, clock: Clock, how: str) -> None:
    """A run that was reserved in vain is not behind those that came after it."""
    for run_id in ("c", "b", "a"):
        queue.enqueue(run(run_id))
    (reservation,) = queue.reserve(timeout_s=0)

    if how == "given back":
        reservation.ack(RuntimeError("no database"))
    else:
        clock.move(30)

    assert ["c", "b", "a"] == taken(queue)


# the queue that shares the store


def test_what_is_submitted_is_there(jobs: Jobs) -> None:
    """Writing a run makes it available; enqueueing it then changes nothing."""
    job_id = jobs.submit("render", {"song": 7})
    jobs.queue.enqueue(jobs.store.get(job_id))

    (reservation,) = jobs.queue.reserve(timeout_s=0, limit=9)

    assert (True, 1) == (jobs.queue.shares_store, len(jobs.history(job_id)))
    assert jobs.store.get(job_id) == reservation.run


def test_a_claim_costs_no_attempt(jobs: Jobs, clock: Clock) -> None:
    """A run that was reserved and never begun is on its first try still, and its history says nothing of it."""
    job_id = jobs.submit("render")
    taken(jobs.queue)
    clock.move(30)

    (reservation,) = jobs.queue.reserve(timeout_s=0)

    assert (1, ["JobQueued"]) == (reservation.run.attempt, [event.type for event in jobs.history(job_id)])


def test_an_event_ends_the_claim(jobs: Jobs) -> None:
    """A run that fails into a retry may be claimed again when that is due, whoever had claimed it."""
    job_id = jobs.submit("render", max_attempts=2)
    taken(jobs.queue)
    with pytest.raises(ZeroDivisionError), jobs.attempt(job_id):
        raise ZeroDivisionError

    jobs.retry(job_id)

    assert [job_id] == taken(jobs.queue)


def test_an_old_claim_starts_nothing(jobs: Jobs, clock: Clock) -> None:
    """M17: whoever was too slow cannot have the job skip the time until its retry, nor run it a second time."""
    job_id = jobs.submit("render", max_attempts=3)
    taken(jobs.queue)
    clock.move(30)
    taken(jobs.queue)
    with pytest.raises(Snooze), jobs.attempt(job_id, if_due=True):
        raise Snooze(300)

    with pytest.raises(Refused, match="not due"):
        jobs.attempt(job_id, if_due=True).__enter__()


def three_that_wait(jobs: Jobs) -> list[str]:
    """Submit jobs, the second with so long a history that its row is read."""
    job_ids = [jobs.submit("render") for _ in range(3)]
    with suppress(Snooze), jobs.attempt(job_ids[1]) as attempt:
        for number in range(10):
            attempt.annotate(number=number)
        raise Snooze(0)
    return job_ids


def reading(jobs: Jobs, bad: str, error: list[JobEventsError]) -> StoreQueue:
    """The queue of the jobs, to which the row of one is read with an error, while there is one."""

    def get(job_id: str) -> JobRun | None:
        if error and job_id == bad:
            raise error[0]
        return jobs.runs.get(job_id)

    assert jobs.desk is not None
    return StoreQueue(jobs.emitter, jobs.desk, create=jobs.store.create, get=get)


@pytest.mark.parametrize("column", ["job_name", "queue"])
def test_what_is_full_is_passed_over_until_one_of_it_has_ended(jobs: Jobs, column: str) -> None:
    """A run that finds no slot goes back to its place; of its kind or queue none is handed out, but others are."""
    names = ["sing", "sing", "sing", "dance", "dance"]
    sung = [jobs.submit(name, queue=f"{name}s") for name in names][:3]
    [running] = jobs.queue.reserve(limit=1)
    attempt = jobs.attempt(running.job_id).__enter__()
    [other] = jobs.queue.reserve(limit=1)
    value = "sing" if column == "job_name" else "sings"

    other.ack(Busy(job_id=other.job_id, column=column, value=value, most=1), delay_s=30)

    assert [running.job_id, other.job_id] == sung[:2]
    assert ["dance"] == [one.job_name for one in jobs.queue.reserve(limit=1, timeout_s=0)]
    attempt.__exit__(None, None, None)
    assert [] == jobs.queue.reserve(("others",), timeout_s=0), "it is not for these"
    assert [sung[1], "dance"] == [
        one.job_id if one.job_name == "sing" else one.job_name for one in jobs.queue.reserve(limit=5, timeout_s=0)
    ]
    assert [] == jobs.queue.reserve(limit=5, timeout_s=0), "one has ended, one was handed out"


def test_what_is_full_is_looked_at_again(jobs: Jobs) -> None:
    """One of another process may have ended: after a while a single run is handed out, and shows it; later all are."""
    for _ in range(3):
        jobs.submit("sing")
    [first] = jobs.queue.reserve(limit=1)
    first.ack(Busy(job_id=first.job_id, column="job_name", value="sing", most=1), delay_s=0.3)

    [probe] = jobs.queue.reserve(limit=5, timeout_s=PATIENCE_S)
    assert first.job_id == probe.job_id
    probe.ack(Busy(job_id=first.job_id, column="job_name", value="sing", most=1), delay_s=0.02)
    threading.Event().wait(0.05)

    assert 3 == len(jobs.queue.reserve(limit=5, timeout_s=0))


def test_an_unreadable_run_holds_up_no_other(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    """Those claimed with it are handed out at once, and it is said which one was not."""
    three = three_that_wait(jobs)
    queue = reading(jobs, three[1], [Corrupt("row of a run is unreadable")])

    found = taken(queue)

    assert {three[0], three[2]} == set(found)
    assert f"job_id={three[1]}" in caplog.text


def test_runs_that_cannot_be_read_for_now_are_given_back(jobs: Jobs) -> None:
    """A log that goes away between a claim and its read leaves none to wait for the end of its claim."""
    three = three_that_wait(jobs)
    error: list[JobEventsError] = [Unavailable("database is away")]
    queue = reading(jobs, three[1], error)
    some = taken(queue)

    error.clear()

    assert sorted(three) == sorted(some + taken(queue))


@pytest.mark.parametrize("state", ["running", "succeeded", "external", "deleted"])
def test_only_what_waits_for_us_is_handed_out(jobs: Jobs, state: str) -> None:
    """Neither what runs or has ended, nor what the user's own task queue delivers."""
    job_id = jobs.submit("render", external=state == "external")
    if state in ("running", "succeeded"):
        attempt = jobs.attempt(job_id)
        attempt.__enter__()
        if state == "succeeded":
            attempt.__exit__(None, None, None)
    elif state == "deleted":
        jobs.delete(job_id)

    assert ([], 0, False) == (taken(jobs.queue), len(jobs.queue), jobs.queue.remove(job_id))


def test_a_removed_run_is_canceled(jobs: Jobs) -> None:
    """Taking a run out of the queue that is the table is what its history says."""
    job_id = jobs.submit("render")
    jobs.store.request_cancel(job_id, "bob", "wrong song")

    removed = jobs.queue.remove(job_id)

    found = jobs.store.get(job_id)
    assert (True, "canceled", "bob", "wrong song") == (removed, found.status, found.canceled_by, found.cancel_reason)


def test_can_06_a_canceled_run_is_never_handed_out(tmp_path: Path, clock: Clock) -> None:
    """CAN-06: canceled while nobody is at work, it does not count, and nobody gets it after a restart."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url, clock=clock) as jobs:
        job_id = jobs.submit("render", delay=2)
        outcome = jobs.cancel(job_id, actor="bob")
        length = len(jobs.queue)
    clock.move(5)

    with connect(url, clock=clock) as jobs:
        assert (CancelOutcome.CANCELED, 0, [], "canceled") == (
            outcome,
            length,
            taken(jobs.queue),
            jobs.store.get(job_id).status,
        )


def test_a_queue_is_the_same_one(jobs: Jobs) -> None:
    """Store and queue of the jobs are made once, and end with them."""
    queue, store = jobs.queue, jobs.store
    same = queue is jobs.queue and store is jobs.store

    jobs.close()

    assert same
    with pytest.raises(QueueClosed):
        queue.reserve(timeout_s=0)


def test_a_claim_must_last(jobs: Jobs) -> None:
    """A lease of no length would hand out every run to everybody."""
    assert jobs.desk is not None

    with pytest.raises(Misconfigured, match="claim_s"):
        StoreQueue(jobs.emitter, jobs.desk, create=jobs.store.create, get=jobs.runs.get, lease_s=0)


# pauses


@pytest.mark.parametrize("what", [{"job": "render"}, {"queue": "default"}])
def test_what_is_paused_is_not_handed_out(jobs: Jobs, what: dict[str, str]) -> None:
    """A kind of job or a queue waits until it is resumed, and the others go on; submitting goes on, too."""
    jobs.pause(**what)
    paused = jobs.submit("render")
    other = jobs.submit("mix", queue="slow")

    meanwhile = taken(jobs.queue)
    jobs.resume(**what)

    assert ([other], [paused]) == (meanwhile, taken(jobs.queue))


def test_a_pause_says_who_and_why(jobs: Jobs, clock: Clock) -> None:
    """The first pause stays as it is; what is not paused cannot be resumed."""
    answers = [
        jobs.pause(queue="slow", actor="ann", reason="disk full"),
        jobs.pause(queue="slow", actor="eve"),
        jobs.pause(job="render"),
    ]

    assert [True, False, True] == answers
    assert [
        Pause(kind="job", name="render", at=START),
        Pause(kind="queue", name="slow", at=START, by="ann", reason="disk full"),
    ] == jobs.paused()
    assert [True, False] == [jobs.resume(job="render"), jobs.resume(job="render")]


def test_a_pause_outlives_its_process(tmp_path: Path, clock: Clock) -> None:
    """M12, but better: it is in the database, and holds for everybody."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url, clock=clock) as jobs:
        jobs.pause(job="render", actor="ann")
        jobs.submit("render")

    with connect(url, clock=clock) as jobs:
        assert (["ann"], []) == ([pause.by for pause in jobs.paused()], taken(jobs.queue))


@pytest.mark.parametrize("what", [{}, {"job": "a", "queue": "b"}, {"job": "a\0"}])
def test_a_pause_is_of_one_thing(jobs: Jobs, what: dict[str, str]) -> None:
    """Neither nothing nor two things are paused at once."""
    with pytest.raises(InvalidValue):
        jobs.pause(**what)


def test_a_resume_wakes_who_waits(jobs: Jobs) -> None:
    """A blocked reserve gets what was paused at once."""
    jobs.pause(job="render")
    job_id = jobs.submit("render")
    with waiting(lambda: jobs.queue.reserve(timeout_s=PATIENCE_S)) as answer:
        jobs.resume(job="render")

        assert [job_id] == [reservation.run.id for reservation in answer()]


# SQLite: several processes, and a backlog


def drain(number: int, wait: Callable[[], object], url: str) -> list[str]:
    """Work on all there is in two threads of one process, and return whose attempts were granted."""
    with connect(url) as jobs:
        wait()

        def work() -> list[str]:
            done = []
            while reservations := jobs.queue.reserve(limit=3, timeout_s=0):
                for reservation in reservations:
                    with jobs.attempt(reservation.run.id, if_due=True):
                        done.append(reservation.run.id)
                    reservation.ack()
            return done

        return [job_id for some in at_once([work] * 2) for job_id in some]


def test_rsv_01_processes_never_get_the_same(tmp_path: Path, racers: Racers) -> None:
    """RSV-01: four processes of two threads share a file: each job is handed out once, and no error is seen."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url) as jobs:
        job_ids = jobs.submit_many([Submission(name="render", params=n) for n in range(800)])

    handled = Counter(job_id for some in racers.run(drain, url) for job_id in some)

    assert dict.fromkeys(job_ids, 1) == handled


def submit_late(number: int, wait: Callable[[], object], url: str) -> float:
    """Wait for a job in one process, and submit it in another; return how long the first one waited for it."""
    with connect(url) as jobs:
        if number == 0:
            jobs.queue.reserve(timeout_s=0.01)  # from now on it listens
            wait()
            return float("inf") if not jobs.queue.reserve(timeout_s=PATIENCE_S) else monotonic()
        wait()
        began = monotonic()
        if number == 1:
            jobs.submit("render")
        return began


def test_another_process_wakes_who_waits(tmp_path: Path, racers: Racers) -> None:
    """A blocked reserve hears of a job submitted elsewhere long before it would look again."""
    got, began, *_ = racers.run(submit_late, f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")

    assert got - began < AT_ONCE_S


def test_an_idle_wait_looks_seldom(tmp_path: Path) -> None:
    """Who waits is woken rather than polling: nothing is written, and little read, while nothing comes."""
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        recorder: Any = jobs.log.recorder
        before = recorder.file.query("PRAGMA data_version"), recorder.max_notification_id()
        looks = 0
        claims = jobs.desk.claims  # type: ignore[union-attr]  # a SQLite log has one
        claim = claims.claim

        def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal looks
            looks += 1
            return claim(*args, **kwargs)

        claims.claim = count  # type: ignore[method-assign]
        jobs.queue.reserve(timeout_s=0.2)
        for _ in range(20):  # each the rest of the wait before
            jobs.queue.reserve(timeout_s=0.005)

        assert before == (recorder.file.query("PRAGMA data_version"), recorder.max_notification_id())
        assert looks <= 4


def test_a_held_snapshot_holds_nobody_up(tmp_path: Path) -> None:
    """While somebody reads the tables in a transaction of their own, runs are submitted, claimed, started and finished."""
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        jobs.submit("render")
        reader = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        reader.execute("BEGIN")
        seen = [reader.execute("SELECT status FROM job_runs").fetchall()]

        second = jobs.submit("render")
        for reservation in jobs.queue.reserve(limit=2, timeout_s=0):
            with jobs.attempt(reservation.run.id):
                pass
        seen.append(reader.execute("SELECT status FROM job_runs").fetchall())
        reader.close()

        assert ([[("queued",)], [("queued",)]], "succeeded") == (seen, jobs.store.get(second).status)


def test_due_runs_are_found_by_an_index(tmp_path: Path) -> None:
    """No statement of a claim reads on over runs that it does not want: each is a search in the one index for it."""
    recorder = SqliteRecorder.open(tmp_path / "jobs.db")
    claims = recorder.desk.claims
    assert isinstance(claims, SqliteClaims)
    statements = [claims.next_queue, claims.next_job, claims.next_priority, claims.due, claims.first]

    plans = [recorder.file.query(f"EXPLAIN QUERY PLAN {one}", [0] * one.count("?")) for one in statements]

    searches = [row[3].partition(" (")[0] for plan in plans for row in plan]
    assert {
        "SEARCH job_runs USING INDEX job_runs_claim",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH job_claims USING PRIMARY KEY",
    } == set(searches)
    recorder.close()


def test_a_claim_costs_the_same_whatever_waits(tmp_path: Path) -> None:
    """The steps that SQLite takes for a claim do not grow with the backlog, nor with what is paused or wanted later."""
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as jobs:
        steps = []
        for size in (10, 5_000):
            many = [
                Submission(name=name, delay=delay)
                for name, delay in (("a", 0), ("b", 0), ("c", 900))
                for _ in range(size)
            ]
            jobs.submit_many(many)
            jobs.pause(job="b")
            steps.append(claim_steps(jobs))

        assert steps[1] < 1.5 * steps[0]


def claim_steps(jobs: Jobs) -> int:
    """Return how often SQLite was at its tenth instruction while one run was claimed."""
    recorder: Any = jobs.log.recorder
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    def find(cursor: sqlite3.Cursor) -> list[str]:
        cursor.connection.set_progress_handler(tick, 10)
        found: list[str] = recorder.desk.claims._find(cursor, (), jobs.emitter.clock(), 1)
        cursor.connection.set_progress_handler(None, 0)
        return found

    assert ["a"] == [found.partition("-")[0] for found in recorder.file.read(find)]
    return count


def test_a_file_of_version_2_gets_claims_when_asked(tmp_path: Path, clock: Clock) -> None:
    """The step adds claims, pauses and the index by which runs are found, and what was queued before is handed out."""
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE "job_schema" ("version" INTEGER PRIMARY KEY, "applied_at" TEXT NOT NULL)')
    for version in (1, 2):
        for statement in MIGRATIONS[version](DEFAULT_TABLES):
            connection.execute(statement)
        connection.execute("INSERT INTO job_schema VALUES (?, '2026-08-01T12:00:00.000000Z')", (version,))
    with connect("memory://", clock=clock) as jobs:
        job_id = jobs.submit("render", {"song": 7})
        (stored,) = jobs.log.recorder.select_events(job_id)
        row = row_of(jobs.job(job_id))
    connection.execute(
        "INSERT INTO job_events (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)",
        (stored.originator_id, stored.originator_version, stored.topic, stored.state),
    )
    names = ", ".join(f'"{name}"' for name in RUN_COLUMNS)
    connection.execute(f"INSERT INTO job_runs ({names}) VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()

    with pytest.raises(Misconfigured, match=f"found=2 needed={VERSION}: run `jobevents migrate"):
        SqliteRecorder.open(path)
    applied = migrate(path)

    with connect(f"sqlite:///{path}", clock=clock) as jobs:
        assert (list(range(3, VERSION + 1)), [job_id], []) == (applied, taken(jobs.queue), jobs.paused())
