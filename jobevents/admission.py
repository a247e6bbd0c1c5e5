"""What an event may say at the most, by whichever way it comes: the one table of sizes, names and ranges.

What is written here is made to fit before (texts lose their middle, payloads are refused); what a file brings, whose bytes
stay as they are, is held against it whole. Limits of single values are those of `boundary`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents import boundary
from jobevents.assertions import RunError
from jobevents.errors import InvalidValue
from jobevents.events import Event, JobRecorded

TEXTS: Final[Mapping[str, int]] = {  # field -> bytes; the same name means the same in every event
    "id": boundary.NAME_LIMIT,
    "actor": boundary.NAME_LIMIT,
    "reason": boundary.REASON_LIMIT,
    "trace": boundary.NAME_LIMIT,
    "title": boundary.TITLE_LIMIT,
    "command": boundary.NAME_LIMIT,
    "worker": boundary.NAME_LIMIT,
    "message": boundary.TITLE_LIMIT,
    "error": boundary.ERROR_LIMIT,
    "kind": boundary.NAME_LIMIT,
    "traceback": boundary.TRACEBACK_LIMIT,
    "tried": boundary.NAME_LIMIT,
    "detail": boundary.TITLE_LIMIT,
    "state": boundary.PAYLOAD_LIMIT,  # open text, of a record
    "triggered_by": boundary.NAME_LIMIT,
    "progress_message": boundary.TITLE_LIMIT,
    "canceled_by": boundary.NAME_LIMIT,
    "cancel_reason": boundary.REASON_LIMIT,
}
_OF_ERROR: Final[Mapping[str, int]] = {  # of a RunError
    "code": boundary.NAME_LIMIT,
    "message": boundary.ERROR_LIMIT,
    "stack": boundary.TRACEBACK_LIMIT,
}
_OF_RECORD: Final[Mapping[str, int]] = {name: TEXTS[name] for name in ("title", "command", "error")}
_WHOLE: Final = frozenset({"fields", "changes", "record", "tail"})  # as JSON, at most what a payload may be
_NAMES: Final = frozenset({"name", "job_name", "queue"})  # never empty
_OPTIONAL_NAMES: Final = frozenset({"key", "idem_key", "trigger", "replay_of", "root_id", "worker_id", "capture_logs"})
_RANGES: Final[Mapping[str, tuple[int, int]]] = {  # what a JobStore's caller may say of a run; a submit may say less
    "priority": (-(2**15), 2**15 - 1),
    "max_attempts": (0, 2**31 - 1),
    "attempt": (0, 2**31 - 1),
    "duration_ms": (0, 2**63 - 1),
}

_encode = msgspec.json.Encoder().encode


def check(event: Event) -> None:
    """Refuse an event that says more than ours may; params and results are measured before they are decoded, elsewhere.

    Raises:
        InvalidValue: it does, with the field and its limit.
    """
    _check_fields(event)
    if isinstance(event, JobRecorded) and event.run is not None:
        _check_fields(event.run)


def fitted(record: dict[str, Any]) -> dict[str, Any]:
    """Return a whole record, as it is saved through the kit's API, so that its events are of ours: long texts lose their middle.

    Raises:
        InvalidValue: it is larger than a payload may be.
    """
    cut = {
        name: boundary.clean_text(text, limit)
        for name, limit in _OF_RECORD.items()
        if isinstance(text := record.get(name), str) and len(text.encode()) > limit
    }
    fit = {**record, **cut}
    _check_size("record", fit)
    return fit


def _check_fields(said: msgspec.Struct) -> None:
    for name in said.__struct_fields__:
        value = getattr(said, name)
        if value is msgspec.UNSET or value is None or value == "":
            if name in _NAMES and value == "":
                raise InvalidValue(f"{name} is required")
        elif name in _NAMES or name in _OPTIONAL_NAMES:
            boundary.check_name(name, value)
        elif isinstance(value, RunError):
            for part, limit in _OF_ERROR.items():
                _check_text(f"error {part}", getattr(value, part), limit)
            _check_size("error tail", value.tail)
            _check_size("error fields", value.fields)
        elif name in TEXTS:
            _check_text(name, value, TEXTS[name])
        elif name in _WHOLE:
            _check_size(name, value)
        elif isinstance(value, datetime):
            boundary.check_instant(name, value)
        elif name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
            low, high = _RANGES[name]
            raise InvalidValue(f"{name} must be a whole number from {low} to {high} value={value!r:.40}")


def _check_text(name: str, text: str, limit: int) -> None:
    if len(text) > limit // 4 and (size := len(text.encode())) > limit:
        raise InvalidValue(f"{name} is too long size={size} limit={limit} bytes")


def _check_size(name: str, value: Any) -> None:
    size = len(_encode(value)) if value else 0
    if size > boundary.PAYLOAD_LIMIT:
        raise InvalidValue(f"{name} is too large size={size} limit={boundary.PAYLOAD_LIMIT} bytes")
