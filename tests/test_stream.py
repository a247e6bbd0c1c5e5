"""What is followed over HTTP: every event once and in order, from wherever one was cut off, by no more than so many."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import msgspec
import pytest

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.errors import Unavailable
from jobevents.events import AnyEvent
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.serving import serving
from projections.api import create_app
from projections.api.following import EventFeed, Pages
from projections.api.route import SSE
from projections.api.streamroutes import STREAMS
from tests.api import Past, address, fill
from tests.bloblogs import bucket_jobs
from tests.clock import Clock
from tests.failinglog import failing_jobs
from tests.http import Client, client_of
from tests.serving import listening
from tests.tampering import Memory

pytest_plugins = ("tests.api_fixtures",)


class Message(msgspec.Struct):
    """One server-sent event."""

    id: str = ""
    data: Any = None
    event: str = ""


def messages(text: str) -> list[Message]:
    """Return what was sent, the first block and what has no data left out."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            data = msgspec.json.decode(lines["data"])
            found.append(Message(lines.get("id", ""), data, lines.get("event", "")))
    return found


def stream(api: Client, query: str = "", *, last_id: str = "") -> list[Message]:
    answer = api.get(f"/api/stream{query}", headers={"Last-Event-ID": last_id} if last_id else {})
    assert 200 == answer.status_code, answer.text
    return messages(answer.text)


def test_every_event_once_and_in_order(api: Client, past: Past, jobs: Jobs) -> None:
    """A stream from the beginning has what the log has, each under its place."""
    found = stream(api, "?after=0")

    assert [record.cursor for record in jobs.log.scan()] == [one.id for one in found]
    assert [record.event() for record in jobs.log.scan()] == [msgspec.convert(one.data, AnyEvent) for one in found]


def test_it_goes_on_after_the_last_id(api: Client, past: Past, jobs: Jobs) -> None:
    """Whoever was cut off goes on, wherever that was, and whatever the URL says of the beginning."""
    whole = stream(api, "?after=0")

    for number, one in enumerate(whole):
        assert whole[number + 1 :] == stream(api, "?after=0", last_id=one.id)
    assert [] == stream(api)  # from now on


def test_only_what_is_asked_for(api: Client, past: Past, jobs: Jobs) -> None:
    """One job, one type; and what was passed over is not read again by who comes back."""
    of_job = stream(api, f"?after=0&job_id={past.failed}")
    of_type = stream(api, "?after=0&type=JobStarted")
    answer = api.get("/api/stream?after=0&type=JobStarted")

    assert ["JobQueued", "JobStarted", "JobFailed"] == [one.data["type"] for one in of_job]
    assert [past.done, past.failed] == [one.data["job_id"] for one in of_type]
    assert answer.text.endswith(f"\n\nid: {jobs.log.last_cursor()}\n\n")


def test_a_hint_says_that_there_are_more(api: Client, past: Past, jobs: Jobs, clock: Clock) -> None:
    """In brief, events that came together are one hint of the last place; those that were not asked for are none."""
    last = str(jobs.log.last_cursor())

    (hint,) = stream(api, "?after=0&brief=yes")

    assert (last, "more") == (hint.id, hint.event)
    assert {"position": int(last), "at": clock().isoformat().replace("+00:00", "Z")} == hint.data
    assert [] == stream(api, "?after=0&brief=yes&type=JobSkipped")
    assert [] == stream(api, "?after=0&brief=yes", last_id=last)


@pytest.mark.parametrize(
    ("query", "last_id", "why"),
    [
        ("?after=1000000", "", "never got so far"),
        ("", "99999", "never got so far"),
        ("", "soon", "Last-Event-ID"),
        ("?type=JobBegun", "", "no such type"),
        ("?job_id=a/b", "", "job_id"),
        ("?since=1", "", "no such parameter"),
    ],
)
def test_what_cannot_be_followed_is_refused(query: str, last_id: str, why: str, api: Client, past: Past) -> None:
    """A place that the log never had is refused: it would be waited for in silence."""
    answer = api.get(f"/api/stream{query}", headers={"Last-Event-ID": last_id} if last_id else {})

    assert 400 == answer.status_code
    assert why in answer.json()["why"]


def test_a_log_without_one_order_says_so(clock: Clock) -> None:
    """Where events have no one order they cannot be followed, and the features say it."""
    with bucket_jobs(MemoryBlobs(), clock) as jobs, client_of(create_app(jobs, stream_s=0)) as api:
        job_id = jobs.submit("render")
        refused, features = api.get("/api/stream"), api.get("/api/features").json()["streams"]
        lines = api.get(f"/api/jobs/{job_id}/logs/stream")

    assert (400, "cannot_filter", 200) == (refused.status_code, refused.json()["code"], lines.status_code)
    assert (False, refused.json()["why"]) == (
        features["/api/stream"]["available"],
        features["/api/stream"]["reason"],
    )
    assert features["/api/jobs/{id}/logs/stream"]["available"]


def test_an_event_that_cannot_be_read_is_told(past: Past, clock: Clock) -> None:
    """What cannot be read is told as that, in its place, and holds up nothing."""
    with connect("memory://", clock=clock) as jobs, client_of(create_app(jobs, stream_s=0)) as api:
        job_id = jobs.submit("render")
        jobs.cancel(job_id)
        Memory(jobs).replace(job_id, 1, b"{}")

        first, second = stream(api, "?after=0")

    assert ("unreadable", job_id, 1, "JobQueued") == (
        first.event,
        *(first.data[key] for key in ("job_id", "version", "type")),
    )
    assert ("", "JobCanceled") == (second.event, second.data["type"])


