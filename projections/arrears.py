"""Publishing what no message came for, so that every subscriber gets it; owed in the store while the bus is away.

A view may not be saved before its events are on the bus, or it is written down that they are owed: after that, nothing would
tell that they never got there. The note is one small blob, `ctl/v1/unpublished/{id}.json`, and is paid when the bus is back.
Of a deleted job nothing is left in the views that could tell: an empty blob, `ctl/v1/published/{hh}/{job}`, does.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from jobevents.blobs import ABSENT, Blobs
from jobevents.bus import Publisher, notice
from jobevents.errors import Conflict, Corrupt, JobEventsError, NotFound
from jobevents.log import Record
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble
from projections.indexcensus import part_of
from projections.inflow import JobLog, read_through

logger = logging.getLogger(__name__)


class Owed(msgspec.Struct, frozen=True):
    """Events of one job that were not published."""

    job: str
    after: int  # the version before the first of them
    until: int  # the version of the last


class Arrears:
    """Publishes, or writes down what is owed. Safe for threads."""

    def __init__(
        self,
        publisher: Publisher | None,
        log: JobLog,
        blobs: Blobs,
        prefix: str = "",
        *,
        counts: Counts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Say nothing yet.

        Args:
            publisher: None: all is written down as owed, for those who publish.
        """
        self._publisher = publisher
        self._log = log
        self._blobs = blobs
        root = f"{prefix}/" if prefix else ""
        self._root = f"{root}ctl/v1/unpublished/"
        self._settled = f"{root}ctl/v1/published/"
        self._counts = counts
        self._monotonic = monotonic
        self._trouble = Trouble("publishing events of which no message came", logger, monotonic=monotonic)
        self._retry_at = 0.0

    def publish(self, records: Sequence[Record]) -> None:
        """Publish events of one job whose versions follow each other, or write down that they are owed.

        Raises:
            Unavailable, PermissionDenied: neither was possible; nothing may be saved of them.
        """
        if self._monotonic() >= self._retry_at and self._deliver(records):
            return
        self.owe([Owed(records[0].job_id, records[0].version - 1, records[-1].version)])
        self._counts.add("publish_owed", len(records))

    def owe(self, owed: Sequence[Owed]) -> None:
        """Write down that events of jobs are owed. One write.

        Raises:
            Unavailable, PermissionDenied: what the store says; nothing may be saved of them.
        """
        name = f"{self._root}{os.urandom(8).hex()}.json"
        self._blobs.put(name, msgspec.json.encode(owed), if_generation=ABSENT, content_type="application/json")

    def settle(self, job_id: str) -> None:
        """Write down that everything of a deleted job is published, or owed. One write.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        with suppress(Conflict):  # it is there
            self._blobs.put(self._mark(job_id), b"", if_generation=ABSENT)

    def is_settled(self, job_id: str) -> bool:
        """Tell whether that is written down. One read.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        try:
            return self._blobs.get(self._mark(job_id)) is not None
        except NotFound:
            return False

    def _mark(self, job_id: str) -> str:
        return f"{self._settled}{part_of(job_id)}/{job_id}"

    def pay(self) -> int:
        """Publish what is owed and strike it off; return how many events that were. One listing, and what is found.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        paid = 0
        for entry in self._blobs.list(self._root):
            if self._monotonic() < self._retry_at:
                break
            try:
                blob = self._blobs.get(entry.name)
            except NotFound:  # another replica has paid it
                continue
            assert blob is not None  # noqa: S101  # None only for if_changed
            records = [
                record
                for one in _read(blob.data, entry.name)
                for record in read_through(self._log, one.job, one.until, after=one.after, until=one.until)
            ]
            if not self._deliver(records):
                break
            self._blobs.delete(entry.name)
            paid += len(records)
        if paid:
            self._counts.add("publish_paid", paid)
        return paid

    def _deliver(self, records: Sequence[Record]) -> bool:
        if self._publisher is None:
            return False
        try:
            self._publisher.deliver([notice(one.job_id, one.version, one.type, one.data) for one in records])
        except JobEventsError as error:
            self._retry_at = self._monotonic() + self._trouble.came(error)
            return False
        self._trouble.went()
        return True


def _read(data: bytes, name: str) -> list[Owed]:
    try:
        return msgspec.json.decode(data, type=list[Owed])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(
            f"note of what is owed cannot be read name={name} error={error}; remove or mend the blob"
        ) from error
