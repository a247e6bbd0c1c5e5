"""What tests of the API share: jobs with a past, their views, and where a route answers."""

from typing import NamedTuple

import pytest

from jobevents import wiring
from jobevents.jobs import Jobs
from projections import parked


class Past(NamedTuple):
    """Jobs in three states."""

    done: str
    failed: str
    waiting: str


def fill(jobs: Jobs) -> Past:
    """Run two jobs, one to its end, and leave a third in another queue."""
    done = jobs.submit("render", {"song": 7}, id="render-20260801-110000-aaaaaaaaaaaa", title="Song 7")
    with jobs.attempt(done, worker="w1") as attempt:
        attempt.progress(40, "mixing")
        attempt.log("begun")
        attempt.annotate(output_dir="gs://songs/7")
        attempt.result({"seconds": 181})
    failed = jobs.submit("render", {"song": 8}, id="render-20260801-110001-bbbbbbbbbbbb")
    with pytest.raises(OSError, match="no space"), jobs.attempt(failed, worker="w2"):
        raise OSError("no space")
    waiting = jobs.submit("mix", queue="slow", id="mix-20260801-110002-cccccccccccc")
    return Past(done, failed, waiting)


def project(jobs: Jobs) -> None:
    """Bring the views up to the log's end."""
    wiring.projector(jobs, leased=False).run_once()


def park(jobs: Jobs, job_id: str) -> None:
    """Park the first event of a job, for the view of statuses."""
    record = jobs.log.read_raw(job_id)[0]
    shelf = parked.ParkedJobs(jobs.blobs, jobs.prefix, "status", clock=jobs.emitter.clock)
    shelf.park(record, ValueError("poison"))


def address(path: str, past: Past) -> str:
    """Return where a route answers."""
    return path.replace("{job_id}", past.done)
