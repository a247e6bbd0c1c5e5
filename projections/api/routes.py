"""The one table of routes: what is asked where, and in `commandroutes` what is commanded. No HTTP library.

The app serves this table and the OpenAPI document is made from it, so that neither has what the other has not.
"""

from functools import cache
from typing import Any, Final

from jobevents.status import Status
from jobevents.times import format_time
from projections.api import openapi, parameters, shapes
from projections.api.commandroutes import COMMANDS
from projections.api.listing import ORDERS, STATES, Wanted
from projections.api.questions import MAX_ITEMS, Questions
from projections.api.route import TEXT, Desk, Given, Reply, Route
from projections.api.search import SEARCH_LIMIT
from projections.api.seeking import seek
from projections.api.standing import MAX_BARS, MAX_PARKED
from projections.api.streamroutes import STREAMS
from projections.asof import parse
from projections.index import DEFAULT_PER_PAGE, MAX_PER_PAGE
from projections.lost import Lost

MAX_STEP_S: Final = 366 * 24 * 3600

_WAIT_VERSION = parameters.whole(
    "wait_for", "Wait, 10 s at most, until the job has this version: to read what you wrote."
)
_WAIT_POSITION = parameters.whole(
    "wait_for", "Wait, 10 s at most, until everything up to this place of the log is in the list (X-Position)."
)
_LIMIT = parameters.whole("limit", "At most so many.", low=1, high=MAX_ITEMS, default=MAX_ITEMS)


def _version(questions: Questions, given: Given) -> int:
    return questions.version(given.job_id)


def _position(questions: Questions, given: Given) -> int:
    return questions.listing.position(_wanted(given))


def _wanted(given: Given) -> Wanted:
    fields = {name: value for name, value in given.values.items() if name != "wait_for"}
    return Wanted(**{**fields, "order": fields["order"] or "newest"})


def _jobs(desk: Desk, given: Given) -> Reply:
    listed = desk.questions.listing.find(_wanted(given))
    return Reply(
        listed.found,
        listed.complete_through,
        listed.complete_through is not None,
        {"X-Position": str(listed.position)},
    )


def _search(desk: Desk, given: Given) -> Reply:
    began = desk.questions.jobs.emitter.clock()
    values = given.values
    return Reply(seek(desk.questions, values["q"], values["cursor"] or "", values["limit"]), began)


def _job(desk: Desk, given: Given) -> Reply:
    text = given.values["as_of"]
    if not text:
        return Reply(desk.questions.seen(given.job_id))
    moment = parse(text, desk.questions.jobs.emitter.clock())
    return Reply(desk.questions.job(given.job_id, moment), moment.instant)


def _status(desk: Desk, given: Given) -> Reply:
    body, version, lost = desk.questions.status(given.job_id)
    tag = f'"{version}"'
    headers = {"ETag": tag, **({"X-Worker-Lost": _since(lost)} if lost else {})}
    seen = [one.strip().removeprefix("W/") for one in given.if_none_match.split(",")]
    is_seen = tag in seen or "*" in seen
    return Reply(b"" if is_seen else body + b"\n", headers=headers, status=304 if is_seen else 200)


def _since(lost: Lost) -> str:
    if not lost.is_certain:
        return "uncertain"
    return format_time(lost.since) if lost.since else "unknown"


def _events(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.events(given.job_id, given.values["after"], given.values["limit"]))


def _logs(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.logs(given.job_id, given.values["after_seq"], given.values["limit"]))


def _starts(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.starts(given.job_id))


def _queues(desk: Desk, given: Given) -> Reply:
    kept = desk.questions.standing.queues()
    return Reply(kept.value, kept.at)


def _workers(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.standing.workers())


def _schedules(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.standing.schedules())


def _projector(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.standing.projector())


def _storage(desk: Desk, given: Given) -> Reply:
    kept = desk.questions.standing.storage()
    return Reply(kept.value, kept.at)


def _parked(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.standing.parked(given.values["view"], given.values["limit"]))


def _stats(desk: Desk, given: Given) -> Reply:
    values = given.values
    stats = desk.questions.standing.stats(values["since"], values["step"], values["bars"])
    return Reply(stats, stats.counted_at)


def _features(desk: Desk, given: Given) -> Reply:
    return Reply(desk.questions.features(given.caller))


