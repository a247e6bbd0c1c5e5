"""Limits of how many jobs run at once, shared by all workers of a log: counted where the start is written."""

from typing import Literal

import msgspec

from jobevents.boundary import check_name
from jobevents.errors import Misconfigured

Column = Literal["job_name", "queue"]


class Limit(msgspec.Struct, frozen=True):
    """At most `most` running jobs of one kind, or of one queue.

    Checked in the transaction that starts a job, so that it is exact over any number of workers and needs no lock of its own.
    A dead worker's jobs count until they are given back.
    """

    column: Column  # what is counted by: the kind of job, or the queue
    value: str  # name of the kind or of the queue
    most: int  # jobs that may run at once, the one to be started among them

    def __post_init__(self) -> None:
        if self.column not in ("job_name", "queue"):
            raise Misconfigured(f"limit is on an unknown column value={self.column!r}: use job_name or queue")
        check_name(self.column, self.value)
        if self.most < 1:
            raise Misconfigured(
                f"limit must let one job run {self.column}={self.value} most={self.most}: pause it instead"
            )
