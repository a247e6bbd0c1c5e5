"""The pages of queues, workers, schedules, and the projector with what is parked."""

from typing import Any, Literal

import msgspec

from jobevents.errors import Misconfigured
from jobevents.registry import JobDefinition
from jobevents.schedules import in_words
from projections.api.route import Desk, Given, Reply
from projections.api.routes import THERE
from projections.ui import actions
from projections.ui.overviewpage import Part, part
from projections.ui.render import page
from projections.ui.sparks import sparks


def queues(desk: Desk, given: Given) -> Reply:
    """Answer with the queues and what is paused."""
    kept = part(desk.questions.standing.queues)
    found = msgspec.structs.replace(kept, value=kept.value.value if kept.value else None)
    lately = _lately(desk, "queue")
    reply = _page(desk, given, "queues.html", "Queues", queues=found, lately=lately)
    return msgspec.structs.replace(reply, complete_through=kept.value.at) if kept.value else reply


def workers(desk: Desk, given: Given) -> Reply:
    """Answer with who works, and on what."""
    found = part(lambda: desk.questions.standing.workers().items)
    return _page(desk, given, "workers.html", "Workers", workers=found)


def schedules(desk: Desk, given: Given) -> Reply:
    """Answer with the periodic jobs, in words."""
    found = part(desk.questions.standing.schedules)
    words = {one.job: _words(one.schedule) for one in found.value.items} if found.value else {}
    paused = part(desk.questions.jobs.paused)
    by_job = {one.name: one for one in paused.value or () if one.kind == "job"}
    return _page(
        desk,
        given,
        "schedules.html",
        "Schedules",
        schedules=found,
        words=words,
        paused=by_job,
        lately=_lately(desk, "kind"),
        runs={one.name: _run_of(one) for one in desk.questions.standing.registry or ()},
        submitting=actions.pair(given.caller, THERE, "submit", "/api/jobs"),
    )


def projector(desk: Desk, given: Given) -> Reply:
    """Answer with how far each view is behind, what it could not take, and what the log takes."""
    standing = desk.questions.standing
    found = part(standing.projector)
    parked = part(lambda: standing.parked("", 200))
    storage = part(lambda: standing.storage().value.items)
    return _page(desk, given, "projector.html", "Projector", projector=found, parked=parked, storage=storage)


def _lately(desk: Desk, by: Literal["queue", "kind"]) -> Part:
    questions = desk.questions
    return part(lambda: sparks(questions.recent.read(), questions.jobs.emitter.clock(), by))


def _run_of(one: JobDefinition) -> dict[str, Any]:
    """Return the order for a run as its schedule would have it."""
    return {
        "command": one.name,
        "queue": one.queue,
        "max_attempts": one.max_attempts,
        "params": {} if one.params else None,
    }


def _words(schedule: str) -> str:
    try:
        return in_words(schedule)
    except Misconfigured as error:
        return str(error)


def _page(desk: Desk, given: Given, template: str, title: str, **shown: Any) -> Reply:
    now = desk.questions.jobs.emitter.clock()
    pausing = actions.pair(given.caller, THERE, "pause", "/api/pause")
    parking = actions.pair(given.caller, THERE, "admin", "/api/parked/requeue")
    reply = page(template, desk, given, title, section=title, now=now, pausing=pausing, parking=parking, **shown)
    return msgspec.structs.replace(reply, complete_through=now)
