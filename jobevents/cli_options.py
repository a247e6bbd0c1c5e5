"""Options that commands share, and how they open what is asked for."""

import getpass
import os
import socket
from typing import Annotated

import typer

from jobevents import wiring
from jobevents.jobs import Jobs

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="JOBEVENTS_URL",
        help="The log: sqlite:///data/jobs.db (or sqlite:////absolute.db), postgresql://user@host/database.",
    ),
]
OptionalUrl = Annotated[str, typer.Option("--url", envvar="JOBEVENTS_URL", help="The log, as of other commands.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as is done anyhow when the output is no terminal.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="WHEN",
        help="As it was then: an instant with its zone (2026-11-28T09:14Z), -15m (s, m, h, d) for as long ago, or @1234 for "
        "after event 1234 of the log, in the order in which all were committed.",
    ),
]
JobId = Annotated[str, typer.Argument(help="The job's id.")]


def open_jobs(url: str, *, create: bool = False, delivers: bool = False) -> Jobs:
    """Open the log; only commands that write the first job make a new file, so that a mistyped path shows.

    Args:
        delivers: have external jobs that begin to wait handed to the task queue that JOBEVENTS_DISPATCH names, if it does.
    """
    dispatch = os.environ.get("JOBEVENTS_DISPATCH") if delivers else None
    return wiring.connect(url, create=create, actor=_actor(), dispatch=dispatch or None)


def _actor() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a passwd entry
        user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "user"
    return f"{user}@{socket.gethostname()}"
