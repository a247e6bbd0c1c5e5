"""The job: what may follow what, the fold and its laws, the fence, and how attempts are counted."""

import random
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobevents.errors import Corrupt, IllegalTransition
from jobevents.events import (
    EVENT_TYPES,
    CancelRequested,
    Event,
    JobAnnotated,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobImported,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.job import (
    ASSERTED,
    CAUSES,
    DELETED,
    FENCED,
    NEW,
    SAME,
    TRANSITIONS,
    Job,
    allowed,
    check,
    due_at,
    fold,
)
from jobevents.records import status_bytes
from jobevents.status import Status, decode
from jobevents.testing.strategies import histories, moves
from tests.diagram import diagram

T0 = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 8, 2, tzinfo=UTC)
CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"

queued = partial(JobQueued, name="render")
started = partial(JobStarted, attempt=1)
failed = partial(JobFailed, error="boom")
OPEN = "paused"  # a state that is none of ours

WAYS: dict[str, tuple[Any, ...]] = {
    NEW: (),
    "queued": (queued,),
    "running": (queued, started),
    "succeeded": (queued, started, partial(JobSucceeded, start=2)),
    "failed": (queued, started, partial(failed, start=2)),
    "canceled": (queued, JobCanceled),
    "skipped": (queued, JobSkipped),
    DELETED: (queued, JobDeleted),
    OPEN: (partial(JobRecorded, state=OPEN),),
}
LEAST: dict[type[Event], dict[str, Any]] = {
    JobQueued: {"name": "render"},
    JobStarted: {"attempt": 1},
    JobProgressed: {"percent": 40},
    JobFailed: {"error": "boom"},
    JobRecorded: {"state": "skipped"},
    JobImported: {"state": "skipped"},
    TransitionRefused: {"start": 2, "tried": "JobSucceeded", "state": "running"},
}
EVERY_TYPE = list(EVENT_TYPES.values())


def history(*drafts: Any, job_id: str = "job-1", at: datetime = T0) -> list[Event]:
    """Return drafts as a history: versions from 1, one second apart."""
    return [
        draft(job_id=job_id, version=n, id=f"id{n}", at=at + timedelta(seconds=n)) for n, draft in enumerate(drafts, 1)
    ]


def after(*drafts: Any) -> Job:
    """Return the job after drafts, each of which must be legal."""
    job = Job(job_id="job-1")
    for event in history(*drafts):
        check(job, event)
        job = fold([event], job)
    return job


def follow(job: Job, cls: type[Event], **values: Any) -> Event:
    """Return an event of a type in the job's next slot, with the values it cannot be without."""
    return cls(job_id=job.job_id, version=job.version + 1, id="next", at=LATER, **{**LEAST.get(cls, {}), **values})


def candidates(state: str, cls: type[Event]) -> list[dict[str, Any]]:
    """Return the values that make events of a type which the table allows in a state, all of them legal there."""
    start = {"start": 2} if state == "running" and cls in FENCED else {}
    if cls is JobRequeued:
        return [{**start, "cause": cause} for cause in CAUSES.get(state, CAUSES["failed"])]
    if cls is JobFailed and state == "running":
        return [start, {**start, "retry_at": LATER}]
    if cls is JobRecorded and TRANSITIONS.get(state, TRANSITIONS["failed"])[cls] == (SAME,):
        return [{"state": state}]
    return [start]


LEGAL = [
    pytest.param(state, cls, values, id=f"{state}-{cls.__name__}-{n}")
    for state in WAYS
    for cls in EVERY_TYPE
    if cls in allowed(state)
    for n, values in enumerate(candidates(state, cls))
]
ILLEGAL = [
    pytest.param(state, cls, id=f"{state}-{cls.__name__}")
    for state in WAYS
    for cls in EVERY_TYPE
    if cls not in allowed(state)
]


# What may follow what


