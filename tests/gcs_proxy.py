"""A strict proxy before fake-gcs-server: it does what the emulator leaves out, and what a bad day does.

The emulator ignores conditions on reads and deletes, wrong checksums and the limit on writes of one name; those are
enforced here, as Cloud Storage does. A request that the emulator answers wrongly is refused with 501 and remembered
in `violations`. Faults are queued by a test, and each is used up by the requests it fits, first come first served.
"""

import base64
import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import google_crc32c

_WRITE_INTERVAL_S = 1.0  # GCS: 1 write/s per object name
_BAD_QUERY = {"matchGlob", "versions", "softDeleted", "includeTrailingDelimiter", "includeFoldersAsPrefixes"}


@dataclass(frozen=True)
class Request:
    """One request, taken apart."""

    kind: str  # upload, resume (an upload's next part), download, stat, list, delete, bucket or unknown
    bucket: str
    name: str  # of the object; "" for list and bucket
    query: Mapping[str, str]
    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Reply:
    """One answer, as the client gets it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


Answer = Callable[[], Reply]  # asks the emulator, at most once
Act = Callable[[Request, Answer], Reply | None]  # None: the connection breaks without a reply


class Held:
    """A request that was cut off from its client and is still on its way."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []

    def keep(self, _: Request, answer: Answer) -> None:
        self._answers.append(answer)

    def land(self) -> int:
        """Let it arrive now; returns the status that nobody gets."""
        return self._answers.pop()().status


