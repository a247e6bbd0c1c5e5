"""How long a job waits before its next try: pure, the same for the same job and try."""

import random

import msgspec

from jobevents.errors import Misconfigured

BASE_S, MOST_S = 1.0, 300.0  # behaviour M4
_MOST_DOUBLINGS = 1023  # beyond that a float overflows


class Exponential(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that doubles with each try, up to a limit (behaviour M6)."""

    base_s: float = BASE_S  # before the second try
    most_s: float = MOST_S  # never longer
    jitter: float = 0.0  # part of the wait, 0 to 1, that chance may take away, so that jobs that failed together part

    def __post_init__(self) -> None:
        if not (0 <= self.base_s < float("inf") and 0 <= self.most_s < float("inf") and 0 <= self.jitter <= 1):
            raise Misconfigured(
                f"backoff needs base_s and most_s of 0 or more and a jitter from 0 to 1 "
                f"base_s={self.base_s!r} most_s={self.most_s!r} jitter={self.jitter!r}"
            )

    def __call__(self, attempt: int, seed: str = "") -> float:
        """Return the seconds before try `attempt`, 2 or more: `base_s * 2^(attempt - 2)`, at most `most_s`.

        Never raises, never negative, and without jitter never less than before an earlier try.

        Args:
            seed: what jitter is drawn from, such as the job's id.
        """
        doublings = min(max(attempt - 2, 0), _MOST_DOUBLINGS)
        wait_s = min(self.most_s, self.base_s * 2.0**doublings)
        if not self.jitter:
            return wait_s
        drawn = random.Random(f"{seed}/{attempt}").random()  # noqa: S311  # jitter, not a secret
        return wait_s * (1 - self.jitter * drawn)
