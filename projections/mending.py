"""Statuses held against the log: which version is stored, and making one right that is not."""

from typing import NamedTuple

from jobevents.blobs import Blobs
from jobevents.emit import Emitter
from jobevents.errors import NotFound
from jobevents.records import status_name
from jobevents.telemetry import Counts
from projections.adoption import Adopt
from projections.statuswriter import CODE_VERSION, StatusWriter, code_of, told_of, version_of


class Seen(NamedTuple):
    """What a job's status says of the log and the bus."""

    version: int  # of the job; 0: there is none, or another service or older code wrote it
    told: int  # every event up to this one is on the bus, or written down as owed to it
    is_there: bool = False  # there is one, whoever wrote it


NOT_SEEN = Seen(0, 0)


def look_at_status(blobs: Blobs, prefix: str, job_id: str) -> Seen:
    """Return what a job's status says. One read.

    Raises:
        Unavailable, PermissionDenied: what the store says.
    """
    try:
        blob = blobs.get(f"{prefix}/{status_name(job_id)}" if prefix else status_name(job_id))
    except NotFound:
        return NOT_SEEN
    assert blob is not None  # noqa: S101  # None only for if_changed
    version = version_of(blob) if code_of(blob) >= CODE_VERSION else 0
    return Seen(version, min(version, told_of(blob)), is_there=True)


class Mender:
    """Writes a job's status as the log has it, whatever this process remembers of it. Safe for threads."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str,
        emitter: Emitter,
        *,
        adopt: Adopt,
        adopt_deletes: bool = False,
        counts: Counts,
    ) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._emitter = emitter
        self._adopt = adopt
        self._adopt_deletes = adopt_deletes
        self._counts = counts

    def __call__(self, job_id: str) -> None:
        """Mend one: what another service wrote there becomes an event first. Two reads and a write, or three.

        Raises:
            Unavailable, PermissionDenied, AppendUnknown, Corrupt: what store or log says.
            InvalidValue, Unstorable: the job cannot be shown.
        """
        job = self._emitter.load(job_id)
        if not job.version:
            return
        writer = StatusWriter(
            self._blobs,
            self._prefix,
            adopt=self._adopt,
            adopt_deletes=self._adopt_deletes,
            counts=self._counts,
            threads=1,
        )
        writer.save(writer.show(job))
