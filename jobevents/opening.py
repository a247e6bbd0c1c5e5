"""What the URL of a log or of a store opens: one `match` on the scheme; each backend is imported when it is asked for."""

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote

from jobevents import boundary
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import JobEventsError, Misconfigured, PermissionDenied, Unavailable
from jobevents.presence import LONGEST_S, SHORTEST_S

if TYPE_CHECKING:
    from eventsourcing.persistence import AggregateRecorder

    from jobevents.backends.checks import Check
    from jobevents.backends.gcs import GcsBlobs
    from jobevents.backends.s3 import S3Blobs
    from jobevents.cloud import Bucket
    from jobevents.desk import Desk
    from jobevents.store import LogTable, RunTable
    from jobevents.workers import Leases

POSTGRES = ("postgresql", "postgres")  # schemes

_DIRECTORIES = (
    "log/",
    "jobs/",
    "ctl/",
)  # of a log: its events, statuses of a service that had none, what it is opened with

CAPTURE = ".jev"  # how the name of a capture ends
_LOGS = "memory://, sqlite:///data/jobs.db, postgresql://user@host/database, gs://bucket/prefix, incident.jev"

logger = logging.getLogger(__name__)


class Keeps(Protocol):
    """What is kept beside the events of a log."""

    @property
    def runs(self) -> "RunTable":
        """The rows, or what stands for them."""
        ...

    @property
    def run_logs(self) -> "LogTable":
        """The log lines of runs."""
        ...

    @property
    def leases(self) -> "Leases":
        """By which workers see that others live."""
        ...

    @property
    def desk(self) -> "Desk | None":
        """What those who hand out jobs need; None: nobody does here."""
        ...


class Opened(NamedTuple):
    """A log and what is beside it."""

    recorder: "AggregateRecorder"
    translate: Callable[[BaseException], JobEventsError]  # the recorder's errors into ours
    keeps: Keeps
    beside: Callable[[], tuple[Blobs, str]]  # where views are kept if nothing else is said, and the prefix there
    bucket: "Bucket | None" = None  # for a log that is itself kept on blobs
    capture: "Capture | None" = None  # for a log that shows a file


class Capture(NamedTuple):
    """A file that is to be shown."""

    path: Path
    seal: Callable[[], None]  # refuses every write from then on


