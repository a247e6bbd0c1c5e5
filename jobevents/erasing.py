"""Erasing a job: nothing that it said is left, in the log or beside it, and it never comes back.

Its tombstone stays, with its version and chain, so that a late worker is refused and a proof holds. In this order, each step
repeatable: the tombstone, the mark of the erasure, the events below it and what else the log has, the blobs, the bytes in
the storage.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec

from jobevents import codec, commands
from jobevents.blobs import Blobs
from jobevents.emit import By, Emitter
from jobevents.erasure import Erased, Eraser
from jobevents.errors import Misconfigured, NotFound
from jobevents.log import EventLog, Record
from jobevents.store import LogTable

Remains: TypeAlias = Callable[[str], Iterable[tuple[str, str]]]
"""The blobs that are there of a job beside the log: (what they are, name of one)."""

NOT_REACHED = (
    "what has left this system is not reached: messages on a bus and with its subscribers, exports, backups, "
    "what other processes hold in memory until they end"
)


class Receipt(msgspec.Struct, kw_only=True):
    """What was removed of a job, or would be."""

    job_id: str
    is_done: bool = False  # False: a dry run, or the events wait for `ripe_at`
    tombstone: int = 0  # version of the event that stays; 0: it is to be written yet
    chain: str = ""  # chain hash of the last event below it, from which it goes on
    events: int = 0  # below the tombstone
    lines: int = 0  # of the job's log
    blobs: dict[str, int] = {}  # what -> how many
    archived: int = 0  # events in segments of the archive, which are written anew without them
    at: datetime | None = None  # when it was asked for first
    actor: str = ""
    reason: str = ""
    ripe_at: datetime | None = None  # when the events may be taken out; ask again then
    notes: list[str] = []  # what is left to others


class Copies(Protocol):
    """Copies of many jobs' events, such as an archive's."""

    def count(self, job_ids: Collection[str]) -> int:
        """Return how many events of these jobs are there."""
        ...

    def forget(self, job_ids: Collection[str]) -> int:
        """Take them out for good; repeatable."""
        ...


class Erasing(msgspec.Struct, frozen=True):
    """What an erasure works on."""

    emitter: Emitter
    run_logs: LogTable
    blobs: Blobs
    remains: Remains
    copies: Copies | None = None  # None: there are none

    @property
    def eraser(self) -> Eraser:
        """The log's.

        Raises:
            Misconfigured: it has none.
        """
        return eraser_of(self.emitter.log)

    def look(self, job_id: str) -> Receipt:
        """Return what an erasure would remove; nothing is written.

        Raises:
            NotFound: there never was such a job.
        """
        records = self._records(job_id)
        known = self.eraser.record(job_id)
        is_deleted = records[-1].type == codec.TOMBSTONE
        return Receipt(
            job_id=job_id,
            tombstone=records[-1].version if is_deleted else 0,
            chain=known.chain if known else "",
            events=len(records) - is_deleted,
            lines=len(self.run_logs.logs(job_id)),
            blobs=_counted(self.remains(job_id)),
            archived=self.copies.count([job_id]) if self.copies else 0,
            at=known.at if known else None,
            actor=known.actor if known else "",
            reason=known.reason if known else "",
        )

    def erase(self, job_id: str, by: By, *, scrub: bool = True) -> Receipt:
        """Erase a job, also one that was deleted before; repeatable, and to be repeated after a crash.

        Args:
            scrub: take it out of copies, and make the bytes unreadable in the storage too; else both are to be done once for
                several jobs.

        Raises:
            NotFound: there never was such a job.
            Corrupt: its history cannot be read, so that no tombstone can be written.
            Unavailable, AppendUnknown, PermissionDenied: what the stores say; ask again.
        """
        receipt = self.look(job_id)
        commands.delete(self.emitter, job_id, by, artifacts=True)
        records = self._records(job_id)
        asked = Erased(
            job_id,
            records[-1].version,
            receipt.chain or (codec.unseal(records[-2].data)[1] if len(records) > 1 else ""),
            receipt.at or self.emitter.clock(),
            receipt.actor or by.actor,
            receipt.reason or by.reason,
        )
        wait_s = self.eraser.wait_s(job_id)  # asked before: what was not ripe then may have been left
        self.eraser.erase(asked)
        for _, name in list(self.remains(job_id)):
            self.blobs.delete(name)
        receipt.is_done = not wait_s
        receipt.ripe_at = self.emitter.clock() + timedelta(seconds=wait_s) if wait_s else None
        receipt.tombstone, receipt.chain = asked.version, asked.chain
        receipt.at, receipt.actor, receipt.reason = asked.at, asked.actor, asked.reason
        receipt.notes = [*(self.scrub([job_id]) if scrub else []), NOT_REACHED]
        return receipt

    def scrub(self, job_ids: Collection[str]) -> list[str]:
        """Take jobs out of copies, and make what was taken out unreadable in the storage; return what is left to others."""
        if self.copies is not None:
            self.copies.forget(job_ids)
        beside: Callable[[], list[str]] | None = getattr(self.blobs, "scrub", None)
        return [*self.eraser.scrub(), *(beside() if beside else [])]

    def _records(self, job_id: str) -> list[Record]:
        records = self.emitter.log.read_raw(job_id)
        if not records:
            raise NotFound(f"no such job job_id={job_id}")
        return records


def eraser_of(log: EventLog) -> Eraser:
    """Return what takes events out of a log.

    Raises:
        Misconfigured: it has none.
    """
    eraser: Eraser | None = getattr(log.recorder, "eraser", None)
    if eraser is None:
        raise Misconfigured("this log cannot take events out: erase where it is kept")
    return eraser


def _counted(found: Iterable[tuple[str, str]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for what, _ in found:
        counts[what] = counts.get(what, 0) + 1
    return counts
