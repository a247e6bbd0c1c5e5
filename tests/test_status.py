"""The record and its JSON: every vector, and the laws between encode and decode (behaviour S5-S9, S19)."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, timedelta, timezone
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobevents import status
from jobevents.errors import Corrupt
from jobevents.status import (
    State,
    Status,
    carry_over,
    decode,
    encode,
    is_reserved,
)
from jobevents.times import is_writable
from tests.records import TYPES, Bare, Counted, Story, bytes_of, fields_of, record_of
from tests.vectors import vectors

law = settings(deadline=None)  # a busy machine breaks no law
JOB = "c20260726-120000-abcd1234"
TOKYO = timezone(timedelta(hours=9))


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


@law
@given(STORIES | COUNTED | st.builds(Bare, note=VALID_TEXT))
def test_decode_gives_back_what_encode_took(record: msgspec.Struct) -> None:
    """decode(encode(x)) is x, for records with and without service fields and the common part."""
    assert record == decode(encode(record), type(record))


@law
@given(STORIES.filter(lambda story: bool(story.updated_at)))
def test_what_encode_wrote_is_read_the_quick_way(story: Story) -> None:
    """A stamped record never needs the lenient way."""
    assert story == status._read_canonical(encode(story), status._shape(Story))


@law
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


@law
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


@law
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


@law
@given(STORIES, st.dictionaries(VALID_TEXT.filter(lambda key: not is_reserved(key)), TEXT | INT64, max_size=4))
def test_extras_change_nothing_for_those_that_do_not_know_them(story: Story, extras: dict[str, str | int]) -> None:
    """A record with extras decodes to the record, and its JSON holds every extra that is not empty."""
    extras.pop("output_dir", None)
    data = encode(story, extras)

    assert story == decode(data, Story)
    assert {key for key, value in extras.items() if value} <= json.loads(data).keys()
    assert (list(json.loads(data))[-1] == "version") == bool(story.version)
