"""`jobevents import`: a directory or a bucket of status records becomes history, in as many goes as it takes."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jobevents import connect
from jobevents.backends.gcs import GcsBlobs
from jobevents.events import JobImported
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture

pytest_plugins = ("tests.gcs",)

URL = "sqlite:///jobs.db?synchronous=normal"


def record(job_id: str, **fields: object) -> bytes:
    """A status record as the service wrote it."""
    common = {"job_id": job_id, "state": "succeeded", "attempts": 1, "updated_at": "2026-07-26T12:00:31.5Z"}
    return msgspec.json.encode({**common, **fields})


def place(directory: Path, **records: bytes) -> Path:
    """Put records into a directory, where the kit would."""
    for job_id, data in records.items():
        (directory / job_id).mkdir(parents=True, exist_ok=True)
        (directory / job_id / "status.json").write_bytes(data)
    return directory


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory with three records, and a name that a URL would have to quote."""
    return place(tmp_path / "old #1 jobs%41", **{f"comp-{n}": record(f"comp-{n}", title=f"Song {n}") for n in range(3)})


def report(imported: int = 0, known: int = 0, unreadable: int = 0) -> dict[str, object]:
    return {"imported": imported, "known": known, "unreadable": unreadable, "reasons": {}, "left_out": {}}


def as_path(path: Path) -> str:
    return str(path)


@pytest.mark.parametrize("spelled", [as_path, Path.as_uri, lambda path: path.name, lambda path: f"{path}/"])
def test_a_directory_is_imported(jobevents: CommandLine, old: Path, spelled: Callable[[Path], str]) -> None:
    """However its name is spelled, each record becomes a job with its reason, listed and shown like all others."""
    told = jobevents("import", "--create", spelled(old), "--reason", "moved house")

    assert (0, report(imported=3)) == (told.code, told.json)
    assert "Song 2" == jobevents("show", "comp-2").json["title"]
    assert {"comp-0", "comp-1", "comp-2"} == {one["job_id"] for one in jobevents("list").json["items"]}
    assert ["moved house"] == [event["reason"] for event in jobevents("events", "comp-1").json]


def test_a_prefix_of_a_bucket_is_imported(jobevents: CommandLine, gcs_blobs: GcsBlobs, gcs_bucket: str) -> None:
    """Records below the prefix and no others, with what their service kept beside them passed over."""
    for name in ("app/jobs/comp-1/status.json", "app/jobs/comp-2/status.json", "other/jobs/comp-3/status.json"):
        gcs_blobs.put(name, record(name.split("/")[2]))
    gcs_blobs.put("app/jobs/comp-1/mix.wav", b"RIFF")

    told = jobevents("import", "--create", f"gs://{gcs_bucket}/app/jobs")
    again = jobevents("import", "--create", f"gs://{gcs_bucket}/app/jobs/")

    assert (0, report(imported=2)) == (told.code, told.json)
    assert (0, report(known=2)) == (again.code, again.json)
    assert ["comp-1", "comp-2"] == sorted(one["job_id"] for one in jobevents("list").json["items"])


def test_a_second_import_adds_what_is_new(jobevents: CommandLine, old: Path) -> None:
    """What is known is passed over, so that it may be run as often as one likes."""
    jobevents("import", "--create", str(old))
    place(old, **{"comp-9": record("comp-9")})

    told = jobevents("import", "--create", str(old))

    assert report(imported=1, known=3) == told.json
    assert 1 == len(jobevents("events", "comp-1").json)


BAD = {
    "cut-short": b'{"state":"succ',
    "no-object": b"[]",
    "bad-time": record("bad-time", updated_at="yesterday"),
    "no-such-state": record("no-such-state", state="(deleted)"),
    "too-large": record("too-large", note="x" * 70_000),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_imported_is_named_and_stops_nobody(jobevents: CommandLine, old: Path, bad: str) -> None:
    """Exit 1, with the job and the reason; all others of its batch are imported."""
    place(old, **{bad: BAD[bad]})

    told = jobevents("import", "--create", str(old), at_terminal=True)
    again = jobevents("import", "--create", str(old))

    assert 1 == told.code
    assert "3 imported, 0 known before, 1 not readable\n" in told.out
    assert f"  {bad}: " in told.out
    assert (1, 3, [bad]) == (again.code, again.json["known"], list(again.json["reasons"]))


def test_a_directory_without_a_record_is_named(jobevents: CommandLine, old: Path) -> None:
    """A job of which something is there, but no status, is reported."""
    (old / "comp-7").mkdir()
    (old / "comp-7" / "mix.wav").write_bytes(b"RIFF")

    told = jobevents("import", "--create", str(old))

    assert 1 == told.code
    assert "no such blob" in told.json["reasons"]["comp-7"]


def test_a_number_that_no_reader_can_hold_is_left_out(jobevents: CommandLine, old: Path) -> None:
    """The rest of the record is imported and can be shown, and the key is named."""
    data = record("comp-8", note="kept").replace(b'"note"', b'"size":%d,"note"' % 2**70)
    place(old, **{"comp-8": data})

    told = jobevents("import", "--create", str(old))

    assert {"comp-8": "size"} == told.json["left_out"]
    assert {"note": "kept"} == jobevents("show", "comp-8").json["fields"]
    assert "comp-8" in [one["job_id"] for one in jobevents("list").json["items"]]


def test_an_empty_directory_is_told_from_a_missing_one(jobevents: CommandLine, tmp_path: Path) -> None:
    """Nothing to import is no error; a name that is wrong is one, and makes no database."""
    (tmp_path / "empty").mkdir()

    missing = jobevents("import", "nowhere")
    was_made = (tmp_path / "jobs.db").exists()
    empty = jobevents("import", "--create", "empty", at_terminal=True)

    assert (2, False) == (missing.code, was_made)
    assert (0, "nothing to import: no ID/status.json below empty\n") == (empty.code, empty.out)


def test_what_was_imported_from_beside_the_log_is_projected(jobevents: CommandLine, tmp_path: Path) -> None:
    """Import a service's own directory, then project into it: its records gain a version, and say what they said."""
    place(tmp_path / "jobs-blobs" / "jobs", **{"comp-1": record("comp-1", title="Song")})

    jobevents("import", "--create", "jobs-blobs/jobs")
    jobevents("project", "--once")

    stored = msgspec.json.decode((tmp_path / "jobs-blobs" / "jobs" / "comp-1" / "status.json").read_bytes())
    said = msgspec.json.decode(record("comp-1", title="Song"))
    assert {**said, "version": 1} == {key: value for key, value in stored.items() if value}
    assert 1 == len(jobevents("events", "comp-1").json)


@pytest.mark.slow
def test_an_import_that_was_killed_is_gone_on_with(jobevents: CommandLine, tmp_path: Path) -> None:
    """SIGKILL in the middle: what was reported is stored, and the next import brings in the rest, each record once."""
    ids = [f"comp-{n:05}" for n in range(4000)]
    old = place(tmp_path / "old", **{job_id: record(job_id) for job_id in ids})
    jobevents("migrate")
    process = start("import", str(old), cwd=tmp_path)
    with connect(URL) as jobs:
        deadline = time.monotonic() + 60
        while not jobs.log.last_cursor() and time.monotonic() < deadline:
            time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)

    told = jobevents("import", "--create", str(old))

    assert 0 < told.json["known"] < 4000
    assert 4000 == told.json["imported"] + told.json["known"]
    with connect(URL) as jobs:
        records = list(jobs.log.scan())
        assert ids == sorted(one.job_id for one in records)
        assert {JobImported.__name__} == {one.type for one in records}
