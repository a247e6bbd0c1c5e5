"""Worker leases in memory, in SQLite and in blobs keep the contract, and no clock that is set takes a life."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from jobevents.backends import sqliteschema
from jobevents.backends.blobleases import BlobLeases
from jobevents.backends.gcs import GcsBlobs
from jobevents.backends.sql import DEFAULT_TABLES, time_text
from jobevents.backends.sqlite import SqliteRecorder, migrate
from jobevents.backends.sqlitefile import SqliteFile
from jobevents.backends.sqliteleases import SqliteLeases
from jobevents.blobs import Blob, BlobEntry, Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import Misconfigured
from jobevents.events import JobStarted
from jobevents.testing import LeasesContract
from jobevents.testing.leases import LEASE_S, lease, living
from jobevents.workers import Leases, MemoryLeases
from tests.clock import Clock
from tests.histories import JOB, make, queued, write

pytest_plugins = ("tests.gcs",)


class ClockedBlobs:
    """Blobs over others, stored at the time that a test's clock tells."""

    def __init__(self, blobs: Blobs, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._stored_at = {"": clock()}  # generation -> when

    @property
    def min_write_interval_s(self) -> float:
        return self._blobs.min_write_interval_s

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        blob = self._blobs.get(name, if_changed=if_changed)
        return blob and msgspec.structs.replace(blob, stored_at=self._stored_at[blob.generation])

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        generation = self._blobs.put(
            name,
            data,
            if_generation=if_generation,
            content_type=content_type,
            cache_control=cache_control,
            metadata=metadata,
        )
        self._stored_at[generation] = self._clock()
        return generation

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        return self._blobs.delete(name, if_generation=if_generation)

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        return self._blobs.list(prefix, start=start, delimiter=delimiter)

    def close(self) -> None:
        self._blobs.close()


class ByClock(LeasesContract):
    """The contract by the clock of a test."""

    @pytest.fixture
    def elapse(self, clock: Clock) -> Callable[[float], object]:
        """Move the clock."""
        return clock.move


class TestMemoryLeases(ByClock):
    """Leases in memory keep the contract."""

    @pytest.fixture
    def leases(self, clock: Clock) -> Leases:
        """A store of its own."""
        return MemoryLeases(monotonic=clock.monotonic)

    @pytest.fixture
    def again(self, leases: Leases) -> Leases:
        """Memory is one process's."""
        return leases


class TestSqliteLeases(ByClock):
    """Leases in a SQLite file keep the contract."""

    @pytest.fixture
    def leases(self, tmp_path: Path, clock: Clock) -> Iterator[Leases]:
        """A new file."""
        migrate(tmp_path / "jobs.db")
        file = SqliteFile(tmp_path / "jobs.db", synchronous="normal")
        yield SqliteLeases(file, monotonic=clock.monotonic)
        file.close()

    @pytest.fixture
    def again(self, leases: Leases, tmp_path: Path, clock: Clock) -> Iterator[Leases]:
        """The same file, with connections of its own."""
        file = SqliteFile(tmp_path / "jobs.db")
        yield SqliteLeases(file, monotonic=clock.monotonic)
        file.close()


class BlobLeasesContract(ByClock):
    """The contract over blobs; `blobs` is an empty store by the test's clock."""

    @pytest.fixture
    def leases(self, blobs: Blobs, clock: Clock) -> Leases:
        """Leases below a prefix."""
        return BlobLeases(blobs, "tenant", monotonic=clock.monotonic)

    @pytest.fixture
    def again(self, blobs: Blobs, clock: Clock) -> Leases:
        """The same blobs, nothing seen yet."""
        return BlobLeases(blobs, "tenant", monotonic=clock.monotonic)

    def test_nothing_but_leases_is_left(self, blobs: Blobs, leases: Leases, again: Leases) -> None:
        """Who asks without a lease leaves no object behind, and dropped leases leave none either."""
        leases.renew(lease())
        again.list()

        leases.drop("w1")

        assert [] == list(blobs.list(""))

    def test_what_is_no_lease_is_passed_over(self, blobs: Blobs, leases: Leases) -> None:
        """An object that cannot be read is nobody's lease and hides no other."""
        leases.renew(lease("b"))
        blobs.put("tenant/workers/v1/a.json", b"{")

        assert ["b"] == living(leases)


class TestMemoryBlobLeases(BlobLeasesContract):
    """Leases as blobs in memory keep the contract."""

    @pytest.fixture
    def blobs(self, clock: Clock) -> Blobs:
        """An empty store."""
        return MemoryBlobs(clock=clock)


class TestFileBlobLeases(BlobLeasesContract):
    """Leases as files keep the contract."""

    @pytest.fixture
    def blobs(self, tmp_path: Path, clock: Clock) -> Blobs:
        """An empty directory."""
        return ClockedBlobs(FileBlobs(tmp_path), clock)


class TestGcsBlobLeases(BlobLeasesContract):
    """Leases in a bucket keep the contract."""

    @pytest.fixture
    def blobs(self, gcs_blobs: GcsBlobs, clock: Clock) -> Blobs:
        """An empty bucket."""
        return ClockedBlobs(gcs_blobs, clock)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["forth", "back"])
