"""What the log says of a job: its status and all that is known of it now, its history, and how it was at an instant."""

import copy
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from jobevents import boundary, commands, ids, records
from jobevents.emit import Emitter
from jobevents.errors import NotFound
from jobevents.events import Event
from jobevents.job import Job, fold
from jobevents.log import EventLog
from jobevents.status import Status

S = TypeVar("S", bound=Status)


class Reads:
    """The reading half of Jobs: answers from the log, never older than what this process wrote."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    @property
    def emitter(self) -> Emitter:
        """The way of every write to the log; for views that write down what other services did."""
        return self._emitter

    @property
    def log(self) -> EventLog:
        """The event log: the truth."""
        return self._emitter.log

    def get(self, job_id: str) -> Status:
        """Return the status as the log has it now.

        Raises:
            NotFound: there is no such job. Gone: it was deleted.
        """
        return self.get_as(Status, job_id)

    def get_as(self, type: type[S], job_id: str) -> S:  # reads as it should
        """Return the status as a type with service fields.

        Raises:
            NotFound: there is no such job. Gone: it was deleted.
            Corrupt: its fields do not fit the type.
        """
        return records.status_as(type, self.job(job_id))

    def job(self, job_id: str) -> Job:
        """Return all that is known of a job: params, result, worker, cancel, beside its status.

        Raises:
            NotFound: there is no such job. Gone: it was deleted.
        """
        job_id = checked_id(job_id)
        return copy.copy(commands.must_exist(self._emitter.load(job_id), job_id))

    def history(self, job_id: str) -> list[Event]:
        """Return every event of a job, the tombstone of a deleted one too.

        Raises:
            NotFound: there is no such job.
        """
        job_id = checked_id(job_id)
        events = self.log.read(job_id)
        if not events and self._emitter.load(job_id).version:  # it was in the inbox
            events = self.log.read(job_id)
        if not events:
            raise NotFound(f"no such job job_id={job_id}")
        return events

    def status_at(self, job_id: str, when: datetime | int) -> Status:
        """Return the status as it was at an instant, or after one of the job's events.

        An instant is compared with what events say of when they were written, by their writers' clocks. Order is by
        version: the status is that after the last event written by then, with all that were committed before it, whatever
        they say. So a clock that went wrong moves the end of what is folded, and never leaves a hole in it.

        Args:
            when: aware; or the version of the event.

        Raises:
            NotFound: there was no such job then, or no such event. Gone: it was deleted by then.
        """
        return records.status_as(Status, self.job_at(job_id, when))

    def job_at(self, job_id: str, when: datetime | int) -> Job:
        """Return all that was known of a job at an instant, or after one of its events: as `status_at`.

        Raises:
            NotFound: there was no such job then, or no such event. Gone: it was deleted by then.
        """
        events = self.history(job_id)
        if events[0].version > 1:  # erased: what it was is not known any more
            return commands.must_exist(fold(events), job_id)
        if isinstance(when, int):
            if not 1 <= when <= len(events):
                raise NotFound(f"no such event job_id={job_id} version={when} last={len(events)}")
            last = when
        else:
            last = version_at(events, boundary.check_instant("when", when))
        if not last:
            raise NotFound(f"no such job then job_id={job_id} first={events[0].at.isoformat()}")
        return commands.must_exist(fold(events[:last]), job_id)


class Told(Protocol):
    """An event, as far as it says when it was written."""

    @property
    def version(self) -> int:
        """Its place in the job's history."""
        ...

    @property
    def at(self) -> datetime:
        """Aware; by its writer's clock."""
        ...


def version_at(events: Iterable[Told], when: datetime) -> int:
    """Return the version that a job had at an instant: that of its last event that says it was written by then; 0 for none."""
    return max((event.version for event in events if event.at <= when), default=0)


def checked_id(text: str) -> str:
    """Return a job id as it is.

    Raises:
        InvalidJobId: it is none.
    """
    ids.validate(text)
    return text
