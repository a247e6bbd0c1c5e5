"""Who gets in over HTTP: tokens and names with them, a proxy's word, hosts, and those who try too often."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.errors import Corrupt, Misconfigured, PermissionDenied, Unavailable
from jobevents.testing.faults import Call, FailingBlobs
from projections.api import create_app
from projections.api.access import ROLES, Access, NotIdentified, TooManyTries, WrongHost, check_host
from projections.api.doors import TRIES, Doors, ProxyHeader, Tokens, line_of, open_doors, read_holders
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.fake_time import FakeTime
from tests.http import client_of

TOKEN = "ana-" + "t" * 39
LINES = f"# who may\n\n{line_of('ana', ['read', 'cancel'], TOKEN)}\n{line_of('bob', ['read'], 'b' * 43)}\n"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
def door() -> Tokens:
    return Tokens(read_holders(LINES, "a test"))


@pytest.mark.parametrize("headers", [bearer(TOKEN), basic("ana", TOKEN), {"authorization": f"bearer  {TOKEN}"}])
def test_who_holds_a_token_is_known(door: Tokens, headers: dict[str, str]) -> None:
    found = door.identify(headers, "127.0.0.1")

    assert ("ana", {"read", "cancel"}) == (found.name, found.roles)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        bearer(""),
        bearer(TOKEN + "x"),
        bearer(TOKEN[:-1]),
        bearer("\udcff"),
        basic("bob", TOKEN),
        basic("", TOKEN),
        basic("ana", ""),
        {"authorization": "Basic !!"},
        {"authorization": f"Digest {TOKEN}"},
        {"authorization": f"Basic {TOKEN}"},
        bearer(read_holders(LINES, "")[0].digest),
    ],
)
def test_nobody_else_is(door: Tokens, headers: dict[str, str]) -> None:
    """Not with another's name, not with what is kept of a token; the browser is told what to ask for."""
    with pytest.raises(NotIdentified) as refused:
        door.identify(headers, "127.0.0.1")

    assert "Basic realm" in refused.value.challenge


def test_an_address_that_tries_too_often_has_to_wait() -> None:
    """With wrong ones: who holds a token is let in, also from behind the same address as who tries."""
    time = FakeTime()
    door = Tokens(read_holders(LINES, "a test"), monotonic=time.clock)
    for _ in range(TRIES):
        with pytest.raises(NotIdentified):
            door.identify(bearer("wrong"), "10.0.0.1")

    with pytest.raises(TooManyTries):
        door.identify(bearer("wrong"), "10.0.0.1")
    assert "ana" == door.identify(bearer(TOKEN), "10.0.0.1").name
    with pytest.raises(NotIdentified):
        door.identify(bearer("wrong"), "10.0.0.2")
    time.now += 61
    with pytest.raises(NotIdentified):
        door.identify(bearer("wrong"), "10.0.0.1")


@pytest.mark.parametrize(
    "line",
    ["ana", "ana read", f"ana read {TOKEN}", f"ana root {'0' * 64}", f"ana read,root {'0' * 64}", f"ana  {'0' * 64}"],
)
def test_a_line_that_is_none_is_refused_and_not_shown(line: str) -> None:
    """It may be a token that somebody wrote there."""
    with pytest.raises(Misconfigured, match="line=2") as refused:
        read_holders(f"# x\n{line}\n", "tokens.txt")

    assert TOKEN not in str(refused.value)
    with pytest.raises(Misconfigured, match="no tokens"):
        read_holders("# nobody\n", "tokens.txt")


