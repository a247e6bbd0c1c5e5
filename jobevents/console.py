"""How the command line shows things: a table for people at a terminal, one JSON document for programs and pipes."""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
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
MESSAGE = 8 * 1024  # bytes of a line that stands alone
_UNSEEN = re.compile("[\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What clean_text leaves, as it can be stored: controls of old terminals, and what turns the direction of writing."""

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Lost(Protocol):
    """How a running job is lost, as `projections.lost` says."""

    @property
    def text(self) -> str:
        """What is said beside its state."""
        ...

    @property
    def since(self) -> datetime | None:
        """When its worker was last seen, or should have ended; None: that is not known."""
        ...


def wants_json(asked: bool) -> bool:
    """Tell whether the answer is for a program: asked for, or standard output is no terminal."""
    return asked or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one JSON document, in UTF-8 wherever; integers beyond 2^53 stay exact, as JSON numbers."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def local(when: datetime | None, *, short: bool = False) -> str:
    """Return a time in the viewer's zone, with the offset that makes it exact; a short one is of a table that names the zone.

    A short one says no more of the date than it must: nothing today, no year in this one, no time in another.
    """
    if when is None or when.year == 1:
        return "-"
    try:
        when = when.astimezone()
    except OverflowError:  # at the end of the calendar
        return when.isoformat()
    if not short:
        return when.strftime("%Y-%m-%d %H:%M:%S%z")
    today = datetime.now()
    if when.date() == today.date():
        return when.strftime("%H:%M:%S")
    return when.strftime("%m-%d %H:%M" if when.year == today.year else "%Y-%m-%d")


def zone_name() -> str:
    """Return the name of the viewer's zone now."""
    return datetime.now().astimezone().tzname() or "local time"


def count(number: int, one: str) -> str:
    """Return a count with its noun."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def state_text(state: str) -> Text:
    """Return a state in its color."""
    return Text(plain(state).plain, style=_STATE_STYLE.get(state, ""))


def running_text(state: str, lost: Lost | None) -> Text:
    """Return a state in its color; of a job that only seems to run, that it is lost."""
    return state_text(state) if lost is None else Text(f"{state}, lost", style="red")


def _since(lost: Lost | None) -> str:
    if lost is None or lost.since is None:
        return "" if lost is None else lost.text
    return f"{lost.text.partition(' since ')[0]} since {local(lost.since, short=True)}"


def plain(value: Any, limit: int = 4 * _CELL) -> Text:
    """Return a value as one line that a terminal takes for nothing but text: no markup, no control characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = clean_text(text, limit).replace("\r", "␍").replace("\n", "⏎").replace("\t", " ")
    return Text(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_statuses(statuses: Sequence[Status], place: str, *, lost: Mapping[str, Lost] | None = None) -> None:
    """Print a page of jobs as a table; an id is never cut, since it is what one copies.

    Args:
        lost: job id -> how it is lost, of those that only seem to run.
    """
    lost = lost or {}
    rows = [
        [
            plain(one.job_id),
            running_text(one.state, lost.get(one.job_id)),
            Text(str(one.attempts)),
            _local_text(one.updated_at, short=True),
            plain((_since(lost.get(one.job_id)) or one.error or one.title)[:_CELL]),
            plain(one.command),
        ]
        for one in statuses
    ]
    if rows:
        print_table(["job", "state", "starts", "updated", "error or title", "kind"], rows)
    note(f"{place}; times in {zone_name()}, --json has them in UTC")


def print_events(events: Sequence[Event]) -> None:
    """Print a history as a table, a line an event."""
    rows = []
    before: datetime | None = None
    for event in events:
        since = f"{(event.at - before).total_seconds():.3f}" if before else ""
        before = event.at
        reason = event.reason if len(event.reason) <= _REASON else event.reason[: _REASON - 1] + "…"
        what = " · ".join(filter(None, [reason, _own(event)]))
        cells = [str(event.version), local(event.at, short=True), since, event.type, event.actor, what]
        rows.append([plain(cell) for cell in cells])
    print_table(["#", "at", "+s", "event", "actor", "reason and what"], rows)
    note(f"times in {zone_name()}; --json has all fields, and times in UTC")


def print_event(event: Event) -> None:
    """Print an event on a line of its own, with its job."""
    head = f"{local(event.at)} {event.job_id} #{event.version} {event.type}"
    said = " ".join(filter(None, [event.actor and f"by {event.actor}", event.reason[:_REASON], _own(event)]))
    out.print(Text(f"{head} ", style="bold") + plain(said), soft_wrap=True)


def told(event: Event) -> str:
    """Return an event on one line, but for its job: when, what, by whom, why, and its own fields."""
    by = event.actor and f"by {event.actor}"
    return " ".join(filter(None, [local(event.at, short=True), event.type, by, event.reason[:_REASON], _own(event)]))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """Print a line a row; what does not fit the terminal is cut at the end of the line (rich's tables cut every column)."""
    lines = [[Text(heading, style="bold") for heading in headings], *rows]
    widths = [max(line[column].cell_len for line in lines) for column in range(len(headings))]
    widths[-1] = 0
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


def progress(*, hidden: bool = False) -> Progress:
    """Return a bar for people on standard error: how much of how much, how long it took and will take; gone when it ends."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=hidden or not sys.stderr.isatty(),
    )


def print_json_line(data: bytes) -> None:
    """Print one JSON document of many, a line each."""
    sys.stdout.buffer.write(data + b"\n")


def print_job(job: Job, values: Mapping[str, Any], *, lost: Lost | None = None) -> None:
    """Print all that is known of a job, a line each; of one that only seems to run, that it is lost."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in values.items():
        if key == "state":
            table.add_row(key, running_text(job.state, lost))
        elif isinstance(value, str) and key.endswith("_at"):
            table.add_row(key, Text.assemble(_local_text(value), "  ", (f"({plain(value)})", "dim")))
        else:
            table.add_row(key, plain(value))
    out.print(table)


def _local_text(text: str, *, short: bool = False) -> Text:
    try:
        return Text(local(to_datetime(text), short=short))
    except InvalidValue:
        return plain(text)


def error(text: str) -> None:
    """Say on standard error what went wrong."""
    err.print(Text.assemble(("error:", "red"), " ", plain(text, MESSAGE)), soft_wrap=True)


def note(text: str, *, to_err: bool = False) -> None:
    """Say something beside the answer, on one line."""
    (err if to_err else out).print(Text(plain(text, MESSAGE).plain, "dim"), soft_wrap=True)


def answer(value: Any, text: str, as_json: bool) -> None:
    """Print what a command came to; its text may have several lines."""
    if wants_json(as_json):
        print_json(value)
        return
    for line in text.split("\n"):
        out.print(plain(line, MESSAGE), soft_wrap=True)


def print_lines(lines: Sequence[JobLog]) -> None:
    """Print log lines, one each."""
    if not lines:
        note("no lines")
    for line in lines:
        attrs = "".join(f" {key}={value}" for key, value in line.attrs.items())
        out.print(
            plain(f"{local(line.at)} #{line.attempt} {line.level:<5} {line.message}{attrs}", MESSAGE), soft_wrap=True
        )
