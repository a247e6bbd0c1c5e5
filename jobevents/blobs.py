"""Named bytes with a generation each: the port `Blobs`, and the stores in memory and in plain files.

A name is UTF-8 text of elements parted by `/`. Every write of a name makes a generation, an opaque text that no
other write of that name ever has, also after a delete. Writes of one name can be conditional on it.
"""

import bisect
import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from jobevents import errors, files, sidecar

ABSENT = "0"
"""For `if_generation`: only when there is no such object."""

MAX_NAME_BYTES = 1024  # GCS: an object name is 1-1024 bytes of UTF-8
MAX_METADATA_BYTES = 8000  # GCS: 8 KiB of keys and values an object, of which the write token takes some


class Blob(msgspec.Struct, frozen=True):
    """One generation of one object."""

    data: bytes  # the whole content
    generation: str  # opaque; equal for the same write only
    metadata: dict[str, str]  # as given to `put`; empty for an object that another program wrote
    stored_at: datetime  # when it was stored, by the store's clock; UTC


class BlobEntry(msgspec.Struct, frozen=True):
    """One line of a listing: an object, or a directory when a delimiter was given."""

    name: str  # of the object; a directory's ends with the delimiter
    generation: str  # of the object; "" for a directory
    size_bytes: int  # of the content; 0 for a directory


class Blobs(Protocol):
    """A store of named bytes, safe to share between threads; every method may do I/O and block.

    A name that `check_name` refuses raises InvalidValue before any I/O. Besides what each method lists, any may raise
    Unavailable (try again) and PermissionDenied (do not).
    """

    @property
    def min_write_interval_s(self) -> float:
        """The least time between two writes of one name that the store takes without slowing the writer down."""
        ...

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        """Return data, generation and metadata of one generation, never a mix; None only when it is `if_changed`.

        Raises:
            NotFound: there is no such object. A refused read is PermissionDenied, never this.
        """
        ...

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Store a whole object in one step, durably, and return its new generation.

        Readers see the old or the new one, never a part. Of several writers with the same `if_generation` one wins.

        Args:
            if_generation: write only over this generation; `ABSENT`: only when there is no such object.
            metadata: at most 8000 bytes in all; ASCII costs a reader of Cloud Storage one request less.

        Raises:
            Conflict: the stored generation is not `if_generation`.
            Unavailable: not known to be stored; when a reply was lost it may be, or may be yet.
        """
        ...

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        """Remove an object; False when there was nothing.

        Raises:
            Conflict: there is an object, and its generation is not `if_generation`.
        """
        ...

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        """Yield the objects whose names begin with `prefix` and are `start` or later, in UTF-8 byte order.

        Every `put` and `delete` that returned before the call shows; those that go on meanwhile may.

        Args:
            delimiter: names with this text after the prefix come once, cut after it, as a directory; one that `start`
                lies within may be left out.
        """
        ...

    def close(self) -> None:
        """Free connections; the store must not be used any more."""
        ...


def check_name(name: str) -> None:
    """Refuse what cannot be an object's name on every store.

    Raises:
        InvalidValue: empty, over 1024 bytes, a control character, no Unicode, or an element that is empty, `.` or `..`.
    """
    _check_text(name)
    _check_elements(name, name.split("/"))


def check_prefix(prefix: str, start: str = "") -> None:
    """Refuse what no name can begin with, as `check_name` would; "" is every name."""
    _check_text(prefix)
    _check_text(start)
    _check_elements(prefix, prefix.split("/")[:-1])


def check_metadata(name: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the metadata, or raise InvalidValue when some store could not keep it."""
    kept = dict(metadata or {})
    try:
        size_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in kept.items())
    except UnicodeEncodeError as error:
        raise errors.InvalidValue(f"metadata is not valid Unicode name={name!r}") from error
    if size_bytes > MAX_METADATA_BYTES or "" in kept:
        raise errors.InvalidValue(
            f"metadata cannot be stored name={name!r} size_bytes={size_bytes} limit={MAX_METADATA_BYTES};"
            " keys must not be empty, put what is large into the data"
        )
    return kept


def check_generation(name: str, expected: str | None, actual: str | None) -> None:
    """Raise Conflict when a condition was given and does not hold; `actual` is None when there is no object."""
    if expected is not None and expected != (actual or ABSENT):
        raise errors.Conflict(
            f"blob was written by another name={name!r} expected={expected} actual={actual or ABSENT}"
        )


