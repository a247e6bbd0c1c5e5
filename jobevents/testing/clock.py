"""A clock for tests: it stands still until it is moved."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


class Clock:
    """Aware UTC now, as `connect(clock=…)` takes it; `monotonic` gives the seconds since then, and never goes back."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now
        self._passed = 0.0

    def __call__(self) -> datetime:
        """Return the instant it stands at."""
        return self.now

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed

    def move(self, seconds: float) -> datetime:
        """Go on by `seconds`, and return the new instant; a negative number sets the clock back, and no time passes."""
        self.now += timedelta(seconds=seconds)
        self._passed += max(0.0, seconds)
        return self.now
