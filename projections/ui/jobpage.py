"""The page of one job: what became of it and why, event by event, now or after any of its events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from jobevents.census import Census
from jobevents.errors import Conflict, Corrupt, InvalidValue, JobEventsError, NotFound
from jobevents.events import Event
from jobevents.ids import shown, validate
from jobevents.job import DELETED, FAILED, QUEUED, RUNNING, SUCCEEDED, Job, fold
from jobevents.joblogs import LINES_PER_START
from jobevents.store import RunFilter
from projections.api.questions import Questions
from projections.api.route import Desk, Given, Reply
from projections.api.routes import THERE
from projections.api.search import Search, write
from projections.api.shapes import Unreadable
from projections.diff import Parting, diff_jobs
from projections.starts import Start, starts_of
from projections.ui import actions, history
from projections.ui.diagram import diagram
from projections.ui.render import fragment, page
from projections.ui.sparks import Trend, trend
from projections.ui.timeline import timeline
from projections.ui.words import between, iso, json_text, query
from projections.why import explain

LINES: Final = 500  # log lines of an answer
_SHOWN_STARTS: Final = 50
_TREND: Final = 20  # runs of a kind whose times are shown
_YOUNGER: Final = 200  # runs of a kind that are looked through for the new ones of a job


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that have to do with this one."""

    previous: str = ""  # the run of this kind before it
    last_good: str = ""  # the last one before it that succeeded
    replay_of: str = ""
    root: str = ""
    replays: list[str] = []  # new runs of it, newest first
    all_replays: str = ""  # the search that finds them, and those of these; "" where there are none
    next_at: datetime | None = None  # of a periodic kind: when it is due again
    schedule: str = ""  # the same, as the registry has it
    reason: str = ""  # why the runs before it are not known
    trend: Trend | None = None  # how long these took, and it


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """This job beside another."""

    other: str
    state: str = ""
    parting: Parting | None = None
    problem: str = ""


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page; with nothing, where what the caller has seen is all there is."""
    questions, values, job_id = desk.questions, given.values, given.job_id
    view = values["view"] or "compact"
    validate(job_id)
    if values["seen"] and values["seen"] == questions.version(job_id) and questions.state(job_id) != RUNNING:
        return Reply(b"", status=204)
    events, unreadable = questions.told(job_id)
    last = len(events)
    if unreadable:
        known = [one for one in events if one.version < unreadable[0].version]
        if not known or known[0].version > 1 or not 0 < values["at"] <= len(known):
            return _unreadable(desk, given, events, unreadable, now=questions.jobs.emitter.clock())
        last, events = max(unreadable[-1].version, events[-1].version), known
    at = values["at"] or last
    if at > last:
        raise NotFound(f"no such event job_id={job_id} version={at} last={last}")
    is_past = at < last
    told, now = events[:at], questions.jobs.emitter.clock()
    job = fold(told)
    moment = told[-1].at if is_past else now
    starts = starts_of(told)[::-1]
    rows = history.rows_of(told, is_compact=view == "compact", with_json=view == "json")
    is_masked = not is_past and job.state != DELETED and questions.hides_params(job_id)
    buttons = actions.of_job(job, given.caller, THERE, is_past=is_past, is_masked=is_masked)
    shown_rows, before = history.shown_of(rows, all_of_them=values["all"] == "yes")
    reply = page(
        "job.html",
        desk,
        given,
        job.title or job.name or job_id,
        section="Jobs",
        job=job,
        job_id=job_id,
        at=at,
        last=last,
        is_past=is_past,
        moment=moment,
        versions=[(event.version, event.type, event.at) for event in events],
        state="deleted" if job.state == DELETED else job.state,
        sentences=explain(told, now=None if is_past else now, lost=None if is_past else questions.losses.of(job)),
        picture=diagram(told),
        bar=timeline(told, None if is_past else now),
        rows=shown_rows,
        rows_before=before,
        view=view,
        starts=starts[:_SHOWN_STARTS],
        starts_left=max(0, len(starts) - _SHOWN_STARTS),
        facts=_facts(job),
        payloads=_payloads(job),
        actions=buttons,
        why_not=actions.reasons(buttons),
        near=_near(questions, job),
        comparison=_compare(questions, told, values["with"]) if values["with"] else None,
        took_ms=_took(job, starts),
        live=query(
            [("seen", events[-1].version), ("view", values["view"]), ("all", values["all"]), ("with", values["with"])]
        ),
        link=_link(values),
    )
    return msgspec.structs.replace(reply, complete_through=now)


def lines(desk: Desk, given: Given) -> Reply:
    """Answer with the next log lines of a job, and with what asks for those after them; with nothing where there are none."""
    found = desk.questions.logs(given.job_id, given.values["after_seq"], LINES)
    is_first = not given.values["after_seq"]
    if not found.items and not is_first:
        return Reply(b"", status=204)
    return fragment(
        "lines.html", given, lines=found.items, last=found.last_seq, has_more=found.has_more, is_first=is_first
    )


def log_text(desk: Desk, given: Given) -> Reply:
    """Answer with a start's log lines, or all of a job's, as plain text: one read a thousand lines."""
    start, text, after = given.values["start"], list[str](), 0
    until = None
    if start:
        after, until = start * LINES_PER_START, (start + 1) * LINES_PER_START
    while True:
        found = desk.questions.logs(given.job_id, after, 1000)
        for line in found.items:
            if until is not None and line.seq >= until:
                return _text(given.job_id, text)
            text.append(f"{line.at.isoformat()} {line.level:<5} #{line.attempt} {line.message}\n")
        after = found.last_seq
        if not found.has_more:
            return _text(given.job_id, text)


def event(desk: Desk, given: Given) -> Reply:
    """Answer with one event as it is stored."""
    version = given.values["version"]
    answer = desk.questions.events(given.job_id, version - 1, 1)
    found = answer.items
    if answer.unreadable:
        raise Corrupt(answer.unreadable[0].why)
    if not found:
        raise NotFound(f"no such event job_id={given.job_id} version={version}")
    return fragment("event.html", given, text=history.event_json(found[0]))


def _unreadable(
    desk: Desk, given: Given, events: Sequence[Event], unreadable: Sequence[Unreadable], *, now: datetime
) -> Reply:
    """Answer with what can be read of a job and what cannot: what it is now, nobody can tell without that."""
    reply = page(
        "unreadable.html",
        desk,
        given,
        given.job_id,
        section="Jobs",
        job_id=given.job_id,
        rows=sorted([*map(history.bare_row, events), *map(history.lost_row, unreadable)], key=lambda row: row.version),
        lost=len(unreadable),
        before=unreadable[0].version - 1 if events and events[0].version == 1 else 0,
    )
    return msgspec.structs.replace(reply, complete_through=now)


def _text(job_id: str, text: list[str]) -> Reply:
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Disposition": f'attachment; filename="{job_id}.log.txt"',
    }
    return Reply("".join(text).encode("utf-8", "replace"), headers=headers)


def _facts(job: Job) -> list[tuple[str, str]]:
    """Return what is worth saying beside state and times, where there is something to say."""
    said = (
        ("Kind", job.name),
        ("Queue", job.queue if job.state != DELETED else ""),
        ("Try", f"{job.attempt} of {max(job.max_attempts, job.attempt)}" if job.attempt else ""),
        ("Starts", str(job.starts) if job.starts > 1 else ""),
        ("Worker", job.worker),
        ("Trigger", job.trigger if job.trigger != "manual" else ""),
        ("Queued by", job.triggered_by),
        ("Priority", str(job.priority) if job.priority else ""),
        ("Key", job.key),
        ("Delivered by", "your own task queue" if job.external else ""),
        ("Cancel asked by", f"{job.canceled_by or 'somebody'}: {job.cancel_reason}".removesuffix(": "))
        if job.cancel_requested_at
        else ("", ""),
    )
    return [(name, value) for name, value in said if value]


def _payloads(job: Job) -> list[tuple[str, Any, str]]:
    """Return params, result and annotations, each as a value and as exact text."""
    said = (("Params", job.params), ("Result", job.result), ("Annotations", job.fields or None))
    return [(name, value, json_text(value)) for name, value in said if value is not None]


def _took(job: Job, starts: Sequence[Start]) -> float | None:
    if job.duration_ms is not None:
        return job.duration_ms
    if job.state == QUEUED or not starts:
        return None
    return starts[0].duration_ms if starts[0].ended_at else between(job.started_at, job.finished_at)


def _near(questions: Questions, job: Job) -> Near:
    """Return the runs of this kind before it, and when the next is due: three reads of an index."""
    jobs, registry = questions.jobs, questions.standing.registry
    root = job.root_id if job.root_id not in ("", job.job_id) else ""
    definition = registry.get(job.name) if registry is not None else None
    next_at = definition.schedule.after(jobs.emitter.clock()) if definition and definition.schedule else None
    schedule = definition.schedule_text if definition else ""
    if jobs.desk is None or not job.name:
        reason = "this log keeps no table of runs to find them by" if jobs.desk is None else ""
        return Near(replay_of=job.replay_of, root=root, reason=reason, next_at=next_at, schedule=schedule)
    census, kind = jobs.desk.census, RunFilter(job=job.name)
    runs = census.after(kind, job.job_id, _TREND)
    good = census.after(msgspec.structs.replace(kind, statuses=(SUCCEEDED,)), job.job_id, 1)
    ended = [(run.duration_ms, run.status) for run in reversed(runs) if run.finished_at and run.started_at]
    replays, is_cut = _replays(census, job)
    own = [(job.duration_ms or between(job.started_at, job.finished_at), job.state)]
    took = [(ms, state == FAILED) for ms, state in [*ended, *own] if ms is not None and state in (SUCCEEDED, FAILED)]
    return Near(
        previous=runs[0].id if runs else "",
        last_good=good[0].id if good else "",
        replay_of=job.replay_of,
        root=root,
        replays=replays,
        all_replays=_all_replays(job) if replays or is_cut else "",
        next_at=next_at,
        schedule=schedule,
        trend=trend(took),
    )


def _replays(census: Census, job: Job) -> tuple[list[str], bool]:
    """Return the new runs of a job among the newest so many of its kind, and whether more of these are younger than it."""
    if not job.is_final():
        return [], False
    runs = census.after(RunFilter(job=job.name, from_=job.created_at), "", _YOUNGER)
    return [run.id for run in runs if run.replay_of == job.job_id], len(runs) == _YOUNGER


def _all_replays(job: Job) -> str:
    """Return the search for what was made of a job: it looks through all runs of its kind since, and so is made when asked."""
    since = iso(job.created_at) if job.created_at else ""
    return write(Search(root=job.job_id, command=job.name, after=since))


def _compare(questions: Questions, told: Sequence[Event], other: str) -> Comparison:
    """Return this job beside another; what hinders is said, and is no error of the page."""
    try:
        validate(other)
        events = questions.history(other)
    except (InvalidValue, NotFound, Conflict) as error:
        return Comparison(other=shown(other).strip("'"), problem=str(error))
    except JobEventsError as error:
        return Comparison(other=other, problem=f"cannot be read: {error}")
    return Comparison(other=other, state=fold(events).state, parting=diff_jobs(events, told))


def _link(values: Any) -> Any:
    def to(**changes: str | int) -> str:
        said = {
            "at": values["at"] or "",
            "view": values["view"],
            "all": values["all"],
            "with": values["with"],
            **changes,
        }
        return query([*said.items()])

    return to
