"""The store's time, by which the ages of its objects are told: read off objects that this process has just written."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobevents.blobs import Blobs
from jobevents.workers import new_identity

_TRUST_S = 3600.0  # after this a reading is too old to tell the time by: clocks run apart


class _Noon(NamedTuple):
    """One instant by two clocks."""

    stored_at: datetime  # the store's
    monotonic: float  # ours, no earlier


class StoreClock:
    """What time it is by the store. No machine's wall clock is asked."""

    def __init__(self, blobs: Blobs, prefix: str = "", *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._blobs = blobs
        self._at = f"{prefix}/ctl/v1/clock/" if prefix else "ctl/v1/clock/"
        self._monotonic = monotonic
        self._noon: _Noon | None = None

    def now(self) -> datetime:
        """Return the store's time now, never later than it is; once an hour by writing, reading and removing an object."""
        noon = self._noon
        if noon is None or self._monotonic() - noon.monotonic > _TRUST_S:
            name = f"{self._at}{new_identity('clock')}"
            self._blobs.put(name, b"")
            try:
                noon = self.read_off(name)
            finally:
                self._blobs.delete(name)
        return noon.stored_at + timedelta(seconds=self._monotonic() - noon.monotonic)

    def read_off(self, name: str) -> _Noon:
        """Take the time at which an object was stored, which this process has just written: one read."""
        now = self._monotonic()
        blob = self._blobs.get(name)
        stored_at = blob.stored_at if blob else datetime.min.replace(tzinfo=UTC)  # None only for a conditional get
        noon = self._noon = _Noon(stored_at, now)
        return noon
