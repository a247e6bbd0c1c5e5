"""The ASGI app: each route of the table behind one way in and out. All that blocks runs in a bounded number of threads."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

import msgspec
from anyio import CapacityLimiter, move_on_after, sleep, to_thread
from anyio.lowlevel import RunVar
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from jobevents.errors import InvalidValue, JobEventsError
from jobevents.jobs import Jobs
from jobevents.registry import Registry
from jobevents.status import Status
from jobevents.times import format_time
from projections.api import parameters, spans
from projections.api.access import AGAIN, Access, Anonymous, Identity, check_host, check_role, check_site
from projections.api.commanding import Commands
from projections.api.following import MOST, Feed, Follower, Following, ending
from projections.api.masking import Mask
from projections.api.metrics import Metrics
from projections.api.problems import NotJson, NotYet, Refusal, TooLarge, TooSlow, refusal_by_status, refusal_of
from projections.api.questions import Questions
from projections.api.route import JSON, SSE, WAIT_S, Desk, Given, Reply, Route
from projections.api.routes import ROUTES
from projections.ui.pages import PAGES

T = TypeVar("T")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Ts = TypeVarTuple("Ts")

THREADS: Final = 16  # requests that read at once; the others wait their turn
STRANGERS: Final = 2  # requests of those who are not asked who they are, beside the others: they hold up nobody either
STREAM_THREADS: Final = 4  # of those who follow, beside them: they hold up nobody
STREAM_S: Final = 3600.0  # then a stream ends, so that who comes back is judged again
BODY_LIMIT: Final = 256 * 1024  # bytes: the params of a job are at most 64 KiB
BODY_S: Final = 20.0  # in which it must be there: 100 kbit/s
_PING_S: Final = 15.0  # between signs of life: proxies take a minute of silence for the end
_TAKEN_S: Final = 30.0  # in which what is sent must be taken
_LOOK_S: Final = 0.05  # between two looks at whether what is waited for is there

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_GONE_AWAY: Final = 499  # the caller left, as others count it; nobody is sent it
_NOT_TOLD: Final = "not ready; the particulars are in the server's log"  # to strangers, who need not know the store
_NOBODY: Final = Identity("", frozenset())

logger = logging.getLogger(__name__)


def create_app(
    jobs: Jobs,
    *,
    access: Access | None = None,
    registry: Registry | None = None,
    record: type[Status] = Status,
    ui: bool = True,
    mask: Collection[str] | None = None,
    hosts: Collection[str] = (),
    threads: int = THREADS,
    wait_s: float = WAIT_S,
    streams: int = MOST,
    stream_s: float = STREAM_S,
    body_s: float = BODY_S,
) -> Starlette:
    """Return the API and the dashboard over these jobs, to be served, or mounted in an app of your own; it closes nothing.

    Its `state.bell.end()` ends what is followed, which a server that ends would wait for.

    Args:
        access: tells who calls; by default everybody is `anonymous` and may do everything, which is for loopback alone, or
            behind something of yours that has judged the caller.
        registry: the kinds of jobs, for schedules.
        record: Status, or the service's subclass of it, as lists show jobs.
        ui: whether the dashboard is there, at `/`.
        mask: names of arguments whose values are shown to nobody, such as `*password*`, instead of the usual ones of
            secrets (`masking.SECRETS`); none: everything is shown. What is named here is masked in a job's status as well,
            which otherwise is exactly its status.json.
        hosts: names of this server, without ports: requests for others are refused, but those about its health; none: any.
        threads: how many requests read at once.
        wait_s: how long `wait_for` waits at most.
        streams: how many may follow at once; who comes beyond is told to try again.
        stream_s: how long a stream goes on; with 0 it ends when all that there is has been sent.
        body_s: in how many seconds a body must be there; how long headers may take is the server's affair.
    """
    questions = Questions(jobs, registry=registry, record=record, mask=Mask(mask))
    desk = Desk(questions, Metrics(questions), Commands(jobs, questions.listing), Following(questions, streams))
    server = _Server(
        desk,
        access or Anonymous(),
        frozenset(hosts),
        threads=threads,
        wait_s=wait_s,
        stream_s=stream_s,
        body_s=body_s,
        has_pages=ui,
    )
    app = Starlette(
        routes=_places((*ROUTES, *(PAGES if ui else ())), server.endpoint),
        exception_handlers={HTTPException: server.no_route, Exception: server.unexpected},
    )
    app.state.bell = desk.following.bell
    app.router.redirect_slashes = False  # it would send callers to whatever host they name, before that is checked
    return app


class _Place(StarletteRoute):
    """A path, which answers for every method: with what may be asked there, or with which may."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return Match.FULL if match is Match.PARTIAL else match, found