def by_directory(entries: Iterable[BlobEntry], prefix: str, delimiter: str) -> Iterator[BlobEntry]:
    """Fold sorted entries into directories; without a delimiter they pass unchanged."""
    last = ""
    for entry in entries:
        end = entry.name.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            yield entry
            continue
        directory = entry.name[: end + len(delimiter)]
        if directory != last:
            yield BlobEntry(directory, "", 0)
        last = directory


def utc_now() -> datetime:
    """Return this machine's time, aware, in UTC."""
    return datetime.now(UTC)


class MemoryBlobs:
    """Blobs in this process's memory, gone with it."""

    min_write_interval_s = 0.0

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._blobs: dict[str, Blob] = {}
        self._names: list[bytes] = []  # sorted, UTF-8
        self._generations = itertools.count(1)

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        check_name(name)
        with self._lock:
            blob = self._blobs.get(name)
        if blob is None:
            raise errors.NotFound(f"no such blob name={name!r}")
        if blob.generation == if_changed:
            return None
        return msgspec.structs.replace(blob, metadata=dict(blob.metadata))

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        check_name(name)
        kept = check_metadata(name, metadata)
        with self._lock:
            current = self._blobs.get(name)
            check_generation(name, if_generation, current.generation if current else None)
            generation = str(next(self._generations))
            self._blobs[name] = Blob(bytes(data), generation, kept, self._clock())
            if current is None:
                bisect.insort(self._names, name.encode())
        return generation

    def put_many(self, puts: Iterable[tuple[str, bytes, str, Mapping[str, str]]], **headers: str) -> list[str | None]:
        """Put each (name, data, if_generation, metadata); return the generations, None where another was stored."""
        generations: list[str | None] = []
        for name, data, if_generation, metadata in puts:
            generations.append(None)
            with contextlib.suppress(errors.Conflict):
                generations[-1] = self.put(name, data, if_generation=if_generation, metadata=metadata, **headers)
        return generations

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        check_name(name)
        with self._lock:
            current = self._blobs.get(name)
            if current is None:
                return False
            check_generation(name, if_generation, current.generation)
            del self._blobs[name]
            del self._names[bisect.bisect_left(self._names, name.encode())]
        return True

    def delete_many(self, names: Sequence[str]) -> int:
        """Remove those of the names that are there, whatever their generation; return how many."""
        for name in names:
            check_name(name)
        with self._lock:
            gone = {name.encode() for name in names if self._blobs.pop(name, None) is not None}
            self._names = [name for name in self._names if name not in gone]
        return len(gone)

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        check_prefix(prefix, start)
        with self._lock:
            first = bisect.bisect_left(self._names, max(prefix.encode(), start.encode()))
            rest = (name.decode() for name in itertools.islice(self._names, first, None))
            found = [
                BlobEntry(name, self._blobs[name].generation, len(self._blobs[name].data))
                for name in itertools.takewhile(lambda name: name.startswith(prefix), rest)
            ]
        return by_directory(found, prefix, delimiter)

    def close(self) -> None:
        """Keep everything: another user of the same object may go on."""


