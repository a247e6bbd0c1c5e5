"""Reading all history: every event replayed, every history proved with its row, status and place in the index, one day's list."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.data import BEGAN
from benchmarks.histories import log_path, of_5
from benchmarks.model import Repeat, Setting
from jobevents import connect
from jobevents.jobs import Jobs
from jobevents.wiring import rebuild
from projections.asof import Moment, page
from projections.replay import replay
from projections.verify import verify


def projected(setting: Setting) -> None:
    """Write a log of `size` events of jobs with 5 each, and its two views into a table of a file beside it."""
    of_5(setting)
    with _opened(setting.prepared) as jobs:
        rebuild(jobs)


@contextmanager
def replayed(setting: Setting) -> Iterator[Repeat]:
    """projections.replay of the whole log."""
    with _opened(setting.prepared) as jobs:
        yield lambda: lambda: sum(1 for _ in replay(jobs))


@contextmanager
def verified(setting: Setting) -> Iterator[Repeat]:
    """projections.verify of the log, its rows and both views."""
    with _opened(setting.prepared) as jobs:
        yield lambda: lambda: _proved(jobs)


@contextmanager
def listed(setting: Setting) -> Iterator[Repeat]:
    """projections.asof.page: the newest jobs that had succeeded by a moment halfway through the log."""
    then = Moment(instant=BEGAN + timedelta(seconds=40 * (setting.size // 10)))
    with _opened(setting.prepared) as jobs:
        yield lambda: lambda: setting.size if page(jobs, then, "succeeded").items else 0


def _proved(jobs: Jobs) -> int:
    report = verify(jobs)
    if not report.is_right:
        raise AssertionError(report.flaws)
    return report.events


@contextmanager
def _opened(directory: Path) -> Iterator[Jobs]:
    with connect(f"sqlite:///{log_path(directory)}", blobs=f"sqlite:///{directory / 'blobs.db'}") as jobs:
        yield jobs
