"""What a sqlite:/// URL names: the file, how its commits are kept, and how long its lock is waited for."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from jobevents.backends.sqlitefile import Synchronous
from jobevents.boundary import hide_password
from jobevents.errors import Misconfigured


class Target(NamedTuple):
    """What a URL says; the same for all that opens it, since a log and its blobs may share one."""

    path: Path  # relative to where the process works, or absolute
    synchronous: Synchronous  # what a commit survives: a loss of power, or the death of the process
    lock_timeout_s: float  # seconds for which other writers are waited for


def parse(parts: SplitResult, url: str) -> Target:
    """Return what a URL names.

    Raises:
        Misconfigured: it names no file, or an option is none.
    """
    if parts.netloc or len(parts.path) < 2 or not url.partition(":")[2].startswith("///"):
        raise Misconfigured(
            f"no file in the URL url={hide_password(url)!r}; write sqlite:///relative.db or sqlite:////absolute.db"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = _synchronous(options.pop("synchronous", "full"))
    lock_timeout_s = _seconds("lock_timeout_s", options.pop("lock_timeout_s", "30"))
    if options:
        raise Misconfigured(
            f"unknown option in the URL option={next(iter(options))} url={hide_password(url)!r}; "
            "use synchronous or lock_timeout_s"
        )
    return Target(Path(unquote(parts.path[1:])), synchronous, lock_timeout_s)


def _synchronous(text: str) -> Synchronous:
    match text:
        case "full" | "normal":
            return text
    raise Misconfigured(f"synchronous must be full or normal value={text!r}")


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 86_400:
        raise Misconfigured(f"{name} must be a number of seconds value={text!r}")
    return seconds
