"""A list page of 50 jobs as the API answers it, any page of any state: request in, JSON out, no socket between."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.data import STATES
from benchmarks.model import Repeat, Setting
from benchmarks.pages import PER_PAGE, asked_of, index
from jobevents.blobs import ABSENT, FileBlobs
from jobevents.job import Job
from jobevents.records import status_bytes, status_name
from jobevents.wiring import connect
from projections.api.app import create_app
from projections.index import Index

_PAGES = 40  # a repetition, or one for each 250 jobs: few enough that hardly a job is asked for twice


def listed(setting: Setting) -> None:
    """Build the index of `size` jobs in files, and the statuses of those that are on the pages asked for."""
    index(setting)
    with closing(FileBlobs(setting.prepared)) as blobs:
        kept = Index(blobs)
        wanted = {job_id: state for state, number in _asked(kept) for job_id in kept.page(state, number, PER_PAGE)[0]}
        for job_id, state in wanted.items():
            body = status_bytes(Job(job_id=job_id, version=1, state=state or "succeeded", name="render"))
            blobs.put(status_name(job_id), body, if_generation=ABSENT)


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """The app over a log in files, which has no other list than the index."""
    with closing(FileBlobs(setting.prepared)) as blobs:
        asked = _asked(Index(blobs))
    with connect(f"file://{setting.prepared.resolve()}") as jobs, asyncio.Runner() as runner:

        def repeat() -> Any:
            app = create_app(jobs, ui=False)
            return lambda: runner.run(_get_all(app, asked))

        yield repeat


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """What no page can do without: its statuses read and joined, the ids known beforehand."""
    with closing(FileBlobs(setting.prepared)) as blobs:
        kept = Index(blobs)
        pages = [kept.page(state, number, PER_PAGE)[0] for state, number in _asked(kept)]
        paths = [[setting.prepared / status_name(job_id) for job_id in page] for page in pages]

    def work() -> int:
        for page in paths:
            body = b'{"items":[' + b",".join(path.read_bytes() for path in page) + b"]}"
            assert body.count(b'"job_id"') == PER_PAGE
        return len(paths)

    yield lambda: work


def _asked(kept: Index) -> list[tuple[str, int]]:
    counts = kept.counts()
    return asked_of(
        {"": counts["all"], **{state: counts[state] for state in STATES}}, min(_PAGES, counts["all"] // 250)
    )


async def _get_all(app: Any, asked: list[tuple[str, int]]) -> int:
    for state, number in asked:
        status, body = await _get(app, f"state={state}&page={number}&per_page={PER_PAGE}")
        if status != 200 or body.count(b'"job_id"') != PER_PAGE:
            raise LookupError(f"page is not full state={state} page={number} status={status} body={body[:300]!r}")
    return len(asked)


async def _get(app: Any, query: str) -> tuple[int, bytes]:
    """Ask an ASGI app for a page of the list."""
    told: list[Any] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/jobs",
        "raw_path": b"/api/jobs",
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "http_version": "1.1",
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])
