"""A rebuild of both views from the log, beside the live ones, then swapped in: what it takes, in time and in memory."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting
from jobevents import connect
from jobevents.wiring import rebuild


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """wiring.rebuild of the statuses and the index on SqliteBlobs, over live ones from the repetition before."""
    shutil.copy(log_path(setting.prepared), log_path(setting.own))
    url = f"sqlite:///{log_path(setting.own)}"
    with connect(url, blobs=f"sqlite:///{setting.own / 'blobs.db'}") as jobs:

        def work() -> int:
            rebuild(jobs)
            return setting.size

        yield lambda: work
