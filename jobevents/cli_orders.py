"""The commands that change a job: cancel, retry, rerun, delete."""

import sys
from typing import Annotated

import typer
from msgspec import UNSET

from jobevents import commands, console
from jobevents.cli_options import Actor, AsJson, At, Delay, JobId, Reason, RegistryOption, Url, decode_params, open_jobs
from jobevents.cli_run import load_registry
from jobevents.errors import NotFound


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    for command in (cancel, retry, rerun, delete):
        app.command()(command)


def cancel(
    job_id: JobId,
    url: Url,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="End a running one at once: its worker may work on, but what that comes to is refused."
        ),
    ] = False,
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a job that has not started, or ask a running one to stop. Exit 1 when it had ended before."""
    with open_jobs(url) as jobs:
        outcome = jobs.cancel(job_id, force=force, actor=actor, reason=reason)
    if outcome is commands.CancelOutcome.UNKNOWN:
        raise NotFound(f"no such job job_id={job_id}")
    console.answer({"job_id": job_id, "outcome": outcome.value}, f"{job_id}: {outcome.value}", as_json)
    if outcome is commands.CancelOutcome.ALREADY_FINAL:
        sys.exit(1)


def retry(
    job_id: JobId,
    url: Url,
    at: At = None,
    delay: Delay = None,
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Give a failed job one more try, or one that waits another time. (What has succeeded or was canceled: rerun.)"""
    with open_jobs(url, delivers=True) as jobs:
        jobs.retry(job_id, at=at, delay=delay, actor=actor, reason=reason)
    console.answer({"job_id": job_id}, f"{job_id}: queued", as_json)


def rerun(
    job_id: JobId,
    url: Url,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Run it as a new job, with the same params or others.")
    ] = False,
    params: Annotated[
        str | None, typer.Option("--params", help="JSON for the handler, of the new job; default: those of this one.")
    ] = None,
    at: At = None,
    delay: Delay = None,
    registry: RegistryOption = "",
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Run a job again that has ended, however it did, from its first try. (A failed one may also be given one more: retry.)

    With --registry, the params of a new job are checked as its kind has it.
    """
    others = UNSET if params is None else decode_params(params)
    kinds = load_registry(registry) if registry else None
    with open_jobs(url, delivers=True) as jobs:
        if kinds is not None:
            jobs.use(kinds)
        queued = jobs.rerun(job_id, as_new=as_new, params=others, at=at, delay=delay, actor=actor, reason=reason)
    console.answer({"job_id": queued}, f"{queued}: queued", as_json)


def delete(
    job_id: JobId,
    url: Url,
    artifacts: Annotated[bool, typer.Option("--artifacts", help="Remove all blobs under jobs/ID/ too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Delete a job for good; a deleted job never comes back, its history is kept until it is erased."""
    with open_jobs(url) as jobs:
        if not yes and sys.stdin.isatty():
            typer.confirm(f"delete {job_id} for good?", abort=True, err=True)
        deleted = jobs.delete(job_id, artifacts=artifacts, actor=actor, reason=reason)
    console.answer(
        {"job_id": job_id, "deleted": deleted}, f"{job_id}: {'deleted' if deleted else 'was deleted before'}", as_json
    )
