"""The push endpoint: who may deliver, what is run, and who is told to come again."""

import base64
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx
import pytest

from jobevents import errors
from jobevents.context import JobContext
from jobevents.events import JobRequeued, JobStarted
from jobevents.jobs import Jobs
from jobevents.oidc import REFETCH_S, STALE_S, TokenCheck
from jobevents.push import BODY_LIMIT, Answer, PushApp, PushEndpoint, create_push_app
from jobevents.registry import Registry
from jobevents.tasks import Task
from jobevents.wiring import connect
from tests.clock import Clock
from tests.tokens import ACCOUNT, AUDIENCE, Issuer


@pytest.fixture(scope="module")
def google() -> Issuer:
    """Who signs tokens; making a key takes a while."""
    return Issuer()


@pytest.fixture(params=["memory://", "memory://?log=blobs"])
def pushed(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Jobs over a log with rows, and over one of blobs; without a dispatch."""
    with connect(str(request.param)) as made:
        yield made


class Service:
    """A push endpoint with handlers, called as Cloud Tasks would."""

    def __init__(self, jobs: Jobs, google: Issuer, **options: Any) -> None:
        self.registry = Registry()
        self.ran: list[str] = []
        self.registry.job("render", timeout=None)(self._render)
        self._google = google
        self._jobs = jobs
        self._options = options
        self._endpoint: PushEndpoint | None = None

    @property
    def endpoint(self) -> PushEndpoint:
        """Made when first asked for, with the handlers registered until then."""
        self._endpoint = self._endpoint or PushEndpoint(
            self._jobs,
            self.registry,
            audience=AUDIENCE,
            accounts=ACCOUNT,
            fetch_keys=self._google.fetch,
            **self._options,
        )
        return self._endpoint

    def _render(self, ctx: JobContext[Any]) -> dict[str, str]:
        self.ran.append(ctx.job_id)
        return {"did": ctx.job_id}

    def deliver(self, job_id: str, body: Any = None, token: str | None = None) -> Answer:
        """Deliver a job with a good token."""
        given = self._google.token() if token is None else token
        said = json.dumps({"job": job_id} if body is None else body).encode()
        return self.endpoint.handle({"Authorization": f"Bearer {given}"}, said, job_id=job_id)

    def close(self) -> None:
        """Stop."""
        if self._endpoint is not None:
            self._endpoint.close()


@pytest.fixture
def service(pushed: Jobs, google: Issuer) -> Iterator[Service]:
    """The endpoint over each log."""
    made = Service(pushed, google)
    yield made
    made.close()


def outcome(answer: Answer) -> tuple[int, str, str]:
    """Return status, outcome and state."""
    said = json.loads(answer.body)
    return answer.status, said["outcome"], said.get("state", "")


# what is run


def test_a_delivery_runs_the_handler(pushed: Jobs, service: Service) -> None:
    """In a guarded attempt, with the job's params; the answer says what it came to."""
    job_id = pushed.submit("render", {"song": 7}, external=True)

    answer = service.deliver(job_id)

    assert (200, "succeeded", "succeeded") == outcome(answer)
    assert {"did": job_id} == pushed.job(job_id).result
    assert {"job": job_id, "outcome": "succeeded", "state": "succeeded"} == json.loads(answer.body)
    assert "application/json" == answer.headers["Content-Type"]


def test_del_04_a_lost_answer_brings_it_again_and_nothing_runs(pushed: Jobs, service: Service) -> None:
    """DEL-04: the job has succeeded; the delivery is settled, attempts and times are as they were."""
    job_id = pushed.submit("render", external=True)
    service.deliver(job_id)
    before = pushed.job(job_id)

    again = [outcome(service.deliver(job_id)) for _ in range(3)]

    assert [(200, "already done", "succeeded")] * 3 == again
    assert [job_id] == service.ran
    assert before == pushed.job(job_id)


def test_del_06_a_cancelled_job_is_settled(pushed: Jobs, service: Service) -> None:
    """DEL-06: 2xx and a body that says so; also for a job that was deleted, and one that has failed."""
    canceled, deleted, failed = (pushed.submit("render", external=True) for _ in range(3))
    pushed.cancel(canceled)
    pushed.delete(deleted)
    pushed.fail(failed, "no")

    answers = [outcome(service.deliver(job_id)) for job_id in (canceled, deleted, failed)]

    assert [
        (200, "it was canceled", "canceled"),
        (200, "it was deleted", "deleted"),
        (200, "already done", "failed"),
    ] == answers
    assert [] == service.ran


def test_a_job_that_runs_is_to_come_again(pushed: Jobs, service: Service, gate: Any) -> None:
    """Its worker may die yet: only its end settles a delivery."""
    service.registry.job("slow", timeout=None)(gate)
    job_id = pushed.submit("slow", external=True)
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(service.deliver(job_id)))
    first.start()
    gate.wait_until_entered()

    second = service.deliver(job_id)
    gate.opened.set()
    first.join(20)

    assert (503, "it runs already", "running") == outcome(second)
    assert second.retry_after_s > 0
    assert (200, "succeeded", "succeeded") == outcome(answers[0])
    assert 1 == len([one for one in pushed.history(job_id) if isinstance(one, JobStarted)])


