"""The command line on a store that is not there, or that cannot be used: what is said, and that nothing is made."""

import re
import shlex
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
