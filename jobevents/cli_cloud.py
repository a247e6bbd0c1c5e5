"""The commands of the cloud: the projector on messages, the emulators for development, the schema of what is published."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobevents import bus, console, devcloud, wiring_bus
from jobevents.cli_options import AsJson
from jobevents.jobs import Jobs

if TYPE_CHECKING:
    from projections.service import Condition

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("dev-cloud")(dev_cloud)
    app.command()(schema)


def project(
    jobs: Jobs,
    subscription: str,
    *,
    create: bool,
    dead_letter: str,
    once: bool,
    port: int,
    pace: tuple[float, float, float],
    as_json: bool,
) -> None:
    """Project a log without one sequence until a signal, or once; exit 1 when --once was ended by a signal.

    Args:
        pace: of the sweep: seconds of a rotation, seconds between two looks at the unfinished, operations a second.
    """
    from projections.sweeper import Terms

    rotation_s, open_s, operations_s = pace
    terms = Terms(rotation_s=rotation_s, open_s=open_s, calm_s=5 * open_s, operations_s=operations_s)
    made = wiring_bus.service(
        jobs, subscription, create=create, dead_letter=dead_letter, leased=not once, terms=terms if jobs.bus else None
    )
    stop = threading.Event()
    is_done = True
    with _stopping(stop), answering(made.condition, port):
        if once:
            is_done = made.run_once(stop)
        else:
            made.run(stop)
        condition = made.condition()
    _print_condition(condition, as_json)
    if not is_done:
        sys.exit(1)


@contextmanager
def answering(condition: "Callable[[], Condition]", port: int) -> Iterator[None]:
    """Answer `/healthz` and `/metrics` for as long as the block; port 0: do not."""
    from projections.healthz import HealthServer

    if not port:
        yield
        return
    server = HealthServer(condition, port=port)
    try:
        yield
    finally:
        server.close()


def _print_condition(condition: "Condition", as_json: bool) -> None:
    if console.wants_json(as_json):
        console.print_json(condition)
        return
    through = condition.complete_through.isoformat(timespec="seconds") if condition.complete_through else "not known"
    console.out.print(f"complete through {through}, {condition.waiting} events not stored", soft_wrap=True)
    for what in (*condition.problems, *condition.held_up):
        console.out.print(f"{condition.state}: {what}", soft_wrap=True, markup=False)
    for name, count in sorted(condition.counts.items()):
        console.out.print(f"{name}: {count}", soft_wrap=True)


def dev_cloud(
    data: Annotated[
        Path | None, typer.Option("--data", help="Keep the bucket's objects in this directory; default: in memory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start emulators of Cloud Storage and Pub/Sub where they are installed, print what to use, and run them until a signal.

    They are for development: no credentials, nothing but this machine, and the topic is gone when they end.
    """
    stop = threading.Event()
    with _stopping(stop), devcloud.started(data) as cloud:
        if console.wants_json(as_json):
            console.print_json(cloud)
        else:
            for name, value in cloud.env.items():
                sys.stdout.write(f"export {name}={value}\n")
            for missing in cloud.missing:
                console.note(missing, to_err=True)
            console.note("running until Ctrl-C; in another terminal: jobevents project --create", to_err=True)
        sys.stdout.flush()
        while not stop.wait(0.5):
            cloud.check()


def schema() -> None:
    """Print the JSON schema of a message on the bus, for consumers in any language."""
    console.print_json(bus.message_schema())


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Have the signals that end a process set an event instead."""

    def ask(number: int, frame: object) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
