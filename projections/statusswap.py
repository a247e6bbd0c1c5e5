"""Swap built statuses in for live ones, and back: what differs is replaced, what the log cannot produce goes, nothing newer is.

Batch by batch: two reads a job; for each that differs a write of what was there, then one of what should be, on the condition
that it is still what was seen.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jobevents import status
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict, Corrupt
from jobevents.log import EventLog
from projections.bulk import Bulk
from projections.statuswriter import CACHE_CONTROL, CONTENT_TYPE, Put, code_of

BATCH = 500  # jobs: of 1 KB each, with what was there and what should be
STATUS = "/status.json"
_TOMBSTONE = "JobDeleted"


class Place(NamedTuple):
    """Where statuses are: each is `{root}{job id}/status.json`."""

    root: str

    def name(self, job_id: str) -> str:
        """Return the name of a job's status."""
        return f"{self.root}{job_id}{STATUS}"

    def job_ids(self, blobs: Blobs) -> Iterator[str]:
        """Yield the jobs that have a status here, in the order of names: one listing."""
        for entry in blobs.list(self.root):
            job_id, slash, rest = entry.name.removeprefix(self.root).partition("/")
            if slash + rest == STATUS:
                yield job_id


class Pair(NamedTuple):
    """A job with what the build has for it and what is live."""

    job_id: str
    built: Blob | None
    live: Blob | None


class StatusSwap:
    """One build's statuses on their way to the live ones."""

    def __init__(self, log: EventLog, blobs: Blobs, bulk: Bulk, *, built: Place, live: Place, kept: Place) -> None:
        """Write nothing yet.

        Args:
            kept: where what is replaced or removed goes.
        """
        self._log = log
        self._blobs = blobs
        self._bulk = bulk
        self._built = built
        self._live = live
        self._kept = kept

    def run(self, job_ids: Iterable[str], position: int, left_alone: frozenset[str]) -> Iterator[tuple[bool, str]]:
        """Bring the jobs in line; yield for each whether the build has it, and the count of `Rebuilt` it falls under.

        Args:
            job_ids: all that are built or live, each once.
            position: place in the log that the build reaches.
            left_alone: jobs whose live status stays as it is.
        """
        deleted = _Deleted(self._log, position)
        ids = iter(job_ids)
        while batch := list(itertools.islice(ids, BATCH)):
            while batch:
                judged = [(pair, self._judge(pair, left_alone)) for pair in self._read(batch)]
                done = self._do([pair for pair, how in judged if how in ("replaced", "removed")])
                ghosts = deleted.among(pair.job_id for pair, how in judged if how == "replaced")
                if ghosts:
                    self._bulk.delete([self._live.name(job_id) for job_id in ghosts])
                batch = []
                for pair, how in judged:
                    if how in ("replaced", "removed") and pair.job_id not in done:
                        batch.append(pair.job_id)  # written by another meanwhile: look again
                    else:
                        yield pair.built is not None, "newer" if pair.job_id in ghosts else how

    def _read(self, job_ids: Sequence[str]) -> list[Pair]:
        names = [place.name(job_id) for job_id in job_ids for place in (self._built, self._live)]
        blobs = self._bulk.get(names)
        return [Pair(job_id, *blobs[2 * n : 2 * n + 2]) for n, job_id in enumerate(job_ids)]

    def _judge(self, pair: Pair, left_alone: frozenset[str]) -> str:
        """Say what is to be done with a job's live status."""
        job_id, built, live = pair
        if live is None:
            return "newer" if built is None else "replaced"
        if job_id in left_alone:
            return "parked"
        if built is not None and live.data == built.data and code_of(live) == code_of(built):
            return "same"
        version = version_in(live)
        if built is None:
            if not version:
                return "foreign"
            end, is_deleted = self._end(job_id)
            return "newer" if end and not is_deleted else "removed"
        if version is None:
            return "replaced"
        if not version:
            return "foreign"
        ours = version_in(built) or 0
        if version > ours:
            return "newer" if version <= self._end(job_id)[0] else "replaced"  # beyond the log's end: not from the log
        return "newer" if version == ours and code_of(live) > code_of(built) else "replaced"

    def _do(self, pairs: Sequence[Pair]) -> set[str]:
        """Keep what goes, then replace or remove it; return the jobs for which that was done, not those written meanwhile."""
        self._put([_put(self._kept.name(job_id), live, ABSENT) for job_id, _, live in pairs if live])  # the first stays
        puts = {
            job_id: _put(self._live.name(job_id), built, live.generation if live else ABSENT)
            for job_id, built, live in pairs
            if built
        }
        generations = self._put(list(puts.values()))
        done = {job_id for job_id, generation in zip(puts, generations, strict=True) if generation is not None}
        for job_id, built, live in pairs:
            if not built and live:
                with contextlib.suppress(Conflict):
                    self._blobs.delete(self._live.name(job_id), if_generation=live.generation)
                    done.add(job_id)
        return done

    def _put(self, puts: Sequence[Put]) -> list[str | None]:
        return self._bulk.put(puts, content_type=CONTENT_TYPE, cache_control=CACHE_CONTROL)

    def put_back(self) -> int:
        """Put back what was kept, but for what the log says is gone and where something newer is; return how many."""
        count = 0
        ids = self._kept.job_ids(self._blobs)
        while batch := list(itertools.islice(ids, BATCH)):
            kept = self._bulk.get(self._kept.name(job_id) for job_id in batch)
            live = self._bulk.get(self._live.name(job_id) for job_id in batch)
            puts = [
                _put(self._live.name(job_id), old, new.generation if new else ABSENT)
                for job_id, old, new in zip(batch, kept, live, strict=True)
                if old is not None and self._may_return(job_id, old, new)
            ]
            count += sum(generation is not None for generation in self._put(puts))
        return count

    def _may_return(self, job_id: str, old: Blob, live: Blob | None) -> bool:
        version = version_in(old) or 0
        if live is not None and (version_in(live) or 0) > version:
            return False
        end, is_deleted = self._end(job_id)
        return not is_deleted and (version <= end or not end)

    def _end(self, job_id: str) -> tuple[int, bool]:
        """Return the version at which a job's history ends, 0 for none, and whether that is its tombstone; decodes nothing."""
        records = self._log.read_raw(job_id)
        return (records[-1].version, records[-1].type == _TOMBSTONE) if records else (0, False)


class _Deleted:
    """The jobs deleted after a position: one read of the log for each look, of what came since the last."""

    def __init__(self, log: EventLog, position: int) -> None:
        self._log = log
        self._cursor = str(position)
        self._job_ids: set[str] = set()

    def among(self, job_ids: Iterable[str]) -> set[str]:
        """Return those that are deleted by now; of a log without one order, by a read of each."""
        if not self._log.ordered:
            return {job_id for job_id in job_ids if self._is_deleted(job_id)}
        for record in self._log.scan(self._cursor):
            self._cursor = record.cursor
            if record.type == _TOMBSTONE:
                self._job_ids.add(record.job_id)
        return self._job_ids.intersection(job_ids)

    def _is_deleted(self, job_id: str) -> bool:
        records = self._log.read_raw(job_id)
        return bool(records) and records[-1].type == _TOMBSTONE


def version_in(blob: Blob) -> int | None:
    """Return the version in a status; 0 when it did not come from the log, None when it is no status at all."""
    try:
        found = status.decode(blob.data)
    except Corrupt:
        return None
    return found.version if found.version or found.state else None


def _put(name: str, blob: Blob, generation: str) -> Put:
    return name, blob.data, generation, blob.metadata
