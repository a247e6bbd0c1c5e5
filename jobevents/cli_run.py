"""The commands of the runner: `run`, what waits in which queue, what is due when, and pausing both."""

import importlib
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import msgspec
import typer

from jobevents import console, overview
from jobevents.boundary import did_you_mean
from jobevents.cli_options import LONGEST_S, AsJson, CreateLog, Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.jobs import Jobs
from jobevents.opening import is_in_bucket
from jobevents.registry import Registry
from jobevents.runner import GRACE_S, WORKERS, JobRunner

RegistryName = Annotated[
    str, typer.Argument(metavar="MODULE:REGISTRY", help="Where the registry is, such as studio.jobs:registry.")
]
JobKind = Annotated[str, typer.Option("--job", help="The kind of job.")]
QueueName = Annotated[str, typer.Option("--queue", help="The queue.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown to who asks what is paused.")]


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("run")(run)
    app.command("queues")(queues)
    app.command("schedules")(schedules)
    app.command("pause")(pause)
    app.command("resume")(resume)


def load_module(module_name: str) -> ModuleType:
    """Import a module, from the current directory too.

    Raises:
        InvalidValue: there is no such module.
    """
    if "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not f"{module_name}.".startswith(f"{error.name}."):
            raise  # of something that the module imports
        raise InvalidValue(
            f"no such module module={module_name!r}; run it where `import {module_name}` works"
        ) from error


def load_registry(name: str) -> Registry:
    """Import a registry by `module:name`.

    Raises:
        InvalidValue: there is no such module, or it has no registry of that name.
    """
    module_name, _, attribute = name.partition(":")
    module = load_module(module_name)
    found = getattr(module, attribute, None)
    if not isinstance(found, Registry):
        names = ", ".join(key for key, value in vars(module).items() if isinstance(value, Registry))
        raise InvalidValue(f"no registry in the module name={name!r}; it has {names or 'none'}: write MODULE:REGISTRY")
    return found


def run(
    registry: RegistryName,
    url: Url,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Handlers that may run at once.")] = WORKERS,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Only this queue; may be repeated. Default: `default`, and those that the registry names."
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0, max=LONGEST_S, help="Seconds that handlers have to finish after a signal."),
    ] = GRACE_S,
    logs: Annotated[str, typer.Option(help="Keep `logging` records of handlers: off, failure or always.")] = "off",
    log_level: Annotated[str, typer.Option(help="What this process says on standard error.")] = "info",
    create: CreateLog = False,
) -> None:
    """Run jobs with the handlers of a registry, until Ctrl-C or SIGTERM: what does not end in time then is queued again.

    A second signal does not wait for handlers.
    """
    found = load_registry(registry)
    if logs not in ("off", "failure", "always"):
        raise InvalidValue(f"logs must be off, failure or always value={logs!r}")
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise InvalidValue(f"no such level value={log_level!r}; use debug, info, warning or error")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with open_jobs(url, create=create or is_in_bucket(url), delivers=True) as jobs:
        runner = JobRunner(jobs, found, workers=workers, queues=queue, grace_s=grace, logs=logs)  # type: ignore[arg-type]
        known = {"default", *(one.queue for one in found)}
        for name in [name for name in queue or () if name not in known]:
            hint = did_you_mean(name, known)
            console.note(f"no kind of job in {registry} is of the queue name={name!r:.80}{hint}", to_err=True)
        console.note(f"{len(found)} kinds of jobs, {workers} workers; Ctrl-C to stop", to_err=True)
        runner.run()


def queues(url: Url, as_json: AsJson = False) -> None:
    """List the queues: what waits, runs and has failed, since when the oldest is due, and what is paused."""
    with open_jobs(url) as jobs:
        seen = overview.queues(jobs)
        paused = jobs.paused()
        if any(one.running for one in seen):
            _tell_lost(jobs, seen)
    if console.wants_json(as_json):
        console.print_json(msgspec.to_builtins(seen))
        return
    rows = [
        [
            one.queue,
            str(one.queued),
            f"{one.running} ({one.lost} lost)" if one.lost else str(one.running),
            str(one.failed),
            console.local(one.oldest_due, short=True),
            one.paused_by,
        ]
        for one in seen
    ]
    headings = ["queue", "queued", "running", "failed", "oldest due", "paused by"]
    console.print_table(headings, [[console.plain(cell) for cell in row] for row in rows])
    for pause in paused:
        if pause.kind == "job":
            console.note(f"paused: the job {pause.name}, by {pause.by or 'somebody'} {pause.reason}".rstrip())


def _tell_lost(jobs: Jobs, seen: list[overview.QueueSeen]) -> None:
    from projections.lost import Losses

    lost = Losses(jobs).by_queue()
    for one in seen:
        one.lost = lost[one.queue]


def schedules(registry: RegistryName, url: Url, as_json: AsJson = False) -> None:
    """List the periodic jobs: when each is due next, and what became of its last run."""
    found = load_registry(registry)
    with open_jobs(url) as jobs:
        seen = overview.schedules(jobs, found)
    if console.wants_json(as_json):
        console.print_json(seen)
    elif not seen:
        console.out.print("no periodic jobs: give one a schedule=")
    else:
        rows = [
            [one.job, one.schedule, console.local(one.next_at, short=True), one.last_state or "-", one.last_id or "-"]
            for one in seen
        ]
        headings = ["job", "schedule", "next", "last run", "its id"]
        console.print_table(headings, [[console.plain(cell) for cell in row] for row in rows])


def pause(
    url: Url,
    job: JobKind = "",
    queue: QueueName = "",
    reason: Reason = "",
    force: Annotated[bool, typer.Option("--force", help="Also what no job is of yet.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hand out no run of a kind of job, or of a queue, until it is resumed. What runs goes on, what is submitted waits."""
    with open_jobs(url) as jobs:
        if not force:
            overview.check_known(jobs, job=job, queue=queue)
        is_new = jobs.pause(job=job, queue=queue, reason=reason)
    what = f"the job {job}" if job else f"the queue {queue}"
    console.answer({"paused": is_new}, f"{what}: {'paused' if is_new else 'was paused before'}", as_json)


def resume(url: Url, job: JobKind = "", queue: QueueName = "", as_json: AsJson = False) -> None:
    """Hand out again what was paused. Exit 1 when it was not."""
    with open_jobs(url) as jobs:
        was_paused = jobs.resume(job=job, queue=queue)
    what = f"the job {job}" if job else f"the queue {queue}"
    console.answer({"resumed": was_paused}, f"{what}: {'resumed' if was_paused else 'was not paused'}", as_json)
    if not was_paused:
        sys.exit(1)
