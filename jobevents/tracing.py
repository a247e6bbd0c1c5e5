"""The trace of what causes the events of now: of OpenTelemetry's current span, or else as whoever took a request has said.

OpenTelemetry is asked only where the program itself uses it; nothing is imported for it here.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_said: ContextVar[str] = ContextVar("jobevents-trace", default="")
_parts = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?").fullmatch


def current() -> str:
    """Return the W3C trace id of what runs now, 32 hexadecimal digits; "" for none."""
    module: Any = sys.modules.get("opentelemetry.trace")  # Any: an optional library
    if module is not None:
        found = getattr(module, "get_current_span", None)  # None: it is being imported
        context = found().get_span_context() if found is not None else None
        if context is not None and context.is_valid:
            return f"{context.trace_id:032x}"
    return _said.get()


@contextmanager
def caused_by(trace: str) -> Iterator[None]:
    """Have the events of the block, in this task or thread, name a trace; "" for none."""
    token = _said.set(trace)
    try:
        yield
    finally:
        _said.reset(token)


def trace_of(traceparent: str) -> str:
    """Return the trace id of a `traceparent` header; "" where it is none, which is passed over (W3C Trace Context 1, 3.2)."""
    found = _parts(traceparent.strip(" \t"))
    if found is None:
        return ""
    version, trace, parent, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not trace.strip("0") or not parent.strip("0"):
        return ""
    return trace
