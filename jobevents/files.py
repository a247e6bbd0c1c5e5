"""Files replaced whole, locked between processes, walked in byte order: what the file blobs need of a file system."""

import contextlib
import errno
import os
import random
import secrets
import stat
import sys
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jobevents import diskfaults, errors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_STRIPES = 256  # lock files are never removed (that would let two in), so their number is fixed
_NUDGE_NS = 1_000_000
STAMPED_NS = 2_000_000_000
"""What was changed so long ago shows every later change in its time: FAT stamps by two seconds, HFS+ by one, ext4 by 10 ms."""


def write_new(path: Path, data: bytes) -> None:
    """Create `path` with `data`, on disk when this returns: one write, one fsync.

    Its modification time is the file system's clock moved on by a random part of a millisecond. The kernel stamps
    files on a grid of some milliseconds, so a later write by anybody, even within the same tick, shows in the stamp.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        born = os.fstat(descriptor)
        nudge = random.randrange(1, _NUDGE_NS)  # noqa: S311 - a mark, not a secret
        os.utime(path, ns=(born.st_atime_ns, born.st_mtime_ns + nudge))
        os.fsync(descriptor)


def beside(path: Path) -> Path:
    """Return a name in the same directory for what is renamed to `path` when it is whole: hidden, and nobody can foretell it.

    It ends like the path, and is to be created as new (mode "x"), so that a link which somebody put there is never followed.
    """
    return path.with_name(f".part-{new_token()}{path.suffix}")


def replace(source: Path, target: Path) -> None:
    """Put `source` in `target`'s place in one step; durable only after `sync_directory`."""
    give_up = time.monotonic() + 2.0
    while True:
        try:
            source.replace(target)
            return
        except PermissionError:
            # Windows refuses while a reader has the target open; a real refusal stays one.
            if os.name != "nt" or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable; does nothing on Windows, which has no such call."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path, *, private: Path | None = None) -> None:
    """Make `directory` and what is missing above it, durably, `private` for its owner alone; cheap when it is there."""
    if directory.is_dir():
        return
    make_directories(directory.parent, private=private)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(0o700 if directory == private else 0o777)
    with contextlib.suppress(FileNotFoundError):  # another has removed it again: the write that follows makes it anew
        if not stat.S_ISDIR(directory.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    sync_directory(directory.parent)


def link_above(path: Path, *, below: Path) -> Path | None:
    """Return the first symbolic link among the directories between a path and `below`; None when there is none."""
    above = path.parent
    while above != below:
        if above.is_symlink():
            return above
        above = above.parent
    return None


def remove_empty(directory: Path, *, below: Path) -> None:
    """Remove `directory` and its parents below `below` for as long as they are empty, and make all of it durable.

    Others may do the same: a directory that is gone already counts as removed, and the next above is made durable.
    """
    while directory != below:
        try:
            directory.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            break
        directory = directory.parent
    while True:
        try:
            return sync_directory(directory)
        except FileNotFoundError:
            directory = directory.parent


def folds_case(directory: Path) -> bool:
    """Tell whether the file system finds `directory` under another spelling too."""
    return os.path.lexists(directory.with_name(directory.name.swapcase()))


def other_spelling(root: Path, name: str, *, exists: Callable[[Path], bool] = os.path.lexists) -> str:
    """Return the first part of `name` that is there, but spelled otherwise (case, accents), or "".

    Only needed where `folds_case`; costs one directory listing an element.
    """
    at = root
    for element in name.split("/"):
        if not exists(at / element):
            return ""
        if element not in (entry.name for entry in at.iterdir()):
            return str((at / element).relative_to(root))
        at /= element
    return ""


def walk(
    root: Path, prefix: str, start: str, *, hidden: Callable[[str], bool], whole_directories: bool
) -> Iterator[str]:
    """Yield the names of files below `root`, in UTF-8 byte order, that begin with `prefix` and are `start` or later.

    With `whole_directories`, a directory at or below the prefix that holds such a file comes as its name and `/`,
    unopened. Symbolic links to directories are not followed. One directory listing for each directory entered.
    """
    above = prefix.rpartition("/")[0]
    first = start.encode()
    pending = _children(root, f"{above}/" if above else "", hidden)
    while pending:
        name = pending.pop()
        is_directory = name.endswith("/")
        if not (name.startswith(prefix) or (is_directory and prefix.startswith(name))):
            continue
        if name.encode() < first and not (is_directory and start.startswith(name)):
            continue
        if not is_directory:
            yield name
        elif not (whole_directories and name.startswith(prefix) and name != prefix):
            pending += _children(root, name, hidden)
        elif any(walk(root, name, start, hidden=hidden, whole_directories=False)):
            yield name


class Locks:
    """Exclusive locks by name, between threads and processes alike; the kernel frees those of a dead process."""

    def __init__(self, directory: Path, *, private: Path | None = None, deadline_s: float = 30.0) -> None:
        """Keep the lock files in `directory`, made with what is missing above it, `private` for its owner alone."""
        self._directory = directory
        self._private = private
        self._deadline_s = deadline_s

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold the lock of `name`, and of every spelling a case-folding file system takes for it.

        Raises:
            TimeoutError: somebody else held it until the deadline.
        """
        spelling = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        path = self._directory / f"{zlib.crc32(spelling.encode()) % _STRIPES:02x}"
        descriptor = self._acquire(path)
        try:
            yield
        finally:
            _unlock(descriptor)  # closing alone would leave it locked by a child forked meanwhile
            os.close(descriptor)

    def _acquire(self, path: Path) -> int:
        give_up = time.monotonic() + self._deadline_s
        make_directories(self._directory, private=self._private)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if _try_lock(descriptor) and _is_still(path, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() > give_up:
                raise TimeoutError(f"lock held by another writer file={path}")
            time.sleep(random.uniform(0.0002, 0.004))  # noqa: S311 - flock has no wait with a deadline


@contextlib.contextmanager
def os_errors(doing: str, name: str) -> Iterator[None]:
    """Raise our error for the operating system's; a file that is not there is NotFound only when `doing` is "read"."""
    try:
        yield
    except OSError as error:
        raise _translated(error, doing, name) from error


def new_token() -> str:
    """Return a text that nobody has had before: 128 random bits."""
    return secrets.token_hex(16)


def _translated(error: OSError, doing: str, name: str) -> errors.JobEventsError:
    what = f"cannot {doing} blob name={name!r}"
    match error:
        case FileNotFoundError() | NotADirectoryError() | IsADirectoryError() if doing == "read":
            return errors.NotFound(f"no such blob name={name!r}")
        case NotADirectoryError() | IsADirectoryError() | FileExistsError():
            return errors.InvalidValue(f"{what}: files allow no name that is also a directory cause={error}")
        case OSError(errno=errno.ENOTEMPTY):
            return errors.InvalidValue(f"{what}: other blobs lie below that name")
        case OSError(errno=errno.ENAMETOOLONG):
            return errors.InvalidValue(f"{what}: too long for this file system")
    fault = diskfaults.of_error(error, error.filename or "")
    if fault is None:
        return errors.Unavailable(f"{what} cause={error}")
    return fault.kind(f"{what} {fault.error(error.filename or '-', error.strerror or error)}")


def _children(root: Path, at: str, hidden: Callable[[str], bool]) -> list[str]:
    """List one directory, last first (a stack); names are from the root, directories end in `/`."""
    try:
        with os.scandir(root / at) as entries:
            found = [
                f"{at}{entry.name}/" if entry.is_dir(follow_symlinks=False) else at + entry.name
                for entry in entries
                if not hidden(entry.name) and _is_text(entry.name)
                if _is_file(entry) or entry.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=str.encode, reverse=True)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    """Tell plain files, also behind a symbolic link; one that leads in a circle leads to none."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_text(name: str) -> bool:
    """Tell names from bytes that are no UTF-8 (surrogates stand for them)."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether `path` is the file that was opened, not one made after somebody removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