@pytest.mark.parametrize("has_dispatch", [False, True])
def test_a_failure_with_a_try_left_comes_again(google: Issuer, has_dispatch: bool, clock: Clock) -> None:
    """By a task of its own where there is a dispatch; else by the same delivery."""
    tasks: list[Task] = []
    with connect("memory://", dispatch=tasks.append if has_dispatch else None, clock=clock) as jobs:
        service = Service(jobs, google)

        @service.registry.job("shaky", max_attempts=2, backoff=lambda attempt, job_id: 30.0)
        def shaky(ctx: JobContext[Any]) -> None:
            if ctx.attempt == 1:
                raise OSError("shaky")

        job_id = jobs.submit("shaky", external=True, max_attempts=2)
        first = service.deliver(job_id)
        early = service.deliver(job_id)
        clock.move(31)
        second = service.deliver(job_id)
        service.close()

    expected = (
        (200, "it waits for its next task", "queued") if has_dispatch else (503, "it waits for its time", "queued")
    )
    assert [expected] * 2 == [outcome(first), outcome(early)]
    assert (200, "succeeded", "succeeded") == outcome(second)
    assert ([1, 3] if has_dispatch else []) == [task.version for task in tasks]
    assert (0 if has_dispatch else 30) == first.retry_after_s


def test_a_delivery_a_little_early_comes_again(google: Issuer, clock: Clock) -> None:
    """Two clocks differ: its task is not dropped for that."""
    with connect("memory://", dispatch=lambda _: None, clock=clock) as jobs:
        service = Service(jobs, google)
        job_id = jobs.submit("render", external=True, delay=2)

        early = service.deliver(job_id)
        clock.move(2)

        assert (503, "it waits for its time", "queued") == outcome(early)
        assert 2 == early.retry_after_s
        assert 200 == service.deliver(job_id).status
        service.close()


def test_the_last_failure_settles_it(pushed: Jobs, service: Service) -> None:
    """No retry cures what has no try left."""

    @service.registry.job("broken")
    def broken(ctx: JobContext[Any]) -> None:
        raise OSError("no")

    job_id = pushed.submit("broken", external=True)

    assert (200, "failed", "failed") == outcome(service.deliver(job_id))
    assert (200, "already done", "failed") == outcome(service.deliver(job_id))


def test_what_another_version_may_know_comes_again(pushed: Jobs, service: Service) -> None:
    """A kind of job that is not registered here, and a job that is not in the log yet."""
    unknown = pushed.submit("new-kind", external=True)

    answers = [outcome(service.deliver(job_id)) for job_id in (unknown, "render-not-there")]

    assert [
        (503, "no job of this name is registered here name=new-kind", "queued"),
        (503, "there is no such job yet", ""),
    ] == answers


