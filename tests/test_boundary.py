"""The boundary: text is always storable afterwards, names and JSON are taken exactly or refused, times have a zone."""

import contextlib
import dataclasses
import datetime as dt
import enum
import json
import math
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobevents import boundary
from jobevents.boundary import check_instant, check_json, check_name, clean_text
from jobevents.commands import due
from jobevents.errors import InvalidValue
from jobevents.events import JobFailed, JobQueued
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from jobevents.testing.strategies import any_texts, json_values
from jobevents.wiring import connect
from tests.clock import START, Clock


class Id(str):
    """Text of a class of its own, as many libraries make it."""


class Colour(enum.StrEnum):
    """Text that is a member of an enumeration."""

    RED = "red"


def levels(depth: int) -> Any:
    """Return lists in lists, `depth` of them."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cycle() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


# Text


@given(any_texts(300), st.integers(0, 200))
@example("ü" * 100, 50)
@example("\ud800" * 30, 30)
def test_cleaned_text_is_storable_and_within_its_limit(text: str, limit: int) -> None:
    """Whatever was said, what is kept is UTF-8 of at most `limit` bytes, without NUL."""
    kept = clean_text(text, limit).encode()

    assert len(kept) <= limit
    assert b"\0" not in kept


@given(any_texts(100), st.integers(0, 100))
def test_cleaning_twice_changes_nothing(text: str, limit: int) -> None:
    """Text that was cleaned is clean: it may pass the boundary again."""
    once = clean_text(text, limit)

    assert once == clean_text(once, limit)


@given(st.text(st.characters(min_codepoint=32, codec="utf-8", exclude_characters="\x7f"), max_size=50))
def test_good_text_stays_as_it_is(text: str) -> None:
    """Nothing that every store can hold is touched."""
    assert text == clean_text(text, 1000)


def test_bad_characters_become_visible() -> None:
    """Control characters turn into their pictures, lone surrogates into U+FFFD; tab and line ends stay."""
    assert "a␀b␡c\ufffd\t\r\n␛" == clean_text("a\0b\x7fc\ud800\t\r\n\x1b", 100)


def test_long_text_keeps_its_start_and_its_end() -> None:
    """The mark between says exactly how many bytes are missing."""
    text = "start " + "x" * 10_000 + " the end"

    kept = clean_text(text, 200)

    start, _, rest = kept.partition(" …[")
    cut, _, end = rest.partition(" bytes cut]… ")
    assert text.startswith(start)
    assert text.endswith(end)
    assert "the end" in end
    assert len(text) == len(start) + int(cut) + len(end)


@pytest.mark.parametrize("text", [Id("abc"), Colour.RED])
def test_text_of_another_class_becomes_plain_text(text: str) -> None:
    """What is kept is a str and nothing else: the encoder writes no subclass."""
    assert str is type(clean_text(text, 100))
    assert str is type(check_name("key", text))


@pytest.mark.parametrize("value", [None, 7, b"bytes"])
def test_what_is_no_text_is_refused(value: Any) -> None:
    """A number for a title or a name is a mistake that the caller is told of, with an error of ours."""
    with pytest.raises(InvalidValue, match=f"must be text, not {type(value).__name__}"):
        clean_text(value, 100)
    with pytest.raises(InvalidValue, match=f"key must be text, not {type(value).__name__}"):
        check_name("key", value)


# Names


@pytest.mark.parametrize("name", ["a\0", "a\nb", "\x7f", "\x85", "\u2028", "\ud800", "x" * 256, "ü" * 128, ""])
def test_a_name_that_not_every_store_can_hold_is_refused(name: str) -> None:
    """Identifiers are never changed, since a changed one names something else."""
    with pytest.raises(InvalidValue, match="queue"):
        check_name("queue", name)


@pytest.mark.parametrize("name", ["a", "x" * 255, "Ü ber/-_.:😀", " a "])
def test_any_other_name_is_taken_exactly(name: str) -> None:
    """No trimming, no case, no normal form."""
    assert name == check_name("queue", name)


def test_a_name_may_be_left_out_where_it_is_optional() -> None:
    """An empty key is no key."""
    assert "" == check_name("key", "", optional=True)


# JSON


@given(json_values())
def test_a_json_value_comes_back_as_it_was(value: Any) -> None:
    """What is accepted encodes and decodes to itself, type for type, by other parsers too."""
    kept = check_json("params", value)

    assert json.dumps(value) == json.dumps(kept)
    assert json.loads(msgspec.json.encode(kept)) == value


def test_a_json_value_is_a_copy() -> None:
    """What the caller does to it afterwards does not reach what was submitted."""
    value = {"songs": [1]}
    kept = check_json("params", value)

    value["songs"].append(2)

    assert {"songs": [1]} == kept


@dataclasses.dataclass
class Song:
    """A dataclass with a time, as its JSON has it."""

    title: str
    at: datetime


class Mix(msgspec.Struct):
    """A Struct within which there is another kind of value."""

    title: str
    parts: tuple[int, ...] = ()
    extra: Any = None


def test_structs_dataclasses_and_tuples_are_taken_as_what_they_encode_to() -> None:
    """A handler finds dicts, lists and text, whatever the submitter had."""
    assert {"title": "T", "at": "2026-08-01T12:00:00Z"} == check_json("params", Song("T", START))
    assert {"title": "T", "parts": [1, 2], "extra": None} == check_json("params", Mix("T", (1, 2)))


BAD_VALUES: dict[str, tuple[Any, str]] = {
    "nan": ({"a": [1, math.nan]}, "$.a[1]"),
    "inf": ([math.inf], "$[0]"),
    "-inf": (-math.inf, "$"),
    "datetime": ({"at": START}, "$.at"),
    "date": ([dt.date(2026, 1, 1)], "$[0]"),
    "decimal": ({"a": Decimal(1)}, "$.a"),
    "bytes": ({"a": b"x"}, "$.a"),
    "set": ({"a": {1}}, "$.a"),
    "complex": ([1j], "$[0]"),
    "object": ({"a": object()}, "$.a"),
    "enum": ({"a": Colour.RED}, "$.a"),
    "2^63": ({"n": 2**63}, "$.n"),
    "below 64 bits": ({"n": -(2**63) - 1}, "$.n"),
    "10^400": ({"n": 10**400}, "$.n"),
    "key that is a number": ({"a": {1: 2}}, "$.a"),
    "key that is None": ({None: 2}, "$"),
    "surrogate": (["\ud800"], "$[0]"),
    "surrogate in a key": ({"a": {"\udfff": 1}}, "$.a"),
    "struct within": ({"a": Mix("T")}, "$.a"),
    "nan within a struct": (Mix("T", extra={"x": math.nan}), "$.extra.x"),
}


@pytest.mark.parametrize(("value", "path"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_dat_12_an_odd_value_is_refused_with_its_place(value: Any, path: str) -> None:
    """What JSON cannot hold exactly is refused, and the path says where it is."""
    with pytest.raises(InvalidValue) as refused:
        check_json("params", value)

    assert path == refused.value.path
    assert f"path={path}" in str(refused.value)


@pytest.mark.parametrize(
    "value", [levels(101), levels(2_000), levels(100_000), cycle()], ids=["101", "2000", "100000", "cycle"]
)
def test_dat_12_what_is_too_deep_is_refused(value: Any) -> None:
    """A hundred levels are the most, be it a cycle or a tower; the message stays short."""
    with pytest.raises(InvalidValue, match="nested more than 100 levels") as refused:
        check_json("params", value)

    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [type("T", (), {}), Mix, Mix("T", extra=1j), Mix("T", extra=cycle())])
def test_dat_12_a_struct_that_cannot_be_written_is_refused(value: Any) -> None:
    """Classes, and Structs with what no JSON has, raise our error and no other."""
    with pytest.raises(InvalidValue, match="params"):
        check_json("params", value)


@pytest.mark.parametrize(
    "value", [None, "", "null", 0, False, [], {}, {"": ""}, levels(100), 2**63 - 1, -(2**63), "\0", 1.5]
)
def test_dat_12_odd_but_good_values_are_kept_exactly(value: Any) -> None:
    """Empty text, the text `null`, the largest integers and a hundred levels are values like others."""
    kept = check_json("params", value)

    assert value == kept
    assert type(value) is type(kept)


def test_dat_07_the_limit_is_in_bytes_of_json() -> None:
    """Exactly 64 KiB of JSON pass; a byte more is refused with size and limit."""
    most = "x" * (64 * 1024 - 2)

    assert most == check_json("params", most)
    with pytest.raises(InvalidValue, match="size=65537 limit=65536 bytes"):
        check_json("params", most + "x")


# Times


@pytest.mark.parametrize(
    "when",
    [
        START,
        START.astimezone(timezone(timedelta(hours=9))),
        START.astimezone(ZoneInfo("America/St_Johns")),
        START.astimezone(timezone(timedelta(hours=-23, minutes=-59))),
    ],
)
def test_an_instant_is_the_same_in_any_zone(when: datetime) -> None:
    """What is kept is UTC, whatever zone it came in."""
    kept = check_instant("at", when)

    assert START == kept
    assert UTC is kept.tzinfo


@pytest.mark.parametrize(
    "when",
    [
        datetime(2026, 8, 1, 12),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-9))),
        10**12,
        "2026-08-01T12:00:00Z",
        None,
    ],
)
def test_what_is_no_instant_is_refused(when: Any) -> None:
    """A naive time means two things, a number none, and some no calendar has."""
    with pytest.raises(InvalidValue, match="at"):
        check_instant("at", when)


# What submit makes of it, on every log


def scheduled(jobs: Jobs, **when: Any) -> datetime | None:
    """Submit a job and return the instant it is stored to be due at."""
    event = jobs.history(jobs.submit("render", **when))[0]
    assert isinstance(event, JobQueued)
    return event.scheduled_at


@pytest.fixture(params=["Asia/Tokyo", "America/St_Johns", "Europe/Helsinki"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The process in another time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_tim_01_the_same_instant_in_any_spelling_is_due_at_the_same_moment(jobs: Jobs, zone: str) -> None:
    """Datetimes and ISO text, in Z and +09:00, mean one instant, wherever the process runs; it is stored in UTC."""
    tokyo = timezone(timedelta(hours=9))
    spellings = [
        START,
        START.astimezone(tokyo),
        START.astimezone(ZoneInfo(zone)),
        START.astimezone(),
        "2026-08-01T12:00:00Z",
        "2026-08-01T12:00:00+00:00",
        "2026-08-01T21:00:00+09:00",
        "20260801T120000Z",
    ]

    due_at = [scheduled(jobs, at=spelling) for spelling in spellings]

    assert [START] * len(spellings) == due_at
    assert {timedelta(0)} == {when and when.utcoffset() for when in due_at}


@pytest.mark.parametrize("naive", [datetime(2026, 8, 1, 12), "2026-08-01T12:00:00", "2026-08-01", "12:00"])
def test_tim_01_a_time_without_a_zone_is_refused(jobs: Jobs, zone: str, naive: Any) -> None:
    """It would be another moment on another machine: nothing is written, and the message says what to add."""
    with pytest.raises(InvalidValue, match=r"no time zone|no ISO 8601 time"):
        jobs.submit("render", at=naive)

    assert "" == jobs.log.last_cursor()


def test_tim_01_what_is_shown_is_utc_with_its_zone(jobs: Jobs, zone: str) -> None:
    """Status and stored bytes end in Z, wherever they were written."""
    job_id = jobs.submit("render")

    assert "2026-08-01T12:00:00Z" == jobs.get(job_id).queued_at
    assert b'"at":"2026-08-01T12:00:00Z"' in jobs.log.read_raw(job_id)[0].data


def test_tim_01_a_clock_in_another_zone_writes_utc_too(url: str) -> None:
    """A clock that says local time, with its zone, is taken for the instant it names."""
    clock = Clock(START.astimezone(timezone(timedelta(hours=9))))

    with connect(url, clock=clock) as jobs:
        job_id = jobs.submit("render")

        assert b'"at":"2026-08-01T12:00:00Z"' in jobs.log.read_raw(job_id)[0].data


SPRING = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # half an hour before Helsinki's clocks go from 03:00 to 04:00
AUTUMN = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # half an hour before they go back from 04:00 to 03:00


@pytest.mark.parametrize("now", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_tim_06_a_delay_is_exact_in_elapsed_seconds(jobs: Jobs, clock: Clock, zone: str, now: datetime) -> None:
    """A day is 86,400 seconds, also on the day on which the clocks change."""
    clock.now = now.astimezone(ZoneInfo("Europe/Helsinki"))

    due_at = scheduled(jobs, delay=timedelta(days=1))

    assert due_at is not None
    assert 86_400 == due_at.timestamp() - now.timestamp()


def test_tim_06_both_instants_of_the_repeated_hour_are_kept_apart(jobs: Jobs) -> None:
    """03:30 comes twice in that night, an hour apart: `fold` says which is meant."""
    first = datetime(2026, 10, 25, 3, 30, tzinfo=ZoneInfo("Europe/Helsinki"))

    assert AUTUMN == scheduled(jobs, at=first)
    assert AUTUMN + timedelta(hours=1) == scheduled(jobs, at=first.replace(fold=1))


def test_tim_09_far_and_past_times_are_kept(jobs: Jobs, clock: Clock) -> None:
    """A job in 30 days or in the year 9999 waits, one of the year 1 is due: each is stored as it is."""
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    first = datetime(1, 1, 1, tzinfo=UTC)

    assert START + timedelta(days=30) == scheduled(jobs, delay=timedelta(days=30))
    assert START + timedelta(milliseconds=1) == scheduled(jobs, delay=0.001)
    assert START - timedelta(hours=1) == scheduled(jobs, delay=-3600)
    assert last == scheduled(jobs, at=last)
    assert first == scheduled(jobs, at=first)


IMPOSSIBLE: list[dict[str, Any]] = [
    {"at": 10**12},
    {"at": "10000-01-01T00:00:00Z"},
    {"at": "2026-02-30T00:00:00Z"},
    {"at": ""},
    {"at": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))},
    {"delay": 10**12},
    {"delay": 10**400},
    {"delay": math.inf},
    {"delay": math.nan},
    {"delay": timedelta.max},
    {"delay": "5"},
    {"at": START, "delay": 1},
]


@pytest.mark.parametrize("when", IMPOSSIBLE, ids=lambda when: f"{when!r:.40}")
def test_tim_09_an_impossible_time_is_refused_at_submit(jobs: Jobs, when: dict[str, Any]) -> None:
    """No calendar has it: the submitter is told, and nothing is written."""
    with pytest.raises(InvalidValue):
        jobs.submit("render", **when)

    assert "" == jobs.log.last_cursor()


def test_a_delay_of_another_type_is_told_which(jobs: Jobs) -> None:
    """Text is no time outside the calendar: the message says what a delay is."""
    with pytest.raises(InvalidValue, match="delay must be seconds or a timedelta, not str"):
        jobs.submit("render", delay="5")  # type: ignore[arg-type]  # what is tested


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_tim_09_a_delay_is_kept_to_the_microsecond(delay: timedelta) -> None:
    """Whatever the delay, the job is due exactly that long after it was submitted."""
    assert START + delay == due(None, delay, START)


# Data, on every log


def test_dat_01_text_that_holds_nul_is_kept_in_a_visible_form(jobs: Jobs) -> None:
    """Title, progress, fields, error and log lines look the same on every log, and the job's end is recorded."""
    job_id = jobs.submit("render", {"a": "\0"}, title="T\0", actor="a\0", reason="r\0")

    with contextlib.suppress(ValueError), jobs.attempt(job_id) as attempt:
        attempt.progress(5, "p\0")
        attempt.annotate(title="U\0", note="n\0")
        attempt.log("line\0")
        raise ValueError("boom\0\ud800")

    job = jobs.job(job_id)
    assert ("failed", "boom␀\ufffd") == (job.state, job.error)
    assert ("U␀", "p␀", "n␀", "a␀") == (job.title, job.progress_message, job.fields["note"], job.triggered_by)
    assert ["line␀"] == [line.message for line in jobs.run_logs.logs(job_id)]
    assert {"a": "\0"} == job.params
    assert 0 == sum(b"\0" in record.data for record in jobs.log.scan())


