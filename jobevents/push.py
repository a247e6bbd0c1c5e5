"""The push endpoint: what Cloud Tasks and Pub/Sub send to a service becomes a guarded run of the registered handler.

    app = create_push_app(jobs, registry, audience="https://jobs.example", accounts="push@project.iam.gserviceaccount.com")

is an ASGI app; `PushEndpoint` is the same for any framework: headers and body in, a status out. Who is answered by 2xx does
not come again; anything else is delivered again, so that nothing which another try could cure is answered by 4xx, but for a
token: the next delivery brings another.
"""

import base64
import binascii
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from jobevents import ids
from jobevents.deliveries import Delivered, Deliveries
from jobevents.errors import PermissionDenied, Unavailable
from jobevents.oidc import Keys, TokenCheck
from jobevents.registry import Registry

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

BODY_LIMIT = 1 << 20  # bytes; Cloud Tasks: 1 MB. What we send ourselves has a few hundred
HEADERS_LIMIT = 32 * 1024  # bytes of all names and values
BEGINS = frozenset({"JobQueued", "JobRequeued", "JobFailed"})  # events after which a job may wait to be run

Check = Callable[[str], object]
"""Takes a token; raises PermissionDenied or Unavailable."""
Message = MutableMapping[str, Any]  # Any: ASGI's


