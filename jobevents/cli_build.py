"""The command `rebuild`: the views from the log."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from jobevents import console, wiring, wiring_builds
from jobevents.cli_options import AsJson, Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.jobs import Jobs
from jobevents.opening import extra

if TYPE_CHECKING:
    from projections.rebuild import Rebuilt


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("rebuild")(rebuild)
    app.command("archive")(archive)


def rebuild(
    url: Url,
    view: Annotated[
        list[str] | None, typer.Option("--view", help=f"Only this view ({', '.join(wiring.VIEWS)}); may be repeated.")
    ] = None,
    roll_back: Annotated[
        str | None,
        typer.Option("--roll-back", help="Put back what the build of this name replaced; only the last one can be."),
    ] = None,
    beside: Annotated[
        bool,
        typer.Option(
            "--beside", help="Leave the build beside the live views, to be compared: jobevents diff live new."
        ),
    ] = False,
    promote: Annotated[
        str | None,
        typer.Option(
            "--promote",
            help="Take this build, which --beside left: first build on until it has all events of the log, then swap it in.",
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option("--drop", help="Remove the build of this name, which was left beside.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build the views (each job's status.json, the index) anew from the log beside the live ones, then swap them in.

    What differs is replaced, and what the log does not know goes.
    Workers and projectors may go on meanwhile; nothing newer is replaced.
    Exit 1 when a job could not be folded.
    """
    if sum((roll_back is not None, promote is not None, drop is not None, beside)) > 1:
        raise InvalidValue("--beside, --promote, --drop and --roll-back do not go together")
    if view and (promote or drop or roll_back):
        raise InvalidValue("--view goes with a new build: one that is there has the views it was made with")
    with open_jobs(url) as jobs:
        if drop is not None:
            wiring_builds.drop(jobs, drop)
            console.answer({"build": drop, "dropped": True}, f"build {drop} removed", as_json)
            return
        if beside:
            _beside(jobs, list(dict.fromkeys(view or ())), as_json)
            return
        if roll_back is not None:
            count = wiring.roll_back(jobs, roll_back)
            console.answer({"build": roll_back, "restored": count}, f"{_many(count, 'blob')} put back", as_json)
            return
        with console.progress() as bar:
            reading = bar.add_task("reading the log", total=0)
            swapping = bar.add_task("comparing statuses", total=0)
            watched: dict[str, Any] = {  # Any: the two callbacks of both
                "on_progress": lambda position, head: bar.update(reading, completed=position, total=head),
                "on_swapped": lambda: bar.advance(swapping),
            }
            if promote is not None:
                report = wiring_builds.promote(jobs, promote, **watched)
            else:
                report = wiring.rebuild(jobs, list(dict.fromkeys(view or ())), **watched)
    console.answer(msgspec.to_builtins(report), _told(report), as_json)
    if report.parked:
        sys.exit(1)


def _beside(jobs: Jobs, views: list[str], as_json: bool) -> None:
    """Make a build and leave it; what to do with it is said."""
    with console.progress() as bar:
        reading = bar.add_task("reading the log", total=0)
        kept = wiring_builds.build_beside(
            jobs, views, on_progress=lambda position, head: bar.update(reading, completed=position, total=head)
        )
    at = f"at event {kept.position:,} of the log" if jobs.log.ordered else "with all that is in the log"
    told = (
        f"build {kept.build} stands beside the live views, {at}\n"
        f"what differs:     jobevents diff live {kept.build}\n"
        f"to swap it in:    jobevents rebuild --promote {kept.build}\n"
        f"to remove it:     jobevents rebuild --drop {kept.build}"
    )
    console.answer(kept, told, as_json)


def archive(url: Url, as_json: AsJson = False) -> None:
    """Put histories of final jobs into Parquet segments beside the views; what was archived before is passed over.

    Repeatable, by a schedule, say. Any tool reads them; on a log of objects they make reading all of history cheap.
    """
    with extra("analytics"):
        from projections.archive import Archive

    with open_jobs(url) as jobs, console.progress() as bar:
        task = bar.add_task("archiving", total=0)
        done = Archive(jobs.blobs, jobs.prefix).extend(
            jobs.log, on_progress=lambda events, total: bar.update(task, completed=events, total=total)
        )
    left = (
        f"; {_many(done.unreadable, 'job')} left that cannot be folded: see jobevents verify" if done.unreadable else ""
    )
    told = f"{_many(done.events, 'event')} of {_many(done.jobs, 'job')} in {_many(done.segments, 'new segment')}{left}"
    console.answer(msgspec.to_builtins(done), told, as_json)


def _told(report: "Rebuilt") -> str:
    lines = []
    if report.statuses or not report.indexed:
        lines += [
            f"{_many(report.statuses, 'status', 'statuses')}: {report.same} as the log says already, "
            f"{report.replaced} replaced, {report.newer} newer than the build",
            f"{report.removed} removed that the log does not know, {report.foreign} of other services left as they are",
        ]
    if report.indexed:
        lines.append(f"{_many(report.indexed, 'job')} in the index")
    if report.parked:
        named = ", ".join(report.parked[:10]) + (" …" if len(report.parked) > 10 else "")
        lines.append(f"{_many(len(report.parked), 'job')} could not be folded, left as they are: {named}")
        lines.append("to see why: jobevents project --once, then jobevents parked list")
    return "\n".join([*lines, f"to take it back: jobevents rebuild --roll-back {report.build}"])


def _many(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