def _places(routes: Sequence[Route], endpoint: Callable[[Route], Endpoint]) -> list[_Place]:
    """Return what Starlette matches: each path once, those that take whatever stands there after what stands below a job.

    An id is whatever stands there, slashes too: what is none is refused as such, the same way everywhere.
    """
    by_path: dict[str, dict[str, Endpoint]] = {}
    for one in routes:
        by_path.setdefault(one.path, {})[one.method] = endpoint(one)
    ordered = sorted(by_path, key=lambda path: path.endswith("{job_id}"))
    return [
        _Place(path.replace("{job_id}", "{job_id:path}"), _by_method(by_path[path]), methods=list(by_path[path]))
        for path in ordered
    ]


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return answer


class _Server:
    """What all routes of one app have in common."""

    def __init__(
        self,
        desk: Desk,
        access: Access,
        hosts: frozenset[str],
        *,
        threads: int,
        wait_s: float,
        stream_s: float,
        body_s: float,
        has_pages: bool,
    ) -> None:
        self._desk = desk
        self._has_pages = has_pages
        self._access = access
        self._hosts = hosts
        self._wait_s = wait_s
        self._stream_s = stream_s
        self._body_s = body_s
        self._asking = _Threads("jobevents-api-threads", threads)
        self._strangers = _Threads("jobevents-api-open-threads", STRANGERS)
        self._following = _Threads("jobevents-api-stream-threads", STREAM_THREADS)

    def endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        """Return what Starlette calls for a route."""

        async def answer(request: Request) -> Response:
            started = time.monotonic()
            with spans.request(route, request.headers) as span:
                response = await self._answer(route, request)
                span.status = response.status_code
            self._desk.metrics.answered(route.name, response.status_code, time.monotonic() - started)
            return response

        return answer

    async def _answer(self, route: Route, request: Request) -> Response:
        began = self._now()
        try:
            reply = await self._reply(route, request)
            if route.is_stream:
                return self._streamed(reply, began)
            return self._in_parts(reply, route, began) if route.is_file else _response(reply, route, began)
        except ClientDisconnect:  # while its body was read: nothing was asked, and nobody is there to be told
            return Response(status_code=_GONE_AWAY)
        except Exception as error:
            if not isinstance(error, JobEventsError):
                logger.exception("request failed route=%s", route.name)
            refusal = refusal_of(error)
            if route.role is None and refusal.status >= 500 and isinstance(error, JobEventsError):
                logger.warning("not well route=%s error=%s", route.name, error)
                refusal = refusal._replace(problem=msgspec.structs.replace(refusal.problem, why=_NOT_TOLD))
            if refusal.status in (408, 413) and request.scope.get("http_version", "").startswith("1"):
                refusal.headers["Connection"] = "close"  # what is still to come of the body is not waited for
            return self._refused(route, request, refusal, began)

    async def _reply(self, route: Route, request: Request) -> Reply:
        caller = _NOBODY
        if route.role is not None:
            check_host(request.headers, self._hosts)
            caller = self._access.identify(_headers(request), request.client.host if request.client else "")
            check_role(caller, route.role)
        body = None
        if route.takes is not None:
            check_site(request.headers)
            body = await _body(request, route.takes, self._body_s)
            if route.role_of is not None:
                check_role(caller, route.role_of(body))
        given = Given(
            caller,
            parameters.read_all(route.parameters, request.query_params.multi_items()),
            request.path_params.get("job_id", ""),
            body,
            request.headers.get("if-none-match", ""),
            request.headers.get("last-event-id", ""),
            *_place(request),
            cookie=request.headers.get("cookie", ""),
        )
        if route.is_quick:
            return route.ask(self._desk, given)
        await self._wait(route, given)
        threads = self._strangers if route.role is None else self._asking
        return await threads.run(route.ask, self._desk, given)

    def _streamed(self, reply: Reply, began: datetime) -> Response:
        follower = self._desk.following.bell.enter()
        headers = {**_HEADERS, "X-Complete-Through": format_time(began), "Content-Type": SSE, **reply.headers}
        return _Stream(self._parts(reply.body, follower), follower, headers)

    def _in_parts(self, reply: Reply, route: Route, began: datetime) -> Response:
        return StreamingResponse(self._pieces(reply.body), reply.status, _headers_of(reply, route, began))

    async def _pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield what is made piece by piece, each in a thread; what fails breaks it off, so that no part passes for the whole."""
        while piece := await self._asking.run(next, pieces, b""):
            yield piece

    async def _parts(self, feed: Feed, follower: Follower) -> AsyncIterator[bytes]:
        """Yield what a follower is sent, until it is time to end, or nothing more can be read."""
        ends = time.monotonic() + self._stream_s
        yield feed.begin()
        try:
            while True:
                part = await self._following.run(feed.read)
                if part:
                    yield part
                left_s = ends - time.monotonic()
                if left_s <= 0 and (self._stream_s or not part):
                    return
                if not part:
                    with move_on_after(left_s):
                        if not await follower.wait():
                            return
        except Exception as error:
            if not isinstance(error, JobEventsError):
                logger.exception("stream failed")
            yield ending(error)

    def _refused(self, route: Route, request: Request, refusal: Refusal, began: datetime) -> Response:
        if route.refuse is None:
            return _refused(refusal, began)
        path, depth = _place(request)
        reply = route.refuse(self._desk, Given(_NOBODY, {}, path=path, depth=depth), refusal)
        headers = {**reply.headers, **refusal.headers}
        return _response(msgspec.structs.replace(reply, status=refusal.status, headers=headers), route, began)

    async def _wait(self, route: Route, given: Given) -> None:
        """Wait until the place is reached that `wait_for` names.

        Raises:
            NotYet: not in time.
        """
        wanted = given.values.get("wait_for")
        if route.waits is None or wanted is None:
            return
        ends = time.monotonic() + self._wait_s
        while (found := await self._asking.run(route.waits, self._desk.questions, given)) < wanted:
            if time.monotonic() >= ends:
                raise NotYet(f"waited in vain wait_for={wanted} found={found} waited_s={self._wait_s:g}")
            await sleep(_LOOK_S)

    async def no_route(self, request: Request, error: Exception) -> Response:
        """Answer where no route is, or not with this method."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        refusal = refusal_by_status(status, f"{request.method} is not answered here")
        is_for_people = self._has_pages and "text/html" in request.headers.get("accept", "")
        response = (
            self._refused(PAGES[0], request, refusal, self._now()) if is_for_people else _refused(refusal, self._now())
        )
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    async def unexpected(self, request: Request, error: Exception) -> Response:
        """Answer what failed outside of every route; Starlette raises it again, for the server's log."""
        return _refused(refusal_of(error), self._now())

    def _now(self) -> datetime:
        return self._desk.questions.jobs.emitter.clock()


