"""The peer: the same jobs the way eventsourcing's documentation writes them, as Aggregates with JSON events."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import (
    DatetimeAsISO,
    DecimalAsStr,
    EventStore,
    JSONTranscoder,
    Mapper,
    StoredEvent,
    UUIDAsHex,
)
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from benchmarks.data import SEED


class Render(Aggregate):
    """A job of the kind "render"."""

    @event("Queued")
    def __init__(self, name: str, params: dict[str, Any], title: str, actor: str) -> None:
        self.name, self.params, self.title, self.actor = name, params, title, actor
        self.state = "queued"
        self.fields: dict[str, Any] = {}
        self.progress, self.message, self.worker, self.attempts = 0, "", "", 0
        self.result: Any = None

    @event("Started")
    def start(self, attempt: int, worker: str) -> None:
        """Begin an attempt."""
        self.state, self.attempts, self.worker = "running", attempt, worker

    @event("Annotated")
    def annotate(self, fields: dict[str, Any]) -> None:
        """Set service fields."""
        self.fields = {**self.fields, **fields}

    @event("Progressed")
    def move(self, percent: int, message: str) -> None:
        """Say how far it is."""
        self.progress, self.message = percent, message

    @event("Succeeded")
    def succeed(self, result: dict[str, Any]) -> None:
        """End well."""
        self.state, self.result = "succeeded", result


class Renders(Application[UUID]):
    """The application of these aggregates."""


def sqlite_environment(path: Path) -> dict[str, str]:
    """Return what makes an application use an SQLite file; its commits are FULL, SQLite's default."""
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}


def aggregates(count: int, events_each: int, *, seed: int = SEED) -> Iterator[Render]:
    """Yield aggregates with as many pending events, from queued to succeeded."""
    rng = random.Random(seed)
    for _ in range(count):
        song = {"song": rng.randrange(100_000), "bpm": rng.randrange(60, 180), "style": rng.choice(["calm", "loud"])}
        job = Render("render", song, f"Song {song['song']}", "studio")
        job.start(1, f"worker-{rng.randrange(8)}")
        job.annotate({"output_dir": f"gs://songs/{song['song']}", "tracks": 4})
        for number in range(1, events_each - 3):
            job.move(100 * number // (events_each - 3), "mixing")
        job.succeed({"seconds": rng.randrange(30, 600)})
        yield job


def json_mapper() -> Mapper[Any]:
    """Return the library's mapper with its JSON transcoder."""
    transcoder = JSONTranscoder()
    for transcoding in (UUIDAsHex(), DecimalAsStr(), DatetimeAsISO()):
        transcoder.register(transcoding)
    return Mapper(transcoder)


def recorder_in(path: Path) -> SQLiteApplicationRecorder:
    """Return the library's recorder in an SQLite file."""
    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path)))
    recorder.create_table()
    return recorder


def event_store(path: Path) -> EventStore[Any]:
    """Return the library's store over it."""
    return EventStore(json_mapper(), recorder_in(path))


def stored_events(count: int, events_each: int, *, seed: int = SEED) -> Iterator[StoredEvent]:
    """Yield the events of aggregates as the library stores them."""
    mapper = json_mapper()
    for aggregate in aggregates(count, events_each, seed=seed):
        for pending in aggregate.collect_events():
            yield mapper.to_stored_event(pending)
