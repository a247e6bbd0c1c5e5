"""The record and its JSON: every vector, the laws between encode and decode, and what vectors do not show (S5-S9, S19)."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobevents import status
from jobevents.errors import Corrupt, InvalidValue
from jobevents.status import (
    Extra,
    State,
    Status,
    carry_over,
    check_type,
    decode,
    encode,
    format_time,
    is_reserved,
    parse_time,
    to_datetime,
)
from jobevents.times import is_writable
from tests.records import TYPES, Bare, Composition, Story, bytes_of, fields_of, record_of
from tests.vectors import vectors

JOB = "c20260726-120000-abcd1234"
TOKYO = timezone(timedelta(hours=9))


class Counted(Status):
    """A record with service fields that are not text."""

    progress: int = 0
    share: float = 0.0
    paid: bool = False
    owner: str | None = None


# The vectors.


@pytest.mark.parametrize("vector", vectors("is_terminal"))
def test_is_terminal_is_what_the_go_code_says(vector: dict[str, Any]) -> None:
    """Every vector of is_terminal holds: exactly `succeeded` (behaviour S9)."""
    assert vector["out"]["terminal"] == Status(state=vector["in"]["state"]).is_terminal()


@pytest.mark.parametrize("vector", vectors("carry_over"))
def test_carry_over_does_what_the_go_code_does(vector: dict[str, Any]) -> None:
    """Every vector of carry_over holds, in place and as the result (behaviour S19)."""
    next, prev = record_of(vector["in"]["next"], Status), record_of(vector["in"]["prev"], Status)
    before = copy.copy(prev)

    carried = carry_over(next, prev)

    assert {**vector["out"]["next"], "version": 0} == fields_of(next)
    assert next is carried
    assert before == prev


@pytest.mark.parametrize("vector", [v for v in vectors("encode") if v.values[0]["out"]["ok"]])
def test_encode_writes_the_bytes_of_the_go_code(vector: dict[str, Any]) -> None:
    """Every vector of encode holds to the byte, nanoseconds included, once stamped (behaviour S6, S7)."""
    record = record_of(vector["in"]["fields"], TYPES[vector["in"]["type"]])
    if isinstance(record, Status):
        record.job_id = vector["in"]["id"].rpartition("/")[2]
        record.updated_at = vector["in"]["now"]

    assert vector["out"]["bytes"].encode() == encode(record)


def is_about_bytes(vector: dict[str, Any]) -> bool:
    """Tell whether a vector of decode needs no store: it holds bytes, which can be read, of a job with an id."""
    return "missing" not in vector["in"] and vector["out"].get("error") in (None, "decode")


@pytest.mark.parametrize("vector", [v for v in vectors("decode") if is_about_bytes(v.values[0])])
@pytest.mark.parametrize("read", [status._read_canonical, status._read_leniently])
def test_both_ways_of_decode_agree_on_the_vectors(vector: dict[str, Any], read: Callable[..., Any]) -> None:
    """The quick way gives what the vector says or passes, and the lenient way gives it by itself (behaviour S8)."""
    given, out = vector["in"], vector["out"]
    shape = status._shape(cast("Any", TYPES[given["type"]]))

    try:
        record = read(bytes_of(given), shape)
    except ValueError:
        record = None

    if out["ok"] and record is not None:
        record.job_id = record.job_id or JOB
        assert out["reencoded"].encode() == encode(record)
    else:
        assert record is None
        assert not out["ok"] or read is status._read_canonical


# The laws.

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates too
VALID_TEXT = st.text(max_size=12) | st.sampled_from(["<b>&\u2028\u2029", '\0\x7f"\\/', "null", "ſK"])
INT64 = st.integers(-(2**63), 2**63 - 1)
ZONES = st.timezones() | st.sampled_from([UTC, TOKYO, timezone(-timedelta(hours=3, minutes=30, seconds=59))])
TIMES = st.datetimes(timezones=ZONES).filter(lambda when: 1 < when.year < 9999) | st.just("")
STATUS_FIELDS = {
    "job_id": VALID_TEXT,
    "command": VALID_TEXT,
    "state": VALID_TEXT | st.sampled_from(State),
    "title": VALID_TEXT,
    "error": VALID_TEXT,
    "attempts": INT64,
    "queued_at": TIMES,
    "updated_at": TIMES,
    "version": INT64,
}
STORIES = st.builds(Story, output_dir=VALID_TEXT, **STATUS_FIELDS)
COUNTED = st.builds(
    Counted,
    progress=INT64,
    share=st.floats(allow_nan=False, allow_infinity=False),
    paid=st.booleans(),
    owner=st.none() | VALID_TEXT,
    **STATUS_FIELDS,
)


@given(STORIES | COUNTED | st.builds(Bare, note=VALID_TEXT))
def test_decode_gives_back_what_encode_took(record: msgspec.Struct) -> None:
    """decode(encode(x)) is x, for records with and without service fields and the common part."""
    assert record == decode(encode(record), type(record))


@given(STORIES.filter(lambda story: bool(story.updated_at)))
def test_what_encode_wrote_is_read_the_quick_way(story: Story) -> None:
    """A stamped record never needs the lenient way."""
    assert story == status._read_canonical(encode(story), status._shape(Story))


@given(STORIES)
def test_encode_is_gos_json_told_by_pythons(story: Story) -> None:
    """The bytes are compact JSON of the fields in order, empty ones left out, with Go's five escapes (behaviour S5, S6)."""
    fields = msgspec.structs.asdict(story)
    fields["updated_at"] = fields["updated_at"] or "0001-01-01T00:00:00Z"
    kept = {k: str(v) if k == "state" else v for k, v in fields.items() if v or k in ("job_id", "state")}
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")

    assert text.encode() == encode(story)