def test_a_store_whose_clock_is_set_takes_no_life(step_s: float) -> None:
    """Files on one machine: its wall clock steps an hour, and who saw a lease renewed goes by that."""
    wall, steady = Clock(), Clock()
    blobs = MemoryBlobs(clock=wall)
    worker, watcher = (BlobLeases(blobs, monotonic=steady.monotonic) for _ in range(2))
    worker.renew(lease())
    alive = [living(watcher)]

    for n in range(6):
        wall.move(10 + (step_s if n == 2 else 0))
        steady.move(10)
        worker.renew(lease())
        watcher.renew(lease("watcher"))
        alive.append(living(watcher))

    assert [["w1"]] + 6 * [["w1", "watcher"]] == [sorted(names) for names in alive]


@pytest.mark.parametrize("step_s", [0.0, 3600.0, -3600.0], ids=["no step", "forth", "back"])
def test_a_dead_worker_is_found_out_whatever_the_clock_says(step_s: float) -> None:
    """A lease that its watcher saw unchanged for its whole life is dead, also when the store's clock was set back."""
    wall, steady = Clock(), Clock()
    blobs = MemoryBlobs(clock=wall)
    watcher = BlobLeases(blobs, monotonic=steady.monotonic)
    BlobLeases(blobs, monotonic=steady.monotonic).renew(lease())
    watcher.list()

    wall.move(LEASE_S + step_s)
    steady.move(LEASE_S)
    watcher.renew(lease("watcher"))

    assert ["watcher"] == living(watcher)


@pytest.mark.slow
def test_files_age_by_the_file_system(tmp_path: Path) -> None:
    """Without a clock of a test, a lease over files dies after its time, and not before."""
    worker, watcher = BlobLeases(FileBlobs(tmp_path)), BlobLeases(FileBlobs(tmp_path))
    worker.renew(lease(lease_s=2.0))
    before = living(watcher)

    give_up = time.monotonic() + 20
    while living(watcher) and time.monotonic() < give_up:
        time.sleep(0.05)  # real time is what is tested

    assert (["w1"], []) == (before, living(watcher))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteFile]:
    """A new database file."""
    migrate(tmp_path / "jobs.db")
    made = SqliteFile(tmp_path / "jobs.db", synchronous="normal")
    yield made
    made.close()


def test_a_lease_of_an_earlier_boot_is_dead(file: SqliteFile, clock: Clock) -> None:
    """After the machine was started again, its clock begins anew; the boot that a lease names tells it apart."""
    SqliteLeases(file, monotonic=clock.monotonic, boot="first").renew(lease())

    after = SqliteLeases(file, monotonic=clock.monotonic, boot="second")

    assert [float("inf")] == [one.age_s for one in after.list()]
    assert after.drop("w1", if_dead=True)


def test_a_lease_from_ahead_of_the_clock_is_dead(file: SqliteFile) -> None:
    """Where the system does not tell its boots apart, a renewal that lies ahead was of an earlier one."""
    SqliteLeases(file, monotonic=lambda: 1000.0, boot="").renew(lease())

    after_the_next_boot = SqliteLeases(file, monotonic=lambda: 100.0, boot="")

    assert [] == living(after_the_next_boot)


def test_processes_of_a_machine_have_one_clock(file: SqliteFile) -> None:
    """Without clocks of a test, a lease that was renewed now is no older than the test."""
    SqliteLeases(file).renew(lease())

    assert 0 <= SqliteLeases(file).list()[0].age_s < 60


