"""The commands `rebuild`, the views from the log, and `import`, records that were there before it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from jobevents import console, wiring
from jobevents.cli_options import AsJson, Url, open_jobs
from jobevents.recorder import under_job_dir

if TYPE_CHECKING:
    from projections.rebuild import Rebuilt


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("rebuild")(rebuild)
    app.command("import")(import_records)


def rebuild(
    url: Url,
    view: Annotated[
        list[str] | None, typer.Option("--view", help=f"Only this view ({', '.join(wiring.VIEWS)}); may be repeated.")
    ] = None,
    roll_back: Annotated[str, typer.Option("--roll-back", help="Put back what the build of this name replaced.")] = "",
    as_json: AsJson = False,
) -> None:
    """Build the views from the log beside the live ones, then swap: what differs is replaced, what the log does not know goes.

    Live views may be projected on meanwhile; nothing newer is replaced. Exit 1 when a job could not be folded.
    """
    with open_jobs(url) as jobs:
        if roll_back:
            count = wiring.roll_back(jobs, roll_back)
            console.answer({"build": roll_back, "restored": count}, f"{count} blobs put back", as_json)
            return
        with _progress() as bar:
            reading, swapping = (
                bar.add_task("reading the log", total=None),
                bar.add_task("comparing statuses", total=None),
            )
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
    lines = [
        f"{report.statuses} statuses: {report.same} were right, {report.replaced} replaced, {report.newer} newer than the build",
        f"{report.removed} removed that the log does not know, {report.foreign} of other services left as they are",
    ]
    if report.indexed:
        lines.append(f"{report.indexed} jobs in the index")
    if report.parked:
        lines.append(f"{len(report.parked)} jobs could not be folded: {', '.join(report.parked[:10])}")
    return "\n".join([*lines, f"to take it back: jobevents rebuild --roll-back {report.build}"])


def import_records(
    source: Annotated[str, typer.Argument(help="Directory or gs://bucket/prefix that holds ID/status.json files.")],
    url: Url,
    reason: Annotated[str, typer.Option("--reason", help="Why; stays on the events.")] = "",
    as_json: AsJson = False,
) -> None:
    """Import status records that were there before: each becomes one event. Repeatable: what is known is passed over.

    Exit 1 when a record could not be read.
    """
    from projections.joblist import collect

    blobs, prefix = _opened(source)
    with open_jobs(url, create=True) as jobs, _progress() as bar:
        job_ids = collect(blobs, prefix)
        task = bar.add_task("importing", total=len(job_ids))
        report = jobs.import_records(
            blobs, under_job_dir(prefix), job_ids, reason=reason, on_done=lambda count: bar.advance(task, count)
        )
    blobs.close()
    lines = [f"{report.imported} imported, {report.known} known before, {report.unreadable} not readable"]
    lines += [f"  {job_id}: {why}" for job_id, why in report.reasons.items()]
    lines += [f"  {job_id}: left out {keys}" for job_id, keys in report.left_out.items()]
    console.answer(msgspec.to_builtins(report), "\n".join(lines), as_json)
    if report.unreadable:
        sys.exit(1)


def _opened(source: str) -> tuple[Any, str]:
    """Return (blobs, prefix); of a local directory, its parent and its name, since a listing needs a prefix."""
    if "://" in source and not source.startswith("file:"):
        return wiring.open_blobs(source)
    path = Path(source.removeprefix("file://")).resolve()
    blobs, _ = wiring.open_blobs(str(path.parent))
    return blobs, path.name


def _progress() -> Progress:
    return Progress(console=console.err, transient=True, disable=not sys.stderr.isatty())
