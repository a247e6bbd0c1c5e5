"""Every write takes this way: fold the job, decide, check the transition, append, then tell the observers.

The append decides races: a decision is made on the state as this process knows it, and when another event took the slot,
that event is folded in and the decision is made again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from lru import LRU

from jobevents import boundary, codec
from jobevents.errors import AppendUnknown, Busy, Conflict, Corrupt, Gone, JobEventsError, KeyTaken, Unavailable
from jobevents.events import Event, new_event_id
from jobevents.job import Job, check, fold
from jobevents.limits import Limit
from jobevents.log import NO_HEADS, EventLog, Head

CACHED_JOBS = 4096  # folded jobs a process keeps: about 2 KiB each

Clock: TypeAlias = Callable[[], datetime]
Draft: TypeAlias = Callable[..., Event]
"""An event but for the common fields, such as `partial(JobStarted, attempt=1)`."""
Decide: TypeAlias = Callable[[Job], Iterable[Draft]]
"""Look at a job and say what should be appended; nothing when there is nothing to do. May be called more than once."""
Recall: TypeAlias = Callable[[str], Job | None]
"""A job as a view has it, to read on from; None: read its history. It may be old, and is held against the log."""

_NO_HEAD = Head(0, "")

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Told of a job after its events were appended, in the appending thread; what it raises is logged, never passed on."""

    def __call__(self, job: Job, events: Sequence[Event]) -> None:
        """Take notice of `events`, after which the job is `job`."""


class By(msgspec.Struct, frozen=True):
    """Who writes, why, and through what."""

    actor: str = ""
    reason: str = ""
    trace: str = ""


class Change(msgspec.Struct, frozen=True):
    """What came of a decision."""

    job: Job  # the job afterwards
    events: Sequence[Event] = ()  # what was appended, in order


class _Unsettled(NamedTuple):
    """An append of one job whose outcome is unknown."""

    events: Sequence[Event]
    head: Head
    after: Job  # the job when they are in the log


class Wanted(msgspec.Struct, frozen=True):
    """A change that is wanted of one job."""

    job_id: str
    decide: Decide
    by: By


