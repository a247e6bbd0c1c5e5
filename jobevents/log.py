"""The event log, the truth: append, read one job, scan or follow all, over eventsourcing's EventStore and any of its recorders.

Every log promises: an append that returned is durable; a job's versions are 1, 2, 3 ... without holes, each slot written
once; a job's events come in order, and every event at least once, to every reader. Two things are capabilities of the logs
in a database: the order across jobs in which events were committed (`ordered`), and that of a call of several events all are
there or none (`whole_calls`). Elsewhere a call that was cut short has left its first events, and is completed by repeating it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice, takewhile
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, cast

import msgspec
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    EventStore,
    IntegrityError,
    Notification,
    PersistenceError,
    Subscription,
)

from jobevents import codec
from jobevents.boundary import visible
from jobevents.errors import AppendUnknown, Conflict, InvalidValue, JobEventsError, Misconfigured
from jobevents.events import Event
from jobevents.job import Job
from jobevents.limits import Limit

_FEW = 50  # events of one job at a time: most have no more
SCAN_BATCH = 500  # events a page of a scan: about 200 KiB


class Head(NamedTuple):
    """Where a job's history ends."""

    version: int  # 0: no event yet
    chain: str  # chain hash of the last event


NO_HEADS: Mapping[str, Head] = {}


class Record(msgspec.Struct, frozen=True):
    """A stored event as a feed hands it out: not decoded yet, so that one that cannot be read stops nobody."""

    cursor: str  # opaque place in the feed: give it to `scan` or `subscribe` to go on after this event
    job_id: str
    version: int
    type: str
    data: bytes  # the stored bytes: body and chain

    def event(self) -> Event:
        """Decode it.

        Raises:
            Corrupt: when the bytes are no event that this version knows.
        """
        return codec.decode(self.data)


COLUMNS: Final = ("job_id", "version", "type", "data")  # what a stored event is, beside its cursor
_NOTED = dict(zip(COLUMNS, ("originator_id", "originator_version", "topic", "state"), strict=True))

Columns: TypeAlias = Sequence[Sequence[Any]]
SelectColumns: TypeAlias = Callable[[int, int, Sequence[str]], Columns]
"""(position, limit, some of COLUMNS) -> of the events after it in commit order the cursors, as numbers, and these columns."""

IterByJob: TypeAlias = Callable[[str, int], Iterator[Record]]
"""(first job id, events a read) -> the events of that job and those after it: a recorder may have it as `iter_by_job`."""


class Scanned(Protocol):
    """A recorder without one sequence over all jobs, which is read in an order of its own."""

    def scan_records(self, cursor: str, batch: int) -> Iterator[Record]:
        """Yield the events after a cursor, a job's in order; `batch` are read at a time."""
        ...


