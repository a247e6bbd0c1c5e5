"""Rebuild the views from the log beside the live ones, then swap: what differs is replaced, what the log cannot produce goes.

A build lives below `rebuild/{build}/`: the views as the log gives them, and in `before/` what the swap replaced, which
`roll_back` puts back. Live views are projected on meanwhile; nothing of theirs that is newer is ever replaced.
"""

import contextlib
import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from jobevents.assertions import Instant
from jobevents.blobs import ABSENT, Blobs
from jobevents.emit import Emitter
from jobevents.errors import Conflict, Corrupt, InvalidValue, NotFound
from jobevents.job import fold
from jobevents.telemetry import Counts
from projections.bulk import THREADS, Bulk, get
from projections.indexswap import IndexSwap, manifest_name
from projections.parked import Entry, list_parked, write
from projections.positions import Positions
from projections.projector import Alarm, Projector
from projections.statusswap import Place, StatusSwap
from projections.statuswriter import StatusWriter
from projections.view import View

TRIES = 10  # of a swap that the live index's projector gets in the way of
KEPT = "BUILD.json"  # in a build that stands beside the live views
_PLACE_BATCH = 500  # jobs folded together
_DELETE_BATCH = 5000  # blobs removed in one go


class Rebuilt(msgspec.Struct):
    """What a rebuild came to."""

    build: str = ""  # name it to `roll_back`
    position: int = 0  # place in the log that the build reaches
    statuses: int = 0  # jobs that the log gives a status
    same: int = 0  # were right already
    replaced: int = 0  # were missing, or said something else
    newer: int = 0  # the live one is ahead of the build
    removed: int = 0  # the log cannot produce them
    foreign: int = 0  # another service's records, left to the projector or to an import
    indexed: int = 0  # jobs in the swapped index; 0 when it was not rebuilt
    parked: list[str] = []  # jobs that cannot be folded; their live status stays as it is

    def add(self, outcome: str) -> None:
        """Count one status."""
        if outcome != "parked":
            setattr(self, outcome, getattr(self, outcome) + 1)


class Kept(msgspec.Struct, frozen=True):
    """A build that stands beside the live views, to be looked at before it is swapped in: its `BUILD.json`."""

    build: str
    views: list[str]  # which of them it has
    position: int  # place in the log that it reaches; 0 where the log has none
    made_at: Instant


class MemoryPositions:
    """Positions of a build, which need not outlive it; of one that is gone on with, where it was."""

    def __init__(self, positions: Mapping[str, int] | None = None) -> None:
        self._positions = dict(positions or {})

    def stored(self, view: str) -> int:
        """Return the position that is recorded; 0 for none."""
        return self._positions.get(view, 0)

    def advance(self, view: str, position: int) -> int:
        """Record a position unless a higher one is there, and return the one that is."""
        self._positions[view] = max(position, self.stored(view))
        return self._positions[view]


