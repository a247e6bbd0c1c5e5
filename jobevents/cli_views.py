"""The commands of the read side: `project`, and `parked` with what a person can do about parked jobs."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from jobevents import cli_cloud, console, ids, wiring
from jobevents.cli_options import LONGEST_DAYS, LONGEST_S, MOST, AsJson, JobId, Url, open_jobs
from jobevents.errors import InvalidValue, Misconfigured, NotFound, Unavailable
from jobevents.jobs import Jobs
from jobevents.opening import is_in_bucket
from jobevents.records import status_name
from jobevents.store import RunFilter

if TYPE_CHECKING:
    from projections.health import Health
    from projections.parked import Entry
    from projections.projector import Projector

_TICK_S = 0.2  # between two looks at how far the projector is
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

parked_app = typer.Typer(
    name="parked",
    help="Jobs that a view could not take: see why, and have them tried again or passed over.",
    no_args_is_help=True,
)

ViewNames = Annotated[
    list[str] | None, typer.Option("--view", help=f"Only this view ({', '.join(wiring.VIEWS)}); may be repeated.")
]
OneView = Annotated[str, typer.Option("--view", help="Only this view.")]
Version = Annotated[
    int, typer.Option("--version", min=0, max=MOST, help="Only the entry for this event of the job; 0: all of them.")
]


Subscription = Annotated[
    str,
    typer.Option(
        "--subscription", help="Of the topic in --url, on a log of objects; default: the topic's name with -projector."
    ),
]
Create = Annotated[bool, typer.Option("--create", help="Make topic, subscription and log where they are not there.")]
DeadLetter = Annotated[
    str,
    typer.Option("--dead-letter", help="Topic for what was delivered a hundred times, for a subscription made here."),
]
Port = Annotated[
    int, typer.Option("--port", envvar="PORT", min=0, max=65535, help="Answer /healthz and /metrics there; 0: nowhere.")
]
SweepHours = Annotated[
    float,
    typer.Option(
        "--sweep-hours",
        min=0.001,
        max=LONGEST_DAYS * 24,
        help="In which all of a log of objects is listed once.",
    ),
]
SweepSeconds = Annotated[
    float,
    typer.Option(
        "--sweep-seconds",
        min=0.1,
        max=LONGEST_S,
        help="Between two looks at unfinished jobs, while something is amiss.",
    ),
]
SweepOperations = Annotated[
    float,
    typer.Option("--sweep-operations", min=1, max=1e6, help="Reads and lists a second of the sweep, at most."),
]


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("project")(project)
    app.add_typer(parked_app)


def project(
    url: Url,
    once: Annotated[bool, typer.Option("--once", help="End when everything in the log now is stored.")] = False,
    view: ViewNames = None,
    subscription: Subscription = "",
    create: Create = False,
    dead_letter: DeadLetter = "",
    port: Port = 0,
    sweep_hours: SweepHours = 24.0,
    sweep_seconds: SweepSeconds = 60.0,
    sweep_operations: SweepOperations = 200.0,
    as_json: AsJson = False,
) -> None:
    """Keep the views (each job's status.json, the index of all) in step with the log until Ctrl-C; then say how they are.

    A second process stands by.
    On a log of objects any number of processes share the messages of --subscription, and one of them sweeps.
    Exit 1 when --once was ended by a signal, or by a store that could not be read or written.
    """
    with open_jobs(url, create=create and is_in_bucket(url)) as jobs:
        if not jobs.log.ordered:
            if view:
                raise Misconfigured("on a log of objects both views are kept together: leave out --view")
            cli_cloud.project(
                jobs,
                subscription,
                create=create,
                dead_letter=dead_letter,
                once=once,
                port=port,
                pace=(sweep_hours * 3600, sweep_seconds, sweep_operations),
                as_json=as_json,
            )
            return
        from projections.service import FollowerHealth

        if subscription or create:
            raise Misconfigured("a log in a database is projected by its own sequence: leave out the subscription")
        projector = wiring.projector(jobs, list(dict.fromkeys(view or ())), leased=not once)
        if jobs.relay is not None:
            jobs.relay.start()  # sends what a process left that was killed
        stop = threading.Event()
        with _stopping(stop, projector), cli_cloud.answering(FollowerHealth(projector, jobs.counts), port):
            is_done = _watch(jobs, projector, partial(projector.run_once if once else projector.run, stop))
        health = projector.health()
        if once and is_done:
            _refuse_lost(jobs, health)
    _print_health(health, as_json)
    if is_done is False:
        sys.exit(1)


def _refuse_lost(jobs: Jobs, health: "Sequence[Health]") -> None:
    """Do not say that statuses are up to date of which none is there: their position is in the database, they are beside it.

    One read; where the newest job has no status, a list more.
    """
    newest = next(iter(jobs.store.list(RunFilter(per_page=1)).runs), None)
    if newest is None or "status" not in [one.view for one in health]:
        return
    try:
        jobs.blobs.get(jobs.blob_name(status_name(newest.id)))
    except NotFound:
        if next(iter(jobs.blobs.list(jobs.blob_name("jobs/"), delimiter="/")), None) is None:
            raise Unavailable(
                "every status is stored, by the position in the database, and none is there: were their files removed? "
                "make the views anew with: jobevents rebuild"
            ) from None


def _print_health(health: "Sequence[Health]", as_json: bool) -> None:
    if console.wants_json(as_json):
        console.print_json(health)
        return
    for one in health:
        behind = f", {one.lag_events} events behind" if one.lag_events else ""
        parked = f", {console.count(one.parked, 'job')} parked: see jobevents parked list" if one.parked else ""
        console.out.print(f"{one.view}: at {one.position} of {one.head}{behind}{parked}", soft_wrap=True)


def _watch(jobs: Jobs, projector: "Projector", work: Callable[[], bool | None]) -> bool | None:
    """Do the work in a thread of its own and show how far it is: a signal's handler must not find this thread in its locks."""
    with (
        ThreadPoolExecutor(1, thread_name_prefix="jobevents-projector") as pool,
        Progress(console=console.err, transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        done: Future[bool | None] = pool.submit(work)
        tasks = {name: bar.add_task(name, total=int(jobs.log.last_cursor() or 0)) for name in projector.positions()}
        while not _is_done(done):
            for name, position in projector.positions().items():
                bar.update(tasks[name], completed=position)
        return done.result()


def _is_done(work: "Future[bool | None]") -> bool:
    try:
        work.exception(timeout=_TICK_S)
    except TimeoutError:
        return False
    return True


@contextmanager
def _stopping(stop: threading.Event, projector: "Projector") -> Iterator[None]:
    """Have the signals that end a process end the projector, with everything stored."""

    def ask(number: int, frame: object) -> None:
        stop.set()
        projector.wake()

    before = {number: signal.signal(number, ask) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@parked_app.command("list")
def parked_list(url: Url, view: OneView = "", as_json: AsJson = False) -> None:
    """List the parked jobs, and those that were discarded."""
    with open_jobs(url) as jobs:
        entries = _entries(jobs, view)
    if console.wants_json(as_json):
        console.print_json([_without_data(entry) for entry in entries])
    elif not entries:
        console.out.print("nothing is parked")
    else:
        rows = [[console.plain(cell) for cell in _cells(entry)] for entry in entries]
        console.print_table(["job", "view", "event", "status", "parked", "why"], rows)


@parked_app.command("show")
def parked_show(job_id: JobId, url: Url, view: OneView = "", as_json: AsJson = False) -> None:
    """Show why a job is parked, with the stored bytes of the event at which it stopped."""
    with open_jobs(url) as jobs:
        entries = _found(jobs, job_id, view)
    if console.wants_json(as_json):
        console.print_json([entry.parked for entry in entries])
        return
    for entry in entries:
        for key, value in msgspec.to_builtins(entry.parked).items():
            console.out.print(f"{key}: ", console.plain(value), soft_wrap=True)


@parked_app.command()
def requeue(
    job_id: Annotated[str, typer.Argument(help="The job's id; leave it out with --all.")] = "",
    *,
    url: Url,
    view: OneView = "",
    version: Version = 0,
    all_jobs: Annotated[bool, typer.Option("--all", help="Every parked job, as after an upgrade.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have the projector fold a parked job again; it is parked again if that fails again."""
    from projections.parked import requeue as ask

    if bool(job_id) == all_jobs:
        raise InvalidValue("give a job id, or --all")
    _change(url, job_id, view, version, ask, as_json)


@parked_app.command()
def discard(job_id: JobId, url: Url, view: OneView = "", version: Version = 0, as_json: AsJson = False) -> None:
    """Have the projector pass over the event at which a job stopped, in this view, for good; the log keeps the event."""
    from projections.parked import discard as ask

    _change(url, job_id, view, version, ask, as_json)


def _change(
    url: str, job_id: str, view: str, version: int, ask: "Callable[[Any, Entry], Entry]", as_json: bool
) -> None:
    """Ask for something in every entry that is meant; what was discarded stays so, unless it is named."""
    with open_jobs(url) as jobs:
        entries = [
            entry
            for entry in _found(jobs, job_id, view)
            if entry.parked.version == version or (not version and entry.parked.status != "discarded")
        ]
        if not entries:
            raise NotFound(f"nothing to change job_id={job_id} version={version}; see jobevents parked list")
        changed = [ask(jobs.blobs, entry) for entry in entries]
    if console.wants_json(as_json):
        console.print_json([_without_data(entry) for entry in changed])
        return
    for entry in changed:
        one = entry.parked
        console.out.print(console.plain(f"{one.job_id}#{one.version} in {one.view}: {one.status}"), soft_wrap=True)


def _entries(jobs: Jobs, view: str = "", job_id: str = "") -> "list[Entry]":
    from projections.parked import list_parked

    return list(list_parked(jobs.blobs, jobs.prefix, view, job_id))


def _found(jobs: Jobs, job_id: str, view: str) -> "list[Entry]":
    if job_id:
        ids.validate(job_id)
    entries = _entries(jobs, view, job_id)
    if not entries:
        what = f"job_id={job_id}" if job_id else "--all"
        raise NotFound(f"nothing is parked {what}; see jobevents parked list")
    return entries


def _cells(entry: "Entry") -> list[str]:
    one = entry.parked
    when = console.local(one.parked_at, short=True)
    return [f"{one.job_id}#{one.version}", one.view, one.type, one.status, when, one.error]


def _without_data(entry: "Entry") -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(entry.parked)
    return {key: value for key, value in fields.items() if key not in ("data", "data_base64")}