KEYS = st.sampled_from(
    [
        "job_id",
        "state",
        "State",
        "ſtate",
        "title",
        "TITLE",
        "attempts",
        "Attempts",
        "queued_at",
        "updated_at",
        "Updated_At",
        "version",
        "output_dir",
        "Output_Dir",
        "note",
        "progress",
        "share",
        "paid",
        "owner",
        "nested",
        "K",
    ]
)
TIME_TEXTS = st.sampled_from(
    [
        "",
        "2026-07-26T12:00:00Z",
        "2026-07-26T12:00:00.120Z",
        "2026-07-26T1:00:00,5+00:00",
        "2026-07-26T12:00:00+24:00",
        "0001-01-01T00:00:00Z",
        "0001-01-01T09:00:00+09:00",
        "2024-02-29T00:00:00Z",
        "2026-02-30T00:00:00Z",
    ]
)
NUMBERS = st.sampled_from(
    ["0", "-0", "2", "2.0", "1e2", "9223372036854775808", "-9223372036854775809", "1e999", "NaN", "01"]
)
VALUES = (
    NUMBERS
    | st.sampled_from(
        ["null", "true", "[]", '{"state":{"a":[1,null]}}', r'"\ud800"', r'"\u003c"', '"<"', "\t1", '"a\tb"']
    )
    | (TIME_TEXTS | VALID_TEXT).map(json.dumps)
    | (TIME_TEXTS | VALID_TEXT).map(lambda text: json.dumps(text, ensure_ascii=False))
)
OBJECTS = st.lists(st.tuples(KEYS, VALUES), max_size=6).map(
    lambda members: "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
)
CANONICAL = (STORIES | st.builds(Status, **STATUS_FIELDS)).map(lambda record: encode(record).decode())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw JSON texts, some of them ours, with a few bytes cut, changed, doubled or put in."""
    data = bytearray(draw(OBJECTS | CANONICAL), "utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        data[start:end] = draw(
            st.sampled_from([b"", b" ", b'"', b",", b"}", b"{", b"0", b"\xff", b"\xed\xa0\x80", b"null"])
        )
    return bytes(data)


@given(mutated(), st.sampled_from([Status, Story, Counted, Bare]))
@example(b'{"job_id":"","state":"","updated_at":""}', Status)
@example(b'{"job_id":"a","state":"","attempts":9223372036854775808,"updated_at":"2026-07-26T12:00:00Z"}', Status)
@example(b'{"job_id":"a","state":"","updated_at":"2026-07-26T12:00:00Z","progress":9223372036854775808}', Counted)
@example(b'{"job_id":"a","state":"","updated_at":"2026-07-26T12:00:00+24:00"}', Status)
def test_the_quick_way_of_decode_is_the_lenient_way(data: bytes, record_type: Any) -> None:
    """On any bytes the quick way either passes or gives what the lenient way gives."""
    shape = status._shape(record_type)

    quick = status._read_canonical(data, shape)

    if quick is not None:
        assert status._read_leniently(data, shape) == quick


@given(st.binary(max_size=40) | mutated())
def test_decode_gives_a_record_or_corrupt_and_nothing_else(data: bytes) -> None:
    """Whatever the bytes: a record that encodes to what decodes to it again, or Corrupt."""
    try:
        record = decode(data, Story, JOB)
    except Corrupt:
        return

    assert record.job_id
    if all(is_writable(when) for when in (record.queued_at, record.updated_at)):
        assert record == decode(encode(record), Story)


@given(st.datetimes(timezones=ZONES).filter(lambda when: 1 < when.year < 9999))
def test_a_time_comes_back_from_its_text(when: datetime) -> None:
    """format_time and to_datetime are each other's inverse, and the text is normal and in UTC."""
    text = format_time(when)

    assert when.astimezone(UTC) == to_datetime(text)
    assert text == parse_time(text)
    assert text.endswith("Z")
    assert "0Z" != text[-2:] or "." not in text


