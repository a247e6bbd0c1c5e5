"""Verify: whatever is done to a log, its rows or its views from outside is found, and said where; what is right is right."""

import random
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents import codec, connect, wiring
from jobevents.errors import InvalidValue, Misconfigured, NotFound
from jobevents.events import Event, JobAnnotated, JobDeleted, JobStarted, JobSucceeded
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from jobevents.testing.strategies import histories
from projections.bulk import Bulk
from projections.checks import Checked, StatusCheck
from projections.chunks import Chunk, Chunks
from projections.ledger import Ledger
from projections.manifest import ManifestBlob, root_of
from projections.proof import Flaw, prove
from projections.secondlook import SecondLook
from projections.statuswriter import snapshot
from projections.verify import Report, verify
from projections.verify import root_of as root_to_keep
from tests.clock import START, Clock
from tests.histories import queued
from tests.jobstates import LIVES, bring, tell
from tests.tampering import Memory, Objects, Tamper, altered, of_postgres, of_sqlite

pytest_plugins = ("tests.postgres",)


class Night(NamedTuple):
    """A log with a job of each life and projected views, one job that ran to its end, and who may write past the log."""

    jobs: Jobs
    job_id: str  # queued, started, succeeded
    other: str
    tamper: Tamper


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong here stays wrong: nothing is on its way."""
    monkeypatch.setattr("projections.secondlook.PATIENCE_S", 0.0)


ORDERED = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)]


@pytest.fixture(params=[*ORDERED, "objects"])
def night(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Night]:
    """A night on every kind of log."""
    yield from a_night(request, tmp_path, clock)


@pytest.fixture(params=ORDERED)
def ordered(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Night]:
    """A night on the logs that have one order over all jobs: with rows, positions, an index, and slots that can be forced."""
    yield from a_night(request, tmp_path, clock)


def a_night(request: pytest.FixtureRequest, directory: Path, clock: Clock) -> Iterator[Night]:
    tamper: Tamper | None = None
    match request.param:
        case "memory":
            url = "memory://"
        case "objects":
            url = "memory://?log=blobs"
        case "sqlite":
            url, tamper = f"sqlite:///{directory}/jobs.db?synchronous=normal", of_sqlite(directory / "jobs.db")
        case _:
            url = request.getfixturevalue("postgres_blank")
            wiring.migrate(url)
            tamper = of_postgres(url)
    with connect(url, clock=clock, actor="ana") as jobs:
        yield lived(jobs, tamper or (Memory(jobs) if jobs.log.ordered else Objects(jobs)))


def lived(jobs: Jobs, tamper: Tamper) -> Night:
    for life in LIVES:
        bring(jobs, life)
    job_id, other = jobs.submit("render", id="night-1"), jobs.submit("render", id="other-1")
    for one in (job_id, other):
        tell(jobs, one, partial(JobStarted, attempt=1, actor="w1"))
        tell(jobs, one, partial(JobSucceeded, start=2, actor="w1"))
    project(jobs)
    return Night(jobs, job_id, other, tamper)


def project(jobs: Jobs) -> None:
    if jobs.log.ordered:
        wiring.projector(jobs, leased=False).run_once()
        return
    for job_id in {record.job_id for record in jobs.log.scan()}:
        if not isinstance(jobs.history(job_id)[-1], JobDeleted):
            put_status(jobs, job_id, version=len(jobs.history(job_id)))


def found(report: Report) -> set[tuple[str, str, str, int]]:
    return {(flaw.check, flaw.kind, flaw.job_id, flaw.version) for flaw in report.flaws}


def of_log(report: Report) -> list[tuple[str, str, int]]:
    return [(flaw.kind, flaw.job_id, flaw.version) for flaw in report.flaws if flaw.check == "log"]


def test_what_is_right_is_right(ordered: Night) -> None:
    """Every life, every view: nothing is found, all is counted, and the root is there."""
    report = verify(ordered.jobs)

    assert [] == report.flaws
    assert report.is_right
    total = int(ordered.jobs.log.last_cursor())
    jobs = len(LIVES) + 2
    counts = {check.name: check.looked_at for check in report.checks}
    assert {"log": total, "rows": jobs - 1, "status": jobs - 1, "index": jobs - 1} == counts
    assert (total, jobs, 1, total, True) == (report.events, report.jobs, report.deleted, report.position, report.whole)
    assert 64 == len(report.root)


def test_a_log_of_objects_is_right(tmp_path: Path, clock: Clock) -> None:
    """It has no rows, and no one order; its events and statuses are proved all the same, and whatever is missing of both."""
    with connect("memory://?log=blobs", clock=clock, actor="ana") as jobs:
        night = lived(jobs, Objects(jobs))
        report = verify(jobs)
        assert ([], True) == (report.flaws, report.is_right)
        assert ["log", "status"] == [check.name for check in report.checks if check.looked_at]
        with pytest.raises(Misconfigured, match="no one order"):
            verify(jobs, known=root_to_keep(report, START))

        night.tamper.remove(night.job_id, 3)
        for version in (3, 2, 1):
            night.tamper.remove(night.other, version)

        report = verify(jobs)
        assert {("status", "ahead", "night-1", 2), ("status", "stray", "other-1", 0)} == found(report)


def test_one_root_wherever_the_same_histories_are(night: Night) -> None:
    """The same events in another log, in another order of commits, have the same root."""
    by_job: dict[str, list[Event]] = {}
    for record in night.jobs.log.scan():
        by_job.setdefault(record.job_id, []).append(record.event())
    with connect("memory://") as other:
        for events in reversed(by_job.values()):
            other.log.append(events)

        assert verify(night.jobs).root == verify(other).root
        other.submit("one more")
        assert verify(night.jobs).root != verify(other).root


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_altered_event_is_found(night: Night, version: int) -> None:
    """Any event whose bytes were changed, the last one too."""
    night.tamper.replace(night.job_id, version, altered(night.jobs, night.job_id, version))

    assert [("altered", night.job_id, version)] == of_log(verify(night.jobs))


@pytest.mark.parametrize("version", [1, 2])
def test_an_event_altered_and_sealed_anew_is_found(night: Night, version: int) -> None:
    """With a chain that fits, the next event does not follow any more."""
    night.tamper.replace(night.job_id, version, altered(night.jobs, night.job_id, version, sealed=True))

    assert [("altered", night.job_id, version + 1)] == of_log(verify(night.jobs))


def test_the_last_event_altered_and_sealed_anew_is_found_by_its_status(night: Night) -> None:
    """Of which no chain can tell, the status keeps the chain that it was made from."""
    night.tamper.replace(night.job_id, 3, altered(night.jobs, night.job_id, 3, sealed=True))

    report = verify(night.jobs)

    assert ("status", "altered", night.job_id, 3) in found(report)


@pytest.mark.parametrize("version", [1, 2])
def test_a_removed_event_is_found(night: Night, version: int) -> None:
    night.tamper.remove(night.job_id, version)

    assert [("missing", night.job_id, version)] == of_log(verify(night.jobs))


def test_the_last_event_removed_is_found_by_what_was_made_of_it(ordered: Night) -> None:
    """Its row and its status are of an event that the log does not have."""
    ordered.tamper.remove(ordered.job_id, 3)

    report = verify(ordered.jobs)

    assert {("rows", "differs", ordered.job_id, 2), ("status", "ahead", ordered.job_id, 2)} <= found(report)


def test_a_whole_job_removed_is_found_by_what_was_made_of_it(ordered: Night) -> None:
    for version in (3, 2, 1):
        ordered.tamper.remove(ordered.job_id, version)

    report = verify(ordered.jobs)

    stray = {(check, "stray", ordered.job_id, 0) for check in ("rows", "status", "index")}
    assert stray <= found(report)


def test_swapped_events_are_found(night: Night) -> None:
    second, third = (record.data for record in night.jobs.log.read_raw(night.job_id)[1:])
    night.tamper.replace(night.job_id, 2, third)
    night.tamper.replace(night.job_id, 3, second)

    assert ("swapped", night.job_id, 2) in of_log(verify(night.jobs))


def test_an_event_of_another_job_is_found(night: Night) -> None:
    night.tamper.replace(night.job_id, 2, night.jobs.log.read_raw(night.other)[1].data)

    report = verify(night.jobs)

    assert ("misplaced", night.job_id, 2) in of_log(report)
    assert any("another job: other-1 #2" in flaw.said for flaw in report.flaws)


def test_a_doubled_event_is_found(night: Night) -> None:
    """A copy of an event in the next slot."""
    night.tamper.add(night.job_id, 4, night.jobs.log.read_raw(night.job_id)[2].data)

    report = verify(night.jobs)

    assert ("duplicated", night.job_id, 4) in of_log(report)
    assert any(flaw.said == "#4 is a copy of #3" for flaw in report.flaws)


def test_an_event_id_that_is_there_twice_is_found(night: Night) -> None:
    """Two jobs that have an event of one id, each whole in itself."""
    first = queued("copy-1", actor="ana")
    for job_id in ("copy-1", "copy-2"):
        night.jobs.log.append([msgspec.structs.replace(first, job_id=job_id)])

    report = verify(night.jobs)

    assert ("duplicated", "copy-1", 1) in of_log(report)
    assert any("there 2 times: copy-1 #1, copy-2 #1" in flaw.said for flaw in report.flaws)


def test_a_forked_history_is_found(ordered: Night) -> None:
    """Two events in one slot, each chained as if it were the one."""
    ordered.tamper.add(ordered.job_id, 3, altered(ordered.jobs, ordered.job_id, 3, sealed=True))

    assert [("forked", ordered.job_id, 3)] == of_log(verify(ordered.jobs))


def test_the_same_event_twice_in_a_slot_is_found(ordered: Night) -> None:
    ordered.tamper.add(ordered.job_id, 3, ordered.jobs.log.read_raw(ordered.job_id)[2].data)

    assert [("duplicated", ordered.job_id, 3)] == of_log(verify(ordered.jobs))[:1]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"JobPaused"}', b"\xff" * 40, b"[" * 5000])
def test_an_event_that_cannot_be_read_is_found(night: Night, data: bytes) -> None:
    """Whatever bytes a slot holds, it is named, and everything else is looked at."""
    night.tamper.replace(night.job_id, 2, data)

    report = verify(night.jobs)

    assert [("unreadable", night.job_id, 2)] == of_log(report)
    assert len(LIVES) + 2 == report.jobs


def test_a_status_one_version_behind_is_found(night: Night) -> None:
    """As a projector that lost a write would leave it, though it says that it is beyond."""
    put_status(night.jobs, night.job_id, version=2)

    report = verify(night.jobs)

    assert {("status", "behind", night.job_id, 3)} == found(report)
    assert "an event behind: it says running (#2), the log says succeeded (#3)" in report.flaws[0].said


def put_status(jobs: Jobs, job_id: str, *, version: int) -> None:
    """Write the status that a job had after one of its events."""
    then = jobs.job_at(job_id, version)
    jobs.blobs.put(jobs.blob_name(status_name(job_id)), status_bytes(then), metadata=snapshot(then))


def test_a_status_on_its_way_is_no_flaw(ordered: Night) -> None:
    """What the projector does not claim to have yet is counted, and is right."""
    job_id = ordered.jobs.submit("render")
    tell(ordered.jobs, ordered.other, make_annotated)

    report = verify(ordered.jobs)

    assert [] == report.flaws
    assert {"status": 2} == {check.name: check.behind for check in report.checks if check.behind}
    assert job_id not in {flaw.job_id for flaw in report.flaws}


def make_annotated(**common: Any) -> Event:
    return JobAnnotated(**common, title="Song 7")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "absent"),
        (b"not json", "unreadable"),
        (b'{"job_id":"night-1","state":"failed","updated_at":"2026-07-26T12:00:31Z"}', "foreign"),
        (b'{"job_id":"night-1","state":"failed","updated_at":"2026-07-26T12:00:31Z","version":3}', "differs"),
        (b'{"job_id":"night-1","state":"failed","updated_at":"2026-07-26T12:00:31Z","version":9}', "ahead"),
    ],
)
def test_a_status_that_says_something_else_is_found(night: Night, data: bytes | None, kind: str) -> None:
    name = night.jobs.blob_name(status_name(night.job_id))
    if data is None:
        night.jobs.blobs.delete(name)
    else:
        night.jobs.blobs.put(name, data)

    assert {("status", kind, night.job_id, 3)} == found(verify(night.jobs))


def test_a_status_of_a_job_that_is_not_there_is_found(night: Night) -> None:
    """One from the log, that is; another service's record is only counted."""
    for job_id, end in (("ghost-1", b',"version":5'), ("theirs-1", b"")):
        record = b'{"job_id":"%s","state":"running","updated_at":"2026-07-26T12:00:31Z"%s}' % (job_id.encode(), end)
        night.jobs.blobs.put(night.jobs.blob_name(status_name(job_id)), record)

    report = verify(night.jobs)

    assert {("status", "stray", "ghost-1", 0)} == found(report)
    assert ["1 of other services beside them; jobevents import takes them in"] == [
        c.note for c in report.checks if c.note and c.looked_at
    ]


