"""Who may do what: the one table of every route that is served, and of what each takes."""

import itertools
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from jobevents import connect
from jobevents.jobs import Jobs
from projections.api import create_app
from projections.api.access import ROLES, Role
from projections.api.doors import Holder, ReadOnly, Tokens
from projections.api.openapi import document
from projections.api.routes import ROUTES
from projections.ui.assets import assets
from tests.api import Past, fill, park, project
from tests.http import Client, client_of


class Right(NamedTuple):
    """What a request takes."""

    roles: frozenset[Role]  # all of them; none: it is for everybody
    body: dict[str, Any] | None = None
    of: str = "done"  # the job that it is for


def takes(*roles: Role, of: str = "done", **body: Any) -> Right:
    return Right(frozenset(roles), body, of)


READ, OPEN = [Right(frozenset({"read"}))], [Right(frozenset())]
RIGHTS: dict[str, Sequence[Right]] = {
    "GET /api/jobs": READ,
    "GET /api/jobs/{job_id}": READ,
    "GET /api/jobs/{job_id}/status": READ,
    "GET /api/jobs/{job_id}/events": READ,
    "GET /api/jobs/{job_id}/logs": READ,
    "GET /api/jobs/{job_id}/logs/stream": READ,
    "GET /api/jobs/{job_id}/starts": READ,
    "GET /api/stream": READ,
    "GET /api/queues": READ,
    "GET /api/workers": READ,
    "GET /api/schedules": READ,
    "GET /api/projector": READ,
    "GET /api/parked": READ,
    "GET /api/stats": READ,
    "GET /api/features": READ,
    "GET /metrics": READ,
    "GET /openapi.json": READ,
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "POST /api/jobs": [takes("submit", command="render")],
    "POST /api/jobs/{job_id}/cancel": [takes("cancel", of="waiting"), takes("cancel", of="waiting", force=True)],
    "POST /api/jobs/{job_id}/retry": [takes("retry", of="failed")],
    "POST /api/jobs/{job_id}/rerun": [
        takes("retry"),
        takes("retry", as_new=True),
        takes("retry", "submit", as_new=True, params={"song": 9}),
    ],
    "DELETE /api/jobs/{job_id}": [takes("delete")],
    "POST /api/bulk": [
        takes("read", "cancel", action="cancel", ids=["mix"], dry_run=False),
        takes("read", "retry", action="retry", ids=["mix"], dry_run=False),
        takes("read", "retry", action="rerun", ids=["mix"], dry_run=False),
        takes("read", "delete", action="delete", ids=["mix"], dry_run=False),
        takes("read", "delete", action="delete", filter={"state": "failed"}),
    ],
    "POST /api/pause": [takes("pause", queue="slow")],
    "POST /api/resume": [takes("pause", queue="slow")],
    "POST /api/parked/requeue": [takes("admin", view="status", job_id="{job_id}")],
    "POST /api/parked/discard": [takes("admin", view="status", job_id="{job_id}")],
    "GET /api/search": READ,
    "GET /api/storage": READ,
    "GET /": READ,
    "GET /jobs/{job_id}": READ,
    "GET /jobs/{job_id}/lines": READ,
    "GET /jobs/{job_id}/event": READ,
    "GET /jobs/{job_id}/log.txt": READ,
    "GET /overview": READ,
    "GET /queues": READ,
    "GET /workers": READ,
    "GET /schedules": READ,
    "GET /projector": READ,
    "GET /audit": READ,
    "GET /suggest": READ,
    "GET /sql": READ,
    "POST /sql": [takes("admin", sql="SELECT 1")],
    "GET /export": READ,
    "GET /columns": READ,
    "GET /static/{path}": OPEN,
    "GET /robots.txt": OPEN,
}
"""Every route, and of each all the bodies by which what it takes differs."""

CASES = [(place, right) for place, rights in RIGHTS.items() for right in rights]
every = pytest.mark.parametrize(
    ("place", "right"), CASES, ids=[f"{place} {' '.join(sorted(right.roles)) or 'open'}" for place, right in CASES]
)

SUBSETS = [frozenset(some) for size in (0, 1, 2, 6, 7) for some in itertools.combinations(ROLES, size)]
HOLDERS = [
    Holder(_name, some, sha256(_name.encode()).hexdigest()) for some in SUBSETS if (_name := "+".join(some) or "-")
]


def token_of(roles: frozenset[Role]) -> str:
    """Return the token of who has exactly these roles."""
    return next(holder.name for holder in HOLDERS if holder.roles == roles)


