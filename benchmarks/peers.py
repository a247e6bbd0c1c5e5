"""The environment of peers that the project itself does not depend on: made when asked for, never mixed into ours."""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.model import Contender

DIRECTORY = Path(__file__).resolve().parent.parent / ".venv-bench"
DISTRIBUTIONS = ("cachetools",)
COMMAND = "python -m benchmarks --peers"


class Missing(Exception):
    """A peer is not installed; says what brings it."""


def python_for(contender: Contender) -> str:
    """Return the interpreter that a contender runs with.

    Raises:
        Missing: its library is nowhere.
    """
    if not contender.needs:
        return sys.executable
    if list(DIRECTORY.glob(f"lib/python*/site-packages/{contender.needs}")):
        return str(DIRECTORY / "bin" / "python")
    if importlib.util.find_spec(contender.needs):
        return sys.executable
    raise Missing(f"{contender.needs} is not installed: `{COMMAND}` brings it")


def install() -> None:
    """Make the environment, or bring it up to date; asks the package index."""
    venv.create(DIRECTORY, with_pip=True)
    python = str(DIRECTORY / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", *DISTRIBUTIONS], check=True)
