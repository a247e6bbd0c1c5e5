"""The part of the contracts about the database under a store or a queue: crashed and started again, or read by others."""

# ruff: noqa: SIM300 - the expected value stands first

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pytest

from jobevents.errors import Refused
from jobevents.queue import JobQueue, Reservation
from jobevents.store import JobStore
from jobevents.testing.clock import START
from jobevents.testing.jobqueue_threads import PATIENCE_S
from jobevents.testing.jobstore_logs import line
from jobevents.testing.runs import changed, ended, listed, run

Restart: TypeAlias = Callable[[], object] | None
"""Crash the database and start it again; None where there is none, or it is not ours to crash."""
Snapshot: TypeAlias = Callable[[], AbstractContextManager[object]] | None
"""Have somebody else read the tables, in a transaction that goes on within the block; None where there are no tables."""


class Outages:
    """What a test may do to the database. A subclass that overrides neither fixture skips these tests."""

    @pytest.fixture
    def restart(self) -> Restart:
        """Override it with what crashes the database under the fixture and starts it again."""
        return None

    @pytest.fixture
    def snapshot(self) -> Snapshot:
        """Override it with what reads the tables in a transaction of its own; `reader_of(url)` is that of a log."""
        return None


class JobStoreOutages(Outages):
    """Promises of a store whose database is disturbed; `JobStoreContract` includes them."""

    def test_the_database_is_restarted(self, store: JobStore, restart: Restart) -> None:
        """What was stored is there, and the same store goes on."""
        restart = restart or pytest.skip("there is no database to restart")
        store.create(run())
        store.append_logs([line(1)])

        restart()

        assert 50 == changed(store, "a", progress=50).progress
        restart()
        store.append_logs([line(2)])
        assert [line(1), line(2)] == list(store.logs("a"))
        assert ["a"] == listed(store)

    def test_a_held_snapshot_holds_nobody_up(self, store: JobStore, snapshot: Snapshot) -> None:
        """While somebody reads for long, runs are made, changed, listed and purged, and all see what is new."""
        snapshot = snapshot or pytest.skip("there are no tables to read")
        store.create(run())
        store.create(ended("old"))

        with snapshot():
            store.create(run("b"))
            assert 50 == changed(store, "a", progress=50).progress
            store.append_logs([line(1)])
            assert ["b", "a"] == [one for one in listed(store) if one != "old"]
            assert 1 == store.purge(START.replace(year=START.year + 1), START)

        assert ["b", "a"] == listed(store)


class JobQueueOutages(Outages):
    """Promises of a queue whose database is disturbed; `JobQueueContract` includes them."""

    def handle(self, queue: JobQueue, reservation: Reservation) -> None:
        """As `JobQueueContract.handle`."""
        raise NotImplementedError

    def test_the_database_is_restarted(self, queue: JobQueue, restart: Restart) -> None:
        """Who waited goes on waiting, and nothing is lost; what was reserved may come again, as after a lease that ran out."""
        restart = restart or pytest.skip("there is no database to restart")
        queue.enqueue(run("before"))
        (held,) = queue.reserve(timeout_s=0)

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(queue.reserve, timeout_s=PATIENCE_S)
            restart()
            queue.enqueue(run("after"))
            got = [held, *waiting.result()]
        for reservation in got:  # grows by what comes again, or has not come yet
            with suppress(Refused):
                self.handle(queue, reservation)
            got += queue.reserve(limit=9, timeout_s=0)

        assert {"before", "after"} == {one.run.id for one in got}
        assert 0 == len(queue)

    def test_a_held_snapshot_holds_nobody_up(self, queue: JobQueue, snapshot: Snapshot) -> None:
        """While somebody reads for long, runs come, are handed out, handled, and given back."""
        snapshot = snapshot or pytest.skip("there are no tables to read")
        queue.enqueue(run("a"))

        with snapshot():
            queue.enqueue(run("b"))
            first, second = queue.reserve(limit=2, timeout_s=0)
            second.ack(RuntimeError("not now"))
            self.handle(queue, first)
            (again,) = queue.reserve(timeout_s=0)
            self.handle(queue, again)

        assert ("b", 0) == (again.run.id, len(queue))


def reader_of(url: str) -> Snapshot:
    """Return what reads the runs of the log behind a URL of `connect`; None for one in memory."""
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite":
            return lambda: _reading_file(unquote(parts.path[1:]))
        case "postgresql" | "postgres":
            return lambda: _reading_server(url)
        case _:
            return None


@contextmanager
def _reading_file(path: str) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT id, status FROM job_runs ORDER BY id").fetchall()
        yield
        assert before == reader.execute("SELECT id, status FROM job_runs ORDER BY id").fetchall()


@contextmanager
def _reading_server(url: str) -> Iterator[None]:
    import psycopg  # of an extra that only these users have
    from psycopg.sql import SQL, Identifier

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema", "public")
    theirs = urlunsplit(parts._replace(query=urlencode({k: v for k, v in options.items() if not k.endswith("_s")})))
    rows = SQL("SELECT id, status FROM {}.job_runs ORDER BY id").format(Identifier(schema))
    with psycopg.connect(theirs) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = reader.execute(rows).fetchall()
        yield
        assert before == reader.execute(rows).fetchall()