def test_a_log_that_is_away_has_it_come_again(pushed: Jobs, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is run."""
    job_id = pushed.submit("render", external=True)

    def down(*args: Any, **kwargs: Any) -> Any:
        raise errors.Unavailable("the log is away")

    with monkeypatch.context() as patch:
        patch.setattr(pushed.log, "append", down)
        away = service.deliver(job_id)

    assert (503, "the log could not be read or written: the log is away", "") == outcome(away)
    assert [] == service.ran
    assert 200 == service.deliver(job_id).status


def test_a_handler_that_takes_too_long_has_failed(pushed: Jobs, service: Service, gate: Any) -> None:
    """It is asked to stop at its deadline; one that does not stop is given up, and the answer does not wait for it."""
    service.registry.job("stuck", timeout=0.2, stop_grace=0.1)(gate)
    job_id = pushed.submit("stuck", external=True)
    began = time.monotonic()

    answer = service.deliver(job_id)

    assert (200, "failed", "failed") == outcome(answer)
    assert time.monotonic() - began < 10
    assert "did not stop within 0.1 s" in pushed.job(job_id).error
    gate.opened.set()


def test_a_stop_gives_back_what_runs(pushed: Jobs, google: Issuer, gate: Any) -> None:
    """SHD: the try is not counted, the delivery comes again, and no other is taken."""
    service = Service(pushed, google, grace_s=0.05, stop_grace_s=0.05)
    service.registry.job("slow", timeout=None)(gate)
    job_id = pushed.submit("slow", external=True)
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(service.deliver(job_id)))
    first.start()
    gate.wait_until_entered()

    service.close()
    first.join(20)
    late = service.deliver(pushed.submit("render", external=True))
    gate.opened.set()

    last = pushed.history(job_id)[-1]
    assert isinstance(last, JobRequeued)
    assert ("shutdown", 0) == (last.cause, pushed.job(job_id).tries)
    assert [503, 503] == [answers[0].status, late.status]


@pytest.mark.parametrize("what", [{"job": "render"}, {"queue": "songs"}])
def test_what_is_paused_comes_again(google: Issuer, what: dict[str, str]) -> None:
    """As long as it is: nothing is begun, and the task is not dropped."""
    with connect("memory://") as jobs:
        service = Service(jobs, google)
        job_id = jobs.submit("render", external=True, queue="songs")
        jobs.pause(**what)

        paused = service.deliver(job_id)
        jobs.resume(**what)

        assert (503, "its kind or its queue is paused", "queued") == outcome(paused)
        assert [] == service.ran
        assert 200 == service.deliver(job_id).status
        service.close()


def test_no_more_run_than_may(pushed: Jobs, google: Issuer, gate: Any) -> None:
    """What comes beyond that comes again."""
    service = Service(pushed, google, most=1)
    service.registry.job("slow", timeout=None)(gate)
    running, other = pushed.submit("slow", external=True), pushed.submit("render", external=True)
    first = threading.Thread(target=lambda: service.deliver(running))
    first.start()
    gate.wait_until_entered()

    full = service.deliver(other)
    gate.opened.set()
    first.join(20)

    assert (503, "as much runs here as may", "queued") == outcome(full)
    assert 200 == service.deliver(other).status
    service.close()


def test_a_limit_has_it_come_again(google: Issuer, gate: Any) -> None:
    """As many of a kind run as may at once, anywhere."""
    with connect("memory://") as jobs:
        service = Service(jobs, google)
        service.registry.job("slow", timeout=None, max_concurrent=1)(gate)
        first, second = jobs.submit("slow", external=True), jobs.submit("slow", external=True)
        thread = threading.Thread(target=lambda: service.deliver(first))
        thread.start()
        gate.wait_until_entered()

        busy = service.deliver(second)
        gate.opened.set()
        thread.join(20)

        assert (503, "as many run as may at once", "queued") == outcome(busy)
        assert 200 == service.deliver(second).status
        service.close()


def test_a_coroutine_is_run_as_well(pushed: Jobs, service: Service) -> None:
    """As the runner does."""

    @service.registry.job("async")
    async def handler(ctx: Any) -> int:
        await anyio.sleep(0)
        return 7

    job_id = pushed.submit("async", external=True)

    assert 200 == service.deliver(job_id).status
    assert 7 == pushed.job(job_id).result


# what names the job


def envelope(attributes: dict[str, str], data: bytes = b"") -> dict[str, Any]:
    """Return the body of a Pub/Sub push."""
    message = {"attributes": attributes, "data": base64.b64encode(data).decode(), "messageId": "1"}
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


@pytest.mark.parametrize(
    "body",
    [
        lambda job_id: {"job": job_id, "version": 1, "name": "render"},
        lambda job_id: envelope({"job": job_id}),
        lambda job_id: envelope({}, json.dumps({"job": job_id}).encode()),
        lambda job_id: envelope({"job": job_id, "n": "1", "type": "JobQueued", "id": "x"}, b"{}"),
    ],
)
def test_each_body_names_its_job(pushed: Jobs, service: Service, body: Callable[[str], Any]) -> None:
    """Ours, and those of Pub/Sub: by an attribute, by its data, or as a notice of an event."""
    job_id = pushed.submit("render", external=True)
    said = json.dumps(body(job_id)).encode()
    headers = [("authorization", f"bearer {service._google.token()}")]

    answer = service.endpoint.handle(headers, said)

    assert (200, "succeeded", "succeeded") == outcome(answer)


def test_a_notice_of_another_event_begins_nothing(pushed: Jobs, service: Service) -> None:
    """A push subscription to the topic of all events: those after which nothing waits, and the jobs of our own queue."""
    ours, theirs = pushed.submit("render"), pushed.submit("render", external=True)

    started = service.deliver(theirs, envelope({"job": theirs, "type": "JobAnnotated"}))
    own = service.deliver(ours, envelope({"job": ours, "type": "JobQueued"}))

    assert [
        (200, "nothing begins after this event", ""),
        (200, "it is handed out by the log's own queue", "queued"),
    ] == [
        outcome(started),
        outcome(own),
    ]
    assert [] == service.ran


@pytest.mark.parametrize(
    ("body", "job_id", "status", "says"),
    [
        (b"{", "render-1", 400, "the body is no JSON object"),
        (b"[" * 100_000, "render-1", 400, "the body is no JSON object"),
        (b"\xff\xfe", "render-1", 400, "the body is no JSON object"),
        (b"{}", "", 400, "the request names no job"),
        (b"", "", 400, "the request names no job"),
        (b'{"job":"other"}', "render-1", 400, "the request names two jobs"),
        (b"{}", "../../etc/passwd", 400, "no job can have this id"),
        (b'{"message":{"data":"!"}}', "", 400, "the message names no job"),
        (b'{"message":{"data":"e30="}}', "", 400, "the request names no job"),
        (b'{"job":7}', "render-1", 400, "the body is no JSON object"),
        (b" " * (BODY_LIMIT + 1), "render-1", 413, "the body has over"),
    ],
)
def test_a_request_that_is_none_is_refused(service: Service, body: bytes, job_id: str, status: int, says: str) -> None:
    """By 4xx: no other try would cure it."""
    answer = service.endpoint.handle({"Authorization": f"Bearer {service._google.token()}"}, body, job_id=job_id)

    assert status == answer.status
    assert outcome(answer)[1].startswith(says)


def test_headers_have_a_limit(service: Service) -> None:
    """Before anything is read of them."""
    headers = {"Authorization": f"Bearer {service._google.token()}", "X-Much": "x" * 40_000}

    assert 431 == service.endpoint.handle(headers, b"{}", job_id="render-1").status


# who may


@pytest.mark.parametrize(
    "forge",
    [
        lambda google: "",
        lambda google: "x",
        lambda google: "a.b.c",
        lambda google: "x" * 9000,
        lambda google: google.token(aud="https://other.example"),
        lambda google: google.token(aud=None),
        lambda google: google.token(age_s=7200),
        lambda google: google.token(age_s=-600),
        lambda google: google.token(exp=None),
        lambda google: google.token(exp="soon"),
        lambda google: google.token(iss="https://evil.example"),
        lambda google: google.token(email="other@p.iam.gserviceaccount.com"),
        lambda google: google.token(email=None),
        lambda google: google.token(email=[ACCOUNT]),
        lambda google: google.token(email={ACCOUNT: 1}),
        lambda google: google.token(exp=math.inf),
        lambda google: google.token(exp=math.nan),
        lambda google: google.token(exp=1e300),
        lambda google: google.token(exp=10**400),
        lambda google: google.token(iat=-math.inf),
        lambda google: google.token(iss=["https://accounts.google.com"]),
        lambda google: google.token(aud={AUDIENCE: 1}),
        lambda google: google.token(email_verified=False),
        lambda google: google.token().rpartition(".")[0] + ".",
        lambda google: google.token()[:-8] + "AAAAAAAA",
        lambda google: _unsigned(google),
        lambda google: _other_payload(google),
    ],
    ids=[
        *("none", "word", "dots", "long", "audience", "no-audience", "expired", "early", "endless", "when", "issuer"),
        *(
            "account",
            "nobody",
            "emails",
            "email-dict",
            "infinite",
            "nan",
            "1e300",
            "10**400",
            "since-ever",
            "issuers",
            "audiences",
        ),
        *("unverified", "cut", "broken", "unsigned", "swapped"),
    ],
)
def test_a_token_that_is_not_good_runs_nothing(
    pushed: Jobs, service: Service, google: Issuer, forge: Callable[[Issuer], str]
) -> None:
    """Wrong audience, expired, unsigned, of another account, changed: 401, and the job waits as before."""
    job_id = pushed.submit("render", external=True)

    answer = service.deliver(job_id, token=forge(google))

    assert 401 == answer.status
    assert "Bearer" == answer.headers["WWW-Authenticate"]
    assert ([], "queued", 1) == (service.ran, pushed.job(job_id).state, pushed.job(job_id).version)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unsigned(google: Issuer) -> str:
    payload = google.token().split(".")[1]
    return f"{_part({'alg': 'none', 'typ': 'JWT', 'kid': google.key_id})}.{payload}."


def _other_payload(google: Issuer) -> str:
    head, payload, signature = google.token(email="evil@example.com").split(".")
    said = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{head}.{_part({**said, 'email': ACCOUNT})}.{signature}"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}])
def test_without_a_token_nothing_is_run(service: Service, headers: dict[str, str]) -> None:
    """Nor with anything else."""
    assert 401 == service.endpoint.handle(headers, b"{}", job_id="render-1").status


def test_of_two_tokens_none_counts(service: Service) -> None:
    """Who checks the one and who reads the other might be two."""
    header = ("authorization", f"Bearer {service._google.token()}")

    assert 401 == service.endpoint.handle([header, header], b"{}", job_id="render-1").status


def test_a_new_key_is_fetched_and_an_old_one_is_not_good_any_more(clock: Clock) -> None:
    """Keys rotate: a token of the new one is taken at once, one of a key that was withdrawn is refused."""
    google = Issuer()
    check = TokenCheck(AUDIENCE, ACCOUNT, fetch_keys=google.fetch, monotonic=clock.monotonic)
    old = google.token()
    check(old)
    check(old)
    google.rotate("two")
    clock.move(REFETCH_S)

    claims = check(google.token())

    assert (ACCOUNT, 2) == (claims["email"], google.fetched)
    clock.move(REFETCH_S)
    with pytest.raises(errors.PermissionDenied, match="key id one not found"):
        check(old)
    assert 3 == google.fetched


def test_unknown_keys_do_not_have_us_fetch_all_the_time(google: Issuer, clock: Clock) -> None:
    """One fetch in ten seconds; until the next it cannot be known, which is a 503."""
    other = Issuer()
    other.rotate("unknown")
    check = TokenCheck(AUDIENCE, ACCOUNT, fetch_keys=google.fetch, monotonic=clock.monotonic)
    before = google.fetched
    with pytest.raises(errors.PermissionDenied):
        check(other.token())
    clock.move(1)

    for _ in range(5):
        with pytest.raises(errors.Unavailable, match="try again"):
            check(other.token())

    assert 1 == google.fetched - before


def test_keys_that_cannot_be_fetched_are_no_refusal(pushed: Jobs, clock: Clock) -> None:
    """The last ones are used for a day; without any it is a 503, as another try may find them."""
    google = Issuer()
    google.is_away = True
    check = TokenCheck(AUDIENCE, ACCOUNT, fetch_keys=google.fetch, monotonic=clock.monotonic)
    endpoint = PushEndpoint(pushed, Registry(), check=check)
    headers = {"Authorization": f"Bearer {google.token()}"}

    blind = endpoint.handle(headers, b"{}", job_id="render-1")
    google.is_away = False
    clock.move(REFETCH_S)
    check(google.token())
    google.is_away = True
    clock.move(STALE_S - 1)
    check(google.token())
    clock.move(REFETCH_S)

    assert (503, 5) == (blind.status, blind.retry_after_s)
    with pytest.raises(errors.Unavailable):
        check(google.token())


def test_an_open_endpoint_is_refused() -> None:
    """Without an audience or an account anybody could call it."""
    with connect("memory://") as jobs:
        for options in ({}, {"audience": AUDIENCE}, {"accounts": ACCOUNT}, {"audience": "", "accounts": [""]}):
            with pytest.raises(errors.Misconfigured, match="anybody on the internet"):
                create_push_app(jobs, Registry(), **options)  # type: ignore[arg-type]


# the app


@pytest.fixture
def app(pushed: Jobs, service: Service) -> Iterator[httpx.Client]:
    """The ASGI app, called in this process."""
    made = create_push_app(
        pushed, service.registry, audience=AUDIENCE, accounts=ACCOUNT, fetch_keys=service._google.fetch
    )
    with Client(made) as client:
        yield client
    made.endpoint.close()


class Client(httpx.Client):
    """Calls an ASGI app from a thread without a loop."""

    def __init__(self, app: PushApp) -> None:
        super().__init__(transport=_Transport(app), base_url="http://jobs.example")


class _Transport(httpx.BaseTransport):
    def __init__(self, app: PushApp) -> None:
        self._inner = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # its types are narrower than ASGI's

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def call() -> httpx.Response:
            sent = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            response = await self._inner.handle_async_request(sent)
            return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())

        return anyio.run(call)


def test_the_app_takes_deliveries(pushed: Jobs, service: Service, app: httpx.Client) -> None:
    """POST /tasks/{job}, and POST /tasks for a push subscription, whose address is one for all."""
    one, two = pushed.submit("render", external=True), pushed.submit("render", external=True)
    bearer = {"Authorization": f"Bearer {service._google.token()}"}

    first = app.post(f"/tasks/{one}", headers=bearer, json={"job": one})
    second = app.post("/tasks", headers=bearer, json=envelope({"job": two}))

    assert [200, 200] == [first.status_code, second.status_code]
    assert {"job": one, "outcome": "succeeded", "state": "succeeded"} == first.json()
    assert [one, two] == service.ran


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/", 404),
        ("POST", "/jobs/render-1", 404),
        ("POST", "/sweep/x", 404),
        ("GET", "/tasks/render-1", 405),
        ("POST", "/tasks/render-1", 401),
        ("POST", "/sweep", 401),
    ],
)
def test_the_app_has_no_other_doors(app: httpx.Client, method: str, path: str, status: int) -> None:
    """And those that it has are locked, but for the sign of life."""
    assert status == app.request(method, path).status_code


def test_the_app_reads_no_more_than_it_takes(app: httpx.Client) -> None:
    """A body over the limit is not held."""
    assert 413 == app.post("/tasks/render-1", content=b"x" * (BODY_LIMIT + 1)).status_code


def test_a_schedule_has_the_passes_made(google: Issuer, clock: Clock) -> None:
    """For a service that sleeps while nothing comes: lost jobs are given back and handed over."""
    tasks: list[Task] = []
    with connect("memory://", clock=clock) as lost:
        job_id = lost.submit("render", external=True)
        lost.attempt(job_id, deadline_s=5).__enter__()
        from jobevents.wiring_dispatch import attach

        attach(lost, tasks.append)
        clock.move(3600)
        endpoint = PushEndpoint(lost, Registry(), audience=AUDIENCE, accounts=ACCOUNT, fetch_keys=google.fetch)

        answer = endpoint.sweep({"Authorization": f"Bearer {google.token()}"})

        assert 200 == answer.status
        assert 1 == json.loads(answer.body)["reaped"]["requeued"]
        assert [(job_id, 3)] == [(task.job_id, task.version) for task in tasks]


def test_the_server_s_end_closes_the_endpoint(pushed: Jobs, service: Service) -> None:
    """By ASGI's lifespan: what comes later is to come again."""
    app = create_push_app(pushed, service.registry, check=lambda token: None)
    job_id = pushed.submit("render", external=True)

    async def live() -> list[str]:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        sent: list[str] = []

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        return sent

    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == anyio.run(live)
    assert 503 == app.endpoint.handle({"Authorization": "Bearer x"}, b"", job_id=job_id).status
