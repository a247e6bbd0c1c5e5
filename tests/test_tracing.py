"""The trace of what causes an event: on the event, from a request's header or the current span; requests as spans."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jobevents.jobs import Jobs
from jobevents.tracing import caused_by, current, trace_of
from projections.api import spans
from tests.http import Client

pytest_plugins = ("tests.api_fixtures",)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What OpenTelemetry is told."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def submit(api: Client, header: str | None = HEADER) -> str:
    """Submit a job by a request with a header; return its id."""
    headers = {} if header is None else {"traceparent": header}
    answer = api.request("POST", "/api/jobs", json={"command": "render"}, headers=headers)
    assert 200 == answer.status_code, answer.text
    found: str = answer.json()["job_id"]
    return found


@pytest.mark.parametrize("has_spans", [False, True])
def test_events_name_the_trace_of_the_request(
    has_spans: bool, api: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of a command carry the trace of its header, with OpenTelemetry and without; the next request's do not."""
    monkeypatch.setattr(spans, "_HAS_SPANS", has_spans)
    job_id = submit(api)
    api.request("POST", f"/api/jobs/{job_id}/cancel", json={}, headers={"traceparent": HEADER.replace("4bf9", "5bf9")})
    other = submit(api, None)

    assert [TRACE, TRACE.replace("4bf9", "5bf9")] == [event.trace for event in jobs.history(job_id)]
    assert [""] == [event.trace for event in jobs.history(other)]


def test_a_request_is_a_span(api: Client, jobs: Jobs, exported: InMemorySpanExporter) -> None:
    """Each request is a span below the caller's, named by its route, never by an id, with how it ended."""
    job_id = submit(api)
    api.get("/api/jobs/nothing/status")

    command, read = exported.get_finished_spans()

    assert ("POST /api/jobs", "GET /api/jobs/{job_id}/status") == (command.name, read.name)
    assert command.parent is not None
    assert (int(TRACE, 16), int(PARENT, 16)) == (command.context.trace_id, command.parent.span_id)
    assert [200, 404] == [one.attributes["http.response.status_code"] for one in (command, read) if one.attributes]
    assert read.parent is None
    assert [TRACE] == [event.trace for event in jobs.history(job_id)]


def test_a_program_that_traces_is_named(jobs: Jobs, exported: InMemorySpanExporter) -> None:
    """A command that a program gives within a span of its own names that, wherever a request came from."""
    with caused_by(TRACE), trace.get_tracer("mine").start_as_current_span("order") as span:
        job_id = jobs.submit("render")

    assert [f"{span.get_span_context().trace_id:032x}"] == [event.trace for event in jobs.history(job_id)]
    assert "" == current()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER, TRACE),
        (f" {HEADER}\t", TRACE),
        (f"cc-{TRACE}-{PARENT}-01-what-comes", TRACE),
        (f"00-{TRACE}-{PARENT}-01-more", ""),
        (f"ff-{TRACE}-{PARENT}-01", ""),
        (f"00-{'0' * 32}-{PARENT}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (HEADER.upper(), ""),
        (f"00-{TRACE[:-1]}-{PARENT}-01", ""),
        ("", ""),
    ],
)
def test_what_is_a_trace(header: str, expected: str) -> None:
    """A header is read as W3C Trace Context says; what is none is passed over."""
    assert expected == trace_of(header)


@given(st.text())
def test_no_header_breaks_it(header: str) -> None:
    """Whatever a header says, it is a trace id or none."""
    assert trace_of(header) == "" or 32 == len(trace_of(header))
