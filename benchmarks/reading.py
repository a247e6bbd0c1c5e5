"""Reading SQLite: one job of 20 events folded, and every event of the log decoded."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TypeVar
from uuid import UUID

import msgspec
from eventsourcing.persistence import Notification

from benchmarks.aggregates import Renders, json_mapper, recorder_in, sqlite_environment
from benchmarks.data import SEED
from benchmarks.histories import log_path, opened
from benchmarks.model import Repeat, Setting
from jobevents.backends.sqliteschema import EVENTS
from jobevents.events import AnyEvent
from jobevents.job import fold

Id = TypeVar("Id")

_ASKED = 500  # jobs a repetition, each picked at random


@contextmanager
def ours_job(setting: Setting) -> Iterator[Repeat]:
    """EventLog.read, then fold."""
    with opened(log_path(setting.prepared)) as log:
        asked = _picked([record.job_id for record in log.scan(limit=setting.size) if record.version == 1])

        def work() -> int:
            return sum(fold(log.read(job_id)).version == 20 for job_id in asked)

        yield lambda: work


@contextmanager
def limit_job(setting: Setting) -> Iterator[Repeat]:
    """A bare SELECT of the job's bytes, and msgspec's decoder; nothing is folded."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    with closing(sqlite3.connect(log_path(setting.prepared), isolation_level=None)) as connection:
        found = connection.execute(f'SELECT DISTINCT originator_id FROM "{EVENTS}" ORDER BY notification_id')
        asked = _picked([job_id for (job_id,) in found])
        select = f'SELECT state FROM "{EVENTS}" WHERE originator_id = ? ORDER BY originator_version'

        def work() -> int:
            return sum(len([decode(state) for (state,) in connection.execute(select, (one,))]) == 20 for one in asked)

        yield lambda: work


@contextmanager
def peer_job(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's repository.get of an Aggregate with as many events."""
    with Renders(sqlite_environment(log_path(setting.prepared))) as app:
        stored = app.recorder.select_notifications(1, setting.size)
        asked = _picked(list(dict.fromkeys(UUID(str(one.originator_id)) for one in stored)))

        def work() -> int:
            return sum(app.repository.get(one).version == 20 for one in asked)

        yield lambda: work


@contextmanager
def ours_all(setting: Setting) -> Iterator[Repeat]:
    """EventLog.scan, and Record.event of each."""
    with opened(log_path(setting.prepared)) as log:

        def work() -> int:
            done = 0
            for record in log.scan():
                record.event()
                done += 1
            return done

        yield lambda: work


@contextmanager
def limit_all(setting: Setting) -> Iterator[Repeat]:
    """The same bytes from the same table in one SELECT, and msgspec's decoder."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    with closing(sqlite3.connect(log_path(setting.prepared), isolation_level=None)) as connection:
        select = f'SELECT state FROM "{EVENTS}" ORDER BY notification_id'

        def work() -> int:
            done = 0
            for (state,) in connection.execute(select):
                decode(state)
                done += 1
            return done

        yield lambda: work


@contextmanager
def peer_all(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's select_notifications in pages, and its JSON mapper."""
    mapper = json_mapper()
    recorder = recorder_in(log_path(setting.prepared))

    def work() -> int:
        done, page = 0, list[Notification]()
        while not done or page:
            page = list(recorder.select_notifications(page[-1].id + 1 if page else 1, 500))
            for one in page:
                mapper.to_domain_event(one)
            done += len(page)
        return done

    yield lambda: work


def _picked(found: list[Id]) -> list[Id]:
    return random.Random(SEED).choices(found, k=_ASKED)