def test_the_table_speaks_of_every_state_there_is() -> None:
    """A state without a row would allow what open text allows, unseen."""
    assert {NEW, DELETED, "queued", "running", "succeeded", "failed", "canceled", "skipped"} == set(TRANSITIONS)


@pytest.mark.parametrize(("state", "cls", "values"), LEGAL)
def test_a_legal_event_folds_to_a_state_that_the_table_names(
    state: str, cls: type[Event], values: dict[str, Any]
) -> None:
    """What the table allows passes check, and fold leads where the table says."""
    job = after(*WAYS[state])
    event = follow(job, cls, **values)
    check(job, event)

    then = fold([event], job).state

    named = {SAME: state, ASSERTED: getattr(event, "state", "")}
    assert then in {named.get(target, target) for target in allowed(state)[cls]}


@pytest.mark.parametrize(("state", "cls"), ILLEGAL)
def test_an_illegal_event_is_refused_with_all_that_is_needed_to_see_why(state: str, cls: type[Event]) -> None:
    """The refusal says what was tried, on which job, in which state, by which start, and what is allowed."""
    job = after(*WAYS[state])
    causes = {"cause": "retry"} if cls is JobRequeued else {}
    starts = {"start": 2} if cls in FENCED else {}

    with pytest.raises(IllegalTransition) as refused:
        check(job, follow(job, cls, **causes, **starts))

    error = refused.value
    assert error.tried.startswith(cls.__name__)
    assert (job.job_id, state, job.start, starts.get("start", 0)) == (
        error.job_id,
        error.state,
        error.current,
        error.start,
    )
    assert [one.__name__ for one in allowed(state)] == [one.partition("(")[0] for one in error.allowed]
    for word in (cls.__name__, "job-1", state, *error.allowed):
        assert word in str(error)


def test_every_target_of_the_table_can_be_reached() -> None:
    """No cell of the table is dead: for each target some legal event leads there."""
    reached = set()
    for state in TRANSITIONS:
        for cls in allowed(state):
            for values in candidates(state, cls):
                job = after(*WAYS[state])
                reached.add((state, cls, fold([follow(job, cls, **values)], job).state))

    real = {SAME: lambda state: state, ASSERTED: lambda _: "skipped"}
    named = {
        (state, cls, real.get(target, lambda _, target=target: target)(state))
        for state, row in TRANSITIONS.items()
        for cls, targets in row.items()
        for target in targets
    }
    assert named == reached


@pytest.mark.parametrize("state", [state for state in WAYS if state not in (NEW, DELETED)])
def test_only_the_causes_of_a_state_requeue_it(state: str) -> None:
    """A shutdown of a job that does not run, or a retry of one that succeeded, is refused."""
    job = after(*WAYS[state])
    legal = CAUSES.get(state, CAUSES["failed"])

    for cause in ("retry", "rerun", "shutdown", "lost", "snooze"):
        start = 2 if state == "running" else 0
        if cause in legal:
            check(job, follow(job, JobRequeued, cause=cause, start=start))
        else:
            with pytest.raises(IllegalTransition, match=re.escape(f"JobRequeued({cause})")):
                check(job, follow(job, JobRequeued, cause=cause, start=start))


@pytest.mark.parametrize("state", ["succeeded", "canceled"])
@pytest.mark.parametrize("asserted", ["queued", "running", "failed", OPEN])
def test_no_record_takes_a_job_out_of_succeeded_or_canceled(state: str, asserted: str) -> None:
    """Only an explicit rerun leaves these two: whatever the kit's API or a foreign service writes."""
    job = after(*WAYS[state])

    with pytest.raises(IllegalTransition, match="JobRecorded"):
        check(job, follow(job, JobRecorded, state=asserted))


