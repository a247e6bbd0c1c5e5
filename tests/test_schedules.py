"""When periodic jobs are due: cron in a zone, nights when the clocks change, steady distances."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents.errors import Misconfigured
from jobevents.schedules import Schedule, parse

HELSINKI = ZoneInfo("Europe/Helsinki")  # clocks go on 2026-03-29 from 3 to 4, back on 2026-10-25 from 4 to 3
SPRING, AUTUMN = datetime(2026, 3, 28, 12, tzinfo=HELSINKI), datetime(2026, 10, 24, 12, tzinfo=HELSINKI)


def ticks(schedule: Schedule, start: datetime, count: int) -> list[datetime]:
    """The next ticks after an instant."""
    found = []
    for _ in range(count):
        tick = schedule.after(start)
        assert tick is not None
        found.append(tick)
        start = tick
    return found


def at(text: str) -> datetime:
    """An instant of 2026, in UTC."""
    return datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("every 90s", at("08-01T12:00:00"), [at("08-01T12:01:30"), at("08-01T12:03:00")]),
        ("every 1h30m", at("08-01T12:00:00"), [at("08-01T13:30:00"), at("08-01T15:00:00")]),
        ("every 2 d", at("08-01T12:00:00"), None),
        ("0 3 * * *", at("08-01T12:00:00"), [at("08-02T03:00:00"), at("08-03T03:00:00")]),
        ("0 3 * * mon", at("08-01T12:00:00"), [at("08-03T03:00:00"), at("08-10T03:00:00")]),
        ("0 3 * * * Europe/Helsinki", at("08-01T12:00:00"), [at("08-02T00:00:00"), at("08-03T00:00:00")]),
        ("0 3 * * * UTC", at("08-01T12:00:00"), [at("08-02T03:00:00"), at("08-03T03:00:00")]),
        ("*/20 * * * * *", at("08-01T12:00:01"), [at("08-01T12:00:20"), at("08-01T12:00:40")]),
        ("30 0 3 * * * Europe/Helsinki", at("08-01T12:00:00"), [at("08-02T00:00:30"), at("08-03T00:00:30")]),
    ],
)
def test_a_text_means_instants(text: str, after: datetime, expected: list[datetime] | None) -> None:
    """Every form of a schedule, and the two ticks after an instant."""
    found = ticks(parse(text), after, 2)

    assert (expected or found) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "daily",
        "every",
        "every day",
        "every 0s",
        "every 90",
        "* * * *",
        "61 * * * *",
        "0 3 * * * Mars/Olympus",
        "0 0 30 2 *",
    ],
)
def test_what_means_nothing_is_refused(text: str) -> None:
    """The message repeats the text, or the zone that there is none of."""
    with pytest.raises(Misconfigured, match=r"schedule|cron|zone"):
        parse(text)


@pytest.mark.parametrize("form", ["30 3 * * * Europe/Helsinki", "0 30 3 * * * Europe/Helsinki"])
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (SPRING, [at("03-29T01:00:00"), at("03-30T00:30:00")]),  # 3:30 is not there: at 4:00, when the gap ends
        (AUTUMN, [at("10-25T00:30:00"), at("10-26T01:30:00")]),  # 3:30 comes twice: the first
    ],
    ids=["spring", "autumn"],
)
def test_tim_06_a_fixed_time_of_day_comes_once_a_day(form: str, start: datetime, expected: list[datetime]) -> None:
    """TIM-06: on the nights when the clocks change a daily job is neither left out nor run twice."""
    assert expected == ticks(parse(form), start, 2)


@pytest.mark.parametrize("text", ["*/30 * * * * Europe/Helsinki", "0 */30 * * * * Europe/Helsinki", "every 30m"])
@pytest.mark.parametrize("start", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_tim_06_what_comes_every_half_hour_does_so(text: str, start: datetime) -> None:
    """TIM-06: elapsed time counts, through the missing hour and the doubled one."""
    found = ticks(parse(text), start, 48)

    assert {timedelta(minutes=30)} == {later - earlier for earlier, later in pairwise(found)}


@pytest.mark.parametrize(
    "text",
    [
        "30 3 * * * Europe/Helsinki",
        "0,30 3,4 * * * Europe/Helsinki",
        "15 3 * * * Australia/Lord_Howe",
        "10,40 0 1,2 * * * Australia/Lord_Howe",
        "*/7 * * * * Europe/Helsinki",
        "0 0 1 * *",
        "every 7h",
    ],
)
@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_tim_06_forwards_and_backwards_are_the_same_ticks(text: str, when: datetime) -> None:
    """TIM-06: the tick after an instant is the last one at itself, and no other lies between."""
    schedule = parse(text)

    after = schedule.after(when)

    assert after is not None
    assert when < after
    assert after == schedule.last(after)
    before = schedule.last(when)
    assert before is not None
    assert before <= when
    assert before == schedule.last(after - timedelta(seconds=1))
    assert after == schedule.after(before)


def test_there_may_be_no_more() -> None:
    """At the end of the calendar there is no next tick, and no error."""
    assert parse("every 90s").after(datetime.max.replace(tzinfo=UTC)) is None


def test_without_the_package_cron_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is the command; steady distances need no package."""
    monkeypatch.setitem(sys.modules, "cronsim", None)

    parse("every 90s")
    with pytest.raises(Misconfigured, match=r"pip install 'jobevents\[schedules\]'"):
        parse("0 3 * * *")
