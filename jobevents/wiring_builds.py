"""Builds that stand beside the live views until they are promoted, and views mended where a verification found them wrong."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobevents import wiring
from jobevents.errors import InvalidValue

if TYPE_CHECKING:
    from jobevents.jobs import Jobs
    from projections.rebuild import Builder, Kept, Rebuilt
    from projections.verify import Report


def build_beside(
    jobs: "Jobs",
    names: Sequence[str] = (),
    *,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
    threads: int = 16,
) -> "Kept":
    """Build the views with these names, or all, from the log, and leave them beside the live ones, which stay as they are.

    Args:
        on_progress: called with (position, head of the log).

    Raises:
        Misconfigured: there is no such view, or the log has not one sequence.
        Unavailable, PermissionDenied, Corrupt: what the log or the store says.
    """
    from projections.rebuild import MemoryPositions, build_name

    now, positions = jobs.emitter.clock(), MemoryPositions()
    names = list(names or wiring.VIEWS)
    with wiring.builder(jobs, build_name(now), threads) as made:
        views = [wiring.view(jobs, name, positions, prefix=made.root, live=False, threads=threads) for name in names]
        made.project(views, on_progress)
        return made.keep(names, now)


def promote(
    jobs: "Jobs",
    build: str,
    *,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
    on_swapped: Callable[[], None] = lambda: None,
    threads: int = 16,
) -> "Rebuilt":
    """Bring a build that stands beside the live views up to the end of the log, and swap it in; `wiring.roll_back` undoes it.

    Args:
        on_progress: called with (position, head of the log). on_swapped: called for each status that was compared.

    Raises:
        InvalidValue: no build has such a name. NotFound: there is no such build any more.
        Misconfigured, Unavailable, PermissionDenied, Corrupt, Conflict: as `wiring.rebuild`.
    """
    from projections.positions import TrackedPositions
    from projections.rebuild import MemoryPositions

    with wiring.builder(jobs, build, threads) as made:
        kept = made.kept()
        positions = MemoryPositions(dict.fromkeys(kept.views, kept.position))
        views = [
            wiring.view(jobs, name, positions, prefix=made.root, live=False, threads=threads) for name in kept.views
        ]
        made.project(views, on_progress)
        if "status" in kept.views:
            made.swap_statuses(TrackedPositions(wiring.tracker(jobs)), on_swapped)
        if "index" in kept.views:
            made.swap_index()
        return made.finish()


def drop(jobs: "Jobs", build: str) -> None:
    """Remove a build that stands beside the live views.

    Raises:
        InvalidValue: no build has such a name. NotFound: there is no such build any more.
    """
    with wiring.builder(jobs, build, 1) as made:
        made.kept()
        made.drop()


def mend(jobs: "Jobs", report: "Report", *, threads: int = 16) -> "Rebuilt":
    """Make anew the statuses and the index that a verification found to be other than the log says, and these alone.

    What they say is built beside the live ones and swapped in as by a rebuild: nothing newer is replaced, `wiring.roll_back`
    undoes it, where the log has one order. Left alone is what puts the log itself in doubt: the status of a job whose history
    is not right, one that is ahead of the log or was made from another history, and the index of a log with any flaw.

    Raises:
        InvalidValue: there is nothing that could be mended.
        Misconfigured, Unavailable, PermissionDenied, Corrupt, Conflict: as `wiring.rebuild`.
    """
    from projections.rebuild import MemoryPositions, build_name
    from projections.verify import mendable

    found = mendable(report)
    has_index = found.index and jobs.log.ordered
    if found.all_statuses and jobs.log.ordered:
        return wiring.rebuild(jobs, wiring.VIEWS if has_index else ["status"], threads=threads)
    if not found.job_ids and not has_index:
        kept = "only its projector writes the index of this log" if found.index else "it comes right by itself"
        raise InvalidValue(f"no view can be mended: what is wrong puts the log itself in doubt, or {kept}")
    with _builder(jobs, build_name(jobs.emitter.clock()), threads) as made:
        if has_index:
            made.project([wiring.view(jobs, "index", MemoryPositions(), prefix=made.root, live=False)])
        if found.job_ids:
            made.place(found.job_ids)
            made.swap_some(found.job_ids)
        if has_index:
            made.swap_index()
        return made.finish()


def _builder(jobs: "Jobs", build: str, threads: int) -> "Builder":
    """Return what swaps single statuses of any log; whole views it builds only of a log that a projector can follow."""
    from projections.rebuild import Builder

    if jobs.log.ordered:
        return wiring.builder(jobs, build, threads)
    return Builder(jobs.emitter, _Silent(), jobs.blobs, jobs.prefix, build, threads=threads)


class _Silent:
    """The alarm of a log that nothing follows here."""

    def listen(self, event: threading.Event) -> None:
        """Never set it."""

    def unlisten(self, event: threading.Event) -> None:
        """Nothing holds it."""