@pytest.mark.parametrize("reserved", [NEW, DELETED])
@pytest.mark.parametrize("cls", [JobRecorded, JobImported])
def test_no_record_asserts_that_a_job_is_new_or_deleted(reserved: str, cls: type[Event]) -> None:
    """Nothing but a first event and a tombstone leads to these: a record that says so is refused."""
    job = after()

    with pytest.raises(IllegalTransition, match=cls.__name__):
        check(job, follow(job, cls, state=reserved))


@pytest.mark.parametrize("word", ["", "deleted", "new"])
def test_a_state_of_open_text_is_never_taken_for_one_of_ours(word: str) -> None:
    """A record may say any state: an empty one makes no new job, and `deleted` no tombstone (behaviour S5.2)."""
    job = after(partial(JobRecorded, state=word))

    assert word == job.state
    assert allowed("failed") == allowed(job.state)


def test_a_job_that_never_ran_cannot_fail_into_a_retry() -> None:
    """Failing a queued job ends it: waiting for a try that follows none is not in the table."""
    job = after(queued)

    with pytest.raises(IllegalTransition, match="JobFailed"):
        check(job, follow(job, JobFailed, retry_at=LATER))


def test_the_diagram_in_contributing_is_the_table() -> None:
    """The state diagram that people read is drawn from TRANSITIONS, letter for letter."""
    between = re.search(
        r"<!-- transitions -->\s*```mermaid\n(.*?)```\s*<!-- /transitions -->", CONTRIBUTING.read_text(), re.DOTALL
    )

    assert between is not None
    assert diagram() == between[1]


def test_the_diagram_draws_every_change_of_state() -> None:
    """Each row's real targets are edges; events that leave the state are not drawn."""
    edges = re.findall(r"(\S+) --> (\w+): ", diagram())

    wanted = {
        ("[*]" if state == NEW else state, to)
        for state, row in TRANSITIONS.items()
        for targets in row.values()
        for to in targets
        if to not in (SAME, ASSERTED, DELETED)
    }
    assert wanted == set(edges)
    assert len(edges) == len(set(edges))


# The fence


TWICE = (queued, started, partial(JobRequeued, cause="lost", start=2), partial(JobStarted, attempt=2))


