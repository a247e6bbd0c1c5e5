"""The command line on a store that is not there, or that cannot be used: what is said, and that nothing is made."""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobevents import Registry
from tests.cli import READING, WRITING, CommandLine, commands
from tests.cli import jobevents as jobevents  # a fixture

REGISTRY = Registry()
HERE = "tests.test_cli_stores:REGISTRY"

UNTOLD = {  # commands that no table above has, as they would be called
    "submit": ("render",), "import": (".",), "run": (HERE,), "schedules": (HERE,),
    "queues": (), "pause": ("--queue", "mix"), "resume": ("--queue", "mix"), "tail": (), "purge": (), "serve": (),
    "erase": ("song-1",), "archive": (), "why": ("song-1",), "replay": (), "diff": ("song-1", "song-2"), "verify": (),
    "export": ("all.jsonl",), "capture": ("a.jev", "--from=-1h"), "sql": ("select 1",),
    "parked show": ("song-1",), "parked requeue": ("song-1",), "parked discard": ("song-1",),
}  # fmt: skip
WITHOUT_A_LOG = ("demo", "token", "open", "dev-cloud", "schema", "migrate")
ALL = READING + WRITING + tuple((*name.split(), *args) for name, args in UNTOLD.items())


def test_all_commands_are_tried(jobevents: CommandLine) -> None:
    """What the tables above do not have is a command that opens no log, or makes one."""
    known = {" ".join(args[:2]) for args in ALL} | {args[0] for args in ALL}

    assert set() == {
        name for name in commands() if name not in known and not (name == "parked" or name in WITHOUT_A_LOG)
    }


@pytest.mark.parametrize(
    ("args", "url"),
    [(args, "sqlite:///typo/jobs.db") for args in ALL]
    + [(args, "file://{here}/typo") for args in (("list",), ("verify",), ("project", "--once"), ("submit", "render"))],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistyped_path_makes_no_file(jobevents: CommandLine, tmp_path: Path, args: tuple[str, ...], url: str) -> None:
    """Every command that was not told to make a log says that there is none, how one is made, and leaves nothing behind."""
    told = jobevents(*args, "--url", url.format(here=tmp_path))

    assert 2 == told.code
    assert re.search(r"there is no (database|log) path=.*/typo.*: is the path right\? make one with", told.err)
    assert [] == list(tmp_path.iterdir())


def test_a_database_that_was_deleted_is_not_made_anew(jobevents: CommandLine, tmp_path: Path) -> None:
    """A job that nobody would run is not submitted; with --create it is."""
    jobevents("submit", "render", "--create")
    for path in tmp_path.glob("jobs.db*"):
        path.unlink()

    gone = jobevents("submit", "render")
    made = jobevents("submit", "render", "--create")

    assert [2, 0] == [gone.code, made.code]
    assert "there is no database" in gone.err


def test_what_says_how_to_make_a_database_can_be_copied(
    jobevents: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a path that a shell or a URL would take apart."""
    told = jobevents("list", "--url", "sqlite:///my%20jobs%25/jobs.db")
    [line] = re.findall(r"make one with `jobevents (.*)`", told.err)

    assert 0 == jobevents(*shlex.split(line)).code
    assert (tmp_path / "my jobs%" / "jobs.db").is_file()


def test_a_log_in_memory_is_refused(jobevents: CommandLine) -> None:
    """What is submitted to it is gone when the command ends."""
    told = jobevents("submit", "render", "--url", "memory://", "--create")

    assert (2, "") == (told.code, told.out)
    assert "ends with this command" in told.err


# a database that cannot be used: the cause, and one remedy, whatever the command


def _fill(place: Path) -> None:
    with (place / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))


def _cut(to: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, to)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"no database" * 10)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "cut in the middle": (_cut(50_000), 1, "file is damaged .*keep a copy of it, and put a backup in its place"),
    "cut within its first page": (_cut(1000), 1, "file is damaged .*keep a copy of it, and put a backup in its place"),
    "cut to nothing": (_cut(0), 2, "file is empty .*if jobs were in it, put a backup in its place"),
    "something else": (
        _overwrite,
        1,
        "file is no database .*is the path right\\? if it was one, put a backup in its place",
    ),
    "a directory": (_replace_by_directory, 2, "path is a directory .*name a file in it"),
}
USES = (("list",), ("show", "song-1"), ("submit", "render"), ("verify",), ("project", "--once"), ("doctor",))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_has_one_remedy(jobevents: CommandLine, tmp_path: Path, damage: str) -> None:
    """The same line of every command that meets it, and the file is left as it is."""
    jobevents("submit", "render", "--id", "song-1", "--create")
    damaged, code, says = DAMAGE[damage]
    path = tmp_path / "jobs.db"
    damaged(path)
    before = path.read_bytes() if path.is_file() else b""

    told = [jobevents(*args) for args in USES]

    assert {code} == {one.code for one in told}
    assert 1 == len({one.err for one in told})
    assert re.search(f"{says}\n$", told[0].err)
    assert before == (path.read_bytes() if path.is_file() else b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KiB, which only root can mount."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k,mode=777", "tmpfs", place], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("no file system can be mounted here: only root can, and not in every container")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_has_one_remedy(jobevents: CommandLine, small_disk: Path) -> None:
    """Whatever SQLite was about to do: free some space; then the same commands work."""
    url = f"sqlite:///{small_disk}/jobs.db"
    jobevents("submit", "render", "--id", "song-1", "--create", "--url", url)
    _fill(small_disk)

    full = [jobevents(*args, "--url", url) for args in USES]
    (small_disk / "fill").unlink()
    free = [jobevents(*args, "--url", url) for args in USES]

    assert {1} == {one.code for one in full}
    assert [] == [one.err for one in full if not re.search("disk is full .*: free some space", one.err)]
    assert {0} == {one.code for one in free}


def test_a_read_only_file_system_has_one_remedy(jobevents: CommandLine, small_disk: Path) -> None:
    """It is not the fault of permissions; what can be read without a write is read."""
    url = f"sqlite:///{small_disk}/jobs.db"
    jobevents("submit", "render", "--id", "song-1", "--create", "--url", url)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    shown, refused = jobevents("show", "song-1", "--url", url), jobevents("submit", "render", "--url", url)

    assert [0, 1] == [shown.code, refused.code]
    assert re.search("file system is mounted read-only .*: mount it writable", refused.err)