class Builder:
    """Makes one build and swaps it in, or takes it back; close it, or use it as a context manager."""

    def __init__(
        self, emitter: Emitter, alarm: Alarm, blobs: Blobs, prefix: str, build: str, *, threads: int = THREADS
    ) -> None:
        """Write nothing yet.

        Args:
            build: the build's name, new to this prefix: see `build_name`; or the one to roll back.
            threads: reads and writes under way at once.

        Raises:
            InvalidValue: no build has such a name.
        """
        if not re.fullmatch(r"[0-9-]+", build):
            raise InvalidValue(f"not the name of a build build={build!r:.80}; rebuild prints it")
        self._log = emitter.log
        self._alarm = alarm
        self._blobs = blobs
        self._prefix = prefix
        self._below = f"{prefix}/" if prefix else ""
        self.root = f"{self._below}rebuild/{build}"  # prefix of the build's views
        self.before = f"{self.root}/before"  # prefix of what they replaced
        self.threads = threads
        self._bulk = Bulk(blobs, threads)
        self._report = Rebuilt(build=build)

    def told_by(self) -> Callable[[str], int] | None:
        """Return what says up to which of a job's events each is on a bus, or owed to it; None where that is said elsewhere."""
        return None

    def project(self, views: Sequence[View], on_progress: Callable[[int, int], None] = lambda _, __: None) -> None:
        """Project the whole log into `views`, made below `root`, until they reach its end as it is when they get there.

        What a person had passed over in the live views is passed over in these.

        Args:
            on_progress: called with (position, head).

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log or the store says.
        """
        self._pass_over(self.root)
        self._projector = self._projector_of(views, self.root)
        while self._projector.step(leased=False):
            on_progress(min(self._projector.positions().values()), int(self._log.last_cursor() or 0))
        self._catch_up()
        on_progress(self._report.position, self._report.position)

    def keep(self, views: Sequence[str], now: datetime) -> Kept:
        """Leave the build beside the live views as it is."""
        kept = Kept(self._report.build, list(views), self._report.position, now)
        self._blobs.put(f"{self.root}/{KEPT}", msgspec.json.encode(kept), content_type="application/json")
        return kept

    def kept(self) -> Kept:
        """Return what was kept under this build's name.

        Raises:
            NotFound: there is no such build any more.
        """
        try:
            return read_kept(self._blobs, f"{self.root}/{KEPT}")
        except NotFound as error:
            raise NotFound(
                f"no build stands beside the live views build={self._report.build}; make one with: "
                "jobevents rebuild --beside"
            ) from error

    def drop(self) -> None:
        """Remove a build that was kept, with all that is in it."""
        self._remove(f"{self.root}/")

    def place(self, job_ids: Iterable[str]) -> None:
        """Put the statuses of these jobs into the build, as the log has them now; what the log does not know has none."""
        self._report.position = int(self._log.last_cursor() or 0) if self._log.ordered else 0
        writer = StatusWriter(self._blobs, self.root)
        try:
            ids = iter(job_ids)
            while batch := list(itertools.islice(ids, _PLACE_BATCH)):
                jobs = [fold(self._log.read(job_id), job_id=job_id) for job_id in batch]
                shown = [writer.show(job, is_new=True) for job in jobs if job.version]
                for _, error in writer.save_all(shown):
                    if error is not None:
                        raise error
        finally:
            writer.close()

    def swap_some(self, job_ids: Iterable[str]) -> None:
        """Swap the statuses of these jobs alone; the live position stays where it is."""
        for is_built, outcome in self._status_swap().run(job_ids, self._report.position, frozenset()):
            self._report.add(outcome)
            self._report.statuses += outcome in ("same", "replaced", "newer") and is_built

    def swap_statuses(self, positions: Positions, on_done: Callable[[], None] = lambda: None) -> None:
        """Replace live statuses that are not what the build says, and remove those that the log cannot produce.

        The live position is moved up to the build's, unless something is left that the live projector has to see.
        """
        built, live = Place(f"{self.root}/jobs/"), Place(f"{self._below}jobs/")
        swap = self._status_swap()
        position, left_to_the_projector = self._report.position, False
        parked = frozenset(self._report.parked)
        job_ids = merged(built.job_ids(self._blobs), live.job_ids(self._blobs))
        for is_built, outcome in swap.run(job_ids, position, parked):
            self._report.add(outcome)
            self._report.statuses += outcome in ("same", "replaced", "newer") and is_built
            left_to_the_projector |= is_built and outcome == "foreign"
            on_done()
        if not left_to_the_projector and not parked:
            positions.advance("status", position)

    def swap_index(self) -> None:
        """Put the build's index into the place of the live one, in one write of the manifest; never an older one.

        Raises:
            Conflict: the live index was written ten times meanwhile, or another rebuild has removed this build.
            Misconfigured: newer code has written the live index.
        """
        swap = IndexSwap(self._blobs, self._bulk, source=self.root, live=self._prefix, kept=self.before)
        self._report.indexed = self._swapped(swap)

    def finish(self) -> Rebuilt:
        """Remove this build but for what `roll_back` needs, and all before it but those kept; return what came of it."""
        kept = [f"{self._below}rebuild/{one.build}/" for one in list_kept(self._blobs, self._prefix)]
        self._remove(
            f"{self._below}rebuild/", but=(f"{self.before}/", *(root for root in kept if root != f"{self.root}/"))
        )
        return self._report

    def roll_back(self, views: Sequence[View]) -> int:
        """Put back what the build replaced or removed, unless something newer is there; return how many blobs.

        The index is put back as it is with the events since.

        Args:
            views: the index, made below `before`.

        Raises:
            NotFound: there is no such build, or it was rolled back before.
        """
        has_index = get(self._blobs, manifest_name(self.before)) is not None
        if not has_index and next(iter(self._blobs.list(f"{self.before}/jobs/")), None) is None:
            raise NotFound(f"no build to roll back build={self._report.build}; only the last one can be")
        done = self._status_swap().put_back()
        if has_index:
            self._pass_over(self.before)
            self._projector = self._projector_of(views, self.before)
            self._catch_up()
            self._swapped(IndexSwap(self._blobs, self._bulk, source=self.before, live=self._prefix, kept=None))
            done += 1
        self._remove(f"{self.root}/")
        return done

    def close(self) -> None:
        """End the threads."""
        self._bulk.close()

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _projector_of(self, views: Sequence[View], prefix: str) -> Projector:
        return Projector(self._log, views, alarm=self._alarm, blobs=self._blobs, prefix=prefix, counts=Counts())

    def _catch_up(self) -> None:
        self._projector.run_once()
        self._report.position = min(self._projector.positions().values())
        parked = (entry.parked for entry in list_parked(self._blobs, self.root))
        self._report.parked = sorted({one.job_id for one in parked if one.status != "discarded"})

    def _pass_over(self, prefix: str) -> None:
        """Have the events that were discarded for the live views discarded for those below a prefix."""
        for entry in list_parked(self._blobs, self._prefix):
            if entry.parked.status == "discarded":
                name = f"{prefix}/{entry.name.removeprefix(self._below)}"
                passed = msgspec.structs.replace(entry.parked, is_passed=True)
                with contextlib.suppress(Conflict):  # by the same roll-back before, cut short
                    write(self._blobs, Entry(name, ABSENT, passed), passed)

    def _status_swap(self) -> StatusSwap:
        return StatusSwap(
            self._log,
            self._blobs,
            self._bulk,
            built=Place(f"{self.root}/jobs/"),
            live=Place(f"{self._below}jobs/"),
            kept=Place(f"{self.before}/jobs/"),
        )

    def _swapped(self, swap: IndexSwap) -> int:
        for _ in range(TRIES):
            live, built = swap.positions()
            if built < self._report.position:
                break
            if built < live <= int(self._log.last_cursor() or 0):  # beyond the log's end: the index of another log
                self._catch_up()
                continue
            try:
                count = swap.run()
            except NotFound:
                break
            if count is not None:
                return count
        else:
            raise Conflict("the live index is written all the time; rebuild again")
        raise Conflict("another rebuild has removed this build, and done its work; rebuild again if in doubt")

    def _remove(self, root: str, but: tuple[str, ...] = ()) -> None:
        names = (entry.name for entry in self._blobs.list(root) if not entry.name.startswith(but))
        while batch := list(itertools.islice(names, _DELETE_BATCH)):
            self._bulk.delete(batch)


