"""How well the projector is: for each view, how far behind it is and since when, written where `doctor` finds it."""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from jobevents.assertions import Instant
from jobevents.blobs import Blobs
from jobevents.boundary import clean_text
from jobevents.errors import Corrupt, JobEventsError, NotFound
from projections.view import Feed

HEARTBEAT_S = (
    120.0  # without a completed cycle for so long nobody projects, and an event that waits for so long is late
)
_ERROR_LIMIT = 500  # characters
_PENDING = 100  # cycles that reached the log's end and are not stored yet


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How well one view is, when it was last written."""

    view: str
    holder: str  # identity of the projector that wrote it
    position: int  # place in the log up to which everything is stored
    head: int  # last place in the log
    lag_events: int  # places between the two: at least as many as events wait
    lag_s: float  # age of the oldest event that waits, by its writer's clock; 0 when none does
    complete_through: Instant | None  # every event committed before is in the view; None: not known yet
    heartbeat: Instant | None  # when the last cycle was completed: read, folded, stored
    parked: int  # jobs that wait for a person
    error: str  # what holds the view up; "" for nothing
    written_at: Instant


class HealthRecord:
    """Measures one view and writes what it finds to `ctl/v1/projector/{view}.json`. For one thread."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str,
        view: str,
        *,
        holder: str = "",
        clock: Callable[[], datetime],
        complete_through: Callable[[], datetime | None] | None = None,
    ) -> None:
        self._blobs = blobs
        self._name = f"{_root(prefix)}{view}.json"
        self._view = view
        self._holder = holder
        self._clock = clock
        self._complete_through: datetime | None = None
        self._is_told = complete_through  # by somebody else; else by the place of each cycle in the log
        self._heartbeat: datetime | None = None
        self._reached: deque[tuple[int, datetime]] = deque()

    def cycled(self, stored: int) -> None:
        """Take notice of a completed cycle, after which everything up to `stored` is in the view."""
        self._heartbeat = self._clock()
        while self._reached and self._reached[0][0] <= stored:
            self._complete_through = self._reached.popleft()[1]

    def reached(self, position: int, began: datetime) -> None:
        """Take notice of a cycle that began then and found `position` to be the log's end."""
        if self._reached and self._reached[-1][0] == position:
            self._reached.pop()
        if len(self._reached) < _PENDING:
            self._reached.append((position, began))

    def measure(self, log: Feed, stored: int, *, parked: int, error: Exception | None) -> Health:
        """Return how the view is now: one read of the log, one more when it is behind."""
        head = int(log.last_cursor() or 0)
        now = self._clock()
        return Health(
            view=self._view,
            holder=self._holder,
            position=stored,
            head=head,
            lag_events=max(0, head - stored),
            lag_s=age_of_next(log, stored, now) if stored < head else 0.0,
            complete_through=self._is_told() if self._is_told else self._complete_through,
            heartbeat=self._heartbeat,
            parked=parked,
            error=clean_text(f"{type(error).__name__}: {error}", _ERROR_LIMIT) if error else "",
            written_at=now,
        )

    def write(self, health: Health) -> None:
        """Write it, over whatever projector's was there."""
        self._blobs.put(
            self._name, msgspec.json.encode(health), content_type="application/json", cache_control="no-store"
        )


def read_health(blobs: Blobs, prefix: str = "") -> Iterator[Health]:
    """Yield what the projectors last wrote, view by view; nothing when none ever ran.

    Raises:
        Corrupt: a record cannot be read.
    """
    for entry in blobs.list(_root(prefix)):
        try:
            blob = blobs.get(entry.name)
        except NotFound:
            continue
        assert blob is not None  # noqa: S101  # None only for if_changed
        try:
            yield msgspec.json.decode(blob.data, type=Health)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Corrupt(f"health of a projector cannot be read name={entry.name} error={error}") from error


def idle_since(health: Health, now: datetime) -> datetime | None:
    """Return since when nobody has projected into a view: its last completed cycle; None while somebody does.

    A projector that has nothing to do completes a cycle every second all the same. One that never completed any has been
    idle since it was written down.
    """
    last = health.heartbeat or health.written_at
    return last if (now - last).total_seconds() > HEARTBEAT_S else None


def troubles(health: Health, head: int | None, now: datetime) -> list[str]:
    """Return what is bad about a view whose log ends at `head` now; nothing when it is well.

    Args:
        head: None: the log has no places, so that nobody knows what has come since its projector last looked.
    """
    found = []
    waiting = health.lag_events if head is None else head - health.position
    since = idle_since(health, now)
    if since is not None and (waiting > 0 or head is None):
        what = f"{waiting} events wait and" if waiting > 0 else "what came since is not known, as"
        last = since.isoformat() if health.heartbeat else "never"
        found.append(f"{what} no cycle was completed since {last}: run jobevents project")
    if waiting < 0:
        found.append(
            f"it is {-waiting} events ahead of the log: was that replaced by an older copy? "
            "make the views anew with: jobevents rebuild, then jobevents project"
        )
    if health.parked:
        found.append(f"{health.parked} jobs are parked: see jobevents parked list --view {health.view}")
    if health.error:
        found.append(f"held up by {health.error}")
    return found


def age_of_next(log: Feed, stored: int, now: datetime) -> float:
    """Return the age of the event after a position, in seconds; 0 when it cannot be read."""
    try:
        record = next(iter(log.scan(str(stored), limit=1)), None)
        return max(0.0, (now - record.event().at).total_seconds()) if record else 0.0
    except JobEventsError:
        return 0.0


def _root(prefix: str) -> str:
    return f"{prefix}/ctl/v1/projector/" if prefix else "ctl/v1/projector/"
