"""The status record to bytes and back, byte for byte as Go writes it."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from benchmarks.data import job_ids, states
from benchmarks.model import Repeat, Setting
from jobevents.status import Status, decode, encode

T = TypeVar("T")


class Bare(msgspec.Struct, omit_defaults=True):
    """The same keys, without any promise about their values."""

    job_id: str
    command: str = ""
    state: str = ""
    title: str = ""
    error: str = ""
    attempts: int = 0
    queued_at: str = ""
    updated_at: str = ""
    version: int = 0


@dataclasses.dataclass
class Plain:
    """The same, as a program without libraries would hold it."""

    job_id: str
    command: str
    state: str
    title: str
    attempts: int
    queued_at: str
    updated_at: str
    version: int


@contextmanager
def ours_encode(setting: Setting) -> Iterator[Repeat]:
    """status.encode: checked, times in their normal form, five characters escaped as Go does."""
    yield _each(encode, _records(Status, setting.size))


@contextmanager
def limit_encode(setting: Setting) -> Iterator[Repeat]:
    """msgspec's encoder over a bare Struct."""
    yield _each(msgspec.json.Encoder().encode, _records(Bare, setting.size))


@contextmanager
def peer_encode(setting: Setting) -> Iterator[Repeat]:
    """The standard library's json over a dataclass."""
    yield _each(lambda record: json.dumps(vars(record)).encode(), _records(Plain, setting.size))


@contextmanager
def ours_decode(setting: Setting) -> Iterator[Repeat]:
    """status.decode: as leniently as Go reads."""
    yield _each(decode, [encode(record) for record in _records(Status, setting.size)])


@contextmanager
def limit_decode(setting: Setting) -> Iterator[Repeat]:
    """msgspec's decoder of a bare Struct, of the same bytes."""
    yield _each(msgspec.json.Decoder(Bare).decode, [encode(record) for record in _records(Status, setting.size)])


@contextmanager
def peer_decode(setting: Setting) -> Iterator[Repeat]:
    """The standard library's json into a dataclass, of the same bytes."""
    yield _each(lambda data: Plain(**json.loads(data)), [encode(record) for record in _records(Status, setting.size)])


def _records(make: Callable[..., T], count: int) -> list[T]:
    pairs = zip(job_ids(count), states(count), strict=True)
    return [
        make(
            job_id=job_id,
            command="render",
            state=state,
            title="Song 4711",
            attempts=1,
            queued_at="2026-07-26T12:00:31.5Z",
            updated_at="2026-07-26T12:04:02.123456Z",
            version=5,
        )
        for job_id, state in pairs
    ]


def _each(do: Callable[[T], object], values: Sequence[T]) -> Repeat:
    def work() -> int:
        for value in values:
            do(value)
        return len(values)

    return lambda: work