def _healthz(desk: Desk, given: Given) -> Reply:
    return Reply(shapes.Liveness("ok"))


def _readyz(desk: Desk, given: Given) -> Reply:
    desk.questions.check_ready(with_views=given.values["of"] != "log")
    return Reply(shapes.Readiness("ready"))


def _metrics(desk: Desk, given: Given) -> Reply:
    return Reply(desk.metrics.text())


def _openapi(desk: Desk, given: Given) -> Reply:
    return Reply(_document())


@cache
def _document() -> dict[str, Any]:
    return openapi.document(ROUTES)


READS: Final[tuple[Route, ...]] = (
    Route(
        path="/api/jobs",
        name="list_jobs",
        about="List jobs, newest first, by page numbers or by cursor.\n\nA page number shows the moment; cursors show every "
        "job that is there throughout exactly once. The second that an id names decides; ids that name none come last.",
        ask=_jobs,
        answer=shapes.JobPage | shapes.JobSlice,
        parameters=(
            parameters.choice("state", "Only jobs in this state; `other`: in any of open text.", STATES),
            parameters.name_of("command", "Only this kind of job."),
            parameters.name_of("queue", "Only this queue."),
            parameters.instant("since", "Only jobs created then or later."),
            parameters.instant("until", "Only jobs created then or earlier."),
            parameters.id_start("q", "Only jobs whose id begins so."),
            parameters.lenient(
                "page", "From 1; what is no such number is 1, past the end is the last page.", default=1
            ),
            parameters.lenient(
                "per_page",
                f"Jobs on a page; more than {MAX_PER_PAGE}, or less than 1, is {MAX_PER_PAGE}.",
                default=DEFAULT_PER_PAGE,
            ),
            parameters.opaque("cursor", "Go on after the place that an answer named; empty to begin."),
            parameters.choice(
                "order", "Newest first, oldest first, or those that have ended, the last one first.", ORDERS
            ),
            parameters.moment("as_of", "As they were then, where /api/features says that this log can tell."),
            _WAIT_POSITION,
        ),
        refusals=(404,),
        tells={"X-Position": "The place in the log up to which everything is in the list."},
        waits=_position,
    ),
    Route(
        path="/api/search",
        name="search_jobs",
        about="Find jobs as the dashboard and `jobevents list` do: `state:failed,canceled -queue:slow error:timeout`.\n\nKeys: "
        "state, command, queue, id (its begin), root, worker, actor, error, args.PLACE, after, before (-15m, a day, an instant), "
        "duration (>30s); words are looked for in ids, kinds, titles and errors. All parts must hold; values with commas "
        "between them are alternatives; what begins with a minus must not be. The newest jobs come first; an answer looks "
        "through so many at most, says how far it came, and is gone on with by its cursor.",
        ask=_search,
        answer=shapes.JobsFound,
        parameters=(
            parameters.free_text("q", "What to look for.", limit=SEARCH_LIMIT),
            parameters.opaque("cursor", "Go on where a former answer stopped."),
            parameters.whole("limit", "At most so many jobs.", low=1, high=MAX_PER_PAGE, default=DEFAULT_PER_PAGE),
        ),
    ),
    Route(
        path="/api/jobs/{job_id}/status",
        name="job_status",
        about="The status record, byte for byte as in status.json, and a newline.\n\nFor pollers: send the ETag back. Nothing of "
        "it is masked, but where the server was told what to mask; /api/features says which (`status_is_exact`).",
        ask=_status,
        answer=Status,
        parameters=(_WAIT_VERSION,),
        refusals=(404,),
        extra={304: "It has not changed since."},
        tells={
            "ETag": "Its version; give it as If-None-Match.",
            "X-Worker-Lost": "There while nobody is known to work on a job that is `running`: since when; `unknown`; or "
            "`uncertain` where it cannot be read whether its worker lives.",
        },
        waits=_version,
    ),
    Route(
        path="/api/jobs/{job_id}/events",
        name="job_events",
        about="Every event of a job, in order; a deleted job's too.",
        ask=_events,
        answer=shapes.EventList,
        parameters=(parameters.whole("after", "Events after this version.", default=0), _LIMIT, _WAIT_VERSION),
        refusals=(404,),
        waits=_version,
    ),
    Route(
        path="/api/jobs/{job_id}/logs",
        name="job_logs",
        about="Log lines of a job, in order across its attempts.",
        ask=_logs,
        answer=shapes.LogLines,
        parameters=(parameters.whole("after_seq", "Lines after this one.", default=0), _LIMIT),
        refusals=(404,),
    ),
    Route(
        path="/api/jobs/{job_id}/starts",
        name="job_starts",
        about="The attempts of a job: when each began, who worked, how it ended.",
        ask=_starts,
        answer=shapes.StartList,
        parameters=(_WAIT_VERSION,),
        refusals=(404,),
        waits=_version,
    ),
    Route(
        path="/api/jobs/{job_id}",
        name="job",
        about="All that is known of a job, now or at an instant.\n\nA job that is `running` with a worker that is lost says so.",
        ask=_job,
        answer=shapes.JobSeen,
        parameters=(parameters.moment("as_of", "As it was then; #3 after its event 3."), _WAIT_VERSION),
        refusals=(404,),
        waits=_version,
    ),
    Route(
        path="/api/queues", name="queues", about="The queues, and what is paused.", ask=_queues, answer=shapes.QueueList
    ),
    Route(path="/api/workers", name="workers", about="Who works, and on what.", ask=_workers, answer=shapes.WorkerList),
    Route(
        path="/api/schedules",
        name="schedules",
        about="The periodic jobs: when each is due next, and what became of its last run.",
        ask=_schedules,
        answer=shapes.ScheduleList,
    ),
    Route(
        path="/api/projector",
        name="projector",
        about="How far each view is behind the log, and what is bad about it.",
        ask=_projector,
        answer=shapes.ProjectorSeen,
    ),
    Route(
        path="/api/storage",
        name="storage",
        about="What the tables of events, jobs and log lines take, and the whole file or database; measured once a minute.",
        ask=_storage,
        answer=shapes.Storage,
    ),
    Route(
        path="/api/parked",
        name="parked",
        about="Jobs that a view could not take.",
        ask=_parked,
        answer=shapes.ParkedList,
        parameters=(
            parameters.choice("view", "Only this view.", ("", "status", "index")),
            parameters.whole("limit", "At most so many.", low=1, high=MAX_PARKED, default=MAX_PARKED),
        ),
    ),
    Route(
        path="/api/stats",
        name="stats",
        about="Jobs by state and queue, and what was created and ended in each step of a time series.",
        ask=_stats,
        answer=shapes.Stats,
        parameters=(
            parameters.instant("since", "Begin of the series; by default it ends now."),
            parameters.whole("step", "Seconds of a bar.", low=1, high=MAX_STEP_S, default=60),
            parameters.whole("bars", "How many bars.", low=1, high=MAX_BARS, default=60),
        ),
    ),
    Route(
        path="/api/features",
        name="features",
        about="What this log can filter, and what the caller may do.",
        ask=_features,
        answer=shapes.Features,
    ),
    Route(
        path="/healthz",
        name="healthz",
        about="The process answers.",
        ask=_healthz,
        answer=shapes.Liveness,
        role=None,
        is_quick=True,
    ),
    Route(
        path="/readyz",
        name="readyz",
        about="The log and the views can be read, and no view is more than two minutes behind the log.\n\nWhere nobody ever "
        "projected there is no view to be behind. A server that is to answer from the log while its views are old, as it does "
        "where that has a table of runs, is asked with `of=log`.",
        ask=_readyz,
        answer=shapes.Readiness,
        parameters=(parameters.choice("of", "`log`: of the log alone, however old the views are.", ("", "log")),),
        role=None,
    ),
    Route(path="/metrics", name="metrics", about="For Prometheus.", ask=_metrics, media_type=TEXT),
    Route(
        path="/openapi.json", name="openapi", about="This document.", ask=_openapi, answer=dict[str, Any], is_quick=True
    ),
)
"""In the order in which they are tried: what stands below a job comes before the job."""

ROUTES: Final[tuple[Route, ...]] = (*STREAMS, *READS, *COMMANDS)
"""All of the API."""

THERE: Final = frozenset((route.method, route.path) for route in ROUTES)
"""What can be asked: a button is offered where its command is."""