class TestProxy:
    """A header names the caller, from the proxy's own address alone."""

    @pytest.fixture
    def door(self) -> ProxyHeader:
        return ProxyHeader("X-Forwarded-User", ["10.1.0.0/16", "::1"], ["read", "retry"])

    @pytest.mark.parametrize("peer", ["10.1.2.3", "::1"])
    def test_its_word_is_taken(self, door: ProxyHeader, peer: str) -> None:
        found = door.identify({"x-forwarded-user": "ana@example.org"}, peer)

        assert ("ana@example.org", {"read", "retry"}) == (found.name, found.roles)

    @pytest.mark.parametrize("name", ["CN=Ana,OU=Music,O=Example", "Doe, Jane", "eve,ana"])
    def test_a_name_may_have_commas(self, door: ProxyHeader, name: str) -> None:
        """As those of certificates and directories do: all of it is the name, and never a part."""
        assert name == door.identify({"x-forwarded-user": f" {name} "}, "::1").name

    @pytest.mark.parametrize(
        ("headers", "peer"),
        [
            ({"x-forwarded-user": "ana"}, "10.2.0.1"),
            ({"x-forwarded-user": "ana"}, ""),
            ({"x-forwarded-user": "ana"}, "unix"),
            ({}, "10.1.2.3"),
            ({"x-forwarded-user": " "}, "10.1.2.3"),
            ({"x-forwarded-user": "eve\nana"}, "10.1.2.3"),
            ({"x-forwarded-user": "\nana"}, "10.1.2.3"),
            ({"x-forwarded-user": "a\x00b"}, "10.1.2.3"),
            ({"x-forwarded-user": "a" * 1000}, "10.1.2.3"),
        ],
    )
    def test_nobody_else_s_is(self, door: ProxyHeader, headers: Mapping[str, str], peer: str) -> None:
        with pytest.raises(NotIdentified):
            door.identify(headers, peer)

    def test_it_is_believed_from_somewhere(self) -> None:
        with pytest.raises(Misconfigured, match="--proxy-from"):
            open_doors(proxy_header="X-Forwarded-User")
        with pytest.raises(Misconfigured, match="not an address"):
            open_doors(proxy_header="X-Forwarded-User", proxy_from=["here"])
        with pytest.raises(Misconfigured, match="no such role"):
            open_doors(proxy_header="X-Forwarded-User", proxy_from=["10.0.0.1"], proxy_roles=["root"])


def test_several_doors_are_tried_in_order() -> None:
    door = open_doors(tokens=(LINES, "a test"), proxy_header="X-User", proxy_from=["10.0.0.1"])

    assert isinstance(door, Doors)
    assert "ana" == door.identify(bearer(TOKEN), "10.9.9.9").name
    assert "eve" == door.identify({"x-user": "eve"}, "10.0.0.1").name
    with pytest.raises(NotIdentified):
        door.identify({"x-user": "eve"}, "10.9.9.9")


def test_read_only_takes_all_other_roles_away() -> None:
    door = open_doors(tokens=(LINES, "a test"), read_only=True)

    assert {"read"} == door.identify(bearer(TOKEN), "").roles
    assert not door.is_open


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1:8765", True),
        ("localhost", True),
        ("[::1]:8765", True),
        ("LOCALHOST:1", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[", False),
        ("localhost@evil.example", False),
    ],
)
def test_a_request_for_another_host_is_refused(host: str, is_ours: bool) -> None:
    """The name of a page's own host may be made to lead here; its requests are this machine's then, but for the name."""
    hosts = ("localhost", "127.0.0.1", "::1")
    if is_ours:
        check_host({"host": host}, hosts)
    else:
        with pytest.raises(WrongHost):
            check_host({"host": host}, hosts)
    check_host({"host": host}, ())


def test_over_http(tmp_path: Path) -> None:
    """Without a token nothing is told, with one what its holder may is done, in their name; the health is for everybody."""
    access: Access = Tokens(read_holders(LINES, "a test"))
    with connect("memory://") as jobs, client_of(create_app(jobs, access=access, hosts=["127.0.0.1"])) as client:
        job_id = jobs.submit("render")
        cancel = f"/api/jobs/{job_id}/cancel"
        json = {"Content-Type": "application/json"}

        nobody, wrong_host = client.get("/api/jobs"), client.get("/api/features", headers={"Host": "evil.example"})
        only_reads = client.request("POST", cancel, content=b"{}", headers={**json, **bearer("b" * 43)})
        done = client.request("POST", cancel, content=b'{"reason": "x"}', headers={**json, **basic("ana", TOKEN)})
        health = client.get("/healthz", headers={"Host": "10.4.0.7"})

        assert [401, 421, 403, 200, 200] == [one.status_code for one in (nobody, wrong_host, only_reads, done, health)]
        assert "Basic" in nobody.headers["www-authenticate"]
        assert "ana" == jobs.history(job_id)[-1].actor


