"""Options that commands share, and how they open what is asked for."""

import getpass
import os
import socket
from typing import Annotated, Any

import msgspec
import typer

from jobevents import wiring
from jobevents.errors import InvalidValue, Misconfigured
from jobevents.jobs import Jobs

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="JOBEVENTS_URL",
        help="The log: sqlite:///data/jobs.db (sqlite:////absolute.db), postgresql://user@host/database, gs://bucket/prefix, "
        "s3://bucket/prefix, file:///directory, or a capture (incident.jev).",
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
MOST = 2**63 - 1  # what a column of a database holds
LONGEST_S, LONGEST_DAYS = 86_400.0, 36_500.0  # of what options say in seconds, a day; and in days, a century

JobId = Annotated[str, typer.Argument(help="The job's id.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who asks for it; default: user@host.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; stays on the event.")]
At = Annotated[str | None, typer.Option("--at", help="Not before, ISO 8601 with a zone.")]
Delay = Annotated[
    float | None, typer.Option("--delay", min=0, max=LONGEST_DAYS * 86_400, help="Not before, seconds from now.")
]
RegistryOption = Annotated[
    str,
    typer.Option(
        "--registry",
        metavar="MODULE:NAME",
        envvar="JOBEVENTS_REGISTRY",
        help="The kinds of jobs, as `jobevents run` takes them.",
    ),
]
CreateLog = Annotated[
    bool,
    typer.Option(
        "--create",
        help="Make the file or directory of --url if it is not there; else that is an error.",
    ),
]


def decode_params(params: str) -> Any:  # any JSON value
    """Return params that were given as JSON.

    Raises:
        InvalidValue: they are none.
    """
    try:
        return msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidValue(f"params are no JSON: {error}; quote them, like '{{\"song\": 7}}'") from error


def open_jobs(url: str, *, create: bool = False, delivers: bool = False) -> Jobs:
    """Open the log. One that is not there is made only if that was asked for: else a mistyped path would look like an empty log.

    Args:
        create: make the log that is not there.
        delivers: have external jobs that begin to wait handed to the task queue that JOBEVENTS_DISPATCH names, if it does.

    Raises:
        Misconfigured: it is not there, or ends with this command; or as `wiring.connect`, as the other errors are.
    """
    if url.startswith("memory:"):
        raise Misconfigured(
            "a log in memory ends with this command: name a file or a database, such as sqlite:///data/jobs.db"
        )
    dispatch = os.environ.get("JOBEVENTS_DISPATCH") if delivers else None
    return wiring.connect(url, create=create, actor=_actor(), dispatch=dispatch or None)


def _actor() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a passwd entry
        user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "user"
    return f"{user}@{socket.gethostname()}"
