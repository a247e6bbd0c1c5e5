"""Runs to try a store or a queue with: one with every field set, and short ways to make more."""

from collections.abc import Callable
from datetime import timedelta, timezone
from typing import Any, TypeAlias

import msgspec

from jobevents.store import JobRun, JobStore, RunError, RunFilter
from jobevents.testing.clock import START

Elapse: TypeAlias = Callable[[float], object]
"""Let so many seconds pass by the clock in use; a negative number sets it back."""

SPELLINGS = tuple(
    START.astimezone(timezone(timedelta(hours=hours))) for hours in (-8, 0, 5.5)
)  # one instant, three zones
FINAL = ("succeeded", "failed", "canceled", "skipped")
WHOLE = JobRun(
    id="render-20260801-115500-0123456789ab",
    job_name="render",
    queue="slow",
    params={"song": 7, "parts": [1.5, None, True, "ü"], "deep": {"a": {"b": []}}},
    status="failed",
    trigger="schedule",
    triggered_by="ann",
    idem_key="song-7",
    attempt=2,
    max_attempts=3,
    scheduled_at=START - timedelta(minutes=4),
    started_at=START - timedelta(minutes=3, microseconds=1),
    finished_at=START - timedelta(minutes=2),
    duration_ms=60_001,
    progress=12.5,
    progress_message="mixing",
    result=["gs://bucket/a.wav", {"seconds": 181}],
    error=RunError(
        code="NO_SPACE",
        status=507,
        message="no space left",
        fields={"left": 0, "disk": "a"},
        stack='Traceback\n  File "a.py"',
        tail=["mixing", "writing ü"],
    ),
    worker_id="w1",
    capture_logs="failure",
    cancel_requested_at=START - timedelta(minutes=2, seconds=30),
    canceled_by="bob",
    cancel_reason="wrong song",
    replay_of="render-1",
    root_id="render-0",
    created_at=START - timedelta(minutes=5),
    updated_at=START - timedelta(minutes=1),
    priority=-3,
    external=True,
)
CANCEL = ("cancel_requested_at", "canceled_by", "cancel_reason")


def run(run_id: str = "a", **fields: Any) -> JobRun:  # Any: the fields of a JobRun
    """Return a run that waits, made at START."""
    given: dict[str, Any] = {"job_name": "render", "created_at": START, **fields}
    return JobRun(id=run_id, **given)


def ended(run_id: str = "a", *, status: str = "succeeded", **fields: Any) -> JobRun:  # as above
    """Return a run that has finished, now if not said otherwise."""
    return run(run_id, **{"status": status, "started_at": START, "finished_at": START, **fields})


def changed(store: JobStore, run_id: str, **fields: Any) -> JobRun:  # as above
    """Update fields of a run, and return it as it then is."""
    store.update(msgspec.structs.replace(store.get(run_id), **fields))
    return store.get(run_id)


def listed(store: JobStore, **fields: Any) -> list[str]:  # of a RunFilter
    """Return the ids that are listed."""
    return [one.id for one in store.list(RunFilter(**fields)).runs]
