"""The commands `export`, all events into a file; `capture`, those of an incident; `import`, such a file, or older records."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
import typer

from jobevents import capture, console, export, incident, restoring, wiring
from jobevents.boundary import hide_password
from jobevents.cli_options import AsJson, CreateLog, OptionalUrl, Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.importing import Report
from jobevents.opening import is_in_bucket
from jobevents.recorder import under_job_dir
from jobevents.restoring import Restored


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("export")(export_events)
    app.command("import")(import_any)
    app.command("capture")(capture_jobs)


def export_events(
    file: Annotated[
        Path, typer.Argument(help="File to write, compressed with zstd if it ends in .zst; - is standard output.")
    ],
    url: Url,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="With the lines that jobs logged.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a file that was cut short.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse what cannot be read or does not fit its chain, and leave no half file."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all events up to now to a file of CloudEvents lines, their bytes exactly as they are, in commit order.

    A file that was cut short lacks its last line; --resume goes on with it.
    """
    with open_jobs(url) as jobs, console.progress() as bar:
        task = bar.add_task("exporting", total=0)
        done = export.export(
            jobs,
            file,
            logs=logs,
            resume=resume,
            strict=strict,
            overwrite=overwrite,
            on_progress=lambda position, last: bar.update(task, completed=position, total=last),
        )
    if str(file) == "-":
        console.note(_told_of_export(done), to_err=True)
    else:
        console.answer(msgspec.to_builtins(done), _told_of_export(done), as_json)


def _told_of_export(done: export.Exported) -> str:
    resumed = f", {done.resumed_after} of them before" if done.resumed_after else ""
    return f"{_counted(done)}{resumed}, {console.count(done.lines, 'log line')}, digest {done.digest}"


def _counted(done: export.Exported | capture.Captured) -> str:
    return f"{console.count(done.events, 'event')} of {console.count(done.jobs, 'job')}"


def capture_jobs(
    file: Annotated[Path, typer.Argument(help="File to write, ending in .jev.")],
    *,
    url: OptionalUrl = "",
    since: Annotated[str, typer.Option("--from", help="Begin of the window: 2026-11-28T09:14Z, or -2h from now.")] = "",
    until: Annotated[str, typer.Option("--to", help="End of the window; default: now.")] = "",
    only: Annotated[list[str] | None, typer.Option("--jobs", help="This job alone; may be repeated.")] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Take out payloads and all that people wrote; rename people, workers and keys."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Write a worked incident, and say what to try on it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cut the jobs that were at work in a window out of the log, into one file to look at elsewhere: jobevents open FILE."""
    from projections.asof import parse

    if example:
        written = incident.write(file, overwrite=overwrite)
        told = (incident.__doc__ or "").replace("incident.jev", written.file)
        console.answer(msgspec.to_builtins(written), told, as_json)
        return
    if not url or not since:
        raise InvalidValue("give --url and --from, or --example")
    with open_jobs(url) as jobs, console.progress() as bar:
        now = jobs.emitter.clock()
        begin, end = parse(since, now).instant, parse(until, now).instant if until else now
        if begin is None or end is None:
            raise InvalidValue("a window is between two instants, such as 2026-11-28T09:14Z or -2h")
        task = bar.add_task("capturing", total=0)
        done = capture.capture(
            jobs,
            file,
            since=begin,
            until=end,
            only=only or (),
            redact=redact,
            overwrite=overwrite,
            on_progress=lambda at, total: bar.update(task, completed=at, total=total),
        )
    lines_in = f"{console.count(done.lines, 'log line')} in {done.file}"
    told = f"{_counted(done)}, {lines_in}: jobevents open {done.file}"
    lines = [f"{job_id}: left out {why}" for job_id, why in done.left_out.items()]
    console.answer(msgspec.to_builtins(done), "\n".join([told, *lines]), as_json)


def import_any(
    source: Annotated[
        str,
        typer.Argument(
            help="File that export wrote; or a directory or gs://bucket/prefix that holds ID/status.json files."
        ),
    ],
    url: Url,
    reason: Annotated[str, typer.Option("--reason", help="Why; stays on the events made of status records.")] = "",
    partial: Annotated[
        bool, typer.Option("--partial", help="Take what there is of a file that was cut short.")
    ] = False,
    create: CreateLog = False,
    as_json: AsJson = False,
) -> None:
    """Import a file that export wrote, its events exactly as they were; or status records: each becomes one event.

    Repeatable: what is known is passed over, and what was cut short is simply run again. Exit 1 when something was refused.
    """
    path = _file(source)
    if path is None:
        _import_records(source, url, reason, create, as_json)
        return
    with open_jobs(url, create=create or is_in_bucket(url)) as jobs, console.progress() as bar:
        task = bar.add_task("importing", total=0)
        report = restoring.restore(
            jobs.emitter,
            jobs.run_logs,
            path,
            partial=partial,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    console.answer(msgspec.to_builtins(report), _told_of_file(report), as_json)
    if report.refused:
        sys.exit(1)


def _told_of_file(report: Restored) -> str:
    whole = "" if report.is_whole else "; the file was cut short"
    lines = [
        f"{report.events} events imported, {report.known} known before, {report.lines} log lines{whole}",
        f"digest of the file {report.digest}",
    ]
    if report.refused:
        lines.append(f"{report.refused} jobs refused, all or the last of their events:")
        lines += _listed(report.refused, report.reasons)
    lines += [f"  {job_id}: {console.plain(why)}" for job_id, why in report.unreadable.items()]
    return "\n".join(lines)


def _file(source: str) -> Path | None:
    """Return the file that is meant; None when it is a directory or a URL of blobs."""
    if "://" in source and not source.startswith("file:"):
        return None
    path = Path(unquote(urlsplit(source).path) if source.startswith("file:") else source)
    return path if path.is_file() else None


def _import_records(source: str, url: str, reason: str, create: bool, as_json: bool) -> None:
    from projections.joblist import collect

    blobs, prefix = _opened(source)
    with open_jobs(url, create=create or is_in_bucket(url)) as jobs, console.progress() as bar:
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
        raise InvalidValue(
            f"no such directory or file path={path}; a directory holds one for each job, with its status.json"
        )
    blobs, _ = wiring.open_blobs(f"file://{quote(str(path.parent))}")
    return blobs, path.name
