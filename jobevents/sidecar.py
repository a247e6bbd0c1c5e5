"""A plain file and the hidden record beside it, read as one generation.

The file stays what other programs expect and may overwrite. Its record, `.NAME.blob`, tells what a file cannot:
generation and metadata. A record names the modification time, size and digest of the one content it speaks of, so it
never speaks of another: what no record fits was written by another program, and has a generation of its own.

A writer first puts the new record beside that of the content in place, then replaces the content. Whenever it dies,
one of the two fits; and a reader, who takes no lock, finds the record of whatever content it has read.
"""

import errno
import hashlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from jobevents import files
from jobevents.errors import Unavailable

_LOOKS = 1000  # each lost to a whole write in between: at most a few in a row are ever seen
_SMALL_BYTES = 65_536


class Record(msgspec.Struct, frozen=True):
    """What is known of one generation of a file."""

    generation: str  # random; never used before
    mtime_ns: int  # of the content it speaks of
    size_bytes: int  # of that content
    digest: str  # of that content, 16 bytes in hex
    content_type: str  # for whoever serves the file
    cache_control: str  # for whoever serves the file
    metadata: dict[str, str]  # as the writer gave it


class Sight(msgspec.Struct, frozen=True):
    """One generation of a file, as seen at one moment."""

    generation: str  # the record's, or one made from the content's stamp
    metadata: dict[str, str]  # the record's; empty for another program's content
    size_bytes: int  # of the content
    stored_at: datetime  # the file system's modification time
    data: bytes | None  # the content; None when it was not needed


class _Beside(msgspec.Struct, frozen=True):
    """The content of a record file."""

    records: tuple[Record, ...]  # newest first; of the content in place and of the one that was to replace it


def is_reserved(element: str) -> bool:
    """Tell names of records, and of the directory that holds locks and unfinished writes."""
    return element.startswith(".") and (element.endswith(".blob") or element == ".blobs")


def look(path: Path, *, read: bool = True) -> Sight:
    """Return one generation of the file, with its data if `read`; takes no lock.

    Costs an open of the file (`read`) or two stats, and an open of its record.

    Raises:
        Unavailable: it changed at every one of a thousand looks.
        OSError: as opening the file does.
    """
    for _ in range(_LOOKS):
        data, seen = _read(path) if read else (None, path.stat())
        record = _fitting(_records(path), seen, data)
        if record is not None:
            return Sight(record.generation, record.metadata, seen.st_size, _time(seen), data)
        if _stamp(path.stat()) != _stamp(seen):
            continue
        if not read and seen.st_size <= _SMALL_BYTES:
            return look(path)  # two quick writes of another program can share a stamp: the content tells them apart
        return Sight(_foreign_generation(seen, data), {}, seen.st_size, _time(seen), data)
    raise Unavailable(f"file changes all the time path={path}")


def write_record(path: Path, record: Record, unfinished: Path) -> None:
    """Put `record` beside the one that fits the content in place; the caller holds the lock, and replaces the content.

    Args:
        unfinished: a path for the record file while it is written, on the same file system.
    """
    try:
        in_place = _fitting(_records(path), path.stat(), None)
    except FileNotFoundError:
        in_place = None
    beside = _Beside((record,) if in_place is None else (record, in_place))
    try:
        files.write_new(unfinished, msgspec.json.encode(beside))
        files.replace(unfinished, _record_path(path))
    except OSError:
        unfinished.unlink(missing_ok=True)  # a full disk has no room for half of a record
        raise


def remove_record(path: Path) -> None:
    """Remove the records of a file that is gone."""
    _record_path(path).unlink(missing_ok=True)


def digest(data: bytes) -> str:
    """Return 16 bytes of BLAKE2b in hex."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.blob")


def _records(path: Path) -> tuple[Record, ...]:
    try:
        with _open(_record_path(path)) as file:
            return msgspec.json.decode(file.read(), type=_Beside).records
    except (FileNotFoundError, IsADirectoryError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ()  # a record that cannot be read speaks of nothing


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """Read the file, again if somebody wrote into it meanwhile."""
    for _ in range(_LOOKS):
        with _open(path) as file:
            before = os.fstat(file.fileno())
            data = file.read()
            after = os.fstat(file.fileno())
        if _stamp(before) == _stamp(after) and len(data) == after.st_size:
            return data, after
    raise Unavailable(f"file changes while it is read path={path}")


def _open(path: Path) -> BinaryIO:
    """Open a plain file to read it; of a pipe or a device, which could be read for ever, nothing is there."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise FileNotFoundError(errno.ENOENT, "it is no plain file", str(path))


def _fitting(records: tuple[Record, ...], seen: os.stat_result, data: bytes | None) -> Record | None:
    for record in records:
        if (record.mtime_ns, record.size_bytes) == (seen.st_mtime_ns, seen.st_size) and (
            data is None or record.digest == digest(data)
        ):
            return record
    return None


def _stamp(seen: os.stat_result) -> tuple[int, int, int]:
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _foreign_generation(seen: os.stat_result, data: bytes | None) -> str:
    small = digest(data) if data is not None and len(data) <= _SMALL_BYTES else ""
    return "f" + digest(f"{_stamp(seen)} {small}".encode())


def _time(seen: os.stat_result) -> datetime:
    return datetime.fromtimestamp(seen.st_mtime_ns / 1e9, UTC)
