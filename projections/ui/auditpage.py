"""The page of who did what: every event that a person or a program asked for, newest first, by actor."""

from collections import Counter
from typing import Final

import msgspec

from projections.api.recent import Noted
from projections.api.route import Desk, Given, Reply
from projections.ui.overviewpage import part
from projections.ui.render import page
from projections.ui.words import plain, query

ROWS: Final = 50
_ACTS: Final = {
    "JobQueued": "submitted",
    "CancelRequested": "asked it to stop",
    "JobCanceled": "canceled",
    "JobDeleted": "deleted",
    "JobRecorded": "wrote a record",
    "JobImported": "imported",
    "JobSkipped": "skipped",
}
_CAUSES: Final = {"retry": "asked for another try", "rerun": "asked for another run", "lost": "gave a lost job back"}


def show(desk: Desk, given: Given) -> Reply:
    """Answer with the page."""
    questions, actor, act = desk.questions, given.values["actor"], given.values["act"]

    def wanted(one: Noted) -> bool:
        told = told_of(one)
        by = (one.actor.casefold(), plain(one.actor).casefold())  # as it is, and as it is shown
        return bool(told) and (not actor or any(actor.casefold() in name for name in by)) and (not act or told == act)

    found = part(lambda: questions.recent.before(given.values["before"], wanted, ROWS))
    actors = part(lambda: _actors(questions.recent.read()))
    rows, further = found.value if found.value else ([], 0)
    base = [("actor", actor), ("act", act)]
    now = questions.jobs.emitter.clock()
    reply = page(
        "audit.html",
        desk,
        given,
        "Audit",
        section="Audit",
        found=found,
        rows=[(one, told_of(one)) for one in rows],
        further=query([*base, ("before", further)]) if further else "",
        actors=actors,
        actor=actor,
        act=act,
        acts=[*_ACTS.values(), *_CAUSES.values()],
        live="" if given.values["before"] else query(base),
    )
    return msgspec.structs.replace(reply, complete_through=now)


def told_of(one: Noted) -> str:
    """Return what somebody did by an event; "" for what a worker says of its own work."""
    if one.type == "JobRequeued":
        return _CAUSES.get(one.note, "")
    return _ACTS.get(one.type, "")


def _actors(noted: list[Noted]) -> list[tuple[str, int]]:
    counts = Counter(one.actor for one in noted if told_of(one) and one.actor)
    return counts.most_common(12)
