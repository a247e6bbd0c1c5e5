"""The command `verify`: proves the log and holds its views against it, says what is wrong, and mends views if told to."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from jobevents import console, files, wiring, wiring_builds
from jobevents.cli_options import MOST, AsJson, Url, open_jobs
from jobevents.errors import InvalidValue, JobEventsError

if TYPE_CHECKING:
    from jobevents.jobs import Jobs
    from projections.checks import Check, Checked
    from projections.rebuild import Rebuilt
    from projections.verify import Report, Root

SHOWN = 40  # flaws at a terminal; --json has those that are kept
_MEANS = {
    "log": "whole, in order, chained, no id twice",
    "rows": "each as its history says",
    "status": "each as its history says",
    "index": "every job, and no other, in its state",
    "archive": "every event as the log has it",
    "root": "history up to there is as it was",
}


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("verify")(verify)


def verify(
    url: Url,
    job: Annotated[list[str] | None, typer.Option("--jobs", help="Only this job; may be repeated.")] = None,
    sample: Annotated[int, typer.Option(min=0, max=MOST, help="Only so many jobs, picked at random; 0: all.")] = 0,
    write_root: Annotated[
        Path | None,
        typer.Option(
            help="Keep the root in this file, if all is right: --root proves later that nothing before was changed."
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Find the root in this file again, at its place in the log.")
    ] = None,
    repair_views: Annotated[
        bool,
        typer.Option(
            "--repair-views", help="Make statuses and the index anew where they differ; the log is never changed."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prove every history, and hold rows, statuses and index against them. Exit 1 if anything differs.

    An event that was altered, removed, swapped, doubled or forked shows.
    What a view has not yet, and does not claim to have, is no fault of it.

    The root is one hash over all histories: the same wherever they are kept.

    --repair-views swaps in what it makes, as a rebuild does. It leaves alone
    whatever puts the log itself in doubt.
    """
    from projections.verify import root_of
    from projections.verify import verify as verified

    known = _read_root(root) if root is not None else None
    began = time.monotonic()
    with open_jobs(url) as jobs:
        with console.progress() as bar, _others(jobs) as others:
            proving = bar.add_task("verifying", total=0)
            report = verified(
                jobs,
                only=job or (),
                sample=sample,
                known=known,
                others=others,
                on_progress=lambda done, total: bar.update(proving, completed=done, total=total),
            )
        took_s = time.monotonic() - began
        if write_root is not None and report.is_right:
            _write_root(write_root, root_of(report, jobs.emitter.clock()))
        mended, trouble = _mended(jobs, report) if repair_views and not report.is_right else (None, "")
    if console.wants_json(as_json):
        repaired = {} if mended is None else {"repaired": msgspec.to_builtins(mended)}
        console.print_json({"right": report.is_right, **msgspec.to_builtins(report), **repaired})
    else:
        _print(report, took_s, advise=mended is None)
        if mended is not None:
            _print_mended(mended, can_roll_back=report.position > 0)
    if trouble:
        console.error(trouble)
    if not report.is_right:
        sys.exit(1)


@contextmanager
def _others(jobs: "Jobs") -> "Iterator[list[Check]]":
    """Give the check of the archive, where there is one."""
    archive = wiring.archive(jobs)
    if archive is None:
        yield []
        return
    from projections.archivecheck import ArchiveCheck

    with ArchiveCheck(archive) as check:
        yield [check]


def _write_root(path: Path, root: "Root") -> None:
    new = path.with_name(f".{path.name}.{files.new_token()}")
    files.write_new(new, msgspec.json.encode(root) + b"\n")
    files.replace(new, path)


def _read_root(path: Path) -> "Root":
    from projections.verify import Root

    try:
        return msgspec.json.decode(path.read_bytes(), type=Root)
    except (msgspec.MsgspecError, OSError) as error:
        raise InvalidValue(f"no root can be read path={path} error={error}; verify --write-root makes one") from error


