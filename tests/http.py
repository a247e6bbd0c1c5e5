"""An ASGI app as its callers see it, in this process: requests by httpx, on an event loop of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

BASE = "http://127.0.0.1:8765"


class Client:
    """Asks an app, one request at a time."""

    def __init__(self, portal: BlockingPortal, app: Any, *, base: str = BASE) -> None:
        self._portal = portal
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            return await self._client.request(method, path, **options)

        return self._portal.call(ask)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def close(self) -> None:
        self._portal.call(self._client.aclose)


@contextmanager
def client_of(app: Any, *, base: str = BASE) -> Iterator[Client]:
    """Give a client of an app, and close it."""
    with start_blocking_portal() as portal:
        client = Client(portal, app, base=base)
        yield client
        client.close()
