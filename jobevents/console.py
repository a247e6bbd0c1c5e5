"""How the command line shows things: a table for people at a terminal, one JSON document for programs and pipes."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobevents.boundary import clean_text
from jobevents.errors import InvalidValue
from jobevents.events import Event
from jobevents.job import Job
from jobevents.status import Status
from jobevents.store import JobLog
from jobevents.times import to_datetime

_STATE_STYLE = {
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "canceled": "yellow",
    "skipped": "magenta",
}
_CELL = 200  # characters of a value in a table
_REASON = 40  # characters of a reason in a table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def wants_json(asked: bool) -> bool:
    """Tell whether the answer is for a program: asked for, or standard output is no terminal."""
    return asked or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one JSON document; integers beyond 2^53 stay exact, as JSON numbers."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def local(when: datetime | None, *, short: bool = False) -> str:
    """Return a time in the viewer's zone, with the offset that makes it exact; a short one is of a table that names the zone."""
    if when is None or when.year == 1:
        return "-"
    return when.astimezone().strftime("%m-%d %H:%M:%S" if short else "%Y-%m-%d %H:%M:%S%z")


def _zone() -> str:
    return datetime.now().astimezone().tzname() or "local time"


def state_text(state: str) -> Text:
    """Return a state in its color."""
    return Text(state, style=_STATE_STYLE.get(state, ""))


def plain(value: Any) -> Text:
    """Return a value as text that a terminal takes for nothing else: no markup, no control characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Text(clean_text(text, 4 * _CELL).replace("\r", "␍").replace("\n", "⏎").replace("\t", " "))


def print_statuses(statuses: Sequence[Status], place: str) -> None:
    """Print a page of jobs as a table; an id is never cut, since it is what one copies."""
    rows = [
        [
            Text(one.job_id),
            state_text(one.state),
            Text(str(one.attempts)),
            Text(_local_text(one.updated_at, short=True)),
            plain(one.command),
            plain((one.error or one.title)[:_CELL]),
        ]
        for one in statuses
    ]
    print_table(["job", "state", "starts", "updated", "kind", "error or title"], rows)
    out.print(f"[dim]{place}; times in {_zone()}, --json has them in UTC[/dim]", soft_wrap=True)


def print_events(events: Sequence[Event]) -> None:
    """Print a history as a table, a line an event."""
    rows = []
    before: datetime | None = None
    for event in events:
        since = f"{(event.at - before).total_seconds():.3f}" if before else ""
        before = event.at
        head = [str(event.version), local(event.at, short=True), since, event.type]
        rows.append([*map(Text, head), plain(event.actor), plain(event.reason[:_REASON]), plain(_own(event))])
    print_table(["#", "at", "+s", "event", "actor", "reason", "what"], rows)
    out.print(f"[dim]times in {_zone()}; --json has all fields, and times in UTC[/dim]")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """Print a line a row; what does not fit the terminal is cut at the end of the line (rich's tables cut every column)."""
    lines = [[Text(heading, style="bold") for heading in headings], *rows]
    widths = [max(line[column].cell_len for line in lines) for column in range(len(headings))]
    for line in lines:
        cells = [cell + " " * (width - cell.cell_len) for cell, width in zip(line, widths, strict=True)]
        out.print(Text("  ").join(cells), no_wrap=True, overflow="ellipsis")


def _own(event: Event) -> str:
    """Return the event's own fields on one line, what tells most first."""
    hidden = {*Event.__struct_fields__, "type", "traceback", "name", "params", "worker"}
    fields = msgspec.to_builtins(event)
    shown = {key: value for key, value in fields.items() if key not in hidden}
    shown |= {key: fields[key] for key in ("name", "params") if key in fields}
    texts = (f"{k}={v if isinstance(v, str) else msgspec.json.encode(v).decode()}" for k, v in shown.items())
    return " ".join(texts)[:_CELL]


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


def _local_text(text: str, *, short: bool = False) -> str:
    try:
        return local(to_datetime(text), short=short)
    except InvalidValue:
        return text


def escaped(text: str) -> str:
    """Return text that rich takes for nothing but text."""
    return text.replace("[", r"\[")


def answer(value: Any, text: str, as_json: bool) -> None:
    """Print what a command came to."""
    if wants_json(as_json):
        print_json(value)
    else:
        out.print(escaped(text), soft_wrap=True)


def print_lines(lines: Sequence[JobLog]) -> None:
    """Print log lines, one each."""
    for line in lines:
        attrs = "".join(f" {key}={value}" for key, value in line.attrs.items())
        out.print(
            Text(f"{local(line.at)} #{line.attempt} {line.level:<5} ") + plain(line.message + attrs), soft_wrap=True
        )
