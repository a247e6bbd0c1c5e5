"""A fleet of two languages: statuses as the Go kit writes them, over ours, on a log of blobs."""

from typing import Any

import msgspec
import pytest

from jobevents.blobs import MemoryBlobs
from jobevents.errors import AlreadySucceeded
from jobevents.status import decode
from jobevents.testing import Clock
from tests.bloblogs import bucket_jobs, close_buckets, write_status
from tests.vectors import vectors

GO = [
    one
    for one in vectors("encode")
    if one.values[0]["out"].get("bytes") and '"state":"succeeded"' in one.values[0]["out"]["bytes"]
]


@pytest.mark.parametrize("vector", GO)
def test_a_success_of_the_go_kit_between_ours(vector: dict[str, Any], clock: Clock) -> None:
    """It is read and guarded, adopted into the log and gone on from; ours is then a record that keeps its fields."""
    store, job_id, data = MemoryBlobs(clock=clock), vector["in"]["id"], vector["out"]["bytes"].encode()
    ours, other = bucket_jobs(store, clock), bucket_jobs(store, clock)
    ours.submit("generate", id=job_id)
    ours.attempt(job_id, deadline_s=0).__enter__()
    write_status(ours, job_id)
    store.put(f"log-1/jobs/{job_id}/status.json", data)

    with pytest.raises(AlreadySucceeded), other.attempt(job_id):
        raise AssertionError("run again")
    other.rerun(job_id)
    with other.attempt(job_id):
        pass
    write_status(other, job_id)
    blob = store.get(f"log-1/jobs/{job_id}/status.json")
    close_buckets()

    assert blob is not None
    shown, theirs = msgspec.json.decode(blob.data), msgspec.json.decode(data)
    assert "succeeded" == decode(blob.data).state
    assert theirs.get("output_dir") == shown.get("output_dir")
    assert shown["version"] > 4