@pytest.mark.parametrize("cls", sorted(FENCED, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_events_of_an_older_start_are_refused_while_a_newer_one_runs(cls: type[Event]) -> None:
    """A worker taken for dead that was not changes nothing any more."""
    job = after(*TWICE)
    cause = {"cause": "shutdown"} if cls is JobRequeued else {}

    with pytest.raises(IllegalTransition, match=r"of start=2 \(current start=4\)"):
        check(job, follow(job, cls, start=2, **cause))


@pytest.mark.parametrize("state", [state for state in WAYS if state not in ("running", NEW)])
@pytest.mark.parametrize("cls", [JobSucceeded, JobProgressed, JobAnnotated])
def test_nothing_of_a_start_is_applied_once_the_job_does_not_run(state: str, cls: type[Event]) -> None:
    """The start that ended is no longer current, be it the last there was."""
    job = after(*WAYS[state])

    with pytest.raises(IllegalTransition):
        check(job, follow(job, cls, start=2))


@pytest.mark.parametrize("cls", [JobSucceeded, JobProgressed, JobFailed, JobCanceled])
def test_a_running_job_takes_no_outcome_that_names_no_start(cls: type[Event]) -> None:
    """Whoever ends a running job, or says how far it is, says which attempt it means."""
    job = after(queued, started)

    with pytest.raises(IllegalTransition):
        check(job, follow(job, cls, start=0))


def test_the_attempt_number_alone_is_not_the_fence() -> None:
    """After a shutdown the same attempt number runs again: the first run of it is fenced off by its start."""
    job = after(queued, started, partial(JobRequeued, cause="shutdown", start=2), started)

    assert 1 == job.attempt
    assert job.is_current(4)
    with pytest.raises(IllegalTransition):
        check(job, follow(job, JobSucceeded, start=2))


def test_a_refused_outcome_changes_nothing_but_the_list_of_refusals() -> None:
    """Not even `updated_at` tells of it (the status does not change)."""
    job = after(*TWICE)

    refused = fold([follow(job, TransitionRefused, start=2, tried="JobSucceeded")], job)

    assert msgspec.structs.replace(job, version=5, refused=[2]) == refused


def test_a_start_is_refused_once_in_the_list_however_often_it_is_told() -> None:
    """The list of refusals holds each start once."""
    job = after(*TWICE, *[partial(TransitionRefused, start=2, tried="JobSucceeded", state="running")] * 3)

    assert [2] == job.refused


# Laws of the fold


def unchained(job: Job) -> Job:
    """Return a copy to compare with later."""
    return msgspec.convert(msgspec.to_builtins(job), Job)


@given(histories(), st.data())
def test_folding_in_two_parts_is_folding_at_once(events: list[Event], data: st.DataObject) -> None:
    """For every split the same job results, so that a cached fold may always be gone on from."""
    at = data.draw(st.integers(0, len(events)))

    in_parts = fold(events[at:], fold(events[:at]))

    assert fold(events) == in_parts


@given(histories())
def test_folding_one_by_one_is_folding_at_once(events: list[Event]) -> None:
    """An incremental view comes to what a rebuild comes to."""
    job = Job(job_id="")
    for event in events:
        job = fold([event], job)

    assert fold(events) == job


class Incremental:
    """The smallest folder of a feed that doubles and reorders: what comes early waits for what is missing."""

    def __init__(self) -> None:
        self.job = Job(job_id="")
        self._early: dict[int, Event] = {}

    def take(self, event: Event) -> None:
        """Fold in an event, and those that waited for it."""
        self._early[event.version] = event
        while (following := self._early.pop(self.job.version + 1, None)) is not None:
            self.job = fold([following], self.job)


@given(histories(), st.randoms(use_true_random=False))
def test_doubled_and_reordered_delivery_folds_to_the_same_job(events: list[Event], rng: random.Random) -> None:
    """Arrival decides nothing: with every event at least once, in any order, the version does (TIM-07)."""
    delivered = [*events, *rng.choices(events, k=len(events))]
    rng.shuffle(delivered)
    folder = Incremental()

    for event in delivered:
        folder.take(event)

    assert fold(events) == folder.job


@given(histories(min_size=2), st.data())
def test_a_doubled_stretch_changes_nothing(events: list[Event], data: st.DataObject) -> None:
    """Events that were folded in already are passed over."""
    again = data.draw(st.integers(0, len(events)))

    assert fold(events) == fold([*events, *events[:again]])


@given(histories(min_size=3), st.data())
def test_a_hole_is_corrupt_and_is_never_folded_over(events: list[Event], data: st.DataObject) -> None:
    """A missing version is an error that names it, since what follows may depend on it."""
    gap = data.draw(st.integers(0, len(events) - 2))
    assume(not isinstance(events[gap + 1], JobDeleted))

    with pytest.raises(Corrupt, match=f"expected version={gap + 1} found={gap + 2}"):
        fold([*events[:gap], *events[gap + 1 :]])


@given(histories(min_size=2), st.data())
def test_a_tombstone_needs_nothing_below_it(events: list[Event], data: st.DataObject) -> None:
    """What is below may have been erased: of a job that was deleted nothing is known anyhow."""
    last = JobDeleted(job_id=events[0].job_id, version=len(events) + 1, id="z", at=events[-1].at, chain="c")
    known = data.draw(st.integers(0, len(events)))

    job = fold([last], fold(events[:known], job_id=last.job_id))

    assert (DELETED, last.version, "c") == (job.state, job.version, job.chain)
    assert (None, "", {}) == (job.params, job.title, job.fields)


@given(histories(min_size=2), st.data())
def test_fold_never_changes_the_job_it_is_given(events: list[Event], data: st.DataObject) -> None:
    """Folds are shared between threads and caches: none of their dicts or lists is written to."""
    at = data.draw(st.integers(0, len(events) - 1))
    job = fold(events[:at])
    before = unchained(job)

    fold(events[at:], job)

    assert before == unchained(job)


@given(histories(min_size=2))
def test_fold_never_changes_an_event(events: list[Event]) -> None:
    """What was read from the log stays as it was read."""
    before = msgspec.json.encode(events)

    fold(events)

    assert before == msgspec.json.encode(events)


@given(histories())
def test_every_legal_history_has_a_status(events: list[Event]) -> None:
    """Whatever a job has been through can be shown, and reads back as the state and version it has."""
    job = fold(events)

    shown = decode(status_bytes(job), Status)

    assert (job.state, job.version) == (shown.state, shown.version)


@given(histories())
def test_every_job_but_a_deleted_one_can_go_on(events: list[Event]) -> None:
    """No state but the tombstone is a dead end: something is always allowed."""
    job = fold(events)

    assert (job.state == DELETED) == (not moves(job))


@given(histories())
def test_a_job_has_ended_exactly_when_it_says_when(events: list[Event]) -> None:
    """`finished_at` is set in final states and in no other."""
    job = fold(events)

    assert job.is_final() == (job.finished_at is not None)


@given(histories())
def test_only_a_running_job_has_a_deadline(events: list[Event]) -> None:
    """A deadline never outlives its attempt."""
    job = fold(events)

    assert job.state == "running" or job.deadline is None


@given(histories())
def test_the_next_try_is_never_numbered_below_one(events: list[Event]) -> None:
    """However tries are handed back, at most as many are used up as were begun."""
    job = fold(events)

    assert 0 <= job.tries <= max(job.attempt, job.tries)


# Attempts, tries, starts


def counts(job: Job) -> tuple[int, int, int, int]:
    """Return (starts, attempt, tries, number of the next try)."""
    return job.starts, job.attempt, job.tries, job.tries + 1


def again(cause: str, start: int = 2) -> Any:
    """Return the draft of a requeue."""
    return partial(JobRequeued, cause=cause, start=start)


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        pytest.param((queued,), (0, 0, 0, 1), id="queued"),
        pytest.param((queued, started), (1, 1, 0, 1), id="running"),
        pytest.param((queued, started, partial(JobSucceeded, start=2)), (1, 1, 1, 2), id="succeeded"),
        pytest.param((queued, started, partial(failed, start=2)), (1, 1, 1, 2), id="failed"),
        pytest.param((queued, started, partial(failed, start=2, retry_at=LATER)), (1, 1, 1, 2), id="failed to a retry"),
        pytest.param((queued, started, partial(failed, start=2), again("retry", 0)), (1, 1, 1, 2), id="retry"),
        pytest.param((queued, started, again("lost")), (1, 1, 1, 2), id="lost: counted"),
        pytest.param((queued, started, again("shutdown")), (1, 1, 0, 1), id="shutdown: handed back"),
        pytest.param((queued, started, again("snooze")), (1, 1, 0, 1), id="snooze: handed back"),
        pytest.param((queued, started, partial(JobSucceeded, start=2), again("rerun", 0)), (1, 0, 0, 1), id="rerun"),
        pytest.param((queued, started, again("shutdown"), started), (2, 1, 0, 1), id="shutdown, started again"),
        pytest.param(
            (queued, partial(JobStarted, attempt=5), again("snooze")), (1, 5, 4, 5), id="handed back: as the start says"
        ),
        pytest.param(
            (queued, started, partial(failed, start=2), partial(JobStarted, attempt=2)),
            (2, 2, 1, 2),
            id="redelivery of a failed job",
        ),
        pytest.param(
            (started, partial(JobSucceeded, start=1)), (1, 1, 1, 2), id="nobody queued it"
        ),
        pytest.param(
            (queued, partial(JobStarted, attempt=1, late=True), partial(JobSucceeded, start=2)),
            (1, 1, 1, 2),
            id="late start",
        ),
        pytest.param((partial(JobImported, state="failed", record={"attempts": 3}),), (3, 0, 0, 1), id="imported"),
        pytest.param((queued, partial(JobRecorded, state="running")), (1, 1, 0, 1), id="recorded as running"),
        pytest.param(
            (queued, partial(JobRecorded, state="running"), partial(JobRecorded, state="failed")),
            (1, 1, 1, 2),
            id="recorded as running, then as failed",
        ),
        pytest.param(
            (queued, partial(JobRecorded, state="running", changes={"attempts": 7})),
            (7, 1, 0, 1),
            id="recorded with a count: asserted wins over counted",
        ),
    ],
)  # fmt: skip
def test_starts_attempts_and_tries_are_counted(drafts: tuple[Any, ...], expected: tuple[int, int, int, int]) -> None:
    """(starts, attempt, tries used up, the next try's number) after each way a job may go."""
    assert expected == counts(after(*drafts))


