"""The kit's store and recorder: one `status.json` a job, read before the work and written after (behaviour S10-S20).

Last writer wins; there is no lock and no history here. The event log is for both.
"""

import copy
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, Literal, Protocol, TypeVar, overload, runtime_checkable

import msgspec

from jobevents.errors import (
    AppendUnknown,
    Conflict,
    Corrupt,
    IllegalTransition,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from jobevents.ids import WHITE_SPACE, sanitize, shown
from jobevents.status import Status, carry_over, check_type, decode, encode
from jobevents.times import format_time

CONTENT_TYPE = "application/json; charset=utf-8"  # behaviour S12
CACHE_CONTROL = "no-store"

OnUnreadable = Literal["raise", "run"]
"""What an unreadable status means: "raise" = the caller is told; "run" = not recorded, so the work runs."""

Locate = Callable[[str], str]
"""Turns a normalised job id into the name of its status object; may fail."""

RecordT = TypeVar("RecordT", bound=msgspec.Struct)
AnyT = TypeVar("AnyT")

Apply = Callable[[AnyT, AnyT | None], object]
"""Called with (next, prev): changes `next` in place, or returns the record to use instead."""

# Errors of a reader or writer that say what is wrong and that no later try mends; all others become Unavailable.
_PLAIN_ENOUGH = (AppendUnknown, Conflict, Corrupt, IllegalTransition, InvalidValue, Misconfigured)
_log = logging.getLogger(__name__)


class Stored(Protocol):
    """What a reader gives back."""

    @property
    def data(self) -> bytes:
        """The bytes of the object."""


class Reader(Protocol):
    """Where statuses are read from: the reading half of Blobs, say."""

    def get(self, name: str, /) -> Stored | None:
        """Return an object; raise NotFound where there is none, and Unavailable or PermissionDenied on any failure."""


class Writer(Protocol):
    """Where statuses are written to: the writing half of Blobs, say."""

    def put(self, name: str, data: bytes, /, *, content_type: str, cache_control: str) -> str:
        """Write an object, over what was there, and return its generation."""

    def delete(self, name: str, /) -> bool:
        """Delete an object and tell whether there was one."""


class Store(Protocol[AnyT]):
    """What a Recorder writes to (behaviour S20): StatusStore, or anything else with these two."""

    def get(self, job_id: str, /) -> AnyT:
        """Return a private copy of a job's record, or raise NotFound."""

    def save(self, job_id: str, record: AnyT, /) -> object:
        """Store a job's record."""


@runtime_checkable
class _Terminal(Protocol):
    def is_terminal(self) -> bool: ...


def under_job_dir(base_uri: str) -> Locate:
    """Return the locator `{base_uri}/{job_id}/status.json` (behaviour S10).

    An empty base fails at each use and not here, as in the kit. Blobs are named without scheme and bucket: give
    `prefix or "jobs"` of the prefix that `open_blobs(url)` returns, not the URL; it is empty for all but buckets.
    """
    base = base_uri.strip(WHITE_SPACE).rstrip("/")

    def locate(job_id: str) -> str:
        if not base:
            raise Misconfigured(
                f"status has no place job_id={job_id} base_uri={base_uri!r}: name a directory, under_job_dir('jobs')"
            )
        return f"{base}/{job_id}/status.json"

    return locate


class StatusStore(Generic[RecordT]):
    """Reads and writes the status objects of jobs, one overwrite of one object a save (behaviour S10-S15)."""

    _type: type[RecordT]

    @overload
    def __init__(
        self: "StatusStore[Status]",
        reader: Reader | None,
        writer: Writer | None,
        locate: Locate | None,
        *,
        on_unreadable: OnUnreadable | None = "raise",
        clock: Callable[[], datetime] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        reader: Reader | None,
        writer: Writer | None,
        locate: Locate | None,
        type: type[RecordT],
        *,
        on_unreadable: OnUnreadable | None = "raise",
        clock: Callable[[], datetime] = ...,
    ) -> None: ...
    def __init__(
        self,
        reader: Reader | None,
        writer: Writer | None,
        locate: Locate | None,
        type: Any = Status,  # the overloads tell its type
        *,
        on_unreadable: OnUnreadable | None = "raise",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Hold the parts; what is None fails when it is needed, as in the kit.

        Args:
            reader: needed to get.
            writer: needed to save; without one there is nothing to delete.
            locate: job id to object name, `under_job_dir(...)` or the service's own.
            type: Status, a subclass with service fields, or any other Struct, which is not stamped.
            on_unreadable: "raise" = Unavailable is not NotFound; "run" = what cannot be opened is NotFound.
            clock: gives an aware datetime.

        Raises:
            TypeError: records of this type could not be stored (see `check_type`).
            Misconfigured: `on_unreadable` is neither.
        """
        check_type(type)
        self._type = type
        self.on_unreadable: OnUnreadable = _mode(on_unreadable, inherited="raise")
        self._reader, self._writer, self._locate, self._clock = reader, writer, locate, clock

    def get(self, job_id: str) -> RecordT:
        """Return the stored record of a job; one read.

        Raises:
            InvalidJobId: nothing was read.
            NotFound: there is none; with on_unreadable="run" also when it cannot be opened.
            Unavailable, PermissionDenied: it cannot be opened.
            Corrupt: it was read but is no record.
            Misconfigured: there is no reader or no place.
        """
        clean, name = self._place(job_id)
        if self._reader is None:
            raise Misconfigured(f"status cannot be read without a reader job_id={clean}: give StatusStore one")
        try:
            stored = self._reader.get(name)
        except NotFound as error:
            raise NotFound(f"status not found job_id={clean} name={name}") from error
        except _PLAIN_ENOUGH:
            raise
        except Exception as error:
            if self.on_unreadable == "run":
                raise NotFound(f"status not found job_id={clean} name={name} cause={error}") from error
            raise _failed("read", error, clean, name) from error
        if stored is None:
            raise NotFound(f"status not found job_id={clean} name={name}")
        return decode(stored.data, self._type, clean)

    def save(self, job_id: str, record: RecordT) -> None:
        """Store a record as the job's, stamped with its id and the time; `record` itself is untouched. One write.

        Raises:
            InvalidJobId, InvalidValue: nothing was written.
            Unavailable, PermissionDenied: the write failed.
            IllegalTransition, AppendUnknown: what a writer over the event log says.
            Misconfigured: there is no writer or no place.
        """
        clean, name = self._place(job_id)
        if self._writer is None:
            raise Misconfigured(f"status cannot be saved without a writer job_id={clean}: give StatusStore one")
        if isinstance(record, Status):
            record = copy.copy(record)
            record.job_id = clean
            record.updated_at = format_time(self._clock())
        data = encode(record)
        try:
            self._writer.put(name, data, content_type=CONTENT_TYPE, cache_control=CACHE_CONTROL)
        except _PLAIN_ENOUGH:
            raise
        except Exception as error:
            raise _failed("saved", error, clean, name) from error

    def delete(self, job_id: str) -> bool:
        """Delete a job's record and tell whether there was one; without a writer nothing is done (behaviour S14).

        Raises:
            InvalidJobId: nothing was deleted.
            Unavailable, PermissionDenied: the storage refused.
            Misconfigured: there is no place.
        """
        clean, name = self._place(job_id)
        if self._writer is None:
            return False
        try:
            return self._writer.delete(name)
        except _PLAIN_ENOUGH:
            raise
        except Exception as error:
            raise _failed("deleted", error, clean, name) from error

    def _place(self, job_id: str) -> tuple[str, str]:
        """Return the normalised id and the object's name, in the order of checks of behaviour S11."""
        clean = sanitize(job_id)
        if self._locate is None:
            raise Misconfigured(f"status has no locator job_id={clean}: give StatusStore under_job_dir(base_uri)")
        try:
            return clean, self._locate(clean)
        except JobEventsError:
            raise
        except Exception as error:
            raise Misconfigured(f"status cannot be located job_id={clean} cause={error}") from error


class Recorder(Generic[AnyT]):
    """Records the states of a worker's jobs; what cannot be recorded never stops the work (behaviour S16-S18)."""

    def __init__(
        self,
        store: Store[AnyT] | None,
        logger: logging.Logger | None = None,
        *,
        on_unreadable: OnUnreadable | None = "run",
    ) -> None:
        """Hold the store; without one the recorder is disabled and does nothing.

        Args:
            store: a StatusStore or any other Store.
            logger: takes the warnings; this module's own if not given.
            on_unreadable: "run" = what cannot be read counts as not done; "raise" = the guard raises; None = as store.

        Raises:
            Misconfigured: `on_unreadable` is neither.
        """
        inherited: OnUnreadable = getattr(store, "on_unreadable", "run")
        self.on_unreadable: OnUnreadable = _mode(on_unreadable, inherited=inherited)
        self._store, self._logger = store, logger or _log

    @property
    def enabled(self) -> bool:
        """Whether there is a store to record in."""
        return self._store is not None

    def already_succeeded(self, job_id: str) -> bool:
        """Tell whether the job is recorded as done, so that this delivery can be dropped; one read (behaviour S17).

        It does not stop a second delivery while the first one runs.

        Raises:
            InvalidJobId, Unavailable, PermissionDenied, Corrupt, Misconfigured: with on_unreadable="raise", all that
                the store raises but NotFound: have the task delivered again. With "run": False, and one warning.
        """
        if self._store is None:
            return False
        try:
            record = self._store.get(job_id)
        except NotFound:
            return False
        except Exception as error:
            if self.on_unreadable == "raise":
                raise
            self._warn("status is unreadable, the job counts as not done", job_id, error)
            return False
        return isinstance(record, _Terminal) and bool(record.is_terminal())

    def record(self, job_id: str, status: AnyT, *apply: Apply[AnyT] | None) -> None:
        """Record the job's state: carry over, apply the callbacks in order, save; one read, one write (behaviour S18).

        `status` itself is untouched. A record that cannot be read or saved is one warning each and nothing else; with
        on_unreadable="run" an unreadable one is not mentioned. What a callback raises comes through.
        """
        if self._store is None:
            return
        prev = self._previous(self._store, job_id)
        next = copy.copy(status)
        if isinstance(next, Status) and isinstance(prev, Status):
            carry_over(next, prev)
        for change in apply:
            if change is not None:
                changed = change(next, prev)
                next = changed if isinstance(changed, type(status)) else next
        try:
            self._store.save(job_id, next)
        except Exception as error:  # noqa: BLE001 - the work matters more than its record
            self._warn("status could not be saved", job_id, error, str(getattr(next, "state", "")))

    def _previous(self, store: Store[AnyT], job_id: str) -> AnyT | None:
        try:
            return copy.copy(store.get(job_id))
        except NotFound:
            return None
        except Exception as error:  # noqa: BLE001 - the work matters more than its record
            if self.on_unreadable == "raise":
                self._warn("previous status is unreadable, nothing is carried over", job_id, error)
            return None

    def _warn(self, what: str, job_id: str, error: Exception, state: str | None = None) -> None:
        """Log one warning, its values also as attributes of the log record."""
        extra = {"job_id": job_id, "error": str(error)} | ({} if state is None else {"state": state})
        named = "" if state is None else f" state={shown(state)}"
        self._logger.warning("%s job_id=%s%s error=%s", what, shown(job_id), named, error, extra=extra)


def _mode(on_unreadable: str | None, *, inherited: OnUnreadable) -> OnUnreadable:
    match on_unreadable:
        case None:
            return inherited
        case "raise" | "run":
            return on_unreadable
        case _:
            raise Misconfigured(f'on_unreadable is unknown value={shown(on_unreadable)}: give "raise" or "run"')


def _failed(what: str, error: Exception, job_id: str, name: str) -> JobEventsError:
    """Return the error to raise for a failed read, write or delete: ours stays of its kind, theirs is Unavailable."""
    message = f"status could not be {what} job_id={job_id} name={name} cause={error}"
    return PermissionDenied(message) if isinstance(error, PermissionDenied) else Unavailable(message)
