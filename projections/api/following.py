"""What those who follow a log are sent, in the form of server-sent events, and how they are woken. No HTTP library.

Nothing is pushed: each follower reads pages of its own from its own place, when it has sent the one before. So a slow one
holds a page, and is merely behind; one that was cut off goes on from the last id that it got.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

import msgspec

from jobevents.desk import Alarm
from jobevents.errors import Corrupt, InvalidValue
from jobevents.log import EventLog, Record
from projections.api.problems import CannotFilter, TooMany, refusal_of
from projections.api.questions import Questions
from projections.api.shapes import Unreadable

MOST: Final = 500  # followers at once: about 100 KB each, with their connections
PACE_S: Final = 0.1  # between two wakes: what is committed in between is sent together
PATIENCE_S: Final = 1.0  # all look again after this: nothing wakes them for log lines, and a hint may be lost
RETRY_MS: Final = 2000  # after which a browser that was cut off comes back

_RECORDS: Final = 200  # events of a page
_BYTES: Final = 256 * 1024  # of a page, but one event at least
_KEPT: Final = 4  # pages that followers share: nearly all are at the end
_LINES: Final = 200  # log lines of a page


class Feed(Protocol):
    """What one follower reads. Both may block."""

    def begin(self) -> bytes:
        """Return what is sent first."""
        ...

    def read(self) -> bytes:
        """Return what is to be sent next; nothing when everything up to now has been.

        Raises:
            Unavailable, PermissionDenied, Corrupt, Gone: what the log says.
        """
        ...


class Hint(msgspec.Struct, frozen=True):
    """There is more."""

    position: int  # of the log: everything up to it was there when this was sent
    at: datetime  # when it was sent, by the server's clock


class Bell:
    """Wakes all who follow: one thread while there are any, none otherwise. Safe for threads."""

    def __init__(self, alarm: Alarm | None, most: int = MOST) -> None:
        """Wake them after commits.

        Args:
            alarm: of the log; None: it has none, and they look every second.
            most: how many there may be.
        """
        self._alarm = alarm
        self._most = most
        self._lock = threading.Lock()
        self._followers: frozenset[Follower] = frozenset()
        self.is_over = False  # nobody follows any more
        self._ended = threading.Event()
        self._woken = threading.Event()

    def enter(self) -> "Follower":
        """Return a place among those who are woken, for the event loop that runs; to be left at the end.

        Raises:
            TooMany: there are as many as may be.
        """
        with self._lock:
            if self.is_over:
                raise TooMany("the server ends")
            if len(self._followers) >= self._most:
                raise TooMany(f"as many streams are open as may be limit={self._most}")
            follower = Follower(self)
            self._followers |= {follower}
            if len(self._followers) == 1:
                self._ended, self._woken = threading.Event(), threading.Event()
                given = (self._ended, self._woken)
                threading.Thread(target=self._run, args=given, name="jobevents-bell", daemon=True).start()
            return follower

    def leave(self, follower: "Follower") -> None:
        """Wake it no more, any number of times; the last one to go ends the thread."""
        with self._lock:
            was_there = follower in self._followers
            self._followers -= {follower}
            if was_there and not self._followers:
                self._ended.set()
                self._woken.set()

    def end(self) -> None:
        """Have all who follow end, and let in no more: for the end of a server, which would wait for them."""
        with self._lock:
            self.is_over = True
            for follower in self._followers:
                follower.ring()

    def _run(self, ended: threading.Event, woken: threading.Event) -> None:
        if self._alarm is not None:
            self._alarm.listen(woken)
        try:
            while not ended.is_set():
                woken.wait(PATIENCE_S)
                woken.clear()
                for follower in self._followers:
                    follower.ring()
                ended.wait(PACE_S)
        finally:
            if self._alarm is not None:
                self._alarm.unlisten(woken)


class Follower:
    """One who is woken, in its event loop."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake it, from whatever thread."""
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:  # its loop is closed, and nobody waits there
            self.leave()

    async def wait(self) -> bool:
        """Wait until there may be more; False when it is over."""
        await self._rung.wait()
        self._rung.clear()
        return not self._bell.is_over

    def leave(self) -> None:
        """Wake it no more; any number of times."""
        self._bell.leave(self)


class Page:
    """Events that follow a place, each written once for all who read it."""

    def __init__(self, records: list[Record], write: "Writer") -> None:
        self.records = records
        self._write = write
        self._written: dict[int, bytes] = {}

    def line(self, number: int) -> bytes:
        """Return an event of the page as it is sent."""
        found = self._written.get(number)
        if found is None:
            found = self._written[number] = self._write(self.records[number])
        return found


class Writer(Protocol):
    """Writes an event as it is sent."""

    def __call__(self, record: Record) -> bytes: ...


