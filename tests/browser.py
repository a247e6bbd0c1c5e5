"""A real browser on a real server: Debian's Chromium, driven by Playwright, on an app that is served by a thread of the test."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page

from jobevents.serving import listen

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 8000


def missing(what: str, remedy: str) -> None:
    """Fail in continuous integration, and skip loudly on a user's machine."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}: {remedy}", pytrace=False)
    pytest.skip(f"{what}: {remedy}")


class Served:
    """An app on a port, which can be stopped and started again."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._listener = listen("127.0.0.1", self.port)
        self.port = self._listener.getsockname()[1]
        config = uvicorn.Config(self._app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()

    @property
    def place(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def served(app: Any) -> Iterator[Served]:
    """Serve an app within the block."""
    made = Served(app)
    try:
        yield made
    finally:
        made.stop()


class Watched:
    """A page of the browser, and what went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "console",
            lambda said: (
                self.faults.append(said.text)
                if said.type == "error" and "Failed to load resource" not in said.text
                else None
            ),
        )

    def go(self, url: str) -> None:
        """Open an address, and wait for its scripts."""
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]")


def wait_until(is_so: Callable[[], bool], patience_s: float = 8.0) -> None:
    """Wait for something that happens outside of the browser."""
    ends = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)
