"""How tokens for a bucket come: from hosts of their own, by proxies of their own, and within the time of a request."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from google.cloud.storage import Client
from google.oauth2.credentials import Credentials

from jobevents.backends.gcs import GcsBlobs
from jobevents.backoff import Backoff
from jobevents.errors import NotFound, Unavailable

BUCKET = "bucket"


class _Server(ThreadingHTTPServer):
    """Answers as a server of tokens, and as a bucket without objects; what it is asked is kept."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []  # what, and with which token
        self.refused = 0  # how many are still to be answered 401

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.server.refused -= 1
        self._answer(401 if self.server.refused >= 0 else 404, b"No such object")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, ""))
        token = f"t{len(self.server.asked)}"
        self._answer(200, json.dumps({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _serving() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _blobs(token_uri: str, **options: object) -> GcsBlobs:
    credentials = Credentials(  # type: ignore[no-untyped-call]
        None, refresh_token="r", token_uri=token_uri, client_id="c", client_secret="s"
    )
    return GcsBlobs(BUCKET, client=Client(project=None, credentials=credentials), **options)  # type: ignore[arg-type]


def test_tokens_do_not_come_by_the_bucket_s_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that the environment keeps from the proxy is asked itself; a token that has run out is made new, once."""
    with _serving() as proxy, _serving() as tokens:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid")
        proxy.refused = 1
        with closing(_blobs(f"http://127.0.0.1:{tokens.port}/token")) as blobs, pytest.raises(NotFound):
            blobs.get("a")

        url = f"http://storage.invalid/download/storage/v1/b/{BUCKET}/o/a?alt=media"
        assert [(url, "Bearer t1"), (url, "Bearer t2")] == proxy.asked
        assert [("/token", "")] * 2 == tokens.asked


def test_a_token_that_does_not_come_holds_up_no_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves tokens takes the connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        began = time.monotonic()
        with closing(_blobs(uri, timeout_s=0.2, backoff=Backoff(deadline_s=0.2))) as blobs, pytest.raises(Unavailable):
            blobs.get("a")

        assert time.monotonic() - began < 5