class GcsProxy:
    """The proxy; `url` is the STORAGE_EMULATOR_HOST of whoever is tested."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._names: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.upstream_port = 0
        self.reset()

    def start(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        while self._idle:
            self._idle.pop().close()

    def reset(self) -> None:
        """Forget faults, requests and violations; no limit on writes."""
        self.requests: list[Request] = []
        self.keeps_requests = True  # with their bodies, for who asks what was asked
        self.violations: list[str] = []
        self.limits_writes = False  # 429 for a second write of one name within a second of `clock`
        self.clock: Callable[[], float] = time.monotonic
        self._written_at: dict[str, float] = {}
        self._sessions: dict[str, str] = {}  # upload_id -> ifGenerationMatch, which the emulator forgets
        self._faults: list[tuple[str, Act]] = []

    def kinds(self) -> list[str]:
        """The kinds of the requests seen, in order."""
        return [request.kind for request in self.requests]

    # faults: for the next `times` requests of a kind ("" is every kind)

    def fail(self, status: int, kind: str = "", *, times: int = 1, message: str = "injected") -> None:
        """Answer with an error, without asking the emulator."""
        self._add(kind, times, lambda _request, _answer: self.error(status, message))

    def drop_request(self, kind: str = "", *, times: int = 1) -> None:
        """Break the connection; nothing is done."""
        self._add(kind, times, lambda _request, _answer: None)

    def drop_reply(self, kind: str = "", *, times: int = 1) -> None:
        """Do what is asked, then break the connection."""

        def act(_: Request, answer: Answer) -> None:
            answer()

        self._add(kind, times, act)

    def hold(self, kind: str = "upload") -> Held:
        """Break the connection; what is asked is done when the test says so."""
        held = Held()
        self._add(kind, 1, held.keep)
        return held

    def before(self, kind: str, call: Callable[[], object]) -> None:
        """Run `call` first, in the proxy's thread: what somebody else does at that moment."""

        def act(_: Request, answer: Answer) -> Reply:
            call()
            return answer()

        self._add(kind, 1, act)

    def delay(self, seconds: float, kind: str = "", *, times: int = 1) -> None:
        """Answer late."""

        def act(_: Request, answer: Answer) -> Reply:
            reply = answer()
            time.sleep(seconds)
            return reply

        self._add(kind, times, act)

    def corrupt(self, kind: str = "download", *, times: int = 1) -> None:
        """Change the first byte of the reply's body."""

        def act(_: Request, answer: Answer) -> Reply:
            reply = answer()
            return Reply(reply.status, reply.headers, bytes([reply.body[0] ^ 1]) + reply.body[1:])

        self._add(kind, times, act)

    def strip_headers(self, prefix: str, kind: str = "download", *, times: int = 1) -> None:
        """Leave out headers that begin with `prefix`."""

        def act(_: Request, answer: Answer) -> Reply:
            reply = answer()
            return Reply(reply.status, [h for h in reply.headers if not h[0].lower().startswith(prefix)], reply.body)

        self._add(kind, times, act)

    def _add(self, kind: str, times: int, act: Act) -> None:
        with self._lock:
            self._faults += [(kind, act)] * times

    def _take(self, request: Request) -> Act | None:
        with self._lock:
            for place, (kind, act) in enumerate(self._faults):
                if kind in ("", request.kind):
                    del self._faults[place]
                    return act
        return None

    # what a request goes through

    def parse(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
        """Take a request apart."""
        return parse(method, target, headers, body)

    def error(self, status: int, message: str) -> Reply:
        """Return an error as the service says it."""
        return _error(status, message)

    def handle(self, request: Request) -> Reply | None:
        """Answer one request, faults first."""
        if self.keeps_requests:
            self.requests.append(request)
        act = self._take(request)
        if act is None:
            return self._answer(request)
        return act(request, lambda: self._answer(request))

    def _answer(self, request: Request) -> Reply:
        if wrong := self._badly_faked(request):
            self.violations.append(f"{wrong}: {request.method} {request.target}")
            return _error(501, wrong)
        with self._names[f"{request.bucket}/{request.name}"] if request.name else contextlib.nullcontext():
            reply = self._refusal(request) or self.ask(request.method, request.target, request.headers, request.body)
            self._remember(request, reply)
        if reply.status == 404 and request.bucket and not self._has_bucket(request.bucket):
            return _error(404, "The specified bucket does not exist.")
        return reply

    def _remember(self, request: Request, reply: Reply) -> None:
        if request.kind not in ("upload", "resume") or reply.status != 200:
            return
        if request.query.get("uploadType") == "resumable" and request.kind == "upload":
            location = next(value for key, value in reply.headers if key.lower() == "location")
            session = dict(parse_qsl(urlsplit(location).query))["upload_id"]
            self._sessions[session] = request.query.get("ifGenerationMatch", "")
        else:
            self._written_at[f"{request.bucket}/{request.name}"] = self.clock()

    def _badly_faked(self, request: Request) -> str:
        if request.kind == "unknown":
            return "the emulator fakes this call badly"
        if bad := _BAD_QUERY & set(request.query):
            return f"the emulator ignores {sorted(bad)}"
        if request.kind == "upload" and request.query.get("uploadType") == "media":
            return "the emulator ignores conditions on uploadType=media"
        if (
            request.kind == "upload"
            and request.query.get("uploadType") == "multipart"
            and "crc32c" not in _parts(request)[0]
        ):
            return "an upload without crc32c can be stored damaged"
        return ""

    def _refusal(self, request: Request) -> Reply | None:
        """What Cloud Storage refuses and the emulator does not."""
        if request.kind in ("upload", "resume"):
            return self._write_refusal(request)
        if request.kind not in ("download", "stat", "delete") or not _conditions(request):
            return None
        current = self._generation(request)
        query = request.query
        if current is None or query.get("generation", current) != current:
            return _error(404, f"No such object: {request.bucket}/{request.name}")
        if query.get("ifGenerationMatch", current) != current:
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        if query.get("ifGenerationNotMatch") == current:
            return Reply(304, [], b"")
        return None

    def _write_refusal(self, request: Request) -> Reply | None:
        last = self._written_at.get(f"{request.bucket}/{request.name}")
        if self.limits_writes and last is not None and self.clock() - last < _WRITE_INTERVAL_S:
            return _error(429, "The object exceeded the rate limit for object mutation operations.")
        wanted = self._sessions.get(request.query.get("upload_id", ""), request.query.get("ifGenerationMatch", ""))
        if wanted and wanted != (self._generation(request) or "0"):
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        if request.query.get("uploadType") == "multipart":
            resource, data = _parts(request)
            if resource["crc32c"] != base64.b64encode(struct.pack(">I", google_crc32c.value(data))).decode():
                return _error(400, "Provided CRC32C does not match.")
        return None

    def _generation(self, request: Request) -> str | None:
        reply = self.ask("GET", f"/storage/v1/b/{request.bucket}/o/{quote(request.name, safe='')}")
        return str(json.loads(reply.body)["generation"]) if reply.status == 200 else None

    def _has_bucket(self, bucket: str) -> bool:
        return self.ask("GET", f"/storage/v1/b/{bucket}").status == 200

    def ask(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Ask the emulator itself."""
        sent = {key: value for key, value in (headers or {}).items() if key.lower() != "connection"}
        while True:
            connection, used = self._connection()
            try:
                connection.request(method, target, body, sent)
                response = connection.getresponse()
                reply = Reply(response.status, response.getheaders(), response.read())
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                if not used:  # else the emulator may have closed it for being idle
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                self._idle.append(connection)
                return reply

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        return http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=30), False


def _handler(proxy: GcsProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # the client was killed
                super().handle()

        def _serve(self) -> None:
            reply = proxy.handle(proxy.parse(self.command, self.path, dict(self.headers.items()), _body(self)))
            if reply is None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(reply.status)
            for key, value in reply.headers:
                if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(key, value)
            of_head = next((value for key, value in reply.headers if key.lower() == "content-length"), "0")
            self.send_header("Content-Length", of_head if self.command == "HEAD" else str(len(reply.body)))
            with contextlib.suppress(OSError):
                self.end_headers()
                if reply.status != 304 and self.command != "HEAD":
                    self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "") == "chunked":
        return b"".join(_chunks(handler))
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def _chunks(handler: BaseHTTPRequestHandler) -> Iterator[bytes]:
    while size := int(handler.rfile.readline(), 16):
        yield handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()


def parse(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
    """Take a request of the JSON API apart; what the tested code has no business with is `unknown`."""
    split = urlsplit(target)
    query = dict(parse_qsl(split.query, keep_blank_values=True))
    path = [unquote(part) for part in split.path.strip("/").split("/")]
    kind, bucket, name = "unknown", "", ""
    match [method, *path]:
        case ["POST", "upload", "storage", "v1", "b", bucket, "o"] if "upload_id" not in query:
            kind, name = "upload", _upload_name(query, headers, body)
        case ["PUT" | "POST", "upload", "storage", "v1", "b", bucket, "o"]:
            kind, name = "resume", query.get("name", "")
        case ["GET", "download", "storage", "v1", "b", bucket, "o", name] if query.get("alt") == "media":
            kind = "download"
        case ["GET", "storage", "v1", "b", bucket, "o", name]:
            kind = "stat"
        case ["DELETE", "storage", "v1", "b", bucket, "o", name]:
            kind = "delete"
        case ["GET", "storage", "v1", "b", bucket, "o"]:
            kind = "list"
        case ["GET", "storage", "v1", "b", bucket] | ["DELETE", "storage", "v1", "b", bucket]:
            kind = "bucket"
        case ["POST", "storage", "v1", "b"]:
            kind = "bucket"
    return Request(kind, bucket, name, query, method, target, headers, body)


def _upload_name(query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> str:
    if "name" in query:
        return query["name"]
    try:
        if query.get("uploadType") == "multipart":
            return str(_multipart(headers, body)[0]["name"])
        return str(json.loads(body)["name"])
    except (ValueError, KeyError):
        return ""


def _parts(request: Request) -> tuple[dict[str, str], bytes]:
    return _multipart(request.headers, request.body)


def _multipart(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """Return the resource and the data of a multipart upload; data are cut at the boundary, byte for byte."""
    kind = next(value for key, value in headers.items() if key.lower() == "content-type")
    header = Message()  # by the old policy, which reads one header thirty times as fast
    header["Content-Type"] = kind
    boundary = b"--" + str(header.get_boundary()).encode()
    _, resource, data = body.removesuffix(b"--").removesuffix(boundary).split(boundary, 2)
    return json.loads(resource.split(b"\r\n\r\n", 1)[1]), data.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n")


def _conditions(request: Request) -> bool:
    return bool({"generation", "ifGenerationMatch", "ifGenerationNotMatch"} & set(request.query))


def _error(status: int, message: str) -> Reply:
    body = json.dumps({"error": {"code": status, "message": message, "errors": [{"message": message}]}}).encode()
    return Reply(status, [("Content-Type", "application/json; charset=UTF-8")], body)