@pytest.mark.parametrize("which", ["name", "key", "queue"])
def test_dat_01_an_identifier_that_holds_nul_is_refused(jobs: Jobs, which: str) -> None:
    """A changed identifier would be another one: nothing is written."""
    with pytest.raises(InvalidValue, match=f"{which} holds a control character"):
        jobs.submit(**{"name": "render", which: "a\0"})

    assert "" == jobs.log.last_cursor()


def strict(data: bytes) -> Any:
    """Parse JSON, refusing the NaN and Infinity that Python's parser lets pass."""

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    return json.loads(data, parse_constant=refuse)


@pytest.mark.parametrize("result", [{"x": math.nan}, {"y": [math.inf]}, {"z": {"deep": -math.inf}}, math.nan])
def test_dat_03_a_result_that_json_cannot_hold_leaves_valid_json_and_a_success(jobs: Jobs, result: Any) -> None:
    """The work is done, so the job has succeeded; a marker says why its result is not there."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.progress(math.nan)
        attempt.progress(math.inf)
        attempt.annotate(ratio=math.nan)
        attempt.log("line", ratio=math.nan)
        attempt.result(result)

    job = jobs.job(job_id)
    assert ("succeeded", None, {}) == (job.state, job.progress, job.fields)
    assert "which JSON cannot" in job.result["unstorable"]
    for record in jobs.log.scan():
        strict(record.data)


def test_dat_03_params_that_json_cannot_hold_are_refused_before_work_starts(jobs: Jobs) -> None:
    """The rule at submit: nothing is written, and the path says where it is."""
    with pytest.raises(InvalidValue, match=r"path=\$\.metrics\[1\]"):
        jobs.submit("render", {"metrics": [1, math.nan]})

    assert "" == jobs.log.last_cursor()


@pytest.mark.parametrize("size", [10, 300, 64 * 1024, 10 * 1024 * 1024])
@pytest.mark.parametrize("unit", ["x", "ü", "😀"])
def test_dat_04_an_error_of_any_length_is_recorded(jobs: Jobs, size: int, unit: str) -> None:
    """The text is cut at 16 KiB on a border between characters, with a mark; its start and its end are kept."""
    text = "start " + unit * (size // len(unit.encode())) + " end"
    job_id = jobs.submit("render")

    with pytest.raises(RuntimeError), jobs.attempt(job_id):
        raise RuntimeError(text)

    failed = jobs.history(job_id)[-1]
    assert isinstance(failed, JobFailed)
    assert failed.error.startswith("start ")
    assert failed.error.endswith(" end")
    assert len(failed.error.encode()) <= boundary.ERROR_LIMIT
    assert len(failed.traceback.encode()) <= boundary.TRACEBACK_LIMIT
    assert (failed.error == text) == (len(text.encode()) <= boundary.ERROR_LIMIT)


def test_dat_04_a_traceback_of_5000_frames_is_recorded(jobs: Jobs) -> None:
    """A deep stack is cut to its innermost frames: the place where it was raised is kept."""
    functions: dict[str, Any] = {}
    exec("\n".join(f"def f{n}(): f{n + 1}()" for n in range(5_000)), functions)
    functions["f5000"] = lambda: 1 // 0
    job_id = jobs.submit("render")
    limit = sys.getrecursionlimit()

    sys.setrecursionlimit(limit + 6_000)
    try:
        with pytest.raises(ZeroDivisionError), jobs.attempt(job_id):
            functions["f0"]()
    finally:
        sys.setrecursionlimit(limit)

    failed = jobs.history(job_id)[-1]
    assert isinstance(failed, JobFailed)
    assert "ZeroDivisionError" == failed.kind
    assert "in f4999" in failed.traceback
    assert len(failed.traceback.encode()) <= boundary.TRACEBACK_LIMIT


SIZES = [90 * 1024, 101 * 1024, 1024 * 1024, 11 * 1024 * 1024]


@pytest.mark.parametrize("size", SIZES)
def test_dat_07_params_beyond_the_limit_are_refused_at_once(jobs: Jobs, size: int) -> None:
    """No transport behind us would carry them: the submitter is told size and limit, and nothing is written."""
    with pytest.raises(InvalidValue, match=f"size={size + 2} limit=65536 bytes"):
        jobs.submit("render", "x" * size)

    assert "" == jobs.log.last_cursor()


@pytest.mark.parametrize("size", SIZES)
def test_dat_07_a_result_beyond_the_limit_ends_the_job_all_the_same(jobs: Jobs, size: int) -> None:
    """The work is not done again for its result's sake: the job has succeeded, and says what became of the result."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        attempt.result("x" * size)

    job = jobs.job(job_id)
    assert "succeeded" == job.state
    assert f"size={size + 2} limit=65536" in job.result["unstorable"]


def test_dat_12_odd_params_survive_every_log(url: str, tmp_path: Path) -> None:
    """Empty text, `null`, integers above 2^53 and a hundred levels come to the handler as they were given."""
    for params in ("", "null", None, 2**63 - 1, {"n": 2**53 + 1}, levels(100), [1.0, 1, True]):
        with connect(url) as jobs:
            job_id = jobs.submit("render", params)

            with jobs.attempt(job_id) as attempt:
                assert params == attempt.params
                assert repr(params) == repr(attempt.params)


@pytest.mark.parametrize("name", ["title", "actor", "reason"])
def test_what_is_no_text_is_told_by_its_name(jobs: Jobs, name: str) -> None:
    """Of several texts in one call, the one that is wrong."""
    wrong: Any = {name: 7}

    with pytest.raises(InvalidValue, match=f"{name} must be text, not int"):
        jobs.submit("render", **wrong)
    with pytest.raises(InvalidValue, match="reason must be text, not list"):
        jobs.pause(job="render", reason=["disk full"])  # type: ignore[arg-type]

    assert [] == jobs.store.list(RunFilter()).runs
