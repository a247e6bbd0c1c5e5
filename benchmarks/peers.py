"""The peers that the project itself does not depend on: each in an environment of its own, made when asked for."""

import importlib.util
import subprocess
import sys
import venv
from collections.abc import Collection
from pathlib import Path

from benchmarks.model import Contender

DIRECTORY = Path(__file__).resolve().parent.parent / ".venv-bench"
DISTRIBUTIONS = {
    "cachetools": ("cachetools",),
    "huey": ("huey",),
    "litequeue": ("litequeue",),
    "persistqueue": ("persist-queue",),
    "procrastinate": ("procrastinate", "psycopg[binary,pool]"),
    "dbos": ("dbos", "psycopg[binary]"),
    "saq": ("saq[postgres]", "psycopg[binary,pool]"),
}
"""Package to import -> what is installed for it."""
COMMAND = "python -m benchmarks --peers"


class Missing(Exception):
    """A peer is not installed; says what brings it."""


def python_for(contender: Contender) -> str:
    """Return the interpreter that a contender runs with.

    Raises:
        Missing: its library is nowhere.
    """
    package = contender.needs
    if not package:
        return sys.executable
    home = DIRECTORY / package
    if any(home.glob(f"lib/python*/site-packages/{package}*")):
        return str(home / "bin" / "python")
    if importlib.util.find_spec(package):
        return sys.executable
    raise Missing(f"{package} is not installed: `{COMMAND}` brings it")


def install(packages: Collection[str]) -> None:
    """Make the environments of these packages, or bring them up to date; asks the package index."""
    for package in packages:
        venv.create(DIRECTORY / package, with_pip=True)
        pip = [str(DIRECTORY / package / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", *DISTRIBUTIONS[package]], check=True)


def versions(packages: Collection[str]) -> dict[str, str]:
    """Return the versions of what is installed for these packages."""
    found = {}
    for package in packages:
        name = DISTRIBUTIONS[package][0].partition("[")[0]
        places = DIRECTORY.glob(f"{package}/lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
        found[name] = next((at.stem.rpartition("-")[2] for at in places), "not installed")
    return found
