"""The past: one job, or a page of all of them, as they were at an instant, after an event, or at a place in the log.

Two orders tell the past. Each event says when it was written, by its writer's clock; and it has a place, its version in the
job and its position in the log, which no clock can move. A job at an instant is the job after the last of its events that
says it was written by then, with every event that was committed before that one: a clock that went wrong moves the end of
what is folded, and never leaves a hole in it. At a position, all jobs are as every reader of the log saw them when that
event was committed. Nothing here writes.
"""

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import msgspec

from jobevents import commands, records
from jobevents.assertions import Instant
from jobevents.boundary import visible
from jobevents.errors import Corrupt, InvalidValue, Misconfigured, NotFound
from jobevents.events import JobDeleted
from jobevents.ids import shown
from jobevents.job import DELETED, Job, fold
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.reads import checked_id, version_at
from jobevents.status import Status
from jobevents.times import to_datetime
from projections.chunks import rank
from projections.folding import read
from projections.manifest import LETTERS, sequence_of
from projections.paging import adjust_item_count, meta_of
from projections.reader import LeftOut, StatusPage

PROGRESS_EVERY = 1000  # events
NAMED = 100  # jobs that cannot be read, by name
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ago = re.compile(r"-(\d{1,9})([smhd])").fullmatch
_minutes = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?=Z|[+-])").match


class Moment(msgspec.Struct, frozen=True):
    """A moment of the past; one of these says it."""

    instant: Instant | None = None  # by the clocks of those who wrote the events
    version: int = 0  # after this event of the job
    position: int = 0  # after this event of the log, in the order in which all were committed

    def __str__(self) -> str:
        """Return it as it is written."""
        if self.instant is not None:
            text: str = msgspec.to_builtins(self.instant)
            return text
        return f"#{self.version}" if self.version else f"@{self.position}"


