"""What is held against the log: the rows, the statuses and the index. Each check reads, and says what is not as it should be.

A view may be behind the log, as far as it says itself; what it says that it has, it must have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from jobevents.blobs import Blob, Blobs
from jobevents.errors import Corrupt, NotFound
from jobevents.job import DELETED, Job
from jobevents.jobs import Jobs
from jobevents.log import EventLog
from jobevents.records import status_bytes
from jobevents.store import JobRun, RunFilter, run_of
from projections.bulk import Bulk
from projections.chunks import Chunks
from projections.ledger import ABSENT, UNKNOWN, Entry, Ledger
from projections.manifest import ALL, LETTERS, ManifestBlob, root_of, sequence_of
from projections.parked import list_parked
from projections.positions import Positions
from projections.proof import Flaw, Proof, chain_of
from projections.reach import Reach, read_reach
from projections.statusswap import Place, version_in

PAGE = 1000  # rows in one read


class Checked(msgspec.Struct):
    """What one check came to."""

    name: str
    of: str  # what was looked at, for people: jobs, rows, statuses, entries
    looked_at: int = 0
    behind: int = 0  # not there yet, and not said to be
    flaws: int = 0
    note: str = ""  # why less was looked at than one might think


class Check(Protocol):
    """Something that is made from the log, and has to be as the log says."""

    checked: Checked  # counts `looked_at` and `behind`
    is_view: bool  # written after the log: what it has not yet is looked at once more in the end

    def begin(self, ledger: Ledger) -> None:
        """Read what has to be read before the log is."""
        ...

    def examine(self, proofs: Sequence[Proof]) -> Iterable[Flaw]:
        """Look at some jobs; each comes once, and a second time if something was found."""
        ...

    def finish(self, ledger: Ledger, *, whole: bool) -> Iterable[Flaw]:
        """Look at what needs all jobs at once; `whole`: all were looked at, not only some."""
        ...


class RowCheck:
    """The table of runs: a row for each job that is not deleted, as its history folds."""

    is_view = True

    def __init__(self, jobs: Jobs) -> None:
        self.checked = Checked("rows", "rows")
        self._jobs = jobs

    def begin(self, ledger: Ledger) -> None:
        """Nothing is needed."""

    def examine(self, proofs: Sequence[Proof]) -> Iterator[Flaw]:
        """Hold each job's row against the fold: one read a job."""
        proofs = [proof for proof in proofs if proof.job is not None]
        rows = map(self._jobs.runs.get, [proof.job_id for proof in proofs])
        for proof, row in zip(proofs, rows, strict=True):
            assert proof.job is not None  # noqa: S101  # chosen so
            self.checked.looked_at += row is not None
            kind, said = _row_differs(proof.job, row)
            if kind:
                yield Flaw("rows", kind, said, proof.job_id, proof.version)

    def finish(self, ledger: Ledger, *, whole: bool) -> Iterator[Flaw]:
        """Find rows of jobs that the log does not know, if there are more than there should be."""
        if not whole or self._jobs.runs.list(RunFilter(per_page=1)).total <= self.checked.looked_at:
            return
        for row in _all_rows(self._jobs):
            if not ledger.knows(row.id) and not self._jobs.log.read_raw(row.id):
                yield Flaw("rows", "stray", "there is a row of a job that the log does not know", row.id)


def _row_differs(job: Job, row: JobRun | None) -> tuple[str, str]:
    if job.state == DELETED:
        return ("stray", "its row is there, and the log says it is deleted") if row is not None else ("", "")
    if row is None:
        return "absent", f"it has no row; the log says {job.state} (#{job.version})"
    expected = run_of(job)
    if row == expected:
        return "", ""
    fields = [name for name in row.__struct_fields__ if getattr(row, name) != getattr(expected, name)]
    says = f"its row says {row.status}, " if row.status != job.state else ""
    return "differs", f"{says}the log says {job.state} (#{job.version}); other than the log: {', '.join(fields)}"


def _all_rows(jobs: Jobs) -> Iterator[JobRun]:
    census = jobs.desk.census if jobs.desk is not None else None
    if census is None:
        yield from jobs.runs.list(RunFilter(per_page=0)).runs
        return
    rows: Sequence[JobRun] = census.after(RunFilter(), "", PAGE)
    while rows:
        yield from rows
        rows = census.after(RunFilter(), rows[-1].id, PAGE)


