"""Delete chunks of the index that are out of use, once no reader can hold a manifest that names them.

A chunk goes out of use when a manifest replaces it; when a flush that stored it failed, or died, it never was in use. Both
are put on the manifest's list of retired chunks, stay there for the horizon, and are deleted. That a chunk is on the list
when the manifest is written is what makes it safe: a flush that was paused with such a chunk in hand is based on an older
manifest, so its own write of the manifest fails.
"""

import logging
from collections.abc import Callable
from datetime import timedelta

from jobevents.errors import PermissionDenied, Unavailable
from projections.chunks import Chunks
from projections.manifest import Retired, Stored

_SWEEPS = 10  # in a horizon: chunks are kept for a tenth of it longer
logger = logging.getLogger(__name__)


class Collector:
    """Says what is retired, and deletes what was long enough. Ages are told by the store's clock alone."""

    def __init__(self, chunks: Chunks, horizon_s: float, monotonic: Callable[[], float]) -> None:
        self._chunks = chunks
        self._horizon = timedelta(seconds=horizon_s)
        self._horizon_s = horizon_s
        self._monotonic = monotonic
        self._swept_at: float | None = None
        self._listed_at: float | None = None

    def is_due(self) -> bool:
        """Tell whether to read the manifest afresh and `sweep`: at first, then every tenth of the horizon."""
        return self._swept_at is None or self._monotonic() >= self._swept_at + self._horizon_s / _SWEEPS

    def listed(self) -> set[str]:
        """Return the ids of all stored chunks, at first and then once in a horizon, else none: one listing.

        Call it before the manifest is read for `sweep`: a chunk that is listed and that this manifest does not name can
        then only be named by a flush whose own write of the manifest comes before the next one or fails.
        """
        if self._listed_at is not None and self._monotonic() < self._listed_at + self._horizon_s:
            return set()
        self._listed_at = self._monotonic()
        return set(self._chunks.list())

    def sweep(self, stored: Stored, listed: set[str]) -> list[Retired]:
        """Return what is to be on the list of the next manifest, having deleted what has been on it for the horizon.

        One delete for each such chunk; one that fails stays on the list, for the next time.

        Args:
            stored: the manifest just read, with the time at which it was stored.
            listed: of `listed`.
        """
        self._swept_at = self._monotonic()
        manifest, now = stored.manifest, stored.stored_at  # an instant that surely has passed, by the store's clock
        kept: list[Retired] = []
        for batch in manifest.retired:
            at = batch.at or now
            is_old = at is not None and now is not None and at + self._horizon < now
            left = self._deleted(batch.chunks) if is_old else batch.chunks
            if left:
                kept.append(Retired(left, at))
        orphans = listed.difference(manifest.live(), *(batch.chunks for batch in manifest.retired))
        return [*kept, Retired(sorted(orphans))] if orphans else kept

    def _deleted(self, chunk_ids: list[str]) -> list[str]:
        """Delete chunks; return those that could not be."""
        left = []
        for chunk_id in chunk_ids:
            try:
                self._chunks.delete(chunk_id)
            except (Unavailable, PermissionDenied) as error:
                left.append(chunk_id)
                cause = error
        if left:
            logger.warning("retired chunks of the index not deleted count=%d last error=%s", len(left), cause)
        return left
