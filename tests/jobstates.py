"""Jobs brought to any state of their life, through the log as a worker would."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from jobevents.emit import By, Emitter
from jobevents.events import (
    CancelRequested,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobRecorded,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
)
from jobevents.jobs import Jobs
from tests.clock import START

started = partial(JobStarted, attempt=1, worker="w1")

LIVES: dict[str, tuple[Any, ...]] = {
    "queued": (),
    "running": (started,),
    "running, cancel requested": (started, CancelRequested),
    "waiting for a retry": (
        started,
        partial(JobFailed, start=2, error="boom", retry_at=START + timedelta(hours=1)),
    ),
    "given back": (started, partial(JobRequeued, cause="shutdown", start=2)),
    "lost": (started, partial(JobRequeued, cause="lost", start=2)),
    "succeeded": (started, partial(JobSucceeded, start=2, result={"n": 1})),
    "failed": (started, partial(JobFailed, start=2, error="boom")),
    "canceled": (JobCanceled,),
    "skipped": (JobSkipped,),
    "paused": (partial(JobRecorded, state="paused"),),
    "deleted": (JobDeleted,),
}
"""What happened to a job since it was queued, by the name of the state it is in then."""

FINAL = ("succeeded", "failed", "canceled", "skipped")


def tell(jobs: Jobs, job_id: str, *drafts: Callable[..., Any]) -> None:
    """Append events as another process would, which this one's cache knows nothing of."""
    another(jobs).change(job_id, lambda _: drafts, By())


def another(jobs: Jobs) -> Emitter:
    """Return another writer of the same log, with a cache of its own."""
    return Emitter(jobs.log, clock=jobs.emitter.clock)


def other_jobs(jobs: Jobs, **options: Any) -> Jobs:
    """Return the jobs of another process on the same log, which end with the given ones."""
    given: dict[str, Any] = {
        "runs": jobs.runs,
        "run_logs": jobs.run_logs,
        "blobs": jobs.blobs,
        "leases": jobs.presence.leases,
        "desk": jobs.desk,
        **options,
    }
    other = Jobs(another(jobs), **given)
    jobs.at_close(other.presence.close)
    return other


def bring(jobs: Jobs, life: str, **submission: Any) -> str:
    """Submit a job, let it live until it is in a state, and return its id; `unknown` is an id that no job has."""
    if life == "unknown":
        return "no-such-job"
    job_id = jobs.submit("render", **submission)
    if LIVES[life]:
        tell(jobs, job_id, *LIVES[life])
    return job_id
