"""Rows as CSV that no spreadsheet runs, as JSON lines and as Parquet, which keep every text exactly; a batch at a time."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from projections.csvtext import csv_line, to_json
from projections.tables import rows_of

TYPES = {"text": pa.string(), "whole": pa.int64(), "time": pa.timestamp("us", tz="UTC")}


def write_csv(batches: Iterable[pa.RecordBatch], columns: Sequence[str], file: IO[bytes]) -> int:
    """Write rows as CSV in UTF-8 under a line of their columns' names; return how many."""
    file.write(csv_line(columns))
    count = 0
    for batch in batches:
        for row in rows_of(batch):
            file.write(csv_line(row))
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
        for row in rows_of(batch):
            for place in raw:
                if row[place] is not None:
                    row[place] = msgspec.Raw(row[place].encode())
            file.write(to_json(dict(zip(columns, row, strict=True))) + b"\n")
        count += batch.num_rows
    return count


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes]) -> int:
    """Write rows as Parquet, compressed; return how many."""
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def batches_of(
    rows: Iterable[Sequence[Any]], columns: Mapping[str, str], size: int = 1000
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return rows as batches, with their schema.

    Args:
        columns: name -> one of TYPES.
    """
    schema = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])

    def made() -> Iterator[pa.RecordBatch]:
        left = iter(rows)
        while part := list(islice(left, size)):
            arrays = [
                pa.array(values, field.type) for values, field in zip(zip(*part, strict=True), schema, strict=True)
            ]
            yield pa.record_batch(arrays, schema=schema)

    return schema, made()