class StatusCheck:
    """`status.json` of each job: byte for byte what its history folds to, at the version that it says."""

    is_view = True

    def __init__(self, log: EventLog, blobs: Blobs, prefix: str, bulk: Bulk, positions: Positions | None) -> None:
        """Look at the statuses below a prefix.

        Args:
            positions: how far a projector says that all statuses are stored; None: the log has no one order, and it says
                through which time.
        """
        self.checked = Checked("status", "statuses")
        self._log = log
        self._blobs = blobs
        self._live = Place(f"{prefix}/jobs/" if prefix else "jobs/")
        self._positions = positions
        self._reach = Reach()
        self._bulk = bulk
        self._prefix = prefix
        self._parked: Mapping[str, str] = {}
        self._is_kept = False

    def begin(self, ledger: Ledger) -> None:
        """See whether there are statuses, how far they are, and which jobs are parked."""
        self._reach = self._read_reach()
        self._is_kept = self._reach.is_said or next(self._live.job_ids(self._blobs), None) is not None
        if not self._is_kept:
            self.checked.note = "no status was ever written; jobevents project writes them"
        entries = list_parked(self._blobs, self._prefix, "status")
        self._parked = {entry.parked.job_id: entry.parked.status for entry in entries}

    def examine(self, proofs: Sequence[Proof]) -> Iterator[Flaw]:
        """Hold each job's status against the fold: one read a job, many at once."""
        if not self._is_kept:
            return
        if not self._reach.is_said and any(proof.owed is not None for proof in proofs):
            self._reach = self._read_reach()  # a second look: a projector may have begun meanwhile
        blobs = self._bulk.get([self._live.name(proof.job_id) for proof in proofs])
        for proof, blob in zip(proofs, blobs, strict=True):
            self.checked.looked_at += blob is not None
            kind, said = self._differs(proof, blob)
            if kind == "waits":
                self.checked.behind += 1
            elif kind:
                yield Flaw("status", kind, said, proof.job_id, proof.version)

    def _differs(self, proof: Proof, blob: Blob | None) -> tuple[str, str]:
        job = proof.job
        standing = self._parked.get(proof.job_id)
        if standing is not None and standing != "discarded":
            return "parked", f"its status stands still: an event is {standing}; see: jobevents parked list"
        if job is None or standing:  # the log's own flaw; or a person had an event passed over
            return "", ""
        if blob is not None and job.state != DELETED and blob.data == status_bytes(job):
            return _of_another_history(proof, blob, proof.version)
        owed = self._reach.owed(proof)
        if blob is None:
            if not owed or self._is_gone_at(proof, owed):
                return ("", "") if job.state == DELETED else ("waits", "")
            return ("", "") if job.state == DELETED else ("absent", f"it has no status; the log says {_at(job)}")
        version = version_in(blob)
        if version is None:
            return "unreadable", "its status cannot be read"
        if not version:
            if not owed:
                return "waits", ""
            return "foreign", f"its status is another service's, not taken in yet; the log says {_at(job)}"
        if self._is_gone_at(proof, proof.version):
            return (
                ("waits", "")
                if owed < proof.version
                else ("stray", "its status is there, and the log says it is deleted")
            )
        if version > proof.version:
            return "ahead", f"its status is of #{version}, and the log ends with #{proof.version}: events are missing"
        return self._content_differs(proof, blob, version, owed)

    def _content_differs(self, proof: Proof, blob: Blob, version: int, owed: int) -> tuple[str, str]:
        then = proof.at(version)
        assert then is not None  # noqa: S101  # the whole history was folded
        kind, said = _of_another_history(proof, blob, version)
        if kind:
            return kind, said
        if then.state == DELETED or blob.data != status_bytes(then):
            return "differs", f"its status of #{version} is not what the log says: {_parts(blob.data, then)}"
        if version >= owed:
            return ("waits", "") if version < proof.version else ("", "")
        events = proof.version - version
        behind = "an event" if events == 1 else f"{events} events"
        assert proof.job is not None  # noqa: S101  # as above
        return "behind", f"its status is {behind} behind: it says {_at(then)}, the log says {_at(proof.job)}"

    def _read_reach(self) -> Reach:
        return read_reach(self._blobs, self._prefix, "status", self._positions)

    def _is_gone_at(self, proof: Proof, version: int) -> bool:
        job = proof.at(version)
        return job is not None and job.state == DELETED

    def finish(self, ledger: Ledger, *, whole: bool) -> Iterator[Flaw]:
        """Find statuses of jobs that the log does not know; one without a version is another service's, to be imported."""
        if not whole or not self._is_kept:
            return
        foreign = 0
        for job_id in self._live.job_ids(self._blobs):
            if ledger.knows(job_id) or self._log.read_raw(job_id):
                continue
            blob = self._bulk.get([self._live.name(job_id)])[0]
            if blob is not None and version_in(blob) == 0:
                foreign += 1
            elif blob is not None:
                yield Flaw("status", "stray", "there is a status of a job that the log does not know", job_id)
        if foreign:
            self.checked.note = f"{foreign:,} of other services beside them; jobevents import takes them in"


