"""Verify: prove every history, and hold the rows, the statuses and the index against what the histories fold to.

One pass over the log, job by job, in constant memory; what needs all jobs at once goes through the ledger. Reads only. The
system may go on meanwhile: what a view has not yet is looked at again in the end, and what it does not claim to have is no flaw.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol, runtime_checkable

import msgspec

from jobevents import codec
from jobevents.assertions import Instant
from jobevents.errors import InvalidValue, Misconfigured, NotFound
from jobevents.job import DELETED
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.reads import checked_id
from projections.bulk import THREADS, Bulk
from projections.checks import Check, Checked, IndexCheck, RowCheck, StatusCheck
from projections.ledger import Ledger, Line
from projections.positions import TrackedPositions, Tracker
from projections.proof import Flaw, Proof, chain_of, prove
from projections.secondlook import SecondLook

BATCH = 2000  # events looked at together, of whole jobs
KEPT = 1000  # flaws of one check that are named; the rest is counted
MENDED = ("absent", "behind", "differs", "stray", "unreadable")  # kinds of flaws that a status made anew takes away
DOUBTFUL = ("ahead", "altered")  # kinds that say that the log is not what it was


@runtime_checkable
class Floors(Protocol):
    """What was erased of jobs; asked only of a history that does not begin at 1."""

    def get(self, job_id: str) -> int:
        """Return the version below which all of a job's events were erased; 0 for none."""
        ...


class Root(msgspec.Struct, frozen=True):
    """What a log held: kept somewhere else, it proves later that the same is still there."""

    root: str  # hash over where each job's history ends
    jobs: int
    events: int
    position: int  # place of the last event; 0 where the log has no one order
    at: Instant  # when it was taken


class Report(msgspec.Struct):
    """What a verification came to."""

    root: str  # "" when not all jobs were looked at, or the log is not right
    position: int  # place in the log up to which it was looked at; 0 where it has no one order
    jobs: int
    events: int
    deleted: int  # of the jobs
    erased: int  # of the jobs: a part of the history is gone, as was asked
    whole: bool  # all jobs were looked at
    checks: list[Checked]
    flaws: list[Flaw]

    @property
    def is_right(self) -> bool:
        """Tell whether everything is as it should be."""
        return not any(check.flaws for check in self.checks)


def verify(
    jobs: Jobs,
    *,
    only: Collection[str] = (),
    sample: int = 0,
    known: Root | None = None,
    floors: Floors | None = None,
    others: Sequence[Check] = (),
    on_progress: Callable[[int, int], None] = lambda _, __: None,
    threads: int = THREADS,
    patience_s: float | None = None,
    rng: random.Random | None = None,
) -> Report:
    """Prove the log, and hold everything that is made from it against it.

    Costs one read of the whole log, a read of each row and each status, and one of each chunk of the index.

    Args:
        only: these jobs alone. sample: so many jobs, picked at random, alone. With either there is no root, and nothing is
            said of ids that repeat or of what the log does not know.
        known: an older root, to be found again at its place in the log.
        floors: what was erased of which job; by default, what the log's recorder knows of it.
        others: more to hold against the log, such as an archive of it.
        on_progress: called with (events proved, events in the log or in what was picked).
        threads: reads of statuses under way at once.
        patience_s: how long a view may take to have an event that is hardly a minute old; 1 s, or what the store needs.
        rng: picks the sample.

    Raises:
        NotFound: there is no job of `only`.
        InvalidValue: an id is none; or an older root goes with some jobs only.
        Misconfigured: an older root is asked for, and the log has no one order.
        Unavailable, PermissionDenied, Corrupt: what the stores say.
    """
    if known is not None and (only or sample):
        raise InvalidValue("an older root is of all jobs: verify all of them")
    if known is not None and not jobs.log.ordered:
        raise Misconfigured("this log has no one order over all jobs, so that an older root cannot be found in it")
    with Ledger() as ledger, Bulk(jobs.blobs, threads) as bulk:
        run = _Run(jobs, ledger, bulk, known=known, floors=floors, others=others, patience_s=patience_s)
        run.look(_some(jobs, only, sample, rng or random.Random(), on_progress))  # noqa: S311  # no secret
        return run.finish(whole=not only and not sample)


