"""When to try again after an error of a store: soon and ever later when it is unavailable, slowly when trying may not help."""

import logging
import math
import time
from collections.abc import Callable

from jobevents.backoff import Backoff
from jobevents.errors import AppendUnknown, Conflict, JobEventsError, Unavailable
from jobevents.telemetry import Counts

SLOW_S = 30.0  # between tries of what a person has to mend: refused credentials, a store that cannot be read
MOST_S = 8.0  # between tries of what mends itself

logger = logging.getLogger(__name__)


class Recovery:
    """The course of one user of a store through its troubles; waits for nobody itself."""

    def __init__(self, what: str, counts: Counts, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin well.

        Args:
            what: who has the trouble, for messages.
        """
        self.error: JobEventsError | None = None  # None: all is well
        self._what = what
        self._counts = counts
        self._monotonic = monotonic
        self._resume_at = -math.inf
        self._since = 0.0
        self._backoff = Backoff(deadline_s=math.inf, most_s=MOST_S, sleep=self._rest, clock=monotonic)
        self._tries = self._backoff.start()

    @property
    def wait_s(self) -> float:
        """Seconds until the next try; 0 for now."""
        return max(0.0, self._resume_at - self._monotonic())

    @property
    def lasts_s(self) -> float:
        """Seconds since it went wrong; 0 when all is well."""
        return self._monotonic() - self._since if self.error else 0.0

    @property
    def is_loud(self) -> bool:
        """Tell whether a person has to mend it."""
        return self.error is not None and not isinstance(self.error, Unavailable | AppendUnknown | Conflict)

    def failed(self, error: JobEventsError) -> None:
        """Take notice of an error: counted, logged when it is the first or of another kind, and tried again later."""
        if self.error is None:
            self._since = self._monotonic()
        if type(self.error) is not type(error):
            logger.warning(
                "%s is held up, and tries again until it works error=%s: %s", self._what, type(error).__name__, error
            )
        self.error = error
        if self.is_loud:
            self._counts.add("projector_refused")
            self._rest(SLOW_S)
        else:
            self._counts.add("projector_unavailable")
            self._tries.pause()

    def succeeded(self) -> None:
        """Take notice that it works."""
        if self.error is not None:
            logger.warning("%s goes on after %.1f s", self._what, self.lasts_s)
            self.error = None
            self._tries = self._backoff.start()

    def _rest(self, seconds: float) -> None:
        self._resume_at = self._monotonic() + seconds
