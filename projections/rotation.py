"""How far the sweep through the whole log is: one blob, so that the next process goes on from there."""

import logging
from datetime import datetime

import msgspec

from jobevents.assertions import Instant
from jobevents.blobs import Blobs
from jobevents.errors import NotFound

logger = logging.getLogger(__name__)


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the blob says."""

    next_part: int = 0  # number of the part that is next
    began: Instant | None = None  # when the rotation began, by the store's clock; None: it has not
    complete_through: Instant | None = None  # every event stored before is in the views


class Rotation:
    """The blob. Each call may raise Unavailable or PermissionDenied."""

    def __init__(self, blobs: Blobs, prefix: str = "") -> None:
        self._blobs = blobs
        self._name = f"{prefix}/ctl/v1/sweep.json" if prefix else "ctl/v1/sweep.json"

    def load(self) -> Standing:
        """Return how far it is; at its beginning where nothing says so."""
        try:
            blob = self._blobs.get(self._name)
        except NotFound:
            return Standing()
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            return msgspec.json.decode(blob.data, type=Standing)
        except (msgspec.MsgspecError, RecursionError):
            logger.warning("how far the sweep was cannot be read: it begins anew name=%s", self._name)
            return Standing()

    def save(self, standing: Standing) -> datetime:
        """Write how far it is; return when that was, by the store's clock."""
        data = msgspec.json.encode(standing)
        self._blobs.put(self._name, data, content_type="application/json", cache_control="no-store")
        blob = self._blobs.get(self._name)
        assert blob is not None  # noqa: S101  # None only for if_changed
        return blob.stored_at
