"""What others may write into the blobs, the file of blobs and URLs: none of it ends in an error that is not ours."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jobevents import connect, errors, wiring
from jobevents.backends.blobleases import BlobLeases
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import FileBlobs, MemoryBlobs
from jobevents.doctor import examine
from jobevents.lease import RoleLease
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents

DEEP = b'{"a":' * 100_000
NO_ZONE = b"2026-07-26T12:00:00"
HEALTH = (
    b'{"view":"\\u001b[31m","holder":"h","position":0,"head":1,"lag_events":1,"lag_s":0,"complete_through":null,'
    b'"heartbeat":"2026-07-26T12:00:00Z","parked":0,"error":"","written_at":"2026-07-26T12:00:00Z"}'
)


@pytest.mark.parametrize("data", [DEEP, HEALTH.replace(b"00Z", b"00")], ids=["deep", "no zone"])
def test_health_that_cannot_be_read(data: bytes) -> None:
    """The doctor says so, beside everything else."""
    with connect("memory://") as jobs:
        jobs.submit("mix", id="a")
        jobs.blobs.put("ctl/v1/projector/status.json", data)

        (bad,) = [finding for finding in examine(jobs) if not finding.ok]

    assert bad.found.startswith("Corrupt: health of a projector cannot be read")


def test_leases_nested_deep() -> None:
    """What cannot be read is nobody's lease, and a role that somebody unknown holds until it runs out."""
    blobs = MemoryBlobs()
    blobs.put("workers/v1/w.json", DEEP)
    blobs.put("ctl/v1/lease/projector.json", DEEP)

    assert [] == BlobLeases(blobs).list()
    assert not RoleLease(blobs, "projector", "me").hold()


def test_record_beside_a_file_nested_deep(tmp_path: Path) -> None:
    """A record that cannot be read speaks of nothing: the file is another program's."""
    blobs = FileBlobs(tmp_path)
    generation = blobs.put("a/b", b"1", metadata={"code": "1"})
    (tmp_path / "a" / ".b.blob").write_bytes(DEEP)

    found = blobs.get("a/b")

    assert found is not None
    assert (b"1", {}) == (found.data, found.metadata)
    assert found.generation != generation


@pytest.mark.parametrize("change", ["metadata = '['", "metadata = '5'", "stored_at = 'soon'", "data = 'text'"])
def test_row_of_a_blob_that_cannot_be_read(tmp_path: Path, change: str) -> None:
    """A row that was edited by hand is Corrupt, with its name."""
    blobs = SqliteBlobs(tmp_path / "blobs.db")
    blobs.put("a", b"1")
    with closing(sqlite3.connect(tmp_path / "blobs.db")) as connection, connection:
        connection.execute(f"UPDATE blobs SET {change}")  # a constant of this test

    with pytest.raises(errors.Corrupt, match="name='a'"):
        blobs.get("a")
    blobs.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://[",
        "sqlite:///a%00b.db",
        "sqlite:///a\ud800.db",
        "file:///a%00b",
        "sqlite://user:hunter2@host/jobs.db",
        "sqlite:///jobs.db?password=hunter2&x=1",
        "file://user:hunter2@host/jobs",
        "postgresql://user:hun@ter2@localhost/jobs",
        "postgresql://user:hun/ter2@localhost/jobs",
        "gs://user:hunter2@[",
    ],
)
def test_url_that_means_nothing(url: str) -> None:
    """It is refused for what it is, and no part of a password is repeated."""
    for use in (connect, wiring.open_blobs):
        if use is wiring.open_blobs and "?" in url:
            continue
        with pytest.raises(errors.Misconfigured) as refused:
            use(url)

        assert "ter2" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_path_that_is_too_long(tmp_path: Path) -> None:
    """It is an error of ours, whatever the file system makes of it."""
    with pytest.raises(errors.JobEventsError):
        wiring.open_blobs(f"sqlite:///{tmp_path}/{'a' * 5000}")


def test_sec_12_a_forged_health_drives_no_terminal(jobevents: CommandLine) -> None:
    """The name that a view gives itself is text."""
    jobevents("submit", "--create", "mix", "--id", "a")
    FileBlobs("jobs-blobs").put("ctl/v1/projector/x.json", HEALTH)

    told = jobevents("doctor", at_terminal=True)

    assert "␛[31m" in told.out
    assert "\x1b[31m:" not in told.out


def test_sec_12_a_forged_entry_drives_no_terminal(jobevents: CommandLine) -> None:
    """Nor does what a parked entry says when it is requeued."""
    jobevents("submit", "--create", "mix", "--id", "a")
    entry = (
        b'{"view":"status","job_id":"[red]\\u001b]0;x\\u0007","version":1,"type":"x","status":"parked","error":"x",'
        b'"parked_at":"2026-07-26T12:00:00Z"}'
    )
    FileBlobs("jobs-blobs").put("parked/v1/status/aa/a/1.json", entry)

    told = jobevents("parked", "requeue", "--all", at_terminal=True)

    assert "[red]␛]0;x␇#1" in told.out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE job_runs SET status = 'failed' WHERE id = 'b'", "b (it is queued, not failed)"),
        ("DELETE FROM job_events WHERE originator_id = 'b'", "b (NotFound: "),
        ("UPDATE job_events SET state = x'7b7d' WHERE originator_id = 'b'", "b (Corrupt: "),
        (
            "UPDATE job_events SET state = CAST(replace(state, 'mix', 'nix') AS BLOB) WHERE originator_id = 'b'",
            "b (its stored events were changed, from version 1 on)",
        ),
    ],
)
def test_doctor_names_each_job_that_was_changed_by_hand(tmp_path: Path, change: str, why: str) -> None:
    """What was done to one job is told with its id, and hides nothing of the others."""
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        for job_id in ("a", "b", "c"):
            jobs.submit("mix", id=job_id)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute(change)
        connection.execute("UPDATE job_runs SET status = 'failed' WHERE id = 'a'")

    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        (bad,) = [finding for finding in examine(jobs) if not finding.ok]

    assert "rows are folds" == bad.check
    assert why in bad.found
    assert "a (it is queued, not failed)" in bad.found


@pytest.mark.parametrize("change", ["params = '{'", "error = '5'", "created_at = 'soon'", "updated_at = 5"])
def test_row_of_a_run_that_cannot_be_read(tmp_path: Path, change: str) -> None:
    """A row that another program wrote into is Corrupt, with the job's id; the history is read as before."""
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        jobs.submit("mix", id="a")
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
            connection.execute(f"UPDATE job_runs SET {change}")  # a constant of this test

        with pytest.raises(errors.Corrupt, match="job_id='a'"):
            jobs.runs.get("a")

        assert "queued" == jobs.get("a").state
        assert ["jobs by state", "rows are folds"] == [finding.check for finding in examine(jobs) if not finding.ok]
