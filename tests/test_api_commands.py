"""Commands over HTTP: who may give them, what they append in whose name, and what is said when they cannot be done."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobevents.jobs import Jobs
from projections.api import create_app
from projections.api.access import ROLES, Identity, NotIdentified, Role
from projections.api.app import BODY_LIMIT
from projections.api.commandroutes import COMMANDS
from projections.api.route import Route
from tests.api import Past, park, project
from tests.http import Client, client_of

pytest_plugins = ("tests.api_fixtures",)

JSON = {"Content-Type": "application/json"}
BODIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "submit_job": ("", {"command": "render", "reason": "again"}),
    "cancel_job": ("waiting", {"reason": "not wanted"}),
    "retry_job": ("failed", {"reason": "disk cleaned"}),
    "rerun_job": ("done", {"reason": "louder"}),
    "delete_job": ("done", {"reason": "asked to"}),
    "bulk": ("", {"action": "cancel", "filter": {"state": "queued"}}),
    "pause": ("", {"queue": "slow", "reason": "too much"}),
    "resume": ("", {"queue": "slow"}),
    "requeue_parked": ("done", {"view": "status"}),
    "discard_parked": ("done", {"view": "status"}),
}
"""Of each command: the job it is for, and a body that can be carried out. One that is not here fails the tests below."""

every = pytest.mark.parametrize("route", COMMANDS, ids=[route.name for route in COMMANDS])


class Door:
    """Knows callers by a header: their name, and their roles after a colon."""

    is_open = False

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        name, _, roles = headers.get("x-caller", "").partition(":")
        if not name:
            raise NotIdentified("no x-caller")
        held: list[Role] = [role for role in ROLES if role in roles.split(",")]
        return Identity(name, frozenset(held))


@pytest.fixture
def guarded(jobs: Jobs) -> Iterator[Client]:
    with client_of(create_app(jobs, access=Door())) as client:
        yield client


def give(client: Client, route: Route, past: Past, jobs: Jobs, **headers: str) -> Any:
    """Send a command as the table has it."""
    which, body = BODIES[route.name]
    job_id = getattr(past, which) if which else ""
    if "parked" in route.name:
        body = {**body, "job_id": job_id}
        park(jobs, job_id)
    return client.request(
        route.method,
        route.path.replace("{job_id}", job_id),
        content=json.dumps(body).encode(),
        headers={**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}},
    )


@every
def test_a_command_is_carried_out_and_answered_as_declared(route: Route, api: Client, past: Past, jobs: Jobs) -> None:
    project(jobs)

    answer = give(api, route, past, jobs)

    assert 200 == answer.status_code, answer.text
    msgspec.json.decode(answer.content, type=route.answer)
    assert "no-store" == answer.headers["cache-control"]


@every
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_sec_05_another_site_s_page_gives_no_commands(
    route: Route, headers: dict[str, str], api: Client, past: Past, jobs: Jobs
) -> None:
    assert 403 == give(api, route, past, jobs, **headers).status_code


@every
def test_sec_05_a_form_is_no_command(route: Route, api: Client, past: Past) -> None:
    """What a page of another site can send without being asked is not JSON by its own account."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        path = route.path.replace("{job_id}", past.done)
        answer = api.request(route.method, path, content=b"{}", headers={"Content-Type": kind})
        assert 415 == answer.status_code


@every
def test_a_body_that_is_not_understood_is_refused(route: Route, api: Client, past: Past) -> None:
    """Unknown keys too: a name that is spelled wrongly is not passed over."""
    path = route.path.replace("{job_id}", past.done)
    for body in (b"[]", b"{", b'{"reasn": "x"}', b'{"reason": 7}', b"[" * 100_000, b"\xff", b'"\\ud800"'):
        answer = api.request(route.method, path, content=body, headers=JSON)
        assert 400 == answer.status_code, (body[:20], answer.text)
    long = b'{"reason": "' + b"x" * BODY_LIMIT + b'"}'
    assert 413 == api.request(route.method, path, content=long, headers=JSON).status_code


def test_events_say_who_and_why(guarded: Client, past: Past, jobs: Jobs) -> None:
    """The caller's name is the actor, and no body can say otherwise."""
    for name in ("cancel_job", "retry_job", "delete_job"):
        route = next(one for one in COMMANDS if one.name == name)
        assert 200 == give(guarded, route, past, jobs, x_caller="ana:cancel,retry,delete").status_code
    last = {one: jobs.history(one)[-1] for one in past}

    assert {("ana", "asked to"), ("ana", "disk cleaned"), ("ana", "not wanted")} == {
        (event.actor, event.reason) for event in last.values()
    }
    forged = guarded.request(
        "POST",
        f"/api/jobs/{past.failed}/cancel",
        content=b'{"actor": "bob"}',
        headers={**JSON, "x-caller": "ana:cancel"},
    )
    assert 400 == forged.status_code


def test_other_params_are_a_job_of_the_callers(guarded: Client, past: Past, jobs: Jobs) -> None:
    """Who may only try again cannot run what they like: that takes the right to submit; numbers stay exact."""

    def rerun(body: str, roles: str) -> Any:
        headers = {**JSON, "x-caller": f"ana:{roles}"}
        return guarded.request("POST", f"/api/jobs/{past.done}/rerun", content=body.encode(), headers=headers)

    body = '{"as_new": true, "params": {"song": 9007199254740993}, "at": "2026-08-02T00:00:00Z"}'
    count = jobs.log.last_cursor()
    assert [403, 403, 400] == [
        rerun(body, "retry").status_code,
        rerun(body, "submit").status_code,
        rerun(body.replace("true", "false"), "retry,submit").status_code,
    ]
    assert count == jobs.log.last_cursor()

    done = rerun(body, "retry,submit").json()

    made = jobs.job(done["job_id"])
    assert ({"song": 9007199254740993}, "2026-08-02") == (made.params, f"{made.scheduled_at:%Y-%m-%d}")
    assert 200 == rerun('{"as_new": true}', "retry").status_code


