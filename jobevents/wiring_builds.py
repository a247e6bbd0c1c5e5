"""Builds that stand beside the live views until they are promoted, and views mended where a verification found them wrong."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobevents import wiring, wiring_bus
from jobevents.errors import InvalidValue

if TYPE_CHECKING:
    from jobevents.jobs import Jobs
    from projections.rebuild import Kept, Rebuilt
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
        Misconfigured: there is no such view.
        Unavailable, PermissionDenied, Corrupt: what the log or the store says.
    """
    from projections.rebuild import MemoryPositions, build_name

    now, positions = jobs.emitter.clock(), MemoryPositions()
    names = list(names or wiring.VIEWS)
    with wiring.builder(jobs, build_name(now), threads) as made:
        views = [wiring.view(jobs, name, positions, prefix=made.root, live=False, made_by=made) for name in names]
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
    from projections.rebuild import MemoryPositions

    with wiring.builder(jobs, build, threads) as made:
        kept = made.kept()
        positions = MemoryPositions(dict.fromkeys(kept.views, kept.position))
        views = [wiring.view(jobs, name, positions, prefix=made.root, live=False, made_by=made) for name in kept.views]
        made.project(views, on_progress)
        if "status" in kept.views:
            made.swap_statuses(wiring_bus.live_positions(jobs), on_swapped)
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
    undoes it. Left alone is what puts the log itself in doubt: the status of a job whose history
    is not right, one that is ahead of the log or was made from another history, and the index of a log with any flaw.

    Raises:
        InvalidValue: there is nothing that could be mended.
        Misconfigured, Unavailable, PermissionDenied, Corrupt, Conflict: as `wiring.rebuild`.
    """
    from projections.rebuild import MemoryPositions, build_name
    from projections.verify import mendable

    found = mendable(report)
    if found.all_statuses:
        return wiring.rebuild(jobs, wiring.VIEWS if found.index else ["status"], threads=threads)
    if not found.job_ids and not found.index:
        raise InvalidValue(
            "no view can be mended: what is wrong puts the log itself in doubt, or it comes right by itself"
        )
    with wiring.builder(jobs, build_name(jobs.emitter.clock()), threads) as made:
        if found.index:
            made.project([wiring.view(jobs, "index", MemoryPositions(), prefix=made.root, live=False)])
        if found.job_ids:
            made.place(found.job_ids)
            made.swap_some(found.job_ids)
        if found.index:
            made.swap_index()
        return made.finish()