# Times.


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


# Encoding.


def test_version_is_the_last_key_and_left_out_when_there_is_none() -> None:
    """Service fields stand before version, whatever else is added."""
    assert encode(Story("a", version=3, output_dir="d", updated_at="2026-07-26T12:00:00Z")) == (
        b'{"job_id":"a","state":"","updated_at":"2026-07-26T12:00:00Z","output_dir":"d","version":3}'
    )
    assert b"version" not in encode(Story("a", version=cast("int", None)))


def test_extras_follow_the_declared_fields_in_their_order_without_the_empty_ones() -> None:
    """Undeclared service fields stand between the declared ones and version, empty ones left out."""
    extras: dict[str, Extra]
    extras = {"z": "<", "a": "", "progress": 40, "none": None, "off": False, "on": True, "nought": 0, "half": 0.5}

    data = encode(Story("j", output_dir="d", version=7), extras)

    assert data.endswith(rb'"output_dir":"d","z":"\u003c","progress":40,"on":true,"half":0.5,"version":7}')


@given(STORIES, st.dictionaries(VALID_TEXT.filter(lambda key: not is_reserved(key)), TEXT | INT64, max_size=4))
def test_extras_change_nothing_for_those_that_do_not_know_them(story: Story, extras: dict[str, str | int]) -> None:
    """A record with extras decodes to the record, and its JSON holds every extra that is not empty."""
    extras.pop("output_dir", None)
    data = encode(story, extras)

    assert story == decode(data, Story)
    assert {key for key, value in extras.items() if value} <= json.loads(data).keys()
    assert (list(json.loads(data))[-1] == "version") == bool(story.version)


def test_a_bare_record_takes_extras_too() -> None:
    """Without any field of its own the extras are the whole object."""
    assert encode(Bare(), {"a": "b"}) == b'{"a":"b"}'
    assert encode(Bare("n"), {"a": "b"}) == b'{"note":"n","a":"b"}'
    assert encode(Bare(), {"a": ""}) == b"{}"


@pytest.mark.parametrize("key", ["state", "State", "ſtate", "job_id", "version", "output_dir"])
def test_an_extra_may_not_pass_for_a_declared_field(key: str) -> None:
    """A reader folds the case of keys, so neither may an extra differ from a field in case alone."""
    with pytest.raises(InvalidValue, match=r"declared one.*path=\$\."):
        encode(Story(), {key: "x"})


@pytest.mark.parametrize("wrong", [[1], {"a": 1}, float("nan"), float("inf"), 2**63, b"x"])
def test_an_extra_must_be_text_or_a_number_that_all_can_read(wrong: Any) -> None:
    """Nesting, NaN and integers beyond 64 bits are refused with their place."""
    with pytest.raises(InvalidValue, match=r"path=\$\.field"):
        encode(Status(), {"field": wrong})


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("attempts", "2"),
        ("attempts", 2.0),
        ("attempts", True),
        ("attempts", 2**63),
        ("title", None),
        ("title", 5),
        ("error", ValueError("x")),
        ("state", 1),
        ("version", "1"),
        ("output_dir", b"d"),
        ("job_id", None),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(field: str, wrong: Any) -> None:
    """What no reader could take is never written."""
    record = Story()
    setattr(record, field, wrong)

    with pytest.raises(InvalidValue, match=rf"path=\$\.{field}"):
        encode(record)


