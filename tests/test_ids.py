"""Job ids: the data vectors, the laws, and what no id may get away with (behaviour S1-S4)."""

import base64
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents import ids
from jobevents.errors import InvalidJobId, InvalidValue
from tests.vectors import vectors

law = settings(deadline=None)  # a busy machine breaks no law
ODD_TEXT = st.text() | st.text(alphabet="aZ09-_/. \n\t\x1c\x85\u3000\u200b\ufeff\\%\0Ａ１ſK", max_size=150)
DATED = st.text(alphabet="0123456789-_/cx", max_size=40) | st.from_regex(
    r"[a-z_/]{0,3}-?(19|20|99)[0-9]{2}(0[0-9]|1[0-3])[0-3][0-9]-?[0-2][0-9][0-6][0-9][0-6][0-9](-[a-f0-9]*)?",
    fullmatch=True,
)


def given_text(vector: dict[str, Any]) -> str:
    """Return a vector's id as text: bytes that are not UTF-8 become lone surrogates, as in file names and URLs."""
    if "id_b64" in vector["in"]:
        return base64.b64decode(vector["in"]["id_b64"]).decode("utf-8", "surrogateescape")
    return str(vector["in"]["id"])


@pytest.mark.parametrize("vector", vectors("sanitize"))
def test_sanitize_gives_what_the_go_code_gives(vector: dict[str, Any]) -> None:
    """Every vector of sanitize holds: the same id, or a refusal (behaviour S2)."""
    text, out = given_text(vector), vector["out"]

    if out["ok"]:
        assert out["value"] == ids.sanitize(text)
    else:
        with pytest.raises(InvalidJobId, match="invalid"):
            ids.sanitize(text)


@pytest.mark.parametrize("vector", vectors("validate"))
def test_validate_gives_what_the_go_code_gives(vector: dict[str, Any]) -> None:
    """Every vector of validate holds, the word of the refusal included (behaviour S1)."""
    text, out = given_text(vector), vector["out"]

    assert out["is_valid"] == ids.is_valid(text)
    if out["ok"]:
        ids.validate(text)
    else:
        with pytest.raises(InvalidJobId, match=out["error"]):
            ids.validate(text)


@pytest.mark.parametrize("vector", vectors("sort_key"))
def test_sort_key_and_created_at_give_what_the_go_code_gives(vector: dict[str, Any]) -> None:
    """Every vector of sort_key holds, for the key and for the instant (behaviour S4)."""
    text, out = given_text(vector), vector["out"]

    assert out["key"] == ids.sort_key(text)
    if out["created_at"]:
        assert datetime.fromisoformat(out["created_at"]) == ids.created_at(text)
    else:
        with pytest.raises(ids.NoTimestamp):
            ids.created_at(text)


@pytest.mark.parametrize("vector", vectors("new_id"))
def test_new_id_gives_what_the_go_code_gives(vector: dict[str, Any]) -> None:
    """Every vector of new_id holds but for the random part (behaviour S3)."""
    now, out = datetime.fromisoformat(vector["in"]["now"]), vector["out"]

    if out["ok"]:
        made = ids.new_id(vector["in"]["prefix"], now)
        assert out["length"] == len(made)
        assert re.fullmatch(re.escape(out["stem"]) + "[0-9a-f]{12}", made)
    else:
        with pytest.raises(InvalidJobId):
            ids.new_id(vector["in"]["prefix"], now)


@pytest.mark.parametrize("character", ["/", "\\", "+", "%", "?", "#", "&", " ", ":", ";", "'", '"', "\n", "\0", "."])
def test_dat_11_special_characters_in_an_id_are_refused_everywhere(character: str) -> None:
    """A character that means something in a URL, a path or a shell is refused by validate and by sanitize."""
    text = f"a{character}b{character}-"

    assert not ids.is_valid(text)
    with pytest.raises(InvalidJobId):
        ids.validate(text)
    with pytest.raises(InvalidJobId):
        ids.sanitize(text)


@pytest.mark.parametrize("text", [".", "..", "%2e%2e", "a/..", "..\\a", "job\n", "..%2fa"])
def test_dat_11_ways_out_of_a_directory_are_no_ids(text: str) -> None:
    """Path elements that lead elsewhere are never valid, in any disguise."""
    assert not ids.is_valid(text)


@law
@given(ODD_TEXT)
def test_what_sanitize_yields_is_an_id_and_stays_the_same(text: str) -> None:
    """Sanitize is idempotent, and never yields what validate refuses."""
    try:
        cleaned = ids.sanitize(text)
    except InvalidJobId:
        return

    ids.validate(cleaned)
    assert cleaned == ids.sanitize(cleaned)
    assert cleaned in text


