"""The guarded save of a status: never older than what is there, never over what another service wrote without a word.

Each write is conditional on the generation last seen and carries the version, so that of two writers the newer state wins,
whatever order their writes arrive in. The blob's metadata holds the folded job and the version of this code.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
from lru import LRU

from jobevents import status
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict, Corrupt, InvalidValue, JobEventsError, NotFound
from jobevents.job import DELETED, Job
from jobevents.records import status_bytes, status_name
from jobevents.telemetry import Counts
from projections.adoption import Adopt
from projections.view import Unstorable

CONTENT_TYPE = "application/json; charset=utf-8"
CACHE_CONTROL = "no-store"
CODE_VERSION = 1  # of this projection: raise it when the same events give other bytes
METADATA_LIMIT = 7000  # bytes: GCS keeps 8 KiB of metadata, keys and our other entries included
REMEMBERED = 16_384  # jobs whose last written generation is kept, 0.3 KiB each
THREADS = 16  # writes under way at once where each waits for its store

logger = logging.getLogger(__name__)

Put: TypeAlias = tuple[str, bytes, str, Mapping[str, str]]
"""Name, data, if_generation and metadata of one `put`."""


@runtime_checkable
class PutMany(Protocol):
    """Blobs that store many objects at the price of one commit."""

    def put_many(
        self, puts: Sequence[Put], *, content_type: str = "application/octet-stream", cache_control: str = ""
    ) -> list[str | None]:
        """Do each `put`, each name once, and return the new generations: None where the stored one was another."""
        ...


class Shown(msgspec.Struct, frozen=True):
    """A job ready to be written."""

    job: Job
    data: bytes  # its status; empty for a deleted job
    metadata: dict[str, str]
    is_new: bool = False  # likely not stored yet: try to create it before reading


class Stored(msgspec.Struct, frozen=True):
    """What is known to be stored for a job."""

    generation: str  # ABSENT: nothing
    version: int  # 0: nothing, or a record that did not come from the log
    code: int = 0  # of the projection that wrote it


class Outcome(NamedTuple):
    """What came of one save."""

    job_id: str
    error: JobEventsError | None = None


_NOTHING = Stored(ABSENT, 0)


class StatusWriter:
    """Writes statuses. Safe for threads and beside other writers; the write itself is what decides."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        adopt: Adopt | None = None,
        adopt_deletes: bool = False,
        counts: Counts | None = None,
        code: int = CODE_VERSION,
        told: Callable[[str], int] | None = None,
        on_deleted: Callable[[str], object] = lambda _: None,
        threads: int = THREADS,
    ) -> None:
        """Write below the log's prefix.

        Args:
            adopt: takes what other services wrote into the log; without it, the fold replaces what they wrote, aloud.
            adopt_deletes: a status that somebody removed is a deleted job, instead of one to be written again.
            told: up to which of a job's events each is on the bus, or owed to it: what the status may say of it. It may be
                of more events than that: those of a foreign record, and what came before it unseen.
            on_deleted: called with a job whose status is gone since it was written here, and which the log says is deleted.
            threads: writes under way at once, where the store cannot take many in one.
        """
        self._blobs = blobs
        self._many = blobs if isinstance(blobs, PutMany) else None
        self._prefix = f"{prefix}/" if prefix else ""
        self._adopt = adopt
        self._adopt_deletes = adopt_deletes
        self._counts = counts or Counts()
        self._code = code
        self._told = told
        self._on_deleted = on_deleted
        self._threads = threads
        self._stored: LRU[str, Stored] = LRU(REMEMBERED)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def locate(self, job_id: str) -> str:
        """Return the blob's name: `{prefix}/jobs/{id}/status.json`."""
        return self._prefix + status_name(job_id)

    def knows(self, job_id: str) -> bool:
        """Tell whether this process remembers what is stored for the job."""
        return self._known(job_id) is not None

    def watches(self, job_id: str) -> bool:
        """Tell whether a status of this process's is there as far as it knows: its next write finds out if it is gone."""
        known = self._known(job_id)
        return known is not None and _is_ours(known)

    def show(self, job: Job, *, is_new: bool = False) -> Shown:
        """Return the job ready to be written: pure, so that a job that cannot be shown fails before any I/O.

        Raises:
            InvalidValue: its fields cannot stand in a status.
        """
        if job.state == DELETED:
            return Shown(job, b"", {})
        try:
            metadata = snapshot(job, self._code)
            if self._told is not None:
                metadata["told"] = str(self._told(job.job_id))
            return Shown(job, status_bytes(job), metadata, is_new)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidValue(
                f"job cannot be shown job_id={job.job_id} version={job.version} error={error}"
            ) from error

    def save(self, shown: Shown) -> bool:
        """Write a status unless a newer one is there; False when one is. A deleted job's status is removed.

        One write when this process wrote last, or when the status is new; a read more for each time another did.

        Raises:
            Unavailable, PermissionDenied: what the store says.
            AppendUnknown, Corrupt: what the log says of a foreign write.
        """
        job_id = shown.job.job_id
        known = self._known(job_id)
        stored = known or (_NOTHING if shown.is_new else None)
        while True:
            if stored is None:
                shown, stored = self._look(shown, known)
            if not self._supersedes(shown.job, stored):
                self._remember(job_id, stored)
                return False
            try:
                self._remember(job_id, self._write(shown, stored))
                return True
            except Conflict:
                known, stored = self._known(job_id), None

    def save_all(self, waiting: Sequence[Shown]) -> Iterable[Outcome]:
        """Save each job once, in one commit or at the same time where the store allows it; yield what came of each.

        Raises:
            Unavailable, PermissionDenied: what was not yielded was not saved.
        """
        if self._many is not None:
            return self._save_together(waiting, self._many)
        if len(waiting) < 2 or self._threads < 2:
            return map(self._save_one, waiting)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="jobevents-status")
        return self._pool.map(self._save_one, waiting)

    def drop_ghosts(self, job_ids: Iterable[str]) -> None:
        """Remove the statuses of jobs that the log says are deleted: written late, by a writer that had fallen behind."""
        for job_id in sorted(job_ids):
            job = self._adopt.load(job_id) if self._adopt else None
            if job is not None and job.state == DELETED:
                self._forget(job_id)
                self.save(self.show(job))

    def close(self) -> None:
        """End the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _save_one(self, shown: Shown) -> Outcome:
        try:
            self.save(shown)
        except JobEventsError as error:
            return Outcome(shown.job.job_id, error)
        return Outcome(shown.job.job_id)

    def _save_together(self, waiting: Sequence[Shown], many: PutMany) -> Iterator[Outcome]:
        """Put all in one commit, what is not known as new; then look at those that another wrote, and put these, and so on."""
        plans = [(shown, self._known(shown.job.job_id) or _NOTHING) for shown in waiting]
        while plans:
            puts: list[tuple[Shown, Stored]] = []
            for shown, stored in plans:
                if not shown.data:
                    yield self._save_one(shown)
                elif self._supersedes(shown.job, stored):
                    puts.append((shown, stored))
                else:
                    self._remember(shown.job.job_id, stored)
                    yield Outcome(shown.job.job_id)
            refused = []
            for (shown, _), generation in zip(puts, self._put(puts, many), strict=True):
                if generation is None:
                    refused.append(shown)
                else:
                    self._remember(shown.job.job_id, Stored(generation, shown.job.version, self._code))
                    yield Outcome(shown.job.job_id)
            plans = []
            for shown in refused:
                try:
                    plans.append(self._look(shown, self._known(shown.job.job_id)))
                except JobEventsError as error:
                    yield Outcome(shown.job.job_id, error)

    def _put(self, puts: Sequence[tuple[Shown, Stored]], many: PutMany) -> list[str | None]:
        named = [(self.locate(s.job.job_id), s.data, stored.generation, s.metadata) for s, stored in puts]
        return many.put_many(named, content_type=CONTENT_TYPE, cache_control=CACHE_CONTROL) if named else []

    def _supersedes(self, job: Job, stored: Stored) -> bool:
        """Tell whether the job's status may replace what is stored: it is newer, or the same by newer code."""
        if job.version == stored.version:
            return stored.generation != ABSENT and stored.code < self._code
        return job.version > stored.version

    def _write(self, shown: Shown, stored: Stored) -> Stored:
        name, job = self.locate(shown.job.job_id), shown.job
        if job.state == DELETED:
            if stored.generation != ABSENT:
                self._blobs.delete(name, if_generation=stored.generation)
            return Stored(ABSENT, job.version)
        generation = self._blobs.put(
            name,
            shown.data,
            if_generation=stored.generation,
            content_type=CONTENT_TYPE,
            cache_control=CACHE_CONTROL,
            metadata=shown.metadata,
        )
        return Stored(generation, job.version, self._code)

    def _look(self, shown: Shown, known: Stored | None) -> tuple[Shown, Stored]:
        """Read what is stored, and return it with what should be: another service's record may have made the job a newer one.

        Args:
            known: what was stored as far as this process knew; None when it did not.
        """
        was_ours = known is not None and _is_ours(known)
        try:
            blob = self._blobs.get(self.locate(shown.job.job_id))
        except NotFound:
            return (self._vanished(shown) if was_ours else shown), _NOTHING
        assert blob is not None  # noqa: S101  # None only for if_changed
        stored = Stored(blob.generation, version_of(blob), code_of(blob))
        if stored.version or not shown.data:
            return shown, stored
        return self._taken_over(shown, blob, was_ours=was_ours), stored

    def _taken_over(self, shown: Shown, blob: Blob, *, was_ours: bool) -> Shown:
        """Make a record without a version a fact of the log, and return the job as it is then."""
        name = self.locate(shown.job.job_id)
        if self._adopt is None:
            self._counts.add("status_replaced")
            logger.warning("status written by another service is replaced name=%s", name)
            return shown
        job = self._adopt.load(shown.job.job_id)  # an old message may have brought this job here, long after its end
        if job.version > shown.job.version:
            shown = self.show(job)
        try:
            adopted = self._adopt.record(shown.job, blob, was_ours=was_ours)
        except Corrupt as error:
            raise Unstorable(shown.job.job_id, shown.job.version, error) from error
        if adopted.refusal:
            self._counts.add("status_refused")
            logger.warning(
                "status written by another service is replaced name=%s reason=%s record=%.200r",
                name,
                adopted.refusal,
                blob.data,
            )
        elif adopted.was_foreign:
            self._counts.add("status_adopted")
            logger.warning(
                "status written by another service was adopted name=%s version=%d", name, adopted.job.version
            )
        return self.show(adopted.job) if adopted.job.version > shown.job.version else shown

    def _vanished(self, shown: Shown) -> Shown:
        """Report a status that somebody removed, unless its job is deleted; return what is to be written instead."""
        job_id = shown.job.job_id
        job = self._adopt.load(job_id) if self._adopt else shown.job
        if job.state == DELETED:
            self._on_deleted(job_id)
            return self.show(job)
        self._counts.add("status_vanished")
        if self._adopt and self._adopt_deletes:
            logger.warning("status was removed by another, its job is deleted name=%s", self.locate(job_id))
            return self.show(self._adopt.deletion(job_id))
        logger.warning("status was removed by another, it is written again name=%s", self.locate(job_id))
        return shown

    def _known(self, job_id: str) -> Stored | None:
        with self._lock:
            return self._stored.get(job_id)

    def _remember(self, job_id: str, stored: Stored) -> None:
        with self._lock:
            self._stored[job_id] = stored

    def _forget(self, job_id: str) -> None:
        with self._lock:
            self._stored.pop(job_id, None)


