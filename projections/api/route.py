"""What a route is: where, by whom, with which parameters and body something is asked, and what is answered. No HTTP library."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from projections.api.access import Identity, Role
from projections.api.commanding import Commands
from projections.api.following import Following
from projections.api.metrics import Metrics
from projections.api.parameters import Parameter
from projections.api.problems import Refusal
from projections.api.questions import Questions

JSON: Final = "application/json"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"  # as Prometheus reads it
SSE: Final = "text/event-stream"
WAIT_S: Final = 10.0  # how long `wait_for` waits at most, where the app is not told otherwise


class Given(msgspec.Struct, frozen=True):
    """A request, as a route sees it."""

    caller: Identity
    values: Mapping[str, Any]  # of every parameter of the route
    job_id: str = ""  # of the path, as it came
    body: Any = None  # of the type that the route takes
    if_none_match: str = ""
    last_event_id: str = ""  # the last that a follower got
    path: str = ""  # below where the app is mounted
    depth: int = 0  # how many steps `../` lead from the path to where the app is mounted
    cookie: str = ""  # the header, as the browser keeps it


class Reply(msgspec.Struct, frozen=True):
    """An answer."""

    body: Any  # what is encoded, or bytes as they are; of a stream, a Feed; of a file, an iterator of bytes, none of them empty
    complete_through: datetime | None = None  # every event committed before is in it; None: the request's begin
    is_complete_known: bool = True  # False: nobody knows up to when it is complete
    headers: Mapping[str, str] = {}
    status: int = 200


Ask = Callable[["Desk", Given], Reply]
Refuse = Callable[["Desk", Given, Refusal], Reply]


class Desk(msgspec.Struct, frozen=True):
    """What routes answer from."""

    questions: Questions
    metrics: Metrics
    commands: Commands
    following: Following


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route."""

    path: str  # `{job_id}` takes whatever stands there: it is checked as an id
    name: str  # of the operation
    about: str  # for the document, first line the summary
    ask: Ask  # in a thread; may block
    answer: Any = None  # type of the body, or several as a union; None: text or bytes
    role: Role | None = "read"  # what the caller must have; None: nobody is asked who they are
    role_of: Callable[[Any], Role] | None = None  # the role that a body takes besides
    parameters: tuple[Parameter, ...] = ()
    method: Literal["GET", "POST", "DELETE"] = "GET"
    takes: type[msgspec.Struct] | None = None  # type of the body, in JSON; None: there is none
    media_type: str = JSON
    refusals: tuple[int, ...] = ()  # statuses besides those that every route may answer
    extra: Mapping[int, str] = {}  # other good answers
    tells: Mapping[str, str] = {}  # headers that a good answer may have, and what each says
    is_quick: bool = False  # asks nothing of a store: answered at once, also while all threads are taken
    is_file: bool = False  # the answer is made piece by piece
    is_stream: bool = False  # the answer goes on until the follower is gone
    waits: Callable[[Questions, Given], int] | None = None  # the place that `wait_for` waits for
    refuse: Refuse | None = None  # how a refusal is shown; None: as a Problem in JSON