def test_a_status_left_of_a_deleted_job_is_found(night: Night) -> None:
    deleted = next(record.job_id for record in night.jobs.log.scan() if record.type == "JobDeleted")
    put_status(night.jobs, deleted, version=1)

    assert {("status", "stray", deleted, 2)} == found(verify(night.jobs))


def rewrite_index(jobs: Jobs, change: Callable[[list[str], str], tuple[list[str], str]]) -> None:
    """Write the chunk of all jobs anew, as `change` makes it of ids and states."""
    manifests = ManifestBlob(jobs.blobs, f"{root_of(jobs.prefix)}MANIFEST.json")
    chunks = Chunks(jobs.blobs, f"{root_of(jobs.prefix)}chunk/")
    stored = manifests.load()
    (ref,) = stored.manifest.sequences["all"]
    ids, states = change(list(chunks.get(ref).ids), chunks.get(ref).states)
    made = chunks.put(Chunk(ids, [1] * len(ids), states))
    sequences = {**stored.manifest.sequences, "all": [made]}
    manifests.save(msgspec.structs.replace(stored.manifest, sequences=sequences), stored)


def test_an_index_entry_that_is_missing_is_found(ordered: Night) -> None:
    def without(ids: list[str], states: str) -> tuple[list[str], str]:
        place = ids.index(ordered.job_id)
        return ids[:place] + ids[place + 1 :], states[:place] + states[place + 1 :]

    rewrite_index(ordered.jobs, without)

    assert ("index", "absent", ordered.job_id, 0) in found(verify(ordered.jobs))