def test_what_was_written_can_be_read_by_its_version(api: Client, past: Past, jobs: Jobs) -> None:
    answer = api.request("POST", f"/api/jobs/{past.waiting}/cancel", content=b"{}", headers=JSON).json()

    assert ("canceled", past.waiting) == (answer["did"], answer["job_id"])
    assert "canceled" == api.get(f"/api/jobs/{past.waiting}?wait_for={answer['version']}").json()["state"]
    listed = api.get("/api/jobs", params={"command": "mix", "wait_for": answer["position"]})
    assert ["canceled"] == [one["state"] for one in listed.json()["items"]]


def test_what_cannot_be_done_says_why(api: Client, past: Past) -> None:
    def told(method: str, path: str) -> tuple[int, str]:
        answer = api.request(method, path, content=b"{}", headers=JSON)
        return answer.status_code, answer.json()["code"]

    assert (409, "conflict") == told("POST", f"/api/jobs/{past.done}/cancel")
    assert (409, "illegal_transition") == told("POST", f"/api/jobs/{past.done}/retry")
    assert (404, "not_found") == told("POST", "/api/jobs/nobody/cancel")
    assert (400, "invalid_job_id") == told("POST", "/api/jobs/%2e%2e/cancel")
    assert 200 == told_status(api, f"/api/jobs/{past.done}")
    assert (404, "deleted") == told("DELETE", f"/api/jobs/{past.done}")


def told_status(api: Client, path: str) -> int:
    return int(api.request("DELETE", path, content=b"{}", headers=JSON).status_code)


def test_the_same_id_again_is_the_same_job(api: Client, past: Past) -> None:
    order = {"command": "render", "id": "song-9", "params": {"n": 2**63 - 1}, "title": "Nine"}
    first = api.request("POST", "/api/jobs", content=json.dumps(order).encode(), headers=JSON).json()
    again = api.request("POST", "/api/jobs", content=json.dumps(order).encode(), headers=JSON).json()

    assert [("song-9", True), ("song-9", False)] == [(one["job_id"], one["created"]) for one in (first, again)]
    assert 2**63 - 1 == api.get("/api/jobs/song-9").json()["params"]["n"]


class TestBulk:
    """One command for many jobs."""

    def bulk(self, api: Client, **order: Any) -> Any:
        answer = api.request("POST", "/api/bulk", content=json.dumps(order).encode(), headers=JSON)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    def test_a_dry_run_says_what_would_be_done_and_does_nothing(self, api: Client, past: Past, jobs: Jobs) -> None:
        before = [jobs.get(one).state for one in past]
        told = self.bulk(api, action="cancel", ids=[past.done, past.waiting, "nobody"], reason="clean up")

        assert (True, 1, 2) == (told["dry_run"], told["done"], told["skipped"])
        assert before == [jobs.get(one).state for one in past]

    def test_each_job_is_for_itself_and_those_that_are_skipped_say_why(
        self, api: Client, past: Past, jobs: Jobs
    ) -> None:
        told = self.bulk(api, action="retry", ids=[past.done, past.failed], dry_run=False, reason="disk cleaned")

        assert (1, 1, [past.done]) == (told["done"], told["skipped"], [one["job_id"] for one in told["whys"]])
        assert "succeeded" in told["whys"][0]["why"]
        assert "disk cleaned" == jobs.history(past.failed)[-1].reason

    def test_a_filter_takes_all_that_it_finds(self, api: Client, past: Past, jobs: Jobs) -> None:
        more = [jobs.submit("mix", queue="slow") for _ in range(130)]
        project(jobs)
        told = self.bulk(api, action="cancel", filter={"queue": "slow", "state": "queued"}, dry_run=False)

        assert (131, 0, False) == (told["done"], told["skipped"], told["has_more"])
        assert {"canceled"} == {jobs.get(one).state for one in (*more, past.waiting)}

    @pytest.mark.parametrize("order", [{}, {"ids": ["a"], "filter": {}}, {"ids": ["a"] * 1001}])
    def test_it_takes_ids_or_a_filter(self, order: dict[str, Any], api: Client) -> None:
        body = json.dumps({"action": "cancel", **order}).encode()
        assert 400 == api.request("POST", "/api/bulk", content=body, headers=JSON).status_code


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = ("command", "params", "id", "title", "queue", "key", "at", "delay_s", "priority", "max_attempts", "external")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5))
def test_no_order_breaks_it(order: dict[str, Any], api: Client) -> None:
    answer = api.request("POST", "/api/jobs", content=json.dumps({"command": "c", **order}).encode(), headers=JSON)

    assert answer.status_code in (200, 400, 409), answer.text


@pytest.mark.parametrize("command", ["requeue", "discard"])
def test_a_view_that_does_not_exist(api: Client, past: Past, command: str) -> None:
    """It is a bad value, as where parked jobs are listed; not nothing to be found."""
    answer = api.request("POST", f"/api/parked/{command}", json={"view": "nosuch", "job_id": past.done})

    assert (400, 400) == (answer.status_code, api.get("/api/parked?view=nosuch").status_code)
    assert "view" in answer.json()["why"]
