"""The ids of the jobs that have a directory (behaviour S27)."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents import ids
from jobevents.blobs import BlobEntry, MemoryBlobs
from jobevents.errors import JobEventsError, Misconfigured, PermissionDenied, Unavailable
from projections.joblist import collect
from tests.vectors import vectors


class Shelf:
    """A listing of given names that notes what was asked of it, and may break after them."""

    def __init__(self, names: list[str], error: Exception | None = None) -> None:
        self.names = names
        self.error = error
        self.listed: list[tuple[str, str]] = []

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        self.listed.append((prefix, delimiter))
        yield from (BlobEntry(name=name, generation="", size_bytes=0) for name in self.names)
        if self.error:
            raise self.error


@pytest.mark.parametrize("vector", [v for v in vectors("collect") if v.values[0]["out"]["ok"]])
def test_collects_as_the_kit_does(vector: dict[str, Any]) -> None:
    """The kit's ids are found, in its order, under the prefix that it lists."""
    asked, expected = vector["in"], vector["out"]
    shelf = Shelf(asked["paths"])

    found = collect(shelf, asked["prefix"], valid_ids_only=asked.get("valid_only", False))

    assert (expected["ids"], [(expected["listed_prefix"], "/")]) == (found, shelf.listed)


@pytest.mark.parametrize("vector", [v for v in vectors("collect") if not v.values[0]["out"]["ok"]])
def test_refuses_what_the_kit_refuses(vector: dict[str, Any]) -> None:
    """What the kit does not list is refused before anything is listed."""
    shelf = Shelf(vector["in"]["paths"])

    with pytest.raises(Misconfigured):
        collect(shelf, vector["in"]["prefix"])
    assert [] == shelf.listed


@pytest.mark.parametrize("prefix", ["", "/", " // ", "\u2003/"])
def test_a_prefix_of_nothing_is_refused(prefix: str) -> None:
    """A prefix of white space and slashes is no prefix."""
    with pytest.raises(Misconfigured, match="without a prefix"):
        collect(Shelf([]), prefix)


def test_a_missing_store_is_refused() -> None:
    """Without a blob store there is nothing to list."""
    with pytest.raises(Misconfigured, match="without a blob store prefix='jobs'"):
        collect(None, "jobs")


@pytest.mark.parametrize("prefix", ["jobs", "jobs/", " jobs// ", "\u00a0jobs\n"])
def test_the_prefix_is_cleaned(prefix: str) -> None:
    """White space around a prefix and slashes at its end make no difference."""
    shelf = Shelf(["jobs/a/"])

    collect(shelf, prefix)

    assert [("jobs/", "/")] == shelf.listed


def test_what_the_kit_does_not_take_for_white_space_stays() -> None:
    """A separator that only Python strips is a part of the prefix."""
    shelf = Shelf([])

    collect(shelf, "jobs\x1f")

    assert [("jobs\x1f/", "/")] == shelf.listed


@pytest.mark.parametrize("name", ["jobs/", "jobs//", "jobs/./", "jobs/a", "jobs/a/status.json"])
def test_what_is_no_job_directory_is_skipped(name: str) -> None:
    """Objects, the marker of the prefix itself and directories without a name are no jobs."""
    assert [] == collect(Shelf([name]), "jobs")


def test_filters_are_all_to_be_passed() -> None:
    """With both filters a name must be an id and be wanted."""
    shelf = Shelf(["jobs/a/", "jobs/-a/", "jobs/b/"])

    assert ["a"] == collect(shelf, "jobs", keep=lambda name: "a" in name, valid_ids_only=True)


def test_lists_a_real_store() -> None:
    """Directories of a Blobs are found with and without a status file, single objects are not."""
    blobs = MemoryBlobs()
    for name in ("jobs/b/status.json", "jobs/a/result.wav", "jobs/a/status.json", "jobs/notes.txt", "other/c/x"):
        blobs.put(name, b"")

    assert ["a", "b"] == collect(blobs, "jobs")


@pytest.mark.parametrize("kind", [Unavailable, PermissionDenied])
def test_an_error_of_the_listing_names_the_prefix(kind: type[JobEventsError]) -> None:
    """A listing that breaks half-way keeps its kind and cause, and says what was listed."""
    cause = kind("503 backend error")

    with pytest.raises(kind, match="prefix=jobs/: 503 backend error") as caught:
        collect(Shelf(["jobs/a/"], cause), "jobs")
    assert cause is caught.value.__cause__


def test_an_error_of_the_filter_is_the_caller_s() -> None:
    """An error that the caller's own filter raises is passed on as it is."""
    mine = Unavailable("my own")

    def keep(_: str) -> bool:
        raise mine

    with pytest.raises(Unavailable) as caught:
        collect(Shelf(["jobs/a/"]), "jobs", keep=keep)
    assert mine is caught.value


@settings(deadline=None)
@given(st.lists(st.text("abAB09_-", min_size=1, max_size=5)))
def test_each_name_once_in_the_order_of_the_store(names: list[str]) -> None:
    """Every directory is named once, where it came first; those that are no ids can be left out."""
    shelf = Shelf([f"jobs/{name}/" for name in names])
    once = list(dict.fromkeys(names))

    assert once == collect(shelf, "jobs")
    assert [name for name in once if ids.is_valid(name)] == collect(shelf, "jobs", valid_ids_only=True)
