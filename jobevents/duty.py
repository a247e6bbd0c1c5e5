"""A duty: a pass over all jobs that one process at a time makes again and again, in a thread beside the work."""

import logging
import os
import time
from collections.abc import Callable

from jobevents.blobs import Blobs
from jobevents.boundary import describe
from jobevents.errors import JobEventsError
from jobevents.lease import RoleLease
from jobevents.telemetry import Counts
from jobevents.trouble import traced
from jobevents.workers import new_identity

logger = logging.getLogger(__name__)


class Duty:
    """The claim of this process to a role, and the passes that it makes while it has it. Usable in a forked child.

    Two at once must be right: where it cannot be found out who has the role, each makes its passes.
    Counts `{role}_passes_failed` and `{role}_role_unknown`.
    """

    def __init__(
        self,
        role: str,
        *,
        interval_s: float,
        blobs: Blobs,
        prefix: str = "",
        counts: Counts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do nothing yet.

        Args:
            role: its name, under which the lease lies in `blobs`.
            interval_s: seconds between two passes; a role without a holder is taken after two.
        """
        self._role = role
        self.interval_s = interval_s
        self._blobs = blobs
        self._prefix = prefix
        self._counts = counts
        self._monotonic = monotonic
        self._roles: dict[int, RoleLease] = {}  # by process id: a forked child asks for the role itself
        self._is_failing = False

    def beat(self, make_pass: Callable[[], object]) -> float:
        """Make a pass if this process has the role, and return the seconds until the next."""
        try:
            if self._has_role():
                make_pass()
            if self._is_failing:
                self._is_failing = False
                logger.warning("the %s makes its passes again", self._role)
        except Exception as error:  # the next pass does what this one could not
            self._counts.add(f"{self._role}_passes_failed")
            if not self._is_failing:
                self._is_failing = True
                logger.warning(
                    "a pass of the %s failed and is made again in %g s error=%s",
                    self._role,
                    self.interval_s,
                    describe(error),
                    exc_info=traced(error),
                )
        return self.interval_s

    def resign(self) -> None:
        """Let another process have the role at once."""
        role = self._roles.pop(os.getpid(), None)
        try:
            if role is not None:
                role.release()
        except JobEventsError as error:
            logger.info(
                "the role of the %s could not be given up: another process has it when its lease runs out error=%s",
                self._role,
                error,
            )

    def _has_role(self) -> bool:
        """Take the role or keep it; where that cannot be found out, go on: two at once only cost more."""
        pid = os.getpid()
        if pid not in self._roles:
            self._roles[pid] = RoleLease(
                self._blobs,
                self._role,
                new_identity(self._role),
                ttl_s=2 * self.interval_s,  # two passes: the next holder is there soon after the last one died
                prefix=self._prefix,
                monotonic=self._monotonic,
            )
        try:
            return self._roles[pid].hold()
        except JobEventsError:
            self._counts.add(f"{self._role}_role_unknown")
            return True