class Served(NamedTuple):
    """A server with jobs that have a past."""

    jobs: Jobs
    past: Past
    client: Client

    def ask(self, place: str, right: Right, token: str | None, *, job_id: str = "") -> Any:
        """Ask for what stands in the table, with a token."""
        method, path = place.split(" ")
        job_id = job_id or getattr(self.past, right.of)
        path = path.replace("{job_id}", job_id).replace("{path}", f"{assets().version}/app.css")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = {}
        if right.body is not None:
            said = json.dumps(right.body).replace("{job_id}", job_id)
            body = {"content": said.encode()}
            headers |= {"Content-Type": "application/json"}
        return self.client.request(method, path, headers=headers, **body)


def serve(*, read_only: bool = False) -> Iterator[Served]:
    minutes = itertools.count(0, 100)  # so that nobody has tried too often
    door = Tokens(HOLDERS, monotonic=lambda: next(minutes))
    with connect("memory://") as jobs:
        past = fill(jobs)
        project(jobs)
        park(jobs, past.done)
        app = create_app(jobs, access=ReadOnly(door) if read_only else door, stream_s=0)
        with client_of(app) as client:
            yield Served(jobs, past, client)


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """For requests that are refused, or change nothing."""
    yield from serve()


@pytest.fixture
def fresh() -> Iterator[Served]:
    yield from serve()


@pytest.fixture(scope="module")
def read_only() -> Iterator[Served]:
    yield from serve(read_only=True)


def test_the_table_has_every_route_that_is_served() -> None:
    """With its methods; what is served and not in it fails here, and what is in it and not served."""
    with connect("memory://") as jobs:
        app = create_app(jobs)

    served = {
        f"{method} {route.path.replace(':path}', '}')}"  # type: ignore[attr-defined]  # all are routes
        for route in app.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert set(RIGHTS) == {one for one in served if not one.startswith("HEAD ")}
    assert {one.replace("HEAD", "GET") for one in served if one.startswith("HEAD ")} <= set(RIGHTS)


def good(place: str) -> int:
    """Return the status of an answer to who may ask: one leads back to the list."""
    return 303 if place == "GET /columns" else 200


@every
def test_sec_03_nobody_and_who_has_a_wrong_token(place: str, right: Right, shared: Served) -> None:
    """Are told to say who they are, and nothing of whether the job is there; what is for everybody is answered."""
    for token in (None, "wrong"):
        answer = shared.ask(place, right, token)
        of_nothing = shared.ask(place, right, token, job_id="nothing")

        assert (401 if right.roles else 200) == answer.status_code
        if right.roles:
            assert "Bearer" in answer.headers["www-authenticate"]
            assert hidden(answer, shared.past) == hidden(of_nothing, shared.past)


@every
def test_sec_03_whoever_lacks_a_role(place: str, right: Right, shared: Served) -> None:
    """Is refused: without any right, with reading alone where that is not all, and with every role but one that it takes."""
    before = shared.jobs.log.last_cursor(), shared.jobs.paused()
    lacking = [frozenset(ROLES) - {role} for role in right.roles]
    if right.roles:
        lacking += [frozenset[Role](), *([frozenset[Role]({"read"})] if right.roles != {"read"} else [])]

    for roles in lacking:
        answer = shared.ask(place, right, token_of(roles))
        of_nothing = shared.ask(place, right, token_of(roles), job_id="nothing")

        assert 403 == answer.status_code, roles
        assert hidden(answer, shared.past) == hidden(of_nothing, shared.past)
    assert before == (shared.jobs.log.last_cursor(), shared.jobs.paused())


def hidden(answer: Any, past: Past) -> str:
    """Return the text of a refusal, in which nothing of a job may be."""
    assert "Song 7" not in answer.text
    text: str = answer.text
    return text.replace(past.done, "nothing").replace(past.waiting, "nothing").replace(past.failed, "nothing")


@every
def test_who_has_the_roles_is_answered(place: str, right: Right, request: pytest.FixtureRequest) -> None:
    """And needs no other one."""
    served: Served = request.getfixturevalue("shared" if right.body is None else "fresh")

    assert good(place) == served.ask(place, right, token_of(right.roles)).status_code


@every
def test_a_server_that_only_reads(place: str, right: Right, read_only: Served) -> None:
    """Shows everything to whoever may read, and does nothing, whatever roles they have."""
    answer = read_only.ask(place, right, token_of(frozenset(ROLES)))

    assert (good(place) if right.roles <= {"read"} else 403) == answer.status_code


def test_the_document_says_so() -> None:
    """Each operation names its role, and that who asks must be known."""
    paths = document(ROUTES)["paths"]

    for place, rights in RIGHTS.items():
        method, path = place.split(" ")
        if path in paths:
            operation = paths[path][method.lower()]
            held = frozenset.intersection(*(right.roles for right in rights))
            assert operation.get("x-role", "") in held or not held
            assert ("x-role" in operation) == bool(held) == ("401" in operation["responses"])
