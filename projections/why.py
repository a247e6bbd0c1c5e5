"""Why a job is in the state it is in, in sentences: what won, what was refused, who did it, how long it waited and ran. Pure.

Each sentence names the event it stands on and the state after it, both from the one fold, so that none can say what the
status does not.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

import msgspec

from jobevents.assertions import Instant
from jobevents.events import (
    CancelRequested,
    Event,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobImported,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import CANCELED, DELETED, FAILED, QUEUED, RUNNING, SKIPPED, SUCCEEDED, Job, due_at, fold
from projections.lost import Lost

Kind = Literal["state", "wanted", "started", "ended", "given back", "cancel", "refused", "record", "deleted", "sum"]

_NOBODY = "somebody"  # an event that names no actor
_TEXT = 300  # characters of a text that somebody else wrote
_NONE = timedelta(0)


class Sentence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sentence of an explanation."""

    kind: Kind  # what it is about: `state` comes first, `sum` last, the others tell an event each
    text: str  # for people; quoted texts in it are of others, so escape it
    version: int  # of the event that it stands on; of the last one for `state` and `sum`
    at: Instant  # when that was written
    state: str  # the job's state after that event


def explain(
    events: Sequence[Event], *, now: datetime | None = None, zone: tzinfo | None = UTC, lost: Lost | None = None
) -> list[Sentence]:
    """Return why a job is as it is: a sentence of its state, one for each event that mattered, one of all times together.

    Args:
        events: a job's history from its first event on, up to now or to any moment of its past.
        now: aware; what "for 3 min" of a job that waits or runs counts to; left out without it.
        zone: of the times in the texts; None: the system's.
        lost: how its worker is lost, as `lost.Losses` says of a job that runs now.
    """
    if not events:
        return []
    story = _Story(zone, lost)
    for event in events:
        story.tell(event)
    last, job = events[-1], story.job
    state = Sentence("state", _state(job, story, now), last.version, last.at, job.state)
    total = story.total()
    ending = [Sentence("sum", total, last.version, last.at, job.state)] if total else []
    return [state, *story.sentences, *ending]


