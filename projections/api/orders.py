"""What the API is told to do, and what it says came of it: the bodies of commands and their answers."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every command may say: why. Who, says the caller's identity."""

    reason: str = ""  # stays on the event for good


class SubmitOrder(Order, frozen=True, kw_only=True):
    """A job to be queued."""

    command: str  # which kind of job
    params: Any = None  # JSON value for the handler, at most 64 KiB
    id: str | None = None  # for callers that have one: the same again is that job
    title: str = ""
    queue: str | None = None
    key: str | None = None  # while a job of the kind with this key is unfinished, it is that job
    at: str | None = None  # not before: ISO 8601 with a zone
    delay_s: float | None = None  # not before so many seconds from now
    priority: int | None = None
    max_attempts: int | None = None
    external: bool = False  # the caller's own task queue delivers it


class CancelOrder(Order, frozen=True, kw_only=True):
    """A job to be canceled."""

    force: bool = False  # end a running one at once; its worker may work on, but what that comes to is refused


class RetryOrder(Order, frozen=True, kw_only=True):
    """A job to be tried again, or at another time."""

    at: str | None = None  # not before: ISO 8601 with a zone
    delay_s: float | None = None  # not before so many seconds from now


class RerunOrder(RetryOrder, frozen=True, kw_only=True):
    """A job to be run again."""

    as_new: bool = False  # as a new job
    params: Any = UNSET  # JSON value, of the new job; the same if not given. Takes the role `submit`


class DeleteOrder(Order, frozen=True, kw_only=True):
    """A job to be deleted."""

    artifacts: bool = False  # its other blobs too


class PauseOrder(Order, frozen=True, kw_only=True):
    """A queue or a kind of job; one of both."""

    queue: str = ""
    command: str = ""


class ParkedOrder(Order, frozen=True, kw_only=True):
    """Parked events of a job, in a view."""

    view: Literal["status", "index"]
    job_id: str
    version: int | None = None  # the one event; None: all of them


class Which(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs by what lists can filter."""

    state: str = ""
    command: str = ""
    queue: str = ""
    since: datetime | None = None  # created then or later
    until: datetime | None = None  # created then or earlier
    q: str = ""  # what the id begins with


class BulkOrder(Order, frozen=True, kw_only=True):
    """One command for many jobs: by their ids, or all that a filter finds."""

    action: Literal["cancel", "retry", "rerun", "delete"]
    ids: list[str] | None = None
    filter: Which | None = None
    dry_run: bool = True  # say what would be done, and do nothing


class Submitted(msgspec.Struct, frozen=True):
    """The job that there is now."""

    job_id: str
    created: bool  # False: it was there already, by its id or its key
    version: int
    position: int  # place in the log, for `wait_for` of lists; 0 where the log has none


class Done(msgspec.Struct, frozen=True):
    """What was done to a job."""

    job_id: str  # of the new job, where one was made
    did: str  # canceled, requested, retried, rerun, deleted
    version: int  # of the job's last event, for `wait_for`
    position: int  # as in Submitted


class Skipped(msgspec.Struct, frozen=True):
    """A job that nothing was done to."""

    job_id: str
    why: str


class BulkDone(msgspec.Struct, frozen=True):
    """What a bulk command came to."""

    dry_run: bool  # nothing was done: `done` is how many would be
    done: int
    skipped: int
    whys: list[Skipped]  # the first hundred of those
    has_more: bool  # the filter finds more than one command takes: give it again
    position: int  # as in Submitted


class PauseDone(msgspec.Struct, frozen=True):
    """Whether anything changed."""

    changed: bool  # False: it was so before


class ParkedDone(msgspec.Struct, frozen=True):
    """How many events were asked for."""

    entries: int
