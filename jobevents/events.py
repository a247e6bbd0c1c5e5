"""The events: every transition of every job, as frozen tagged msgspec Structs.

One event has one canonical JSON form: `type`, the common fields, then its own; defaults are left out. The rules that keep
every released event readable for ever: a new field has a default, a type never changes, an unknown field is passed over.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from jobevents.assertions import Instant, RunChanges

Cause = Literal["retry", "rerun", "shutdown", "lost", "snooze"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=True, gc=False):
    """What all events have in common."""

    job_id: str  # the job; one stream each
    version: int  # place in the job's history: 1, 2, 3 ... without holes
    id: str  # chosen once, before the first try to append
    at: Instant  # aware UTC, the writer's clock: shown, never used for order
    actor: str = ""  # who: a person, a worker, "reaper", "foreign"
    reason: str = ""  # why, in the actor's words
    trace: str = ""  # W3C trace id of what caused it
    chain: str = ""  # set by the log when stored: hash over all bodies so far; never part of the body

    @property
    def type(self) -> str:
        """The event's type as it is stored, such as `JobQueued`."""
        return type(self).__name__

    @property
    def originator_id(self) -> str:
        """`job_id`, under the name that eventsourcing uses."""
        return self.job_id

    @property
    def originator_version(self) -> int:
        """`version`, under the name that eventsourcing uses."""
        return self.version


class JobQueued(Event, frozen=True, kw_only=True):
    """The job is wanted: it waits for a worker."""

    name: str  # which kind of job: the status's `command`
    params: Any = None  # JSON value handed to the handler, at most 64 KiB
    title: str = ""  # for people
    queue: str = "default"  # which queue hands it out
    key: str = ""  # idempotency key: one unfinished job for a name and key
    scheduled_at: Instant | None = None  # not before; None: at once
    priority: int = 0  # higher goes first
    max_attempts: int = 1  # tries before it stays failed
    external: bool = False  # delivered by the user's own task queue, never handed out by ours
    trigger: str = "manual"  # schedule, manual, retry, replay or event (behaviour M1)
    replay_of: str = ""  # the job this is a new run of
    root_id: str = ""  # first of a chain of replays


class JobStarted(Event, frozen=True, kw_only=True):
    """An attempt was granted; this event's version is the attempt's `start`."""

    attempt: int  # 1-based number of the try
    worker: str = ""  # identity of the worker process
    deadline: Instant | None = None  # after this the attempt may be taken for lost
    late: bool = False  # appended at the end of work that ran ungranted


class JobProgressed(Event, frozen=True, kw_only=True):
    """The worker says how far it is."""

    start: int  # version of the JobStarted it belongs to
    percent: int | float  # 0 to 100
    message: str = ""  # what it is doing


class JobAnnotated(Event, frozen=True, kw_only=True):
    """A title or service fields were set."""

    start: int = 0  # version of the JobStarted, 0 when no attempt did it
    command: str = ""  # new command, "" leaves it
    title: str = ""  # new title, "" leaves it
    fields: dict[str, str | int | float | bool | None] = {}  # service fields by key; None or "" takes one away


class JobSucceeded(Event, frozen=True, kw_only=True):
    """The work is done."""

    start: int  # version of the JobStarted
    result: Any = None  # JSON value, at most 64 KiB, or {"unstorable": why}


class JobFailed(Event, frozen=True, kw_only=True):
    """The attempt failed; with `retry_at` the job waits for its next try."""

    error: str  # what went wrong, for people
    start: int = 0  # version of the JobStarted, 0 when it never started
    retry_at: Instant | None = None  # when the next try is due; None: it stays failed
    kind: str = ""  # class name of the exception
    traceback: str = ""  # start and end of the traceback
    tail: tuple[str, ...] = ()  # the last lines of the attempt's log, also of what was not kept there


class JobRequeued(Event, frozen=True, kw_only=True):
    """The job waits again: another try was asked for, or its worker gave it back or died."""

    cause: Cause  # retry and rerun: a person; shutdown and snooze: try not counted; lost: counted
    start: int = 0  # version of the JobStarted that ends with it, 0 for retry and rerun
    scheduled_at: Instant | None = None  # not before; None: at once


class CancelRequested(Event, frozen=True, kw_only=True):
    """Somebody wants the job to stop: its worker heeds it, or whoever would start it."""


class JobCanceled(Event, frozen=True, kw_only=True):
    """The job was canceled."""

    start: int = 0  # version of the JobStarted, 0 when it was not running
    forced: bool = False  # its worker had not stopped, and may be working on: what that comes to is refused


class JobSkipped(Event, frozen=True, kw_only=True):
    """The job was passed over, since others of its kind were running."""


class TransitionRefused(Event, frozen=True, kw_only=True):
    """Something came too late and was not applied; changes nothing, one for each start."""

    start: int  # version of the JobStarted whose outcome was refused, 0 for work that was never granted
    tried: str  # type of the event that was refused
    state: str  # the state that it met
    detail: str = ""  # what it would have said: an error text, "ran ungranted", a foreign record


class JobRecorded(Event, frozen=True, kw_only=True):
    """A whole record was written by the kit's API, a JobStore's caller or a foreign service: a fact, as it says."""

    state: str  # the state asserted, open text
    changes: dict[
        str, Any
    ] = {}  # changed keys of the record: title, command, error, attempts, queued_at, service fields
    run: RunChanges | None = None  # changed fields of the run, by a JobStore's caller


class JobImported(Event, frozen=True, kw_only=True):
    """A record that was there before the log."""

    state: str  # the state asserted, open text
    record: dict[str, Any] = {}  # the other keys of the record as they stood, updated_at included


class JobDeleted(Event, frozen=True, kw_only=True):
    """The tombstone: the job never comes back."""

    artifacts: bool = False  # what the job produced was asked to be deleted too


AnyEvent: TypeAlias = (
    JobQueued
    | JobStarted
    | JobProgressed
    | JobAnnotated
    | JobSucceeded
    | JobFailed
    | JobRequeued
    | CancelRequested
    | JobCanceled
    | JobSkipped
    | TransitionRefused
    | JobRecorded
    | JobImported
    | JobDeleted
)

EVENT_TYPES: Mapping[str, type[Event]] = {cls.__name__: cls for cls in AnyEvent.__args__}


_ID_BYTES = 12
_DRAWN_AT_ONCE = 256  # ids: asking the OS lets go of the interpreter, and mostly another thread gets it
_drawn: list[str] = []  # ids that are not given out yet; taking one is atomic
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # they are the parent's


def new_event_id() -> str:
    """Return a fresh event id: 24 hexadecimal digits from the OS."""
    try:
        return _drawn.pop()
    except IndexError:
        drawn = os.urandom(_ID_BYTES * _DRAWN_AT_ONCE).hex()
        size = 2 * _ID_BYTES
        _drawn.extend(drawn[at : at + size] for at in range(size, len(drawn), size))
        return drawn[:size]
