"""The status view: `jobs/{id}/status.json`, the fold of a job's events, never older than what was there before.

Each write is conditional on the generation last seen and carries the version, so that of two writers the newer state wins,
whatever order their writes arrive in. The blob's metadata holds the folded job: the next writer need not read the log.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
from lru import LRU

from jobevents import status
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict, Corrupt, JobEventsError, NotFound
from jobevents.events import Event
from jobevents.job import DELETED, Job
from jobevents.records import status_bytes, status_name

CONTENT_TYPE = "application/json; charset=utf-8"
CACHE_CONTROL = "no-store"
CODE_VERSION = 1  # of this projection: raise it when the same events give other bytes
METADATA_LIMIT = 7000  # bytes: GCS keeps 8 KiB of metadata, keys and our other entries included
REMEMBERED = 4096  # jobs whose last written generation is kept

logger = logging.getLogger(__name__)


class Stored(msgspec.Struct, frozen=True):
    """What is known to be stored for a job."""

    generation: str  # ABSENT: nothing
    version: int  # 0: nothing, or a record that did not come from the log


class StatusView:
    """Writes statuses. Safe for threads and beside other writers; the write itself is what decides."""

    def __init__(self, blobs: Blobs, prefix: str = "") -> None:
        self._blobs = blobs
        self._prefix = f"{prefix}/" if prefix else ""
        self._stored: LRU[str, Stored] = LRU(REMEMBERED)
        self._lock = threading.Lock()

    def locate(self, job_id: str) -> str:
        """Return the blob's name: `{prefix}/jobs/{id}/status.json`."""
        return self._prefix + status_name(job_id)

    def save(self, job: Job) -> bool:
        """Write the job's status unless a newer one is there; False when one is. A deleted job's status is removed.

        One write when this process wrote last; a read more for each time another did.

        Raises:
            Unavailable, PermissionDenied: what the store says.
        """
        name = self.locate(job.job_id)
        with self._lock:
            stored = self._stored.get(job.job_id)
        while True:
            stored = stored or self._look(name)
            if stored.version >= job.version:
                self._remember(job.job_id, stored)
                return False
            try:
                self._remember(job.job_id, self._write(name, job, stored))
                return True
            except Conflict:
                stored = None

    def _write(self, name: str, job: Job, stored: Stored) -> Stored:
        if job.state == DELETED:
            if stored.generation != ABSENT:
                self._blobs.delete(name, if_generation=stored.generation)
            return Stored(ABSENT, job.version)
        if stored.generation != ABSENT and not stored.version:
            logger.warning("status written by another service is replaced name=%s version=%d", name, job.version)
        generation = self._blobs.put(
            name,
            status_bytes(job),
            if_generation=stored.generation,
            content_type=CONTENT_TYPE,
            cache_control=CACHE_CONTROL,
            metadata=snapshot(job),
        )
        return Stored(generation, job.version)

    def _look(self, name: str) -> Stored:
        try:
            blob = self._blobs.get(name)
        except NotFound:
            return Stored(ABSENT, 0)
        assert blob is not None  # noqa: S101  # None only for if_changed
        return Stored(blob.generation, version_of(blob))

    def _remember(self, job_id: str, stored: Stored) -> None:
        with self._lock:
            self._stored[job_id] = stored


def version_of(blob: Blob) -> int:
    """Return the version in a stored status; 0 when it did not come from the log, or cannot be read."""
    try:
        return status.decode(blob.data).version
    except Corrupt:
        return 0


def snapshot(job: Job) -> dict[str, str]:
    """Return the blob's metadata: the folded job, the code's version; without the job where that is too large."""
    metadata = {"code": str(CODE_VERSION)}
    data = msgspec.json.encode(job)
    if len(data) <= METADATA_LIMIT and data.isascii():  # GCS metadata travels in headers
        metadata["job"] = data.decode()
    return metadata


class InlineStatus:
    """Writes the status in the emitting process, for services that run no projector; an observer of the Emitter.

    Coalesced to the least interval between two writes of one blob: the last state always lands, a job at rest at once or
    after its interval, before the appending call returns.
    """

    def __init__(self, view: StatusView, interval_s: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._written_at: LRU[str, float] = LRU(REMEMBERED)
        self._waiting: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Write the status now if its interval has passed, soon if not; a job at rest before returning."""
        with self._lock:
            wait_s = self._written_at.get(job.job_id, -self._interval_s) + self._interval_s - self._monotonic()
            at_rest = job.is_final() or job.state == DELETED
            if wait_s > 0 and not at_rest:
                self._waiting[job.job_id] = job
                self._start()
                return
            self._waiting.pop(job.job_id, None)
        if wait_s > 0:
            time.sleep(wait_s)  # the store takes one write of a name in this time (GCS)
        self._save(job)

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._lock:
            self._closed = True
            self._wake.notify()
            thread = self._thread
            waiting = list(self._waiting.values())
            self._waiting.clear()
        if thread is not None:
            thread.join()
        for job in waiting:
            self._save(job)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jobevents-status", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Every interval, write the statuses that wait; end when none does."""
        while True:
            with self._lock:
                self._wake.wait_for(lambda: self._closed, timeout=self._interval_s)
                waiting = list(self._waiting.values())
                self._waiting.clear()
                if not waiting:
                    self._thread = None
                    return
            for job in waiting:
                self._save(job)

    def _save(self, job: Job) -> None:
        with self._lock:
            self._written_at[job.job_id] = self._monotonic()
        try:
            self._view.save(job)
        except JobEventsError as error:
            logger.warning("status not written job_id=%s version=%d error=%s", job.job_id, job.version, error)