class Answer(msgspec.Struct, frozen=True):
    """What to answer to a request."""

    status: int
    body: bytes = b""  # JSON
    retry_after_s: int = 0  # for the header of that name; 0: none

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to it."""
        more = {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}
        challenge = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return {"Content-Type": "application/json", "Cache-Control": "no-store", **more, **challenge}


class _Wanted(msgspec.Struct, frozen=True):
    """Which job a request is about."""

    job_id: str
    if_external: bool = False  # a notice of an event: only what our own queue leaves to others
    is_news: bool = True  # False: nothing that a job could begin after


class _Pushed(msgspec.Struct):
    """The message of a Pub/Sub push."""

    attributes: dict[str, str] = {}
    data: str = ""  # base64


class _Body(msgspec.Struct):
    """The body of a request: of a task of ours, or of a Pub/Sub push; other keys are passed over."""

    job: str = ""
    message: _Pushed | None = None


class _Refuse(Exception):
    """A request that is answered without looking at a job."""

    def __init__(self, status: int, why: str, retry_after_s: int = 0) -> None:
        super().__init__(why)
        self.answer = Answer(status, msgspec.json.encode({"outcome": why}), retry_after_s)


class PushEndpoint:
    """Takes the requests of one service. Safe for threads; blocks until the job has ended."""

    def __init__(
        self,
        jobs: "Jobs",
        registry: Registry,
        *,
        audience: str | Sequence[str] = (),
        accounts: str | Sequence[str] = (),
        fetch_keys: Callable[[], Keys] | None = None,
        check: Check | None = None,
        **options: Any,  # Any: those of Deliveries
    ) -> None:
        """Start nothing yet.

        Args:
            audience: what the tokens are for: the service's address, or what the push subscription was given.
            accounts: emails of the service accounts whose tokens are taken.
            fetch_keys: returns the keys that tokens may be signed with; default: Google's.
            check: checks tokens instead of all that; for another platform than Google's.
            options: of `Deliveries`: `worker`, `logs`, `queue_limits`, `most`, `grace_s`, `stop_grace_s`.

        Raises:
            Misconfigured: neither an audience and an account are given, nor a check.
        """
        self._jobs = jobs
        self._check = check or TokenCheck(audience, accounts, fetch_keys=fetch_keys)
        self._deliveries = Deliveries(jobs, registry, **options)

    def handle(
        self, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes, *, job_id: str = ""
    ) -> Answer:
        """Answer a request that delivers a job.

        Args:
            headers: of the request, in any case.
            body: `{"job": …}`, or what Pub/Sub pushes: `{"message": {"attributes": {"job": …}}}`.
            job_id: where the address names it; the body may name no other then.
        """
        try:
            self._admit(headers, body)
            wanted = _wanted(body, job_id)
        except _Refuse as refused:
            self._jobs.counts.add("deliveries_refused")
            return refused.answer
        if not wanted.is_news:
            return _answer(Delivered(wanted.job_id, "nothing begins after this event"))
        return _answer(self._deliveries.deliver(wanted.job_id, if_external=wanted.if_external))

    def sweep(self, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> Answer:
        """Give back the jobs of dead workers and hand over what was lost: for a service that is asleep while nothing comes.

        To be asked for by a schedule, such as Cloud Scheduler's every minute.
        """
        try:
            self._admit(headers, b"")
        except _Refuse as refused:
            return refused.answer
        try:
            reaped = self._jobs.reap()
            count = self._jobs.redispatch() if self._jobs.dispatcher else 0
        except Exception as error:  # noqa: BLE001  # the store's or the task queue's: it is asked for again
            return Answer(503, msgspec.json.encode({"outcome": f"the pass failed: {error!s:.200}"}), 5)
        return Answer(200, msgspec.json.encode({"outcome": "done", "reaped": reaped, "dispatched": count}))

    def close(self) -> None:
        """Take nothing more, let handlers end, and give back the jobs of those that do not within a few seconds."""
        self._deliveries.close()

    def _admit(self, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes) -> None:
        """Check size and token."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if sum(len(name) + len(value) for name, value in pairs) > HEADERS_LIMIT:
            raise _Refuse(431, f"headers have over {HEADERS_LIMIT} bytes")
        if len(body) > BODY_LIMIT:
            raise _Refuse(413, f"the body has over {BODY_LIMIT} bytes")
        said = [value for name, value in pairs if name.lower() == "authorization"]
        kind, _, token = (said[0] if len(said) == 1 else "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _Refuse(401, "no token: send Authorization: Bearer TOKEN, once")
        try:
            self._check(token.strip())
        except Unavailable as error:
            raise _Refuse(503, str(error), 5) from error
        except PermissionDenied as error:
            raise _Refuse(401, str(error)) from error


def _wanted(body: bytes, job_id: str) -> _Wanted:
    try:
        said = msgspec.json.decode(body or b"{}", type=_Body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _Refuse(400, f"the body is no JSON object of a delivery: {error!s:.200}") from error
    named = {one for one in (job_id, said.job, *_named_by(said.message)) if one}
    if len(named) != 1:
        raise _Refuse(400, "the request names no job" if not named else "the request names two jobs")
    name = named.pop()
    if not ids.is_valid(name):
        raise _Refuse(400, f"no job can have this id job_id={name!r:.80}")
    event = said.message.attributes.get("type", "") if said.message is not None else ""
    return _Wanted(name, if_external=bool(event), is_news=not event or event in BEGINS)


def _named_by(message: _Pushed | None) -> list[str]:
    """Return the job that a message names: by its attributes, or else by its data."""
    if message is None:
        return []
    if "job" in message.attributes:
        return [message.attributes["job"]]
    try:
        return [msgspec.json.decode(base64.b64decode(message.data, validate=True), type=_Body).job]
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _Refuse(400, f"the message names no job: {error!s:.200}") from error


def _answer(delivered: Delivered) -> Answer:
    body = {"job": delivered.job_id, "outcome": delivered.outcome, "state": delivered.state}
    if delivered.is_settled:
        return Answer(200, msgspec.json.encode(body))
    return Answer(503, msgspec.json.encode(body), max(1, math.ceil(min(delivered.again_s, 3600.0))))


class PushApp:
    """The endpoint as an ASGI app: POST /tasks/{job}, POST /tasks, POST /sweep, GET /healthz. Closed by the server's shutdown."""

    def __init__(self, endpoint: PushEndpoint, *, threads: int) -> None:
        self.endpoint = endpoint
        self._threads = threads
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer one request, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            answer = await self._request(scope, receive)
            head = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
            await send({"type": "http.response.start", "status": answer.status, "headers": head})
            await send({"type": "http.response.body", "body": answer.body})

    async def _live(
        self, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await anyio.to_thread.run_sync(self.endpoint.close)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _request(self, scope: Message, receive: Callable[[], Awaitable[Message]]) -> Answer:
        path, method = scope["path"], scope["method"]
        route, _, job_id = path.removeprefix(scope.get("root_path", "")).lstrip("/").partition("/")
        if (route, job_id, method) == ("healthz", "", "GET"):
            return Answer(200, b'{"outcome":"up"}')
        if route not in ("tasks", "sweep") or (route == "sweep" and job_id):
            return Answer(404, b'{"outcome":"there is nothing here"}')
        if method != "POST":
            return Answer(405, b'{"outcome":"POST it"}')
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        body = await _read(receive)
        if body is None:
            return Answer(413, msgspec.json.encode({"outcome": f"the body has over {BODY_LIMIT} bytes"}))
        if route == "sweep":
            return await self._in_thread(partial(self.endpoint.sweep, headers))
        return await self._in_thread(partial(self.endpoint.handle, headers, body, job_id=job_id))

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


async def _read(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    """Return the body; None when it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_LIMIT:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def create_push_app(
    jobs: "Jobs",
    registry: Registry,
    *,
    audience: str | Sequence[str] = (),
    accounts: str | Sequence[str] = (),
    fetch_keys: Callable[[], Keys] | None = None,
    check: Check | None = None,
    most: int = 80,
    **options: Any,  # Any: those of PushEndpoint
) -> PushApp:
    """Return the endpoint as an ASGI app; see `PushEndpoint` for the arguments and errors.

    Args:
        most: how many jobs may run at once in this process.
    """
    endpoint = PushEndpoint(
        jobs,
        registry,
        audience=audience,
        accounts=accounts,
        fetch_keys=fetch_keys,
        check=check,
        most=most,
        **options,
    )
    return PushApp(endpoint, threads=2 * most)  # twice: those beyond it are told at once to come again
