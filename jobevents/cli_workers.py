"""The command `workers`: who lives, who does not, and what each holds."""

from typing import Annotated

import typer

from jobevents import console
from jobevents.cli_options import AsJson, Url, open_jobs
from jobevents.reaper import WorkerSeen

SHOWN_JOBS = 3  # ids in a line of the table; --json has all


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("workers")(list_workers)


def list_workers(
    url: Url,
    reap: Annotated[bool, typer.Option("--reap", help="Give the jobs of dead workers back first.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the workers, the living first, each with the running jobs it holds.

    What a dead one holds is given back by any process that works, within another lease; where none does, by --reap.
    """
    with open_jobs(url) as jobs:
        if reap:
            jobs.reap()
        found = jobs.workers()
    if console.wants_json(as_json):
        console.print_json(found)
    elif not found:
        console.out.print("no workers: a worker is listed from its first attempt to the close of its jobs")
    else:
        rows = [[console.plain(cell) for cell in _cells(one)] for one in found]
        console.print_table(["worker", "state", "last seen", "started", "version", "holds"], rows)


def _cells(one: WorkerSeen) -> list[str]:
    """Return a worker's line; an identity is never cut, since it is what stands in the history."""
    seen = "-" if one.last_seen_s is None else f"{one.last_seen_s:.0f} s ago"
    more = f" and {len(one.jobs) - SHOWN_JOBS} more" if len(one.jobs) > SHOWN_JOBS else ""
    holds = f"{len(one.jobs)}: {', '.join(one.jobs[:SHOWN_JOBS])}{more}" if one.jobs else "-"
    state = "alive" if one.is_alive else "dead"
    return [one.worker, state, seen, console.local(one.started_at, short=True), one.version or "-", holds]
