"""Folds the events of a batch, each job once, and finds the event at which a history cannot be folded on."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from lru import LRU

from jobevents import codec
from jobevents.errors import Corrupt, PermissionDenied, Unavailable
from jobevents.events import Event
from jobevents.job import Job, fold
from jobevents.log import Record
from projections.view import Feed

FOLDED_JOBS = 8192  # kept from batch to batch: about 2 KiB each
TRIES = 3  # of a fold that raises


Recall: TypeAlias = Callable[[str], Job | None]
"""A job as a store has it, to fold on from: it may be old, and is held against the log. None: read its history."""


class Poison(NamedTuple):
    """The event at which a job cannot be folded on."""

    record: Record  # as it is stored
    error: Exception  # why not


class Folded(msgspec.Struct, frozen=True):
    """A job as far as it could be folded."""

    job: Job  # version 0 or state NEW: nothing to show
    poison: Poison | None = None  # what stopped it; None: it is folded to its end


class Folder:
    """Folds jobs from the log and keeps the last ones used. For one thread."""

    def __init__(self, log: Feed, *, size: int = FOLDED_JOBS, recall: Recall | None = None) -> None:
        """Keep the `size` jobs used last; `recall` says how far one is that is not among them."""
        self._log = log
        self._recall = recall
        self._jobs: LRU[str, Job] = LRU(size)

    def go_on(self, job_id: str, records: Sequence[Record]) -> Folded:
        """Return a job after `records`, a run of its events: without a read when what came before them is known or nothing.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        try:
            events = [read(record) for record in records]
            job = fold(events, self._before(job_id, records[0], events))
        except (Unavailable, PermissionDenied):
            raise
        except Exception:  # noqa: BLE001  # whatever it is, it is found again event by event, and parks the job
            return _placed(self.refold(job_id, until=records[-1].version), records)
        self._jobs[job_id] = job
        return Folded(job)

    def refold(self, job_id: str, *, until: int | None = None, without: Collection[int] = ()) -> Folded:
        """Return a job folded from its whole history, or up to version `until`; events `without` are passed over.

        Each event that raises is tried three times.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        records = [one for one in self._log.read_raw(job_id) if until is None or one.version <= until]
        folded = _one_by_one(records, without)
        if not without and folded.poison is None and folded.job.version:
            self._jobs[job_id] = folded.job
        return folded

    def forget(self) -> None:
        """Keep no job any more: the log is another."""
        self._jobs.clear()

    def _before(self, job_id: str, first: Record, events: Sequence[Event]) -> Job:
        """Return the job as of the version before `events`, or later: known, new, or read."""
        job = self._jobs.get(job_id)
        if job is None and self._recall is not None and first.version > 1:
            job = self._recall(job_id)
        if job is not None and _is_of(job, first, events):
            return job
        version = first.version - 1
        return fold(self._log.read(job_id, until=version) if version > 0 else (), job_id=job_id)


class Batch:
    """Records that were read together, job by job; each job is folded when the first view asks for it."""

    def __init__(self, records: Sequence[Record], folder: Folder) -> None:
        self.position = int(records[-1].cursor)  # after the last record
        self.by_job: dict[str, list[Record]] = {}
        for record in records:
            self.by_job.setdefault(record.job_id, []).append(record)
        self._folder = folder
        self._folded: dict[str, Folded] = {}

    def folded(self, job_id: str) -> Folded:
        """Return the job after the batch's events.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        folded = self._folded.get(job_id)
        if folded is None:
            folded = self._folded[job_id] = self._folder.go_on(job_id, self.by_job[job_id])
        return folded


def read(record: Record) -> Event:
    """Return the event in a record.

    Raises:
        Corrupt: it cannot be decoded, is of a type that this version does not know, or of another slot.
    """
    event = codec.decode(record.data)
    if event.version != record.version or event.job_id != record.job_id:
        raise Corrupt(
            f"stored event is of another slot job_id={record.job_id} version={record.version} "
            f"found={event.job_id}#{event.version}"
        )
    return event


def _is_of(job: Job, first: Record, events: Sequence[Event]) -> bool:
    """Tell whether the history goes on from a job, or through it; not so when the log was replaced by an older copy."""
    if job.version == first.version - 1:
        return codec.link(job.chain, codec.unseal(first.data)[0]) == events[0].chain
    return any((job.version, job.chain) == (event.version, event.chain) for event in events)


def _one_by_one(records: Sequence[Record], without: Collection[int]) -> Folded:
    """Fold a whole history up to the first event that cannot be folded in."""
    job = Job(job_id=records[0].job_id) if records else Job(job_id="")
    for record in records:
        if record.version in without:
            job = _passed_over(job, record)
            continue
        for tries_left in reversed(range(TRIES)):
            try:
                job = fold([read(record)], job)
                break
            except Exception as error:  # noqa: BLE001  # whatever it is, the job is parked with it
                if not tries_left:
                    return Folded(job, Poison(record, error))
    return Folded(job)


def _placed(folded: Folded, records: Sequence[Record]) -> Folded:
    """Return it with the poison as it came in the batch, where it did: with its place in the log."""
    if folded.poison is None:
        return folded
    version = folded.poison.record.version
    record = next((one for one in records if one.version == version), folded.poison.record)
    return Folded(folded.job, Poison(record, folded.poison.error))


def _passed_over(job: Job, record: Record) -> Job:
    """Return the job as if the event had changed nothing; its chain goes on where it can be read."""
    try:
        chain = codec.unseal(record.data)[1]
    except Corrupt:
        chain = job.chain
    return msgspec.structs.replace(job, version=record.version, chain=chain)