def test_an_index_entry_of_no_job_or_of_another_state_is_found(ordered: Night) -> None:
    def spoilt(ids: list[str], states: str) -> tuple[list[str], str]:
        place = ids.index(ordered.job_id)
        return [*ids, "zzz-1"], states[:place] + "f" + states[place + 1 :] + "q"

    rewrite_index(ordered.jobs, spoilt)

    report = verify(ordered.jobs)
    assert {("index", "differs", ordered.job_id, 0), ("index", "stray", "zzz-1", 0)} <= found(report)


def test_rows_that_were_written_past_the_log_are_found(tmp_path: Path, clock: Clock) -> None:
    """A row that was changed, one that was removed, one that nobody made."""
    path = tmp_path / "jobs.db"
    with connect(f"sqlite:///{path}?synchronous=normal", clock=clock, actor="ana") as jobs:
        night = lived(jobs, of_sqlite(path))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE job_runs SET status = 'failed' WHERE id = 'night-1'")
            connection.execute("DELETE FROM job_runs WHERE id = 'other-1'")
            for number in range(2):
                copy = row_of_a_stray(connection, f"stray-{number}")
                connection.execute(f"INSERT INTO job_runs SELECT {copy} FROM job_runs WHERE id = 'night-1'")

        report = verify(night.jobs)

    strays = {("rows", "stray", f"stray-{number}", 0) for number in range(2)}
    assert {("rows", "differs", "night-1", 3), ("rows", "absent", "other-1", 3), *strays} == found(report)


