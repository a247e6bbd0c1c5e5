"""Dispatch by Google Cloud Tasks: each task is an HTTP request to the push endpoint, made once for a job and what had it wait.

There is no emulator of Cloud Tasks: this was tested with the real client library against a stand-in of its gRPC API that
checks each request by the published rules, never against the service itself.
"""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import google.auth.exceptions
import grpc
import msgspec
from google.api_core import exceptions as api_errors
from google.cloud.tasks_v2 import CloudTasksClient, types
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from jobevents import errors
from jobevents.tasks import Task

EMULATOR = "CLOUD_TASKS_EMULATOR_HOST"  # host:port of what speaks the API without credentials
FURTHEST = timedelta(days=29)  # Cloud Tasks: a schedule of at most 30 days ahead
TIMEOUT_S = 5.0  # of the request, in the thread that submits
DEADLINE_S = 600.0  # how long Cloud Tasks waits for the answer: its default
SHORTEST_S, LONGEST_S = 15.0, 1800.0  # Cloud Tasks: for HTTP targets

_is_queue = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/queues/[A-Za-z0-9-]{1,100}").fullmatch


class CloudTasksDispatch:
    """A `dispatch=` of `connect`. Safe for threads and over forks: every process makes its connection when it needs it.

    One request a task. A task has the name of its job and of the event that had it wait: made again, it is there already,
    which Cloud Tasks remembers for an hour after the task was done or dropped, and after that makes it anew. A job that is due in
    more than 29 days gets no task until the pass over what waits finds it due, at most a minute and a quarter late.

    Needs `roles/cloudtasks.enqueuer` on the queue and `roles/iam.serviceAccountUser` on the service account.
    """

    def __init__(
        self,
        queue: str,
        url: str,
        service_account: str,
        *,
        audience: str = "",
        deadline_s: float = DEADLINE_S,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Connect to nothing yet.

        Args:
            queue: `projects/{project}/locations/{location}/queues/{queue}`.
            url: where the push endpoint is; a task goes to `{url}/tasks/{job}`.
            service_account: email of the account that the task's OIDC token is of.
            audience: of that token; by default the scheme and host of `url`, as Cloud Run has it.
            deadline_s: how long the endpoint may take to answer, 15 s to half an hour: more than a job's timeout.
            timeout_s: of the request that makes a task.

        Raises:
            Misconfigured: one of them cannot be.
        """
        parts = urlsplit(url)
        if not _is_queue(queue):
            raise errors.Misconfigured(
                f"no queue queue={queue!r}; write projects/PROJECT/locations/LOCATION/queues/QUEUE"
            )
        if parts.scheme not in ("https", "http") or not parts.netloc or parts.query or parts.fragment:
            raise errors.Misconfigured(f"no address url={url!r}; write https://host, to which /tasks/JOB is added")
        if "@" not in service_account:
            raise errors.Misconfigured(f"no service account service_account={service_account!r}; write its email")
        if not SHORTEST_S <= deadline_s <= LONGEST_S:
            raise errors.Misconfigured(f"deadline_s must be {SHORTEST_S:g} to {LONGEST_S:g} value={deadline_s!r}")
        self.queue = queue
        self._url = url.rstrip("/")
        self._service_account = service_account
        self._audience = audience or f"{parts.scheme}://{parts.netloc}"
        self._deadline_s = deadline_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._clients: dict[int, Any] = {}  # by process id; the library's client

    def __call__(self, task: Task) -> None:
        """Make the task; nothing when it is there already.

        Raises:
            Misconfigured: there is no such queue. PermissionDenied: these credentials may not.
            InvalidValue: Cloud Tasks will never take it. Unavailable: try again.
        """
        if task.due - self._clock() > FURTHEST:
            return
        request = types.CreateTaskRequest(parent=self.queue, task=self._made(task))
        try:
            self._client().create_task(request=request, retry=None, timeout=self._timeout_s)
        except api_errors.AlreadyExists:
            return
        except _FAILURES as error:
            raise _translated(error, f"cannot make a task queue={self.queue} job_id={task.job_id}") from error

    def close(self) -> None:
        """Close the connection of this process."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.transport.close()

    def _made(self, task: Task) -> types.Task:
        body = {"job": task.job_id, "version": task.version, "name": task.name}
        made = types.Task(
            name=f"{self.queue}/tasks/{task_id(task)}",
            http_request=types.HttpRequest(
                url=f"{self._url}/tasks/{task.job_id}",
                http_method=types.HttpMethod.POST,
                headers={"Content-Type": "application/json"},
                body=msgspec.json.encode(body),
                oidc_token=types.OidcToken(service_account_email=self._service_account, audience=self._audience),
            ),
            dispatch_deadline=Duration(seconds=int(self._deadline_s)),
        )
        if task.due > self._clock():
            schedule = Timestamp()
            schedule.FromDatetime(task.due.astimezone(UTC))
            made.schedule_time = schedule
        return made

    def _client(self) -> Any:  # the library's client
        pid = os.getpid()
        return self._clients.get(pid) or self._clients.setdefault(pid, _open())


def task_id(task: Task) -> str:
    """Return a task's id: a hash first, as ids that follow each other slow Cloud Tasks down."""
    return f"{blake2b(task.job_id.encode(), digest_size=4).hexdigest()}-{task.job_id}-{task.version}"


_FAILURES = (
    api_errors.GoogleAPICallError,
    api_errors.RetryError,
    google.auth.exceptions.GoogleAuthError,
    grpc.RpcError,
)
_DENIED = (api_errors.Forbidden, api_errors.Unauthorized, google.auth.exceptions.RefreshError)


def _open() -> Any:  # the library's client
    host = os.environ.get(EMULATOR)
    try:
        if host:
            return CloudTasksClient(transport=CloudTasksGrpcTransport(channel=grpc.insecure_channel(host)))
        return CloudTasksClient()
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise errors.Misconfigured(
            f"no credentials for Cloud Tasks: {error}; set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error


def _translated(error: Exception, what: str) -> errors.JobEventsError:
    if isinstance(error, api_errors.NotFound):
        return errors.Misconfigured(f"{what}: there is no such queue; create it or name another cause={error.message}")
    if isinstance(error, _DENIED):
        return errors.PermissionDenied(
            f"{what}: grant roles/cloudtasks.enqueuer and, on the service account, "
            f"roles/iam.serviceAccountUser cause={error}"
        )
    if isinstance(error, api_errors.InvalidArgument):
        return errors.InvalidValue(f"{what} cause={error.message}")
    return errors.Unavailable(f"{what} cause={error}")
