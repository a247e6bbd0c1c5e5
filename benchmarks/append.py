"""Appending to SQLite: one event a commit, a hundred, and from eight threads; every commit FULL."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks import aggregates
from benchmarks.data import BEGAN, Step, Writer, lives
from benchmarks.histories import log_path, opened
from benchmarks.model import Repeat, Setting, Work
from jobevents import codec
from jobevents.backends import sqliteschema
from jobevents.backends.sql import DEFAULT_TABLES, Statements, row_of
from jobevents.backends.sqliteschema import EVENTS
from jobevents.emit import By, Emitter
from jobevents.events import Event
from jobevents.job import Job
from jobevents.log import EventLog, Head

EVENTS_EACH = 5
THREADS = 8
HUNDRED = 100
FIRST = 800  # commits until the log beside a new file is as long as it gets: each makes it longer, which costs the disk more

RawRows = tuple[tuple[Any, ...], tuple[Any, ...]]  # of the events table, and of the runs table


@contextmanager
def ours_one(setting: Setting) -> Iterator[Repeat]:
    """One event a call, by EventLog.append, with its job's row."""
    with opened(log_path(setting.own)) as log:

        def repeat(steps: Sequence[Step]) -> Work:
            return _appending(log, _made(steps), 1)

        repeat(_before(setting))()
        yield _repeating(setting.size, repeat)


@contextmanager
def emitter_one(setting: Setting) -> Iterator[Repeat]:
    """One event a call, the way of every write: fold, check, append with the job's row."""
    with opened(log_path(setting.own)) as log:
        emitter = Emitter(log, clock=_clock)

        def repeat(steps: Sequence[Step]) -> Work:
            return lambda: _emit(emitter, steps)

        repeat(_before(setting))()
        yield _repeating(setting.size, repeat)


@contextmanager
def limit_one(setting: Setting) -> Iterator[Repeat]:
    """Two bare rows, made beforehand and written whole, one transaction each, on a bare connection.

    It holds no event against the one before and ends no claim, as ours does; ours writes of a row only what has changed.
    """
    with _raw(setting.own) as connection:

        def repeat(steps: Sequence[Step]) -> Work:
            return _raw_work(connection, list(_raw_rows(steps)), 1)

        repeat(_before(setting))()
        yield _repeating(setting.size, repeat)