def span(length: timedelta) -> str:
    """Return a length of time as people say it, two units at most."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for unit, size, part, part_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


class _Story:
    """The job so far, and what was told of it."""

    def __init__(self, zone: tzinfo | None, lost: Lost | None = None) -> None:
        self.lost = lost
        self.job = Job(job_id="")
        self.sentences: list[Sentence] = []
        self.asserted_by = ""  # who last said a state
        self._zone = zone
        self._ready_at: datetime | None = None  # since when it could be started, while it waits
        self._backs_off_from: datetime | None = None  # since when it waits for a due time of its own making
        self._waited = self._ran = self._backed_off = _NONE

    def tell(self, event: Event) -> None:
        """Fold an event, and tell of it if it matters."""
        before, self.job = self.job, fold([event], self.job)
        told = _TELL.get(type(event))
        if told is not None:
            kind, say = told
            text = say(self, event, before)
            text = _capital(text) if text.startswith(_NOBODY) else text
            self.sentences.append(Sentence(kind, text, event.version, event.at, self.job.state))
        if before.state == RUNNING and self.job.state != RUNNING and before.started_at is not None:
            self._ran += max(_NONE, event.at - before.started_at)
        if self.job.state != QUEUED:
            self._ready_at = self._backs_off_from = None
        elif before.state != QUEUED or isinstance(event, JobRequeued):
            self._ready_at = max(event.at, due_at(self.job))
            self._backs_off_from = event.at if self._ready_at > event.at else None

    def clock(self, when: datetime) -> str:
        """Return a time of day, with its date where that is not the day on which the job began."""
        try:
            local = when.astimezone(self._zone)
            first = (self.job.created_at or when).astimezone(self._zone)
        except OverflowError:  # at the end of the calendar
            return when.isoformat()
        return local.strftime("%H:%M:%S" if local.date() == first.date() else "%Y-%m-%d %H:%M:%S")

    def waited(self, event: Event) -> str:
        """Return how long the job had waited when it was started, and count it."""
        if self._ready_at is None:
            return ""
        waited = max(_NONE, event.at - self._ready_at)
        self._waited += waited
        if self._backs_off_from is not None:
            self._backed_off += max(_NONE, min(event.at, self._ready_at) - self._backs_off_from)
        return f", {span(waited)} after it could" if waited else " at once"

    def total(self) -> str:
        """Return all times together; "" for a job that has had none."""
        parts = []
        if self._waited:
            parts.append(f"waited {span(self._waited)} for a worker")
        if self._backed_off:
            parts.append(f"held back {span(self._backed_off)} until it was due")
        if self._ran:
            parts.append(f"ran {span(self._ran)}")
        starts = f" in {_many(self.job.starts, 'start')}" if self._ran and self.job.starts > 1 else ""
        return f"In all it {', '.join(parts)}{starts}." if parts else ""

    def ran(self, event: Event, before: Job) -> str:
        """Return how long the attempt ran that an event ends."""
        if before.state != RUNNING or before.started_at is None:
            return ""
        if event.at < before.started_at:
            return " (the clocks disagree on how long it ran)"
        return f" after {span(event.at - before.started_at)}"


def _state(job: Job, story: _Story, now: datetime | None) -> str:
    """Return the sentence that says the state and what made it."""
    tries = f"try {job.attempt} of {max(job.max_attempts, job.attempt)}"
    ended = f" at {story.clock(job.finished_at)}" if job.finished_at else ""
    match job.state:
        case s if s == DELETED:
            return "It is deleted, and never comes back; what it was is in the events until they are erased."
        case s if s == QUEUED:
            return _why_queued(job, story, now)
        case s if s == RUNNING:
            since = f" since {story.clock(job.started_at)}{_lasting(job.started_at, now)}" if job.started_at else ""
            done = "" if job.progress is None else f"; it said {job.progress:g} %"
            doing = f": {_quoted(job.progress_message)}" if done and job.progress_message else ""
            who = f" on worker {_named(job.worker)}" if job.worker else " on a worker that nobody named"
            asked = f" But {_asked(job, story)} It has not stopped yet." if job.cancel_requested_at else ""
            return f"It is running{since}, {tries},{who}{done}{doing}.{_without_worker(story)}{asked}"
        case s if s == SUCCEEDED:
            late = " The cancel that was asked for came too late." if job.cancel_requested_at else ""
            times = f", at start {job.starts}" if job.starts > 1 else ""
            return f"It succeeded{ended}{times}.{late}"
        case s if s == FAILED:
            return f"It failed{ended}, {tries}: {_error(job.error_kind, job.error)}."
        case s if s == CANCELED:
            return f"It was canceled{ended} by {_named(job.canceled_by)}{_because(job.cancel_reason)}."
        case s if s == SKIPPED:
            return f"It was skipped{ended}{_because(job.error)}."
        case _:
            who = _named(story.asserted_by)
            return f"Its state is {_quoted(job.state) or 'empty'}, which is none of ours: {who} said so."


def _without_worker(story: _Story) -> str:
    """Return what is to be said of a job whose worker is lost."""
    lost = story.lost
    if lost is None:
        return ""
    if not lost.is_certain:
        return f" But {_quoted(lost.why)}."
    since = f" since {story.clock(lost.since)}" if lost.since else ""
    return f" But nobody is known to work on it{since}: {_quoted(lost.why)}."


def _why_queued(job: Job, story: _Story, now: datetime | None) -> str:
    due = due_at(job)
    failed = f" Try {job.attempt} failed: {_error(job.error_kind, job.error)}." if job.error else ""
    asked = f" But {_asked(job, story)}" if job.cancel_requested_at else ""
    what = f"try {job.tries + 1}" if job.starts else "its first start"
    if now is not None and due > now:
        return f"It is queued for {what}, not due before {story.clock(due)}, in {span(due - now)}.{failed}{asked}"
    whose = " your own task queue has to deliver it" if job.external else " no worker has taken it"
    return f"It is queued for {what}, due since {story.clock(due)}{_lasting(due, now)}:{whose}.{failed}{asked}"


def _asked(job: Job, story: _Story) -> str:
    at = job.cancel_requested_at
    when = f" at {story.clock(at)}" if at else ""
    return f"{_named(job.canceled_by)} asked for it to stop{when}{_because(job.cancel_reason)}."


def _queued(story: _Story, event: JobQueued, _: Job) -> str:
    later = f", not before {story.clock(event.scheduled_at)}" if event.scheduled_at else ""
    place = f" on queue {_quoted(event.queue)}" if event.queue != "default" else ""
    tries = f", {event.max_attempts} tries at most" if event.max_attempts > 1 else ""
    again = f" as a new run of {_quoted(event.replay_of)}" if event.replay_of else ""
    what = _quoted(event.name) or "a job"
    return f"{_named(event.actor)} queued {what}{place}{again}{later}{tries}{_because(event.reason)}."


def _started(story: _Story, event: JobStarted, before: Job) -> str:
    who = f"Worker {_named(event.worker)}" if event.worker else _named(event.actor)
    if event.late:
        return f"{who} says that it ran try {event.attempt} ungranted: the log could not be written when it began."
    again = " again" if before.state == FAILED else ""
    return f"{who} started try {event.attempt}{again}{story.waited(event)}."


def _succeeded(story: _Story, event: JobSucceeded, before: Job) -> str:
    late = " The cancel came too late: the work was done first." if before.cancel_requested_at else ""
    return f"Try {story.job.attempt} succeeded{story.ran(event, before)}.{late}"


def _failed(story: _Story, event: JobFailed, before: Job) -> str:
    error = _error(event.kind, event.error)
    if before.state != RUNNING:
        return f"{_named(event.actor)} failed it without a start: {error}."
    said = f"Try {before.attempt} failed{story.ran(event, before)}: {error}."
    if event.retry_at is not None:
        return f"{said} The next try is due at {story.clock(event.retry_at)}{_in(event.retry_at - event.at)}."
    left = before.max_attempts - before.attempt
    return (
        f"{said} It was given up with {_many(left, 'try', 'tries')} left." if left > 0 else f"{said} No try was left."
    )


def _requeued(story: _Story, event: JobRequeued, before: Job) -> str:
    who, why, ran = _named(event.actor), _because(event.reason), story.ran(event, before)
    worker = f"worker {_named(before.worker)}" if before.worker else "its worker"
    later = f", not before {story.clock(event.scheduled_at)}" if event.scheduled_at else ""
    match event.cause:
        case "retry":
            return f"{who} asked for another try{later}{why}."
        case "rerun":
            return f"{who} asked for it to be run again from the beginning{later}{why}."
        case "lost":
            return f"{_capital(worker)} was lost{ran}; {who} gave the job back, and the try counts{later}{why}."
        case "shutdown":
            return f"{_capital(worker)} stopped and gave it back{ran}; the try does not count{later}{why}."
        case "snooze":
            return f"{_capital(worker)} put it off{ran}; the try does not count{later}{why}."


def _cancel_asked(story: _Story, event: CancelRequested, before: Job) -> str:
    again = " again; the first one counts" if before.cancel_requested_at else ""
    return f"{_named(event.actor)} asked for it to stop{again}{_because(event.reason)}."


def _canceled(story: _Story, event: JobCanceled, before: Job) -> str:
    asked = before.cancel_requested_at
    if before.state != RUNNING:
        by, why = _named(story.job.canceled_by), _because(story.job.cancel_reason)
        return f"{by} canceled it while it was {_quoted(before.state)}{why}."
    if event.forced:
        after = f", {span(event.at - asked)} after it was asked to stop" if asked and event.at > asked else ""
        return (
            f"{_named(event.actor)} canceled it by force{story.ran(event, before)}{after}{_because(event.reason)}; its worker "
            "may have worked on, for nothing."
        )
    if asked is None:
        return f"{_named(event.actor)} canceled it{story.ran(event, before)}{_because(event.reason)}."
    heeded = f", {span(event.at - asked)} after it was asked to" if event.at >= asked else ""
    return f"It stopped{story.ran(event, before)}{heeded}: the cancel won."


def _skipped(story: _Story, event: JobSkipped, before: Job) -> str:
    return f"It was passed over{_because(event.reason)}."


def _refused(story: _Story, event: TransitionRefused, before: Job) -> str:
    what = (
        f"{_quoted(event.tried)} of start #{event.start}" if event.start else f"{_quoted(event.tried)}, never granted"
    )
    now = f" and belonged to start #{before.start}" if before.state == RUNNING and before.start != event.start else ""
    detail = f" It said: {_quoted(event.detail)}." if event.detail else ""
    who = _named(event.actor)
    return (
        f"Refused: {who} came with {what}, when the job was {_quoted(event.state)}{now}. Nothing was changed.{detail}"
    )


def _recorded(story: _Story, event: JobRecorded, before: Job) -> str:
    story.asserted_by = event.actor
    keys = [*event.changes, *(msgspec.to_builtins(event.run) if event.run is not None else ())]
    changed = f" with {', '.join(map(_quoted, keys))}" if keys else ""
    if event.state == before.state:
        return f"{_named(event.actor)} wrote a record{changed}{_because(event.reason)}."
    said = _quoted(event.state) or "empty"
    return f"{_named(event.actor)} wrote a record that says it is {said}{changed}{_because(event.reason)}."


def _imported(story: _Story, event: JobImported, before: Job) -> str:
    story.asserted_by = event.actor
    said = _quoted(event.state) or "empty"
    return (
        f"{_named(event.actor)} imported a record from before the log, which says it is {said}{_because(event.reason)}."
    )


def _deleted(story: _Story, event: JobDeleted, before: Job) -> str:
    with_blobs = " with what it produced" if event.artifacts else ""
    was = f" while it was {_quoted(before.state)}"
    return f"{_named(event.actor)} deleted it{with_blobs}{was}{_because(event.reason)}."


_TELL: Mapping[type[Event], tuple[Kind, Callable[[_Story, Any, Job], str]]] = {
    JobQueued: ("wanted", _queued),
    JobStarted: ("started", _started),
    JobSucceeded: ("ended", _succeeded),
    JobFailed: ("ended", _failed),
    JobRequeued: ("given back", _requeued),
    CancelRequested: ("cancel", _cancel_asked),
    JobCanceled: ("ended", _canceled),
    JobSkipped: ("ended", _skipped),
    TransitionRefused: ("refused", _refused),
    JobRecorded: ("record", _recorded),
    JobImported: ("record", _imported),
    JobDeleted: ("deleted", _deleted),
}
"""What an event is told as; progress and annotations are not told, the state's sentence has the last of them."""


def _named(who: str) -> str:
    return _quoted(who) or _NOBODY


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quoted(text: str) -> str:
    """Return another's text without what would end a sentence of ours."""
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def _error(kind: str, text: str) -> str:
    named = f"{_quoted(kind)}: " if kind and kind not in text else ""
    return named + (_quoted(text) or "no error was given")


def _because(reason: str) -> str:
    return f": {_quoted(reason)}" if reason else ""


def _lasting(since: datetime, now: datetime | None) -> str:
    return f", for {span(now - since)}" if now is not None and now > since else ""


def _in(length: timedelta) -> str:
    return f", {span(length)} later" if length > _NONE else ""


def _many(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
