"""The projector's own small web server: `/healthz` for whoever restarts it, `/metrics` for whoever counts."""

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from projections.service import Condition

logger = logging.getLogger(__name__)


class HealthServer:
    """Answers `GET /healthz` with the condition as JSON, 503 when it is bad; `GET /metrics` with counters as Prometheus text."""

    def __init__(self, condition: Callable[[], Condition], *, host: str = "0.0.0.0", port: int = 8080) -> None:  # noqa: S104
        """Listen; port 0 takes a free one.

        Args:
            host: a container's health is asked for from outside of it.
        """

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _answer(self, condition())

            def log_message(self, format: str, *args: object) -> None:
                logger.debug(format, *args)

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="jobevents-healthz", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(request: BaseHTTPRequestHandler, condition: Condition) -> None:
    path = request.path.partition("?")[0]
    if path == "/healthz":
        code, kind, body = 200 if condition.ok else 503, "application/json", msgspec.json.encode(condition)
    elif path == "/metrics":
        code, kind, body = 200, "text/plain; version=0.0.4", _metrics(condition).encode()
    else:
        code, kind, body = 404, "text/plain", b"see /healthz or /metrics\n"
    request.send_response(code)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.send_header("Cache-Control", "no-store")
    request.end_headers()
    request.wfile.write(body)


def _metrics(condition: Condition) -> str:
    lines = [
        f"# TYPE jobevents_{name}_total counter\njobevents_{name}_total {count}"
        for name, count in sorted(condition.counts.items())
    ]
    gauges = {
        "projector_ok": int(condition.ok),
        "projector_degraded": int(condition.state == "degraded"),
        "projector_waiting_events": condition.waiting,
        "projector_swept_seconds": condition.swept_s,
        "projector_complete_through_seconds": condition.complete_through and condition.complete_through.timestamp(),
    }
    lines += [
        f"# TYPE jobevents_{name} gauge\njobevents_{name} {value:.3f}"
        for name, value in gauges.items()
        if value is not None
    ]
    return "\n".join(lines) + "\n"
