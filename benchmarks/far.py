"""Cloud Storage and Pub/Sub as they are from far away: `python -m benchmarks.far`, until its standard input ends.

The emulator of Cloud Storage and a stand-in for Pub/Sub, each behind a proxy that holds back what they answer: 45 ms and 20 ms.
It passes bytes on and takes apart no more than a request's first line, so that it is not what is measured.
"""

import asyncio
import json
import re
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from jobevents import devcloud
from tests.pubsub_server import PubSubServer

STORAGE_S = 0.045
PUBSUB_S = 0.020
TOPIC = "projects/bench/topics/jobs"

_REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_NAME = re.compile(rb'"name": ?"([^"]*)"')
_HOST = "127.0.0.1"


class Far(NamedTuple):
    """Ports on this machine."""

    storage: int  # Cloud Storage, 45 ms away
    near: int  # the same, at once
    pubsub: int  # Pub/Sub, 20 ms away
    calls: int  # says how often what was called: see `calls_to`


def calls_to(port: int) -> Counter[str]:
    """Return how often Cloud Storage was called: by class of price (A, B or free) and part of the name, `A log`, `B floor`."""
    with socket.create_connection((_HOST, port)) as connection:
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    return Counter(json.loads(data))


class _Calls:
    """What one connection asks for."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._is_upload = False  # whose name is in its body

    def saw(self, data: bytes) -> None:
        begins = _REQUEST.match(data)
        if begins is not None:
            method, target = begins[1].decode(), urlsplit(begins[2].decode())
            self._is_upload = target.path.startswith("/upload/")
            name, lists = unquote(target.path.rpartition("/o/")[2]), target.path.endswith("/o")
            if not self._is_upload:
                kind = "free" if method == "DELETE" else "A" if lists or method != "GET" else "B"
                self._add(kind, "list" if lists else name)
        if self._is_upload and (found := _NAME.search(data)) is not None:
            self._is_upload = False
            self._add("A", found[1].decode())

    def _add(self, kind: str, name: str) -> None:
        self._counts[f"{kind} {'floor' if name.startswith('ctl/v1/floor/') else name.partition('/')[0]}"] += 1


class _Server(asyncio.Protocol):
    """The connection to what is far away."""

    def __init__(self, client: asyncio.WriteTransport, delay_s: float) -> None:
        self._client = client
        self._delay_s = delay_s

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._client.write, data)

    def connection_lost(self, error: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._client.close)


class _Client(asyncio.Protocol):
    """A connection of whoever is measured."""

    def __init__(self, port: int, delay_s: float, counts: Counter[str]) -> None:
        self._port = port
        self._delay_s = delay_s
        self._calls = _Calls(counts)
        self._early: list[bytes] = []
        self._server: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._opening = asyncio.get_running_loop().create_task(self._open(transport))

    async def _open(self, client: asyncio.WriteTransport) -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_connection(lambda: _Server(client, self._delay_s), _HOST, self._port)
        server.writelines(self._early)
        self._server = server

    def data_received(self, data: bytes) -> None:
        self._calls.saw(data)
        if self._server is None:
            self._early.append(data)
        else:
            self._server.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._server is not None:
            self._server.close()


async def _serve(near: int, pubsub: int) -> None:
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    ignored: Counter[str] = Counter()

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(counts).encode())
        await writer.drain()
        writer.close()

    servers = (
        await loop.create_server(lambda: _Client(near, STORAGE_S, counts), _HOST, 0, backlog=256),
        await loop.create_server(lambda: _Client(pubsub, PUBSUB_S, ignored), _HOST, 0),
        await asyncio.start_server(tell, _HOST, 0),
    )
    storage, bus, calls = (server.sockets[0].getsockname()[1] for server in servers)
    print(json.dumps(Far(storage, near, bus, calls)._asdict()), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _in_memory() -> str | None:
    """Return a directory without a disk, if there is one: in its own memory the emulator looks through all objects for each."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> None:
    """Start both, say where they are, and end with the standard input."""
    binary = devcloud.storage_binary()
    assert binary is not None, "whoever starts this has looked"
    pubsub = PubSubServer()
    pubsub.start()
    near = f"{_HOST}:{devcloud.free_port()}"
    with tempfile.TemporaryDirectory(prefix="jobevents-bench-", dir=_in_memory()) as directory:
        output = Path(directory) / "storage.log"
        with devcloud.running(
            devcloud.storage_command(binary, near, near, Path(directory) / "data"), output
        ) as emulator:
            devcloud.wait_for(f"http://{near}/storage/v1/b?project=bench", emulator, output)
            asyncio.run(_serve(int(near.partition(":")[2]), pubsub.port))
    pubsub.close()


if __name__ == "__main__":
    main()
