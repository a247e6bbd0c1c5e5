"""The composition root of dispatch: which task queue of the user's a job's deliveries are asked of."""

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from jobevents.errors import Misconfigured
from jobevents.opening import extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobevents.jobs import Jobs
    from jobevents.tasks import Dispatch

SCHEME = "cloudtasks"
_EXAMPLE = (
    "cloudtasks://projects/PROJECT/locations/LOCATION/queues/QUEUE?url=https://HOST&service_account=NAME@PROJECT.iam..."
)
_TEXTS = ("url", "service_account", "audience")


def open_dispatch(url: str) -> "Dispatch":
    """Return what hands tasks to the queue behind a URL.

    `cloudtasks://projects/p/locations/l/queues/q?url=https://host&service_account=email`, with `&audience=` and `&deadline_s=`.

    Raises:
        Misconfigured: there is no such queue, or a package is missing.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - {*_TEXTS, "deadline_s"})
    if parts.scheme != SCHEME or unknown or not options.get("url") or not options.get("service_account"):
        raise Misconfigured(f"no task queue for this URL url={url!r}; write {_EXAMPLE}")
    more: dict[str, Any] = {name: options[name] for name in _TEXTS if name in options}  # Any: the options' types differ
    try:
        if "deadline_s" in options:
            more["deadline_s"] = float(options["deadline_s"])
    except ValueError as error:
        raise Misconfigured(f"no number of seconds deadline_s={options['deadline_s']!r}") from error
    with extra("tasks"):
        from jobevents.backends.cloudtasks import CloudTasksDispatch

    return CloudTasksDispatch(parts.netloc + parts.path, **more)


def attach(jobs: "Jobs", dispatch: "Dispatch | str") -> None:
    """Have the jobs that a task queue of the user's delivers handed to it, and looked for when they were lost.

    Raises:
        Misconfigured: as `open_dispatch`; or it is nothing that can be called.
    """
    from jobevents.dispatch import Dispatcher

    if isinstance(dispatch, str):
        dispatch = open_dispatch(dispatch)
        close: Callable[[], None] | None = getattr(dispatch, "close", None)
        if close is not None:
            jobs.at_close(close)
    if not callable(dispatch):
        raise Misconfigured(f"dispatch must be called with a Task, or be a URL value={dispatch!r:.80}")
    jobs.dispatcher = Dispatcher(jobs.emitter, jobs.runs, dispatch, jobs.counts, blobs=jobs.blobs, prefix=jobs.prefix)
    jobs.observe(jobs.dispatcher, close=jobs.dispatcher.close)
    jobs.dispatcher.start()
