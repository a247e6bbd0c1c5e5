"""Rebuild the views from the log beside the live ones, then swap: what differs is replaced, what the log cannot produce goes.

A build lives below `rebuild/{build}/`: the views as the log gives them, and in `before/` what the swap replaced, which
`roll_back` puts back. Live views are projected on meanwhile; nothing of theirs that is newer is ever replaced.
"""

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec

from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.emit import Emitter
from jobevents.errors import Conflict, NotFound
from jobevents.job import DELETED
from jobevents.telemetry import Counts
from projections.manifest import ALL, Manifest, ManifestBlob, retire, root_of
from projections.parked import list_parked
from projections.positions import Positions
from projections.projector import Alarm, Projector
from projections.statuswriter import CACHE_CONTROL, CONTENT_TYPE, code_of, version_of
from projections.view import View

THREADS = 16  # statuses compared at once: what hides a bucket's latency
TRIES = 10  # of a swap that the live index's projector gets in the way of
STATUS = "/status.json"


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
        setattr(self, outcome, getattr(self, outcome) + 1)


class MemoryPositions:
    """Positions of a build: it is made in one go, so they need not outlive it."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def stored(self, view: str) -> int:
        """Return the position that is recorded; 0 for none."""
        return self._positions.get(view, 0)

    def advance(self, view: str, position: int) -> int:
        """Record a position unless a higher one is there, and return the one that is."""
        self._positions[view] = max(position, self.stored(view))
        return self._positions[view]


class Builder:
    """Makes one build and swaps it in."""

    def __init__(self, emitter: Emitter, alarm: Alarm, blobs: Blobs, prefix: str, build: str) -> None:
        """Write nothing yet.

        Args:
            build: the build's name, new to this prefix; see `build_name`.
        """
        self._emitter = emitter
        self._alarm = alarm
        self._blobs = blobs
        self._prefix = prefix
        self.root = f"{_below(prefix)}rebuild/{build}"
        self._counts = Counts()
        self._report = Rebuilt(build=build)

    def project(self, views: Sequence[View], on_progress: Callable[[int, int], None] = lambda _, __: None) -> None:
        """Project the whole log into `views`, made below `root`, until they reach its end as it is when they get there.

        Args:
            on_progress: called with (position, head).

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log or the store says.
        """
        self._projector = Projector(
            self._emitter.log, views, alarm=self._alarm, blobs=self._blobs, prefix=self.root, counts=self._counts
        )
        while self._projector.step(leased=False):
            on_progress(min(self._projector.positions().values()), int(self._emitter.log.last_cursor() or 0))
        self._catch_up()

    def _catch_up(self) -> None:
        self._projector.run_once()
        self._report.position = min(self._projector.positions().values())
        self._report.parked = sorted({entry.parked.job_id for entry in list_parked(self._blobs, self.root)})

    def swap_statuses(self, positions: Positions, on_done: Callable[[], None] = lambda: None) -> None:
        """Replace live statuses that are not what the build says, and remove those that the log cannot produce.

        Two reads a job, and for each that differs a write of what was there and one of what should be.
        """
        staged = self._status_names(f"{self.root}/jobs/")
        live = self._status_names(f"{_below(self._prefix)}jobs/")
        with ThreadPoolExecutor(THREADS, thread_name_prefix="jobevents-rebuild") as pool:
            for outcome in pool.map(self._swap_status, _merged(staged, live)):
                self._report.add(outcome)
                self._report.statuses += outcome in ("same", "replaced", "newer")
                on_done()
        positions.advance("status", self._report.position)

    def swap_index(self) -> None:
        """Copy the build's chunks beside the live ones, then replace the live manifest in one write.

        Raises:
            Conflict: the live index was written ten times meanwhile; swap again.
        """
        live, staged = (
            ManifestBlob(self._blobs, _manifest(self._prefix)),
            ManifestBlob(self._blobs, _manifest(self.root)),
        )
        before = f"{self.root}/before"
        for _ in range(TRIES):
            stored, built = live.load(), staged.load().manifest
            if stored.manifest.position > built.position:
                self._catch_up()
                continue
            copy_chunks(self._blobs, self.root, self._prefix, built)
            copy_chunks(self._blobs, self._prefix, before, stored.manifest)
            kept = ManifestBlob(self._blobs, _manifest(before))
            kept.save(stored.manifest, kept.load())
            swapped = msgspec.structs.replace(built, retired=retire(stored.manifest.retired, stored.manifest.live()))
            try:
                live.save(swapped, stored)
            except Conflict:
                continue
            self._report.indexed = sum(ref.count for ref in built.sequences.get(ALL, []))
            return
        raise Conflict("the live index is written all the time; swap again")

    def finish(self) -> Rebuilt:
        """Remove this build but for what `roll_back` needs, and all builds before it; return what came of it."""
        for entry in list(self._blobs.list(f"{_below(self._prefix)}rebuild/")):
            if not entry.name.startswith(f"{self.root}/before/"):
                self._blobs.delete(entry.name)
        return self._report

    def _swap_status(self, pair: "tuple[str, bool, bool]") -> str:
        """Bring one job's live status in line, and say what was done; a newer one that comes in between wins."""
        job_id, is_staged, is_live = pair
        if job_id in self._report.parked:
            return "newer"
        while True:
            live = self._get(self._live(job_id)) if is_live else None
            staged = self._get(f"{self.root}/jobs/{job_id}{STATUS}") if is_staged else None
            try:
                return self._remove(job_id, live) if staged is None else self._replace(job_id, staged, live)
            except Conflict:
                is_live = True  # written meanwhile: look again

    def _replace(self, job_id: str, staged: Blob, live: Blob | None) -> str:
        name = self._live(job_id)
        if live is not None:
            found = version_of(live)
            if not found:
                return "foreign"
            if found > version_of(staged):
                return "newer"
            if live.data == staged.data and code_of(live) >= code_of(staged):
                return "same"
            self._keep(job_id, live)
        _put(self._blobs, name, staged, live.generation if live else ABSENT)
        if self._emitter.load(job_id).state == DELETED:  # deleted since the build
            self._blobs.delete(name)
        return "replaced"

    def _remove(self, job_id: str, live: Blob | None) -> str:
        if live is None:
            return "newer"
        if not version_of(live):
            return "foreign"
        job = self._emitter.load(job_id)
        if job.version and job.state != DELETED:
            return "newer"  # began since the build
        self._keep(job_id, live)
        self._blobs.delete(self._live(job_id), if_generation=live.generation)
        return "removed"

    def _keep(self, job_id: str, live: Blob) -> None:
        """Keep what the swap is about to replace; the first of a job stays."""
        try:
            _put(self._blobs, f"{self.root}/before/jobs/{job_id}{STATUS}", live, ABSENT)
        except Conflict:
            return

    def _get(self, name: str) -> Blob | None:
        try:
            return self._blobs.get(name)
        except NotFound:
            return None

    def _live(self, job_id: str) -> str:
        return f"{_below(self._prefix)}jobs/{job_id}{STATUS}"

    def _status_names(self, root: str) -> Iterator[str]:
        for entry in self._blobs.list(root):
            job_id, slash, rest = entry.name.removeprefix(root).partition("/")
            if slash + rest == STATUS:
                yield job_id


