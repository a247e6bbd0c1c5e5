"""Files of lines, compressed with zstd where their name says so: read within bounds, written so that they can be gone on with.

A compressed file is a row of whole frames of about a megabyte, each of whole lines, so that of a file that was cut short
only the last frame is lost; every zstd tool reads it as one.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from jobevents.errors import Corrupt, Misconfigured

if TYPE_CHECKING:
    from backports import zstd

LINE_LIMIT = 1 << 20  # bytes: an event has at most some 200 KiB
FRAME = 1 << 20  # bytes of lines in one frame: what is lost at most when a compressed file is cut short
WINDOW_LOG = 25  # a frame that wants more memory than 32 MiB is refused; ours want 2 MiB
COMPRESSED = (".zst", ".zstd", ".jev")  # how the name of a compressed file ends
_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_READ = 1 << 16


class Chunk(NamedTuple):
    """Whole lines that lie together in a file: one line, or those of a frame."""

    start: int  # offset in the file
    lines: list[bytes]  # without their ends


def read_lines(path: Path, *, at_most: int | None = None) -> Iterator[bytes]:
    """Yield the whole lines of a file, without their ends; what was cut short at its end is left out.

    Memory is bounded, whatever the file holds.

    Args:
        at_most: bytes of lines, uncompressed, beyond which it is refused; a line of many small values counts for more than
            its bytes, by the memory that they take.

    Raises:
        Corrupt: the compression is damaged, a line is too long, or there is more than `at_most`.
        OSError: the file cannot be read.
    """
    size = 0
    with path.open("rb") as raw, _unpacked(raw, path) as file:
        while line := _line(file, path):
            if not line.endswith(b"\n"):
                if len(line) >= LINE_LIMIT:
                    raise Corrupt(f"line is too long file={path} after={size} bytes limit={LINE_LIMIT} bytes")
                return
            size += weight(line)
            if at_most is not None and size > at_most:
                raise Corrupt(
                    f"file is larger than is taken unpacked file={path} limit={at_most} bytes; "
                    "to look at one that large, import it into a log of its own: jobevents import FILE --url sqlite:///its.db"
                )
            yield line[:-1]


def whole_chunks(path: Path) -> Iterator[Chunk]:
    """Yield what is whole of a file that a LineWriter left, cut short or not.

    Raises:
        Corrupt: the compression is damaged.
    """
    with path.open("rb") as file:
        if _is_packed(file):
            yield from _frames(file, path)
            return
        start = 0
        while (line := file.readline(LINE_LIMIT)).endswith(b"\n"):
            yield Chunk(start, [line[:-1]])
            start += len(line)


def begins_with(path: Path, line: bytes) -> bool:
    """Tell whether a file, of which not even the first line is whole, may be the beginning of one with that line."""
    with path.open("rb") as file:
        start = file.read(len(line))
    return line.startswith(start) or start.startswith(_MAGIC)


class LineWriter:
    """Writes lines to a file, packed if its name says so; close it, or use it as a context manager."""

    def __init__(self, path: Path, *, at: int = 0, new: bool = False) -> None:
        """Write from offset `at` on; what the file has there is dropped.

        Args:
            new: the file must not be there, not even as a link to nowhere: FileExistsError otherwise.
        """
        self._file: IO[bytes]
        if str(path) == "-":
            self._file = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        else:
            self._file = path.open("xb" if new else "r+b" if at else "wb")
            self._file.seek(at)
            self._file.truncate()
        self._packer = _zstd().ZstdCompressor() if path.suffix in COMPRESSED else None
        self._unframed = 0

    def write(self, line: bytes) -> None:
        """Write a line and its end."""
        if self._packer is None:
            self._file.write(line + b"\n")
            return
        self._unframed += len(line) + 1
        self._file.write(self._packer.compress(line + b"\n"))

    def mark(self) -> None:
        """Say that what was written is whole so far: a reader of the file cut short here may go on."""
        if self._unframed >= FRAME:
            self._end_frame()

    def _end_frame(self) -> None:
        if self._packer is not None and self._unframed:
            self._file.write(self._packer.flush(self._packer.FLUSH_FRAME))
            self._unframed = 0

    def close(self, *, sync: bool = True) -> None:
        """End the file; on disk when this returns, if it is one."""
        if self._file.closed:
            return
        self._end_frame()
        self._file.flush()
        if sync and self._file.seekable():
            os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _zstd() -> Any:  # Any: a module, of one of two names
    """Return the module `compression.zstd`, of Python 3.14 or of its backport.

    Raises:
        Misconfigured: neither is there.
    """
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # an optional extra, and not needed for plain files
        else:
            from backports import zstd
    except ImportError as error:
        raise Misconfigured(
            f"a package is missing error={error}: run `python -m pip install 'jobevents[analytics]'`, "
            "or give a file name that does not ask for compression"
        ) from error
    return zstd


def _is_packed(file: IO[bytes]) -> bool:
    magic = file.read(len(_MAGIC))
    file.seek(0)
    return magic == _MAGIC


def _unpacked(raw: IO[bytes], path: Path) -> "IO[bytes] | zstd.ZstdFile":
    if not _is_packed(raw):
        return raw
    module = _zstd()
    opened: zstd.ZstdFile = module.ZstdFile(raw, options={module.DecompressionParameter.window_log_max: WINDOW_LOG})
    return opened


def weight(line: bytes) -> int:
    """Return the bytes of a line, or a third of what its JSON takes as Python's objects, where that is more.

    An empty list has 64 bytes with its place in another one, a dict with one key some 200.
    """
    return max(len(line), 24 * (line.count(b",") + line.count(b"[") + 3 * line.count(b"{")))


def _line(file: "IO[bytes] | zstd.ZstdFile", path: Path) -> bytes:
    """Return the next line, or what there is of it up to the limit; nothing where the file was cut short."""
    try:
        return file.readline(LINE_LIMIT)
    except EOFError:
        return b""
    except OSError:
        raise
    except Exception as error:  # ZstdError, of a module that need not be there
        raise Corrupt(f"compressed file is damaged file={path} cause={error}") from error


def _frames(file: IO[bytes], path: Path) -> Iterator[Chunk]:
    module = _zstd()
    start, end = 0, 0
    unpacker, parts = module.ZstdDecompressor(), list[bytes]()
    while data := file.read(_READ):
        while data:
            try:
                parts.append(unpacker.decompress(data))
            except module.ZstdError as error:
                raise Corrupt(f"compressed file is damaged file={path} after={start} bytes cause={error}") from error
            end += len(data) - len(unpacker.unused_data)
            if not unpacker.eof:
                break
            data = unpacker.unused_data
            yield Chunk(start, b"".join(parts).splitlines())
            start, unpacker, parts = end, module.ZstdDecompressor(), []
