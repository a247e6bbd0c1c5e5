"""Writes to a bucket on a condition: tried again by tries of our own, each of which knows its own work by a token.

What Cloud Storage and S3 have in common: a write names what it replaces, and a reply may be lost. A repeated write that is
refused looks whether what it met is its own.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from jobevents import errors
from jobevents.backoff import Tries

T = TypeVar("T")


class Stored(msgspec.Struct, frozen=True):
    """What an object says of itself."""

    generation: str
    token: str  # of the write that made it; "" for another program's
    has_more: bool = False  # a part of it is kept elsewhere


class Wire(Protocol):
    """How a bucket is asked, and what its library's errors mean."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Errors of the library."""
        ...

    def look(self, tries: Tries, key: str) -> Stored | None:
        """Return what is there, tried again; None for nothing."""
        ...

    def is_refusal(self, error: Exception) -> bool:
        """Tell whether a condition did not hold."""
        ...

    def is_absent(self, error: Exception) -> bool:
        """Tell whether there is no such object."""
        ...

    def is_transient(self, error: Exception) -> bool:
        """Tell whether another try may succeed."""
        ...

    def translated(self, error: Exception, doing: str) -> errors.JobEventsError:
        """Return our error for one of a write."""
        ...


def over_what_is_there(wire: Wire, tries: Tries, key: str, write: Callable[[Tries, Stored | None], T]) -> T:
    """Write over whatever there is, looked at anew each time another writer was first.

    Raises:
        Unavailable: others were first until the deadline; and as `write`.
    """
    while True:
        stored = wire.look(tries, key)
        try:
            return write(tries, stored)
        except errors.Conflict as conflict:
            if not tries.pause():
                raise errors.Unavailable(f"blob is replaced all the time name={key!r}") from conflict


def put(wire: Wire, tries: Tries, key: str, token: str, send: Callable[[float], str]) -> str:
    """Make a write until it is answered for good, and return the generation that it made.

    Args:
        token: by which the object tells that it is of this write.
        send: makes one request with a condition, given its timeout.

    Raises:
        Conflict: the condition does not hold, by what is not our own work.
        Unavailable, PermissionDenied, Misconfigured: what the store says.
    """
    unsure = False
    while True:
        try:
            return send(tries.left_s)
        except wire.failures as error:
            if unsure and wire.is_refusal(error):
                stored = wire.look(tries, key)
                if stored and stored.token == token:
                    return stored.generation
            if not (wire.is_transient(error) and tries.pause()):
                raise wire.translated(error, f"write {key!r}") from error
            unsure = True


def delete(wire: Wire, tries: Tries, key: str, send: Callable[[float], object]) -> bool:
    """Delete on a condition, until it is answered for good; False when there was nothing, and none of our tries can have done it.

    Args:
        send: makes one request with a condition, given its timeout.

    Raises:
        Conflict: the condition does not hold.
        Unavailable, PermissionDenied, Misconfigured: what the store says.
    """
    unsure = False
    while True:
        try:
            send(tries.left_s)
            return True
        except wire.failures as error:
            if wire.is_absent(error) or (wire.is_refusal(error) and wire.look(tries, key) is None):
                return unsure
            if not (wire.is_transient(error) and tries.pause()):
                raise wire.translated(error, f"delete {key!r}") from error
            unsure = True


def within(name: str, scheme: str, bucket: str) -> str:
    """Return a name within its bucket, also for one that is given with scheme and bucket.

    Raises:
        Misconfigured: it is in another bucket.
    """
    if not name.startswith(scheme):
        return name
    found, _, key = name.removeprefix(scheme).partition("/")
    if found != bucket:
        raise errors.Misconfigured(f"blob is in another bucket uri={name!r} bucket={bucket}; open that one for it")
    return key
