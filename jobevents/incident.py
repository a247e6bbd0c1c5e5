"""A worked incident: one morning's trouble, captured, and explained with the commands of history.

On 28 November 2026 a deploy went out at 09:15. Three things were reported: a settlement was booked late, a customer says that
two mails came, and a song was rendered although Ana had canceled it. This is the capture of that quarter of an hour:

    $ jobevents capture --example incident.jev

Who was at work, and how did it end? Everything succeeded, which is why no alarm went off:

    $ jobevents list --url incident.jev

The settlement. Its worker was killed by the deploy in the middle; a minute later its lease had run out, and the reaper gave the
job to another. When the first worker's container woke up once more and said that it was done, that was refused and recorded:

    $ jobevents why settle-20261128-091400-a1 --url incident.jev
    $ jobevents show settle-20261128-091400-a1 --as-of 2026-11-28T09:15:30Z --url incident.jev

The mail. Its task was delivered twice. The second worker could not reach the log to ask, worked all the same as it was told to
(`on_unreadable="run"`), and found out afterwards: the log has the refusal, and so the proof that the customer is right.

    $ jobevents events mail-20261128-091530-b2 --url incident.jev
    $ jobevents sql --report guard-savings --url incident.jev

The song. Ana asked for the cancel 0.7 s before the worker was done, and it did not look in between: the request stays on the
job, with who and why, and so does the song.

    $ jobevents why render-20261128-091600-c3 --url incident.jev

How often do jobs have to be tried again, and how long did they wait?

    $ jobevents sql --report retries --url incident.jev
    $ jobevents sql "SELECT job_id, worker, outcome, waited_ms FROM attempts ORDER BY started_at" --url incident.jev

Is what the file shows what was written? Every event is chained to the one before it:

    $ jobevents verify --url incident.jev

And with a browser, offline, everything read-only:

    $ jobevents open incident.jev

To keep it as a test of code that is changed later: `jobevents.testing.captures`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jobevents import wiring
from jobevents.capture import Captured, capture
from jobevents.emit import By, Draft
from jobevents.events import (
    CancelRequested,
    JobAnnotated,
    JobProgressed,
    JobQueued,
    JobRequeued,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.store import JobLog

BEGAN = datetime(2026, 11, 28, 9, 14, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=15)
SETTLE, MAIL, RENDER = "settle-20261128-091400-a1", "mail-20261128-091530-b2", "render-20261128-091600-c3"


class _Step(NamedTuple):
    """Something that happened."""

    after_s: float  # seconds after 09:14
    job_id: str
    by: str
    draft: Draft
    reason: str = ""


_refused = partial(TransitionRefused, tried="JobSucceeded", state="succeeded")
_STEPS = (
    _Step(0, SETTLE, "schedule", partial(JobQueued, name="settle", params={"day": "2026-11-27"}, trigger="schedule")),
    _Step(2, SETTLE, "app-7", partial(JobStarted, attempt=1, worker="app-7")),
    _Step(70, SETTLE, "app-7", partial(JobProgressed, start=2, percent=60, message="booking")),
    _Step(90, MAIL, "tasks", partial(JobQueued, name="mail", params={"order": 4711}, external=True)),
    _Step(90.2, MAIL, "app-9", partial(JobStarted, attempt=1, worker="app-9")),
    _Step(93, MAIL, "app-9", partial(JobSucceeded, start=2, result={"sent": True})),
    _Step(95, MAIL, "app-8", partial(_refused, start=0, detail="ran ungranted")),
    _Step(120, RENDER, "ben", partial(JobQueued, name="render", params={"song": 7}, title="Autumn")),
    _Step(121, RENDER, "app-8", partial(JobStarted, attempt=1, worker="app-8")),
    _Step(122, RENDER, "app-8", partial(JobAnnotated, start=2, fields={"output_dir": "gs://songs/7"})),
    _Step(140, SETTLE, "reaper", partial(JobRequeued, cause="lost", start=2), "its worker's lease ran out worker=app-7"),
    _Step(141, SETTLE, "app-8", partial(JobStarted, attempt=2, worker="app-8")),
    _Step(160.2, RENDER, "ana", CancelRequested, "wrong song"),
    _Step(160.9, RENDER, "app-8", partial(JobSucceeded, start=2, result={"seconds": 39})),
    _Step(240, SETTLE, "app-8", partial(JobSucceeded, start=5, result={"booked": 1200})),
    _Step(270, SETTLE, "app-7", partial(_refused, start=2, detail="came late")),
)  # fmt: skip
_LINES = (
    (3, SETTLE, 2, 1, "app-7", "info", "1200 bookings to make"),
    (79.5, SETTLE, 2, 2, "app-7", "warn", "SIGTERM: deploy 3f2c1"),
    (142, SETTLE, 5, 1, "app-8", "info", "720 of 1200 are booked already"),
    (160.8, RENDER, 2, 1, "app-8", "info", "written to gs://songs/7"),
)


def write(path: Path, *, overwrite: bool = False) -> Captured:
    """Write the capture of the incident to a file.

    Raises:
        InvalidValue: the file is there, or its name does not end in .jev.
    """
    now = BEGAN
    with wiring.connect("memory://", clock=lambda: now) as jobs:
        for step in _STEPS:
            now = BEGAN + timedelta(seconds=step.after_s)
            jobs.emitter.change(step.job_id, partial(_once, step.draft), By(step.by, step.reason))
        jobs.run_logs.append_logs(list(_log_lines()))
        return capture(jobs, path, since=BEGAN, until=ENDED, overwrite=overwrite)


def _once(draft: Draft, job: object) -> list[Draft]:
    return [draft]


def _log_lines() -> Iterator[JobLog]:
    for after_s, job_id, start, number, worker, level, message in _LINES:
        yield JobLog(
            run_id=job_id,
            seq=start * 1_000_000 + number,
            attempt=1 if start == 2 else 2,
            at=BEGAN + timedelta(seconds=after_s),
            level=level,
            message=message,
            attrs={"worker": worker},
        )
