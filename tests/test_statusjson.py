"""The JSON of a record beyond the vectors: what is written, refused and read (behaviour S5-S8)."""

from datetime import datetime, timedelta, timezone
from typing import Any, cast

import msgspec
import pytest

from jobevents.errors import Corrupt, InvalidValue
from jobevents.status import (
    Extra,
    State,
    Status,
    decode,
    encode,
)
from tests.records import Bare, Counted, Story

JOB = "c20260726-120000-abcd1234"
TOKYO = timezone(timedelta(hours=9))


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