class Emitter:
    """Appends what callers decide, and keeps the jobs it folded. Safe for threads.

    Where the reply to an append was lost and it is not known whether the log has it, nothing else is decided on that job here
    before it is: the same events are appended again, which succeeds if they are there.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        clock: Clock,
        observers: Sequence[Observer] = (),
        new_id: Callable[[], str] = new_event_id,
    ) -> None:
        """Write to a log.

        Args:
            clock: aware UTC now.
            observers: told of every change.
            new_id: makes the ids of events, no two alike.
        """
        self.log = log
        self.clock: Clock = lambda: boundary.check_instant("the clock", clock())
        self._observers = list(observers)
        self._new_id = new_id
        self._jobs: LRU[str, Job] = LRU(CACHED_JOBS)
        self._unsettled: LRU[str, _Unsettled] = LRU(CACHED_JOBS)
        self._lock = threading.Lock()
        self.fetch: Callable[[], int] | None = None  # brings into the log what was committed elsewhere
        self.recall: Recall | None = None
        self.load_each: Callable[[Sequence[str]], list[Job]] = lambda job_ids: [self.load(one) for one in job_ids]
        self.heed: Callable[[str], None] | None = None  # brings into the log what others wrote over a job's status

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on."""
        self._observers.append(observer)

    def load(self, job_id: str) -> Job:
        """Return the job as the log has it now: the cached fold, and one read of its last event and of what came after it.

        A job without events has version 0.

        Raises:
            Corrupt, Unavailable, PermissionDenied: what the log says.
        """
        return self._refresh(job_id, self.cached(job_id))

    def learn(self, job_id: str, history: Sequence[bytes]) -> Job | None:
        """Keep what all the stored events of a job come to, and return it; None for none, and for what the next reader meets."""
        known = self.cached(job_id)
        if known is not None and known.version >= len(history) > 0:
            return known
        try:
            events = [codec.decode(data) for data in history]
            job = fold(events)
        except Corrupt:
            return None
        if not job.version or any(event.job_id != job_id for event in events):
            return None
        self._keep(job)
        return job

    def change(self, job_id: str, decide: Decide, by: By, *, limits: Sequence[Limit] = ()) -> Change:
        """Append what `decide` asks for, all of it or nothing, and return the job afterwards.

        Args:
            limits: on how many jobs run, checked with the append if the job runs after it.

        Raises:
            IllegalTransition: the job's state, read afresh, does not allow it.
            KeyTaken: an unfinished job holds the idempotency key.
            Conflict: the log refuses the events, though their slots are free.
            Busy: as many other jobs run as a limit lets.
            AppendUnknown, Unavailable, PermissionDenied, Corrupt: what the log says.
            Whatever `decide` raises, if it does so on the state read afresh.
        """
        self._settle_first([job_id])
        job = self.cached(job_id)
        fresh = job is None
        if job is None:
            job = self._refresh(job_id, None)
        while True:
            refused: Conflict | None = None
            try:
                events = self._make(job, decide(job), self._common(by))
            except JobEventsError:
                if fresh:
                    raise
                events = []
            if events:
                try:
                    return self._append_all([(job, events)], limits)[0]
                except KeyTaken:
                    raise
                except Conflict as error:
                    refused = error
            elif fresh:
                return Change(job)
            found = self._refresh(job_id, job)
            if refused is not None and (found.version, found.chain) == (job.version, job.chain):
                raise refused  # not by an event that took the slot: the same would be refused for ever
            job, fresh = found, True

    def create(self, drafts: Mapping[str, Draft], by: By) -> dict[str, Event]:
        """Append the first event of several new jobs in one transaction.

        Raises:
            Conflict: one of the jobs exists already; nothing was written.
            KeyTaken: an unfinished job holds one of the idempotency keys; nothing was written.
        """
        self._settle_first(drafts)
        common = self._common(by)
        made = {job_id: self._make(Job(job_id=job_id), [draft], common)[0] for job_id, draft in drafts.items()}
        rows = [fold([event]) for event in made.values()]
        stored = self._write(list(made.values()), rows)
        for job, event in zip(rows, stored, strict=True):
            job.chain = event.chain
            self._done(job, [event])
        return {event.job_id: event for event in stored}

    def first(self, job_id: str, draft: Draft, by: By) -> Event:
        """Return the first event of a new job, complete and checked, not appended."""
        return self._make(Job(job_id=job_id), [draft], self._common(by))[0]

    def adopt(self, histories: Sequence[Sequence[Event]]) -> None:
        """Append the first events of new jobs, made by `first`, in one transaction; nothing when all of them are there.

        Raises: as `create`.
        """
        jobs = [fold(events) for events in histories]
        stored = iter(self._write([event for events in histories for event in events], jobs))
        for job, events in zip(jobs, histories, strict=True):
            own = [next(stored) for _ in events]
            job.chain = own[-1].chain
            self._done(job, own)

    def tell(self, job: Job, events: Sequence[Event]) -> None:
        """Have observers take notice of what was brought into the log past this emitter: the job is as after `events`."""
        self._done(job, events)

    def change_each(self, job_ids: Sequence[str], decide: Decide, by: By) -> list[Change]:
        """Make one decision on each of several jobs, and append what comes of them in one transaction, unless others interfere.

        Raises: as `change`; some jobs may have been changed then.
        """
        self._settle_first(job_ids)
        jobs = self.load_each(job_ids)
        common = self._common(by)
        made = [(job, self._make(job, decide(job), common)) for job in jobs]
        try:
            done = {change.job.job_id: change for change in self._append_all([one for one in made if one[1]])}
        except Conflict:
            return [self.change(job_id, decide, by) for job_id in job_ids]
        return [done.get(job.job_id) or Change(job) for job in jobs]

    def change_together(self, wanted: Sequence[Wanted]) -> list[Change | AppendUnknown | None]:
        """Append what is wanted of several jobs in one transaction; None for what was not written, with whatever is the matter.

        It is to be asked for by itself then, which tells. AppendUnknown: the reply was lost, and `settle_own` tells of it. No
        second change of a job is made here, and none of one with an append that is not settled yet.

        Raises:
            Whatever a `decide` raises that is no error of ours.
        """
        made: dict[str, tuple[Job, list[Event]]] = {}
        commons: dict[By, dict[str, Any]] = {}  # mostly one for all
        for one in wanted if self.log.whole_calls else ():
            job_id = one.job_id
            if job_id not in made and job_id not in self._unsettled:
                made[job_id] = Job(job_id), []
                with suppress(JobEventsError):
                    job = self.cached(job_id) or self._refresh(job_id, None)
                    common = commons.get(one.by) or commons.setdefault(one.by, self._common(one.by))
                    made[job_id] = job, self._make(job, one.decide(job), common)
        tried = [one for one in made.values() if one[1]]
        done: dict[str, Change | AppendUnknown] = {}
        try:
            done = {change.job.job_id: change for change in self._append_all(tried)}
        except AppendUnknown as error:
            done = {job.job_id: error for job, _ in tried}
        except JobEventsError:
            pass
        return [done.pop(one.job_id, None) for one in wanted]

    def _append_all(self, made: Sequence[tuple[Job, list[Event]]], limits: Sequence[Limit] = ()) -> list[Change]:
        """Append events of several jobs, in one transaction."""
        if not made:
            return []
        afters = [fold(events, job) for job, events in made]
        heads = {job.job_id: Head(job.version, job.chain) for job, _ in made}
        stored = iter(self._write([event for _, events in made for event in events], afters, heads, limits))
        changes = []
        for (_, events), after in zip(made, afters, strict=True):
            own = [next(stored) for _ in events]
            after.chain = own[-1].chain
            changes.append(self._done(after, own))
        return changes

    def _make(self, job: Job, drafts: Iterable[Draft], common: Mapping[str, Any]) -> list[Event]:
        """Complete the drafts, by what `_common` gives, and check each against the state that those before it lead to."""
        events: list[Event] = []
        for draft in drafts:
            event = draft(job_id=job.job_id, version=job.version + len(events) + 1, id=self._new_id(), **common)
            check(fold(events, job) if events else job, event)
            events.append(event)
        return events

    def _common(self, by: By) -> dict[str, Any]:  # Any: as the events' fields
        common: dict[str, Any] = {"at": self.clock()}
        for name, text, limit in (
            ("actor", by.actor, boundary.NAME_LIMIT),
            ("reason", by.reason, boundary.REASON_LIMIT),
            ("trace", by.trace, boundary.NAME_LIMIT),
        ):
            if text:
                common[name] = boundary.clean_text(text, limit, name)
        return common

    def _write(
        self,
        events: Sequence[Event],
        rows: Sequence[Job],
        heads: Mapping[str, Head] = NO_HEADS,
        limits: Sequence[Limit] = (),
    ) -> list[Event]:
        """Append, and remember what it is not known of whether it was."""
        try:
            return self.log.append(events, heads=heads, rows=rows, limits=limits)
        except AppendUnknown:
            with self._lock:
                for after in rows:
                    own = [event for event in events if event.job_id == after.job_id]
                    self._unsettled[after.job_id] = _Unsettled(own, heads.get(after.job_id, _NO_HEAD), after)
            raise

    def settle(self, unknown: AppendUnknown) -> Change | None:
        """Find out what came of an append: the change if it is in the log, None if it never will be.

        What this process tried itself is appended again, the same events: one write. Else the log is read.

        Raises:
            AppendUnknown: it cannot be known yet.
            Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        with self._lock:
            tried = self._unsettled.get(unknown.job_id)
        if tried is not None and any(event.id == unknown.event_id for event in tried.events):
            return self._again(unknown.job_id, tried)
        landed = self.log.resolve(unknown)
        if landed is None:
            raise unknown
        if not landed:
            return None
        events = self.log.read(unknown.job_id, after=unknown.version - 1, until=unknown.version)
        return Change(self.load(unknown.job_id), events)

    def settle_own(self, job_id: str) -> Change | None:
        """Find out what came of an append of this process of which it is not known; None if it is not there, or none is unknown.

        Raises: as `settle`.
        """
        with self._lock:
            tried = self._unsettled.get(job_id)
        return None if tried is None else self._again(job_id, tried)

    def _settle_first(self, job_ids: Iterable[str]) -> None:
        """Find out what came of earlier appends to jobs before anything else is decided on them."""
        for job_id in job_ids if self._unsettled else ():
            try:
                self.settle_own(job_id)
            except AppendUnknown as error:
                raise Unavailable(
                    f"an earlier append is not known to be there, nothing was decided: {error}"
                ) from error

    def _again(self, job_id: str, tried: _Unsettled) -> Change | None:
        """Append the same events again; None when another event has their place."""
        try:
            stored = self.log.append(tried.events, heads={job_id: tried.head}, rows=(tried.after,))
        except (Conflict, Busy, Gone):
            stored = []
        with self._lock:
            if self._unsettled.get(job_id) is tried:
                self._unsettled.pop(job_id, None)
        if not stored:
            return None
        tried.after.chain = stored[-1].chain
        return self._done(tried.after, stored)

    def _done(self, job: Job, events: Sequence[Event]) -> Change:
        self._keep(job)
        for observer in self._observers:
            try:
                observer(job, events)
            except Exception:  # the event is stored: what a view does with it is the view's trouble
                logger.warning(
                    "an observer raised an error; the event is kept job_id=%s version=%d",
                    job.job_id,
                    job.version,
                    exc_info=True,
                )
        return Change(job, events)

    def cached(self, job_id: str) -> Job | None:
        """Return the job as this process last saw it; None when it does not remember. No I/O."""
        with self._lock:
            return self._jobs.get(job_id)

    def remember(self, job: Job) -> None:
        """Go on from a job that was read elsewhere, unless a newer one is known; it is held against the log when it is used."""
        self._keep(job)

    def _keep(self, job: Job) -> None:
        with self._lock:
            known = self._jobs.get(job.job_id)
            if known is None or known.version < job.version:
                self._jobs[job.job_id] = job

    def _forget(self, job_id: str) -> None:
        with self._lock:
            self._jobs.pop(job_id, None)

    def _refresh(self, job_id: str, job: Job | None) -> Job:
        """Fold in what came after `job`; where its last event is not there any more, the log is another: fold all anew."""
        if job is None and self.recall is not None:
            job = self.recall(job_id)
        known = job.version if job else 0
        news = self.log.read(job_id, after=max(0, known - 1))
        if job is not None and known:
            if news and news[0].chain == job.chain:
                if len(news) == 1:
                    return job
            else:
                logger.warning("history was replaced, the job is folded anew job_id=%s known_version=%d", job_id, known)
                self._forget(job_id)
                news, job = self.log.read(job_id), None
        if job is None and not news and self.fetch is not None:
            self.fetch()
            news = self.log.read(job_id)
        job = fold(news, job, job_id=job_id)
        if job.version:
            self._keep(job)
        return job
