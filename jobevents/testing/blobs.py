"""What every store of blobs promises, as a pytest class: subclass it and give it the fixture `blobs`."""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from jobevents.blobs import ABSENT, MAX_METADATA_BYTES, MAX_NAME_BYTES, BlobEntry, Blobs
from jobevents.errors import Conflict, InvalidValue, NotFound
from jobevents.testing.blob_races import THREADS, BlobRaces, read_blob

_BAD_NAMES = {
    "empty": "",
    "leading slash": "/a",
    "trailing slash": "a/",
    "empty element": "a//b",
    "dot": "a/./b",
    "dot dot": "../a",
    "nul": "a\0b",
    "newline": "a\nb",
    "lone surrogate": "a\ud800",
    "too long": "é" * (MAX_NAME_BYTES // 2) + "a",
}
_bad_names = pytest.mark.parametrize("name", list(_BAD_NAMES.values()), ids=list(_BAD_NAMES))


class BlobsContract(BlobRaces):
    """The port's behaviour; the fixture must give an empty store to each test."""

    turns = 5  # fewer where a write takes long
    many = 520  # objects of a listing of more than a page: fewer where a page is less

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError("override the fixture `blobs` with an empty store")

    # reading and writing

    def test_get_returns_what_was_put(self, blobs: Blobs) -> None:
        """A blob has the data, generation and metadata of its put."""
        generation = blobs.put("jobs/a/status.json", b'{"state":"queued"}', metadata={"code": "1", "chain": "ff"})

        blob = read_blob(blobs, "jobs/a/status.json")

        assert (b'{"state":"queued"}', generation) == (blob.data, blob.generation)
        assert {"code": "1", "chain": "ff"} == blob.metadata

    def test_get_of_nothing(self, blobs: Blobs) -> None:
        """A name that was never put is NotFound, and the error tells the name."""
        with pytest.raises(NotFound, match="jobs/a"):
            blobs.get("jobs/a")

    def test_put_replaces_all(self, blobs: Blobs) -> None:
        """A put leaves nothing of the one before, neither data nor metadata."""
        blobs.put("a", b"long content", metadata={"old": "1"})

        blobs.put("a", b"short")

        blob = read_blob(blobs, "a")
        assert (b"short", {}) == (blob.data, blob.metadata)

    @pytest.mark.parametrize("size_bytes", [0, 1, 1 << 20], ids=["empty", "1 byte", "1 MiB"])
    def test_sizes(self, blobs: Blobs, size_bytes: int) -> None:
        """Data comes back byte for byte, and a listing tells its size."""
        data = (bytes(range(256)) * 4096)[:size_bytes]

        generation = blobs.put("a", data)

        assert data == read_blob(blobs, "a").data
        assert [BlobEntry("a", generation, size_bytes)] == list(blobs.list(""))

    @pytest.mark.parametrize(
        "name",
        [
            "日本語/ジョブ.json",
            "a b+c%20&d=e?f#g",
            "e\u0301",
            "\U0001f600",
            "a.b/..c/.d",
            "é" * 80,
            "/".join(["x" * 100] * 10),
        ],
    )
    def test_names(self, blobs: Blobs, name: str) -> None:
        """Any Unicode and punctuation in a name comes back as it was given."""
        blobs.put(name, b"1")

        assert b"1" == read_blob(blobs, name).data
        assert [name] == _names(blobs, "")

    @pytest.mark.parametrize(
        "metadata",
        [
            {"title": "作品名 ✓"},
            {"Mixed-Case": "A"},
            {"under_score": "1"},
            {"json": '{"a":["b, c"]}'},
            {"blank": " "},
            {"none": ""},
        ],
    )
    def test_metadata_exact(self, blobs: Blobs, metadata: dict[str, str]) -> None:
        """Metadata comes back as it was given, whatever the text."""
        blobs.put("a", b"1", metadata=metadata)

        assert metadata == read_blob(blobs, "a").metadata

    def test_metadata_limit(self, blobs: Blobs) -> None:
        """Metadata up to the limit is kept; beyond it nothing is written."""
        blobs.put("a", b"1", metadata={"k": "x" * (MAX_METADATA_BYTES - 1)})

        with pytest.raises(InvalidValue, match=f"limit={MAX_METADATA_BYTES}"):
            blobs.put("b", b"1", metadata={"k": "x" * MAX_METADATA_BYTES})

        assert MAX_METADATA_BYTES - 1 == len(read_blob(blobs, "a").metadata["k"])
        assert ["a"] == _names(blobs, "")

    def test_metadata_is_a_copy(self, blobs: Blobs) -> None:
        """Changing the mapping that was given or returned changes nothing stored."""
        given = {"k": "1"}
        blobs.put("a", b"1", metadata=given)

        given["k"] = "2"
        read_blob(blobs, "a").metadata["k"] = "3"

        assert {"k": "1"} == read_blob(blobs, "a").metadata

    def test_stored_at_moves_on(self, blobs: Blobs) -> None:
        """The time stored is aware, UTC, and does not step back from one write to the next."""
        blobs.put("a", b"1")
        first = read_blob(blobs, "a").stored_at
        blobs.put("a", b"2")

        second = read_blob(blobs, "a").stored_at

        assert timedelta(0) == second.utcoffset()
        assert first <= second + timedelta(milliseconds=20)  # a kernel's tick

    @_bad_names
    def test_bad_names(self, blobs: Blobs, name: str) -> None:
        """A name that some store cannot keep is refused by all, for every call."""
        calls: list[Callable[[], object]] = [
            lambda: blobs.get(name),
            lambda: blobs.put(name, b"1"),
            lambda: blobs.delete(name),
        ]

        for call in calls:
            with pytest.raises(InvalidValue):
                call()

        assert [] == _names(blobs, "")

    @pytest.mark.parametrize("prefix", ["../", "/", "a//", "a/./", "a\0", "\ud800"])
    def test_bad_prefixes(self, blobs: Blobs, prefix: str) -> None:
        """A prefix that no name can have is refused at the call, before the first entry is asked for."""
        with pytest.raises(InvalidValue):
            blobs.list(prefix)

    # generations

    def test_generation_changes_with_every_put(self, blobs: Blobs) -> None:
        """The same data put again is another generation."""
        made = [blobs.put("a", b"1") for _ in range(4)]

        assert 4 == len(set(made))

    def test_generation_never_repeats(self, blobs: Blobs) -> None:
        """A generation does not come back after a delete, so an old condition cannot hold by chance."""
        made = []
        for _ in range(4):
            made.append(blobs.put("a", b"1"))
            blobs.delete("a")

        assert 4 == len(set(made))
        assert ABSENT not in made

    def test_if_changed(self, blobs: Blobs) -> None:
        """A read that names the stored generation gets None; one that names another gets the blob."""
        first = blobs.put("a", b"1")
        assert blobs.get("a", if_changed=first) is None

        second = blobs.put("a", b"2")

        changed = blobs.get("a", if_changed=first)
        assert changed is not None
        assert (b"2", second) == (changed.data, changed.generation)

    def test_if_changed_of_nothing(self, blobs: Blobs) -> None:
        """A deleted blob is NotFound, never "unchanged"."""
        generation = blobs.put("a", b"1")
        blobs.delete("a")

        with pytest.raises(NotFound):
            blobs.get("a", if_changed=generation)

    def test_create_only(self, blobs: Blobs) -> None:
        """With ABSENT, a put creates and never replaces."""
        blobs.put("a", b"1", if_generation=ABSENT)

        with pytest.raises(Conflict):
            blobs.put("a", b"2", if_generation=ABSENT)

        assert b"1" == read_blob(blobs, "a").data

    def test_create_again_after_delete(self, blobs: Blobs) -> None:
        """A deleted name can be created again."""
        blobs.put("a", b"1", if_generation=ABSENT)
        blobs.delete("a")

        generation = blobs.put("a", b"2", if_generation=ABSENT)

        assert generation == read_blob(blobs, "a").generation

    def test_put_over_its_generation(self, blobs: Blobs) -> None:
        """A conditional put replaces the generation it names, and no other."""
        first = blobs.put("a", b"1")
        second = blobs.put("a", b"2", if_generation=first)

        with pytest.raises(Conflict):
            blobs.put("a", b"3", if_generation=first)
        with pytest.raises(Conflict):
            blobs.put("a", b"3", if_generation="of another store")

        blob = read_blob(blobs, "a")
        assert (b"2", second) == (blob.data, blob.generation)

    def test_put_over_a_deleted_generation(self, blobs: Blobs) -> None:
        """A conditional put does not bring a deleted blob back."""
        generation = blobs.put("a", b"1")
        blobs.delete("a")

        with pytest.raises(Conflict):
            blobs.put("a", b"2", if_generation=generation)

        assert [] == _names(blobs, "")

    # deleting

    def test_delete(self, blobs: Blobs) -> None:
        """A delete tells whether there was something, and leaves nothing."""
        blobs.put("a/b", b"1")

        assert [True, False] == [blobs.delete("a/b"), blobs.delete("a/b")]
        assert [] == _names(blobs, "")

    def test_delete_its_generation(self, blobs: Blobs) -> None:
        """A conditional delete removes the generation it names, and no other."""
        first = blobs.put("a", b"1")
        second = blobs.put("a", b"2")

        with pytest.raises(Conflict):
            blobs.delete("a", if_generation=first)

        assert b"2" == read_blob(blobs, "a").data
        assert blobs.delete("a", if_generation=second)

    def test_delete_a_generation_that_is_gone(self, blobs: Blobs) -> None:
        """A conditional delete of nothing is False, whatever the condition."""
        generation = blobs.put("a", b"1")
        blobs.delete("a")

        assert not blobs.delete("a", if_generation=generation)
        assert not blobs.delete("a", if_generation=ABSENT)
        assert not blobs.delete("a", if_generation="of another store")

    def test_delete_only_if_absent(self, blobs: Blobs) -> None:
        """A delete on condition of absence is a Conflict when there is something."""
        blobs.put("a", b"1")

        with pytest.raises(Conflict):
            blobs.delete("a", if_generation=ABSENT)

        assert ["a"] == _names(blobs, "")

    def test_siblings_outlive_a_delete(self, blobs: Blobs) -> None:
        """Deleting a blob leaves those beside, above and below its name's path."""
        for name in ("a/b/c", "a/b/d", "a/b-c", "e"):
            blobs.put(name, b"1")

        blobs.delete("a/b/c")

        assert ["a/b-c", "a/b/d", "e"] == _names(blobs, "")

    # listing

    def test_list_is_in_byte_order(self, blobs: Blobs) -> None:
        """Entries come in UTF-8 byte order of the whole name, over all directories."""
        put = ["b", "a/x", "a-b", "a0", "é", "Z", "\uffee", "\U0001f600", "a/x-y/z", "a/x!"]
        for name in put:
            blobs.put(name, b"1")

        assert sorted(put, key=str.encode) == _names(blobs, "")

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            ("", ["a/1", "a/2/x", "ab", "b"]),
            ("a", ["a/1", "a/2/x", "ab"]),
            ("a/", ["a/1", "a/2/x"]),
            ("a/1", ["a/1"]),
            ("a/1/", []),
            ("c", []),
        ],
    )
    def test_list_prefix(self, blobs: Blobs, prefix: str, found: list[str]) -> None:
        """A prefix is text: it need not end where an element does."""
        for name in ("a/1", "a/2/x", "ab", "b"):
            blobs.put(name, b"1")

        assert found == _names(blobs, prefix)

    @pytest.mark.parametrize(
        ("start", "found"),
        [
            ("", "123"),
            ("p/1", "123"),
            ("p/2", "23"),
            ("p/1a", "23"),
            ("p/3", "3"),
            ("p/4", ""),
            ("a", "123"),
            ("z", ""),
        ],
    )
    def test_list_start(self, blobs: Blobs, start: str, found: str) -> None:
        """A listing begins with the name given as start, or the next one."""
        for name in ("o/9", "p/1", "p/2", "p/3", "q/0"):
            blobs.put(name, b"1")

        assert [f"p/{n}" for n in found] == _names(blobs, "p/", start=start)

    def test_list_directories(self, blobs: Blobs) -> None:
        """With a delimiter, a directory comes once, in its place among the blobs, without generation and size."""
        for name in ("jobs/a/1", "jobs/a/2/x", "jobs/a-1", "jobs/b/status.json", "jobs/c", "jobsx/d"):
            blobs.put(name, b"12")
        generations = {entry.name: entry.generation for entry in blobs.list("jobs/")}

        found = list(blobs.list("jobs/", delimiter="/"))

        assert ["jobs/a-1", "jobs/a/", "jobs/b/", "jobs/c"] == [entry.name for entry in found]
        assert [generations["jobs/a-1"], "", "", generations["jobs/c"]] == [entry.generation for entry in found]
        assert [2, 0, 0, 2] == [entry.size_bytes for entry in found]

    def test_list_directories_of_half_a_name(self, blobs: Blobs) -> None:
        """The delimiter counts after the prefix only, also when that ends within an element."""
        for name in ("jobs/a/1", "jobs/ab/1", "jobs/b/1"):
            blobs.put(name, b"1")

        assert ["jobs/a/", "jobs/ab/"] == _names(blobs, "jobs/a", delimiter="/")
        assert ["jobs/"] == _names(blobs, "jobs", delimiter="/")

    def test_list_directories_from_start(self, blobs: Blobs) -> None:
        """A listing of directories goes on from the directory given as start."""
        for name in ("jobs/a/1", "jobs/b/1", "jobs/c/1"):
            blobs.put(name, b"1")

        assert ["jobs/b/", "jobs/c/"] == _names(blobs, "jobs/", start="jobs/b/", delimiter="/")

    def test_list_of_many(self, blobs: Blobs) -> None:
        """A listing of more entries than a page is whole, without doubles."""
        put = [f"many/{n:04d}" for n in range(self.many)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda name: blobs.put(name, b""), put))

        assert put == _names(blobs, "many/")

    def test_list_goes_on_while_being_changed(self, blobs: Blobs) -> None:
        """What is there before and after a listing is in it, though others are deleted and put meanwhile."""
        for name in ("a/1", "b/1", "c/1"):
            blobs.put(name, b"1")

        listing = blobs.list("")
        found = [next(listing).name]
        blobs.delete("b/1")
        blobs.put("c/0", b"1")
        found += [entry.name for entry in listing]

        assert {"a/1", "c/1"} <= set(found)


def _names(blobs: Blobs, prefix: str, *, start: str = "", delimiter: str = "") -> list[str]:
    return [entry.name for entry in blobs.list(prefix, start=start, delimiter=delimiter)]