def test_a_header_that_comes_twice_names_nobody() -> None:
    """One of them may be the caller's own, whichever comes first."""
    door = ProxyHeader("X-User", ["127.0.0.1"], ROLES)
    with connect("memory://") as jobs, client_of(create_app(jobs, access=door)) as client:
        once = client.get("/api/features", headers=[("X-User", "ana")])
        comma = client.get("/api/features", headers=[("X-User", "CN=ana,O=x")])
        twice = client.get("/api/features", headers=[("X-User", "eve"), ("x-user", "ana")])
        empty = client.get("/api/features", headers=[("X-User", ""), ("x-user", "ana")])

    assert (200, "ana", 401, 401) == (once.status_code, once.json()["caller"], twice.status_code, empty.status_code)
    assert "CN=ana,O=x" == comma.json()["caller"]


@pytest.mark.parametrize("path", ["/jobs?x=1", "/jobs/?x=1", "/overview/", "/api/queues/", "//jobs", "/healthz/"])
def test_nobody_is_sent_to_another_host(path: str) -> None:
    """Whatever host a request names, and wherever a slash is too many or missing."""
    with connect("memory://") as jobs, client_of(create_app(jobs, hosts=["127.0.0.1"])) as client:
        answer = client.get(path, headers={"Host": "evil.test"})

    assert answer.status_code in (404, 421)
    assert "location" not in answer.headers
    assert "evil.test/" not in answer.text


@pytest.mark.parametrize("error", [Unavailable, PermissionDenied, Corrupt])
def test_strangers_are_told_nothing_of_the_store(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    """Who needs no token is told that it is not ready; what is wrong is in the server's log."""

    def refuse(call: Call) -> None:
        raise error("connection to db.internal:5432 failed")

    with (
        connect("memory://", blobs=FailingBlobs(MemoryBlobs(), before=refuse)) as jobs,
        client_of(create_app(jobs, access=Tokens(read_holders(LINES, "a test")))) as client,
    ):
        answer = client.get("/readyz")
        known = client.get("/api/projector", headers=bearer(TOKEN))

    assert answer.status_code in (500, 503)
    assert "db.internal" not in answer.text
    assert "not ready" in answer.text
    assert "db.internal" in known.text
    assert "db.internal" in caplog.text


def sending(said: list[Any], *, http: str = "1.1", **options: Any) -> list[Any]:
    """Send an app the parts of a command's body; return what it sends. After the last part nothing comes any more."""
    sent: list[Any] = []

    async def receive() -> Any:
        return said.pop(0) if said else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    with connect("memory://") as jobs:
        scope = {
            "type": "http",
            "http_version": http,
            "method": "POST",
            "path": "/api/jobs",
            "raw_path": b"/api/jobs",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(create_app(jobs, **options)(scope, receive, send))
        assert not list(jobs.log.scan())
    return sent


def test_a_caller_who_leaves_while_sending_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is done, and nothing is logged as a failure."""
    part = {"type": "http.request", "body": b'{"name": "ren', "more_body": True}

    sent = sending([part, {"type": "http.disconnect"}])

    assert "failed" not in caplog.text
    assert 499 == sent[0]["status"]


@pytest.mark.parametrize(("http", "is_closed"), [("1.1", True), ("2", False)])
@pytest.mark.parametrize(("body", "status"), [(b"{", 408), (b" " * 300_000, 413)])
def test_what_is_left_of_a_refused_body(body: bytes, status: int, http: str, is_closed: bool) -> None:
    """It is not waited for: the connection ends, where it has no other requests, as HTTP/2 has, which knows no such header."""
    sent = sending([{"type": "http.request", "body": body, "more_body": True}], http=http, body_s=0.01)

    assert status == sent[0]["status"]
    assert is_closed == ((b"connection", b"close") in sent[0]["headers"])


def test_the_command_makes_a_token_and_its_line(jobevents: CommandLine) -> None:
    made = jobevents("token", "ana", "--role", "read", "--role", "cancel", "--json").json

    (holder,) = read_holders(made["line"], "a test")
    assert ("ana", {"read", "cancel"}) == (holder.name, holder.roles)
    assert "ana" == Tokens([holder]).identify(bearer(made["token"]), "").name
    assert made["token"] not in made["line"]
    assert 2 == jobevents("token", "a b").code
    assert 2 == jobevents("token", "ana", "--role", "root").code


def test_every_role_can_be_given() -> None:
    assert set(ROLES) == read_holders(line_of("ana", ROLES, "x"), "")[0].roles
