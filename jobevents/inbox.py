"""Jobs submitted in a caller's own transaction: a row in the inbox there, the job's first event after the commit.

The log takes one writer at a time, and a caller's transaction may stay open for long: so it writes nothing but that row. Who
works, and who asks for a job that the log does not have, brings what was committed into the log. The event has its id from
the beginning: it is there once, however often and by however many it is brought.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jobevents import codec, commands
from jobevents.commands import Submission
from jobevents.desk import Inbox, Parcel
from jobevents.emit import By, Emitter
from jobevents.errors import Conflict, Corrupt, Gone, InvalidValue, JobEventsError, KeyTaken, PermissionDenied
from jobevents.events import Event, JobQueued, JobSkipped, new_event_id
from jobevents.store import RunTable
from jobevents.telemetry import Counts

PAGE = 100  # jobs in one transaction
OWN_S = 60.0  # what was not committed for so long has most likely been rolled back; others would find it

logger = logging.getLogger(__name__)


class Intake:
    """The inbox of one log, and the way from it into the log. Safe for threads."""

    def __init__(
        self, emitter: Emitter, inbox: Inbox, runs: RunTable, counts: Counts, *, monotonic: Callable[[], float]
    ) -> None:
        """Bring nothing yet."""
        self._emitter = emitter
        self._inbox = inbox
        self._runs = runs
        self._counts = counts
        self._monotonic = monotonic
        self._own: dict[str, float] = {}  # put by this process -> until when it looks for them, monotonic seconds
        self._lock = threading.RLock()
        self._is_draining = False  # by the thread that has the lock

    def submit(self, connection: object, wanted: Submission, by: By) -> str:
        """Write a job into the inbox by the caller's connection, and return its id; it exists when that has committed.

        A job that has this id, or an unfinished one that holds the key, is returned instead, as the log has it now.

        Raises: as `commands.submit`, and what SQLAlchemy says of its connection.
        """
        draft = commands.drafted(wanted, self._emitter.clock())
        holder = self._runs.find_active(draft.event.name, draft.event.key)
        if wanted.id is not None or holder is not None:
            with self._quiet():  # who has a transaction open may not wait for one of ours: in SQLite that would not end
                found = commands.find(self._emitter, draft, holder=holder)
            if found is not None:
                return found
        event = self._emitter.first(draft.job_id, draft.draft, by)
        self._inbox.put(connection, event.job_id, codec.encode(event))
        with self._lock:
            self._own[event.job_id] = self._monotonic() + OWN_S
        return event.job_id

    def drain_own(self) -> None:
        """Drain, if jobs of this process may wait: those of the last minute that were not seen yet."""
        if self._own:
            with self._lock:
                now = self._monotonic()
                self._own = {job_id: until for job_id, until in self._own.items() if until > now}
            self.drain()

    def drain(self) -> int:
        """Bring all that was committed into the log, and return how many jobs; others may do the same meanwhile.

        A job whose key another one has got since is there, but skipped, with the reason. One that can be no job, since
        another has its id, stays in the inbox with the reason, is counted and logged.

        Raises:
            Unavailable, AppendUnknown, PermissionDenied: what the log says; the rest waits.
        """
        with self._quiet() as is_first:
            count = 0
            while is_first and (parcels := self._inbox.pending(PAGE)):
                count += self._bring(parcels)
            return count

    def fetch(self) -> int:
        """Drain for one who asks for a job; who may only read leaves that to others."""
        try:
            return self.drain()
        except PermissionDenied:
            return 0

    @contextmanager
    def _quiet(self) -> Iterator[bool]:
        """Keep this thread from draining within the block, and others until its end; gives whether it might have."""
        with self._lock:
            was_draining, self._is_draining = self._is_draining, True
            try:
                yield not was_draining
            finally:
                self._is_draining = was_draining

    def _bring(self, parcels: Sequence[Parcel]) -> int:
        events = {}
        for parcel in parcels:
            try:
                events[parcel.place] = codec.decode(parcel.body)
            except Corrupt as error:
                self._refuse(parcel, error)
        if not events:
            return 0
        try:
            self._emitter.adopt([[event] for event in events.values()])
        except (Conflict, InvalidValue):
            brought = [parcel.place for parcel in parcels if parcel.place in events and self._bring_one(parcel, events)]
        else:
            brought = list(events)
        self._inbox.drop(brought)
        for parcel in parcels:
            self._own.pop(parcel.job_id, None)
        return len(brought)

    def _bring_one(self, parcel: Parcel, events: dict[int, Event]) -> bool:
        event = events[parcel.place]
        try:
            try:
                self._emitter.adopt([[event]])
            except KeyTaken as taken:
                self._emitter.adopt([[event, _skipped(event, taken)]])
        except (Conflict, InvalidValue) as error:
            if not self._is_there(event):
                self._refuse(parcel, error)
                return False
        return True

    def _is_there(self, event: Event) -> bool:
        """Tell whether the log has the event, with whatever followed, or the same job by another event."""
        first = self._emitter.log.read(event.job_id, until=1)
        if not first or not isinstance(event, JobQueued):
            return False
        if first[0].id == event.id:
            return True
        draft = commands.Drafted(event.job_id, event, partial(JobQueued))
        try:
            return commands.find(self._emitter, draft, by=By(event.actor, event.reason, event.trace)) is not None
        except (Conflict, Gone):
            return False

    def _refuse(self, parcel: Parcel, error: JobEventsError) -> None:
        self._inbox.refuse(parcel.place, str(error))
        self._counts.add("inbox_refused")
        logger.warning(
            "a job that was submitted in a transaction is refused: it will never run job_id=%s error=%s",
            parcel.job_id,
            error,
        )


def _skipped(event: Event, taken: KeyTaken) -> Event:
    reason = f"an unfinished job held the idempotency key at the commit job_id={taken.job_id} key={taken.key}"
    skip = partial(JobSkipped, job_id=event.job_id, version=2, id=new_event_id(), at=event.at)
    return skip(actor=event.actor, reason=reason)
