"""What others may do to a log from outside, on each backend: altered, removed, swapped, doubled and forked events."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
from eventsourcing.persistence import StoredEvent

from jobevents import codec
from jobevents.backends.blobnames import Names, Slot
from jobevents.blobs import ABSENT
from jobevents.jobs import Jobs


class Tamper(Protocol):
    """Writes past the log."""

    def replace(self, job_id: str, version: int, data: bytes) -> None:
        """Put other bytes into a slot."""

    def remove(self, job_id: str, version: int) -> None:
        """Empty a slot."""

    def add(self, job_id: str, version: int, data: bytes) -> None:
        """Put one more event into a slot, empty or not."""


class Memory:
    """In this process."""

    def __init__(self, jobs: Jobs) -> None:
        self._recorder: Any = jobs.log.recorder

    def replace(self, job_id: str, version: int, data: bytes) -> None:
        place = self._recorder._stored_events_index[job_id][version]
        topic = self._recorder._stored_events[place].topic
        self._recorder._stored_events[place] = StoredEvent(job_id, version, topic, data)

    def remove(self, job_id: str, version: int) -> None:
        place = self._recorder._stored_events_index[job_id].pop(version)
        del self._recorder._stored_events[place]
        for places in self._recorder._stored_events_index.values():
            for other, where in places.items():
                places[other] = where - (where > place)

    def add(self, job_id: str, version: int, data: bytes) -> None:
        self._recorder._stored_events.append(StoredEvent(job_id, version, codec.decode(data).type, data))
        self._recorder._stored_events_index[job_id].setdefault(version, len(self._recorder._stored_events) - 1)


class Objects:
    """In the store of a log that keeps an object for each event, of which a slot can hold no more than one."""

    def __init__(self, jobs: Jobs) -> None:
        self._blobs = jobs.blobs
        self._names = Names(jobs.prefix)

    def replace(self, job_id: str, version: int, data: bytes) -> None:
        name = self._names.event(Slot(job_id, version))
        before = self._blobs.get(name)
        assert before is not None
        self._blobs.put(name, data, metadata=before.metadata)

    def remove(self, job_id: str, version: int) -> None:
        assert self._blobs.delete(self._names.event(Slot(job_id, version)))

    def add(self, job_id: str, version: int, data: bytes) -> None:
        name, kind = self._names.event(Slot(job_id, version)), codec.decode(data).type
        self._blobs.put(name, data, if_generation=ABSENT, metadata={"type": kind})


class Sql:
    """With a connection of its own."""

    def __init__(self, execute: Callable[..., None], mark: str, *loosen: str) -> None:
        self._execute = execute
        self._mark = mark
        self._loosen = loosen

    def replace(self, job_id: str, version: int, data: bytes) -> None:
        self._run(
            "UPDATE job_events SET state = ? WHERE originator_id = ? AND originator_version = ?", data, job_id, version
        )

    def remove(self, job_id: str, version: int) -> None:
        self._run("DELETE FROM job_events WHERE originator_id = ? AND originator_version = ?", job_id, version)

    def add(self, job_id: str, version: int, data: bytes) -> None:
        for statement in self._loosen:
            self._run(statement)
        kept = "INSERT INTO job_events (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)"
        self._run(kept, job_id, version, codec.decode(data).type, data)

    def _run(self, statement: str, *values: Any) -> None:
        self._execute(statement.replace("?", self._mark), values)


def of_sqlite(path: Path) -> Sql:
    """In the file; a slot takes several events once the table is made anew without its constraint."""

    def execute(statement: str, values: tuple[Any, ...] = ()) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement, values)

    columns = (
        "notification_id INTEGER PRIMARY KEY AUTOINCREMENT, originator_id TEXT, originator_version INTEGER, "
        "topic TEXT, state BLOB"
    )
    loosen = (
        "ALTER TABLE job_events RENAME TO old_events",
        f"CREATE TABLE job_events ({columns})",
        "INSERT INTO job_events SELECT * FROM old_events",
        "DROP TABLE old_events",
    )
    return Sql(execute, "?", *loosen)


def of_postgres(url: str) -> Sql:
    """In the database; a slot takes several events once its constraint is gone."""

    def execute(statement: str, values: tuple[Any, ...] = ()) -> None:
        base, _, schema = url.partition("?schema=")
        with psycopg.connect(base, autocommit=True, options=f"-c search_path={schema}") as connection:
            connection.execute(statement, values)  # type: ignore[call-overload]  # a test's own SQL

    return Sql(execute, "%s", "ALTER TABLE job_events DROP CONSTRAINT job_events_pkey")


def altered(jobs: Jobs, job_id: str, version: int, *, sealed: bool = False) -> bytes:
    """An event's bytes with another actor, chained anew if it is to look whole."""
    data = jobs.log.read_raw(job_id)[version - 1].data
    body, chain = codec.unseal(data)
    changed = body.replace(b'"actor":"', b'"actor":"not ', 1)
    assert changed != body
    if sealed:
        before = jobs.log.read_raw(job_id)[version - 2].data if version > 1 else None
        chain = codec.link(codec.unseal(before)[1] if before else codec.NO_CHAIN, changed)
    return codec.seal(changed, chain)
