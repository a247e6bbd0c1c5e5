"""A whole list as a file, as it is read: CSV that no spreadsheet runs, JSON lines, or Parquet.

Each job that cannot be read has its line, too, with the reason. A list that cannot be read to its end gives no whole file: the
transfer is broken off, which browsers show, or it is refused before it begins.
"""

import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Final

import msgspec

from jobevents.errors import InvalidValue
from jobevents.times import to_datetime
from projections.api import search
from projections.api.route import Desk, Given, Reply
from projections.csvtext import csv_line
from projections.reader import LeftOut
from projections.ui import analytics, finding
from projections.ui.rows import Row

FORMATS: Final = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
COLUMNS: Final = {
    "job_id": "text",
    "state": "text",
    "title": "text",
    "command": "text",
    "queue": "text",
    "tries": "text",
    "queued_at": "time",
    "due_at": "time",
    "started_at": "time",
    "ended_at": "time",
    "took_ms": "whole",
    "worker": "text",
    "queued_by": "text",
    "priority": "whole",
    "key": "text",
    "error": "text",
    "left_out": "text",  # why the job could not be read
}
_ROWS: Final = 500  # in a part of what is sent
_PART: Final = 256 * 1024  # bytes of a file that is sent when it is whole


def show(desk: Desk, given: Given) -> Reply:
    """Answer with all that a search finds; its first jobs are read before anything is sent."""
    values, now = given.values, desk.questions.jobs.emitter.clock()
    wanted = search.parse(values["q"], now)
    found = finding.everything(desk.questions, wanted, values["as_of"], now)
    rows = map(_cells, found)
    body = _parts(rows, values["format"] or "csv")
    first = next(body)
    name = f"jobs-{now:%Y%m%d-%H%M%S}.{values['format'] or 'csv'}"
    headers = {
        "Content-Type": FORMATS[values["format"] or "csv"],
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Reply(_again(first, body), headers=headers)


def _parts(rows: Iterator[list[Any]], format: str) -> Iterator[bytes]:
    if format == "parquet":
        yield from _parquet(rows)
        return
    write = csv_line if format == "csv" else _json_line
    begin = csv_line(COLUMNS) if format == "csv" else b""
    while part := list(islice(rows, _ROWS)):
        yield begin + b"".join(map(write, part))
        begin = b""
    yield begin


def _parquet(rows: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield the file, which is whole before the first part is sent: its end says where its columns are."""
    formats = analytics.module("formats")
    schema, batches = formats.batches_of(rows, COLUMNS)
    with tempfile.TemporaryFile() as file:
        formats.write_parquet(batches, schema, file)
        file.seek(0)
        while part := file.read(_PART):
            yield part


def _json_line(values: list[Any]) -> bytes:
    return msgspec.json.encode(dict(zip(COLUMNS, values, strict=True))) + b"\n"


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _cells(one: Row | LeftOut) -> list[Any]:
    if isinstance(one, LeftOut):
        return [one.job_id, *[None] * (len(COLUMNS) - 2), one.reason]
    return [
        one.job_id,
        one.state,
        one.title,
        one.command,
        one.queue,
        one.tries,
        _instant(one.at),
        one.due,
        one.started_at,
        one.ended_at,
        None if one.took_ms is None else round(one.took_ms),
        one.worker,
        one.queued_by,
        one.priority,
        one.key,
        one.error,
        None,
    ]


def _instant(at: datetime | str) -> datetime | None:
    try:
        return to_datetime(at) if isinstance(at, str) and at else at or None
    except InvalidValue:
        return None
