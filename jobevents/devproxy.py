"""What an emulator of Cloud Storage leaves out, for development: a proxy before it that holds deletes to their condition.

fake-gcs-server 1.54 deletes whatever generation it is told; a log would lose events in such a store, and refuses it.
"""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec

_PER_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "upgrade",
    "host",
    "content-length",
}  # RFC 9110, 7.6.1
_REFUSED = msgspec.json.encode({"error": {"code": 412, "message": "At least one of the pre-conditions did not hold."}})
_TIMEOUT_S = 30.0


@contextmanager
def proxied(port: int, emulator: str) -> Iterator[None]:
    """Answer on a port of this machine for as long as the block, with what the emulator at `host:port` says."""

    class Handler(_Handler):
        upstream = emulator

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="jobevents-dev-proxy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection; requests that change something go one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream = ""
    changing = threading.Lock()

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._change()

    def do_PUT(self) -> None:
        self._change()

    def do_PATCH(self) -> None:
        self._change()

    def do_DELETE(self) -> None:
        self._change()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""

    def _change(self) -> None:
        wanted = parse_qs(urlsplit(self.path).query).get("ifGenerationMatch", [""])[0]
        with _Handler.changing:
            if self.command == "DELETE" and wanted and self._generation() not in (wanted, ""):
                self._answer(412, [("Content-Type", "application/json")], _REFUSED)
            else:
                self._pass_on()

    def _generation(self) -> str:
        """Return the generation of the object that the request is about; "" when there is none."""
        status, _, body = self._ask("GET", urlsplit(self.path).path, b"")
        return str(msgspec.json.decode(body).get("generation", "")) if status == http.client.OK else ""

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._answer(*self._ask(self.command, self.path, self.rfile.read(length)))

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.upstream, timeout=_TIMEOUT_S)
        try:
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _PER_HOP}
            connection.request(method, path, body=body or None, headers={**headers, "Host": self.headers["Host"]})
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers:
            if key.lower() not in _PER_HOP:
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