def test_a_recorded_start_fences_like_a_granted_one() -> None:
    """A foreign service that says `running` begins a start, and its version is the fence."""
    job = after(queued, started, partial(JobRecorded, state="queued"), partial(JobRecorded, state="running"))

    assert (4, 2) == (job.start, job.attempt)


@pytest.mark.parametrize("life", ["failed", "skipped"])
@pytest.mark.parametrize("asserted", ["queued", "running", OPEN])
def test_a_job_that_is_recorded_as_going_on_has_not_ended(life: str, asserted: str) -> None:
    """An asserted state takes the end's time with it."""
    job = after(*WAYS[life], partial(JobRecorded, state=asserted))

    assert (asserted, None) == (job.state, job.finished_at)


def test_a_job_that_is_recorded_as_ended_has_no_deadline() -> None:
    """Nothing is left to be waited for."""
    job = after(queued, partial(JobStarted, attempt=1, deadline=LATER), partial(JobRecorded, state="failed"))

    assert (None, T0 + timedelta(seconds=3)) == (job.deadline, job.finished_at)


def test_what_a_record_says_besides_the_common_keys_are_service_fields() -> None:
    """Common keys go where they belong, all others keep the order in which they first came."""
    changes = {"title": "T", "command": "mix", "error": "e", "queued_at": "2026-01-01T00:00:00Z", "b": 1, "a": "x"}

    job = after(queued, partial(JobRecorded, state="running", changes=changes))

    assert ("T", "mix", "e", "2026-01-01T00:00:00Z") == (job.title, job.name, job.error, job.queued_at)
    assert [("b", 1), ("a", "x")] == list(job.fields.items())


