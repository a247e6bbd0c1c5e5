"""A real server of an app, in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobevents.webserver import server_of


@contextmanager
def listening(app: Any, **limits: Any) -> Iterator[str]:
    """Serve an app by our server in a thread, within limits as `server_of` takes them; give where."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        server = server_of(app, graceful_s=5, **limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