class _Threads:
    """So many threads for what blocks, of each event loop."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = threads
        self._limiter: RunVar[CapacityLimiter] = RunVar(name)

    async def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._threads)
            self._limiter.set(limiter)
        return await to_thread.run_sync(call, *args, limiter=limiter)


class _Stream(EventSourceResponse):
    """An answer that goes on until the follower is gone, the server ends, or what is sent is not taken."""

    def __init__(self, parts: AsyncIterator[bytes], follower: Follower, headers: dict[str, str]) -> None:
        super().__init__(
            parts,
            headers=headers,
            ping=_PING_S,
            ping_message_factory=lambda: ServerSentEvent(comment="still here"),
            sep="\n",
            send_timeout=_TAKEN_S,
        )
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._follower.leave()


def _headers(request: Request) -> dict[str, str]:
    """Return a request's headers by their names in lower case; those that come twice as one, with a line's end between."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}{AGAIN}{value}" if name in found else value
    return found


async def _body(request: Request, kind: type[msgspec.Struct], within_s: float) -> msgspec.Struct:
    """Return what a request says, as a route takes it; nothing said is an empty object.

    Raises:
        NotJson, TooLarge, InvalidValue: it cannot be understood. TooSlow: it has not come in time.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise NotJson("what is sent is not said to be JSON; a page of another site cannot say so unasked")
    data = bytearray()
    with move_on_after(within_s) as patience:
        async for chunk in request.stream():
            data += chunk
            if len(data) > BODY_LIMIT:
                raise TooLarge(f"the body is too long limit={BODY_LIMIT} bytes")
    if patience.cancelled_caught:
        raise TooSlow(f"the body has not come in time limit={within_s:g} s so_far={len(data)} bytes")
    try:
        return msgspec.json.decode(bytes(data) or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidValue(f"the body is not understood: {error}") from error


def _place(request: Request) -> tuple[str, int]:
    """Return a request's path below where the app is mounted, and how many steps lead back from it, as a browser counts."""
    root = request.scope.get("root_path", "")
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    return request.scope["path"].removeprefix(root), raw.count(b"/") - root.count("/") - 1


def _response(reply: Reply, route: Route, began: datetime) -> Response:
    body = reply.body if isinstance(reply.body, bytes) else msgspec.json.encode(reply.body)
    return Response(body, reply.status, _headers_of(reply, route, began))


def _headers_of(reply: Reply, route: Route, began: datetime) -> dict[str, str]:
    through = format_time((reply.complete_through or began).astimezone(UTC)) if reply.is_complete_known else "unknown"
    kind = {} if reply.status == 304 else {"Content-Type": route.media_type}  # as it is: Starlette would add a charset
    return {**_HEADERS, "X-Complete-Through": through, **kind, **reply.headers}


def _refused(refusal: Refusal, began: datetime) -> Response:
    headers = {**_HEADERS, "X-Complete-Through": format_time(began), "Content-Type": JSON, **refusal.headers}
    return Response(msgspec.json.encode(refusal.problem), refusal.status, headers)