@pytest.mark.parametrize(("field", "wrong"), [("share", float("nan")), ("share", float("inf")), ("progress", 2**63)])
def test_a_service_number_that_json_cannot_hold_is_refused(field: str, wrong: Any) -> None:
    """NaN would become null in silence, and an integer beyond 64 bits is unreadable in Go."""
    with pytest.raises(InvalidValue, match=rf"path=\$\.{field}"):
        encode(Counted(**{field: wrong}))


@pytest.mark.parametrize("record_type", [Story, Counted])
def test_lone_surrogates_are_written_as_the_replacement_character(record_type: type[Status]) -> None:
    """Text that is no Unicode is replaced, never an error (behaviour S6.2), and the record is untouched."""
    record = record_type("j", title="a\ud800b", error="\udfff", attempts=1)

    data = encode(record, {"x": "\udc80"})

    assert '"title":"a\ufffdb","error":"\ufffd","attempts":1' in data.decode()
    assert data.decode().endswith(',"x":"\ufffd"}')
    assert record.title == "a\ud800b"


def test_encode_leaves_the_record_as_it_was() -> None:
    """A time set later is written as text and stays what it was on the record."""
    record = Status("j", state=State.RUNNING)
    record.queued_at = when = cast("str", datetime(2026, 7, 26, 21, tzinfo=TOKYO))

    assert b'"state":"running","queued_at":"2026-07-26T21:00:00+09:00"' in encode(record)
    assert when is record.queued_at


# Decoding.


def test_the_stored_version_is_read() -> None:
    """decode gives the version back, on both ways."""
    assert decode(b'{"job_id":"a","state":"","updated_at":"2026-07-26T12:00:00Z","version":5}').version == 5
    assert decode(b'{ "Version": 5 }').version == 5


def test_bad_bytes_become_one_replacement_character_each() -> None:
    """Go replaces byte by byte, where Python replaces the longest broken part (behaviour S8.6)."""
    assert decode(b'{"title":"a\xe3\x81"}').title == "a\ufffd\ufffd"
    assert decode(b'{"title":"\xed\xa0\x80"}').title == "\ufffd" * 3


@pytest.mark.parametrize("opening", [b'{"x":', b"["])
def test_deep_nesting_is_corrupt_and_not_a_crash(opening: bytes) -> None:
    """100,000 levels are refused like any other unreadable bytes."""
    for data in (opening * 100_000, b'{"state":"running","x":' + opening * 100_000):
        with pytest.raises(Corrupt):
            decode(data)


def test_a_huge_number_in_an_unknown_key_is_skipped() -> None:
    """Unknown keys are skipped, whatever is in them; in a known one the number is too large (behaviour S8.4, S8.5)."""
    assert decode(b'{"x":' + b"9" * 10_000 + b',"state":"running"}').state == "running"
    with pytest.raises(Corrupt, match="attempts"):
        decode(b'{"attempts":' + b"9" * 10_000 + b"}")


def test_a_wrong_value_is_an_error_even_if_a_later_one_is_right() -> None:
    """Duplicates are all looked at, in any case of the key (behaviour S8.3, S8.5)."""
    for data in (b'{"title":1,"title":"a"}', b'{"title":"a","Title":1}', b'{"queued_at":"","queued_at":null}'):
        with pytest.raises(Corrupt):
            decode(data)


def test_corrupt_says_which_job_and_why() -> None:
    """The message names the job and the field, and the cause is kept."""
    with pytest.raises(Corrupt, match=f"job_id={JOB} reason=attempts: .*") as caught:
        decode(b'{"attempts":"2"}', Status, JOB)

    assert isinstance(caught.value.__cause__, ValueError)