def test_log_lines_are_followed(api: Client, past: Past, jobs: Jobs) -> None:
    """Log lines come by their seq, after the last one that was had; a job that is not there has none."""
    found = messages(api.get(f"/api/jobs/{past.done}/logs/stream").text)
    again = api.get(f"/api/jobs/{past.done}/logs/stream", headers={"Last-Event-ID": found[-1].id})
    nothing = api.get("/api/jobs/nothing/logs/stream")

    assert ["begun"] == [one.data["message"] for one in found]
    assert str(found[0].data["seq"]) == found[0].id
    assert ([], 404) == (messages(again.text), nothing.status_code)


def test_a_log_that_fails_ends_it_with_the_reason() -> None:
    """What the store says ends a stream, and is told; it is not taken for silence."""
    jobs, recorder = failing_jobs(Clock())
    with jobs:
        path = f"/api/jobs/{fill(jobs).done}/logs/stream"
        with (
            listening(create_app(jobs)) as place,
            httpx.stream("GET", f"{place}{path}", trust_env=False) as answer,
        ):
            parts = _blocks(answer)
            next(parts)
            with recorder.refusing(Unavailable("disk")):
                last = [messages(part) for part in parts if "event: problem" in part]

    assert [("problem", "disk")] == [(one[0].event, one[0].data["why"]) for one in last]


def _blocks(answer: httpx.Response) -> Iterator[str]:
    block = ""
    for line in answer.iter_lines():
        if line:
            block += f"{line}\n"
        else:
            yield block + "\n"
            block = ""


@pytest.mark.parametrize("writes_elsewhere", [False, True])
def test_what_happens_is_sent_as_it_happens(url: str, writes_elsewhere: bool) -> None:
    """An event that is committed while somebody follows is sent at once, whoever wrote it."""
    if url == "memory://" and writes_elsewhere:
        pytest.skip("a log in memory has one writer")
    with connect(url) as jobs:
        other = connect(url) if writes_elsewhere else jobs
        with (
            closing(other),
            listening(create_app(jobs)) as place,
            httpx.stream("GET", f"{place}/api/stream", trust_env=False, timeout=10) as answer,
        ):
            parts = _blocks(answer)
            next(parts)
            job_id = other.submit("render")
            (found,) = messages(next(parts))

    assert (job_id, "JobQueued") == (found.data["job_id"], found.data["type"])


def test_no_more_than_so_many_follow(jobs: Jobs) -> None:
    """Who comes beyond the limit is told to try again; a place is free once its follower is gone, and so is the thread."""
    with listening(create_app(jobs, streams=1)) as place, httpx.Client(base_url=place, trust_env=False) as client:
        with client.stream("GET", "/api/stream") as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = client.get("/api/stream")
        while True:
            with client.stream("GET", "/api/stream") as again:
                if again.status_code == 200:
                    break

    assert (503, "too_many") == (refused.status_code, refused.json()["code"])
    assert "1" == refused.headers["retry-after"]
    for thread in threading.enumerate():
        if thread.name == "jobevents-bell":
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("route", STREAMS, ids=[one.name for one in STREAMS])
def test_a_stream_is_answered_as_one(route: Any) -> None:
    """As what it is, not to be kept, with what it is complete through."""
    with connect("memory://") as jobs, client_of(create_app(jobs, stream_s=0)) as api:
        answer = api.get(address(route.path, fill(jobs)))

    assert (200, SSE, "no-store") == (
        answer.status_code,
        answer.headers["content-type"],
        answer.headers["cache-control"],
    )
    assert "x-complete-through" in answer.headers


class Counted:
    """A log that counts its reads, of records of a size."""

    def __init__(self, records: int, size: int) -> None:
        self.reads = 0
        data = b"x" * size
        self._records = [Record(str(number), "a", number, "JobQueued", data) for number in range(1, records + 1)]

    def scan(self, cursor: str, *, limit: int, batch: int) -> Iterator[Record]:
        self.reads += 1
        yield from self._records[int(cursor) :][:limit]


@pytest.mark.parametrize(("size", "most"), [(100, 200), (64 * 1024, 4), (1024 * 1024, 1)])
def test_a_page_is_bounded_and_shared(size: int, most: int) -> None:
    """A follower holds no more than 256 KiB, or one event; who is at the same place shares the read, and the writing."""
    log: Any = Counted(1000, size)
    written: list[str] = []
    write: Callable[[Record], bytes] = lambda record: written.append(record.cursor) or b"."  # type: ignore[func-returns-value]  # noqa: E731
    pages = Pages(log, write)

    sent = [EventFeed(pages, 0).read() for _ in range(50)]

    assert [b"." * most] * 50 == sent
    assert (1, most) == (log.reads, len(written))


def test_a_server_that_ends_ends_what_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    """A stream ends whole, nobody who follows holds up the end, and nothing is said to have gone wrong."""
    with connect("memory://") as jobs, httpx.Client(trust_env=False) as client:
        with serving(jobs, port=0, actor="ana") as place:
            answer = client.send(client.build_request("GET", f"{place}api/stream"), stream=True)
            lines = answer.iter_lines()
            next(lines)
        rest = list(lines)  # one that was cut off would raise

    assert not any(line.startswith("event: problem") for line in rest)
    assert [] == [record.message for record in caplog.records if record.levelname == "ERROR"]