def roll_back(blobs: Blobs, prefix: str, build: str) -> int:
    """Put back what a build replaced or removed, unless something newer is there; return how many blobs.

    Raises:
        NotFound: there is no such build, or it was rolled back before.
    """
    root = f"{_below(prefix)}rebuild/{build}"
    before = f"{root}/before"
    names = [entry.name for entry in blobs.list(f"{before}/jobs/")]
    index = ManifestBlob(blobs, _manifest(before)).load()
    if not names and index.generation == ABSENT:
        raise NotFound(f"no build to roll back build={build}")
    done = sum(_put_back(blobs, name, _below(prefix) + name.removeprefix(f"{before}/")) for name in names)
    if index.generation != ABSENT:
        live = ManifestBlob(blobs, _manifest(prefix))
        copy_chunks(blobs, before, prefix, index.manifest)
        stored = live.load()
        retired = retire(stored.manifest.retired, stored.manifest.live(), but=index.manifest.live())
        live.save(msgspec.structs.replace(index.manifest, retired=retired), stored)
        done += 1
    for entry in list(blobs.list(f"{root}/")):
        blobs.delete(entry.name)
    return done


def _put_back(blobs: Blobs, kept: str, name: str) -> bool:
    old = blobs.get(kept)
    assert old is not None  # noqa: S101  # None only for if_changed
    try:
        live = blobs.get(name)
    except NotFound:
        live = None
    if live is not None and version_of(live) > version_of(old):
        return False
    _put(blobs, name, old, live.generation if live else ABSENT)
    return True


def copy_chunks(blobs: Blobs, source: str, target: str, manifest: Manifest) -> None:
    """Copy the chunks that a manifest names from one prefix's index to another's; a chunk that is there is the same."""
    for chunk_id in manifest.live():
        blob = blobs.get(f"{root_of(source)}chunk/{chunk_id}")
        assert blob is not None  # noqa: S101  # None only for if_changed
        with contextlib.suppress(Conflict):
            blobs.put(f"{root_of(target)}chunk/{chunk_id}", blob.data, if_generation=ABSENT)


def build_name(now: datetime) -> str:
    """Return a name for a build: its time in UTC."""
    return now.astimezone(UTC).strftime("%Y%m%d-%H%M%S-%f")


def _put(blobs: Blobs, name: str, blob: Blob, generation: str) -> None:
    blobs.put(
        name,
        blob.data,
        if_generation=generation,
        content_type=CONTENT_TYPE,
        cache_control=CACHE_CONTROL,
        metadata=blob.metadata,
    )


def _manifest(prefix: str) -> str:
    return f"{root_of(prefix)}MANIFEST.json"


def _below(prefix: str) -> str:
    return f"{prefix}/" if prefix else ""


def _merged(staged: Iterator[str], live: Iterator[str]) -> Iterator[tuple[str, bool, bool]]:
    """Yield each job id once, with whether it is in the build and whether it is live; both come in the order of names."""
    both = heapq.merge(((f"{one}/", 0) for one in staged), ((f"{one}/", 1) for one in live))
    for key, group in itertools.groupby(both, key=lambda one: one[0]):
        sides = {side for _, side in group}
        yield key[:-1], 0 in sides, 1 in sides