def parse(text: str, now: datetime) -> Moment:
    """Return the moment that a text names.

    Args:
        text: an instant, `2026-11-28T09:14Z` or `-15m` (s, m, h, d before now); `#3`, after the job's event 3; or `@1234`,
            after event 1234 of the log.
        now: aware; what `-15m` counts from.

    Raises:
        InvalidValue: it names none.
    """
    ago = _ago(text)
    try:
        if ago:
            return Moment(now.astimezone(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
        if text[:1] in ("#", "@") and text[1:].isascii() and text[1:].isdecimal() and 0 < int(text[1:]) < 2**63:
            return Moment(version=int(text[1:])) if text[0] == "#" else Moment(position=int(text[1:]))
        short = _minutes(text)
        return Moment(to_datetime(f"{short[0]}:00{text[short.end() :]}" if short else text))
    except (InvalidValue, OverflowError):
        raise InvalidValue(
            f"not a moment as_of={shown(text)}: give an instant with its zone like 2026-11-28T09:14Z, -15m for a quarter of "
            "an hour ago, #3 for after the job's event 3, or @1234 for after event 1234 of the log"
        ) from None


def job_at(jobs: Jobs, job_id: str, moment: Moment) -> Job:
    """Return all that was known of a job at a moment.

    Raises:
        NotFound: there was no such job then. Gone: it was deleted by then.
        Corrupt: its history cannot be read up to there.
    """
    if moment.instant is not None:
        return jobs.job_at(job_id, moment.instant)
    if moment.version:
        return jobs.job_at(job_id, moment.version)
    _must_be_ordered(jobs)
    before = [one for one in jobs.log.records_of(checked_id(job_id)) if int(one.cursor) <= moment.position]
    if not before:
        raise NotFound(f"no such job then job_id={job_id} as_of={moment}")
    return commands.must_exist(fold(map(read, before)), job_id)


def status_at(jobs: Jobs, job_id: str, moment: Moment) -> Status:
    """Return a job's status at a moment: as `job_at`."""
    return records.status_as(Status, job_at(jobs, job_id, moment))


def page(
    jobs: Jobs,
    moment: Moment,
    state: str = "",
    *,
    name: str = "",
    queue: str = "",
    page: int = 1,
    per_page: int = 20,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
) -> StatusPage[Status]:
    """Return a page of the jobs that were there at a moment, newest first, in the states that they had; deleted since, too.

    One pass over the log. Memory holds the ids of the pages up to this one and the longest history. A job that cannot be
    read is named in `left_out`, on every page.

    Args:
        state: only jobs in this state then; `other` for all states of open text.
        name: only this kind. queue: only this queue.
        page: 1-based; past the end is the last one.
        on_progress: called with (events read, events in the log).

    Raises:
        InvalidValue: the moment is a version, which only one job has; or there is no such state.
        Misconfigured: the moment is a position, and the log has no one order.
    """
    if moment.version:
        raise InvalidValue(f"as_of={moment} is an event of one job: give an instant, or @1234 for a place in the log")
    if state and state not in LETTERS:
        raise InvalidValue(f"no such state state={shown(state)}; use one of {', '.join(LETTERS)}")
    if moment.position:
        _must_be_ordered(jobs)
    wanted = _Wanted(moment, state, name, queue)
    most = max(page, 1) * per_page
    newest: list[tuple[str, str, int]] = []  # a heap, the oldest on top: rank, id, version then
    total, left_out = 0, list[LeftOut]()
    for job_id, history in _histories(jobs, on_progress):
        try:
            version = wanted.version_in(history)
        except Corrupt as error:
            left_out += [LeftOut(job_id, str(error))] if len(left_out) < NAMED else []
            continue
        if version:
            total += 1
            push = heapq.heappush if len(newest) < most else heapq.heappushpop
            push(newest, (rank(job_id), job_id, version))
    meta = meta_of(total, page, per_page)
    shown_here = sorted(newest, reverse=True)[max(meta.from_ - 1, 0) : meta.to]
    items = [records.status_as(Status, fold(jobs.log.read(job_id, until=version))) for _, job_id, version in shown_here]
    meta = adjust_item_count(meta, len(items))
    place = {field: getattr(meta, field) for field in meta.__struct_fields__}
    return StatusPage(items=items, left_out=left_out, **place)


class _Wanted(msgspec.Struct, frozen=True):
    """Which jobs a page is of."""

    moment: Moment
    state: str
    name: str
    queue: str

    def version_in(self, history: Sequence[Record]) -> int:
        """Return the version that a job had at the moment; 0 when it was not there, or is not wanted.

        Raises:
            Corrupt: an event cannot be read.
        """
        if history[0].version > 1 and history[-1].type == JobDeleted.__name__:  # erased: nobody knows what it was
            return 0
        version = self._version(history)
        if not version or history[version - 1].type == JobDeleted.__name__:
            return 0
        if not (self.state or self.name or self.queue):
            return version
        job = fold(map(read, history[:version]))
        fits = (
            job.state != DELETED
            and (not self.state or sequence_of(job.state) == self.state)
            and (not self.name or job.name == self.name)
            and (not self.queue or job.queue == self.queue)
        )
        return version if fits else 0

    def _version(self, history: Sequence[Record]) -> int:
        if [one.version for one in history] != list(range(1, len(history) + 1)):
            raise Corrupt("its history has a hole; run: jobevents verify")
        if self.moment.instant is None:
            return sum(int(one.cursor) <= self.moment.position for one in history)
        return version_at([_said(one) for one in history], self.moment.instant)


class _Said(msgspec.Struct):
    """What is read of an event to place it."""

    version: int
    at: Instant


_decode = msgspec.json.Decoder(_Said).decode


def _said(record: Record) -> _Said:
    try:
        return _decode(record.data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Corrupt(
            f"event #{record.version} cannot be read: {visible(str(error))}; run: jobevents verify"
        ) from error


def _histories(jobs: Jobs, on_progress: Callable[[int, int], None]) -> Iterator[tuple[str, list[Record]]]:
    """Yield each job with its events."""
    done, head = 0, int(jobs.log.last_cursor() or 0) if jobs.log.ordered else 0
    told = 0
    for job_id, group in groupby(jobs.log.by_job(), key=lambda one: one.job_id):
        history = list(group)
        yield job_id, history
        done += len(history)
        if done - told >= PROGRESS_EVERY:
            told = done
            on_progress(done, max(done, head))
    on_progress(done, done)


def _must_be_ordered(jobs: Jobs) -> None:
    if not jobs.log.ordered:
        raise Misconfigured("this log has no one order over all jobs, so no place in it: give an instant, or #3")
