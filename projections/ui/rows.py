"""A job as a row of a list, from all that is known of it, or from its status alone. Pure."""

from datetime import datetime

import msgspec

from jobevents.job import RUNNING, Job
from jobevents.status import Status
from projections.ui.words import between, one_line

CAN_CANCEL = ("queued", "running")
CAN_RETRY = ("failed", "skipped")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    job_id: str
    state: str
    title: str  # for people: the title, else the kind of job, else the id
    command: str = ""
    queue: str = ""
    tries: str = ""  # "2/3": the current or last try, of how many
    at: datetime | str = ""  # when it was queued, or first known
    due: datetime | None = None  # not before, while it waits
    running_since: datetime | None = None
    took_ms: float | None = None  # of the last attempt
    worker: str = ""
    started_at: datetime | None = None  # of the current or last attempt
    ended_at: datetime | None = None
    queued_by: str = ""
    priority: int = 0
    key: str = ""
    error: str = ""
    progress: float | None = None  # 0 to 100
    doing: str = ""
    cancel_wanted: bool = False
    lost: str = ""  # how its worker is, of a running job that nobody is known to work on
    version: int = 0


def of_job(job: Job, now: datetime) -> Row:
    """Return the row of a job."""
    is_running = job.state == RUNNING
    return Row(
        job_id=job.job_id,
        state=job.state,
        title=job.title or job.name or job.job_id,
        command=job.name,
        queue=job.queue,
        tries=f"{job.attempt}/{max(job.max_attempts, job.attempt)}" if job.attempt else "",
        at=job.queued_at or job.created_at or "",
        due=job.scheduled_at if job.state == "queued" and job.scheduled_at and job.scheduled_at > now else None,
        running_since=job.started_at if is_running else None,
        took_ms=_took_ms(job),
        worker=job.worker,
        started_at=job.started_at,
        ended_at=job.finished_at,
        queued_by=job.triggered_by,
        priority=job.priority,
        key=job.key,
        error=one_line(job.error),
        progress=float(job.progress) if is_running and job.progress is not None else None,
        doing=one_line(job.progress_message) if is_running else "",
        cancel_wanted=is_running and job.cancel_requested_at is not None,
        version=job.version,
    )


def of_status(status: Status) -> Row:
    """Return the row of a status, where no more is to be had without much reading."""
    return Row(
        job_id=status.job_id,
        state=status.state,
        title=status.title or status.command or status.job_id,
        command=status.command,
        tries=str(status.attempts) if status.attempts else "",
        at=status.queued_at or status.updated_at,
        error=one_line(status.error),
        version=status.version,
    )


def _took_ms(job: Job) -> float | None:
    if job.duration_ms is not None:
        return job.duration_ms
    return between(job.started_at, job.finished_at)