@contextmanager
def peer_one(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's SQLite recorder with the JSON mapper, one event a call."""
    yield _peer(setting, 1)


@contextmanager
def ours_hundred(setting: Setting) -> Iterator[Repeat]:
    """A hundred events a call, with the rows of their jobs."""
    with opened(log_path(setting.own)) as log:
        yield _repeating(setting.size, lambda steps: _appending(log, _made(steps), HUNDRED))


@contextmanager
def limit_hundred(setting: Setting) -> Iterator[Repeat]:
    """The same rows, made beforehand, a hundred events a transaction."""
    with _raw(setting.own) as connection:
        yield _repeating(setting.size, lambda steps: _raw_work(connection, list(_raw_rows(steps)), HUNDRED))


@contextmanager
def peer_hundred(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's SQLite recorder with the JSON mapper, a hundred events a call."""
    yield _peer(setting, HUNDRED)


@contextmanager
def ours_threads(setting: Setting) -> Iterator[Repeat]:
    """One event a call from each of eight threads, which share transactions as they come."""
    with opened(log_path(setting.own)) as log:
        emitter = Emitter(log, clock=_clock)

        def repeat(steps: Sequence[Step]) -> Work:
            parts = _by_job(steps)
            return lambda: _in_threads(lambda part: _emit(emitter, part), parts)

        yield _repeating(setting.size, repeat)


@contextmanager
def limit_threads(setting: Setting) -> Iterator[Repeat]:
    """Eight events a transaction in one bare loop: as if all threads had always arrived together."""
    with _raw(setting.own) as connection:
        yield _repeating(setting.size, lambda steps: _raw_work(connection, list(_raw_rows(steps)), THREADS))


@contextmanager
def peer_threads(setting: Setting) -> Iterator[Repeat]:
    """eventsourcing's SQLite recorder with the JSON mapper, one event a call from each of eight threads."""
    store = aggregates.event_store(log_path(setting.own))

    def repeat(number: int) -> Work:
        events = _peer_events(setting.size, number)
        parts = [events[start::THREADS] for start in range(THREADS)]
        return lambda: _in_threads(lambda part: sum(1 for one in part if store.put([one]) is not None), parts)

    yield _numbered(repeat)


def _before(setting: Setting) -> list[Step]:
    """Return what is appended before the time is taken: none where it is to be seen only that all runs."""
    return list(
        islice(lives(FIRST // EVENTS_EACH, EVENTS_EACH, seed=10**6), FIRST if setting.size >= EVENTS_EACH * 10 else 0)
    )


def _clock() -> datetime:
    return BEGAN


def _numbered(repeat: Callable[[int], Work]) -> Repeat:
    numbers = count()
    return lambda: repeat(next(numbers))


def _repeating(size: int, repeat: Callable[[Sequence[Step]], Work]) -> Repeat:
    """Give each repetition jobs of its own."""
    jobs = -(-size // EVENTS_EACH)
    return _numbered(lambda number: repeat(list(islice(lives(jobs, EVENTS_EACH, seed=number), size))))


def _emit(emitter: Emitter, steps: Iterable[Step]) -> int:
    done = 0
    by = By()
    for step in steps:
        emitter.change(step.job_id, lambda _, draft=step.draft: [draft], by)  # type: ignore[misc]  # the default binds
        done += 1
    return done


def _made(steps: Iterable[Step]) -> list[tuple[Event, Job]]:
    writer = Writer()
    return [writer.event(step) for step in steps]


def _appending(log: EventLog, made: Sequence[tuple[Event, Job]], batch: int) -> Work:
    """Return the work of appending events in batches, each job's head known from its last append."""
    parts = [made[start : start + batch] for start in range(0, len(made), batch)]
    calls = [([event for event, _ in part], list({job.job_id: job for _, job in part}.values())) for part in parts]

    def work() -> int:
        heads: dict[str, Head] = {}
        for events, rows in calls:
            for stored in log.append(events, heads=heads, rows=rows):
                heads[stored.job_id] = Head(stored.version, stored.chain)
        return len(made)

    return work


def _raw_rows(steps: Iterable[Step]) -> Iterator[RawRows]:
    """Yield what our log would write for each step, ready for the driver."""
    chains: dict[str, str] = {}
    for event, job in _made(steps):
        body = codec.encode(event)
        chain = chains[event.job_id] = codec.link(chains.get(event.job_id, codec.NO_CHAIN), body)
        yield (event.job_id, event.version, event.type, codec.seal(body, chain)), row_of(job)


@contextmanager
def _raw(directory: Path) -> Iterator[sqlite3.Connection]:
    path = log_path(directory)
    sqliteschema.migrate(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = full")
        yield connection


def _raw_work(connection: sqlite3.Connection, rows: Sequence[RawRows], batch: int) -> Work:
    insert = f'INSERT INTO "{EVENTS}" (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)'
    put_run = Statements(DEFAULT_TABLES, EVENTS).put_run
    parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    calls = [([event for event, _ in part], list({run[0]: run for _, run in part}.values())) for part in parts]

    def work() -> int:
        cursor = connection.cursor()
        for events, runs in calls:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(insert, events)
            cursor.executemany(put_run, runs)
            cursor.execute("COMMIT")
        return len(rows)

    return work


def _peer_events(size: int, number: int) -> list[Any]:  # the library's own event classes
    jobs = aggregates.aggregates(-(-size // EVENTS_EACH), EVENTS_EACH, seed=number)
    return [event for job in jobs for event in job.collect_events()][:size]


def _peer(setting: Setting, batch: int) -> Repeat:
    store = aggregates.event_store(log_path(setting.own))

    def repeat(number: int) -> Work:
        events = _peer_events(setting.size, number)

        def work() -> int:
            for start in range(0, len(events), batch):
                store.put(events[start : start + batch])
            return len(events)

        return work

    return _numbered(repeat)


def _by_job(steps: Sequence[Step]) -> list[list[Step]]:
    """Share steps among the threads, a job's all to one of them."""
    parts: dict[str, list[Step]] = {}
    for step in steps:
        parts.setdefault(step.job_id, []).append(step)
    jobs = list(parts.values())
    return [[step for job in jobs[start::THREADS] for step in job] for start in range(THREADS)]


def _in_threads(work: Callable[[Any], int], parts: Sequence[Sequence[Any]]) -> int:
    """Work on all parts at once; return how much was done, so that a thread that failed shows."""
    done: list[int] = []
    threads = [Thread(target=lambda part=part: done.append(work(part))) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(done) < len(parts):
        raise RuntimeError("a thread failed")
    return sum(done)
