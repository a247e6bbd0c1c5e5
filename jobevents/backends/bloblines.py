"""Log lines of runs as objects: a chunk for each batch, `joblogs/v1/{hh}/{job}/{start}-{first line}.ndjson`, created once.

A repeated batch meets its own chunk, and writes what is not there yet. A worker writes its own start's lines alone, so that
after the first batch, which looks what is there, each costs one request.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import NamedTuple

import msgspec
from lru import LRU

from jobevents.backends.blobnames import ChunkPlace, Names
from jobevents.backends.fan import Fan
from jobevents.blobs import ABSENT, Blobs
from jobevents.boundary import check_instant
from jobevents.errors import Conflict, Corrupt, NotFound
from jobevents.job import DELETED, Job
from jobevents.joblogs import LINES_PER_START
from jobevents.store import Cutoff, JobLog

KNOWN = 16_384  # chunks and starts of which the last line is remembered, 0.2 KiB each
_CONTENT_TYPE = "application/x-ndjson; charset=utf-8"

_decode = msgspec.json.Decoder(JobLog).decode
_encode = msgspec.json.Encoder().encode


class _Chunk(NamedTuple):
    """A stored chunk."""

    name: str
    place: ChunkPlace
    generation: str

    @property
    def first(self) -> int:
        """Number of its first line in the run."""
        return self.place.start * LINES_PER_START + self.place.first


class BlobRunLogs:
    """The lines of a log's runs: a LogTable. Safe for threads; it takes part in appends, as what is deleted takes its lines."""

    def __init__(
        self,
        blobs: Blobs,
        names: Names,
        fan: Fan,
        *,
        load: Callable[[str], Job],
        cached: Callable[[str], Job | None],
    ) -> None:
        """Ask `load` how a run is in the log, and `cached`, for nothing, how it was when this process last saw it."""
        self._blobs = blobs
        self._names = names
        self._fan = fan
        self._load = load
        self._cached = cached
        self._ends: LRU[tuple[str, int], int] = LRU(KNOWN)  # (run, start) -> last line that this process wrote
        self._lasts: LRU[tuple[str, str], int] = LRU(KNOWN)  # (name, generation) of a chunk -> its last line

    # as a LogTable

    def append_logs(self, entries: Sequence[JobLog]) -> None:
        """Store lines; see `LogTable.append_logs`. One object for each run and start; those of one are there or are not."""
        lines = [msgspec.structs.replace(line, at=check_instant("at", line.at)) for line in entries]
        lines.sort(key=lambda line: (line.run_id, line.seq))
        for (run_id, start), own in groupby(lines, key=lambda line: (line.run_id, line.seq // LINES_PER_START)):
            self._append(run_id, start, list(own))

    def logs(self, job_id: str, after_seq: int = 0, limit: int = 0) -> list[JobLog]:
        """Return lines, ascending; see `LogTable.logs`. A list, and a read for each chunk that may have some."""
        chunks = self._chunks(job_id, after_seq // LINES_PER_START)
        wanted = [
            chunk for chunk in chunks if self._lasts.get((chunk.name, chunk.generation), after_seq + 1) > after_seq
        ]
        lines: list[JobLog] = []
        for _, own in groupby(wanted, key=lambda chunk: chunk.place.start):
            found = {line.seq: line for part in self._fan.map(self._read, own) for line in part if line.seq > after_seq}
            lines += [found[seq] for seq in sorted(found)]
            if 0 < limit <= len(lines):
                return lines[:limit]
        return lines

    # in an append

    def before(self, jobs: Sequence[Job], events: object) -> Callable[[], None]:
        """Need nothing."""
        return _nothing

    def after(self, jobs: Sequence[Job]) -> None:
        """Remove the lines of jobs that were deleted."""
        deleted = [job.job_id for job in jobs if job.state == DELETED]
        chunks = chain.from_iterable(self._fan.map(lambda job_id: self._chunks(job_id, 0), deleted))
        self._fan.map(lambda chunk: self._blobs.delete(chunk.name), chunks)

    # of old age

    def drop_old(self, cutoff: Cutoff, *, after: tuple[str, int], limit: int) -> tuple[str, int] | None:
        """Look at the next chunks; see `Retention.drop_lines`, whose limit is one of chunks here."""
        job_id, seq = after
        at = self._names.chunk(ChunkPlace(job_id, *divmod(seq, LINES_PER_START))) if job_id else ""
        looked = 0
        for chunk in self._listed(self._names.lines, at):
            if chunk.name == at:
                continue
            self._drop_of(chunk, cutoff)
            looked += 1
            if looked == limit:
                return chunk.place.job_id, chunk.first
        return None

    def _drop_of(self, chunk: _Chunk, cutoff: Cutoff) -> None:
        """Remove a chunk, or the old ones of its lines."""
        before = self._cutoff_of(chunk.place.job_id, cutoff)
        if before is None:
            return
        lines = self._read(chunk)
        kept = [line for line in lines if line.at >= before]
        if len(kept) == len(lines):
            return
        if kept:
            self._blobs.put(chunk.name, _bytes(kept), if_generation=chunk.generation, content_type=_CONTENT_TYPE)
        else:
            self._blobs.delete(chunk.name, if_generation=chunk.generation)

    def _cutoff_of(self, job_id: str, cutoff: Cutoff) -> datetime | None:
        """Return before which time a run's lines are old; None while it has not finished."""
        job = self._load(job_id)
        if not job.version or job.state == DELETED:
            return cutoff.before
        return cutoff.of(job.name) if job.is_final() else None

    # one start

    def _append(self, run_id: str, start: int, lines: list[JobLog]) -> None:
        known = self._ends.get((run_id, start))
        if self._is_deleted(run_id, ask=known is None):
            return
        last = lines[-1].seq
        if known is None or lines[0].seq <= known:
            there = [line for chunk in self._chunks(run_id, start, start) for line in self._read(chunk)]
            lines = _without(lines, there)
        while lines:
            place = ChunkPlace(run_id, *divmod(lines[0].seq, LINES_PER_START))
            name = self._names.chunk(place)
            try:
                self._blobs.put(name, _bytes(lines), if_generation=ABSENT, content_type=_CONTENT_TYPE)
            except Conflict as conflict:  # a batch of ours whose reply was lost, or another's that begins alike
                there = self._read(_Chunk(name, place, ""))
                left = _without(lines, there)
                if there and left == lines:
                    raise Corrupt(f"chunk does not begin with the line of its name name={name!r}") from conflict
                lines = left
            else:
                break
        self._ends[run_id, start] = max(last, known or 0)

    def _is_deleted(self, run_id: str, *, ask: bool) -> bool:
        job = self._cached(run_id)
        if ask and (job is None or job.state != DELETED):
            job = self._load(run_id)
        return job is not None and job.state == DELETED

    def _chunks(self, job_id: str, since: int, until: int | None = None) -> list[_Chunk]:
        """Return the chunks of a run's starts, in order: one list."""
        at = self._names.chunk(ChunkPlace(job_id, since, 0))
        found = self._listed(self._names.lines_of(job_id), at)
        return [chunk for chunk in found if until is None or chunk.place.start <= until]

    def _listed(self, prefix: str, start: str) -> Iterator[_Chunk]:
        for entry in self._blobs.list(prefix, start=start):
            place = self._names.chunk_place(entry.name)
            if place is not None:
                yield _Chunk(entry.name, place, entry.generation)

    def _read(self, chunk: _Chunk) -> list[JobLog]:
        """Return a chunk's lines; none when it was removed meanwhile."""
        try:
            blob = self._blobs.get(chunk.name)
        except NotFound:
            return []
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            lines = [_decode(line) for line in blob.data.splitlines()]
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise Corrupt(f"log lines cannot be read name={chunk.name!r} error={error}") from error
        if lines:
            self._lasts[chunk.name, blob.generation] = max(line.seq for line in lines)
        return lines


def _nothing() -> None:
    """Give nothing back."""


def _bytes(lines: Iterable[JobLog]) -> bytes:
    return b"".join(_encode(line) + b"\n" for line in lines)


def _without(lines: Iterable[JobLog], there: Iterable[JobLog]) -> list[JobLog]:
    """Return the lines whose number is not there; of two with one number, the first."""
    known = {line.seq for line in there}
    return [line for line in lines if not (line.seq in known or known.add(line.seq))]  # type: ignore[func-returns-value]