class FileBlobs:
    """Blobs as plain files below a directory, right between threads and between processes.

    Other programs may read and overwrite the files; an overwrite is another generation, with empty metadata. Locks and
    unfinished writes are in `root/.blobs`, one hidden record beside each file (see `sidecar`). A read takes no lock. Links to
    directories below the root are refused. A root that is made here is its owner's alone: make it yourself to let others in.
    """

    min_write_interval_s = 0.0

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Use `root`, which the first write makes; put it on a local disk or one with working `flock`."""
        self._root = Path(root)
        self._unfinished = self._root / ".blobs" / "unfinished"
        self._locks = files.Locks(self._root / ".blobs" / "locks", private=self._root)
        self._cleaned_at = -_CLEAN_EVERY_S
        self._folds_case: bool | None = None

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        path = self._path(name)
        with files.os_errors("read", name):
            seen = sidecar.look(path)
        if seen.generation == if_changed:
            return None
        return Blob(seen.data or b"", seen.generation, seen.metadata, seen.stored_at)

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        path = self._path(name)
        kept = check_metadata(name, metadata)
        with files.os_errors("write", name):
            for _ in range(_TRIES):
                with contextlib.suppress(FileNotFoundError), self._write_aside(data) as aside:
                    seen = aside.stat()
                    stamp = (seen.st_mtime_ns, seen.st_size, sidecar.digest(data))
                    record = sidecar.Record(files.new_token(), *stamp, content_type, cache_control, kept)
                    self._place(name, path, aside, record, if_generation)
                    return record.generation
        raise errors.Unavailable(f"directories are removed while being written name={name!r}")

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        path = self._path(name)
        with files.os_errors("delete", name), self._locks.hold(name):
            self._check_spelling(name)
            generation = _generation(path)
            if generation is None:
                return False
            check_generation(name, if_generation, generation)
            path.unlink(missing_ok=True)
            sidecar.remove_record(path)
            files.remove_empty(path.parent, below=self._root)
        return True

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        check_prefix(prefix, start)
        return by_directory(self._entries(prefix, start, whole_directories=delimiter == "/"), prefix, delimiter)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _path(self, name: str) -> Path:
        check_name(name)
        for element in name.split("/"):
            if sidecar.is_reserved(element) or len(element.encode()) > _MAX_ELEMENT_BYTES:
                raise errors.InvalidValue(f"name cannot be a file here name={name!r} element={element!r}")
            if os.name == "nt" and (set(element) & set('<>:"\\|?*') or element[-1] in " ."):
                raise errors.InvalidValue(f"name cannot be a file on Windows name={name!r} element={element!r}")
        path = self._root / name
        if link := files.link_above(path, below=self._root):  # which a list does not follow either
            raise errors.PermissionDenied(f"name leads through a symbolic link name={name!r} link={str(link)!r}")
        return path

    @contextlib.contextmanager
    def _write_aside(self, data: bytes) -> Iterator[Path]:
        files.make_directories(self._unfinished, private=self._root)
        aside = self._unfinished / files.new_token()
        try:
            files.write_new(aside, data)
            self._clean(aside)
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    def _place(self, name: str, path: Path, aside: Path, record: sidecar.Record, if_generation: str | None) -> None:
        with self._locks.hold(name):
            self._check_spelling(name)
            if if_generation is not None:
                check_generation(name, if_generation, _generation(path))
            files.make_directories(path.parent, private=self._root)
            if path.is_dir():
                path.rmdir()  # left empty by a killed delete; a full one is refused
            sidecar.write_record(path, record, self._unfinished / files.new_token())
            files.replace(aside, path)
            files.sync_directory(path.parent)

    def _clean(self, newest: Path) -> None:
        """Remove what killed writers left, once an hour at most, by the file system's clock."""
        if time.monotonic() - self._cleaned_at < _CLEAN_EVERY_S:
            return
        self._cleaned_at = time.monotonic()
        oldest = newest.stat().st_mtime - _CLEAN_EVERY_S
        for left in self._unfinished.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if left.stat().st_mtime < oldest:
                    left.unlink()

    def _check_spelling(self, name: str) -> None:
        if self._folds_case is None:
            self._folds_case = files.folds_case(self._root / ".blobs")
        if self._folds_case and (other := files.other_spelling(self._root, name)):
            raise errors.InvalidValue(f"file system takes the name for another one name={name!r} stored={other!r}")

    def _entries(self, prefix: str, start: str, *, whole_directories: bool) -> Iterator[BlobEntry]:
        with files.os_errors("list", prefix):
            hidden = sidecar.is_reserved
            for name in files.walk(self._root, prefix, start, hidden=hidden, whole_directories=whole_directories):
                if name.endswith("/"):
                    yield BlobEntry(name, "", 0)
                    continue
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    seen = sidecar.look(self._root / name, read=False)
                    yield BlobEntry(name, seen.generation, seen.size_bytes)


_control_in = re.compile("[\x00-\x1f\x7f]").search
_CLEAN_EVERY_S = 3600.0  # far longer than any write takes
_TRIES = 100  # each lost to a delete that removed the directory in between
_MAX_ELEMENT_BYTES = 240  # file systems: 255, of which the record's name takes six


def _generation(path: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return sidecar.look(path).generation
    return None


def _check_text(text: str) -> None:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidValue(f"name is not valid Unicode name={text!r}") from error
    if size_bytes > MAX_NAME_BYTES:
        raise errors.InvalidValue(f"name is too long size_bytes={size_bytes} limit={MAX_NAME_BYTES}")
    if _control_in(text):
        raise errors.InvalidValue(f"name holds a control character name={text!r}")


def _check_elements(text: str, elements: Iterable[str]) -> None:
    for element in elements:
        if element in ("", ".", ".."):
            raise errors.InvalidValue(f"name has an element that is empty, . or .. name={text!r}")
