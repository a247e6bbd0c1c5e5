"""Callers that hold something up: each is given up in time, and nobody else waits for them."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from jobevents import connect
from projections.api import create_app
from projections.api.problems import Problem
from tests.serving import listening

HEADERS_S, BODY_S, TAKEN_S = 0.4, 0.4, 0.4
CONNECTIONS = 12
MUCH = 100_000_000  # bytes, more than buffers of both sides hold


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has little patience, with a job whose log fills every buffer."""
    folder: Path = tmp_path_factory.mktemp("slow")
    with connect(f"sqlite:///{folder}/jobs.db?synchronous=normal") as jobs:
        with jobs.attempt(jobs.submit("render", id="loud")) as attempt:
            for _ in range(1500):
                attempt.log("x" * 8000)
        app = create_app(jobs, body_s=BODY_S)
        with listening(app, headers_s=HEADERS_S, taken_s=TAKEN_S, connections=CONNECTIONS) as found:
            yield found


@contextmanager
def connected(place: str, said: bytes) -> Iterator[socket.socket]:
    """Open a connection and begin to say something."""
    where = urlsplit(place)
    with socket.create_connection((where.hostname, where.port), timeout=10) as sock:
        sock.sendall(said)
        yield sock


def rest(sock: socket.socket) -> bytes:
    """Return what comes until the other side ends the connection."""
    found = bytearray()
    with suppress(ConnectionError):  # an end as well
        while part := sock.recv(65536):
            found += part
    return bytes(found)


POST = b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "])
def test_headers_that_do_not_end(place: str, said: bytes) -> None:
    """Nothing, or a part of them, also a byte at a time: the connection is ended, and others are answered meanwhile."""
    with connected(place, said) as sock:
        began = time.monotonic()
        assert 200 == httpx.get(f"{place}/healthz", trust_env=False).status_code
        sock.settimeout(0.05)
        ended = b"more"
        while ended and time.monotonic() - began < 10:
            try:
                ended = sock.recv(100)
            except TimeoutError:
                if said:
                    sock.sendall(b"x")

    assert b"" == ended
    assert HEADERS_S * 0.9 <= time.monotonic() - began < 5


def test_headers_of_a_second_request_that_do_not_end(place: str) -> None:
    """A connection that was used before has no more time."""
    with connected(place, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") as sock:
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        sock.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        began = time.monotonic()
        rest(sock)

    assert time.monotonic() - began < 4  # kept alive, it would be 5 s


def test_a_body_that_does_not_come(place: str) -> None:
    """It is said to be too slow, in the one shape, and the connection ends: nobody waits for what is left of it."""
    with connected(place, POST + b'{"command": ') as sock:
        answer = rest(sock)

    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"too_slow"' in answer
    assert b"so_far=12 bytes" in answer


def test_a_body_that_does_not_end(place: str) -> None:
    """It is refused as soon as it is too long, and the rest of it is not read."""
    with connected(place, POST.replace(b": 100", b": 999999999")) as sock:
        sent = 0
        with suppress(ConnectionError):
            while sent < MUCH:
                sent += sock.send(b" " * 8192)

    assert sent < MUCH


def test_an_answer_that_is_not_taken(place: str) -> None:
    """Who asks for much and takes none of it is cut off."""
    where = urlsplit(place)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect((where.hostname, where.port))
        sock.sendall(b"GET /jobs/loud/log.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = sock.recv(4096).partition(b"\r\n\r\n")[0].lower()
        time.sleep(TAKEN_S * 3)  # what is waited for is that nothing is taken
        taken = len(rest(sock))

    length = next(line for line in head.splitlines() if line.startswith(b"content-length:"))
    assert MUCH / 10 < int(length.partition(b":")[2])
    assert taken < int(length.partition(b":")[2]) - 4096


def test_more_connections_than_may_be(place: str) -> None:
    """Who comes beyond is told so at once, and those that are open go on; afterwards there is room again."""
    held = [connected(place, b"") for _ in range(CONNECTIONS)]
    socks = [one.__enter__() for one in held]
    try:
        answer = httpx.get(f"{place}/healthz", trust_env=False)
        for sock in socks:
            rest(sock)
    finally:
        for one in held:
            one.__exit__(None, None, None)

    assert (503, "too_many", "1", "close") == (
        answer.status_code,
        msgspec.json.decode(answer.content, type=Problem).code,
        answer.headers["retry-after"],
        answer.headers["connection"],
    )
    ends = time.monotonic() + 10
    while httpx.get(f"{place}/healthz", trust_env=False).status_code != 200:  # the server sees its ends a moment later
        assert time.monotonic() < ends


@pytest.mark.parametrize(
    "said", [b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 40_000 + b"\r\n\r\n", b"\x16\x03\x01 hello\r\n\r\n"]
)
def test_what_is_no_request_of_ours(place: str, said: bytes) -> None:
    """Headers that are too large are refused before they are all read, and what is no HTTP at all, in the one shape."""
    with connected(place, said) as sock:
        head, _, body = rest(sock).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400")
    assert "bad_request" == msgspec.json.decode(body, type=Problem).code
