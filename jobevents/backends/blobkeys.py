"""Idempotency keys as objects: `keys/v1/{hash}.json` names the unfinished job that holds a key of a kind of job.

Created before the holder's first event and removed, by its generation, when the holder is final. A key whose holder has
finished, or has no first event after a minute, is taken over by compare-and-swap. An absent holder may only be slow: a floor
is set under it first, which takes its first event back should it still come. A job that is queued again does not take its key
again.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from eventsourcing.persistence import StoredEvent
from lru import LRU

from jobevents.backends.blobclock import StoreClock
from jobevents.backends.blobfloors import Floors
from jobevents.backends.blobnames import Names
from jobevents.backends.fan import Fan
from jobevents.backoff import Backoff
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict, Corrupt, KeyTaken, NotFound
from jobevents.events import JobRecorded
from jobevents.job import DELETED, Job

BEGIN_S = 60.0  # how long a holder may take to write its first event: an append gives up after 30 s
AWAIT_S = 5.0  # for how long one waits for it, so that a submission with its key can be told which job that is
HELD = 4096  # keys whose generation is remembered, so that to let go costs one request

Load = Callable[[str], Job]


class Holder(msgspec.Struct, frozen=True):
    """What the object says."""

    job: str  # the job's id
    name: str  # the kind of job
    key: str


class BlobKeys:
    """The keys of one log, as its appends take and release them. Safe for threads, and between processes.

    A job with a key costs two writes more, one without a key nothing.
    """

    def __init__(
        self,
        blobs: Blobs,
        names: Names,
        floors: Floors,
        clock: StoreClock,
        fan: Fan,
        load: Load,
        *,
        patience: Backoff | None = None,
    ) -> None:
        """Ask `load` how the job that holds a key is, and wait with `patience` for one that is about to begin."""
        self._patience = patience or Backoff(deadline_s=AWAIT_S, first_s=0.02, most_s=0.5)
        self._blobs = blobs
        self._names = names
        self._floors = floors
        self._clock = clock
        self._fan = fan
        self._load = load
        self._held: LRU[str, str] = LRU(HELD)  # name of the object -> generation in which a job of ours holds it

    def before(self, jobs: Sequence[Job], events: Sequence[StoredEvent]) -> Callable[[], None]:
        """Take the keys of jobs that begin, or are recorded anew, and return what gives these back.

        Raises:
            KeyTaken: an unfinished job holds one; none was taken.
        """
        asserted = JobRecorded.__name__
        takers = {str(e.originator_id) for e in events if e.originator_version <= 1 or e.topic == asserted}
        wanted = [job for job in jobs if _holds(job) and job.job_id in takers]
        taken: list[Job] = []

        def take(job: Job) -> None:
            if self._take(job):
                taken.append(job)

        def give_back() -> None:
            self._fan.map(self._release, taken)

        try:
            self._fan.map(take, wanted)
        except KeyTaken:
            give_back()
            raise
        return give_back

    def after(self, jobs: Sequence[Job]) -> None:
        """Release the keys of jobs that have finished or were deleted."""
        self._fan.map(self._release, [job for job in jobs if job.key and not _holds(job)])

    def holder(self, name: str, key: str) -> str | None:
        """Return the unfinished job that holds a key; None for the empty key. A read, and that of the job."""
        found = self._read(self._names.key(name, key)) if key else None
        if found is None:
            return None
        said, _ = found
        return said.job if _has(self._load(said.job), said) else None

    def _take(self, job: Job) -> bool:
        """Create the key's object, or take it over from a job that does not hold it any more; False when it is held."""
        name = self._names.key(job.name, job.key)
        generation = ABSENT
        tries = self._patience.start()
        while True:
            try:
                self._held[name] = self._put(name, job, generation)
            except Conflict:
                found = self._read(name)
                if found is None:
                    generation = ABSENT
                    continue
                said, blob = found
                if said.job == job.job_id:
                    self._held[name] = blob.generation
                    return False
                standing = self._standing(said, blob)
                if standing == "awaited" and tries.pause():
                    generation = ABSENT  # it may have given the key back
                elif standing != "free":
                    raise KeyTaken("idempotency key is taken", job_id=said.job, key=job.key) from None
                else:
                    generation = blob.generation
            else:
                return True

    def _standing(self, said: Holder, blob: Blob) -> Literal["held", "awaited", "free"]:
        """Tell whether a key's job has it, may be about to begin, or neither: then the key may be taken over.

        From one look at the job, as it may begin between two.
        """
        job = self._load(said.job)
        if not job.version:
            if self._may_begin(blob):
                return "awaited"
            self._floors.raise_to(said.job, 1)  # who comes now finds it after its create, and takes that back
            job = self._load(said.job)
        return "held" if _has(job, said) else "free"

    def _may_begin(self, blob: Blob) -> bool:
        return (self._clock.now() - blob.stored_at).total_seconds() < BEGIN_S

    def _release(self, job: Job) -> None:
        """Remove the key's object, if this job holds it."""
        name = self._names.key(job.name, job.key)
        generation = self._held.get(name)
        self._held.pop(name, None)
        if generation is None:
            found = self._read(name)
            if found is None or found[0].job != job.job_id:
                return
            generation = found[1].generation
        try:
            self._blobs.delete(name, if_generation=generation)
        except Conflict:  # another job has it
            return

    def _put(self, name: str, job: Job, generation: str) -> str:
        data = msgspec.json.encode(Holder(job.job_id, job.name, job.key))
        return self._blobs.put(
            name, data, if_generation=generation, content_type="application/json", cache_control="no-store"
        )

    def _read(self, name: str) -> tuple[Holder, Blob] | None:
        try:
            blob = self._blobs.get(name)
        except NotFound:
            return None
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            return msgspec.json.decode(blob.data, type=Holder), blob
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise Corrupt(f"key cannot be read name={name!r} error={error} data={blob.data[:80]!r}") from error


def _has(job: Job, said: Holder) -> bool:
    return _holds(job) and (job.name, job.key) == (said.name, said.key)


def _holds(job: Job) -> bool:
    return bool(job.key) and job.version > 0 and job.state != DELETED and not job.is_final()
