"""A stand-in for Cloud Tasks: a gRPC server that takes tasks from the real client library, and refuses what the service would.

What it checks is what the service's documentation says of CreateTask; what it delivers, `deliver` says.
"""

import random
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.cloud.tasks_v2 import types

_is_id = re.compile(r"[A-Za-z0-9_-]{1,500}").fullmatch
_MONTH_S = 30 * 86400


class CloudTasksServer:
    """Queues in memory, which begin empty. The attributes are the faults; `reset` takes them all away."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="cloudtasks-server")
        self._changed = threading.Condition()
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._create,
            request_deserializer=types.CreateTaskRequest.pb().FromString,
            response_serializer=types.Task.pb().SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("google.cloud.tasks.v2.CloudTasks", {"CreateTask": handler})
        self._server.add_generic_rpc_handlers((service,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.reset()

    @property
    def host(self) -> str:
        """What CLOUD_TASKS_EMULATOR_HOST is to say."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End for good."""
        self._server.stop(0).wait(10)
        self._pool.shutdown()

    def reset(self) -> None:
        """Forget everything, faults included."""
        with self._changed:
            self.queues: set[str] = set()
            self.tasks: dict[str, Any] = {}  # by name, those that wait
            self.done: set[str] = set()  # names that cannot be used again for an hour
            self.calls: Counter[str] = Counter()  # by the code that they were answered with
            self.fail: Callable[[], grpc.StatusCode | None] = lambda: None
            self.lose_reply: Callable[[], bool] = lambda: False  # made, and not known to be

    def forget_names(self) -> None:
        """Let an hour go by."""
        with self._changed:
            self.done.clear()

    def _create(self, request: Any, context: grpc.ServicerContext) -> Any:
        code, why = self._answer(request, context)
        self.calls[code.name] += 1
        if code is not grpc.StatusCode.OK:
            context.abort(code, why)
        return request.task

    def _answer(self, request: Any, context: grpc.ServicerContext) -> tuple[grpc.StatusCode, str]:
        if code := self.fail():
            return code, "fails as told"
        if why := _wrong(request, context):
            return grpc.StatusCode.INVALID_ARGUMENT, why
        with self._changed:
            if request.parent not in self.queues:
                return grpc.StatusCode.NOT_FOUND, "Queue does not exist."
            name = request.task.name
            if name in self.tasks or name in self.done:
                return (
                    grpc.StatusCode.ALREADY_EXISTS,
                    "a task with this name existed too recently",
                )
            self.tasks[name] = request.task
            self._changed.notify_all()
        if self.lose_reply():
            return grpc.StatusCode.UNAVAILABLE, "the reply is lost as told"
        return grpc.StatusCode.OK, ""

    def deliver(
        self,
        send: Callable[[Any], int],
        *,
        until: Callable[[], bool],
        rng: random.Random,
        twice: float = 0.0,
        threads: int = 8,
        patience_s: float = 60.0,
    ) -> Counter[int]:
        """Deliver what is due, again until it is answered by 2xx, and count the answers.

        Args:
            send: makes the request of a task, and returns its status; 0 for a connection that broke.
            until: when to end.
            twice: the share of tasks that come two times at once.
        """
        answers: Counter[int] = Counter()
        under_way: set[str] = set()
        waits: dict[str, tuple[float, float]] = {}  # name -> not before, and how long it waited for that
        end = time.monotonic() + patience_s

        def attempt(task: Any, *, is_copy: bool) -> None:
            status = send(task)
            with self._changed:
                answers[status] += 1
                if not is_copy:
                    under_way.discard(task.name)
                if 200 <= status < 300 and self.tasks.pop(task.name, None) is not None:
                    self.done.add(task.name)
                wait_s = min(1.0, 2 * waits.get(task.name, (0.0, 0.05))[1])  # the service's first: 0.1 s
                waits[task.name] = time.monotonic() + wait_s, wait_s
                self._changed.notify_all()

        with ThreadPoolExecutor(threads) as pool:
            while not until():
                assert time.monotonic() < end, f"not all was delivered {answers} {len(self.tasks)}"
                with self._changed:
                    now = time.monotonic()
                    due = [
                        task
                        for name, task in self.tasks.items()
                        if name not in under_way and waits.get(name, (0.0, 0.0))[0] <= now and _is_due(task)
                    ]
                    due = due[: max(0, 2 * threads - len(under_way))]
                    under_way |= {task.name for task in due}
                for task in due:
                    if rng.random() < twice:
                        pool.submit(attempt, task, is_copy=True)
                    pool.submit(attempt, task, is_copy=False)
                if not due:
                    with self._changed:
                        self._changed.wait(0.02)
        return answers


def post(task: Any, token: str = "", *, timeout_s: float = 30.0) -> int:
    """Make a task's request, with the token that the service would make; return its status, 0 for a broken connection."""
    request = urllib.request.Request(task.http_request.url, data=task.http_request.body, method="POST")
    for name, value in task.http_request.headers.items():
        request.add_header(name, value)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("X-CloudTasks-TaskName", task.name.rpartition("/")[2])
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)
    except OSError:
        return 0


def _is_due(task: Any) -> bool:
    return not task.HasField("schedule_time") or task.schedule_time.ToDatetime().timestamp() <= time.time()


def _wrong(request: Any, context: grpc.ServicerContext) -> str:
    """Return what the service would refuse a request for; "" for nothing."""
    task = request.task
    http = task.http_request
    queue, _, task_id = task.name.partition("/tasks/")
    routed = dict(context.invocation_metadata()).get("x-goog-request-params", "")
    seconds = task.dispatch_deadline.seconds
    ahead_s = task.schedule_time.seconds - time.time() if task.HasField("schedule_time") else 0.0
    checks = {
        "Task name must be below its queue": queue == request.parent,
        "Task ID must match [A-Za-z0-9_-]{1,500}": bool(_is_id(task_id)),
        "HttpRequest.url must start with http:// or https://": http.url.startswith(("http://", "https://")),
        "HttpRequest.http_method": http.http_method == types.HttpMethod.POST,
        "OidcToken.service_account_email must be set": "@" in http.oidc_token.service_account_email,
        "Task size too large": task.ByteSize() <= 100 * 1024,
        "dispatch_deadline must be 15s to 30m": not seconds or 15 <= seconds <= 1800,
        "schedule_time too far in the future": ahead_s <= _MONTH_S,
        "no routing header": "parent=" in routed,
    }
    return next((what for what, holds in checks.items() if not holds), "")
