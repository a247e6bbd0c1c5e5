"""Blobs in plain files: beside other programs, between processes, after kills."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from jobevents import files, sidecar
from jobevents.blobs import ABSENT, Blob, FileBlobs
from jobevents.errors import Conflict, InvalidValue, NotFound, PermissionDenied, Unavailable

NAME = "jobs/c20260726-120000-abcd1234/status.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def blobs(root: Path) -> FileBlobs:
    return FileBlobs(root)


def _read(blobs: FileBlobs, name: str = NAME) -> Blob:
    blob = blobs.get(name)
    assert blob is not None
    return blob


def _names(blobs: FileBlobs, prefix: str = "", delimiter: str = "") -> list[str]:
    return [entry.name for entry in blobs.list(prefix, delimiter=delimiter)]


# who may read it


def test_a_directory_made_here_is_its_owners_alone(blobs: FileBlobs, root: Path) -> None:
    """Whatever the umask: statuses hold what jobs were asked for."""
    blobs.put(NAME, b"{}")

    assert 0o700 == root.stat().st_mode & 0o777


def test_a_directory_that_is_there_stays_as_it_is(blobs: FileBlobs, root: Path) -> None:
    """Who wants others to read makes it for them."""
    root.mkdir(mode=0o755)
    root.chmod(0o755)

    blobs.put(NAME, b"{}")

    assert 0o755 == root.stat().st_mode & 0o777
    assert 0o777 & ~_umask() == (root / "jobs").stat().st_mode & 0o777


@pytest.mark.parametrize("link", ["jobs", NAME.rpartition("/")[0]])
def test_a_link_out_of_the_root_is_not_followed(blobs: FileBlobs, root: Path, tmp_path: Path, link: str) -> None:
    """A directory that somebody linked to another place: nothing is read, written or removed there, and it is said."""
    outside = tmp_path / "outside" / NAME.split("/")[1]
    outside.mkdir(parents=True)
    (outside / "status.json").write_text("theirs")
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(outside if "/" in link else outside.parent, target_is_directory=True)

    for call in (blobs.get, blobs.delete, lambda name: blobs.put(name, b"ours")):
        with pytest.raises(PermissionDenied, match="symbolic link"):
            call(NAME)

    assert [] == _names(blobs)
    assert "theirs" == (outside / "status.json").read_text()


# beside other programs


def test_file_is_plain(blobs: FileBlobs, root: Path) -> None:
    """The file holds the data and nothing else, and the umask says who may read it."""
    blobs.put(NAME, b'{"state":"queued"}', metadata={"code": "1"})

    assert b'{"state":"queued"}' == (root / NAME).read_bytes()
    assert 0o666 & ~_umask() == (root / NAME).stat().st_mode & 0o777


def _overwrite_in_place(path: Path) -> None:
    path.write_bytes(b"9")


def _replace_by_rename(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"9")
    other.replace(path)


def _touch(path: Path) -> None:
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize("change", [_overwrite_in_place, _replace_by_rename, _touch])
def test_foreign_overwrite(blobs: FileBlobs, root: Path, change: Callable[[Path], None]) -> None:
    """A write by another program is another generation without metadata, at once and also of the same bytes."""
    before = blobs.put(NAME, b"1", metadata={"code": "1"})

    change(root / NAME)

    blob = _read(blobs)
    assert ((root / NAME).read_bytes(), {}) == (blob.data, blob.metadata)
    assert before != blob.generation
    assert [blob.generation] == [entry.generation for entry in blobs.list("")]
    with pytest.raises(Conflict):
        blobs.put(NAME, b"2", if_generation=before)


def test_foreign_file_is_an_object(blobs: FileBlobs, root: Path) -> None:
    """What another program wrote can be listed, replaced by its generation, and deleted by it."""
    (root / NAME).parent.mkdir(parents=True)
    (root / NAME).write_bytes(b"kit")
    with pytest.raises(Conflict):
        blobs.put(NAME, b"1", if_generation=ABSENT)

    ours = blobs.put(NAME, b"2", if_generation=_read(blobs).generation)
    (root / NAME).write_bytes(b"kit again")

    assert ours != _read(blobs).generation
    assert blobs.delete(NAME, if_generation=_read(blobs).generation)
    assert [] == _names(blobs)


def test_two_foreign_writes_in_one_tick(blobs: FileBlobs, root: Path) -> None:
    """Two writes that share file, size and time are told apart by their content."""
    path = root / "a"
    root.mkdir()
    path.write_bytes(b"1")
    stamp = path.stat()
    first = _read(blobs, "a").generation
    path.write_bytes(b"2")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    assert first != _read(blobs, "a").generation


def test_restored_copy(blobs: FileBlobs, root: Path, tmp_path: Path) -> None:
    """A directory copied with its times keeps generations and metadata."""
    generation = blobs.put(NAME, b"1", metadata={"code": "1"})

    shutil.copytree(root, tmp_path / "copy")

    blob = _read(FileBlobs(tmp_path / "copy"))
    assert (b"1", generation, {"code": "1"}) == (blob.data, blob.generation, blob.metadata)


def test_odd_files_are_not_listed(blobs: FileBlobs, root: Path) -> None:
    """Links to directories, names that are no UTF-8 and empty directories are no objects."""
    blobs.put("a/b", b"1")
    (root / "empty" / "below").mkdir(parents=True)
    (root / "loop").symlink_to(root, target_is_directory=True)
    if sys.platform == "linux":
        Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"1")

    assert ["a/b"] == _names(blobs)
    assert ["a/"] == _names(blobs, delimiter="/")


def test_reserved_names(blobs: FileBlobs) -> None:
    """The names of records, locks and unfinished writes cannot be objects, and are not listed."""
    blobs.put("a", b"1")

    for name in (".blobs", ".blobs/locks/00", ".a.blob", "x/.a.blob/y", "n" * 241):
        with pytest.raises(InvalidValue):
            blobs.put(name, b"1")

    assert ["a"] == _names(blobs)


def test_name_that_is_a_directory(blobs: FileBlobs) -> None:
    """A name that is file and directory at once is refused, both ways, and nothing is lost."""
    blobs.put("a/b", b"1")
    blobs.put("c", b"2")

    with pytest.raises(InvalidValue, match="below"):
        blobs.put("a", b"3")
    with pytest.raises(InvalidValue, match="directory"):
        blobs.put("c/d", b"3")
    for absent in ("a", "c/d"):
        with pytest.raises(NotFound):
            blobs.get(absent)
        assert not blobs.delete(absent)

    assert [b"1", b"2"] == [_read(blobs, name).data for name in _names(blobs)]


def test_other_spelling() -> None:
    """Where the file system folds case, a name spelled otherwise than a stored one is found out, at any depth."""
    root = Path(__file__).parent

    def exists(path: Path) -> bool:
        return path.name.lower() in {entry.name.lower() for entry in path.parent.iterdir()}

    assert "" == files.other_spelling(root, Path(__file__).name, exists=exists)
    assert "" == files.other_spelling(root, "nothing/of/this", exists=exists)
    assert "TEST_FILE_BLOBS.PY" == files.other_spelling(root, "TEST_FILE_BLOBS.PY", exists=exists)
    assert "Tests" == files.other_spelling(root.parent, "Tests/x", exists=exists)


def test_refused_by_the_system() -> None:
    """A file that may not be touched is PermissionDenied, never NotFound."""
    for doing in ("read", "write", "delete", "list"):
        with pytest.raises(PermissionDenied, match="name='a'"), files.os_errors(doing, "a"):
            raise PermissionError(13, "Permission denied")


def test_full_disk() -> None:
    """A full disk is Unavailable: free some space and try again."""
    with pytest.raises(Unavailable, match="No space left"), files.os_errors("write", "a"):
        raise OSError(28, "No space left on device")


# after kills


def test_killed_between_record_and_file(blobs: FileBlobs, root: Path) -> None:
    """A writer that died after its record and before its file has written nothing."""
    generation = blobs.put(NAME, b"1", metadata={"n": "1"})
    never = sidecar.Record("never", 1, 1, "", "", "", {"n": "2"})

    sidecar.write_record(root / NAME, never, root / ".blobs" / "unfinished" / "x")

    blob = _read(blobs)
    assert (b"1", generation, {"n": "1"}) == (blob.data, blob.generation, blob.metadata)
    assert {"n": "3"} == _read_after(blobs, blobs.put(NAME, b"3", if_generation=generation, metadata={"n": "3"}))


def test_unreadable_record(blobs: FileBlobs, root: Path) -> None:
    """A record that was damaged loses the metadata, never the data; the next write repairs it."""
    before = blobs.put(NAME, b"1", metadata={"n": "1"})
    record = (root / NAME).with_name(".status.json.blob")
    assert record.exists()
    record.write_bytes(b'{"records":[{')

    damaged = _read(blobs)

    assert (b"1", {}) == (damaged.data, damaged.metadata)
    assert before != damaged.generation
    assert {"n": "2"} == _read_after(
        blobs, blobs.put(NAME, b"2", if_generation=damaged.generation, metadata={"n": "2"})
    )


def test_leftovers_are_cleaned(blobs: FileBlobs, root: Path) -> None:
    """Unfinished writes are never listed, and those of an hour ago are removed by a later write."""
    blobs.put("a", b"1")
    unfinished = root / ".blobs" / "unfinished"
    for name, age_s in (("old", 4000), ("young", 60)):
        (unfinished / name).write_bytes(b"x")
        now = (unfinished / name).stat().st_mtime
        os.utime(unfinished / name, (now, now - age_s))

    FileBlobs(root).put("b", b"1")

    assert ["a", "b"] == _names(blobs)
    assert ["young"] == [left.name for left in unfinished.iterdir()]


def test_nothing_is_left_behind(blobs: FileBlobs, root: Path) -> None:
    """Writes, refused writes and deletes leave neither files nor directories."""
    for n in range(20):
        blobs.put(f"jobs/{n}/status.json", b"1")
        with pytest.raises(Conflict):
            blobs.put(f"jobs/{n}/status.json", b"1", if_generation=ABSENT)
        blobs.delete(f"jobs/{n}/status.json")

    assert [".blobs"] == [entry.name for entry in root.iterdir()]
    assert [] == list((root / ".blobs" / "unfinished").iterdir())


def test_lock_files_are_bounded(tmp_path: Path) -> None:
    """However many names are locked, there are 256 lock files at most."""
    locks = files.Locks(tmp_path / "locks")

    for n in range(2000):
        with locks.hold(f"jobs/{n}"):
            pass

    assert 256 == len(list((tmp_path / "locks").iterdir()))


def test_empty_directory_of_a_killed_delete(blobs: FileBlobs, root: Path) -> None:
    """An empty directory is not in the way of a blob of its name."""
    (root / "a").mkdir(parents=True)

    blobs.put("a", b"1")

    assert b"1" == _read(blobs, "a").data


@pytest.mark.parametrize("gone", ["", ".blobs", ".blobs/locks", ".blobs/unfinished", "jobs"])
def test_removed_directories(blobs: FileBlobs, root: Path, gone: str) -> None:
    """Directories removed by somebody are made again by the next write."""
    blobs.put(NAME, b"1")
    shutil.rmtree(root / gone)

    blobs.put(NAME, b"2")

    assert b"2" == _read(blobs).data


def test_deletes_beside_writes(blobs: FileBlobs) -> None:
    """A write into a directory that another thread's delete removes at that moment succeeds all the same."""

    def churn(name: str) -> None:
        for _ in range(60):
            blobs.put(name, b"1")
            blobs.delete(name)

    threads = [Thread(target=churn, args=(f"a/b/{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == _names(blobs)


def test_lock_held_too_long(tmp_path: Path) -> None:
    """A lock that is not given back in time is a TimeoutError, which the store makes Unavailable."""
    locks = files.Locks(tmp_path / "locks", deadline_s=0.0)

    with locks.hold("a"), pytest.raises(Unavailable, match="lock"), files.os_errors("write", "a"), locks.hold("a"):
        pass


def test_spellings_share_a_lock(tmp_path: Path) -> None:
    """Names that a file system may take for one are locked as one."""
    locks = files.Locks(tmp_path / "locks", deadline_s=0.0)

    for other in ("JOBS/É", "jobs/e\u0301"):
        with locks.hold("jobs/é"), pytest.raises(TimeoutError), locks.hold(other):
            pass


# between processes

_COUNT = """
import sys
from jobevents.blobs import FileBlobs
from jobevents.errors import Conflict
blobs, left = FileBlobs(sys.argv[1]), 200
while left:
    blob = blobs.get("count")
    assert blob.data.decode() == blob.metadata["n"]
    n = str(int(blob.data) + 1)
    try:
        blobs.put("count", n.encode(), if_generation=blob.generation, metadata={"n": n})
        left -= 1
    except Conflict:
        pass
"""


@pytest.mark.slow
def test_four_processes_lose_no_increment(blobs: FileBlobs, root: Path) -> None:
    """Four processes that count by compare and swap, 200 times each, lose nothing."""
    blobs.put("count", b"0", metadata={"n": "0"})

    counting = [subprocess.Popen([sys.executable, "-c", _COUNT, str(root)]) for _ in range(4)]

    assert [0, 0, 0, 0] == [process.wait(120) for process in counting]
    assert b"800" == _read(blobs, "count").data


_WRITE = """
import sys
from jobevents.blobs import FileBlobs
blobs, name = FileBlobs(sys.argv[1]), sys.argv[2]
for n in range(1_000_000):
    status = b'{"job_id":"c20260726-120000-abcd1234","command":"generate","state":"running","title":"%s",' \
        b'"attempts":%d,"updated_at":"2026-07-26T12:00:31Z"}' % (b"x" * (n * 997 % 20_000), n)
    blobs.put(name, status, content_type="application/json; charset=utf-8", cache_control="no-store",
        metadata={"attempts": str(n)})
"""


@pytest.mark.slow
def test_dat_08_half_written_status_file(blobs: FileBlobs, root: Path) -> None:
    """A poller meets whole status files only, while their writer is killed again and again at random."""
    rng = random.Random(8)
    path = root / NAME
    blobs.put(NAME, b'{"attempts":0}', metadata={"attempts": "0"})

    for _ in range(6):
        writer = subprocess.Popen([sys.executable, "-c", _WRITE, str(root), NAME])
        before = blobs.put(NAME, b'{"attempts":-1}', metadata={"attempts": "-1"})
        while _read(blobs).generation == before:  # until the writer is at work
            assert writer.poll() is None
        seen, enough = set[int](), rng.randrange(10, 40)
        while len(seen) < enough:
            assert writer.poll() is None
            seen.add(json.loads(path.read_bytes())["attempts"])  # as the kit reads it
            blob = _read(blobs)
            assert blob.metadata == {"attempts": str(json.loads(blob.data)["attempts"])}
        writer.send_signal(signal.SIGKILL)
        writer.wait()

    blobs.put(NAME, b'{"attempts":1000000}')
    assert b'{"attempts":1000000}' == path.read_bytes()
    assert [NAME] == _names(blobs)


@pytest.mark.parametrize("content", [b"", b'{"state":"succ', b"\0\xff garbage"], ids=["empty", "cut", "garbage"])
def test_dat_08_damaged_status_file(blobs: FileBlobs, root: Path, content: bytes) -> None:
    """A damaged file is read as it is, with a generation of its own, and the next write replaces it."""
    (root / NAME).parent.mkdir(parents=True)
    (root / NAME).write_bytes(content)

    found = _read(blobs)
    blobs.put(NAME, b'{"state":"queued"}', if_generation=found.generation)

    assert content == found.data
    assert b'{"state":"queued"}' == _read(blobs).data


def test_reader_without_a_store(root: Path) -> None:
    """Reading where nothing was ever written finds nothing, and makes nothing."""
    blobs = FileBlobs(root)

    with pytest.raises(NotFound):
        blobs.get("a")
    assert [] == _names(blobs)
    assert not root.exists()


def _read_after(blobs: FileBlobs, generation: str) -> dict[str, str]:
    blob = _read(blobs)
    assert generation == blob.generation
    return blob.metadata


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.skipif(os.name == "nt", reason="pipes and links of POSIX")
def test_what_is_no_plain_file_is_not_there(tmp_path: Path) -> None:
    """A pipe would be waited at for ever, a device read for ever, and a link in a circle ended every listing."""
    blobs = FileBlobs(tmp_path)
    blobs.put("a/plain", b"1")
    os.mkfifo(tmp_path / "a" / "pipe")
    os.mkfifo(tmp_path / "a" / ".plain.blob.pipe")
    (tmp_path / "a" / ".plain.blob.pipe").replace(tmp_path / "a" / ".plain.blob")
    (tmp_path / "a" / "device").symlink_to("/dev/zero")
    (tmp_path / "a" / "circle").symlink_to(tmp_path / "a" / "circle")

    for name in ("a/pipe", "a/device"):
        with pytest.raises(NotFound):
            blobs.get(name)
    blobs.put("a/pipe", b"2", if_generation=ABSENT)
    found = blobs.get("a/plain")

    assert ["a/pipe", "a/plain"] == [entry.name for entry in blobs.list("a/")]
    assert found is not None
    assert b"1" == found.data