def test_service_fields_are_read_as_strictly_as_the_common_ones() -> None:
    """Numbers, flags and nullable text of a subclass come back; another type is Corrupt; null changes nothing."""
    data = b'{"progress":40,"share":1,"paid":true,"owner":"me","OWNER":null}'

    assert Counted(progress=40, share=1.0, paid=True, owner="me") == decode(data, Counted)
    for wrong in (b'{"progress":4.0}', b'{"paid":1}', b'{"owner":5}', b'{"share":"1"}', b'{"share":1e999}'):
        with pytest.raises(Corrupt):
            decode(wrong, Counted)


def test_a_bare_record_may_nest() -> None:
    """A type without the common part is the service's own affair; a missing required field is Corrupt."""

    class Inner(msgspec.Struct):
        names: list[str]

    class Nested(msgspec.Struct):
        inner: Inner
        count: int = 0

    nested = Nested(Inner(["a", "b"]), 3)
    assert nested == decode(encode(nested), Nested)
    assert nested == decode(b'{"COUNT":3,"inner":{"names":["a","b"]}} x', Nested)
    with pytest.raises(Corrupt):
        decode(b"{}", Nested)


# Record types.


def test_a_subclass_declares_its_fields_after_the_common_ones() -> None:
    """Service fields keep the service's own order (behaviour S5.1)."""
    data = encode(Composition(storage_uri="a", recipe_storage_uri="b"))

    assert data.endswith(b',"storage_uri":"a","recipe_storage_uri":"b"}')


def test_a_service_field_with_the_key_of_a_common_one_takes_its_place() -> None:
    """The service's title is written once, and may even be something else (behaviour S5.1)."""

    class Titled(Status):
        title: int = 0  # type: ignore[assignment]  # the point

    record = Titled("j", title=7)
    assert encode(record) == b'{"job_id":"j","state":"","title":7,"updated_at":"0001-01-01T00:00:00Z"}'
    assert record == decode(encode(record), Titled)


class KeywordOnly(Status, kw_only=True):
    """Would write its field after version."""

    output_dir: str = ""


class Frozen(Status, frozen=True):  # type: ignore[misc]  # what is refused
    """Could not be stamped."""


class Tagged(Status, tag=True):
    """Would write a tag first."""


class AsArray(Status, array_like=True):
    """Would be no object."""


class Nesting(Status):
    """Would not be flat."""

    parts: list[str] = msgspec.field(default_factory=list)


class Unkept(Status, omit_defaults=False):
    """Would write empty fields."""


class Redeclared(Status):
    """Would change what the store works with."""

    attempts: str = ""  # type: ignore[assignment]  # what is refused


class Renamed(Status, rename="camel"):
    """Keeps the common keys: only its own fields are renamed."""

    output_dir: str = ""


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (KeywordOnly, "kw_only"),
        (Frozen, "frozen"),
        (Tagged, "tag"),
        (AsArray, "array_like"),
        (Nesting, "flat"),
        (Unkept, "omit_defaults"),
        (Redeclared, "attempts"),
        (dict, "Struct"),
        (Status(), "Struct"),
    ],
)
def test_a_type_that_would_be_written_wrongly_is_refused(wrong: Any, hint: str) -> None:
    """check_type says what to change, and encode and decode refuse the type too (behaviour S15)."""
    with pytest.raises(TypeError, match=hint):
        check_type(wrong)
    with pytest.raises(TypeError):
        decode(b"{}", wrong)


def test_keyword_only_records_are_refused_at_encode() -> None:
    """A record of a refused type cannot be written by another door."""
    with pytest.raises(TypeError, match="kw_only"):
        encode(KeywordOnly())


def test_a_renamed_service_field_is_written_by_its_key() -> None:
    """msgspec's renaming of the service's own fields works both ways."""
    record = Renamed("j", output_dir="d")

    assert encode(record).endswith(b'"outputDir":"d"}')
    assert record == decode(encode(record), Renamed) == decode(b'{"job_id":"j","OUTPUTDIR":"d"}', Renamed)


@pytest.mark.parametrize("state", [*State, "paused", ""])
def test_is_final_is_when_a_job_has_come_to_rest(state: str) -> None:
    """succeeded, failed, canceled and skipped are final, all else is not."""
    assert (state in ("succeeded", "failed", "canceled", "skipped")) == Status(state=state).is_final()
