"""A bucket in a dict with failures to order, and the store of the vectors over it."""

from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from jobevents.errors import (
    Corrupt,
    InvalidJobId,
    InvalidValue,
    Misconfigured,
    NotFound,
    Unavailable,
)
from jobevents.recorder import OnUnreadable, StatusStore, under_job_dir
from tests.records import Story

BASE = "gs://bucket/jobs"
JOB = "c20260726-120000-abcd1234"
PLACE = f"{BASE}/{JOB}/status.json"
NOW = datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC)
MODES: list[OnUnreadable] = ["raise", "run"]
KINDS = {
    "invalid_id": InvalidJobId,
    "locate": Misconfigured,
    "marshal": InvalidValue,
    "not_found": NotFound,
    "unavailable": Unavailable,
    "decode": Corrupt,
}


class Bucket:
    """Objects in a dict, with failures to order."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.stored = dict(stored or {})
        self.headers: dict[str, tuple[str, str]] = {}
        self.fail_read: Exception | None = None
        self.fail_write: Exception | None = None

    def get(self, name: str) -> Any:
        if self.fail_read:
            raise self.fail_read
        if name not in self.stored:
            raise NotFound(f"no such object name={name}")
        return Content(self.stored[name])

    def put(self, name: str, data: bytes, *, content_type: str, cache_control: str) -> str:
        if self.fail_write:
            raise self.fail_write
        self.stored[name] = data
        self.headers[name] = content_type, cache_control
        return "1"

    def delete(self, name: str) -> bool:
        if self.fail_write:
            raise self.fail_write
        return self.stored.pop(name, None) is not None


class Content(msgspec.Struct):
    """What the bucket gives back."""

    data: bytes


def a_store(bucket: Bucket, mode: OnUnreadable | None = "raise", *, now: datetime = NOW) -> StatusStore[Story]:
    """Make a store of Story records over a bucket."""
    return StatusStore(bucket, bucket, under_job_dir(BASE), Story, on_unreadable=mode, clock=lambda: now)


def out_of(vector: dict[str, Any], mode: OnUnreadable) -> dict[str, Any]:
    """Return what a vector says in a mode: "run" is what the seed describes and code v1.0.2 does."""
    return cast("dict[str, Any]", vector.get("out_v1_0_2", vector["out"]) if mode == "run" else vector["out"])
