"""How the command line shows things: a table for people at a terminal, one JSON document for programs and pipes."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobevents.boundary import clean_text
from jobevents.events import Event
from jobevents.job import Job
from jobevents.store import JobLog, JobRun

_STATE_STYLE = {
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "canceled": "yellow",
    "skipped": "magenta",
}
_CELL = 200  # characters of a value in a table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def wants_json(asked: bool) -> bool:
    """Tell whether the answer is for a program: asked for, or standard output is no terminal."""
    return asked or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one JSON document; integers beyond 2^53 stay exact, as JSON numbers."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def local(when: datetime | None) -> str:
    """Return a time in the viewer's zone, with the offset that makes it exact."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S%z") if when and when.year > 1 else "-"


def state_text(state: str) -> Text:
    """Return a state in its color."""
    return Text(state, style=_STATE_STYLE.get(state, ""))


def plain(value: Any) -> Text:
    """Return a value as text that a terminal takes for nothing else: no markup, no control characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Text(clean_text(text, 4 * _CELL).replace("\r", "␍").replace("\n", "⏎").replace("\t", " "))


def print_runs(runs: Sequence[JobRun], total: int, page: int, pages: int) -> None:
    """Print a page of jobs as a table."""
    table = Table("job", "name", "state", "try", "created", "updated", "worker", "error", box=None, pad_edge=False)
    for run in runs:
        table.add_row(
            Text(run.id, no_wrap=True),
            plain(run.job_name),
            state_text(run.status),
            f"{run.attempt}/{run.max_attempts}",
            local(run.created_at),
            local(run.updated_at),
            plain(run.worker_id),
            plain(run.error.message[:_CELL] if run.error else ""),
        )
    out.print(table)
    out.print(f"[dim]{total} jobs, page {page} of {pages}, times in {datetime.now().astimezone().tzname()}[/dim]")


def print_events(events: Sequence[Event]) -> None:
    """Print a history as a table."""
    table = Table("#", "at", "+s", "event", "actor", "what", "reason", box=None, pad_edge=False)
    before: datetime | None = None
    for event in events:
        since = f"{(event.at - before).total_seconds():.3f}" if before else ""
        before = event.at
        table.add_row(
            str(event.version),
            local(event.at),
            since,
            event.type,
            plain(event.actor),
            plain(_own(event)),
            plain(event.reason),
        )
    out.print(table)
    out.print(f"[dim]times in {datetime.now().astimezone().tzname()}; --json has them in UTC[/dim]")


def _own(event: Event) -> str:
    """Return the event's own fields on one line."""
    common = set(Event.__struct_fields__) | {"traceback"}
    fields = msgspec.to_builtins(event)
    own = {key: value for key, value in fields.items() if key not in common and key != "type"}
    shown = (f"{k}={v if isinstance(v, str) else msgspec.json.encode(v).decode()}" for k, v in own.items())
    return " ".join(shown)[:_CELL]


def print_job(job: Job, values: Mapping[str, Any]) -> None:
    """Print all that is known of a job, a line each."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in values.items():
        if key == "state":
            table.add_row("state", state_text(job.state))
        elif isinstance(value, str) and key.endswith("_at"):
            table.add_row(key, f"{_local_text(value)}  [dim]({value})[/dim]")
        else:
            table.add_row(key, plain(value))
    out.print(table)


def _local_text(text: str) -> str:
    try:
        return local(datetime.fromisoformat(text).astimezone(UTC))
    except ValueError:
        return text


def print_lines(lines: Sequence[JobLog]) -> None:
    """Print log lines, one each."""
    for line in lines:
        attrs = "".join(f" {key}={value}" for key, value in line.attrs.items())
        out.print(
            Text(f"{local(line.at)} #{line.attempt} {line.level:<5} ") + plain(line.message + attrs), soft_wrap=True
        )
