"""When a periodic job is due: instants from a text, by cron in a time zone or at a steady distance. Pure; no clock.

    every 90s              also 5m, 2h, 1d and 1h30m: ticks at whole multiples since 1970, the same for everybody
    0 3 * * mon            minute, hour, day, month, weekday, in UTC
    0 3 * * * Europe/Rome  in that zone
    */10 * * * * *         with seconds in front

Cron needs the extra `schedules`. On a night when the clocks change, a job of a fixed hour runs once: in an hour that comes
twice at the first of the two, in one that does not come right after it. What has a `*` for minute or hour follows elapsed time.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobevents.errors import Misconfigured

if TYPE_CHECKING:
    from cronsim import CronSim

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_LONGEST_SHIFT = timedelta(hours=3)  # by which clocks are set: two hours at most (Troll, Antarctica)
_PART = re.compile(r"(\d+)([dhms])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


class Schedule(Protocol):
    """Instants at which a job is due."""

    def after(self, when: datetime) -> datetime | None:
        """Return the first instant after `when`, in UTC; None when there is none for 50 years."""
        ...

    def last(self, when: datetime) -> datetime | None:
        """Return the last instant that is not after `when`, in UTC; None when there was none for 50 years."""
        ...


def parse(text: str) -> Schedule:
    """Return the schedule that a text means; see above for its forms.

    Raises:
        Misconfigured: it means none, there is no such zone, or the package for cron is missing.
    """
    fields = text.split()
    if fields and fields[0] == "every":
        return Every(_distance(text))
    zone = fields.pop() if fields and ("/" in fields[-1] or fields[-1] == "UTC") and fields[-1][0].isalpha() else "UTC"
    return Cron(" ".join(fields), zone)


def in_words(text: str) -> str:
    """Return a schedule as people say it, such as `At 08:00 on Monday through Friday, Europe/Rome`.

    Raises: as `parse`.
    """
    schedule = parse(text)
    return schedule.in_words() if isinstance(schedule, Cron) else " ".join(text.split()).capitalize()


def _distance(text: str) -> timedelta:
    compact = "".join(text.split()[1:])
    found = _PART.findall(compact)
    if not found or "".join(number + unit for number, unit in found) != compact:
        raise Misconfigured(f"no schedule text={text!r}; write it like 'every 90s' or 'every 1h30m'")
    try:
        return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in found), timedelta())
    except OverflowError as error:
        raise Misconfigured(f"no calendar holds this schedule text={text!r}") from error


class Every:
    """Instants at a steady distance: whole multiples of it since 1970, whoever asks."""

    def __init__(self, distance: timedelta) -> None:
        """Raises: Misconfigured: it is less than a second."""
        if distance < _SECOND:
            raise Misconfigured(f"a schedule must leave a second or more between two ticks distance={distance}")
        self._distance = distance

    def after(self, when: datetime) -> datetime | None:
        try:
            return self.last(when) + self._distance
        except OverflowError:  # beyond the calendar
            return None

    def last(self, when: datetime) -> datetime:
        since = when.astimezone(UTC) - _EPOCH
        return _EPOCH + since // self._distance * self._distance


class Cron:
    """Instants by a cron expression of five or six fields, in a time zone."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        """Raises: Misconfigured: no such expression, no such zone, or no package for it."""
        try:
            self._zone = UTC if zone == "UTC" else ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise Misconfigured(
                f"no such time zone zone={zone!r}; on a system without zones: pip install tzdata"
            ) from error
        self._expression = expression
        fields = expression.split()
        # As Debian's cron: what has a fixed time of day is of the clock on the wall, all else of elapsed time.
        self._is_by_the_wall = not any(field.startswith("*") for field in fields[-5:-3])
        self._ticks(_EPOCH)

    def after(self, when: datetime) -> datetime | None:
        when = when.astimezone(UTC)
        # A gap's times on the wall are past when it ends.
        start = self._wall(when) - _LONGEST_SHIFT if self._is_by_the_wall else self._local(when)
        return next((tick for tick in self._instants(start) if tick > when), None)

    def last(self, when: datetime) -> datetime | None:
        when = when.astimezone(UTC)
        # In an hour that comes twice, the first one's times are ahead on the wall.
        start = self._wall(when) + _LONGEST_SHIFT if self._is_by_the_wall else self._local(when + _SECOND)
        return next((tick for tick in self._instants(start, reverse=True) if tick <= when), None)

    def in_words(self) -> str:
        """Return it as people say it."""
        zone = "UTC" if self._zone is UTC else str(self._zone)
        return f"{self._ticks(_EPOCH).explain()}, {zone}"

    def _local(self, when: datetime) -> datetime:
        return when.replace(microsecond=0).astimezone(self._zone)

    def _wall(self, when: datetime) -> datetime:
        return self._local(when).replace(tzinfo=None, fold=0)

    def _instants(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        for tick in self._ticks(start, reverse=reverse):
            yield self._of_wall(tick) if tick.tzinfo is None else tick.astimezone(UTC)

    def _of_wall(self, wall: datetime) -> datetime:
        """Return the instant of a time on the wall: the first of two, or the end of the gap that swallowed it."""
        local = wall.replace(tzinfo=self._zone)
        while local.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != local.replace(tzinfo=None):
            local = (local + timedelta(minutes=1)).replace(second=0)
        return local.astimezone(UTC)

    def _ticks(self, start: datetime, *, reverse: bool = False) -> "CronSim":
        try:
            from cronsim import CronSim, CronSimError  # an optional extra
        except ImportError as error:
            raise Misconfigured("cron schedules need another package: pip install 'jobevents[schedules]'") from error
        try:  # times on the wall are given without a zone: CronSim's own way with them leaves out expressions with seconds
            return CronSim(self._expression, start, reverse=reverse)
        except CronSimError as error:
            raise Misconfigured(
                f"schedule is no cron expression text={self._expression!r}: {str(error).lower()}; "
                "give five fields, or six with seconds in front, and a zone after them"
            ) from error