@law
@given(ODD_TEXT)
def test_sanitize_leaves_an_id_as_it_is(text: str) -> None:
    """What validate accepts is its own cleaned form."""
    if ids.is_valid(text):
        assert text == ids.sanitize(text)


def plain_sort_key(text: str) -> str:
    """Say behaviour S4 again, slowly and without a regular expression."""
    elements = text.split("-")
    for position, element in enumerate(elements):
        digits = element.lstrip("".join({c for c in element if c not in "0123456789"}))
        following = elements[position + 1] if position + 1 < len(elements) else ""
        for candidate in (digits, digits + following if len(digits) == 8 and len(following) == 6 else ""):
            if len(candidate) == 14 and all(c in "0123456789" for c in candidate) and candidate >= "2000":
                try:
                    datetime.strptime(candidate, "%Y%m%d%H%M%S")
                except ValueError:
                    continue
                return candidate
    return ""


@law
@given(DATED | ODD_TEXT)
def test_the_short_way_of_sort_key_agrees_with_the_rule(text: str) -> None:
    """The pattern for usual ids never differs from the rule told element by element (behaviour S4)."""
    assert plain_sort_key(text) == ids.sort_key(text)


@law
@given(st.text(max_size=90), st.datetimes(datetime(2000, 1, 2), datetime(9999, 12, 30), timezones=st.timezones()))
def test_a_new_id_is_valid_and_tells_its_time(prefix: str, now: datetime) -> None:
    """Any prefix makes a valid id, of which created_at gives the second it was made, in UTC."""
    made = ids.new_id(prefix, now)

    ids.validate(made)
    if not any(character.isdigit() for character in prefix):
        assert now.astimezone(UTC).replace(microsecond=0) == ids.created_at(made)
        assert UTC is ids.created_at(made).tzinfo


def test_a_new_id_uses_the_random_bytes_it_is_given() -> None:
    """The last part is the six bytes of `random` in hexadecimal, and the time is turned to UTC."""
    now = datetime(2026, 8, 3, 11, 41, 6, tzinfo=timezone(timedelta(hours=9)))

    made = ids.new_id("\u212aİx", now, random=lambda count: bytes(range(count)))

    expected = "kix-20260803-024106-000102030405"
    assert expected == made


def test_ids_in_turn_sort_by_their_time_within_a_second() -> None:
    """A tick of 15 us counts; within it, who comes first: no two are the same where a clock stands still."""
    at = datetime(2026, 8, 3, 9, 30, 59, tzinfo=UTC)
    moments = [at + timedelta(microseconds=us) for us in (0, 16, 500_000, 999_984, 999_999, 1_000_000)]
    made = [ids.new_id("job", moment, ids.in_turn(moment)) for moment in moments]
    assert made[:4] == sorted(made[:4])
    assert made[4] < made[5]
    assert "job-20260803-093059-0000" == made[0][:24]
    assert "ffff" == made[4][20:24]
    within = [ids.new_id("job", at, ids.in_turn(at)) for _ in range(1000)]
    assert sorted(set(within)) == within


def test_two_new_ids_differ() -> None:
    """Ids made in the same second are told apart by the operating system's random bytes."""
    made = [ids.new_id("job") for _ in range(1000)]

    assert len(made) == len(set(made))


def test_a_time_without_zone_makes_no_id() -> None:
    """A naive time means two things and is refused with a remedy."""
    with pytest.raises(InvalidValue, match="time zone"):
        ids.new_id("job", datetime(2026, 8, 3))


def test_an_id_without_time_is_not_called_invalid() -> None:
    """No timestamp and no id are different errors: the former's job is listed all the same."""
    with pytest.raises(ids.NoTimestamp) as caught:
        ids.created_at("legacy")

    assert not isinstance(caught.value, InvalidJobId)
    assert "id='legacy'" in str(caught.value)


@pytest.mark.parametrize("text", [None, 7, b"abc"])
def test_what_is_not_text_is_no_id(text: Any) -> None:
    """A missing or mistyped id is refused like any other, not by an accident further on."""
    assert not ids.is_valid(text)
    for check in (ids.sanitize, ids.validate):
        with pytest.raises(InvalidJobId, match=type(text).__name__):
            check(text)


def test_a_refusal_repeats_the_text_escaped_and_cut() -> None:
    """The message stays one short line of ASCII whatever the id was, and says what an id is."""
    with pytest.raises(InvalidJobId) as caught:
        ids.sanitize("é\nERROR forged" + "x" * 100_000)

    message = str(caught.value)
    assert message.isascii()
    assert "\n" not in message
    assert len(message) < 300
    assert "letter or digit first" in message
