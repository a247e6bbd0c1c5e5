"""Replay: every event again, in order, for whoever asks; into a view of the user's own, too. Nothing is written or published.

Events come as the log has them, a page at a time, so that memory does not grow with history. What was written by older code
is read as it always was (a field that came later has its default); what no code of today knows is put right by `upcast`,
stopped at, or passed over aloud, as asked.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import msgspec

from jobevents import boundary, codec
from jobevents.errors import InvalidValue, JobEventsError, Misconfigured, NotFound
from jobevents.events import EVENT_TYPES, Event
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.reads import checked_id
from projections.folding import read

PROGRESS_EVERY = 1000  # events

Bound: TypeAlias = datetime | int | None
"""An instant, by the clocks of the writers; or a place in the log's one order; or none."""

Upcast: TypeAlias = Mapping[str, Callable[[dict[str, Any]], dict[str, Any] | None]]
"""Type of an event as it is stored -> what makes of its JSON that of an event of today; None leaves the event out."""


class ReplayStopped(JobEventsError):
    """An event could not be read, or not be taken by a view; everything before it was."""

    def __init__(self, trouble: "Trouble", cause: Exception) -> None:
        super().__init__(
            f"replay stopped at job_id={trouble.job_id} version={trouble.version} type={boundary.visible(trouble.type, 80)} "
            f"error={trouble.error}"
        )
        self.trouble = trouble
        self.job_id = trouble.job_id
        self.version = trouble.version
        self.cause = cause


class Trouble(msgspec.Struct, frozen=True):
    """An event that was not taken, and why."""

    job_id: str
    version: int
    type: str  # as it is stored
    error: str  # class and text of what was raised


OnTrouble: TypeAlias = Callable[[Trouble], None]


class OwnView(Protocol):
    """A view of the user's own, into which history is folded; a `result()` beside it, if any, gives what came of it."""

    def apply(self, event: Event) -> object:
        """Take the next event; each job's come in order of version."""
        ...


class Folded(msgspec.Struct):
    """What came of a replay into a view."""

    events: int = 0  # taken
    troubles: int = 0  # passed over
    result: Any = None  # what the view's `result()` gives, where it has one


def replay(
    jobs: Jobs,
    *,
    since: Bound = None,
    until: Bound = None,
    only: Collection[str] = (),
    types: Collection[str] = (),
    upcast: Upcast | None = None,
    on_trouble: OnTrouble | None = None,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
) -> Iterator[Event]:
    """Yield events, each job's in order of version; in commit order where the log has one, and `only` is not given.

    It ends with the events that were there when it began.

    Args:
        since: from this instant on; or after this place in the log.
        until: before this instant; or up to and with this place.
        only: these jobs alone, one after the other: a read each.
        types: these types of events alone, such as `JobFailed`.
        upcast: for events that are not as today's code has them.
        on_trouble: called with an event that cannot be read, which is passed over; without it, replay stops there.
        on_progress: called with (events read, events to read).

    Raises:
        ReplayStopped: an event cannot be read.
        InvalidValue: a bound is no instant with a zone, a job id is none, or there is no such type.
        NotFound: there is no job of `only`.
        Misconfigured: a bound is a place, and the log has no one order.
    """
    wanted = _Wanted(since, until, frozenset(types), upcast or {})
    wanted.check(jobs)
    records = _of_jobs(jobs, only, on_progress) if only else _of_all(jobs, wanted, on_progress)
    return _events(records, wanted, on_trouble)


def fold_into(view: OwnView, events: Iterable[Event], *, on_trouble: OnTrouble | None = None) -> Folded:
    """Have a view take events, and return how many, and its result.

    Args:
        on_trouble: called with an event that the view raised at, which is passed over; without it, the fold stops there.

    Raises:
        ReplayStopped: the view raised; `cause` is what.
    """
    done = Folded()
    for event in events:
        try:
            view.apply(event)
        except Exception as error:  # whatever a user's view raises is named with its event
            trouble = _trouble(event.job_id, event.version, event.type, error)
            if on_trouble is None:
                raise ReplayStopped(trouble, error) from error
            on_trouble(trouble)
            done.troubles += 1
        else:
            done.events += 1
    result = getattr(view, "result", None)
    done.result = result() if callable(result) else None
    return done


