"""The command line: a table at a terminal, JSON in a pipe or with --json; exit 0, 1 when it failed, 2 when used wrongly."""

import io
import os
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
from rich.progress import Progress
from rich.text import Text

from jobevents import (
    cli_build,
    cli_cloud,
    cli_erase,
    cli_export,
    cli_history,
    cli_keep,
    cli_orders,
    cli_pages,
    cli_run,
    cli_serve,
    cli_sql,
    cli_verify,
    cli_views,
    cli_workers,
    commands,
    console,
    demo,
    doctor,
    serving,
    wiring,
)
from jobevents.cli_options import (
    MOST,
    Actor,
    AsJson,
    At,
    CreateLog,
    Delay,
    JobId,
    Reason,
    RegistryOption,
    Url,
    decode_params,
    open_jobs,
)
from jobevents.cli_run import load_registry
from jobevents.errors import InvalidValue, JobEventsError, Misconfigured
from jobevents.jobs import Jobs
from jobevents.opening import is_in_bucket

app = typer.Typer(
    name="jobevents",
    help="Every transition of every background job kept as an event, and everything else folded from the events.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"jobevents {version('jobevents')}\n")
        raise typer.Exit


@app.callback()
def options(
    shown: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Take what comes before the command."""


class _Interrupted(BaseException):
    """Ctrl-C or SIGTERM; no library between here and the command takes it for its own business."""

    def __init__(self, number: int) -> None:
        self.number = number  # of the signal


def main() -> None:
    """Run the command line and exit: 0, 1 when it failed, 2 when used wrongly, 130 after Ctrl-C, 143 after SIGTERM."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not with `nohup`
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # which would end the process with events not published yet
        signal.signal(signal.SIGTERM, _interrupt)
    _make_writable()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except _Interrupted as interrupted:
        console.error("interrupted; what was written until now is kept")
        sys.exit(128 + interrupted.number)  # as shells have it
    except BrokenPipeError:  # `jobevents list | head` ends quietly
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (InvalidValue, Misconfigured) as error:
        console.error(str(error))
        sys.exit(2)
    except (JobEventsError, OSError) as error:
        console.error(str(error))
        sys.exit(1)


def _make_writable() -> None:
    """Let a terminal that cannot show a character get its escape, and a process without standard output run all the same."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process is
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _interrupt(number: int, frame: object) -> None:
    raise _Interrupted(number)


@app.command("demo")
def demo_command(
    path: Annotated[Path | None, typer.Argument(help="Files to work on; default: this package's own source.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End after the work, with the summary.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to keep the database; default: a new directory for temporary files."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the dashboard listens, for this machine.")] = 8765,
    as_json: AsJson = False,
) -> None:
    """Run a real job for each file under PATH and check every promise; then go on, to be watched in a browser, until Ctrl-C.

    Exit 0 only if all promises held.
    """
    files = demo.files_under(path or Path(__file__).parent)
    kept = directory or Path(tempfile.mkdtemp(prefix="jobevents-demo-"))
    kept.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{quote(str(kept.resolve() / 'jobs.db'))}"
    with wiring.connect(url, inline=True, actor="demo") as jobs, ExitStack() as around:
        place = ""
        if not once and (missing := serving.missing()):
            console.note(f"to watch it in a browser: pip install 'jobevents[server]' missing={missing}", to_err=True)
        elif not once:
            place = around.enter_context(serving.serving(jobs, port=port, actor="you"))
            console.note(f"watch it at {place}", to_err=True)
        run = demo.Demo(jobs, files, kept)
        with Progress(console=console.err, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(f"{run.total} jobs, {demo.WORKERS} workers", total=run.total)
            summary = run.run(lambda: bar.advance(task))
        if console.wants_json(as_json):
            console.print_json({**msgspec.to_builtins(summary), "held": summary.held, "url": url})
        else:
            _print_summary(summary, url)
        if place:
            sys.stdout.flush()
            console.note(f"going on, to be watched at {place}; Ctrl-C to stop", to_err=True)
            _go_on(jobs, files)
    if not summary.held:
        sys.exit(1)


def _go_on(jobs: Jobs, files: list[Path]) -> None:
    """Have jobs come and go until Ctrl-C, which is the way to end this well."""
    stop = threading.Event()
    thread = threading.Thread(target=demo.go_on, args=(jobs, files, stop), name="demo", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)  # in steps, so that Ctrl-C is heard
    except _Interrupted:
        pass
    finally:
        stop.set()
        thread.join(demo.PATIENCE_S)


def _print_summary(summary: demo.Summary, url: str) -> None:
    out = console.out
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    out.print(f"[bold]{summary.jobs} jobs in {summary.seconds:.1f} s[/bold]: {states}")
    out.print(
        f"{summary.bytes_read:,} bytes in {summary.lines:,} lines, compressible to {summary.compressed_to:.0%}; "
        f"{summary.events:,} events kept, {summary.refused_deliveries} doubled delivery refused",
        soft_wrap=True,
    )
    for promise, held in summary.promises.items():
        out.print(f"  {'[green]held  [/green]' if held else '[red]BROKEN[/red]'} {promise}")
    out.print("\nWhat to type next:")
    out.print(f"  export JOBEVENTS_URL={url}", soft_wrap=True)
    out.print("  jobevents list --state failed")
    for job_id, what in (
        (summary.retried_job, "failed, then succeeded"),
        (summary.canceled_job, "who canceled it, and why"),
    ):
        out.print(f"  jobevents events {job_id}   [dim]# {what}[/dim]", soft_wrap=True)


@app.command()
def submit(
    name: Annotated[str, typer.Argument(help="Which kind of job.")],
    url: Url,
    params: Annotated[str, typer.Argument(help="JSON for the handler.")] = "null",
    id: Annotated[str | None, typer.Option(help="The job's id; default: a new one.")] = None,
    title: Annotated[str, typer.Option(help="A title for people.")] = "",
    queue: Annotated[str | None, typer.Option(help="Which queue hands it out; default: `default`.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: one unfinished job for a name and key.")] = None,
    at: At = None,
    delay: Delay = None,
    priority: Annotated[
        int | None, typer.Option(min=-(2**15), max=2**15 - 1, help="Higher goes first; default: 0.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, max=2**15 - 1, help="Tries before it stays failed; default: 1.")
    ] = None,
    external: Annotated[bool, typer.Option("--external", help="Your own task queue delivers it.")] = False,
    registry: RegistryOption = "",
    create: CreateLog = False,
    actor: Actor = None,
    reason: Reason = "",
) -> None:
    """Queue a job and print its id as JSON.

    What a registry says of a kind of job (its queue, how many tries, what its
    params must be) holds with --registry alone. Without it this command does
    not know it: what no option says is then queue default, and one try.
    """
    decoded = decode_params(params)
    kinds = load_registry(registry) if registry else None
    with open_jobs(url, create=create or is_in_bucket(url), delivers=True) as jobs:
        if kinds is not None:
            jobs.use(kinds)
            if kinds.get(name) is None:
                names = ", ".join(one.name for one in kinds)
                console.note(
                    f"no kind of job in {registry} has this name name={name}; it has {names or 'none'}", to_err=True
                )
        wanted = commands.Submission(
            name=name,
            params=decoded,
            id=id,
            title=title,
            queue=queue,
            key=key,
            at=at,
            delay=delay,
            priority=priority,
            max_attempts=max_attempts,
            external=external,
        )
        answer = jobs.submit_or_find(wanted, actor=actor, reason=reason)
    console.print_json(answer)


cli_pages.add_to(app)  # help shows commands in the order in which they come here


@app.command()
def events(job_id: JobId, url: Url, as_json: AsJson = False) -> None:
    """Show a job's whole history: every event, by whom and why."""
    with open_jobs(url) as jobs:
        history = jobs.history(job_id)
    if console.wants_json(as_json):
        console.print_json(history)
    else:
        console.print_events(history)


@app.command()
def logs(
    job_id: JobId,
    url: Url,
    after_seq: Annotated[int, typer.Option(min=0, max=MOST, help="Lines after this one.")] = 0,
    limit: Annotated[int, typer.Option(min=0, max=MOST, help="At most so many; 0: all.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a job's log lines, in order across its attempts."""
    with open_jobs(url) as jobs:
        jobs.job(job_id)
        lines = jobs.run_logs.logs(job_id, after_seq, limit)
    if console.wants_json(as_json):
        console.print_json(lines)
    else:
        console.print_lines(lines)


cli_orders.add_to(app)
cli_run.add_to(app)
cli_serve.add_to(app)
cli_workers.add_to(app)
cli_views.add_to(app)
cli_build.add_to(app)
cli_cloud.add_to(app)
cli_history.add_to(app)
cli_verify.add_to(app)
cli_export.add_to(app)
cli_sql.add_to(app)
cli_keep.add_to(app)
cli_erase.add_to(app)


@app.command()
def migrate(
    url: Url,
    show_ddl: Annotated[bool, typer.Option("--print", help="Print the DDL, to own it; change nothing.")] = False,
) -> None:
    """Make the tables of a new log, or bring those of an older version to this one's schema; safe to repeat."""
    if show_ddl:
        sys.stdout.write(wiring.ddl(url))
    else:
        steps = wiring.migrate(url)
        applied = f"applied schema steps {', '.join(map(str, steps))}"
        told = f"the log is new, and ready; {applied}" if 1 in steps else applied
        console.note(told if steps else "nothing to do: the tables have this version's schema", to_err=True)


@app.command("doctor")
def doctor_command(url: Url, as_json: AsJson = False) -> None:
    """Check that the log, the table of jobs and the blobs work. Exit 1 when something is wrong."""
    with open_jobs(url) as jobs:
        findings = doctor.examine(jobs, store=wiring.check_blobs)
    if console.wants_json(as_json):
        console.print_json(findings)
    else:
        for finding in findings:
            mark = ("ok ", "green") if finding.ok else ("BAD", "red")
            line = Text.assemble(mark, " ", console.plain(f"{finding.check}: {finding.found}"))
            console.out.print(line, soft_wrap=True)
    if not all(finding.ok for finding in findings):
        sys.exit(1)
