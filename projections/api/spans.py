"""Requests as spans of OpenTelemetry, where that is installed, and the trace that the events of a request name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from jobevents.tracing import caused_by, trace_of
from projections.api.route import Route

try:
    from opentelemetry import propagate, trace
except ImportError:
    _HAS_SPANS = False
else:
    _HAS_SPANS = True


class Answered:
    """How a request ended, as its span is told."""

    status: int = 500


@contextmanager
def request(route: Route, headers: Mapping[str, str]) -> Iterator[Answered]:
    """Have the block be a request's span, within that of whoever has begun one already, or of the caller's `traceparent`."""
    answered = Answered()
    with caused_by(trace_of(headers.get("traceparent", ""))):
        if not _HAS_SPANS:
            yield answered
            return
        is_within = trace.get_current_span().get_span_context().is_valid
        with trace.get_tracer("jobevents").start_as_current_span(
            f"{route.method} {route.path}",
            context=None if is_within else propagate.extract(headers),
            kind=trace.SpanKind.INTERNAL if is_within else trace.SpanKind.SERVER,
            attributes={"http.request.method": route.method, "http.route": route.path},
        ) as span:
            yield answered
            span.set_attribute("http.response.status_code", answered.status)
            if answered.status >= 500:
                span.set_status(trace.StatusCode.ERROR)
