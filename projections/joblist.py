"""Collect the ids of all jobs that have a directory under a prefix (behaviour S27)."""

from collections.abc import Callable, Iterator
from typing import Protocol

from jobevents import ids
from jobevents.errors import Corrupt, Misconfigured, NotFound, PermissionDenied, Unavailable


class Entry(Protocol):
    """An object, or a "directory": then the name ends with the delimiter."""

    @property
    def name(self) -> str:
        """The whole name, the listed prefix included."""


class Listing(Protocol):
    """What is needed of a blob store."""

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[Entry]:
        """List what begins with `prefix`, as one entry what shares a name up to `delimiter` beyond it."""


def collect(
    blobs: Listing | None,
    prefix: str,
    *,
    keep: Callable[[str], bool] | None = None,
    valid_ids_only: bool = False,
) -> list[str]:
    """Return the names of the directories directly under `prefix`, each once, in the order of the store's listing.

    A directory without a status file counts too, and so does one whose name is not a job id unless
    `valid_ids_only`. Costs one listing, not one read a job.

    Args:
        prefix: white space around it and slashes at its end do not matter.
        keep: leaves out the names for which it is false.

    Raises:
        Misconfigured: there is no blob store, or no prefix; nothing was listed.
        Unavailable, PermissionDenied, NotFound, Corrupt: the listing failed so; the message names the prefix.
    """
    root = prefix.strip(ids.WHITE_SPACE).rstrip("/")
    if not root:
        raise Misconfigured(f"jobs cannot be listed without a prefix prefix={prefix!r}; name the directory they are in")
    if blobs is None:
        raise Misconfigured(f"jobs cannot be listed without a blob store prefix={prefix!r}; give one")
    names = dict.fromkeys(_directories(blobs, f"{root}/"))
    return [name for name in names if (not valid_ids_only or ids.is_valid(name)) and (keep is None or keep(name))]


def _directories(blobs: Listing, prefix: str) -> Iterator[str]:
    """Yield the last part of the name of every directory under `prefix`; the prefix's own marker object is none."""
    try:
        for entry in blobs.list(prefix, delimiter="/"):
            if entry.name.endswith("/"):
                name = entry.name.removeprefix(prefix).rstrip("/").rpartition("/")[2]
                if name not in {"", "."}:
                    yield name
    except (Unavailable, PermissionDenied, NotFound, Corrupt) as error:
        raise type(error)(f"jobs could not be listed prefix={prefix}: {error}") from error
