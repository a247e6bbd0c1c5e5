"""Periodic jobs: each tick of a schedule is one job, however many runners submit it, since its id is made of its name and tick.

Of the ticks that nobody was there for, the last one is run, late; the others are left out. A schedule that is new begins with
its next tick; ticks of a job or queue that is paused are left out.
"""

import hashlib
import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobevents.errors import Conflict, Gone, JobEventsError
from jobevents.registry import JobDefinition
from jobevents.schedules import Schedule
from jobevents.store import RunFilter
from jobevents.trouble import Trouble

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

ACTOR = "schedule"  # who submits them
LONGEST_S = 30.0  # between two looks: a clock that is set is heard so soon
NAME_LIMIT = 64  # characters of the name that an id begins with
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]+")

logger = logging.getLogger(__name__)


def tick_id(name: str, tick: datetime) -> str:
    """Return the id of the job for one tick: the same for everybody, and no other tick's or job's."""
    shown = _NOT_IN_ID.sub("-", name).strip("-_")[:NAME_LIMIT] or "job"
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{shown}-{tick:%Y%m%d-%H%M%S}-{digest}"


class Ticker:
    """Submits periodic jobs when they are due, from any number of processes."""

    def __init__(self, jobs: "Jobs", definitions: Iterable[JobDefinition]) -> None:
        self._jobs = jobs
        self._definitions = [(one, one.schedule) for one in definitions if one.schedule is not None]
        self._last: dict[str, datetime] = {}  # last tick of each that was submitted, or that needs not be
        self._trouble = Trouble("submitting periodic jobs", logger)

    @property
    def is_needed(self) -> bool:
        """Tell whether any job is periodic."""
        return bool(self._definitions)

    def beat(self) -> float:
        """Submit what is due, and return the seconds until something may be due again."""
        now = self._jobs.emitter.clock()
        wait_s = LONGEST_S
        try:
            for definition, schedule in self._definitions:
                self._submit_due(definition, schedule, now)
                due = schedule.after(now)
                if due is not None:
                    wait_s = min(wait_s, (due - now) / timedelta(seconds=1))
            self._trouble.went()
        except JobEventsError as error:
            return self._trouble.came(error)
        return max(0.0, wait_s)

    def _submit_due(self, definition: JobDefinition, schedule: Schedule, now: datetime) -> None:
        name = definition.name
        if name not in self._last:
            self._last[name] = self._known_tick(name) or now
        tick = schedule.last(now)
        if tick is None or tick <= self._last[name]:
            return
        if not self._is_paused(definition):
            self._submit(definition, tick)
        self._last[name] = tick

    def _is_paused(self, definition: JobDefinition) -> bool:
        """Tell whether nobody wants it now: its ticks would only pile up."""
        held = {("job", definition.name), ("queue", definition.queue)}
        return any((pause.kind, pause.name) in held for pause in self._jobs.paused())

    def _submit(self, definition: JobDefinition, tick: datetime) -> None:
        try:
            self._jobs.submit(
                definition.name,
                {} if definition.params else None,
                id=tick_id(definition.name, tick),
                at=tick,
                queue=definition.queue,
                max_attempts=definition.max_attempts,
                trigger="schedule",
                actor=ACTOR,
                reason=definition.schedule_text,
            )
        except (Conflict, Gone) as error:
            logger.warning(
                "a periodic job was submitted by somebody else, or deleted, and is passed over job=%s tick=%s error=%s",
                definition.name,
                tick.isoformat(),
                error,
            )

    def _known_tick(self, name: str) -> datetime | None:
        """Return the tick of the last run by schedule: its id has it, whatever became of the run."""
        found = self._jobs.runs.list(RunFilter(job=name, trigger="schedule", per_page=1)).runs
        if not found:
            return None
        try:
            day, time = found[0].id.rsplit("-", 3)[1:3]
            return datetime.strptime(f"{day}{time}+0000", "%Y%m%d%H%M%S%z")
        except ValueError:  # somebody else's id
            return found[0].created_at