class _Then:
    """What the log held at the place of an older root."""

    def __init__(self) -> None:
        self.root = codec.Digest()
        self.jobs = self.events = 0


class _Run:
    """One verification under way."""

    def __init__(
        self,
        jobs: Jobs,
        ledger: Ledger,
        bulk: Bulk,
        *,
        known: Root | None,
        floors: Floors | None,
        others: Sequence[Check],
        patience_s: float | None,
    ) -> None:
        recorder = jobs.log.recorder
        self._head = int(jobs.log.last_cursor() or 0) if jobs.log.ordered else None
        self._index = IndexCheck(jobs.log, jobs.blobs, jobs.prefix)
        tracked = TrackedPositions(recorder) if jobs.log.ordered and isinstance(recorder, Tracker) else None
        status = StatusCheck(jobs.log, jobs.blobs, jobs.prefix, bulk, tracked)
        rows = [RowCheck(jobs)] if jobs.log.ordered else []  # else runs are folded when they are asked for
        self._checks: list[Check] = [*rows, status, self._index, *others]
        self._jobs = jobs
        self._ledger = ledger
        self._known = known
        kept = getattr(recorder, "floors", None)
        self._floors = floors or (kept if isinstance(kept, Floors) else None)
        self._log = Checked("log", "events")
        self._root = Checked("root", "root")
        self._flaws: list[Flaw] = []
        self._doubts = SecondLook(jobs, self._prove, patience_s=patience_s)
        self._all = codec.Digest()
        self._then = _Then()
        self.jobs = self.deleted = self.erased = 0

    def look(self, histories: Iterable[list[Record]]) -> None:
        """Look at jobs, each whole."""
        for check in self._checks:
            check.begin(self._ledger)
        batch, waiting = list[Proof](), 0
        for records in histories:
            proof = self._prove(records)
            batch.append(proof)
            waiting += len(records)
            if waiting >= BATCH:
                self._examine(batch)
                batch, waiting = [], 0
        self._examine(batch)

    def _prove(self, records: Sequence[Record]) -> Proof:
        floor = self._floors.get(records[0].job_id) if self._floors and records[0].version > 1 else 0
        self.erased += floor > 0
        return prove(records, floor)

    def _examine(self, batch: Sequence[Proof]) -> None:
        for proof in batch:
            self.jobs += 1
            self.deleted += proof.job is not None and proof.job.state == DELETED
            self._log.looked_at += len(proof.records)
            self._hash(proof)
            self._ledger.add_events(proof.events)
            for flaw in proof.flaws:
                self._keep(self._log, flaw)
        self._ledger.add_jobs(Line(proof.job_id, self._index.letters(proof)) for proof in batch)
        for check in self._checks:
            for flaw in check.examine(batch):
                if check.is_view:
                    self._doubts.add(check, flaw)
                else:
                    self._keep(check.checked, flaw)

    def _hash(self, proof: Proof) -> None:
        """Take where a history ends into the root, and where it ended at the older one's place into that."""
        self._all.add(proof.job_id, proof.version, proof.chain.encode())
        version = proof.version_at(self._known.position) if self._known else 0
        if version:
            end = next(one for one in proof.records if one.version == version)
            self._then.root.add(proof.job_id, version, chain_of(end).encode())
            self._then.jobs += 1
            self._then.events += version

    def finish(self, *, whole: bool) -> Report:
        """Look again at what may have gone on meanwhile, and at what needs all jobs; return what came of it."""
        counted = [(check.checked, check.checked.looked_at) for check in self._checks]
        for check, flaw in self._doubts.flaws():
            self._keep(check.checked, flaw)
        for checked, looked_at in counted:  # at the first look
            checked.looked_at = looked_at
        for check in self._checks:
            for flaw in check.finish(self._ledger, whole=whole):
                self._keep(check.checked, flaw)
        if whole:
            for event_id, places in self._ledger.repeated():
                named = ", ".join(f"{job_id} #{version}" for job_id, version in places[:5])
                said = f"event id {event_id} is there {len(places)} times: {named}"
                self._keep(self._log, Flaw("log", "duplicated", said, *places[0]))
        if self._known is not None:
            self._hold_against(self._known)
        checks = [self._log, *(check.checked for check in self._checks)]
        return Report(
            root=self._all.hex() if whole and not self._log.flaws else "",
            position=self._head or 0,
            jobs=self.jobs,
            events=self._log.looked_at,
            deleted=self.deleted,
            erased=self.erased,
            whole=whole,
            checks=[*checks, self._root] if self._known else checks,
            flaws=self._flaws,
        )

    def _hold_against(self, known: Root) -> None:
        self._root.looked_at = 1
        found = self._then.root.hex()
        if found == known.root:
            return
        then = f"{known.root[:16]}… of {known.jobs:,} jobs and {known.events:,} events on {known.at:%Y-%m-%d %H:%M} UTC"
        now = f"{found[:16]}… of {self._then.jobs:,} and {self._then.events:,}"
        said = (
            f"up to event {known.position:,} it was {then}, it is {now}: history was changed, or jobs were erased since"
        )
        self._keep(self._root, Flaw("root", "differs", said))

    def _keep(self, checked: Checked, flaw: Flaw) -> None:
        checked.flaws += 1
        if checked.flaws <= KEPT:
            self._flaws.append(flaw)


