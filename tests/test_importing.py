"""Importing status records that were there before the log."""

from collections.abc import Iterator

import pytest

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.events import JobImported
from jobevents.importing import BATCH, Report
from jobevents.jobs import Jobs
from jobevents.recorder import under_job_dir
from jobevents.records import status_bytes

OLD = b'{"job_id":"%s","state":"succeeded","attempts":2,"queued_at":"2026-07-26T12:00:00.123456789+09:00","updated_at":"2026-07-26T12:00:31.5Z","storage_uri":"gs://b/c"}'


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with connect("memory://") as opened:
        yield opened


@pytest.fixture
def bucket() -> MemoryBlobs:
    blobs = MemoryBlobs()
    for job_id in ("comp-1", "comp-2"):
        blobs.put(f"jobs/{job_id}/status.json", OLD % job_id.encode())
    return blobs


def run(jobs: Jobs, bucket: MemoryBlobs, *job_ids: str) -> Report:
    return jobs.import_records(bucket, under_job_dir("jobs"), job_ids)


def test_an_imported_record_keeps_every_byte_and_gains_its_version(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """Nanoseconds, offsets and service fields survive."""
    report = run(jobs, bucket, "comp-1")

    assert report == Report(imported=1)
    assert status_bytes(jobs.job("comp-1")) == (OLD % b"comp-1")[:-1] + b',"version":1}'


def test_a_second_run_imports_nothing(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """What is known is passed over, so a run that was cut short is simply run again."""
    run(jobs, bucket, "comp-1")

    report = run(jobs, bucket, "comp-1", "comp-2")

    assert report == Report(imported=1, known=1)
    assert len(jobs.history("comp-1")) == 1


def test_what_cannot_be_read_is_reported_and_stops_nobody(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """A broken record, a missing one and a name that is no id are counted, each with its reason."""
    bucket.put("jobs/broken/status.json", b'{"state":')

    report = run(jobs, bucket, "broken", "missing", "no id", "comp-1")

    assert (report.imported, report.unreadable) == (1, 3)
    assert set(report.reasons) == {"broken", "missing", "no id"}


def test_nested_values_are_left_out_by_name(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """A record is flat (behaviour S5.1): what is nested is named in the report, and the rest is imported."""
    bucket.put("jobs/comp-3/status.json", b'{"state":"failed","error":"boom","meta":{"a":1},"note":"kept"}')

    report = run(jobs, bucket, "comp-3")

    assert report.left_out == {"comp-3": "meta"}
    assert jobs.job("comp-3").fields == {"note": "kept"}


def test_a_job_that_began_meanwhile_is_not_overwritten(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """When another process wrote one job of a batch, that job keeps its history and the others are imported."""

    class Meanwhile(MemoryBlobs):
        def get(self, name: str, *, if_changed: str | None = None):  # type: ignore[no-untyped-def]
            if name == "jobs/comp-2/status.json":
                jobs.submit("render", id="comp-2")
            return bucket.get(name, if_changed=if_changed)

    report = jobs.import_records(Meanwhile(), under_job_dir("jobs"), ["comp-1", "comp-2"])

    assert report == Report(imported=1, known=1)
    assert jobs.job("comp-2").name == "render"


def test_more_than_a_batch_is_imported_with_progress(jobs: Jobs, bucket: MemoryBlobs) -> None:
    """Progress is told for each batch, and sums up to all."""
    names = [f"comp-{n}" for n in range(10, 10 + BATCH + 7)]
    for name in names:
        bucket.put(f"jobs/{name}/status.json", OLD % name.encode())
    told: list[int] = []

    report = jobs.import_records(bucket, under_job_dir("jobs"), names, on_done=told.append)

    assert told == [BATCH, 7]
    assert report.imported == BATCH + 7
    assert isinstance(jobs.history(names[-1])[0], JobImported)
