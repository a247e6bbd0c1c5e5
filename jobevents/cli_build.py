"""The commands `rebuild`, the views from the log, and `import`, records that were there before it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
import typer

from jobevents import console, wiring
from jobevents.boundary import hide_password
from jobevents.cli_options import AsJson, Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.importing import Report
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


def import_records(
    source: Annotated[str, typer.Argument(help="Directory or gs://bucket/prefix that holds ID/status.json files.")],
    url: Url,
    reason: Annotated[str, typer.Option("--reason", help="Why; stays on the events.")] = "",
    as_json: AsJson = False,
) -> None:
    """Import status records that were there before: each becomes one event. Repeatable: what is known is passed over.

    Cut short, it is simply run again. Exit 1 when a record could not be read.
    """
    from projections.joblist import collect

    blobs, prefix = _opened(source)
    with open_jobs(url, create=True) as jobs, console.progress() as bar:
        job_ids = collect(blobs, prefix)
        task = bar.add_task("importing", total=len(job_ids))
        report = jobs.import_records(
            blobs, under_job_dir(prefix), job_ids, reason=reason, on_done=lambda count: bar.advance(task, count)
        )
    blobs.close()
    console.answer(msgspec.to_builtins(report), _told_of_import(report, source), as_json)
    if report.unreadable:
        sys.exit(1)


def _told_of_import(report: Report, source: str) -> str:
    if report == Report():
        return f"nothing to import: no ID/status.json below {hide_password(source)}"
    lines = [f"{report.imported} imported, {report.known} known before, {report.unreadable} not readable"]
    lines += _listed(report.unreadable, report.reasons)
    lines += [f"  {job_id}: left out {keys}" for job_id, keys in report.left_out.items()]
    return "\n".join(lines)


def _listed(count: int, reasons: Mapping[str, str]) -> list[str]:
    more = [f"  … and {count - len(reasons)} more"] if count > len(reasons) else []
    return [f"  {console.plain(job_id)}: {console.plain(why)}" for job_id, why in reasons.items()] + more


def _opened(source: str) -> tuple[Any, str]:
    """Return (blobs, prefix); of a local directory, its parent and its name, since a listing needs a prefix.

    Raises:
        InvalidValue: there is no such directory, or the URL names none.
    """
    if "://" in source and not source.startswith("file:"):
        if not urlsplit(source).path.strip("/"):
            raise InvalidValue(f"name the directory that the records are in source={hide_password(source)}")
        return wiring.open_blobs(source)
    path = Path(unquote(urlsplit(source).path) if source.startswith("file:") else source).resolve()
    if not path.is_dir():
        raise InvalidValue(f"no such directory path={path}; it holds a directory for each job, with its status.json")
    blobs, _ = wiring.open_blobs(f"file://{quote(str(path.parent))}")
    return blobs, path.name


def _many(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
