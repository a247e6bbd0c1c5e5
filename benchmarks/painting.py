"""The dashboard's list in a real browser: from the request to the first contentful paint, as the browser says it."""

import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import Page, sync_playwright

from benchmarks.histories import log_path, of_5
from benchmarks.model import Done, Repeat, Setting
from jobevents import wiring
from jobevents.serving import serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
LOADS = 5  # of a repetition; the middle one counts
_PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""


def projected(setting: Setting) -> None:
    """Write a log of `size` events of jobs with 5 each, and the views of it."""
    of_5(setting)
    with wiring.connect(_url(setting)) as jobs:
        wiring.projector(jobs, leased=False).run_once()


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """The list of a log in SQLite, as `jobevents demo` serves it."""
    with wiring.connect(_url(setting)) as jobs, serving(jobs, port=0, actor="ana") as place, _browsing() as page:
        yield lambda: lambda: _load(page, place)


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """The same bytes, kept: what the network and the browser take."""
    with (
        wiring.connect(_url(setting)) as jobs,
        serving(jobs, port=0, actor="ana") as place,
        _replaying(place) as copy,
        _browsing() as page,
    ):
        yield lambda: lambda: _load(page, copy)


def _url(setting: Setting) -> str:
    return f"sqlite:///{log_path(setting.prepared).resolve()}"


def _load(page: Page, place: str) -> Done:
    """Load the page some times, and return its middle time to the first paint of content, in seconds."""
    took = []
    for _ in range(LOADS):
        page.goto(place)
        took.append(page.evaluate(_PAINTED) / 1000)
        if not page.locator("tr[data-id]").count():
            raise LookupError(f"the list shows no job place={place}")
    return Done(LOADS, figure=sorted(took)[LOADS // 2])


@contextmanager
def _browsing() -> Iterator[Page]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise FileNotFoundError("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


@contextmanager
def _replaying(place: str) -> Iterator[str]:
    """Serve what is at a place from memory, each address read there once."""
    kept: dict[str, tuple[int, str, bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path not in kept:
                if "/api/stream" in self.path:
                    kept[self.path] = 204, "text/plain", b""
                else:
                    with urllib.request.urlopen(place + self.path.removeprefix("/")) as answer:
                        kept[self.path] = answer.status, answer.headers["Content-Type"], answer.read()
            status, kind, body = kept[self.path]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
