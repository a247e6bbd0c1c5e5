"""The table of streams: what can be followed as it happens, by server-sent events. No HTTP library."""

import typing
from typing import Any, Final

from jobevents.events import AnyEvent
from jobevents.ids import validate
from projections.api import parameters
from projections.api.following import last_id
from projections.api.route import SSE, Desk, Given, Reply, Route

TYPES: Final[tuple[str, ...]] = ("", *(one.__name__ for one in typing.get_args(AnyEvent)))

_HOW: Final = (
    "\n\nServer-sent events; a line of comment every 15 s while nothing happens. It ends after an hour, and where what is "
    "sent is not taken for 30 s: come back with `Last-Event-ID`, as browsers do by themselves. `event: problem` says why "
    "it ends when something is wrong."
)


def _stream(desk: Desk, given: Given) -> Reply:
    values = given.values
    if values["job_id"]:
        validate(values["job_id"])
    after = last_id(given.last_event_id, values["after"])
    is_brief = values["brief"] == "yes"
    return Reply(desk.following.events(after, job_id=values["job_id"], type=values["type"], is_brief=is_brief))


def _log_lines(desk: Desk, given: Given) -> Reply:
    after: Any = last_id(given.last_event_id, given.values["after_seq"])
    return Reply(desk.following.lines(given.job_id, after))


STREAMS: Final[tuple[Route, ...]] = (
    Route(
        path="/api/stream",
        name="stream",
        about=f"Every event of every job, as it is committed.{_HOW} The id of each is its place in the log; its data is "
        "an item of /api/jobs/{job_id}/events, or with `event: unreadable` why that cannot be read. With `brief`, `event: more` "
        "says once for all that came together that there are more, for those who look themselves.",
        ask=_stream,
        is_stream=True,
        media_type=SSE,
        parameters=(
            parameters.id_start("job_id", "Only events of this job."),
            parameters.choice("type", "Only events of this type.", TYPES),
            parameters.choice("brief", "Only say that there are more.", ("", "yes")),
            parameters.whole("after", "Events after this place of the log; by default those from now on."),
        ),
    ),
    Route(
        path="/api/jobs/{job_id}/logs/stream",
        name="job_logs_stream",
        about=f"Log lines of a job, as they come.{_HOW} The id of each is its `seq`.",
        ask=_log_lines,
        is_stream=True,
        media_type=SSE,
        parameters=(parameters.whole("after_seq", "Lines after this one.", default=0),),
        refusals=(404,),
    ),
)
