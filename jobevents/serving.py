"""The dashboard and the API served beside something else, in a thread of this process."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from jobevents.errors import Misconfigured
from jobevents.jobs import Jobs

BACKLOG = 2048  # connections that wait to be taken
_STREAMS_END_S = 1  # whole seconds: what is still followed at the end is cut off then
_PATIENCE_S = 5.0  # for answers that are under way at the end


def missing() -> str:
    """Return the name of a package that serving needs and that is not there; "" for none."""
    return next(
        (
            name
            for name in ("uvicorn", "starlette", "sse_starlette", "jinja2", "prometheus_client")
            if find_spec(name) is None
        ),
        "",
    )


@contextmanager
def serving(jobs: Jobs, *, port: int, actor: str) -> Iterator[str]:
    """Serve these jobs to this machine alone within the block; give the address, which has another port where that is taken."""
    from jobevents.webserver import server_of  # an optional extra, as is what the API needs
    from projections.api import create_app
    from projections.api.access import Anonymous

    app = create_app(jobs, access=Anonymous(name=actor))
    server = server_of(app, graceful_s=_STREAMS_END_S)
    try:
        listener = listen("127.0.0.1", port)
    except Misconfigured:
        listener = listen("127.0.0.1", 0)
    with listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="serving", daemon=True)
        thread.start()
        try:
            yield f"http://{address(listener)}/"
        finally:
            app.state.bell.end()
            server.should_exit = True
            thread.join(_PATIENCE_S)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, with what makes small answers go out at once.

    Raises:
        Misconfigured: the port is taken, or the address is none of this machine's.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        # The protocol by name, which create_server leaves out: asyncio then sends at once what is small (TCP_NODELAY);
        # without it the second part of each answer waits 40 ms for the first one's acknowledgement.
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener
    except OSError as error:
        raise Misconfigured(
            f"cannot listen host={host} port={port} error={error}: give another --host or --port"
        ) from error


def address(listener: socket.socket) -> str:
    """Return where a socket listens, as a URL has it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
