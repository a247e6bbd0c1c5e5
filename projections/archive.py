"""The archive: histories of final jobs in Parquet segments, and a chain of manifests that says which segments there are.

`segments/v1/dt={date}/….parquet` hold whole histories, by the day on which they ended; a job that was run again has its later
events in a later segment. `segments/v1/manifest/{n}.json` are written once each, never over another, and each names the hash of
the one before: what was archived can be added to by any process, and be taken away by nobody unseen. The archive may be deleted
and made again. On a log of objects it is what makes reading all of history cheap: one read a segment, not one an event.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC
from hashlib import blake2b
from itertools import groupby

import msgspec

from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Conflict, Corrupt, NotFound
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.log import EventLog, Record
from projections.folding import read
from projections.heights import Heights
from projections.segments import Segment, describe, digest_of, heads, pack, unpack

SEGMENT_EVENTS = 50_000  # at which segments are written: some 20 MB in memory, 3 MB packed
_FIRST = (b"", 0)  # before every place
_TRIES = 10  # each lost to another process that archived meanwhile

OnProgress = Callable[[int, int], None]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One manifest."""

    n: int  # 1, 2, 3 ... without holes
    before: str  # hash of the manifest before; "" of the first
    added: list[Segment]
    removed: list[str] = []  # names of segments that are out of use: rewritten without what was erased


class Archived(msgspec.Struct):
    """What came of archiving."""

    segments: int = 0  # written
    jobs: int = 0
    events: int = 0
    unreadable: int = 0  # jobs left in the log, since they cannot be folded


