"""The record types of the data vectors, and their fields as values (behaviour S29, section V)."""

import base64
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from jobevents.status import Status


class Story(Status):
    """The record of a service with one field of its own."""

    output_dir: str = ""


class Movie(Status):
    """The record of a service with two fields of its own."""

    original_job_id: str = ""
    output_uri: str = ""


class Composition(Status):
    """Another one with two, so that their order shows."""

    storage_uri: str = ""
    recipe_storage_uri: str = ""


class Counted(Status):
    """A record with service fields that are not text."""

    progress: int = 0
    share: float = 0.0
    paid: bool = False
    owner: str | None = None


class Bare(msgspec.Struct, omit_defaults=True):
    """A record without the common part."""

    note: str = ""


TYPES: dict[str, type[Any]] = {"plain": Status, "story": Story, "mv": Movie, "comp": Composition, "bare": Bare}


def record_of(fields: dict[str, Any], record_type: type[Any] = Story) -> Any:
    """Build a record from a vector's fields: null is no time, and a dict is a time told by its numbers."""
    return record_type(**{name: _value(value) for name, value in fields.items()})


def fields_of(record: Any) -> dict[str, Any]:
    """Return a record's fields as a vector tells them: no time is null."""
    fields = msgspec.structs.asdict(record)
    return {name: value or None if name.endswith("_at") else value for name, value in fields.items()}


def bytes_of(given: dict[str, Any]) -> bytes:
    """Return the stored bytes of a vector."""
    return base64.b64decode(given["bytes_b64"]) if "bytes_b64" in given else str(given["bytes"]).encode()


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return "" if value is None else value
    zone = timezone(timedelta(seconds=value.get("off", 0)))
    clock = value["h"], value["mi"], value["s"], value["ns"] // 1000
    return datetime(value["y"], value["mo"], value["d"], *clock, tzinfo=zone)
