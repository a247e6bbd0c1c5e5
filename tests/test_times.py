"""Times as text: what is read, what is written, and what a record makes of them (behaviour S5, S7, S8.7)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents.errors import InvalidValue
from jobevents.status import (
    Status,
    decode,
    encode,
    format_time,
    parse_time,
    to_datetime,
)

law = settings(deadline=None)  # a busy machine breaks no law
TOKYO = timezone(timedelta(hours=9))
ZONES = st.timezones() | st.sampled_from([UTC, TOKYO, timezone(-timedelta(hours=3, minutes=30, seconds=59))])


@law
@given(st.datetimes(timezones=ZONES).filter(lambda when: 1 < when.year < 9999))
def test_a_time_comes_back_from_its_text(when: datetime) -> None:
    """format_time and to_datetime are each other's inverse, and the text is normal and in UTC."""
    text = format_time(when)

    assert when.astimezone(UTC) == to_datetime(text)
    assert text == parse_time(text)
    assert text.endswith("Z")
    assert "0Z" != text[-2:] or "." not in text


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2026-07-26T12:00:31.123456789Z", "2026-07-26T12:00:31.123456789Z"),
        ("2026-07-26T12:00:31.500Z", "2026-07-26T12:00:31.5Z"),
        ("2026-07-26T12:00:31.000Z", "2026-07-26T12:00:31Z"),
        ("2026-07-26T1:02:03,5+09:00", "2026-07-26T01:02:03.5+09:00"),
        ("2026-07-26T12:00:00.1234567899Z", "2026-07-26T12:00:00.123456789Z"),
        ("2026-07-26T12:00:00+09:60", "2026-07-26T12:00:00+10:00"),
        ("2026-07-26T12:00:00-24:00", "2026-07-26T12:00:00-24:00"),
        ("2026-07-26T12:00:00-00:00", "2026-07-26T12:00:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_parse_time_is_as_lenient_as_go(text: str, normal: str) -> None:
    """What Go reads comes out as Go would write it (behaviour S8.7)."""
    assert normal == parse_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-07-26",
        "2026-07-26 12:00:00Z",
        "2026-07-26T12:00:00z",
        "2026-07-26T12:00:00",
        "2026-07-26T12:00:00.Z",
        "2026-07-26T12:00:00+0900",
        "12026-07-26T12:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-07-26T12:00:60Z",
        "2026-07-26T12:60:00Z",
        "2026-07-26T24:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-07-26T12:00:00+25:00",
        "2026-07-26T12:00:00+09:61",
        "2026-07-26T12:00:00Z\n",
        " 2026-07-26T12:00:00Z",
        "２026-07-26T12:00:00Z",
        "20260726T120000Z",
    ],
)
def test_parse_time_refuses_what_go_refuses(text: str) -> None:
    """The rest is an error that repeats the text (behaviour S8.7)."""
    with pytest.raises(InvalidValue, match="text="):
        parse_time(text)


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC), "2026-07-26T12:00:31Z"),
        (datetime(2026, 7, 26, 12, 0, 31, 120000, tzinfo=UTC), "2026-07-26T12:00:31.12Z"),
        (datetime(2026, 7, 26, 12, 0, 31, 1, tzinfo=UTC), "2026-07-26T12:00:31.000001Z"),
        (datetime(2026, 7, 26, 21, 0, 10, tzinfo=TOKYO), "2026-07-26T12:00:10Z"),
        (datetime(33, 1, 1, tzinfo=UTC), "0033-01-01T00:00:00Z"),
    ],
)
def test_format_time_writes_utc(when: datetime, text: str) -> None:
    """Times are written in UTC, without the trailing zeros of the fraction (behaviour S7)."""
    assert text == format_time(when)


def test_a_time_keeps_the_offset_it_is_given_with() -> None:
    """A datetime set on a record keeps its own offset; seconds of an offset are cut (behaviour S7)."""
    old = datetime(1880, 1, 1, tzinfo=ZoneInfo("America/New_York"))  # 4:56:02 behind UTC

    assert (
        Status(queued_at=cast("str", datetime(2026, 7, 26, 21, tzinfo=TOKYO))).queued_at == "2026-07-26T21:00:00+09:00"
    )
    assert Status(queued_at=cast("str", old)).queued_at == "1880-01-01T00:00:00-04:56"


@pytest.mark.parametrize("wrong", [datetime(2026, 7, 26), "yesterday", 1785067200])
def test_what_is_no_instant_is_refused_when_set(wrong: Any) -> None:
    """A naive datetime, other text and numbers are errors at construction, and at encode if set later."""
    later = Status()
    later.queued_at = wrong

    with pytest.raises(InvalidValue, match="time"):
        Status(queued_at=wrong)
    with pytest.raises(InvalidValue, match="time"):
        encode(later)


def test_a_naive_time_is_refused_with_a_remedy() -> None:
    """format_time says what is missing."""
    with pytest.raises(InvalidValue, match="time zone"):
        format_time(datetime(2026, 7, 26))


@pytest.mark.parametrize("text", ["", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_outside_datetimes_years_is_an_error(text: str) -> None:
    """to_datetime gives aware UTC or InvalidValue, never something near."""
    with pytest.raises(InvalidValue):
        to_datetime(text)


def test_an_instant_beyond_utcs_years_cannot_be_formatted() -> None:
    """The first hours of year 1 east of Greenwich have no UTC date."""
    with pytest.raises(InvalidValue, match="years 1 to 9999"):
        format_time(datetime(1, 1, 1, tzinfo=TOKYO))


@pytest.mark.parametrize(
    "zero",
    ["0001-01-01T00:00:00Z", "0001-01-01T09:00:00+09:00", "0000-12-31T20:00:00-04:00", "0001-01-02T00:00:00+24:00"],
)
def test_the_zero_instant_is_no_queued_at_in_any_zone(zero: str) -> None:
    """queued_at at the zero instant is empty and left out (behaviour S5)."""
    record = Status(queued_at=zero)

    assert not record.queued_at
    assert b"queued_at" not in encode(record)


def test_updated_at_is_written_also_when_it_is_zero() -> None:
    """updated_at is never left out, and keeps its zone (behaviour S5)."""
    zoned = "0001-01-01T09:00:00+09:00"

    assert encode(Status()) == b'{"job_id":"","state":"","updated_at":"0001-01-01T00:00:00Z"}'
    assert zoned == decode(encode(Status(updated_at=zoned))).updated_at


def test_an_offset_of_a_day_is_read_but_not_written() -> None:
    """Go reads +24:00 and cannot write it; so do we (behaviour S8.7)."""
    record = decode(b'{"queued_at":"2026-07-26T12:00:00+24:00"}')

    assert record.queued_at == "2026-07-26T12:00:00+24:00"
    with pytest.raises(InvalidValue, match="24:00"):
        encode(record)