class IndexCheck:
    """The sorted index: the set of jobs and their states, at the place in the log that it says."""

    is_view = False  # it is read before the log, and held against the log of that place

    def __init__(self, log: EventLog, blobs: Blobs, prefix: str) -> None:
        """Look at the index below a prefix; of a log without one order it may be anywhere from its reach to the end."""
        self.checked = Checked("index", "entries")
        self._manifest = ManifestBlob(blobs, f"{root_of(prefix)}MANIFEST.json")
        self._chunks = Chunks(blobs, f"{root_of(prefix)}chunk/", cached=1)
        self._blobs = blobs
        self._prefix = prefix
        self._log = log
        self._head: int | None = None  # place of the log's last event, read after the index was
        self._reach = Reach()
        self._is_kept = False
        self._broken = ""  # why it cannot be read
        self._stopped: frozenset[str] = frozenset()  # parked, or an event of theirs was passed over
        self.position = 0

    def begin(self, ledger: Ledger) -> None:
        """Read the whole index into the ledger: a read for each chunk."""
        if not self._log.ordered:
            self._reach = read_reach(self._blobs, self._prefix, "index", None)
        try:
            self._enter_newest(ledger)
        except (Corrupt, NotFound) as error:
            ledger.forget_entries()
            self._broken, self.position = str(error), 0
        self._head = int(self._log.last_cursor() or 0) if self._log.ordered else None
        self._is_kept = bool(self.position)
        if not self._is_kept and not self._broken:
            self.checked.note = "there is no index yet; jobevents project keeps one"
        self._stopped = frozenset(one.parked.job_id for one in list_parked(self._blobs, self._prefix, "index"))

    def _enter_newest(self, ledger: Ledger) -> None:
        try:
            self._enter(ledger)
        except NotFound:  # a chunk was collected since the manifest was read: a newer one is there
            self._enter(ledger)

    def _enter(self, ledger: Ledger) -> None:
        ledger.forget_entries()
        manifest = self._manifest.load().manifest
        self.position, self.checked.looked_at = manifest.position, 0
        for name, refs in manifest.sequences.items():
            for ref in refs:
                chunk = self._chunks.get(ref)
                letters = chunk.states or LETTERS.get(name, "?") * len(chunk.ids)
                ledger.add_entries(map(partial(Entry, name), chunk.ids, letters))
                self.checked.looked_at += len(chunk.ids) if name == ALL else 0

    def examine(self, proofs: Sequence[Proof]) -> Iterable[Flaw]:
        """Nothing is held against the index one by one."""
        return ()

    def letters(self, proof: Proof) -> str:
        """Return what the index may say of a job, best first; ABSENT for nothing, UNKNOWN if that cannot be told."""
        if not self._is_kept:
            return ABSENT
        if self._head is not None:
            return self._letter(proof, proof.version_at(self.position))
        versions = range(proof.version, self._reach.owed(proof) - 1, -1)
        return "".join(dict.fromkeys(self._letter(proof, version) for version in versions))

    def _letter(self, proof: Proof, version: int) -> str:
        job = proof.at(version) if version else None
        if job is None:
            was_there = proof.records[0].version > 1  # what of it was erased, at that place or not
            return UNKNOWN if version or was_there else ABSENT
        return ABSENT if job.state == DELETED else LETTERS[sequence_of(job.state)]

    def finish(self, ledger: Ledger, *, whole: bool) -> Iterator[Flaw]:
        """Hold the whole index against all jobs."""
        if self._broken:
            yield Flaw("index", "unreadable", f"the index cannot be read: {self._broken}")
        if not self._is_kept:
            return
        if whole and self._head is not None and self.position > self._head:
            said = f"the index is of place {self.position} in the log, which ends at {self._head}: events are missing"
            yield Flaw("index", "ahead", said)
        if self._head is not None and self.position < self._head:
            self.checked.note = f"{self._head - self.position:,} events behind the log"
        for job_id, letter in ledger.not_indexed(ALL):
            if job_id not in self._stopped:
                yield Flaw(
                    "index", "absent", f"it is not in the index, which should have it as {_state(letter)}", job_id
                )
        for job_id, says, should in ledger.wrongly_indexed(ALL, whole=whole):
            if job_id in self._stopped:
                continue
            if should != ABSENT:
                said = f"the index has it as {_state(says)}, and should have it as {_state(should)}"
                yield Flaw("index", "differs", said, job_id)
            else:
                yield Flaw("index", "stray", f"the index has it as {_state(says)}, and the log has no such job", job_id)
        for job_id, letter in ledger.listed_apart(ALL):
            said = f"it is not once among all jobs as {_state(letter)} and once among the {_state(letter)} ones"
            yield Flaw("index", "differs", said, job_id)


def _of_another_history(proof: Proof, blob: Blob, version: int) -> tuple[str, str]:
    """Tell of a status whose chain is not that of its event: made before history was written anew."""
    chain = blob.metadata.get("chain", "")
    if not chain or chain == chain_of(proof.records[version - 1]):
        return "", ""
    return "altered", f"its status was made from another history: #{version} or one before was altered and sealed anew"


_STATES = {letter: name for name, letter in LETTERS.items()}


def _state(letters: str) -> str:
    return " or ".join(_STATES.get(letter, letter) for letter in letters)


def _at(job: Job) -> str:
    return f"{job.state} (#{job.version})"


def _parts(data: bytes, job: Job) -> str:
    """Return the keys in which a status differs from what it should be."""
    says: dict[str, object] = msgspec.json.decode(data)
    should: dict[str, object] = msgspec.json.decode(status_bytes(job))
    keys = [key for key in {**says, **should} if says.get(key) != should.get(key)]
    told = (f"{key} is {_short(says.get(key))}, not {_short(should.get(key))}" for key in keys[:3])
    return "; ".join(told) or "it is spelled otherwise"


def _short(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:59] + "…"