class EventLog:
    """All events of all jobs. Safe for threads; what a process may share depends on the recorder."""

    def __init__(self, recorder: AggregateRecorder, translate: Callable[[BaseException], JobEventsError]) -> None:
        """Keep events with a recorder: an ApplicationRecorder, or one that is Scanned as well."""
        self.recorder = recorder
        self.ordered = isinstance(recorder, ApplicationRecorder)  # one sequence over all jobs, in commit order
        self.whole_calls: bool = getattr(recorder, "whole_calls", True)  # of a call's events all are there, or none
        self._store: EventStore[str] = EventStore(codec.EventMapper(), recorder)
        self._select_columns: SelectColumns | None = getattr(recorder, "select_columns", None)
        self._iter_by_job: IterByJob | None = getattr(recorder, "iter_by_job", None)
        self._translate = translate

    @property
    def is_durable(self) -> bool:
        """Tell whether it outlives this process."""
        return bool(getattr(self.recorder, "is_durable", True))

    def append(
        self,
        events: Sequence[Event],
        *,
        heads: Mapping[str, Head] | None = None,
        rows: Sequence[Job] = (),
        limits: Sequence[Limit] = (),
    ) -> list[Event]:
        """Append all events or none, and return them as stored, with their chain.

        Idempotent by event id: events that are all in their slots already have succeeded. Several jobs may be in one call.
        Without `whole_calls`, what is said below to write nothing may have written the first events of the call.

        Args:
            events: 1..n; of each job, versions contiguous from its head + 1.
            heads: job id -> where its history ends, as far as the caller knows; a job left out costs one read.
            rows: jobs as they are after these events, for logs that keep a row of the current state in the transaction.
            limits: on how many jobs run, checked in the transaction for each row that runs; only of logs that keep rows.

        Raises:
            Conflict: another event is in a slot, or a history does not end as `heads` says; nothing was written.
            KeyTaken: an unfinished job holds the idempotency key of a row; nothing was written.
            Busy: as many other jobs run as a limit lets; nothing was written.
            AppendUnknown: the reply was lost; repeat the very same call, or `resolve` it, before anything else is decided.
            Gone: the job was erased.
            InvalidValue: a version would leave a hole; nothing was written.
            Unavailable, PermissionDenied, Corrupt: what the store says; nothing was written.
        """
        try:
            sealed, stored, follows = self._seal(events, heads or NO_HEADS)
            # Not EventStore.put: it makes a StoredEvent, a Recording and a Notification of each event, for nobody.
            self.recorder.insert_events(sealed, rows=rows, limits=limits, follows=follows)  # type: ignore[arg-type]  # has what is read
        except IntegrityError as error:
            return self._settle(events, error, rows)
        except PersistenceError as error:
            raise self._translate(error) from error
        return stored

    def restore(self, records: Sequence[Record], *, heads: Mapping[str, Head], rows: Sequence[Job] = ()) -> None:
        """Append stored events of another log, their bytes exactly as they are: all or none.

        Args:
            records: 1..n, checked by the caller: of each job, versions contiguous from its head + 1, chains that fit.
            heads: job id -> where its history ends; of those that are new, nothing.
            rows: as in `append`.

        Raises:
            Conflict: another event is in a slot, or a history does not end as `heads` says; nothing was written.
            KeyTaken: an unfinished job holds the idempotency key of a row; nothing was written.
            Unavailable, PermissionDenied, Corrupt: what the store says; nothing was written.
        """
        sealed = [
            codec.Sealed(one.job_id, one.version, one.type, one.data, codec.unseal(one.data)[1]) for one in records
        ]
        follows = {job_id: head for job_id, head in heads.items() if head.version}
        try:
            self.recorder.insert_events(sealed, rows=rows, follows=follows)  # type: ignore[arg-type]  # has what is read
        except IntegrityError as error:
            raise Conflict(f"another event is in the slot of one of {len(records)} error={error}") from error
        except PersistenceError as error:
            raise self._translate(error) from error

    def _seal(
        self, events: Sequence[Event], heads: Mapping[str, Head]
    ) -> tuple[list[codec.Sealed], list[Event], dict[str, Head]]:
        """Return the events for the recorder and for the caller, and what those that are not a job's first go on from."""
        sealed: list[codec.Sealed] = []
        stored: list[Event] = []
        follows: dict[str, Head] = {}
        known: dict[str, Head] = {}
        for event in events:
            job_id = event.job_id
            head = known.get(job_id)
            if head is None:
                head = heads.get(job_id)
                if head is None or head.version >= event.version:  # the slot is taken: by whom?
                    head = self._head_before(event)
                if head.version:
                    follows[job_id] = head
            if event.version != head.version + 1:
                raise InvalidValue(f"version leaves a hole job_id={job_id} found={event.version} after={head.version}")
            one, kept = codec.sealed(event, head.chain)
            sealed.append(one)
            stored.append(kept)
            if len(events) > 1:
                known[job_id] = Head(event.version, one.chain)
        return sealed, stored, follows

    def _head_before(self, event: Event) -> Head:
        """Return the head that the event would follow; a slot that is taken already is found out by the insert."""
        if event.version <= 1:
            return Head(0, codec.NO_CHAIN)
        stored = self.recorder.select_events(event.job_id, lte=event.version - 1, desc=True, limit=1)
        return _head_of(stored)

    def _settle(self, events: Sequence[Event], error: IntegrityError, rows: Sequence[Job]) -> list[Event]:
        """Tell our own earlier success from somebody else's event in the slot, and complete a call that was cut short."""
        found: list[Event] = []
        missing: list[Event] = []
        for event in events:
            stored = self.read(event.job_id, after=event.version - 1, until=event.version)
            if not stored:
                missing.append(event)
            elif stored[0].id != event.id:
                raise Conflict(
                    f"another event is in the slot job_id={event.job_id} version={event.version} "
                    f"tried={event.type} found={visible(stored[0].type, 80)}"
                ) from error
            else:
                found.append(stored[0])
        if not missing:
            return found
        if not found or self.whole_calls:
            raise Conflict(
                f"history does not end where this event goes on job_id={missing[0].job_id} version={missing[0].version} "
                f"tried={missing[0].type}: was the log replaced by an older copy? error={error}"
            ) from error
        known = {event.id: event for event in (*found, *self.append(missing, rows=rows))}
        return [known[event.id] for event in events]

    def resolve(self, unknown: AppendUnknown) -> bool | None:
        """Look for the event of an append whose outcome is unknown: one read.

        True: it is in the log. False: another event has its slot, and it never will be. None: the slot is empty, which proves
        nothing, as a write may land late.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        stored = self.read(unknown.job_id, after=unknown.version - 1, until=unknown.version)
        return stored[0].id == unknown.event_id if stored else None

    def read(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return the job's events with versions above `after`, up to and with `until`; none when there is no such job.

        Raises:
            Corrupt: one of them cannot be decoded.
            Unavailable, PermissionDenied: what the store says.
        """
        try:
            return list(self._store.get(job_id, gt=after, lte=until))  # type: ignore[arg-type]  # our mapper makes Events
        except PersistenceError as error:
            raise self._translate(error) from error

    def read_raw(self, job_id: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return the job's events undecoded, those of `read`, for proof and repair; their cursor is empty."""
        try:
            stored = self.recorder.select_events(job_id, gt=after or None, lte=until)
        except PersistenceError as error:
            raise self._translate(error) from error
        return [Record("", job_id, s.originator_version, s.topic, s.state) for s in stored]

    def head(self, job_id: str) -> Head:
        """Return where the job's history ends: one read of one event."""
        try:
            return _head_of(self.recorder.select_events(job_id, desc=True, limit=1))
        except PersistenceError as error:
            raise self._translate(error) from error

    def scan(self, cursor: str = "", *, limit: int | None = None, batch: int = SCAN_BATCH) -> Iterator[Record]:
        """Yield the events after `cursor` in commit order, up to now or to `limit`; none is ever skipped.

        A log that is not `ordered` yields them in an order of its own: an event appended meanwhile may be behind the cursor,
        and is found by the next scan from the start. Memory is bounded by `batch` events; each batch is one read.
        """
        if not self.ordered:
            yield from islice(cast(Scanned, self.recorder).scan_records(cursor, batch), limit)
            return
        position = int(cursor or 0)
        left = limit
        while left is None or left > 0:
            want = batch if left is None else min(batch, left)
            page = self._page(position, want)
            yield from page
            if len(page) < want:
                return
            position = int(page[-1].cursor)
            left = None if left is None else left - len(page)

    def by_job(
        self, start: str = "", *, batch: int = SCAN_BATCH, after: Callable[[str], int] | None = None
    ) -> Iterator[Record]:
        """Yield every job's events, one job after the other from `start` on, each as it stands: undecoded, by version.

        Jobs come in the order of their ids' UTF-8 bytes. Of a slot that holds several events, which only damage can
        bring about, all are given. Jobs that come while it runs may be missed. Memory is bounded by `batch` events, each
        batch is one read; a recorder that cannot do that is scanned once, for the ids, which are then held.

        Args:
            after: job id -> the version after which its events are wanted; a log of objects does not read the others.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the store says.
        """
        tails = getattr(self.recorder, "iter_tails", None)
        if after is not None:
            whole = self.by_job(start, batch=batch) if tails is None else tails(start, after)
            for job_id, records in groupby(whole, key=attrgetter("job_id")):
                known = after(job_id)
                yield from (one for one in records if one.version > known)
            return
        try:
            if self._iter_by_job is not None:
                yield from self._iter_by_job(start, batch)
                return
        except PersistenceError as error:
            raise self._translate(error) from error
        found = {record.job_id for record in self.scan(batch=batch)}
        for job_id in sorted(one for one in found if one >= start):
            yield from self.read_raw(job_id)

    def records_of(self, job_id: str) -> list[Record]:
        """Return one job's events as `by_job` gives them: undecoded, with their cursors where the log has one order."""
        if not self.ordered:
            return self.read_raw(job_id)
        return list(takewhile(lambda one: one.job_id == job_id, self.by_job(job_id, batch=_FEW)))

    def columns(self, names: Sequence[str], *, until: int, batch: int = SCAN_BATCH) -> Iterator[Columns]:
        """Yield batches of the events up to a cursor, in commit order: their cursors as numbers, then each of these COLUMNS.

        What is not asked for is not read, where the recorder can do that; no object is made for an event.
        Raises Misconfigured if the log is not `ordered`, and what the store says.
        """
        position = 0
        while position < until:
            found = self._columns(position, batch, names)
            if not found or not found[0]:
                return
            position = found[0][-1]
            within = len(found[0]) if position <= until else bisect_right(found[0], until)
            yield [column[:within] for column in found]

    def _page(self, position: int, want: int) -> Sequence[Record]:
        found = self._columns(position, want, COLUMNS)
        return list(map(Record, map(str, found[0]), *found[1:])) if found else []

    def _columns(self, position: int, want: int, names: Sequence[str]) -> Columns:
        try:
            if self._select_columns is not None:
                return self._select_columns(position, want, names)
            found = self._sequence().select_notifications(position, want, inclusive_of_start=False)
        except PersistenceError as error:
            raise self._translate(error) from error
        return [[getattr(one, name) for one in found] for name in ("id", *(_NOTED[name] for name in names))]

    def last_cursor(self) -> str:
        """Return the cursor of the last committed event, or "" when there is none.

        Raises:
            Misconfigured: the log is not `ordered`.
        """
        try:
            return str(self._sequence().max_notification_id() or "")
        except PersistenceError as error:
            raise self._translate(error) from error

    def subscribe(self, cursor: str = "") -> "Feed":
        """Return an iterator over the events after `cursor` that waits for new ones; close it, from any thread, to end it.

        Raises:
            Misconfigured: the log is not `ordered`.
        """
        return Feed(self._sequence().subscribe(gt=int(cursor or 0)), self._translate)

    def _sequence(self) -> ApplicationRecorder:
        if not self.ordered:
            raise Misconfigured("this log has no one sequence to follow: scan it, or subscribe to its topic")
        return cast(ApplicationRecorder, self.recorder)

    def close(self) -> None:
        """Release connections; any number of times."""
        close: Callable[[], None] | None = getattr(self.recorder, "close", None)
        if close is not None:
            close()


class Feed:
    """Committed events one after the other, then new ones as they are committed."""

    def __init__(self, subscription: Subscription[Any], translate: Callable[[BaseException], JobEventsError]) -> None:
        self._subscription = subscription
        self._translate = translate
        subscription.__enter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        try:
            return _record(next(self._subscription))
        except PersistenceError as error:
            raise self._translate(error) from error

    def close(self) -> None:
        """End the iteration and release the thread behind it."""
        self._subscription.__exit__(None, None, None)


def _record(notification: Notification) -> Record:
    job_id = str(notification.originator_id)
    return Record(str(notification.id), job_id, notification.originator_version, notification.topic, notification.state)


def _head_of(stored: Sequence[Any]) -> Head:
    return Head(stored[0].originator_version, codec.unseal(stored[0].state)[1]) if stored else Head(0, codec.NO_CHAIN)
