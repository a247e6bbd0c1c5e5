"""Many who follow and many who ask, at once: no error, nothing missed, bounded memory.

Some seconds of it by default; `JOBEVENTS_LOAD_S=60` for a minute, which then has to keep its pace as well.
"""

import asyncio
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobevents import connect
from tests.api import project
from tests.test_serve import served

LOAD_S = float(os.environ.get("JOBEVENTS_LOAD_S", "3"))
FOLLOWERS = 200
RATE = 300  # requests a second
ASKING = 16  # connections that they come by
SUBMITS = 20  # of the requests of a second
JOBS = 1000 if LOAD_S >= 60 else 300  # that are there before: more than a page of what followers are sent
MOST_MB = 100  # that the server may grow by

pytestmark = pytest.mark.slow


class Connection:
    """One connection that asks again and again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, place: str) -> "Connection":
        where = urlsplit(place)
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """Send a request and return its status, once its headers are there."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.writer.get_extra_info('peername')[0]}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        self.headers = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        return int(self.headers.split(" ", 2)[1])

    async def body(self) -> bytes:
        length = next(line for line in self.headers.splitlines() if line.startswith("content-length:"))
        return await self.reader.readexactly(int(length.split(":")[1]))


async def follow(place: str, got: list[int], until: asyncio.Event) -> None:
    """Take down the ids that a stream brings, until told to stop and the last one is there."""
    one = await Connection.open(place)
    assert 200 == await one.ask("GET", "/api/stream?after=0")
    waiting = asyncio.ensure_future(until.wait())
    while not waiting.done():
        reading = asyncio.ensure_future(one.reader.readline())
        await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            reading.cancel()
            break
        line = reading.result()
        if line.startswith(b"id: "):
            got.append(int(line[4:]))
    one.writer.close()


async def ask(place: str, number: int, began: float, ids: list[str], took: list[float]) -> None:
    """Send every sixteenth request at its time."""
    one = await Connection.open(place)
    for turn in range(number, int(RATE * LOAD_S), ASKING):
        await asyncio.sleep(max(0.0, began + turn / RATE - time.monotonic()))
        job_id = ids[turn % len(ids)]
        kinds = ("/status", "/status", "/status", "", "/events", "/status")
        path = f"/api/jobs/{job_id}{kinds[turn % 6]}" if turn % 10 else f"/api/jobs?page={turn % 40 + 1}&per_page=20"
        asked = time.monotonic()
        if turn % (RATE // SUBMITS) == 1:
            status = await one.ask("POST", "/api/jobs", b'{"command":"render"}')
        else:
            status = await one.ask("GET", path)
        body = await one.body()
        took.append(time.monotonic() - asked)
        assert 200 == status, body
    one.writer.close()


async def load(place: str, ids: list[str], pid: int) -> tuple[list[list[int]], list[float], float, list[float]]:
    """Follow and ask; return what each follower got, how long each request took, all took, and the server's memory in MB."""
    got: list[list[int]] = [[] for _ in range(FOLLOWERS)]
    took: list[float] = []
    until = asyncio.Event()
    following = [asyncio.create_task(follow(place, one, until)) for one in got]
    idle = await Connection.open(place)  # one that never reads what it is sent
    assert 200 == await idle.ask("GET", "/api/stream?after=0")
    while min(len(one) for one in got) < JOBS:
        await asyncio.sleep(0.05)
    memory = [resident_mb(pid)]
    began = time.monotonic()
    asking = asyncio.gather(*(ask(place, number, began, ids, took) for number in range(ASKING)))
    while not asking.done():
        await asyncio.wait([asking], timeout=0.5)
        memory.append(resident_mb(pid))
    await asking
    elapsed = time.monotonic() - began
    last = JOBS + sum(turn % (RATE // SUBMITS) == 1 for turn in range(int(RATE * LOAD_S)))
    async with asyncio.timeout(20):
        while min(one[-1] for one in got) < last:
            await asyncio.sleep(0.05)
    until.set()
    await asyncio.gather(*following)
    idle.writer.close()
    return got, took, elapsed, memory


def resident_mb(pid: int) -> float:
    found = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in found.splitlines() if line.startswith("VmRSS")) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_many_who_follow_and_many_who_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 followers and 300 requests a second: every answer is good, every follower has every event once, in order."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url) as jobs:
        ids = jobs.submit_many([{"name": "render", "params": {"song": number}} for number in range(JOBS)])
        project(jobs)

    with served("--url", url, cwd=tmp_path) as (place, process):
        got, took, elapsed, memory = asyncio.run(load(place, ids, process.pid))

    took.sort()
    with capsys.disabled():
        print(
            f"\n{len(took)} requests in {elapsed:.1f} s, p50 {took[len(took) // 2] * 1000:.1f} ms, "
            f"p99 {took[len(took) * 99 // 100] * 1000:.0f} ms; memory {memory[0]:.0f} to {max(memory):.0f} MB"
        )
    assert int(RATE * LOAD_S) == len(took)
    for one in got:
        assert list(range(one[-1] + 1)) == one  # the first id is where it began, 0
    assert max(memory) - memory[0] < MOST_MB
    if LOAD_S >= 60:
        assert elapsed < LOAD_S * 1.05
