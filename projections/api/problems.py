"""What goes wrong, in one shape: what, why, what to do. Nothing of a traceback is ever shown."""

from typing import NamedTuple

import msgspec

from jobevents.errors import (
    AppendUnknown,
    Conflict,
    Corrupt,
    Gone,
    IllegalTransition,
    InvalidJobId,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from projections.api.access import NotAllowed, NotIdentified, TooManyTries, WrongHost


class Problem(msgspec.Struct, frozen=True):
    """Why a request has no answer."""

    error: str  # what it is, for people
    code: str  # what it is, for programs
    why: str  # the particulars
    remedy: str  # what to do


class CannotFilter(InvalidValue):
    """The log cannot find what was asked for without reading everything."""


class TooLarge(InvalidValue):
    """A request's body is longer than any that is answered."""


class TooSlow(JobEventsError):
    """A request's body has not come in time."""


class NotJson(InvalidValue):
    """A command's body is not said to be JSON."""


class TooMany(JobEventsError):
    """As many are served at once as may be."""


class NotYet(JobEventsError):
    """What was waited for has not come in time."""


class _Kind(NamedTuple):
    status: int
    code: str
    error: str
    remedy: str


_KINDS: dict[type[BaseException], _Kind] = {
    NotIdentified: _Kind(401, "not_identified", "who are you?", "send an Authorization header"),
    NotAllowed: _Kind(403, "not_allowed", "not allowed", "ask whoever runs this for the role"),
    WrongHost: _Kind(421, "wrong_host", "another host is asked for", "ask for this server by its own name"),
    TooManyTries: _Kind(429, "too_many_tries", "too many wrong tokens", "wait a minute"),
    CannotFilter: _Kind(400, "cannot_filter", "cannot filter so", "see /api/features for what this log can filter"),
    TooLarge: _Kind(413, "too_large", "request is too large", "send less"),
    TooSlow: _Kind(408, "too_slow", "request came too slowly", "send it again, all at once"),
    NotJson: _Kind(415, "not_json", "commands are JSON", "send Content-Type: application/json"),
    NotYet: _Kind(412, "not_yet", "not there yet", "ask again; is jobevents project running?"),
    InvalidJobId: _Kind(400, "invalid_job_id", "no job has such an id", "give a job's id exactly"),
    InvalidValue: _Kind(400, "invalid_value", "invalid request", "mend the request as the reason says"),
    Gone: _Kind(404, "deleted", "job was deleted", "its events are kept: see /api/jobs/{id}/events"),
    NotFound: _Kind(404, "not_found", "not found", "check the id; jobs are listed at /api/jobs"),
    IllegalTransition: _Kind(409, "illegal_transition", "state does not allow this", "look at the job again"),
    Conflict: _Kind(409, "conflict", "somebody else was first", "look again, then decide again"),
    AppendUnknown: _Kind(503, "unknown", "not known whether it was done", "look at the job before you try again"),
    TooMany: _Kind(503, "too_many", "too many at once", "try again in a moment, or close others"),
    Unavailable: _Kind(503, "unavailable", "store cannot be read now", "try again in a moment"),
    PermissionDenied: _Kind(500, "store_refuses", "store refuses this server", "mend the server's credentials"),
    Corrupt: _Kind(500, "corrupt", "what is stored cannot be read", "run jobevents doctor"),
    Misconfigured: _Kind(500, "misconfigured", "server is not set up for this", "change the set-up as the reason says"),
}
_UNEXPECTED = _Kind(500, "internal", "internal error", "look for the request in the server's log")
BY_STATUS: dict[int, _Kind] = {
    404: _Kind(404, "no_such_place", "no such place", "see /openapi.json for what there is"),
    405: _Kind(405, "wrong_method", "not to be asked in this way", "see /openapi.json for the method"),
}
RETRY_AFTER_S = 1  # with 503 and 412


class Refusal(NamedTuple):
    """A problem and how it is sent."""

    status: int
    problem: Problem
    headers: dict[str, str]


def refusal_of(error: BaseException) -> Refusal:
    """Return what a caller is told of an error; of one that is not ours, only that it happened."""
    kind = next((_KINDS[base] for base in type(error).__mro__ if base in _KINDS), _UNEXPECTED)
    why = str(error) if isinstance(error, JobEventsError) else "something that nobody expected; it was logged"
    headers = {"Retry-After": str(RETRY_AFTER_S)} if kind.status in (412, 503) else {}
    if kind.status == 429:
        headers["Retry-After"] = "60"
    if isinstance(error, NotIdentified):
        headers["WWW-Authenticate"] = error.challenge
    return Refusal(kind.status, Problem(kind.error, kind.code, why, kind.remedy), headers)


def refusal_by_status(status: int, why: str) -> Refusal:
    """Return what a caller is told where no route was found."""
    kind = BY_STATUS.get(status, _UNEXPECTED)
    return Refusal(status, Problem(kind.error, kind.code, why, kind.remedy), {})
