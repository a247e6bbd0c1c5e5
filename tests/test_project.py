"""The project itself: which module may import which, sizes, portable files, a light import, and the docs that are generated."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.diagram import CONTRIBUTING, with_picture

ROOT = Path(__file__).parent.parent
PACKAGES = ("jobevents", "projections")
MAX_LINES = 420
MAX_MODULES = 260  # loaded by the import beyond a bare interpreter: 233 on 3.11; room for other standard libraries


def sources(*places: str) -> list[Path]:
    """Every Python file under the places, tests and benchmarks too when they are named."""
    return sorted(path for place in places for path in (ROOT / place).rglob("*.py"))


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    """Hold all contracts of pyproject.toml against the packages in a directory."""
    run = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return subprocess.run([sys.executable, "-c", run], cwd=directory, capture_output=True, text=True, check=False)


def test_imports_go_the_way_the_contracts_say() -> None:
    """The packages keep every import contract of pyproject.toml."""
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Both packages in a directory of their own, to be spoilt."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("jobevents/emit.py", "import projections.cache", "the write side does not know the read side"),
        ("jobevents/backends/sql.py", "from projections import paging", "the write side does not know the read side"),
        ("jobevents/jobs.py", "from jobevents.wiring import connect", "nothing below the roots imports a root"),
        ("projections/status.py", "from jobevents.wiring import open_blobs", "nothing below the roots imports a root"),
        ("jobevents/wiring.py", "from jobevents import cli", "nothing below the roots imports a root"),
        ("jobevents/attempt.py", "from jobevents import connect", "nothing imports a package root"),
        ("projections/cache.py", "from jobevents import Status", "nothing imports a package root"),
        ("jobevents/jobs.py", "import jobevents.backends.memory", "backends are chosen in the wiring"),
        ("jobevents/cli.py", "from jobevents.backends.gcs import GcsBlobs", "backends are chosen in the wiring"),
        (
            "jobevents/blobs.py",
            "from google.cloud import storage",
            "each library of a vendor or a surface has one home",
        ),
        ("jobevents/jobs.py", "import rich", "each library of a vendor or a surface has one home"),
        ("projections/joblist.py", "import typer", "each library of a vendor or a surface has one home"),
        ("projections/api/questions.py", "import starlette", "each library of a vendor or a surface has one home"),
        ("projections/ui/pages.py", "import jinja2", "each library of a vendor or a surface has one home"),
        ("projections/api/listing.py", "import projections.ui.finding", "no cycles within"),
        ("jobevents/job.py", "import jobevents.log", "modules import downward"),
        ("jobevents/events.py", "from jobevents import status", "modules import downward"),
        ("jobevents/anything.py", "", "modules import downward"),
        ("jobevents/backends/forks.py", "from jobevents.backends import sqlitefile", "no cycles within"),
        ("projections/cache.py", "def late():\n    from projections import joblist, paging", ""),
    ],
)
def test_a_contract_bites(copy: Path, module: str, line: str, contract: str) -> None:
    """One forbidden import, also inside a function, breaks the contract that forbids it; an allowed one breaks none."""
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")

    done = lint_imports(copy)

    broken = re.findall(r"^(.*?) BROKEN", done.stdout, re.MULTILINE)
    assert bool(contract) == bool(broken), done.stdout + done.stderr
    assert not contract or any(name.startswith(contract) for name in broken), broken


def test_no_module_outgrows_its_idea() -> None:
    """A module of either package has at most 420 lines."""
    lines = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in sources(*PACKAGES)}

    assert {} == {name: count for name, count in lines.items() if count > MAX_LINES}


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """No file that is kept holds a path into somebody's home or working directory."""
    personal = re.compile(r"(?<![\w.~])/(?:home|root|Users|work|workspace)/\w")
    kept = [
        *sources(*PACKAGES, "tests", "benchmarks"),
        *ROOT.glob("*.md"),
        *ROOT.glob("*.toml"),
        *(ROOT / ".ci").iterdir(),
        ROOT / "Makefile",
    ]

    found = {str(path.relative_to(ROOT)): personal.findall(path.read_text("utf-8")) for path in kept}

    assert {} == {name: paths for name, paths in found.items() if paths}


def test_importing_the_package_is_light() -> None:
    """`import jobevents` loads no cloud library, no command line and no database, and few modules at all."""
    run = (
        "import sys; before = set(sys.modules); import jobevents; jobevents.connect('memory://').close();"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True, cwd=ROOT)

    loaded = set(done.stdout.split())
    heavy = {
        "google",
        "grpc",
        "requests",
        "typer",
        "click",
        "rich",
        "psycopg",
        "starlette",
        "asyncio",
        "projections.status",
    }
    assert set() == heavy & loaded
    assert len(loaded) < MAX_MODULES


def test_eventsourcing_comes_with_the_first_log() -> None:
    """A service that only keeps records pays nothing for the library of the event log."""
    run = "import sys, jobevents; sys.exit('eventsourcing' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", run], check=False, cwd=ROOT)

    assert 0 == done.returncode


def test_the_package_exports_its_names_sorted() -> None:
    """What `from jobevents import …` promises is there, sorted, and no function hides a module of its name."""
    import jobevents

    names = jobevents.__all__

    assert sorted(names) == list(names)
    modules = {path.stem for path in (ROOT / "jobevents").iterdir()}
    assert ["errors"] == [name for name in names if name in modules]


def test_the_picture_of_the_transitions_is_the_table() -> None:
    """CONTRIBUTING.md shows the transitions as TRANSITIONS has them (`make diagram` writes it again)."""
    text = CONTRIBUTING.read_text("utf-8")

    assert with_picture(text) == text


@pytest.mark.parametrize(
    "place", ["jobevents", "jobevents/backends", "projections", "projections/api", "projections/ui"]
)
def test_every_module_is_on_the_map(place: str) -> None:
    """CONTRIBUTING.md has a line for every module."""
    text = CONTRIBUTING.read_text("utf-8")

    missing = [path.name for path in (ROOT / place).glob("*.py") if f"`{path.name}`" not in text]

    assert [] == [name for name in missing if name != "__init__.py"]