def row_of_a_stray(connection: sqlite3.Connection, job_id: str) -> str:
    """The columns of a copy of a row under another id."""
    names = [row[1] for row in connection.execute("PRAGMA table_info(job_runs)")]
    return ", ".join(f"'{job_id}'" if name == "id" else f'"{name}"' for name in names)


def test_bytes_that_became_text_are_found(tmp_path: Path, clock: Clock) -> None:
    """As an UPDATE with replace() leaves them in SQLite, in the last event too."""
    path = tmp_path / "jobs.db"
    with connect(f"sqlite:///{path}?synchronous=normal", clock=clock, actor="ana") as jobs:
        night = lived(jobs, of_sqlite(path))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            changed = "replace(state, 'w1', 'w2')"
            connection.execute(
                f"UPDATE job_events SET state = {changed} WHERE originator_id = ? AND originator_version = 3",
                (night.job_id,),
            )
            connection.execute("UPDATE job_events SET state = 7 WHERE originator_id = ?", (night.other,))

        report = verify(jobs)

    assert ("altered", night.job_id, 3) in of_log(report)
    assert {("unreadable", night.other, version) for version in (1, 2, 3)} <= set(of_log(report))


def test_only_some_jobs(night: Night) -> None:
    """Named jobs, or a sample of them: what is wrong with these is found, there is no root, and nothing is said of others."""
    night.tamper.remove(night.job_id, 2)

    one = verify(night.jobs, only=[night.other])
    some = [verify(night.jobs, sample=3, rng=random.Random(seed)) for seed in range(30)]

    assert (True, 1, "", False) == (one.is_right, one.jobs, one.root, one.whole)
    assert {3} == {report.jobs for report in some}
    assert {True, False} == {report.is_right for report in some}
    assert not verify(night.jobs, only=[night.job_id, night.other]).is_right
    assert verify(night.jobs, sample=1000).jobs == len(LIVES) + 2
    with pytest.raises(NotFound, match="no-such-job"):
        verify(night.jobs, only=["no-such-job"])


