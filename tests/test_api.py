"""The API as a whole: every route answers as its table says, in one shape when it cannot, and says how fresh it is."""

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from jobevents import connect
from jobevents.attempt import Attempt
from jobevents.blobs import MemoryBlobs
from jobevents.errors import (
    AlreadyRunning,
    AlreadySucceeded,
    Canceled,
    Corrupt,
    JobEventsError,
    Misconfigured,
    PermissionDenied,
    Unavailable,
)
from jobevents.jobs import Jobs
from jobevents.records import status_bytes
from jobevents.testing.faults import Call, FailingBlobs
from projections.api import create_app
from projections.api.access import READ_ONLY, Anonymous, Identity, NotIdentified, check_bind
from projections.api.listing import Listing
from projections.api.openapi import document
from projections.api.problems import Problem
from projections.api.route import Route
from projections.api.routes import READS, ROUTES
from projections.api.standing import Keeper
from projections.api.streamroutes import STREAMS
from projections.health import HealthRecord
from projections.ui.pages import PAGES
from tests.api import Past, address, fill, project
from tests.clock import START, Clock
from tests.failinglog import failing_jobs
from tests.http import Client, client_of

pytest_plugins = ("tests.api_fixtures",)

BAD_IDS = [
    "%2e%2e",
    "..%2f..%2fetc",
    "%252e%252e",
    "a%00b",
    "a%5Cb",
    "a b",
    "a%3Fb",
    "-a",
    "a" * 129,
    "%2Fetc%2Fx",
]
OF_A_JOB = [route for route in READS if "{job_id}" in route.path]
named = pytest.mark.parametrize("route", READS, ids=[route.name for route in READS])


@named
def test_every_route_answers_as_declared(route: Route, api: Client, past: Past, jobs: Jobs) -> None:
    """The body fits the type of the table, and the answer says how fresh it is and how it is to be taken."""
    project(jobs)

    answer = api.get(address(route.path, past))

    assert 200 == answer.status_code, answer.text
    assert route.media_type == answer.headers["content-type"]
    assert datetime.fromisoformat(answer.headers["x-complete-through"]) == START
    assert ("no-store", "nosniff") == (answer.headers["cache-control"], answer.headers["x-content-type-options"])
    if route.answer is not None and route.name != "list_jobs":
        msgspec.json.decode(answer.content, type=route.answer)


def test_every_route_is_in_the_document(api: Client) -> None:
    """The document has every route with its parameters, and every reference in it leads somewhere."""
    found = api.get("/openapi.json").json()

    assert {route.path for route in ROUTES} == set(found["paths"])
    for route in ROUTES:
        operation = found["paths"][route.path][route.method.lower()]
        assert {one.name for one in route.parameters} == {
            one["name"] for one in operation["parameters"] if one["in"] == "query"
        }
    known = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert set() == set(_references(found)) - known
    assert "3.1.0" == found["openapi"]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            elif key == "mapping":
                yield from item.values()
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


# who may


class Door:
    """Knows two callers by a header."""

    is_open = False

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        if "x-caller" not in headers:
            raise NotIdentified("no x-caller")
        return Identity(headers["x-caller"], READ_ONLY if headers["x-caller"] == "ana" else frozenset())


