"""The way into the sequence: events that a hint or a sweep pointed at, read from the log, published first if nobody was told.

A status says up to which event each is on the bus, or written down as owed: that is what is
kept here, and what lets a process that sees a job for the first time know where to begin. Of a deleted job, which has no
status, a mark says the same.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from jobevents.events import JobDeleted
from jobevents.log import Record
from jobevents.telemetry import Counts
from projections.arrears import Arrears
from projections.inflow import Inflow, JobLog
from projections.mending import Seen

Look: TypeAlias = Callable[[str], Seen]
"""What a job's status says. One read of the store."""


class Inlet:
    """Takes events into the sequence. Safe for threads."""

    def __init__(self, log: JobLog, inflow: Inflow, *, look: Look, arrears: Arrears | None, counts: Counts) -> None:
        """Take nothing yet.

        Args:
            arrears: publishes what no message came for; None: there is no bus.
        """
        self.log = log
        self.inflow = inflow
        self.look = look
        self._arrears = arrears
        self._counts = counts

    def take(self, records: Sequence[Record], *, hinted: Collection[int] = (), told: int | None = None) -> int:
        """Take events of one job whose versions follow each other; return the place of the last in the sequence.

        Args:
            hinted: versions of which a message came.
            told: up to which event the job's status says that each is on the bus, where it has just been read.

        Raises:
            Unavailable, PermissionDenied: what the store says; nothing was taken.
        """
        if self._arrears is not None:
            self._tell(self._arrears, records, hinted, told)
        return self.inflow.add(records)

    def catch_up(self, job_id: str) -> None:
        """Take what came after the last event that was taken of a job: one of the views has met its end. Its reads.

        Raises:
            Unavailable, PermissionDenied: what the store says; nothing was taken.
        """
        records = self.log.read_raw(job_id, after=self.inflow.taken(job_id).version)
        if records:
            self.take(records)

    def is_told(self, job_id: str) -> bool:
        """Tell whether everything of a deleted job is on the bus, or owed to it. One read."""
        return self._arrears is None or self._arrears.is_settled(job_id)

    def _tell(self, arrears: Arrears, records: Sequence[Record], hinted: Collection[int], told: int | None) -> None:
        job_id = records[0].job_id
        is_end = records[-1].type == JobDeleted.__name__
        silent = [record for record in records if record.version not in hinted]
        if silent:
            known = self.look(job_id).told if told is None else told
            if not known and is_end and arrears.is_settled(job_id):
                return
            for run in _runs([record for record in silent if record.version > known]):
                arrears.publish(run)
                self._counts.add("republished", len(run))
        if is_end:
            arrears.settle(job_id)


def _runs(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records in runs of versions that follow each other."""
    runs: list[list[Record]] = []
    for record in records:
        if runs and runs[-1][-1].version + 1 == record.version:
            runs[-1].append(record)
        else:
            runs.append([record])
    return runs