def test_an_older_root_is_found_again(ordered: Night) -> None:
    """As long as nothing before it was changed, whatever came since; a rewritten end is found that no chain can tell."""
    root = root_to_keep(verify(ordered.jobs), START)
    ordered.jobs.submit("render")
    project(ordered.jobs)
    assert verify(ordered.jobs, known=root).is_right

    ordered.tamper.replace(ordered.job_id, 3, altered(ordered.jobs, ordered.job_id, 3, sealed=True))

    report = verify(ordered.jobs, known=root)
    assert ("root", "differs", "", 0) in found(report)
    with pytest.raises(InvalidValue, match="not proved"):
        root_to_keep(report, START)
    with pytest.raises(InvalidValue, match="all of them"):
        verify(ordered.jobs, only=[ordered.other], known=root)


def test_what_was_erased_is_accepted(night: Night) -> None:
    """Below a job's floor events may be missing; above it they may not."""
    deleted = next(record.job_id for record in night.jobs.log.scan() if record.type == "JobDeleted")
    night.tamper.remove(deleted, 1)

    assert [("missing", deleted, 1)] == of_log(verify(night.jobs))
    report = verify(night.jobs, floors=Erased({deleted: 2}))
    flaws = [flaw for flaw in report.flaws if flaw.kind != "ahead"]  # in memory the places of what follows moved up
    assert ([], 1, 1) == (flaws, report.erased, report.deleted)


