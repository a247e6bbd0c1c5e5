"""A clock for tests: it stands still until it is moved."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


class Clock:
    """Aware UTC now, as `connect(clock=…)` takes it; `monotonic` gives the same instant as seconds."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the instant it stands at."""
        return self.now

    def monotonic(self) -> float:
        """Return seconds since START."""
        return (self.now - START).total_seconds()

    def move(self, seconds: float) -> datetime:
        """Go on by `seconds`, and return the new instant."""
        self.now += timedelta(seconds=seconds)
        return self.now
