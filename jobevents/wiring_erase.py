"""The composition root of erasure: a log and the views beside it, of which nothing of a job is to be left."""

from typing import TYPE_CHECKING

from jobevents import wiring

if TYPE_CHECKING:
    from jobevents.erasing import Erasing
    from jobevents.jobs import Jobs


def erasing(jobs: "Jobs") -> "Erasing":
    """Return what erases jobs of a log, and what is beside it of them.

    Raises:
        Misconfigured: nothing can be taken out of this log.
    """
    from jobevents.erasing import Erasing, eraser_of
    from projections.remains import remains

    eraser_of(jobs.log)
    return Erasing(
        jobs.emitter,
        jobs.run_logs,
        jobs.blobs,
        lambda job_id: remains(jobs.blobs, jobs.prefix, job_id),
        copies=wiring.archive(jobs),
    )
