"""The command `rebuild`: the views from the log."""

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from jobevents import console, wiring
from jobevents.cli_options import AsJson, Url, open_jobs

if TYPE_CHECKING:
    from projections.rebuild import Rebuilt


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("rebuild")(rebuild)


def rebuild(
    url: Url,
    view: Annotated[
        list[str] | None, typer.Option("--view", help=f"Only this view ({', '.join(wiring.VIEWS)}); may be repeated.")
    ] = None,
    roll_back: Annotated[
        str | None,
        typer.Option("--roll-back", help="Put back what the build of this name replaced; only the last one can be."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build the views from the log beside the live ones, then swap: what differs is replaced, what the log does not know goes.

    Workers and projectors may go on meanwhile; nothing newer is replaced.
    Exit 1 when a job could not be folded.
    """
    with open_jobs(url) as jobs:
        if roll_back is not None:
            count = wiring.roll_back(jobs, roll_back)
            console.answer({"build": roll_back, "restored": count}, f"{_many(count, 'blob')} put back", as_json)
            return
        with console.progress() as bar:
            reading = bar.add_task("reading the log", total=0)
            swapping = bar.add_task("comparing statuses", total=0)
            report = wiring.rebuild(
                jobs,
                list(dict.fromkeys(view or ())),
                on_progress=lambda position, head: bar.update(reading, completed=position, total=head),
                on_swapped=lambda: bar.advance(swapping),
            )
    console.answer(msgspec.to_builtins(report), _told(report), as_json)
    if report.parked:
        sys.exit(1)


def _told(report: "Rebuilt") -> str:
    lines = []
    if report.statuses or not report.indexed:
        lines += [
            f"{_many(report.statuses, 'status', 'statuses')}: {report.same} right before, {report.replaced} replaced, "
            f"{report.newer} newer than the build",
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
