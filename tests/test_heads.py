"""A job is read on from its status exactly as from its history, whatever happened to it."""

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from jobevents.blobs import MemoryBlobs
from jobevents.errors import InvalidValue
from jobevents.events import Event, JobQueued
from jobevents.job import DELETED, Job, fold
from jobevents.testing import strategies
from projections.heads import snapshot_of
from projections.statuswriter import METADATA_LIMIT, StatusWriter, snapshot
from tests.clock import START


def recalled(job: Job) -> Job | None:
    """Write a job's status, and read the job back from it."""
    blobs = MemoryBlobs()
    writer = StatusWriter(blobs)
    writer.save(writer.show(job))
    blob = blobs.get(writer.locate(job.job_id))
    assert blob is not None
    return snapshot_of(blob, job.job_id)


@given(strategies.histories(), st.data())
def test_reading_on_is_reading_all(events: list[Event], data: Any) -> None:
    """After any part of any history, the fold of the status and what came after it is the fold of the whole."""
    cut = data.draw(st.integers(1, len(events)))
    job = fold(events[:cut])
    assume(job.state != DELETED)
    try:
        again = recalled(job)
    except InvalidValue:  # no status can show it
        return
    if again is None:
        assert len(snapshot(job).get("job", "")) == 0
        return

    assert job == again
    assert fold(events) == fold(events[cut:], again)


@given(strategies.json_values())
@example({"text": "ü \U0001f600 \u2028", "big": 2**63, "small": -(2**63), "zero": -0.0, "one": 1.0})
def test_params_of_any_kind_come_back(params: object) -> None:
    """Text of any script, whole numbers and others: as they were, in metadata that is ASCII."""
    job = fold([JobQueued(job_id="a", version=1, id="e", at=START, name="render", params=params)])
    kept = snapshot(job)

    assert all(value.isascii() for value in kept.values())
    assert sum(len(key) + len(value) for key, value in kept.items()) <= METADATA_LIMIT + 100
    if "job" in kept:
        again = recalled(job)
        assert again is not None
        assert repr(params) == repr(again.params)