def root_of(report: Report, at: Instant) -> Root:
    """Return the root to keep of a report.

    Raises:
        InvalidValue: not all jobs were looked at, or something was not right.
    """
    if not report.whole or not report.is_right:
        raise InvalidValue("no root is kept of a log that was not proved whole and right")
    return Root(report.root, report.jobs, report.events, report.position, at)


def _some(
    jobs: Jobs, only: Collection[str], sample: int, rng: random.Random, on_progress: Callable[[int, int], None]
) -> Iterator[list[Record]]:
    """Yield the histories to look at."""
    if sample:
        only = _picked(jobs, sample, rng)
    if only:
        for job_id in dict.fromkeys(only):
            checked_id(job_id)
        for done, job_id in enumerate(dict.fromkeys(only), 1):
            records = jobs.log.records_of(job_id)
            if not records:
                raise NotFound(f"no such job job_id={job_id}")
            yield records
            on_progress(done, len(only))
        return
    done, told = 0, 0
    head = int(jobs.log.last_cursor() or 0) if jobs.log.ordered else 0
    for _, group in groupby(jobs.log.by_job(), key=lambda one: one.job_id):
        records = list(group)
        yield records
        done += len(records)
        if done - told >= BATCH:
            told = done
            on_progress(done, max(done, head))
    on_progress(done, done)


def _picked(jobs: Jobs, sample: int, rng: random.Random) -> list[str]:
    """Return so many job ids, each as likely as any other: one pass over the log, of which nothing is decoded."""
    picked: list[str] = []
    for count, (job_id, _) in enumerate(groupby(jobs.log.by_job(), key=lambda one: one.job_id)):
        if count < sample:
            picked.append(job_id)
        elif (place := rng.randrange(count + 1)) < sample:
            picked[place] = job_id
    return picked


class Mendable(msgspec.Struct, frozen=True):
    """What of a report's flaws a rebuild of views takes away."""

    job_ids: list[str]  # whose statuses are to be made anew
    all_statuses: bool  # there are more of them than are named
    index: bool


def mendable(report: Report) -> Mendable:
    """Return what can be made anew from the log, which no flaw of the log itself puts in doubt."""
    flaws = {check.name: check.flaws for check in report.checks}
    is_log_right = not flaws.get("log") and not flaws.get("root")
    doubtful = {flaw.job_id for flaw in report.flaws if flaw.check == "log" or flaw.kind in DOUBTFUL}
    statuses = [flaw for flaw in report.flaws if flaw.check == "status" and flaw.kind in MENDED]
    ahead = any(flaw.check == "index" and flaw.kind in DOUBTFUL for flaw in report.flaws)
    return Mendable(
        job_ids=sorted({flaw.job_id for flaw in statuses} - doubtful),
        all_statuses=is_log_right and not doubtful and flaws.get("status", 0) > KEPT,
        index=is_log_right and bool(flaws.get("index")) and not ahead,
    )