def _mended(jobs: "Jobs", report: "Report") -> "tuple[Rebuilt | None, str]":
    """Return what was mended, or why nothing could be: the report is shown all the same."""
    try:
        return wiring_builds.mend(jobs, report), ""
    except JobEventsError as error:
        return None, f"nothing was repaired: {error}"


def _print_mended(mended: "Rebuilt", *, can_roll_back: bool) -> None:
    many = "1 status" if mended.replaced == 1 else f"{mended.replaced:,} statuses"
    done = f"{many} made anew, {mended.removed:,} removed"
    console.note(f"{done}{', and the index' if mended.indexed else ''}; verify again to see it right")
    if can_roll_back:
        console.note(f"to take it back: jobevents rebuild --roll-back {mended.build}")


def _print(report: "Report", took_s: float, *, advise: bool) -> None:
    out = console.out
    some = "" if report.whole else " (not all)"
    gone = f", {report.deleted:,} of them deleted" if report.deleted else ""
    gone += f", {report.erased:,} erased" if report.erased else ""
    counted = f"{console.count(report.events, 'event')} of {console.count(report.jobs, 'job')}"
    out.print(Text(f"{counted}{some}{gone}, in {took_s:.1f} s", style="bold"))
    grid = Table.grid(padding=(0, 2))
    for column in ("left", "left", "right", "left", "left"):
        grid.add_column(justify=column, no_wrap=True)
    grid.columns[-1].no_wrap = False
    for check in report.checks:
        mark = ("BAD", "bold red") if check.flaws else ("ok", "green") if check.looked_at else ("-", "dim")
        count = f"{check.looked_at:,}" if check.looked_at else ""
        grid.add_row(Text(*mark), check.name, count, check.of if count else "", _said(check))
    out.print(grid)
    if report.root:
        out.print(Text.assemble(("root ", "dim"), report.root))
    if not report.is_right:
        _print_flaws(report)
        for line in _advice(report) if advise else [""]:
            out.print(line, soft_wrap=True)


def _said(check: "Checked") -> str:
    if check.flaws:
        said = "1 thing is wrong" if check.flaws == 1 else f"{check.flaws:,} things are wrong"
    elif check.looked_at:
        said = _MEANS.get(check.name, "as the log says")
    else:
        return check.note or "nothing to look at"
    behind = f"{check.behind:,} on their way" if check.behind else ""
    return "; ".join(filter(None, [said, behind, check.note]))


def _print_flaws(report: "Report") -> None:
    out = console.out
    total = sum(check.flaws for check in report.checks)
    out.print()
    for flaw in report.flaws[:SHOWN]:
        where = Text.assemble((f"{flaw.check}: {flaw.kind}", "red"), f"  {console.plain(flaw.job_id)}")
        out.print(where, soft_wrap=True)
        out.print(Text.assemble("    ", console.plain(flaw.said)))
    if total > SHOWN:
        console.note(f"… and {total - SHOWN:,} more; --json names {min(total, len(report.flaws)):,} of them")


def _advice(report: "Report") -> list[str]:
    """Say what to do now."""
    from projections.verify import mendable

    bad = {check.name for check in report.checks if check.flaws}
    lines = [""]
    if bad & {"log", "root"}:
        lines.append("The log itself was changed from outside. Keep a copy of it as it is, and restore from a backup.")
    if "rows" in bad:
        lines.append(
            "Rows are written with their events: a program wrote to the table, or the log was put back without it."
        )
    kinds = {flaw.kind for flaw in report.flaws if flaw.check == "status"}
    if "foreign" in kinds:
        lines.append("To have another service's records taken in: jobevents project --once")
    if "parked" in kinds:
        lines.append("To see why jobs are parked: jobevents parked list")
    found = mendable(report)
    if found.job_ids or found.all_statuses or found.index:
        lines.append("To make views anew where they differ: jobevents verify --repair-views")
    return lines
