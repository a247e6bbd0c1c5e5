"""A segment: whole or continued histories of final jobs in one Parquet file, with the stored bytes of each event as they are.

Sorted by job and version, compressed, in small row groups, so that many can be read side by side; any tool that reads Parquet
can read one.
"""

import io
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jobevents import codec
from jobevents.errors import Corrupt
from jobevents.log import Record

ROWS = 2000  # in a row group: about a megabyte
SCHEMA = pa.schema(
    [
        ("job_id", pa.string()),
        ("version", pa.int64()),
        ("type", pa.string()),
        ("cursor", pa.string()),
        ("data", pa.binary()),
    ]
)


class Segment(msgspec.Struct, frozen=True):
    """What the manifest says of a segment."""

    name: str  # of its blob, below the archive
    first: str  # the job that comes first in it
    last: str  # and last
    jobs: int
    events: int
    digest: str  # `codec.Digest` over its events


def pack(records: Sequence[Record]) -> bytes:
    """Return a Parquet file of events: 1..n, sorted by job and version."""
    columns = [
        pa.array([one.job_id for one in records], pa.string()),
        pa.array([one.version for one in records], pa.int64()),
        pa.array([one.type for one in records], pa.string()),
        pa.array([one.cursor for one in records], pa.string()),
        pa.array([one.data for one in records], pa.binary()),
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), buffer, compression="zstd", row_group_size=ROWS)
    return buffer.getvalue()


def unpack(data: bytes, name: str) -> Iterator[Record]:
    """Yield the events of a segment, a row group at a time.

    Raises:
        Corrupt: it cannot be read.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if not file.schema_arrow.equals(SCHEMA):
            raise Corrupt(f"segment has other columns than ours segment={name} columns={file.schema_arrow.names}")
        for group in range(file.num_row_groups):
            for row in zip(*(column.to_pylist() for column in file.read_row_group(group).columns), strict=True):
                job_id, version, kind, cursor, stored = row
                yield Record(cursor, job_id, version, kind, stored)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"segment cannot be read segment={name} cause={error}") from error


def heads(data: bytes, name: str) -> dict[str, int]:
    """Return the jobs of a segment -> the version of the last event of each; reads two columns.

    Raises:
        Corrupt: it cannot be read.
    """
    try:
        table = pq.read_table(pa.BufferReader(data), columns=["job_id", "version"])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise Corrupt(f"segment cannot be read segment={name} cause={error}") from error
    return dict(
        zip(table["job_id"].to_pylist(), table["version"].to_pylist(), strict=True)
    )  # sorted: the last one wins


def describe(records: Sequence[Record], name: str, digest: str) -> Segment:
    """Return what a manifest says of events."""
    return Segment(
        name, records[0].job_id, records[-1].job_id, len({one.job_id for one in records}), len(records), digest
    )


def digest_of(records: Iterable[Record]) -> str:
    """Return the digest over events."""
    digest = codec.Digest()
    for record in records:
        digest.add(record.job_id, record.version, record.data)
    return digest.hex()
