"""What may be a record type, and what a service's own fields become (behaviour S5.1, S15)."""

from typing import Any

import msgspec
import pytest

from jobevents.status import (
    State,
    Status,
    check_type,
    decode,
    encode,
)
from tests.records import Composition


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
