"""Statuses as heads of the log: a job is read on from the fold in its status's metadata, and what others wrote is heeded.

For a log on which a whole history costs a list and a read for each event. What a status says is held against the log by
whoever goes on from it: its chain must be that of the event in its place.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from jobevents.blobs import Blob, Blobs
from jobevents.emit import By, Emitter
from jobevents.errors import JobEventsError, NotFound
from jobevents.importing import import_records
from jobevents.job import Job
from jobevents.records import status_name
from projections.adoption import Adopt
from projections.statuswriter import CODE_VERSION, StatusWriter, code_of, version_of

_IMPORT = By(actor="foreign", reason="a status of another service, without a log")


class StatusHeads:
    """The statuses below a log's prefix, as its write side reads them. Safe for threads."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str,
        emitter: Emitter,
        *,
        adopt: Adopt,
        on_head: Callable[[str, int], None] = lambda _, __: None,
        code: int = CODE_VERSION,
    ) -> None:
        """Read below the log's prefix.

        Args:
            on_head: told of each job that was looked at where its history ends by its status; 0: it has none.
        """
        self._on_head = on_head
        self._blobs = blobs
        self._prefix = prefix
        self._root = f"{prefix}/" if prefix else ""
        self._emitter = emitter
        self._adopt = adopt
        self._code = code

    def recall(self, job_id: str) -> Job | None:
        """Return the job as its status has it: one read; None when it does not say, or other code folded it.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        blob = self._read(job_id)
        job = None if blob is None else snapshot_of(blob, job_id, self._code)
        if job is not None or blob is None:
            self._on_head(job_id, job.version if job else 0)
        return job

    def heed(self, job_id: str) -> None:
        """Bring into the log what another service wrote over the job's status, or in its place: one read if nobody did.

        To be called before a start is granted: what another service did must not be done again.

        Raises:
            Unavailable, PermissionDenied, AppendUnknown, Corrupt: what the store or the log says.
        """
        blob = self._read(job_id)
        if blob is None:
            return
        if version_of(blob):
            job = snapshot_of(blob, job_id, self._code)
            if job is not None:
                self._on_head(job_id, job.version)
                self._emitter.remember(job)
            return
        job = self._emitter.load(job_id)
        if job.version:
            job = self._adopt.record(job, blob, was_ours=False).job
        else:
            import_records(self._emitter, self._blobs, lambda one: self._root + status_name(one), [job_id], _IMPORT)
            job = self._emitter.load(job_id)
        if job.version:
            self._write_over(job)

    def _write_over(self, job: Job) -> None:
        """Put our status in the place of the record that was heeded: it is a fact of the past, and would be heeded after a rerun.

        Where that cannot be now, a projector does it.
        """
        writer = StatusWriter(self._blobs, self._prefix, adopt=self._adopt, code=self._code, threads=1)
        with suppress(JobEventsError):
            writer.save(writer.show(job))

    def _read(self, job_id: str) -> Blob | None:
        try:
            return self._blobs.get(self._root + status_name(job_id))
        except NotFound:
            return None


def snapshot_of(blob: Blob, job_id: str, code: int = CODE_VERSION) -> Job | None:
    """Return the folded job in a status's metadata; None when it is not there, is another's, or was folded by other code.

    It must be of the version that the status itself says: a program may replace the data and keep the metadata.
    """
    data = blob.metadata.get("job")
    if data is None or code_of(blob) != code:
        return None
    try:
        job = msgspec.json.decode(data, type=Job)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return job if job.job_id == job_id and job.version == version_of(blob) > 0 else None