def test_an_imported_record_keeps_its_own_times() -> None:
    """`updated_at` is what the record said, not when it was imported."""
    record = {"updated_at": "2025-05-05T05:05:05.123456789Z", "queued_at": "2025-05-05T14:05:05+09:00"}

    job = after(partial(JobImported, state="succeeded", record=record))

    assert tuple(record.values()) == (job.updated_at, job.queued_at)


def test_a_job_that_nobody_queued_is_external() -> None:
    """A stream that begins with a start, a record or an import is delivered by somebody else's queue."""
    for first in (started, partial(JobRecorded, state="queued"), partial(JobImported, state="queued")):
        assert after(first).external


def test_a_new_attempt_shows_nothing_of_the_last_one() -> None:
    """Progress, result and error are the current attempt's."""
    job = after(
        queued,
        started,
        partial(JobProgressed, start=2, percent=90, message="almost"),
        partial(failed, start=2, kind="ValueError"),
        partial(JobStarted, attempt=2),
    )

    assert (None, "", None, "", "") == (
        job.progress,
        job.progress_message,
        job.result,
        job.error,
        job.error_kind,
    )


def test_a_job_that_waits_for_its_retry_keeps_the_error() -> None:
    """People see why it waits, and until when."""
    job = after(queued, started, partial(failed, start=2, retry_at=LATER))

    assert ("queued", "boom", LATER) == (job.state, job.error, due_at(job))