def check_options(*, blobs: object, claim_s: object, poll_interval_s: object, **callables: object) -> None:
    """Refuse what could not work, before anything is opened; the other options are checked by those who take them.

    Raises:
        Misconfigured: an option is of no use.
    """
    if (
        blobs is not None
        and not isinstance(blobs, str)
        and not all(hasattr(blobs, name) for name in ("get", "put", "list"))
    ):
        raise Misconfigured(f"blobs must be Blobs or a URL such as file:///srv/jobs value={blobs!r:.100}")
    for name, value, least in (("claim_s", claim_s, SHORTEST_S), ("poll_interval_s", poll_interval_s, 0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LONGEST_S:
            raise Misconfigured(f"{name} must be seconds from {least:g} to {LONGEST_S:g} value={value!r:.100}")
    for name, given in callables.items():
        if given is not None and not callable(given):
            raise Misconfigured(f"{name} must be something to call value={given!r:.100}")


def open_log(url: str, tables: tuple[str, str], *, create: bool, schema: str, poll_interval_s: float) -> Opened:
    """Open the log behind a URL; see `wiring.connect` for the arguments and errors."""
    parts = boundary.split_url(url)
    if parts.scheme in POSTGRES:
        with extra("postgres"):
            from jobevents.backends.postgres import PostgresRecorder

        database = PostgresRecorder.open(url, tables=tables, schema=schema, poll_interval_s=poll_interval_s)
        return Opened(database, database.translate, database, lambda: (database.blobs(), ""))
    if schema:
        raise Misconfigured("schema is an option of a log in Postgres: leave it out")
    match parts.scheme:
        case "" | "file" if parts.path.endswith(CAPTURE):
            from jobevents.backends.capture import CaptureRecorder

            no_more(parts, url)
            shown = CaptureRecorder()
            capture = Capture(Path(unquote(parts.path)), shown.seal)
            return Opened(shown, shown.translate, shown, lambda: (MemoryBlobs(), ""), capture=capture)
        case "memory" if parse_qsl(parts.query, keep_blank_values=True) == [("log", "blobs")]:
            return open_bucket(MemoryBlobs())
        case "memory":
            from jobevents.backends.memory import MemoryRecorder

            no_more(parts, url)
            memory = MemoryRecorder()
            return Opened(memory, memory.translate, memory, lambda: (MemoryBlobs(), ""))
        case "sqlite":
            from jobevents.backends import sqliteurl
            from jobevents.backends.sqlite import SqliteRecorder

            path, synchronous, lock_timeout_s = sqliteurl.parse(parts, url)
            file = SqliteRecorder.open(
                path, synchronous=synchronous, lock_timeout_s=lock_timeout_s, tables=tables, create=create
            )
            return Opened(file, file.translate, file, lambda: (FileBlobs(path.with_name(f"{path.stem}-blobs")), ""))
        case "file":
            no_more(parts, url)
            files, directory = open_files(parts, url), Path(unquote(parts.path))
            if not create and not directory.is_dir():
                raise _no_log(f"path={directory}", url)
            return open_bucket(files)
        case "gs":
            no_more(parts, url)
            blobs, prefix = open_gcs(parts, url)
            return _open_cloud(blobs, prefix, blobs.once(), url, create=create)
        case "s3":
            no_more(parts, url)
            bucket, prefix = open_s3(parts, url)
            return _open_cloud(bucket, prefix, bucket.once(), url, create=create)
        case _:
            raise Misconfigured(f"no event log for this URL url={boundary.hide_password(url)!r}; use one of {_LOGS}")


def _open_cloud(blobs: Blobs, prefix: str, once: Blobs, url: str, *, create: bool) -> Opened:
    if not create:
        _check_is_there(once, prefix, url)
    _check_at_start(once, prefix)
    return open_bucket(blobs, prefix, once=once)


def open_bucket(blobs: Blobs, prefix: str = "", *, once: Blobs | None = None) -> Opened:
    """Open the log that is kept on blobs below a prefix; its views are kept there, too."""
    from jobevents.cloud import Bucket

    bucket = Bucket(blobs, prefix, once=once)
    return Opened(bucket.recorder, bucket.recorder.translate, bucket, lambda: (blobs, prefix), bucket)


def is_in_bucket(url: str) -> bool:
    """Tell whether a log is in a bucket: its first event makes it there."""
    return boundary.split_url(url).scheme in ("gs", "s3")


def checks_of(blobs: Blobs, prefix: str) -> "list[Check]":
    """Look at what of a bucket's set-up would lose events or money; nothing for other blobs.

    Raises:
        Unavailable, PermissionDenied, Misconfigured: the bucket cannot be used now, or at all.
    """
    match type(blobs).__name__:  # their libraries are not to be loaded for the question
        case "GcsBlobs":
            from jobevents.backends import gcschecks
            from jobevents.backends.gcs import GcsBlobs

            assert isinstance(blobs, GcsBlobs)  # noqa: S101  # so it is called
            return gcschecks.check_bucket(blobs, prefix)
        case "S3Blobs":
            from jobevents.backends import s3checks
            from jobevents.backends.s3 import S3Blobs

            assert isinstance(blobs, S3Blobs)  # noqa: S101  # so it is called
            return s3checks.check_bucket(blobs, prefix)
        case _:
            return []


def _check_is_there(blobs: Blobs, prefix: str, url: str) -> None:
    """Refuse a prefix below which nothing of a log is: a mistyped one would look like an empty log. One list.

    A store that cannot be listed just now says so to whoever asks it for something.

    Raises:
        Misconfigured: there is none.
    """
    root = f"{prefix}/" if prefix else ""
    try:
        is_there = any(entry.name.removeprefix(root) in _DIRECTORIES for entry in blobs.list(root, delimiter="/"))
    except (Unavailable, PermissionDenied):
        return
    if not is_there:
        raise _no_log(f"prefix={prefix!r}", url)


def _no_log(where: str, url: str) -> Misconfigured:
    return Misconfigured(
        f"there is no log {where}: is the path right? make one with: jobevents submit KIND --create --url {shlex.quote(url)}"
    )


def _check_at_start(blobs: Blobs, prefix: str) -> None:
    """Say what is unwise about a bucket, and refuse what cannot work; a store that is away just now stops nobody.

    Raises:
        Misconfigured: there is no such bucket, or acknowledged events may be lost in it.
    """
    try:
        bad = [check for check in checks_of(blobs, prefix) if not check.is_well]
    except (Unavailable, PermissionDenied) as error:
        logger.warning("bucket was not checked, as it cannot be read now error=%s", error)
        return
    for check in bad:
        if check.is_fatal:
            raise Misconfigured(f"events would be lost in this bucket {check.name}: {check.found}")
        logger.warning("bucket is set up unwisely %s: %s", check.name, check.found)


def open_files(parts: SplitResult, url: str) -> FileBlobs:
    """Open a directory as blobs."""
    if not parts.path or parts.netloc:
        raise Misconfigured(f"no directory in the URL url={boundary.hide_password(url)!r}; write file:///directory")
    return FileBlobs(Path(unquote(parts.path)))


def open_gcs(parts: SplitResult, url: str) -> "tuple[GcsBlobs, str]":
    """Open a bucket as blobs, and return it with the prefix."""
    from jobevents.backends.gcs import GcsBlobs

    if not parts.netloc:
        raise Misconfigured(
            f"no bucket in the URL url={boundary.hide_password(url)!r}; write gs://bucket/prefix, s3://bucket/prefix"
        )
    return GcsBlobs(parts.netloc), parts.path.strip("/")


def open_s3(parts: SplitResult, url: str) -> "tuple[S3Blobs, str]":
    """Open a bucket of S3 as blobs, and return it with the prefix."""
    with extra("s3"):
        from jobevents.backends.s3 import S3Blobs

    if not parts.netloc:
        raise Misconfigured(f"no bucket in the URL url={boundary.hide_password(url)!r}; write s3://bucket/prefix")
    return S3Blobs(parts.netloc), parts.path.strip("/")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Say how to install what an import in the block is missing."""
    try:
        yield
    except ImportError as error:
        raise Misconfigured(
            f"a package is missing error={error}: run `python -m pip install 'jobevents[{name}]'`"
        ) from error


def no_more(parts: SplitResult, url: str, *, but: Sequence[str] = ()) -> None:
    """Refuse options in a URL that nobody reads."""
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if option not in but:
            raise Misconfigured(f"unknown option in the URL option={option} url={boundary.hide_password(url)!r}")