class Pages:
    """Pages of a log in its one order, the last ones kept. Safe for threads."""

    def __init__(self, log: EventLog, write: Writer) -> None:
        self._log = log
        self._write = write
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Page] = OrderedDict()

    def after(self, position: int) -> Page:
        """Return the page after a place; one that was read before may end before the log does, and is followed by another.

        Raises: as `EventLog.scan`.
        """
        with self._lock:
            kept = self._kept.get(position)
        if kept is not None:
            return kept
        records: list[Record] = []
        size = 0
        for record in self._log.scan(str(position), limit=_RECORDS, batch=_RECORDS):
            size += len(record.data)
            if records and size > _BYTES:
                break
            records.append(record)
        page = Page(records, self._write)
        if records:
            with self._lock:
                self._kept[position] = page
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return page


class EventFeed:
    """Events of a log in its one order, of one job or type if it is so wanted."""

    def __init__(self, pages: Pages, position: int, job_id: str = "", type: str = "") -> None:
        self._pages = pages
        self._position = position
        self._job_id = job_id
        self._type = type

    def begin(self) -> bytes:
        return f"retry: {RETRY_MS}\nid: {self._position}\n\n".encode()

    def read(self) -> bytes:
        page = self._pages.after(self._position)
        if not page.records:
            return b""
        lines = [page.line(number) for number, record in enumerate(page.records) if self._wants(record)]
        last = page.records[-1]
        self._position = int(last.cursor)
        if not self._wants(last):
            lines.append(f"id: {self._position}\n\n".encode())  # what was passed over need not be read again
        return b"".join(lines)

    def _wants(self, record: Record) -> bool:
        return self._job_id in ("", record.job_id) and self._type in ("", record.type)


class HintFeed(EventFeed):
    """That there are more of those events, and no word about them: once for all that are read together."""

    def __init__(self, pages: Pages, position: int, job_id: str, type: str, clock: Callable[[], datetime]) -> None:
        super().__init__(pages, position, job_id, type)
        self._clock = clock

    def read(self) -> bytes:
        page = self._pages.after(self._position)
        if not page.records:
            return b""
        self._position = int(page.records[-1].cursor)
        if not any(map(self._wants, page.records)):
            return b"id: %d\n\n" % self._position
        hint = msgspec.json.encode(Hint(self._position, self._clock()))
        return b"id: %d\nevent: more\ndata: %s\n\n" % (self._position, hint)


class LineFeed:
    """Log lines of one job, in order across its attempts."""

    def __init__(self, questions: Questions, job_id: str, after_seq: int) -> None:
        self._questions = questions
        self._job_id = job_id
        self._seq = after_seq

    def begin(self) -> bytes:
        return f"retry: {RETRY_MS}\nid: {self._seq}\n\n".encode()

    def read(self) -> bytes:
        found = self._questions.logs(self._job_id, self._seq, _LINES)
        self._seq = found.last_seq
        return b"".join(b"id: %d\ndata: %s\n\n" % (line.seq, msgspec.json.encode(line)) for line in found.items)


class Following:
    """Begins feeds of one log. Safe for threads."""

    def __init__(self, questions: Questions, most: int = MOST) -> None:
        jobs = questions.jobs
        self.bell = Bell(jobs.desk.alarm if jobs.desk is not None else None, most)
        self._questions = questions
        self._pages = Pages(jobs.log, self._write)

    def events(self, after: int | None, *, job_id: str = "", type: str = "", is_brief: bool = False) -> EventFeed:
        """Return the events after a place, or with None from now on; if brief, only that there are some.

        Raises:
            CannotFilter: the log has no one order. InvalidValue: it never got so far.
            Unavailable, PermissionDenied: what the log says.
        """
        can = self._questions.can_follow()
        if not can.available:
            raise CannotFilter(can.reason)
        head = self._questions.listing.head()
        if after is not None and after > head:
            raise InvalidValue(
                f"the log never got so far after={after} last={head}: was it replaced by an older copy? "
                "begin without Last-Event-ID and after"
            )
        place = head if after is None else after
        if is_brief:
            return HintFeed(self._pages, place, job_id, type, self._questions.jobs.emitter.clock)
        return EventFeed(self._pages, place, job_id, type)

    def lines(self, job_id: str, after_seq: int) -> LineFeed:
        """Return a job's log lines after one.

        Raises: as `Questions.logs`.
        """
        self._questions.logs(job_id, after_seq, 1)
        return LineFeed(self._questions, job_id, after_seq)

    def _write(self, record: Record) -> bytes:
        mask = self._questions.mask
        try:
            return b"id: %s\ndata: %s\n\n" % (record.cursor.encode(), msgspec.json.encode(mask.event(record.event())))
        except Corrupt as error:
            told = msgspec.json.encode(Unreadable.of(record, error))
            return b"id: %s\nevent: unreadable\ndata: %s\n\n" % (record.cursor.encode(), told)


def ending(error: Exception) -> bytes:
    """Return what is sent last where a stream ends by an error; who follows comes back by itself."""
    return b"event: problem\ndata: %s\n\n" % msgspec.json.encode(refusal_of(error).problem)


def last_id(text: str, after: int | None) -> int | None:
    """Return where to go on: what `Last-Event-ID` says, which a browser sends with the URL of the beginning, or else `after`.

    Raises:
        InvalidValue: it is none of ours.
    """
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidValue(f"Last-Event-ID is none that was sent here value={text[:40]!r}")
    return int(text)
