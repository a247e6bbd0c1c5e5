"""Fixtures for tests in a browser.

A test module says `pytest_plugins = ("tests.browser_fixtures",)`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from jobevents import connect
from jobevents.jobs import Jobs
from projections.api import create_app
from tests.browser import FLAGS, NAMES, PATIENCE_MS, Served, Watched, missing, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, for all tests of a module; each has a profile of its own. Its event loop must be nobody else's."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing("no browser", "apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Jobs]:
    """Jobs in a file, by the real clock."""
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", actor="ana") as jobs:
        yield jobs


@pytest.fixture
def site(log: Jobs) -> Iterator[Served]:
    """The dashboard over these jobs."""
    with served(create_app(log)) as made:
        yield made


@pytest.fixture
def new_context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes profiles, each empty, of somebody in Tokyo who looks once a second."""
    made: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        chosen = {"viewport": {"width": 1280, "height": 900}, "timezone_id": "Asia/Tokyo", "locale": "en-GB", **options}
        context = browser.new_context(**chosen)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(
            "localStorage.getItem('jobevents.interval') ?? localStorage.setItem('jobevents.interval', '1')"
        )
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


@pytest.fixture
def watched(new_context: Callable[..., BrowserContext]) -> Iterator[Watched]:
    """A page; nothing may go wrong on it."""
    made = Watched(new_context().new_page())
    yield made
    assert [] == made.faults


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched for these tests and never kept."""
    if shutil.which("npm") is None:
        missing("no npm", "apt-get install npm, for the check of accessibility")
    place = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "pack", "axe-core@4", "--silent"], cwd=place, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        missing("axe-core cannot be fetched", f"npm needs its registry: {done.stderr.strip()[:200]}")
    subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=place, check=True)
    return (place / "package" / "axe.min.js").read_text("utf-8")
