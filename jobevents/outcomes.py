"""How an attempt ends, as the event that says so: whatever is raised or returned, there is one that can be stored."""

import traceback
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from jobevents import boundary
from jobevents.emit import Draft
from jobevents.errors import Abandon, Canceled, InvalidValue, Snooze
from jobevents.events import JobCanceled, JobFailed, JobRequeued, JobSucceeded, TransitionRefused
from jobevents.job import DELETED, NEW, Job
from jobevents.telemetry import Counts

TRACEBACK_FRAMES = 100  # the innermost ones; the text is cut further to its limit in bytes


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt ended, as the event that says so (but for its start)."""

    type: str
    draft: Draft
    detail: str = ""  # what a refusal of it keeps: the error's text
    waits: bool = False  # the job is to be started again, unless a cancel was asked for


GIVEN_BACK = Outcome("JobRequeued", partial(JobRequeued, cause="shutdown"), waits=True)


def outcome_of(
    error: BaseException | None,
    result: Any,
    *,
    scrub: boundary.Scrub,
    counts: Counts,
    now: datetime,
    retry_in_s: float | None = None,
    tail: Sequence[str] = (),
) -> Outcome:
    """Return what leaving an attempt's block means; never raises, so that the end of a job is always recorded.

    Args:
        retry_in_s: seconds before the next try of what failed, unless it is to be abandoned; None: it stays failed.
        tail: the last lines of the attempt's log, kept with a failure.
    """
    match error:
        case None:
            return Outcome("JobSucceeded", partial(JobSucceeded, result=storable_result(result, scrub, counts)))
        case Canceled():
            return Outcome("JobCanceled", JobCanceled)
        case BaseExceptionGroup() if error.split(Canceled)[1] is None:  # what a task group makes of it
            return Outcome("JobCanceled", JobCanceled)
        case Snooze():
            due = _later(now, error.delay)
            return Outcome("JobRequeued", partial(JobRequeued, cause="snooze", scheduled_at=due), waits=True)
        case _:
            text = _text(boundary.describe(error), error, boundary.ERROR_LIMIT, scrub, counts)
            failed = partial(
                JobFailed,
                error=text,
                kind=boundary.clean_text(type(error).__name__, boundary.NAME_LIMIT),
                traceback=_text(_lines_of(error), error, boundary.TRACEBACK_LIMIT, scrub, counts),
                tail=_storable_tail(tail, scrub, counts),
            )
            detail = boundary.clean_text(text, boundary.TITLE_LIMIT)
            if retry_in_s is None or _is_abandoned(error):
                return Outcome("JobFailed", failed, detail=detail)
            again = partial(failed, retry_at=_later(now, timedelta(seconds=retry_in_s)))
            return Outcome("JobFailed", again, detail=detail, waits=True)


def refusal(job: Job, start: int, outcome: Outcome, *, ungranted: bool) -> list[Draft]:
    """Return one TransitionRefused for each start, none after a deletion."""
    if job.state in (NEW, DELETED) or (start and start in job.refused):
        return []
    detail = "ran ungranted" if ungranted else outcome.detail
    return [partial(TransitionRefused, start=start, tried=outcome.type, state=job.state, detail=detail)]


def _is_abandoned(error: BaseException) -> bool:
    return isinstance(error, Abandon) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Abandon) is not None)


def storable_result(result: Any, scrub: boundary.Scrub, counts: Counts) -> Any:
    """Return the result, or a marker that says why it cannot be stored: the job has succeeded all the same."""
    try:
        return boundary.check_json("result", scrubbed(result, scrub))
    except InvalidValue as error:
        counts.add("results_not_storable")
        return {"unstorable": boundary.clean_text(str(error), boundary.TITLE_LIMIT)}


def scrubbed(value: Any, scrub: boundary.Scrub) -> Any:
    """Return what scrub leaves of a value.

    Raises:
        InvalidValue: scrub itself failed; nothing unscrubbed may be kept.
    """
    try:
        return scrub(value)
    except Exception as error:  # the user's code, called amid the user's work
        raise InvalidValue(f"scrub failed error={type(error).__name__}") from error


def _text(text: str, error: BaseException, limit: int, scrub: boundary.Scrub, counts: Counts) -> str:
    """Return text of an error as it may be kept: no more than the class's name where scrub fails."""
    try:
        return boundary.clean_text(scrubbed(text, scrub), limit)
    except InvalidValue:
        counts.add("scrubs_failed")
        return boundary.clean_text(type(error).__name__, limit)


def _storable_tail(lines: Sequence[str], scrub: boundary.Scrub, counts: Counts) -> tuple[str, ...]:
    """Return the last of these lines, as many as fit; none from one on that scrub fails at."""
    kept: list[str] = []
    left = boundary.ERROR_LIMIT
    for line in reversed(lines):
        try:
            text = boundary.clean_text(scrubbed(line, scrub), boundary.TITLE_LIMIT)
        except InvalidValue:
            counts.add("scrubs_failed")
            break
        left -= len(text.encode())
        if left < 0:
            break
        kept.append(text)
    return tuple(reversed(kept))


def _lines_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-TRACEBACK_FRAMES))
    except Exception:  # noqa: BLE001  # an exception that cannot be shown must not hide that the job failed
        return ""


def _later(now: datetime, delay: timedelta) -> datetime:
    try:
        return now + delay
    except OverflowError:  # beyond the calendar: as late as it goes
        return datetime.max.replace(tzinfo=UTC)