class Erased(dict[str, int]):
    """Floors: below which version all was erased."""

    def get(self, job_id: str, default: int = 0) -> int:  # type: ignore[override]  # a number for any job
        return super().get(job_id, default)


def test_an_archive_can_be_held_against_the_log_too(night: Night) -> None:
    """Another check sees every history once, and what it says is part of the report."""

    class Archive:
        is_view = False

        def __init__(self) -> None:
            self.checked = Checked("archive", "segments")
            self.seen: list[str] = []

        def begin(self, ledger: Any) -> None:
            pass

        def examine(self, proofs: Any) -> Iterator[Flaw]:
            self.seen += [proof.job_id for proof in proofs]
            yield from ()

        def finish(self, ledger: Any, *, whole: bool) -> Iterator[Flaw]:
            yield Flaw("archive", "truncated", "segment 3 ends early")

    archive = Archive()

    report = verify(night.jobs, others=[archive])

    assert (sorted(set(archive.seen)), {("archive", "truncated", "", 0)}) == (archive.seen, found(report))
    assert not report.is_right


def test_what_a_log_of_objects_has_erased_is_accepted(clock: Clock) -> None:
    """Its recorder knows the floor of each job."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        job_id = jobs.submit("render")
        jobs.delete(job_id)
        Objects(jobs).remove(job_id, 1)
        assert not verify(jobs).is_right

        jobs.log.recorder.floors.raise_to(job_id, 2)  # type: ignore[attr-defined]  # this log's has them

        report = verify(jobs)
        assert (True, 1, 1) == (report.is_right, report.erased, report.deleted)


def test_without_views_the_log_is_proved_all_the_same(jobs: Jobs) -> None:
    """A service that keeps no statuses and no index has a right log, and is told what was not looked at."""
    jobs.submit("render")

    report = verify(jobs)

    assert report.is_right
    assert {"status", "index"} == {check.name for check in report.checks if check.note}


def test_statuses_written_inline_are_held_against_the_log(clock: Clock) -> None:
    """With no projector that could bring them, a status that is missing or behind is a flaw."""
    with connect("memory://", inline=True, clock=clock) as jobs:
        for job_id in ("a-1", "b-1"):
            jobs.submit("render", id=job_id)
            with jobs.attempt(job_id):
                pass
        assert verify(jobs).is_right
        put_status(jobs, "a-1", version=2)
        jobs.blobs.delete(jobs.blob_name(status_name("b-1")))

        report = verify(jobs)

    assert {("status", "behind", "a-1", 3), ("status", "absent", "b-1", 3)} == found(report)


def doubted(jobs: Jobs, job_id: str, **options: Any) -> list[str]:
    """What a second look finds of a job's status after a first look found it behind."""
    with Bulk(jobs.blobs, 1) as bulk, Ledger() as ledger:
        check = StatusCheck(jobs.log, jobs.blobs, "", bulk, None)
        check.begin(ledger)
        second = SecondLook(jobs, prove, **options)
        for flaw in check.examine([prove(jobs.log.records_of(job_id))]):
            second.add(check, flaw)
        return [flaw.kind for _, flaw in second.flaws()]


def test_a_status_that_arrives_meanwhile_is_no_flaw(clock: Clock) -> None:
    """It is waited for, and need not have what came since the first look."""
    with connect("memory://", clock=clock) as jobs:
        job_id = jobs.submit("render")
        tell(jobs, job_id, partial(JobStarted, attempt=1))
        put_status(jobs, job_id, version=1)

        def goes_on(_: float) -> None:
            put_status(jobs, job_id, version=2)
            tell(jobs, job_id, make_annotated)

        assert [] == doubted(jobs, job_id, patience_s=30.0, sleep=goes_on)


