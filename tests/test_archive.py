"""The archive: histories of final jobs in Parquet segments, read with the log's tail as one, and held against the log."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.blobs import ABSENT, Blobs, FileBlobs
from jobevents.errors import Corrupt, JobEventsError
from jobevents.jobs import Jobs
from jobevents.testing.faults import Call, Died, FailingBlobs, Fault
from projections.proof import Flaw
from projections.query import query
from projections.replay import replay
from projections.verify import verify
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.jobstates import FINAL, LIVES, bring, tell

pq = pytest.importorskip("pyarrow.parquet")
from projections.archive import Archive, histories  # noqa: E402  # after what it needs
from projections.archivecheck import ArchiveCheck  # noqa: E402

MANIFEST = "segments/v1/manifest/0000000001.json"


@pytest.fixture(params=["memory://", "memory://?log=blobs"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """A job in every state, over a log with one order, and over one of objects."""
    with connect(request.param, actor="ana") as made:
        for life in LIVES:
            bring(made, life, title=life)
        yield made


def archive(jobs: Jobs, blobs: Blobs | None = None) -> Archive:
    return Archive(blobs or jobs.blobs, jobs.prefix)


def content(records: Any) -> list[tuple[str, int, bytes]]:
    return sorted((one.job_id, one.version, one.data) for one in records)


def checked(jobs: Jobs) -> list[str]:
    """The kinds of flaws that a verification finds in the archive."""
    return [flaw.kind for flaw in flaws(jobs)]


def flaws(jobs: Jobs) -> list[Flaw]:
    """What a verification finds in the archive."""
    with ArchiveCheck(archive(jobs)) as check:
        return [flaw for flaw in verify(jobs, others=[check]).flaws if flaw.check == "archive"]


def segments_of(jobs: Jobs) -> list[str]:
    return [one.name for one in jobs.blobs.list("segments/v1/dt=")]


def test_final_jobs_are_archived_and_others_are_not(jobs: Jobs) -> None:
    """Whole histories, byte for byte, of jobs that were not deleted; in a file that any tool reads."""
    done = archive(jobs).extend(jobs.log)

    rows = [row for name in segments_of(jobs) for row in pq.read_table(_file(jobs, name)).to_pylist()]
    log = {(one.job_id, one.version): one.data for one in jobs.log.scan()}
    assert {(row["job_id"], row["version"]): row["data"] for row in rows}.items() <= log.items()
    assert (len(FINAL), len(rows), 0) == (done.jobs, done.events, done.unreadable)
    assert set(FINAL) == {jobs.get(row["job_id"]).state for row in rows}


def _file(jobs: Jobs, name: str) -> Any:
    blob = jobs.blobs.get(name)
    assert blob is not None
    return io.BytesIO(blob.data)


def test_segments_and_tail_are_read_as_one(jobs: Jobs) -> None:
    """Whatever is archived when: every event once, each job's together and in order, for replay and for SQL."""
    archive(jobs).extend(jobs.log, events=2)
    done = [job_id for job_id in {one.job_id for one in jobs.log.scan()} if _state(jobs, job_id) == "succeeded"]
    jobs.rerun(done[0])
    bring(jobs, "failed")

    for _ in range(2):
        found = list(archive(jobs).histories(jobs.log))
        assert content(jobs.log.scan()) == content(found)
        assert [one.job_id for one in found] == sorted(one.job_id for one in found)
        assert len(found) == len(list(replay(jobs)))
        with query(jobs, "SELECT count(*) AS n FROM events") as answer:
            assert [{"n": len(found)}] == answer.rows()
        with query(jobs, "SELECT state, count(*) AS n FROM jobs GROUP BY state") as answer:
            assert 2 == {row["state"]: row["n"] for row in answer.rows()}["failed"]
        with jobs.attempt(done[0]) if _state(jobs, done[0]) == "queued" else jobs.attempt(jobs.submit("render")):
            pass
        archive(jobs).extend(jobs.log)
    assert [] == checked(jobs)


def _state(jobs: Jobs, job_id: str) -> str:
    try:
        return jobs.get(job_id).state
    except JobEventsError:
        return "gone"


