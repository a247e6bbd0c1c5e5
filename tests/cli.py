"""The command line as a user calls it: in this process through `main`, in a pipe or at a terminal of 80 columns."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
import pytest
import typer

from jobevents import cli

COMMAND = [sys.executable, "-m", "jobevents"]


READING = (
    ("list",),
    ("list", "--after", ""),
    ("show", "song-1"),
    ("events", "song-1"),
    ("logs", "song-1"),
    ("workers",),
    ("doctor",),
    ("project", "--once"),
    ("parked", "list"),
    ("rebuild",),
)
WRITING = (
    ("cancel", "song-1"),
    ("retry", "song-2"),
    ("rerun", "song-3"),
    ("rerun", "song-3", "--as-new"),
    ("delete", "song-3", "--yes"),
)


class Told(NamedTuple):
    """What a call came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return msgspec.json.decode(self.out)


class CommandLine:
    """Calls `main` with arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.delenv("FORCE_COLOR", raising=False)

    def __call__(self, *args: str, at_terminal: bool = False) -> Told:
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["jobevents", *args])
            patch.setattr(sys.stdout, "isatty", lambda: at_terminal)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return Told(int(ended.value.code or 0), *self._capsys.readouterr())


@pytest.fixture
def jobevents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[CommandLine]:
    """The command line, in an empty directory, with JOBEVENTS_URL set to a file that is not there yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBEVENTS_URL", "sqlite:///jobs.db?synchronous=normal")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield CommandLine(monkeypatch, capsys)
    for number, handler in before.items():
        signal.signal(number, handler)


_HEEDING = (  # not in the child of a fork: see devcloud.leashed
    sys.executable,
    "-I",
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)


def start(*args: str, cwd: Path, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the command line as a process of its own, with pipes; Ctrl-C reaches it, too, where ours is ignored."""
    return subprocess.Popen(
        [*(_HEEDING if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else ()), *COMMAND, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def commands(group: click.Group | None = None, prefix: str = "") -> dict[str, click.Command]:
    """All commands by name, those of groups too."""
    found: dict[str, click.Command] = {}
    group = group or typer.main.get_command(cli.app)  # type: ignore[assignment]  # the app has commands
    for name, command in group.commands.items():  # type: ignore[union-attr]  # given above
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix}{name} ")
        else:
            found[prefix + name] = command
    return found