class _Wanted(msgspec.Struct, frozen=True):
    """Which events are wanted, and how they are read."""

    since: Bound
    until: Bound
    types: frozenset[str]
    upcast: Upcast

    def check(self, jobs: Jobs) -> None:
        """Refuse what no replay can be held to."""
        for what, bound in (("since", self.since), ("until", self.until)):
            if isinstance(bound, datetime):
                boundary.check_instant(what, bound)
            elif bound is not None and not jobs.log.ordered:
                raise Misconfigured(f"this log has no one order over all jobs: give {what} as an instant")
        unknown = sorted(self.types - EVENT_TYPES.keys() - self.upcast.keys())
        if unknown:
            raise InvalidValue(f"no such event type={unknown[0]!r:.80}; use one of {', '.join(EVENT_TYPES)}")

    def is_placed(self, record: Record) -> bool:
        """Tell whether a record lies between bounds that are places."""
        position = int(record.cursor) if isinstance(self.since, int) or isinstance(self.until, int) else 0
        return not (isinstance(self.since, int) and position <= self.since) and not (
            isinstance(self.until, int) and position > self.until
        )

    def event(self, record: Record) -> Event | None:
        """Return the event in a record; None when it is not wanted.

        Raises:
            Corrupt: it cannot be read.
        """
        if self.types and record.type not in self.types:
            return None
        if record.type not in self.upcast:
            event = read(record)
        else:
            made = self.upcast[record.type](msgspec.json.decode(record.data))
            if made is None:
                return None
            event = codec.decode(msgspec.json.encode(made))
        if isinstance(self.since, datetime) and event.at < self.since:
            return None
        return None if isinstance(self.until, datetime) and event.at >= self.until else event


def _events(records: Iterator[Record], wanted: _Wanted, on_trouble: OnTrouble | None) -> Iterator[Event]:
    for record in records:
        try:
            event = wanted.event(record) if wanted.is_placed(record) else None
        except Exception as error:  # whatever an upcast raises is named with its event
            trouble = _trouble(record.job_id, record.version, record.type, error)
            if on_trouble is None:
                raise ReplayStopped(trouble, error) from error
            on_trouble(trouble)
            continue
        if event is not None:
            yield event


def _of_all(jobs: Jobs, wanted: _Wanted, on_progress: Callable[[int, int], None]) -> Iterator[Record]:
    """Yield the records of all jobs, up to the end of the log as it is now."""
    if not jobs.log.ordered:
        yield from _counted(_from_objects(jobs), 0, on_progress)
        return
    begin = wanted.since if isinstance(wanted.since, int) else 0
    head = int(jobs.log.last_cursor() or 0)
    end = min(head, wanted.until) if isinstance(wanted.until, int) else head
    told = begin
    for record in jobs.log.scan(str(begin)):
        position = int(record.cursor)
        if position > end:
            break
        if position - told >= PROGRESS_EVERY:
            told = position
            on_progress(position - begin, end - begin)
        yield record
    on_progress(max(end - begin, 0), max(end - begin, 0))


def _from_objects(jobs: Jobs) -> Iterator[Record]:
    """Yield the records of a log of objects: from its archive, if it has one, and from the log where that goes on."""
    if next(jobs.blobs.list(jobs.blob_name("segments/v1/")), None) is None:
        return jobs.log.scan()
    from projections.archive import histories  # needs pyarrow, an extra that nobody else has to have

    return histories(jobs)


def _of_jobs(jobs: Jobs, only: Collection[str], on_progress: Callable[[int, int], None]) -> Iterator[Record]:
    for job_id in dict.fromkeys(only):
        checked_id(job_id)
    for done, job_id in enumerate(dict.fromkeys(only)):
        records = jobs.log.records_of(job_id)
        if not records:
            raise NotFound(f"no such job job_id={job_id}")
        yield from records
        on_progress(done + 1, len(only))


def _counted(records: Iterable[Record], total: int, on_progress: Callable[[int, int], None]) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        if done % PROGRESS_EVERY == 0:
            on_progress(done, total)


def _trouble(job_id: str, version: int, kind: str, error: Exception) -> Trouble:
    return Trouble(job_id, version, kind, f"{type(error).__name__}: {boundary.describe(error)}")