class Archive:
    """The segments of one log, below its prefix. For one thread; any number of processes."""

    def __init__(self, blobs: Blobs, prefix: str = "") -> None:
        """Read and write below a prefix."""
        self._blobs = blobs
        self._root = f"{prefix}/segments/v1/" if prefix else "segments/v1/"

    def links(self) -> list[Link]:
        """Return the manifests, in order: one read each, and a list.

        Raises:
            Corrupt: one is missing, or is not the one that the next one names.
        """
        found: list[Link] = []
        before = ""
        for entry in self._blobs.list(f"{self._root}manifest/"):
            data = self._get(entry.name)
            try:
                link = msgspec.json.decode(data, type=Link)
            except msgspec.MsgspecError as error:
                raise Corrupt(f"manifest of the archive cannot be read name={entry.name} cause={error}") from error
            if link.n != len(found) + 1 or link.before != before:
                raise Corrupt(f"manifests of the archive are no chain name={entry.name} expected n={len(found) + 1}")
            found.append(link)
            before = _hash(data)
        return found

    def segments(self) -> list[Segment]:
        """Return the segments in use. Raises: as `links`."""
        found: dict[str, Segment] = {}
        for link in self.links():
            for name in link.removed:
                found.pop(name, None)
            found.update((segment.name, segment) for segment in link.added)
        return list(found.values())

    def read(self, segment: Segment) -> list[Record]:
        """Return a segment's events.

        Raises:
            Corrupt: it is missing, cannot be read, or does not hold what the manifest says.
        """
        records = list(unpack(self._get(self._root + segment.name), segment.name))
        if len(records) != segment.events or digest_of(records) != segment.digest:
            raise Corrupt(f"segment is not what the manifest says segment={segment.name} events={len(records)}")
        return records

    def extend(
        self, log: EventLog, *, events: int = SEGMENT_EVENTS, on_progress: OnProgress = lambda _, __: None
    ) -> Archived:
        """Archive the jobs that are final, and what was added to those that are archived and are final again; none deleted.

        Repeatable; what a crash leaves are segments that no manifest names, which the next run writes again.

        Raises:
            Conflict: others archive all the time. Unavailable, PermissionDenied, Corrupt: what a store says.
        """
        done = Archived()
        with Heights() as known:
            for segment in self.segments():
                known.add(heads(self._get(self._root + segment.name), segment.name))
            waiting: list[Record] = []
            for job_id, group in groupby(log.by_job(after=known.version), key=_job_id):
                records = list(group)
                if not self._is_final(log, records, known.version(job_id), done):
                    continue
                waiting += records
                done.jobs += 1
                if len(waiting) >= events:
                    self._add(waiting, done)
                    on_progress(done.events, 0)
                    waiting = []
            self._add(waiting, done)
        return done

    def _is_final(self, log: EventLog, records: list[Record], archived: int, done: Archived) -> bool:
        try:
            whole = records if not archived else log.read_raw(records[0].job_id)
            job = fold(map(read, whole))
        except Exception:  # noqa: BLE001  # whatever it is, verify names it: such a history stays where it is
            done.unreadable += 1
            return False
        return job.is_final()  # what was deleted may be about to be erased

    def _add(self, records: list[Record], done: Archived) -> None:
        if not records:
            return
        added = [self._write(date, group) for date, group in sorted(_by_date(records).items())]
        self._link(added, [])
        done.segments += len(added)
        done.events += len(records)

    def _write(self, date: str, records: Sequence[Record]) -> Segment:
        digest = digest_of(records)
        data = pack(records)
        name = f"dt={date}/{digest[:24]}.parquet"
        try:
            self._blobs.put(
                self._root + name, data, if_generation=ABSENT, content_type="application/vnd.apache.parquet"
            )
        except Conflict:  # a run that was cut short wrote the same events
            if digest_of(unpack(self._get(self._root + name), name)) != digest:
                raise
        return describe(records, name, digest)

    def _link(self, added: list[Segment], removed: list[str]) -> None:
        """Write the next manifest.

        Raises:
            Conflict: others write all the time; or another process has archived the same.
        """
        for _ in range(_TRIES):
            links = self.links()
            known = {segment.name for link in links for segment in link.added}
            fresh = [segment for segment in added if segment.name not in known]
            if not fresh and not removed:
                return
            before = _hash(self._get(self._name(len(links)))) if links else ""
            link = Link(n=len(links) + 1, before=before, added=fresh, removed=removed)
            try:
                self._blobs.put(
                    self._name(link.n),
                    msgspec.json.encode(link),
                    if_generation=ABSENT,
                    content_type="application/json",
                )
            except Conflict:
                continue
            return
        raise Conflict(f"the archive is written all the time name={self._root}")

    def forget(self, job_ids: Collection[str]) -> int:
        """Rewrite the segments that hold events of these jobs, without them, for good; return how many events went.

        For an erasure, after the log's own events are gone.

        Raises:
            Conflict: others archive all the time. Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        gone = 0
        for segment in self._that_may_hold(job_ids):
            records = self.read(segment)
            kept = [one for one in records if one.job_id not in job_ids]
            if len(kept) == len(records):
                continue
            date = segment.name.partition("/")[0].removeprefix("dt=")
            self._link([self._write(date, kept)] if kept else [], [segment.name])
            self._blobs.delete(self._root + segment.name)
            gone += len(records) - len(kept)
        return gone

    def count(self, job_ids: Collection[str]) -> int:
        """Return how many events of these jobs are archived. Raises: as `read`."""
        return sum(one.job_id in job_ids for segment in self._that_may_hold(job_ids) for one in self.read(segment))

    def _that_may_hold(self, job_ids: Collection[str]) -> list[Segment]:
        wanted = [job_id.encode() for job_id in job_ids]
        return [
            segment
            for segment in self.segments()
            if any(segment.first.encode() <= job_id <= segment.last.encode() for job_id in wanted)
        ]

    def histories(self, log: EventLog) -> Iterator[Record]:
        """Yield every job's events, one job after the other, by version: from the segments, and the log where it goes on.

        Jobs come in the order of their ids' UTF-8 bytes. What the archive has is not read from the log. Memory is bounded by
        the segments that are open at once: those whose jobs lie about each other's, few where ids begin with a time.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the stores say.
        """
        with Heights() as known:
            segments = self.segments()
            for segment in segments:
                known.add(heads(self._get(self._root + segment.name), segment.name))
            last = ("", 0)
            for record in self._merged(segments, log.by_job(after=known.version)):
                place = (record.job_id, record.version)
                if place != last:  # two processes that archived the same at once
                    yield record
                last = place

    def _merged(self, segments: Iterable[Segment], tail: Iterator[Record]) -> Iterator[Record]:
        """Yield all in order; a segment is opened when its first job's turn has come."""
        waiting: list[tuple[tuple[bytes, int], int, Record | None, Iterator[Record]]] = []
        for number, stream in enumerate([tail, *map(self._opened, segments)]):
            waiting.append((_FIRST, number, None, stream))
        for number, segment in enumerate(segments, 1):
            waiting[number] = ((segment.first.encode(), 0), number, None, waiting[number][3])
        heapq.heapify(waiting)
        while waiting:
            _, number, record, stream = waiting[0]
            if record is not None:
                yield record
            following = next(stream, None)
            if following is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (_place(following), number, following, stream))

    def _opened(self, segment: Segment) -> Iterator[Record]:
        yield from unpack(self._get(self._root + segment.name), segment.name)

    def _name(self, n: int) -> str:
        return f"{self._root}manifest/{n:010}.json"

    def _get(self, name: str) -> bytes:
        try:
            blob = self._blobs.get(name)
        except NotFound as error:
            raise Corrupt(f"a part of the archive is missing name={name}") from error
        assert blob is not None  # noqa: S101  # no generation was given
        return blob.data


def histories(jobs: Jobs) -> Iterator[Record]:
    """Yield every job's events, one job after the other, from wherever that is cheapest.

    A log in a database is read itself; one of objects from its archive, and from the log where it goes on.

    Raises:
        Unavailable, PermissionDenied, Corrupt: what the stores say.
    """
    if jobs.log.ordered:
        return jobs.log.by_job()
    return Archive(jobs.blobs, jobs.prefix).histories(jobs.log)


def _by_date(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the events by the day, in UTC, on which the last of their job was written."""
    found: dict[str, list[Record]] = {}
    for _, group in groupby(records, key=_job_id):
        own = list(group)
        found.setdefault(own[-1].event().at.astimezone(UTC).date().isoformat(), []).extend(own)
    return found


def _job_id(record: Record) -> str:
    return record.job_id


def _place(record: Record) -> tuple[bytes, int]:
    return record.job_id.encode(), record.version


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()