def test_a_log_of_objects_is_not_read_where_its_archive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After archiving, all of history costs a read a segment and a manifest, and one for each event that came since."""
    with connect(f"file://{tmp_path}/log") as jobs:
        for _ in range(20):
            bring(jobs, "succeeded")
        archive(jobs).extend(jobs.log)
        bring(jobs, "running")
        read: list[str] = []
        get = FileBlobs.get

        def counted(self: FileBlobs, name: str, **options: Any) -> Any:
            read.append(name)
            return get(self, name, **options)

        monkeypatch.setattr(FileBlobs, "get", counted)
        events = list(histories(jobs))

    assert 62 == len(events)
    assert len([name for name in read if name.startswith("log/")]) <= 4


@pytest.mark.parametrize("fault", ["die", "die after", "lose reply"])
def test_a_run_that_died_is_gone_on_with(jobs: Jobs, fault: Fault) -> None:
    """Whichever call was the last: the next run makes the archive whole, and nothing is in it twice."""
    at = 0
    while True:
        at += 1
        for entry in list(jobs.blobs.list("segments/")):
            jobs.blobs.delete(entry.name)
        failing = FailingBlobs(jobs.blobs, at=at, fault=fault)
        with suppress(Died, JobEventsError):
            archive(jobs, failing).extend(jobs.log, events=6)
        if not failing.met:
            break
        archive(jobs).extend(jobs.log)

        assert 0 == archive(jobs).extend(jobs.log).events
        records = [one for segment in archive(jobs).segments() for one in archive(jobs).read(segment)]
        assert len(records) == len(set(content(records)))
        assert [] == checked(jobs)
    assert at > 8


def test_two_processes_that_archive_at_once_make_one_chain(jobs: Jobs) -> None:
    """Of two that write the same manifest one writes the next; every event is read once."""
    raced: list[str] = []

    def meanwhile(call: Call) -> None:
        if call.method == "put" and "manifest" in call.name and not raced:
            raced.append(call.name)
            archive(jobs).extend(jobs.log, events=4)

    archive(jobs, FailingBlobs(jobs.blobs, before=meanwhile)).extend(jobs.log)

    assert [MANIFEST] == raced
    assert content(jobs.log.scan()) == content(archive(jobs).histories(jobs.log))
    assert list(range(1, len(archive(jobs).links()) + 1)) == [link.n for link in archive(jobs).links()]
    assert [] == checked(jobs)


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "a segment truncated": ("unreadable", lambda data: data[:-100]),
    "a segment altered": ("unreadable", lambda data: data[:300] + b"\xff" * 20 + data[320:]),
    "a segment gone": ("unreadable", lambda _: None),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_finds_a_segment_that_was_damaged(jobs: Jobs, damage: str) -> None:
    """And says which."""
    archive(jobs).extend(jobs.log)
    kind, change = DAMAGE[damage]
    name = segments_of(jobs)[0]
    blob = jobs.blobs.get(name)
    assert blob is not None
    data = change(blob.data)
    jobs.blobs.delete(name)
    if data is not None:
        jobs.blobs.put(name, data)

    [flaw] = flaws(jobs)

    assert kind == flaw.kind
    assert name.removeprefix("segments/v1/") in flaw.said
    with pytest.raises(Corrupt):
        list(archive(jobs).histories(jobs.log))


def test_a_manifest_is_never_written_over_and_none_goes_missing_unseen(jobs: Jobs) -> None:
    """Each names the one before: a manifest changed or removed breaks the chain."""
    archive(jobs).extend(jobs.log, events=2)
    assert len(archive(jobs).links()) > 2
    blob = jobs.blobs.get(MANIFEST)
    assert blob is not None

    jobs.blobs.put(MANIFEST, blob.data.replace(b'"events":', b'"events": '))
    with pytest.raises(Corrupt, match="no chain"):
        archive(jobs).links()
    jobs.blobs.delete(MANIFEST)

    assert ["unreadable"] == checked(jobs)
    jobs.blobs.put(MANIFEST, blob.data, if_generation=ABSENT)
    assert [] == checked(jobs)


def test_what_was_erased_leaves_the_archive(jobs: Jobs) -> None:
    """Its segments are written anew without it, the old ones removed; everything else stays."""
    archive(jobs).extend(jobs.log)
    before = content(archive(jobs).histories(jobs.log))
    erased = next(one.job_id for name in archive(jobs).segments() for one in archive(jobs).read(name))

    gone = archive(jobs).forget({erased})

    kept = [one for segment in archive(jobs).segments() for one in archive(jobs).read(segment)]
    assert gone == len([one for one in before if one[0] == erased])
    assert erased not in {one.job_id for one in kept}
    assert len(segments_of(jobs)) == len(archive(jobs).segments())
    assert 0 == archive(jobs).forget({erased})
    assert [] == checked(jobs)


def test_the_command_line_archives_and_verifies(jobevents: CommandLine) -> None:
    """`archive`, and `verify` with what it made."""
    with connect("sqlite:///jobs.db?synchronous=normal") as there:
        for life in LIVES:
            bring(there, life)
        tell(there, bring(there, "queued"), *LIVES["succeeded"])

    first = jobevents("archive")
    again = jobevents("archive", at_terminal=True)
    jobevents("project", "--once")
    told = jobevents("verify")

    assert (0, len(FINAL) + 1) == (first.code, first.json["jobs"])
    assert "0 events of 0 jobs in 0 new segments\n" == again.out
    assert 0 == told.code
    assert [first.json["events"]] == [one["looked_at"] for one in told.json["checks"] if one["name"] == "archive"]


@pytest.mark.parametrize("url", ["sqlite:///jobs.db?synchronous=normal", "file:///{}/log"])
def test_an_erasure_takes_a_job_out_of_the_archive(jobevents: CommandLine, tmp_path: Path, url: str) -> None:
    """What is archived of it is counted before, and gone after, also where its events stay in the log for another hour."""
    url = url.format(tmp_path)
    with connect(url) as there:
        job_id = bring(there, "succeeded", title="secret")
        bring(there, "failed")
    jobevents("archive", "--url", url)

    before = jobevents("erase", job_id, "--url", url)
    jobevents("erase", job_id, "--yes", "--url", url)

    assert 3 == before.json["archived"]
    with connect(url) as there:
        kept = [one for segment in archive(there).segments() for one in archive(there).read(segment)]
        assert {job_id} == {one.job_id for one in there.log.scan()} - {one.job_id for one in kept}
        assert [] == checked(there)
        archive(there).extend(there.log)
        assert 0 == archive(there).count([job_id])
        assert [] == checked(there)
