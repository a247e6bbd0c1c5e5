"""The HTTP server of the API: uvicorn with an end to everything that a caller can hold up.

Who sends headers or takes an answer as slowly as possible costs a connection for seconds, not for ever; how long a body may
take is the app's affair (`projections.api.app`), which also runs behind other servers.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol  # not what else is installed: it limits the size of headers

HEADERS_S: Final = 10.0  # from the first byte of a request, or the connection, to the end of its headers
HEADERS_LIMIT: Final = 32 * 1024  # bytes of all names and values, and the line before them
TAKEN_S: Final = 30.0  # in which some of an answer that does not fit into buffers must be taken
CONNECTIONS: Final = 800  # at once, of which 500 may follow: with all else below the usual 1,024 files of a process

_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"connection", b"close"),
)


def _problem(error: str, code: str, why: str, remedy: str) -> bytes:
    """Return why there is no answer, in the shape of the app's own, which has not been asked."""
    return json.dumps({"error": error, "code": code, "why": why, "remedy": remedy}).encode()


_NOT_HTTP: Final = _problem(
    "request is not understood",
    "bad_request",
    f"it is no HTTP/1.1, or its headers are longer than {HEADERS_LIMIT} bytes",
    "mend the request, or send less",
)
_BUSY: Final = _problem(
    "too many at once",
    "too_many",
    "as many connections are open as may be",
    "try again in a moment, or close others",
)


async def _busy(scope: Any, receive: Any, send: Any) -> None:  # an ASGI app, as below
    headers = [*_HEADERS, (b"retry-after", b"1"), (b"content-length", b"%d" % len(_BUSY))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else _BUSY})


class _Timer:
    """Calls once when time is up, unless it is stopped before."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, or go on, where it has begun."""
        self._handle = self._handle or loop.call_later(self._seconds, self._ring)

    def stop(self) -> None:
        """Have it not call; any number of times."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._call()


class _Protocol(H11Protocol):
    """One connection, which is given up when nothing comes of it."""

    headers_s: float
    taken_s: float
    most: int  # connections at once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._waits = _Timer(self.headers_s, self._give_up)  # for the headers of a request
        self._stuck = _Timer(self.taken_s, transport.abort)  # with an answer that is not taken
        self._waits.start(self.loop)
        if len(self.connections) > self.most:
            self.app = _busy

    def send_400_response(self, msg: str) -> None:
        """Say in our shape what uvicorn says as plain text."""
        headers = [*_HEADERS, (b"content-length", b"%d" % len(_NOT_HTTP))]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=_NOT_HTTP), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_between_requests:
            self._waits.start(self.loop)
        else:
            self._waits.stop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck.start(self.loop)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waits.stop()
        self._stuck.stop()
        super().connection_lost(exc)

    @property
    def _is_between_requests(self) -> bool:
        cycle: Any = self.cycle  # None before the first one, which uvicorn's annotation leaves out
        return cycle is None or cycle.response_complete

    def _give_up(self) -> None:
        if self._is_between_requests:
            self.transport.close()


def server_of(
    app: Any,  # an ASGI app, whose type uvicorn has for itself
    *,
    graceful_s: int | None = None,
    headers_s: float = HEADERS_S,
    taken_s: float = TAKEN_S,
    connections: int = CONNECTIONS,
) -> uvicorn.Server:
    """Return a server of an app, to be run with sockets that listen.

    Args:
        graceful_s: whole seconds after a stop in which answers that are under way may end; None: as long as they take.
        headers_s: from the first byte of a request to the end of its headers.
        taken_s: how long an answer may be stuck.
        connections: at once; who comes beyond is answered 503.
    """
    limits = {"headers_s": headers_s, "taken_s": taken_s, "most": connections}
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), limits),
        ws="none",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        h11_max_incomplete_event_size=HEADERS_LIMIT,
        timeout_graceful_shutdown=graceful_s,
    )
    return uvicorn.Server(config)