@pytest.mark.parametrize(
    ("host", "is_fine"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_sec_03_nobody_listens_openly_by_mistake(host: str, is_fine: bool) -> None:
    """Beyond this machine, an app that lets anybody in is refused, unless it is meant."""
    check_bind(host, Door())
    check_bind(host, Anonymous(), open_to_all=True)
    if is_fine:
        check_bind(host, Anonymous())
    else:
        with pytest.raises(Misconfigured, match="--open-to-all"):
            check_bind(host, Anonymous())


# what goes wrong


@pytest.mark.parametrize("route", OF_A_JOB, ids=[route.name for route in OF_A_JOB])
@pytest.mark.parametrize("job_id", BAD_IDS)
def test_sec_06_what_is_no_id_is_refused(route: Route, job_id: str, api: Client) -> None:
    """Whatever is no id is refused as that, the same way in every place, and never cleaned (behaviour S33, DAT-11)."""
    answer = api.get(route.path.replace("{job_id}", job_id))

    assert (400, "invalid_job_id") == (answer.status_code, _problem(answer).code)


@pytest.mark.parametrize("route", OF_A_JOB, ids=[route.name for route in OF_A_JOB])
def test_no_such_job(route: Route, api: Client) -> None:
    """A job that never was is not found."""
    answer = api.get(route.path.replace("{job_id}", "nothing"))

    assert (404, "not_found") == (answer.status_code, _problem(answer).code)


def test_a_deleted_job_has_a_history(api: Client, past: Past, jobs: Jobs) -> None:
    """A deleted job is gone, and its events are there."""
    jobs.delete(past.done, actor="ana", reason="old")

    gone = api.get(f"/api/jobs/{past.done}")
    events = api.get(f"/api/jobs/{past.done}/events").json()["items"]

    assert (404, "deleted") == (gone.status_code, _problem(gone).code)
    assert ("JobDeleted", "ana", "old") == tuple(events[-1][key] for key in ("type", "actor", "reason"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Unavailable("disk"), 503), (PermissionDenied("no"), 500), (Corrupt("bytes"), 500)],
)
@pytest.mark.parametrize("path", [*(route.path for route in OF_A_JOB), "/api/jobs"])
def test_what_the_store_says_is_told(path: str, error: JobEventsError, expected: int) -> None:
    """A log that cannot be read is an error that says so (behaviour S13.2), never an empty answer (PAG-05)."""
    jobs, recorder = failing_jobs(Clock())
    with jobs, client_of(create_app(jobs)) as api:
        past = fill(jobs)
        with recorder.refusing(error):
            answer = api.get(address(path, past))

    assert expected == answer.status_code
    assert str(error) in _problem(answer).why
    assert ("1" if expected == 503 else None) == answer.headers.get("retry-after")


@pytest.mark.parametrize("path", ["/readyz", "/api/projector", "/api/parked", "/metrics"])
def test_what_the_blobs_say_is_told(path: str) -> None:
    """Views that cannot be read are an error, too; the process itself is well."""

    def refuse(call: Call) -> None:
        raise Unavailable("bucket")

    with (
        connect("memory://", blobs=FailingBlobs(MemoryBlobs(), before=refuse)) as jobs,
        client_of(create_app(jobs)) as api,
    ):
        answer, alive = api.get(path), api.get("/healthz")

    assert (503, "unavailable", 200) == (answer.status_code, _problem(answer).code, alive.status_code)


def test_nothing_of_a_traceback(api: Client, past: Past, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody expected is logged, and the caller is told no more than that."""

    def fail(job_id: str) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(jobs, "job", fail)
    answer = api.get(f"/api/jobs/{past.done}")

    assert (500, "internal") == (answer.status_code, _problem(answer).code)
    assert "secret" not in answer.text


def test_no_route(api: Client) -> None:
    """Where nothing is, and where the method is another, the same shape answers."""
    nowhere, wrong = api.get("/api/nothing"), api.request("PUT", "/api/jobs")

    assert [(404, "no_such_place"), (405, "wrong_method")] == [
        (one.status_code, _problem(one).code) for one in (nowhere, wrong)
    ]
    assert "GET" in wrong.headers["allow"]


def _problem(answer: Any) -> Problem:
    assert "application/json" == answer.headers["content-type"]
    found: Problem = msgspec.json.decode(answer.content, type=Problem)
    assert all(msgspec.structs.astuple(found))
    return found


_TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.from_regex(r"\A[0-9]{1,40}\Z")
_ASKED = [(route, one.name) for route in (*READS, *STREAMS, *PAGES) for one in route.parameters]


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[Client, Past]]:
    """An API that waits for nothing long, over jobs with a past."""
    with connect("memory://") as jobs, client_of(create_app(jobs, stream_s=0, wait_s=0.001)) as client:
        past = fill(jobs)
        project(jobs)
        yield client, past


@pytest.mark.parametrize(("route", "name"), _ASKED, ids=[f"{route.name}-{name}" for route, name in _ASKED])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_parameter_breaks_it(route: Route, name: str, data: st.DataObject, patient: tuple[Client, Past]) -> None:
    """Whatever one says, alone and with others, the answer is one of the document's, and never the server's fault."""
    client, past = patient
    others = [one.name for one in route.parameters if one.name != name]
    query = {
        name: data.draw(_TEXT),
        **(data.draw(st.dictionaries(st.sampled_from(others), _TEXT, max_size=2)) if others else {}),
    }

    answer = client.get(address(route.path, past), params=query)

    assert answer.status_code in (200, 204, 303, 400, 404, 412), answer.text
    if route in ROUTES:
        assert str(answer.status_code) in document(ROUTES)["paths"][route.path]["get"]["responses"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("stat=failed", "no such parameter"),
        ("state=nearly", "no such state"),
        ("state=failed&state=queued", "given twice"),
        ("since=yesterday", "since is no instant"),
        ("since=2026-08-01T12:00:00+02:00", "%2B"),
        ("queue=a%00b", "control character"),
        ("q=a/b", "no start of a job id"),
        ("cursor=abc", "not a cursor"),
        ("wait_for=soon", "whole number"),
        ("as_of=yesterday", "not a moment"),
        ("as_of=-1h&q=a", "alone"),
    ],
)
def test_what_cannot_be_meant_is_refused(query: str, why: str, api: Client, past: Past) -> None:
    """A parameter that is mistyped or impossible is refused with the reason, and never passed over."""
    answer = api.get(f"/api/jobs?{query}")

    assert 400 == answer.status_code
    assert why in _problem(answer).why


def test_mounted_in_an_app_of_ones_own(jobs: Jobs, past: Past) -> None:
    """Below a prefix of another app, without a lifespan of its own, it answers the same."""
    outer = FastAPI()
    outer.mount("/ops", create_app(jobs))

    with client_of(outer) as api:
        found, listed = api.get(f"/ops/api/jobs/{past.done}"), api.get("/ops/api/jobs")
        refused, head = api.get("/ops/api/jobs/a%2Fb/status"), api.request("HEAD", "/ops/api/jobs")

    assert ("succeeded", 3) == (found.json()["state"], listed.json()["total"])
    assert (400, 200, b"") == (refused.status_code, head.status_code, head.content)


# one job


def test_the_status_is_the_record(api: Client, past: Past, jobs: Jobs) -> None:
    """The status is the record's exact bytes and a newline, tagged with its version (behaviour S33)."""
    job = jobs.job(past.done)

    answer = api.get(f"/api/jobs/{past.done}/status")
    again = api.get(f"/api/jobs/{past.done}/status", headers={"If-None-Match": answer.headers["etag"]})
    other = api.get(f"/api/jobs/{past.done}/status", headers={"If-None-Match": '"1"'})

    assert status_bytes(job) + b"\n" == answer.content
    assert (f'"{job.version}"', "no-store") == (answer.headers["etag"], answer.headers["cache-control"])
    assert (304, b"", answer.headers["etag"]) == (again.status_code, again.content, again.headers["etag"])
    assert 200 == other.status_code


def test_dat_01_odd_text_is_told_as_it_is_kept(api: Client, jobs: Jobs) -> None:
    """NUL and markup in text come out as valid JSON, which no browser takes for a page (SEC-01)."""
    text = "<img src=x onerror=alert(1)>\0\u2028"
    job_id = jobs.submit("render", {"text": text}, title=text)

    answer = api.get(f"/api/jobs/{job_id}")

    assert "application/json" == answer.headers["content-type"]
    assert ("<img src=x onerror=alert(1)>\u2400\u2028", text) == (
        answer.json()["title"],
        answer.json()["params"]["text"],
    )


def test_dat_12_large_numbers_are_exact(api: Client, jobs: Jobs) -> None:
    """Integers beyond 2^53 come out digit by digit."""
    job_id = jobs.submit("render", {"n": 2**63 - 1})

    assert f'"n":{2**63 - 1}' in api.get(f"/api/jobs/{job_id}").text


def test_a_job_as_of_an_instant(api: Client, jobs: Jobs, clock: Clock) -> None:
    """A job is shown as it was, and the answer says as of when."""
    job_id = jobs.submit("render")
    clock.move(60)
    with jobs.attempt(job_id):
        pass

    then = api.get(f"/api/jobs/{job_id}", params={"as_of": "2026-08-01T12:00:30Z"})
    before = api.get(f"/api/jobs/{job_id}", params={"as_of": "2026-08-01T11:00:00Z"})

    assert ("queued", "2026-08-01T12:00:30Z") == (then.json()["state"], then.headers["x-complete-through"])
    assert 404 == before.status_code


def test_events_in_pieces(api: Client, past: Past, jobs: Jobs) -> None:
    """Events are read piece by piece, each once, with actor, reason and chain."""
    seen: list[Any] = []
    while True:
        part = api.get(f"/api/jobs/{past.done}/events?after={len(seen)}&limit=2").json()
        seen += part["items"]
        if not part["has_more"]:
            break

    assert [event.type for event in jobs.history(past.done)] == [one["type"] for one in seen]
    assert all(one["chain"] for one in seen)


def test_log_lines_in_pieces(api: Client, jobs: Jobs) -> None:
    """Log lines are read from a seq on."""
    job_id = jobs.submit("render")
    with jobs.attempt(job_id) as attempt:
        for number in range(5):
            attempt.log(f"line {number}")

    first = api.get(f"/api/jobs/{job_id}/logs?limit=2").json()
    rest = api.get(f"/api/jobs/{job_id}/logs?after_seq={first['last_seq']}").json()

    assert (["line 0", "line 1"], True) == ([one["message"] for one in first["items"]], first["has_more"])
    assert (["line 2", "line 3", "line 4"], False) == ([one["message"] for one in rest["items"]], rest["has_more"])


def test_reading_what_one_wrote(api: Client, past: Past, jobs: Jobs) -> None:
    """An answer that is waited for comes once the version is there."""
    threading.Timer(0.1, lambda: jobs.cancel(past.waiting)).start()

    answer = api.get(f"/api/jobs/{past.waiting}?wait_for=2")

    assert (200, "canceled") == (answer.status_code, answer.json()["state"])


def test_waiting_in_vain(jobs: Jobs, past: Past) -> None:
    """What does not come in time is said to be not there yet."""
    with client_of(create_app(jobs, wait_s=0.1)) as api:
        answer = api.get(f"/api/jobs/{past.waiting}?wait_for=9")

    assert (412, "not_yet") == (answer.status_code, _problem(answer).code)


# the whole


def test_counts_and_a_series(api: Client, past: Past) -> None:
    """Jobs are counted by state and queue, and by when they were created and ended."""
    stats = api.get("/api/stats?step=3600&bars=2").json()

    assert {"queued": 1, "running": 0, "succeeded": 1, "failed": 1, "canceled": 0, "skipped": 0} == stats["states"]
    assert [(0, {}), (3, {"succeeded": 1, "failed": 1})] == [(one["created"], one["ended"]) for one in stats["series"]]


def test_queues_and_what_is_paused(api: Client, past: Past, jobs: Jobs) -> None:
    """A queue shows what is in it, since when the oldest waits, and who paused it."""
    jobs.pause(queue="slow", actor="ana", reason="disk")

    found = api.get("/api/queues").json()

    slow = next(one for one in found["items"] if one["queue"] == "slow")
    assert (1, "2026-08-01T12:00:00Z", "ana: disk") == (slow["queued"], slow["oldest_due"], slow["paused_by"])
    assert ["slow"] == [one["name"] for one in found["paused"]]


def test_how_far_the_views_are(api: Client, past: Past, jobs: Jobs) -> None:
    """The projector's views show how far behind they are now, not when they were last written."""
    project(jobs)
    jobs.submit("render")

    found = api.get("/api/projector").json()

    assert ["index", "status"] == sorted(one["health"]["view"] for one in found["items"])
    assert {1} == {one["lag_events"] for one in found["items"]}


def asked_anew(jobs: Jobs, path: str) -> Any:
    """Ask an app that has just begun, and has kept nothing."""
    with client_of(create_app(jobs)) as api:
        return api.get(path)


def test_a_projector_that_has_ended_is_told_of(past: Past, jobs: Jobs, clock: Clock) -> None:
    """As long as nothing waits, with the time of its last cycle; what waits for too long is not ready, but of the log alone."""
    answers = [asked_anew(jobs, "/readyz")]
    project(jobs)
    ended_at = clock()
    clock.move(121)
    answers.append(asked_anew(jobs, "/readyz"))
    page, seen = asked_anew(jobs, "/projector"), asked_anew(jobs, "/api/projector").json()["items"]
    jobs.cancel(past.waiting)
    clock.move(120)
    answers.append(asked_anew(jobs, "/readyz"))
    clock.move(1)
    answers += [asked_anew(jobs, path) for path in ("/readyz", "/readyz?of=log", f"/api/jobs/{past.waiting}")]
    project(jobs)
    answers.append(asked_anew(jobs, "/readyz"))

    assert [200, 200, 200, 503, 200, 200, 200] == [one.status_code for one in answers]
    assert "canceled" == answers[5].json()["state"]
    assert [ended_at] * 2 == [datetime.fromisoformat(one["idle_since"]) for one in seen]
    assert "nobody projects since" in page.text


def test_a_projector_of_a_log_without_places_that_has_ended(clock: Clock) -> None:
    """What has come since is not known: it is trouble, and not ready."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        record = HealthRecord(jobs.blobs, jobs.prefix, "status", clock=clock)
        record.cycled(1)
        with connect("memory://", clock=clock) as feed:
            record.write(record.measure(feed.log, 0, parked=0, error=None))
        clock.move(120)
        alive = asked_anew(jobs, "/readyz").status_code
        clock.move(1)
        ended, (seen,) = asked_anew(jobs, "/readyz"), asked_anew(jobs, "/api/projector").json()["items"]

    assert (200, 503) == (alive, ended.status_code)
    assert f"no cycle was completed since {START.isoformat()}" in seen["troubles"][0]


def test_metrics_are_what_prometheus_reads(api: Client, past: Past, jobs: Jobs) -> None:
    """Every family can be parsed, and the jobs are counted by state and queue."""
    project(jobs)
    api.get("/api/jobs")

    families = {one.name: one for one in text_string_to_metric_families(api.get("/metrics").text)}

    counted = {(one.labels["state"], one.labels["queue"]): one.value for one in families["jobevents_jobs"].samples}
    assert {("queued", "slow"): 1, ("succeeded", "default"): 1, ("failed", "default"): 1} == counted
    assert {"index", "status"} == {one.labels["view"] for one in families["jobevents_projection_lag_seconds"].samples}
    requests = families["jobevents_http_requests"].samples
    assert 1 == sum(
        one.value
        for one in requests
        if one.labels == {"route": "list_jobs", "status": "200"} and one.name.endswith("_total")
    )


def metrics(api: Client) -> dict[str, float]:
    """Return every sample by its name and labels."""
    families = text_string_to_metric_families(api.get("/metrics").text)
    return {" ".join([one.name, *one.labels.values()]): one.value for family in families for one in family.samples}


def test_metrics_count_what_any_process_does(api: Client, jobs: Jobs, clock: Clock) -> None:
    """Waits, runs, cancels, rescues and refusals are counted from the events, from the first call on."""
    jobs.submit("before")
    metrics(api)
    done = jobs.submit("render", delay=5)
    clock.move(7)
    with jobs.attempt(done):
        clock.move(30)
    stopped = jobs.submit("render")
    with pytest.raises(Canceled), jobs.attempt(stopped) as attempt:
        stop(jobs, attempt, clock)

    found = metrics(api)
    again = metrics(api)

    assert 2 == found["jobevents_events_appended_total JobQueued"] == again["jobevents_events_appended_total JobQueued"]
    assert (2, 2.0) == (found["jobevents_wait_seconds_count"], found["jobevents_wait_seconds_sum"])
    assert 30 == found["jobevents_run_seconds_sum succeeded"]
    assert (1, 4) == (found["jobevents_run_seconds_count canceled"], found["jobevents_cancel_latency_seconds_sum"])
    assert 0 == found["jobevents_illegal_transitions_total"]


def stop(jobs: Jobs, attempt: Attempt, clock: Clock) -> None:
    """Ask an attempt to stop, and have it heed that four seconds later."""
    jobs.cancel(attempt.job_id)
    clock.move(4)
    attempt.check()


def test_metrics_count_lost_workers(clock: Clock) -> None:
    """A job of a dead worker that was given back is a rescue, whichever process gave it."""
    with connect("memory://", clock=clock) as jobs, client_of(create_app(jobs)) as api:
        metrics(api)
        for tries in (1, 2):
            jobs.attempt(jobs.submit("render", max_attempts=tries), deadline_s=1).__enter__()
        clock.move(5)
        jobs.reap()

        jobs.attempt(canceled := jobs.submit("render"), deadline_s=1).__enter__()
        jobs.cancel(canceled)
        clock.move(5)
        jobs.reap()

        found = metrics(api)

    assert [1, 1, 1] == [
        found[f"jobevents_rescues_total deadline {outcome}"] for outcome in ("failed", "requeued", "canceled")
    ]


def test_metrics_count_what_the_guard_refused(api: Client, past: Past, jobs: Jobs) -> None:
    """By the reason, as this process has counted it."""
    for _ in range(2):
        with pytest.raises(AlreadySucceeded), jobs.attempt(past.done):
            pass
    with jobs.attempt(past.waiting), pytest.raises(AlreadyRunning), jobs.attempt(past.waiting):
        pass

    found = metrics(api)

    assert (2, 1) == tuple(found[f"jobevents_guard_hits_total Already{how}"] for how in ("Succeeded", "Running"))


NAMES = {
    "jobevents_events_appended_total": {"type"},
    "jobevents_projection_lag_seconds": {"view"},
    "jobevents_projection_position": {"view"},
    "jobevents_jobs": {"state", "queue"},
    "jobevents_oldest_queued_age_seconds": {"queue"},
    "jobevents_wait_seconds_count": set[str](),
    "jobevents_run_seconds_count": {"outcome"},
    "jobevents_guard_hits_total": {"reason"},
    "jobevents_fenced_events_total": set[str](),
    "jobevents_illegal_transitions_total": set[str](),
    "jobevents_rescues_total": {"cause", "outcome"},
    "jobevents_cancel_latency_seconds_count": set[str](),
    "jobevents_append_errors_total": set[str](),
}
"""The names that dashboards and alarms are made of, with their labels: they do not change."""


def test_every_metric_has_its_name(clock: Clock) -> None:
    """Each is there, with these labels, once what it counts has happened."""
    with connect("memory://", clock=clock) as jobs, client_of(create_app(jobs)) as api:
        past = fill(jobs)
        project(jobs)
        metrics(api)
        with pytest.raises(AlreadySucceeded), jobs.attempt(past.done):
            pass
        jobs.attempt(jobs.submit("render"), deadline_s=1).__enter__()
        clock.move(5)
        jobs.reap()
        text = api.get("/metrics").text

    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    found = {one.name: set(one.labels) for one in samples}
    assert NAMES == {name: found.get(name) for name in NAMES}


def test_a_bare_health_check_waits_for_nobody(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """While every thread waits for a store, the health check answers."""
    entered, leave = threading.Event(), threading.Event()

    def stall(job_id: str) -> None:
        entered.set()
        assert leave.wait(20)

    monkeypatch.setattr(jobs, "job", stall)
    with client_of(create_app(jobs, threads=1)) as api:
        asking = threading.Thread(target=api.get, args=["/api/jobs/a"])
        asking.start()
        assert entered.wait(20)
        answer = api.get("/healthz")
        leave.set()
        asking.join(20)

    assert 200 == answer.status_code


def test_strangers_hold_up_nobody(jobs: Jobs, past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    """While more of them than there are threads wait for a store, who is known is answered; they share one look at it."""
    entered, leave, reads = threading.Event(), threading.Event(), list[int]()
    head = Listing.head

    def stall(listing: Listing) -> int:
        if not leave.is_set():
            reads.append(1)
            entered.set()
            assert leave.wait(20)
        return head(listing)

    with client_of(create_app(jobs, threads=2)) as api:
        monkeypatch.setattr(Listing, "head", stall)
        strangers = [threading.Thread(target=api.get, args=["/readyz"]) for _ in range(4)]
        for one in strangers:
            one.start()
        assert entered.wait(20)
        answer = api.get(f"/api/jobs/{past.done}")
        leave.set()
        for one in strangers:
            one.join(20)

    assert 200 == answer.status_code
    assert 1 == len(reads)


def test_what_a_log_without_a_table_cannot(past: Past, jobs: Jobs, api: Client) -> None:
    """Filters that only a table of runs can serve are refused with the reason, and the features say so beforehand."""
    project(jobs)
    jobs.desk = None

    features = api.get("/api/features").json()
    refused = {name: api.get(f"/api/jobs?{name}={value}") for name, value in (("queue", "slow"), ("q", "mix"))}
    listed = api.get("/api/jobs?state=failed")

    assert [("cannot_filter", 400)] * 2 == [(_problem(one).code, one.status_code) for one in refused.values()]
    assert dict.fromkeys(refused, False) == {name: features["filters"][name]["available"] for name in refused}
    assert [past.failed] == [one["job_id"] for one in listed.json()["items"]]
    assert "cannot_filter" == _problem(api.get("/api/queues")).code


def test_a_count_is_read_once_for_all_who_ask(clock: Clock) -> None:
    """Those who ask while it is young share one read; an error is not kept."""
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        if len(reads) == 1:
            raise Unavailable("disk")
        return len(reads)

    keeper = Keeper(read, clock, 60)
    with pytest.raises(Unavailable):
        keeper.get()

    assert [2, 2, 2] == [keeper.get().value for _ in range(3)]