def read_kept(blobs: Blobs, name: str) -> Kept:
    """Return what a build that stands beside the live views says of itself.

    Raises:
        NotFound: there is none. Corrupt: it cannot be read.
    """
    blob = blobs.get(name)
    assert blob is not None  # noqa: S101  # None only for if_changed
    try:
        return msgspec.json.decode(blob.data, type=Kept)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(f"build cannot be read name={name} error={error}; remove it and build again") from error


def list_kept(blobs: Blobs, prefix: str = "") -> list[Kept]:
    """Return the builds that stand beside the live views, the oldest first."""
    root = f"{prefix}/rebuild/" if prefix else "rebuild/"
    found = []
    for directory in blobs.list(root, delimiter="/"):
        with contextlib.suppress(NotFound):
            found.append(read_kept(blobs, f"{directory.name}{KEPT}"))
    return sorted(found, key=lambda kept: kept.build)


def build_name(now: datetime) -> str:
    """Return a name for a build: its time in UTC."""
    return now.astimezone(UTC).strftime("%Y%m%d-%H%M%S-%f")


def merged(one: Iterator[str], other: Iterator[str]) -> Iterator[str]:
    """Yield each job id once; both come in the order of names, in which an id ends with a slash."""
    for key, _ in itertools.groupby(heapq.merge((f"{job_id}/" for job_id in one), (f"{job_id}/" for job_id in other))):
        yield key[:-1]
