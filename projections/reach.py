"""How far a view says that it is, and which version of a job it has to have then.

Where the log has one order a view says its place in it. Where it has none, it says through which time it is complete, which
events are held against by their writers' clocks, with some room for how those differ.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from jobevents.blobs import Blobs
from jobevents.errors import Corrupt
from jobevents.reads import version_at
from projections.health import read_health
from projections.positions import Positions
from projections.proof import Proof

SKEW = timedelta(minutes=1)  # between the clocks of those who write events and that of the store
NEVER = datetime.min.replace(tzinfo=UTC)


class Reach(msgspec.Struct, frozen=True):
    """What a view says of itself."""

    position: int = 0  # place in the log's one order; 0: it says none
    through: datetime | None = None  # every event written before is in it; None: it says none

    @property
    def is_said(self) -> bool:
        """Tell whether there is a projector that says how far it is; without one a view has to have everything."""
        return bool(self.position) or self.through is not None

    def owed(self, proof: Proof) -> int:
        """Return the version that the view has to have of a job, at the least; 0: none."""
        if self.position:
            owed = proof.version_at(self.position)
        elif self.through is not None:
            owed = version_at(proof.events, self.through)
        else:
            owed = proof.version
        return owed if proof.owed is None else min(owed, proof.owed)


def read_reach(blobs: Blobs, prefix: str, view: str, positions: Positions | None) -> Reach:
    """Return how far a view is: one read.

    Args:
        positions: where it keeps its place in the log's one order; None: the log has none.
    """
    if positions is not None:
        return Reach(position=positions.stored(view))
    try:
        found = next((one for one in read_health(blobs, prefix) if one.view == view), None)
    except Corrupt:
        return Reach()
    if found is None:
        return Reach()
    return Reach(through=found.complete_through - SKEW if found.complete_through is not None else NEVER)