def _is_ours(stored: Stored) -> bool:
    return stored.version > 0 and stored.generation != ABSENT


def version_of(blob: Blob) -> int:
    """Return the version in a stored status; 0 when it did not come from the log, or cannot be read."""
    try:
        return status.decode(blob.data).version
    except Corrupt:
        return 0


def code_of(blob: Blob) -> int:
    """Return the version of the code that wrote a status; 0 when it does not say."""
    text = blob.metadata.get("code", "")
    return int(text) if text.isdecimal() else 0


def told_of(blob: Blob) -> int:
    """Return up to which event all of a job are on the bus, or owed to it, as its status says; 0 when it does not say."""
    text = blob.metadata.get("told", "")
    return int(text) if text.isdecimal() else 0


def snapshot(job: Job, code: int = CODE_VERSION) -> dict[str, str]:
    """Return the blob's metadata: the folded job, its chain, the code's version; without the job where that is too large.

    All of it is ASCII: GCS metadata travels in headers.
    """
    metadata = {"code": str(code), "chain": job.chain}
    data = msgspec.json.encode(job)
    if not data.isascii():
        data = json.dumps(msgspec.to_builtins(job), separators=(",", ":")).encode()  # which writes \u00fc
    if len(data) <= METADATA_LIMIT:
        metadata["job"] = data.decode()
    return metadata