def make_version_1(path: Path) -> None:
    """Make a database as the first release did, with a running job in it."""
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE "job_schema" ("version" INTEGER PRIMARY KEY, "applied_at" TEXT NOT NULL)')
    for statement in sqliteschema.MIGRATIONS[1](DEFAULT_TABLES):
        connection.execute(statement)
    connection.execute("INSERT INTO job_schema VALUES (1, '2026-08-01T12:00:00.000000Z')")
    names = [row[1] for row in connection.execute("PRAGMA table_info(job_runs)")]
    values = dict.fromkeys(names, "") | {"id": "old", "status": "running", "worker_id": "w1", "start": 2}
    values |= dict.fromkeys(("created_at", "updated_at", "scheduled_at"), time_text(Clock()()))
    values |= dict.fromkeys(("params", "started_at", "finished_at", "result", "error", "cancel_requested_at"))
    marks = ", ".join("?" * len(names))
    connection.execute(f"INSERT INTO job_runs VALUES ({marks})", [values[name] for name in names])
    connection.commit()
    connection.close()


def test_a_file_of_version_1_gets_leases_when_asked(tmp_path: Path, clock: Clock) -> None:
    """The step adds the table of leases and the deadline of a run, and the rows that were there stay."""
    make_version_1(tmp_path / "jobs.db")

    with pytest.raises(Misconfigured, match=f"found=1 needed={sqliteschema.VERSION}: run `jobevents migrate"):
        SqliteRecorder.open(tmp_path / "jobs.db")
    applied = migrate(tmp_path / "jobs.db")

    recorder = SqliteRecorder.open(tmp_path / "jobs.db")
    recorder.leases.renew(lease())
    running = recorder.runs.running(after="", limit=10, now=clock())
    assert ([*sqliteschema.MIGRATIONS][1:], ["w1"], [("old", "w1", 2, False)]) == (
        applied,
        living(recorder.leases),
        [tuple(one) for one in running],
    )
    recorder.close()


def test_a_file_of_version_1_becomes_as_a_new_one(tmp_path: Path) -> None:
    """Migrated or made new, the tables have the same columns."""
    make_version_1(tmp_path / "old.db")
    migrate(tmp_path / "old.db")
    migrate(tmp_path / "new.db")

    def columns(name: str) -> list[tuple[str, str]]:
        connection = sqlite3.connect(tmp_path / name)
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = [(table, *row[1:4]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.close()
        return sorted(found)

    assert columns("new.db") == columns("old.db")


@pytest.fixture(params=["memory", "sqlite"])
def recorder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteRecorder]:
    """An empty log with its rows."""
    from jobevents.backends.memory import MemoryRecorder

    made = MemoryRecorder() if request.param == "memory" else SqliteRecorder.open(tmp_path / "jobs.db")
    yield made  # type: ignore[misc]  # both have runs
    made.close()


def test_running_jobs_come_page_by_page(recorder: SqliteRecorder, clock: Clock) -> None:
    """Each page begins after the last id, also when what stood there runs no more."""
    for name in ("c", "a", "b", "d"):
        write(recorder, queued(name), make(JobStarted, name, 2, attempt=1, worker=f"w-{name}"))
    write(recorder, queued("waits"))

    first = recorder.runs.running(after="", limit=2, now=clock())
    rest = recorder.runs.running(after="b", limit=2, now=clock())

    assert [("a", "w-a", 2), ("b", "w-b", 2)] == [one[:3] for one in first]
    assert ["c", "d"] == [one.job_id for one in rest]
    assert [] == list(recorder.runs.running(after="d", limit=2, now=clock()))


def test_a_running_job_past_its_deadline_is_overdue(recorder: SqliteRecorder, clock: Clock) -> None:
    """From the instant of its deadline on; one without a deadline never is."""
    due = clock() + timedelta(seconds=10)
    write(recorder, queued(JOB), make(JobStarted, JOB, 2, attempt=1, worker="w", deadline=due))
    write(recorder, queued("none"), make(JobStarted, "none", 2, attempt=1, worker="w"))

    def overdue(seconds: float) -> list[str]:
        now = clock() + timedelta(seconds=seconds)
        return [one.job_id for one in recorder.runs.running(after="", limit=10, now=now) if one.is_overdue]

    assert ([], [JOB], [JOB]) == (overdue(9.999), overdue(10), overdue(11))
