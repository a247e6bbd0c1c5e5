"""Rows as CSV that no spreadsheet runs, as JSON lines and as Parquet, which keep every text exactly; a batch at a time.

CSV: text stands in quotes, NULL is nothing at all, and every text that begins with an apostrophe, or after blanks with what a
spreadsheet takes for a formula (= + - @, their full-width forms, a tab, a line's end), has one apostrophe more in front. To get
the text back, take one leading apostrophe away wherever there is one.
https://owasp.org/www-community/attacks/CSV_Injection
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

_is_active = re.compile(r"'|[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]").match
_to_json = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode


def write_csv(batches: Iterable[pa.RecordBatch], columns: Sequence[str], file: IO[bytes]) -> int:
    """Write rows as CSV in UTF-8 under a line of their columns' names; return how many."""
    file.write(_csv_line(columns))
    count = 0
    for batch in batches:
        for row in _rows(batch):
            file.write(_csv_line(row))
        count += batch.num_rows
    return count


def write_json_lines(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], file: IO[bytes], *, json_columns: Collection[str] = ()
) -> int:
    """Write a JSON object a row and line; return how many. What is JSON already stands in it as it is.

    Integers are exact beyond 2^53, too; of two columns of one name the last one counts.
    """
    raw = [place for place, name in enumerate(columns) if name in json_columns]
    count = 0
    for batch in batches:
        for row in _rows(batch):
            for place in raw:
                if row[place] is not None:
                    row[place] = msgspec.Raw(row[place].encode())
            file.write(_to_json(dict(zip(columns, row, strict=True))) + b"\n")
        count += batch.num_rows
    return count


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> int:
    """Write rows to a Parquet file, compressed; return how many."""
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def safe_text(text: str) -> str:
    """Return a text as it stands in a CSV cell: one that a spreadsheet would run has an apostrophe in front."""
    return f"'{text}" if _is_active(text) else text


def exact_text(cell: str) -> str:
    """Return the text that `safe_text` made a cell of."""
    return cell.removeprefix("'")


def _rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    return map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _csv_line(values: Iterable[Any]) -> bytes:
    return (",".join(map(_cell, values)) + "\r\n").encode(errors="replace")


def _cell(value: Any) -> str:
    show = _CELLS.get(type(value))
    return _quoted(as_text(value)) if show is None else show(value)


def as_text(value: Any) -> str:
    """Return a value as people read it: text as it is, a time as RFC 3339, all else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    data = _to_json(value)
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()


def _quoted(text: str) -> str:
    return '"' + safe_text(text).replace('"', '""') + '"'


_CELLS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    type(None): lambda _: "",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: str,
}
