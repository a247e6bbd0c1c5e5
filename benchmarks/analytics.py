"""Questions to all of a history in SQLite, and all of it in a file: beside the same bytes decoded by msgspec, or just copied."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks.histories import log_path
from benchmarks.model import Repeat, Setting
from jobevents import connect
from jobevents.backends.sqliteschema import EVENTS
from jobevents.export import export
from projections.query import query, report

_SORTED = "SELECT * FROM events ORDER BY data"
_GROUPED = "SELECT type, CAST(written_at AS DATE) AS day, count(*) FROM events GROUP BY ALL"


@contextmanager
def ours_grouped(setting: Setting) -> Iterator[Repeat]:
    """A grouped query over `events`: kinds of events by day."""
    with connect(f"sqlite:///{log_path(setting.prepared)}", blobs="memory://") as jobs:

        def work() -> int:
            with query(jobs, _GROUPED) as answer:
                assert answer.rows()
            return setting.size

        yield lambda: work


@contextmanager
def ours_sorted(setting: Setting) -> Iterator[Repeat]:
    """Every event with all that it holds, sorted by its text: more than fits into the memory that a query is given."""
    with connect(f"sqlite:///{log_path(setting.prepared)}", blobs="memory://") as jobs:

        def work() -> int:
            with query(jobs, _SORTED) as answer:
                return sum(batch.num_rows for batch in answer.batches())

        yield lambda: work


@contextmanager
def ours_report(setting: Setting) -> Iterator[Repeat]:
    """The report `durations` over `attempts`, for which every job is folded."""
    with connect(f"sqlite:///{log_path(setting.prepared)}", blobs="memory://") as jobs:

        def work() -> int:
            with report(jobs, "durations") as answer:
                assert answer.rows()
            return setting.size

        yield lambda: work


@contextmanager
def ours_export(setting: Setting) -> Iterator[Repeat]:
    """export to a plain file, without log lines."""
    with connect(f"sqlite:///{log_path(setting.prepared)}", blobs="memory://") as jobs:

        def work() -> int:
            return export(jobs, setting.own / "all.jsonl", logs=False, overwrite=True).events

        yield lambda: work


@contextmanager
def limit_export(setting: Setting) -> Iterator[Repeat]:
    """The same bytes from the same table in one SELECT, written to a file as they are."""
    with closing(sqlite3.connect(log_path(setting.prepared), isolation_level=None)) as connection:
        select = f'SELECT state FROM "{EVENTS}" ORDER BY notification_id'

        def work() -> int:
            done = 0
            with (setting.own / "all.jsonl").open("wb") as file:
                for (state,) in connection.execute(select):
                    file.write(state + b"\n")
                    done += 1
            return done

        yield lambda: work