def test_a_status_that_does_not_arrive_is_a_flaw(clock: Clock) -> None:
    """When patience ends; at once of a job whose last event is long ago."""
    with connect("memory://", clock=clock) as jobs:
        job_id = jobs.submit("render")
        tell(jobs, job_id, partial(JobStarted, attempt=1))
        put_status(jobs, job_id, version=1)
        slept: list[float] = []
        ticks = iter(range(1000))

        assert ["behind"] == doubted(jobs, job_id, patience_s=30.0, sleep=slept.append, monotonic=lambda: next(ticks))
        assert slept
        slept.clear()
        clock.now += timedelta(minutes=2)
        assert ["behind"] == doubted(jobs, job_id, patience_s=30.0, sleep=slept.append)
        assert not slept


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
def test_nothing_is_wrong_while_everything_goes_on(
    tmp_path: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are run by several threads, statuses written by them or by a projector: each verification finds all right."""
    monkeypatch.setattr("projections.secondlook.PATIENCE_S", 20.0)  # a machine that does much else
    stop = threading.Event()
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", inline=inline) as jobs:

        def work() -> None:
            while not stop.is_set():
                with jobs.attempt(jobs.submit("render")) as attempt:
                    attempt.progress(50, "half")

        def follow() -> None:
            wiring.projector(jobs, leased=False).run(stop)

        threads = [threading.Thread(target=one) for one in (work, work, *([] if inline else [follow]))]
        for thread in threads:
            thread.start()
        try:
            reports = [verify(jobs)]
            while reports[-1].jobs < 30:
                reports.append(verify(jobs))
        finally:
            stop.set()
            for thread in threads:
                thread.join()

        assert [] == [flaw for report in reports for flaw in report.flaws]
        assert verify(jobs).is_right


def test_an_empty_log_is_right(jobs: Jobs) -> None:
    assert verify(jobs).is_right


@settings(max_examples=40)
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_any_history_is_right_until_a_byte_is_changed(lives: list[list[Event]], data: st.DataObject) -> None:
    """Whatever jobs lived through, verify finds nothing; and with one byte of one event changed, it names that job."""
    with connect("memory://") as jobs:
        for number, events in enumerate(lives):
            for event in events:
                jobs.emitter.log.append(
                    [msgspec.structs.replace(event, job_id=f"job-{number}", id=f"{number}/{event.version}")]
                )
        assert [] == [flaw for flaw in verify(jobs).flaws if flaw.check != "rows"]

        records = list(jobs.log.scan())
        record = data.draw(st.sampled_from(records))
        place = data.draw(st.integers(0, len(record.data) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda value: value != record.data[place]))
        spoilt = record.data[:place] + bytes([byte]) + record.data[place + 1 :]
        Memory(jobs).replace(record.job_id, record.version, spoilt)

        assert {record.job_id} == {flaw.job_id for flaw in verify(jobs).flaws if flaw.check == "log"}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=25)
@given(events=histories())
def test_the_row_of_any_history_is_what_it_folds_to(events: list[Event], kind: str) -> None:
    """No false alarm, whatever a row has to hold: long numbers, odd texts, times at the ends of the calendar."""
    with tempfile.TemporaryDirectory() as directory:
        url = "memory://" if kind == "memory" else f"sqlite:///{directory}/jobs.db?synchronous=normal"
        with connect(url) as jobs:
            job = None
            for event in events:
                job = fold([event], job)
                jobs.log.append([msgspec.structs.replace(event, id=f"{event.version}")], rows=[job])

            assert [] == verify(jobs).flaws


def test_progress_reaches_the_end(night: Night) -> None:
    seen: list[tuple[int, int]] = []

    report = verify(night.jobs, on_progress=lambda done, total: seen.append((done, total)))

    assert (report.events, report.events) == seen[-1]


def test_codec_and_proof_agree_on_a_chain(night: Night) -> None:
    """What the codec calls a break is what verify calls altered."""
    night.tamper.replace(night.job_id, 2, altered(night.jobs, night.job_id, 2))

    broken = codec.chain_breaks(record.data for record in night.jobs.log.read_raw(night.job_id))
    assert [place + 1 for place in broken] == [version for _, _, version in of_log(verify(night.jobs))]