@pytest.mark.parametrize("how", [partial(JobRequeued, cause="rerun"), partial(JobRequeued, cause="retry")])
def test_a_cancel_asked_for_before_does_not_hang_over_the_next_run(how: Any) -> None:
    """Whoever asks for another run has taken back the cancel."""
    job = after(queued, started, CancelRequested, partial(failed, start=2), how)

    assert (None, "", "") == (job.cancel_requested_at, job.canceled_by, job.cancel_reason)


@pytest.mark.parametrize("cause", ["lost", "shutdown", "snooze"])
def test_a_cancel_asked_for_outlives_the_worker_that_did_not_heed_it(cause: str) -> None:
    """A worker that dies or gives the job back does not take the request with it."""
    job = after(queued, started, CancelRequested, again(cause))

    assert job.cancel_requested_at is not None


# Keys


@pytest.mark.parametrize("state", ["succeeded", "failed", "canceled", "skipped"])
def test_an_ended_job_gives_up_its_key_when_it_goes_on(state: str) -> None:
    """The end released the key, and somebody else may hold it by then (IDE-07)."""
    job = after(partial(queued, key="k"), *WAYS[state][1:], partial(JobRequeued, cause="rerun"))

    assert "" == job.key


def test_a_redelivered_failed_job_gives_up_its_key() -> None:
    """A start leaves `failed` as well as a retry does."""
    job = after(partial(queued, key="k"), *WAYS["failed"][1:], partial(JobStarted, attempt=2))

    assert "" == job.key


@pytest.mark.parametrize(
    "drafts",
    [
        (started, partial(failed, start=2, retry_at=LATER)),
        (started, again("lost")),
        (started, again("shutdown")),
        (partial(JobRequeued, cause="retry"),),
        (started, partial(JobSucceeded, start=2)),
    ],
)
def test_a_job_keeps_its_key_until_then(drafts: tuple[Any, ...]) -> None:
    """An unfinished job holds its key through every try, and the end alone does not forget it."""
    assert "k" == after(partial(queued, key="k"), *drafts).key


# Deletion


def strings_in(value: Any) -> Iterable[str]:
    """Yield every text anywhere in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def test_a_deleted_job_keeps_nothing_personal() -> None:
    """After the tombstone only the id, times and numbers are left of all that was ever said."""
    secret = "alice@example.com"
    before = after(
        partial(queued, params={secret: secret}, title=secret, key=secret, actor=secret, queue=secret),
        partial(JobStarted, attempt=1, worker=secret),
        partial(JobProgressed, start=2, percent=1, message=secret),
        partial(JobAnnotated, start=2, fields={"mail": secret}),
        partial(CancelRequested, actor=secret, reason=secret),
        partial(JobFailed, start=2, error=secret, kind=secret),
        partial(TransitionRefused, start=2, tried="JobSucceeded", state="failed", detail=secret),
    )

    job = fold([follow(before, JobDeleted, actor=secret, reason=secret)], before)

    assert DELETED == job.state
    assert [] == [text for text in strings_in(msgspec.to_builtins(job)) if secret in text]


@given(histories())
def test_nothing_of_any_history_outlives_its_tombstone(events: list[Event]) -> None:
    """Two jobs that were deleted differ in no more than numbers and times."""
    job = fold(events)
    job = job if job.state == DELETED else fold([follow(job, JobDeleted)], job)

    blank = Job(
        job_id=job.job_id,
        version=job.version,
        state=DELETED,
        created_at=job.created_at,
        updated_at=job.updated_at,
        start=job.start,
        refused=job.refused,
    )
    assert blank == job
