"""A lease on a role, so that one process at a time does what only costs more when two do it, such as projecting.

The holder writes the lease's blob now and then, and each write makes a generation. Who wants the role watches the
generation: unchanged for as long as a lease lives, on the watcher's own monotonic clock, the holder is gone. No wall clock of
one machine is held against another's. A holder that was paused may go on for a moment beside its successor: what it does
under the lease must be right all the same.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from jobevents.blobs import ABSENT, Blobs
from jobevents.errors import Conflict, NotFound

TTL_S = 15.0  # how long a role stays empty after its holder was killed
_BEATS = 3  # writes in the life of a lease: two may fail

logger = logging.getLogger(__name__)


class _Lease(msgspec.Struct, frozen=True):
    """What the blob says; for people, but for `holder`."""

    holder: str  # identity of the process that holds the role; "" when it was given up
    ttl_s: float  # how long the holder's lease lives without a write


class RoleLease:
    """One process's claim to a role. For one thread; ask `hold` at least every `beat_s`.

    Costs one write a beat while held (on a bucket: $0.09 a day at the default), one read a beat while not.
    """

    def __init__(
        self,
        blobs: Blobs,
        name: str,
        holder: str,
        *,
        ttl_s: float = TTL_S,
        prefix: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Claim nothing yet.

        Args:
            name: the role; its blob is `{prefix}/ctl/v1/lease/{name}.json`.
            holder: who asks, one identity for each start of a process.
            ttl_s: how long a lease lives without a write; the same for all who want the role.
        """
        self.name = name
        self.beat_s = ttl_s / _BEATS
        self.is_held = False
        self._blobs = blobs
        self._blob = f"{prefix}/ctl/v1/lease/{name}.json" if prefix else f"ctl/v1/lease/{name}.json"
        self._holder = holder
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._generation = ""  # last seen, of whoever wrote it; "" before the first look
        self._seen_at = 0.0  # since when it has been that

    def hold(self) -> bool:
        """Take the role or keep it; tell whether it is ours until the next beat.

        Raises:
            Unavailable, PermissionDenied: the store's trouble; the lease is as it was.
        """
        if not self.is_held and not self._is_free():
            return False
        try:
            self._write(self._holder)
        except Conflict:
            if self.is_held:
                logger.warning(
                    "another process has taken over a role, this one stands by role=%s holder=%s",
                    self.name,
                    self._holder,
                )
            self.is_held, self._generation = False, ""
            return False
        self.is_held = True
        return True

    def release(self) -> None:
        """Give the role up, so that another may take it at its next look; nothing when it is not held.

        Raises:
            Unavailable, PermissionDenied: the store's trouble; the lease runs out by itself.
        """
        if not self.is_held:
            return
        self.is_held = False
        try:
            self._write("")
        except Conflict:  # somebody else has it already
            self._generation = ""

    def _is_free(self) -> bool:
        """Look at the lease: it is free when nobody has it, or its holder has not written for as long as it lives."""
        try:
            blob = self._blobs.get(self._blob, if_changed=self._generation or None)
        except NotFound:
            self._generation = ABSENT
            return True
        if blob is None:
            return self._monotonic() - self._seen_at >= self._ttl_s
        self._generation, self._seen_at = blob.generation, self._monotonic()
        return _holder_in(blob.data) in ("", self._holder)

    def _write(self, holder: str) -> None:
        data = msgspec.json.encode(_Lease(holder, self._ttl_s))
        self._generation = self._blobs.put(
            self._blob,
            data,
            if_generation=self._generation,
            content_type="application/json",
            cache_control="no-store",
        )
        self._seen_at = self._monotonic()


def _holder_in(data: bytes) -> str:
    """Return who holds a lease; what cannot be read is held by somebody unknown, until it runs out."""
    try:
        return msgspec.json.decode(data, type=_Lease).holder
    except (msgspec.MsgspecError, RecursionError):
        return "?"
