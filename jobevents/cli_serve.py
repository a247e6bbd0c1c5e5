"""The commands `serve`, the API over HTTP, and `open`, the same on a capture, until SIGTERM or Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.parse import quote

import typer

from jobevents import console
from jobevents.cli_options import AsJson, RegistryOption, Url, open_jobs
from jobevents.cli_run import load_registry
from jobevents.errors import InvalidValue, Misconfigured
from jobevents.opening import CAPTURE
from jobevents.serving import address, listen

TOKENS = "JOBEVENTS_TOKENS"  # lines of a file of tokens
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("serve")(serve)
    app.command("open")(open_capture)
    app.command("token")(token)


def serve(
    url: Url,
    registry: RegistryOption = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Listen beyond this machine although anybody would be let in.")
    ] = False,
    tokens: Annotated[
        Path | None,
        typer.Option(help="File of those who are let in, a line of `jobevents token` for each; or JOBEVENTS_TOKENS."),
    ] = None,
    proxy_header: Annotated[
        str, typer.Option(help="Header in which a proxy in front names the caller, such as X-Forwarded-User.")
    ] = "",
    proxy_from: Annotated[list[str] | None, typer.Option(help="Address or network of that proxy.")] = None,
    proxy_role: Annotated[list[str] | None, typer.Option(help="Role of whom it lets through; `read` if none.")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="Name that this server is asked for by.")] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Mask arguments that are called so as well, and all of a job's status."),
    ] = None,
    no_mask: Annotated[bool, typer.Option("--no-mask", help="Show the values of secrets too.")] = False,
) -> None:
    """Serve the dashboard and the API: jobs, their events and logs, queues, workers, metrics. What there is: /openapi.json.

    With --registry it shows the schedules, and jobs submitted here get what
    the registry says of their kind.

    Values of arguments that are called as secrets are (*password*, *token*
    and so on) are shown to nobody. But /api/jobs/ID/status is status.json to
    the byte, as its pollers expect, until you say with --mask what else is
    to be masked: then it is masked as all else.
    """
    try:
        from jobevents.webserver import server_of  # an optional extra, as is what the API needs
        from projections.api import create_app
        from projections.api.access import check_bind, is_loopback
        from projections.api.doors import open_doors
        from projections.api.masking import SECRETS
    except ImportError as error:
        raise Misconfigured(
            f"serving needs more packages: pip install 'jobevents[server]' missing={error.name}"
        ) from error

    if mask and no_mask:
        raise InvalidValue("--mask and --no-mask say the contrary of each other: give one of both")
    masked = () if no_mask else (*SECRETS, *mask) if mask else None
    access = open_doors(
        tokens=_tokens(tokens),
        proxy_header=proxy_header,
        proxy_from=proxy_from or (),
        proxy_roles=proxy_role or ["read"],
        read_only=read_only,
    )
    check_bind(host, access, open_to_all=open_to_all)
    hosts = {*(allowed_host or ()), *(LOOPBACK if is_loopback(host) else ())}
    kinds = load_registry(registry) if registry else None
    with open_jobs(url) as jobs, _without_their_end():
        if kinds is not None:
            jobs.use(kinds)
        app = create_app(jobs, access=access, registry=kinds, hosts=hosts, mask=masked)
        server = server_of(app)
        listener = listen(host, port)
        with listener:
            console.note(f"serving at http://{address(listener)}/; Ctrl-C to stop", to_err=True)
            server.run(sockets=[listener])


def token(
    name: Annotated[str, typer.Argument(help="Who is to hold it: the actor of what is done with it.")],
    role: Annotated[
        list[str] | None,
        typer.Option(help="What they may: read, submit, cancel, retry, delete, pause, admin; `read` if none."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for `serve`, and print it with its line for the file of tokens. It is shown this once, and kept nowhere."""
    from projections.api.doors import line_of, new_token

    made = new_token()
    line = line_of(name, role or ["read"], made)
    if console.wants_json(as_json):
        console.print_json({"token": made, "line": line})
        return
    console.note("for who is to hold it; a browser takes it for the password:")
    console.note(made)
    console.note("for the file of tokens:")
    console.note(line)


def _tokens(file: Path | None) -> tuple[str, str]:
    """Return the lines of those who are let in, and where they are from.

    Raises:
        Misconfigured: the file cannot be read.
    """
    if file is None:
        return os.environ.get(TOKENS, ""), TOKENS if TOKENS in os.environ else ""
    try:
        return file.read_text("utf-8"), str(file)
    except (OSError, UnicodeError) as error:
        raise Misconfigured(f"tokens cannot be read file={file}: {error}") from error


def open_capture(
    file: Annotated[Path, typer.Argument(help="A file that capture wrote: incident.jev.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8765,
) -> None:
    """Serve what a capture shows, read-only, and without a network: as it was at the end of its window.

    Other commands take it too: jobevents list --url incident.jev.
    """
    if not file.is_file() or file.suffix != CAPTURE:
        raise InvalidValue(f"no such capture file={file}: name a file that capture wrote, ending in {CAPTURE}")
    serve(url=quote(str(file)), registry="", host=host, port=port, read_only=True, open_to_all=False)


@contextmanager
def _without_their_end() -> Iterator[None]:
    """Have a signal end the server alone: it raises the signal again once it has stopped, which would end the process."""
    before = {number: signal.signal(number, _pass) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass(number: int, frame: FrameType | None) -> None:
    """Take notice of a signal that has been heeded."""
