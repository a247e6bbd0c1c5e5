"""What people and programs ask of jobs: every command in every state, idempotent submission, and races that one wins."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from jobevents.commands import CancelOutcome, Submission, Submitted
from jobevents.errors import (
    Conflict,
    Gone,
    IllegalTransition,
    InvalidJobId,
    InvalidValue,
    KeyTaken,
    NotFound,
)
from jobevents.events import CancelRequested, JobDeleted, JobQueued, JobRequeued, JobSucceeded
from jobevents.job import due_at
from jobevents.jobs import Jobs
from jobevents.store import RunFilter
from jobevents.wiring import connect
from tests.clock import START, Clock
from tests.jobstates import FINAL, LIVES, bring, other_jobs, tell
from tests.racers import Racers, race


def versions(jobs: Jobs, job_id: str) -> int:
    """Return how many events a job has."""
    return len(jobs.log.read(job_id))


# Every command in every state

Answer = object

CANCEL: dict[str, Answer] = {
    "queued": CancelOutcome.CANCELED,
    "running": CancelOutcome.REQUESTED,
    "running, cancel requested": CancelOutcome.REQUESTED,
    "waiting for a retry": CancelOutcome.CANCELED,
    "given back": CancelOutcome.CANCELED,
    "lost": CancelOutcome.CANCELED,
    "succeeded": CancelOutcome.ALREADY_FINAL,
    "failed": CancelOutcome.ALREADY_FINAL,
    "canceled": CancelOutcome.ALREADY_FINAL,
    "skipped": CancelOutcome.ALREADY_FINAL,
    "deleted": CancelOutcome.UNKNOWN,
    "unknown": CancelOutcome.UNKNOWN,
}
RETRY: dict[str, Answer] = {
    "queued": None,
    "running": IllegalTransition,
    "running, cancel requested": IllegalTransition,
    "waiting for a retry": None,
    "given back": None,
    "lost": None,
    "succeeded": IllegalTransition,
    "failed": None,
    "canceled": IllegalTransition,
    "skipped": None,
    "paused": None,
    "deleted": Gone,
    "unknown": NotFound,
}
RERUN: dict[str, Answer] = {
    **dict.fromkeys(LIVES, IllegalTransition),
    **dict.fromkeys((*FINAL, "paused"), None),
    "deleted": Gone,
    "unknown": NotFound,
}
RERUN_AS_NEW: dict[str, Answer] = {
    **dict.fromkeys(LIVES, Conflict),
    **dict.fromkeys(FINAL, None),
    "deleted": Gone,
    "unknown": NotFound,
}
DELETE: dict[str, Answer] = {**dict.fromkeys(LIVES, True), "deleted": False, "unknown": NotFound}


def cases(table: dict[str, Answer]) -> Any:
    """Return a table as parameters."""
    return pytest.mark.parametrize(("life", "expected"), table.items(), ids=table)


@cases(CANCEL)
def test_can_04_cancel_says_which_of_four_things_it_came_to(jobs: Jobs, life: str, expected: Answer) -> None:
    """Canceled, requested, already final and unknown are told apart, and asking again changes nothing."""
    job_id = bring(jobs, life)

    assert expected == jobs.cancel(job_id, actor="ops", reason="cost")

    length = versions(jobs, job_id)
    again = jobs.cancel(job_id, actor="bob", reason="other")
    assert (CancelOutcome.ALREADY_FINAL if expected == CancelOutcome.CANCELED else expected) == again
    assert length == versions(jobs, job_id)


@cases(RETRY)
def test_retry_queues_what_failed_or_waits_and_refuses_the_rest(jobs: Jobs, life: str, expected: Any) -> None:
    """Of a refused retry nothing is left in the history; of the others the job is queued, and due at once."""
    job_id = bring(jobs, life)
    length = versions(jobs, job_id)

    if expected is None:
        jobs.retry(job_id)

        assert ("queued", START) == (jobs.get(job_id).state, due_at(jobs.job(job_id)))
    else:
        with pytest.raises(expected):
            jobs.retry(job_id)

        assert length == versions(jobs, job_id)


@cases(RERUN)
def test_rerun_queues_what_has_ended_and_refuses_the_rest(jobs: Jobs, life: str, expected: Any) -> None:
    """Only a rerun leaves succeeded or canceled; it counts tries from the first again."""
    job_id = bring(jobs, life)
    length = versions(jobs, job_id)

    if expected is None:
        assert job_id == jobs.rerun(job_id)

        job = jobs.job(job_id)
        assert ("queued", 0, None) == (job.state, job.tries, job.result)
    else:
        with pytest.raises(expected):
            jobs.rerun(job_id)

        assert length == versions(jobs, job_id)


@cases(RERUN_AS_NEW)
def test_a_rerun_as_a_new_job_leaves_the_old_one_as_it_is(jobs: Jobs, life: str, expected: Any) -> None:
    """A finished job may run again under a new id (behaviour M11); nothing is written otherwise."""
    job_id = bring(jobs, life)
    last = jobs.log.last_cursor()

    if expected is None:
        new_id = jobs.rerun(job_id, as_new=True)

        assert life == jobs.get(job_id).state
        assert "queued" == jobs.get(new_id).state
    else:
        with pytest.raises(expected):
            jobs.rerun(job_id, as_new=True)

        assert last == jobs.log.last_cursor()


@cases(DELETE)
def test_delete_ends_any_job_for_good(jobs: Jobs, life: str, expected: Any) -> None:
    """True once, False ever after, NotFound where there never was a job."""
    job_id = bring(jobs, life)

    if expected is NotFound:
        with pytest.raises(NotFound):
            jobs.delete(job_id)
        return

    assert expected == jobs.delete(job_id)
    assert not jobs.delete(job_id)
    assert isinstance(jobs.history(job_id)[-1], JobDeleted)


@pytest.mark.parametrize("bad", ["", "a/b", "a\n", "ü", "x" * 129])
@pytest.mark.parametrize("command", ["cancel", "retry", "rerun", "delete", "get", "job", "history", "attempt"])
def test_no_command_takes_what_is_no_job_id(jobs: Jobs, command: str, bad: str) -> None:
    """An id that came through a URL is refused before anything is read or written."""
    with pytest.raises(InvalidJobId):
        getattr(jobs, command)(bad)


# Cancel


def test_can_01_a_result_after_a_cancel_is_kept_and_so_is_the_cancel(jobs: Jobs) -> None:
    """The handler that ignored the request has succeeded, in the log, the row and the status; who, when, why stay."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        other_jobs(jobs).cancel(job_id, actor="ops", reason="cost")
        attempt.result({"n": 1})

    job, run = jobs.job(job_id), jobs.runs.get(job_id)
    assert run is not None
    assert ["succeeded"] * 3 == [job.state, run.status, jobs.get(job_id).state]
    assert (START, "ops", "cost") == (job.cancel_requested_at, job.canceled_by, job.cancel_reason)
    assert (START, "ops", "cost") == (run.cancel_requested_at, run.canceled_by, run.cancel_reason)
    assert isinstance(jobs.history(job_id)[-1], JobSucceeded)


def test_can_04_the_first_who_and_why_of_a_cancel_are_kept(jobs: Jobs) -> None:
    """A second request neither replaces nor repeats the first."""
    job_id = bring(jobs, "running")

    jobs.cancel(job_id, actor="ops", reason="cost")
    jobs.cancel(job_id, actor="bob", reason="other")

    requests = [event for event in jobs.history(job_id) if isinstance(event, CancelRequested)]
    assert [("ops", "cost")] == [(event.actor, event.reason) for event in requests]
    assert ("ops", "cost") == (jobs.job(job_id).canceled_by, jobs.job(job_id).cancel_reason)


def test_can_09_a_job_that_waits_for_a_retry_is_canceled_at_once(jobs: Jobs, clock: Clock) -> None:
    """It never starts again, not even when its retry is due."""
    job_id = bring(jobs, "waiting for a retry")

    assert CancelOutcome.CANCELED == jobs.cancel(job_id)

    clock.move(2 * 3600)
    assert "canceled" == jobs.get(job_id).state
    with pytest.raises(Exception, match="the job was canceled"):
        jobs.attempt(job_id).__enter__()


def test_can_02_a_cancel_never_overwrites_a_success(jobs: Jobs) -> None:
    """A thousand times a job ends while it is canceled: it has succeeded, with its result, and the answer fits."""
    rounds = 1000
    ids = jobs.submit_many([{"name": "render", "params": n} for n in range(rounds)])
    canceler = other_jobs(jobs)
    barrier = Barrier(2)
    answers = []

    def work() -> None:
        for n, job_id in enumerate(ids):
            with jobs.attempt(job_id) as attempt:
                attempt.result(n)
                barrier.wait(30)

    def cancel() -> None:
        for job_id in ids:
            barrier.wait(30)
            answers.append(canceler.cancel(job_id))

    threads = [Thread(target=work), Thread(target=cancel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for n, (job_id, answer) in enumerate(zip(ids, answers, strict=True)):
        kinds = [event.type for event in jobs.history(job_id)]
        asked = ["CancelRequested"] if answer == CancelOutcome.REQUESTED else []
        assert answer in (CancelOutcome.REQUESTED, CancelOutcome.ALREADY_FINAL)
        assert ["JobQueued", "JobStarted", *asked, "JobSucceeded"] == kinds
        assert ("succeeded", n) == (jobs.job(job_id).state, jobs.job(job_id).result)


# Submit


def test_a_submission_is_stored_as_it_was_asked_for(jobs: Jobs) -> None:
    """All that was given is on the one event, with who and why."""
    job_id = jobs.submit(
        "render",
        {"song": 7},
        id="song-7",
        title="Song 7",
        queue="slow",
        key="k",
        at=START + timedelta(hours=1),
        priority=-5,
        max_attempts=3,
        external=True,
        actor="alice",
        reason="asked",
    )

    [event] = jobs.history(job_id)
    assert isinstance(event, JobQueued)
    assert "song-7" == job_id
    assert ("render", {"song": 7}, "Song 7", "slow", "k") == (
        event.name,
        event.params,
        event.title,
        event.queue,
        event.key,
    )
    assert (START + timedelta(hours=1), -5, 3, True) == (
        event.scheduled_at,
        event.priority,
        event.max_attempts,
        event.external,
    )
    assert ("alice", "asked", START, 1) == (event.actor, event.reason, event.at, event.version)


def test_an_id_starts_with_the_name_and_holds_the_time(jobs: Jobs) -> None:
    """Ids that were made sort by their time, whatever the name holds."""
    assert jobs.submit("Render Song/α" + "x" * 200).startswith("rendersong" + "x" * 40)
    assert "-20260801-120000-" in jobs.submit("render")


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""},
        {"name": 7},
        {"queue": ""},
        {"key": "x" * 256},
        {"title": 7},
        {"reason": 7},
        {"priority": 1.5},
        {"priority": True},
        {"priority": 2**15},
        {"max_attempts": 0},
        {"id": "../x"},
        {"id": ""},
    ],
    ids=str,
)
def test_a_submission_that_cannot_be_stored_is_refused(jobs: Jobs, bad: dict[str, Any]) -> None:
    """The caller is told, and nothing is written."""
    with pytest.raises(InvalidValue):
        jobs.submit(**{"name": "render", **bad})

    assert "" == jobs.log.last_cursor()


def test_what_the_caller_does_to_its_params_afterwards_changes_no_job(jobs: Jobs) -> None:
    """The job keeps what was submitted: in its event, in its fold, in its row."""
    params = {"songs": [1]}
    job_id = jobs.submit("render", params)

    params["songs"].append(2)
    jobs.cancel(job_id)

    run = jobs.runs.get(job_id)
    assert run is not None
    assert {"songs": [1]} == jobs.job(job_id).params == run.params


def test_the_same_job_again_is_that_job(jobs: Jobs) -> None:
    """A submission repeated after a lost reply, by its id, finds the job, whatever has become of it."""
    first = jobs.submit_or_find(Submission(name="render", params={"a": 1, "b": 2}, id="song-7"))
    bring_on = [(), (lambda: jobs.cancel("song-7"),)]

    assert first.created
    for steps in bring_on:
        for step in steps:
            step()
        again = jobs.submit_or_find(Submission(name="render", params={"b": 2, "a": 1}, id="song-7"))
        assert ("song-7", False) == (again.job_id, again.created)
    assert 2 == versions(jobs, "song-7")


def test_another_job_with_a_taken_id_is_a_conflict(jobs: Jobs) -> None:
    """Neither other params nor another name may hide behind an id."""
    jobs.submit("render", {"a": 1}, id="song-7")

    for name, params in (("render", {"a": 2}), ("mix", {"a": 1})):
        with pytest.raises(Conflict, match="another job has this id"):
            jobs.submit(name, params, id="song-7")

    assert 1 == versions(jobs, "song-7")


def test_a_deleted_job_is_not_submitted_again(jobs: Jobs) -> None:
    """It never comes back: its id is gone."""
    jobs.submit("render", id="song-7")
    jobs.delete("song-7")

    with pytest.raises(Gone):
        jobs.submit("render", id="song-7")


# Several at once


def test_several_jobs_are_submitted_in_order(jobs: Jobs) -> None:
    """Submissions and dicts, mixed, each with its own id."""
    ids = jobs.submit_many([Submission(name="a", params=1), {"name": "b", "params": 2}])

    assert [("a", 1), ("b", 2)] == [(jobs.job(one).name, jobs.job(one).params) for one in ids]
    assert [] == jobs.submit_many([])


@pytest.mark.parametrize("bad", [{"name": ""}, {"name": "b", "params": {1, 2}}, {"nom": "b"}, {"name": "b", "at": "x"}])
def test_one_bad_submission_stops_all(jobs: Jobs, bad: dict[str, Any]) -> None:
    """All or none: nothing is written."""
    with pytest.raises(InvalidValue):
        jobs.submit_many([{"name": "a"}, bad])

    assert "" == jobs.log.last_cursor()


def test_a_conflict_of_one_submission_stops_all(jobs: Jobs) -> None:
    """A taken id among them, and none of them is there."""
    jobs.submit("render", {"a": 1}, id="song-7")
    last = jobs.log.last_cursor()

    with pytest.raises(Conflict):
        jobs.submit_many([{"name": "a", "id": "fresh"}, {"name": "render", "id": "song-7"}])

    assert last == jobs.log.last_cursor()


def test_a_repetition_within_a_batch_is_one_job(jobs: Jobs) -> None:
    """By id or by key, the later of two equal submissions is the earlier one."""
    ids = jobs.submit_many(
        [
            {"name": "a", "id": "one", "params": 1},
            {"name": "a", "id": "one", "params": 1},
            {"name": "b", "key": "k"},
            {"name": "b", "key": "k"},
            {"name": "c", "key": "k"},
        ]
    )

    assert ids[0] == ids[1] == "one"
    assert ids[2] == ids[3]
    assert 3 == len(set(ids))
    assert 3 == jobs.runs.list(RunFilter()).total


def test_a_batch_finds_the_job_that_holds_its_key(jobs: Jobs) -> None:
    """Each repetition of a held key comes to the holder; the others are made."""
    holder = jobs.submit("b", key="k")

    ids = jobs.submit_many([{"name": "b", "key": "k"}, {"name": "b", "key": "k"}, {"name": "b", "key": "l"}])

    assert [holder, holder] == ids[:2]
    assert {holder, ids[2]} == {run.id for run in jobs.runs.list(RunFilter()).runs}


@pytest.mark.parametrize("mark", [{"id": "one"}, {"key": "k"}])
def test_a_batch_that_contradicts_itself_is_refused(jobs: Jobs, mark: dict[str, str]) -> None:
    """Two different jobs with one id or key: nobody can say which is meant."""
    with pytest.raises(InvalidValue, match="positions=0, 1"):
        jobs.submit_many([{"name": "a", "params": 1, **mark}, {"name": "a", "params": 2, **mark}])

    assert "" == jobs.log.last_cursor()


# Idempotency keys


def test_ide_01_fifty_threads_with_one_key_make_one_job(jobs: Jobs) -> None:
    """One is told that it made the job, all are told its id."""
    wanted = Submission(name="render", params={"song": 7}, key="k")

    answers = race(50, lambda _: jobs.submit_or_find(wanted))

    assert 1 == len({answer.job_id for answer in answers})
    assert 1 == sum(answer.created for answer in answers)
    assert 1 == jobs.runs.list(RunFilter()).total


def submit_keys(_: int, wait: Any, url: str, count: int) -> list[str]:
    """Submit a job for each of `count` keys, each time together with the other processes."""
    with connect(url) as jobs:
        ids = []
        for n in range(count):
            wait()
            ids.append(jobs.submit("render", {"song": n}, key=f"k{n}"))
        return ids


def test_ide_01_four_processes_with_one_key_make_one_job(racers: Racers, tmp_path: Any) -> None:
    """Twenty keys, each raced for: every process is told the same ids, and there are no other jobs."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url) as jobs:
        answers = racers.run(submit_keys, url, 20)

        assert 1 == len({tuple(answer) for answer in answers})
        assert 20 == len(set(answers[0]))
        assert 20 == jobs.runs.list(RunFilter()).total


def test_ide_03_a_held_key_with_other_params_is_a_conflict_that_names_the_job(jobs: Jobs) -> None:
    """The caller sees which job is in the way; the order of keys is no difference."""
    holder = jobs.submit("render", {"a": 1, "b": {"c": 1, "d": 2}}, key="k")

    with pytest.raises(KeyTaken) as taken:
        jobs.submit("render", {"a": 2}, key="k")

    assert (holder, "k") == (taken.value.job_id, taken.value.key)
    assert holder in str(taken.value)
    assert holder == jobs.submit("render", {"b": {"d": 2, "c": 1}, "a": 1}, key="k")


def test_a_key_is_of_one_kind_of_job(jobs: Jobs) -> None:
    """Jobs of another name with the same key are in nobody's way."""
    assert jobs.submit("render", key="k") != jobs.submit("mix", key="k")


def test_no_key_is_no_key(jobs: Jobs) -> None:
    """Submissions without a key are all new jobs; an empty one is none."""
    assert 3 == len({jobs.submit("render"), jobs.submit("render", key=""), jobs.submit("render", key=None)})


@pytest.mark.parametrize("life", ["failed", "canceled", "succeeded"])
def test_ide_05_an_ended_job_does_not_hold_its_key(jobs: Jobs, life: str) -> None:
    """Failed for good, canceled or done: the same key makes a new job, which then holds it."""
    ended = bring(jobs, life, key="k")

    new = jobs.submit("render", key="k")

    assert ended != new
    assert new == jobs.submit("render", key="k") == jobs.runs.find_active("render", "k")


IDE_07 = {life: life in (*FINAL, "deleted") for life in LIVES}


@cases(IDE_07)
def test_ide_07_only_unfinished_jobs_hold_their_key(jobs: Jobs, life: str, expected: bool) -> None:
    """In each state the answer says whether the job was found or made, the same on every log."""
    job_id = bring(jobs, life, key="k")

    answer = jobs.submit_or_find(Submission(name="render", key="k"))

    assert expected == answer.created
    assert expected == (job_id != answer.job_id)


@pytest.mark.parametrize("how", ["retry", "rerun"])
def test_ide_07_a_job_that_leaves_its_end_does_not_take_its_key_back(jobs: Jobs, how: str) -> None:
    """Somebody else may hold it by then: both jobs go on, and the key stays with the new one."""
    old = bring(jobs, "failed", key="k")
    new = jobs.submit("render", key="k")

    getattr(jobs, how)(old)

    assert ["queued", "queued"] == [jobs.get(old).state, jobs.get(new).state]
    assert new == jobs.submit("render", key="k")


# Rerun


def test_a_new_run_carries_what_the_old_one_was_and_where_it_came_from(jobs: Jobs) -> None:
    """Params and settings are the old job's, the chain leads to the first of them; the key does not come along."""
    first = jobs.submit("render", {"a": 1}, title="T", queue="slow", key="k", priority=3, max_attempts=2)
    jobs.cancel(first)
    second = jobs.rerun(first, as_new=True, actor="alice", reason="again")
    jobs.cancel(second)

    third = jobs.rerun(second, as_new=True)

    job = jobs.job(third)
    assert ("render", {"a": 1}, "T", "slow", "", 3, 2) == (
        job.name,
        job.params,
        job.title,
        job.queue,
        job.key,
        job.priority,
        job.max_attempts,
    )
    assert (second, first, "replay") == (job.replay_of, job.root_id, job.trigger)
    assert ("alice", "again") == (jobs.history(second)[0].actor, jobs.history(second)[0].reason)


@pytest.mark.parametrize("life", ["failed", "queued", "succeeded", "canceled"])
def test_a_job_is_run_again_when_it_is_wanted(jobs: Jobs, clock: Clock, life: str) -> None:
    """Not before the instant asked for, or after the delay; a time that is none leaves no event."""
    job_id = bring(jobs, life)
    length = versions(jobs, job_id)
    again = jobs.retry if life in ("failed", "queued") else jobs.rerun
    later = clock() + timedelta(hours=2)

    for bad in ({"at": "soon"}, {"at": later, "delay": 1}, {"delay": float("nan")}):
        with pytest.raises(InvalidValue):
            again(job_id, **bad)
    assert length == versions(jobs, job_id)
    again(job_id, at=later)

    assert ("queued", later) == (jobs.get(job_id).state, due_at(jobs.job(job_id)))
    jobs.retry(job_id, delay=60)
    assert clock() + timedelta(seconds=60) == due_at(jobs.job(job_id))


def test_a_new_run_may_have_other_params(jobs: Jobs, clock: Clock) -> None:
    """It is the old one's all the same; the old one keeps its own, and params that cannot be stored make no job."""
    first = jobs.submit("render", {"a": 1})
    jobs.cancel(first)
    last = jobs.log.last_cursor()

    for bad in ({"as_new": True, "params": float("nan")}, {"params": {"a": 2}}):
        with pytest.raises(InvalidValue):
            jobs.rerun(first, **bad)
    assert last == jobs.log.last_cursor()
    second = jobs.rerun(first, as_new=True, params={"a": 2}, delay=5)
    nothing = jobs.rerun(first, as_new=True, params=None)

    job = jobs.job(second)
    assert ({"a": 2}, first, clock() + timedelta(seconds=5)) == (job.params, job.replay_of, due_at(job))
    assert ({"a": 1}, None) == (jobs.job(first).params, jobs.job(nothing).params)


def test_who_and_why_are_on_every_event(jobs: Jobs) -> None:
    """Each command signs what it appends; text that is too long is cut, not refused."""
    job_id = jobs.submit("render", actor="a", reason="1")
    jobs.cancel(job_id, actor="b", reason="2")
    jobs.rerun(job_id, actor="c", reason="3" * 10_000)
    jobs.retry(job_id, actor="d", reason="4")
    jobs.delete(job_id, actor="e", reason="5")

    events = jobs.history(job_id)
    assert [*"abcde"] == [event.actor for event in events]
    assert [*"12345"] == [event.reason[:1] for event in events]
    assert all(len(event.reason) <= 2048 for event in events)


# Deletion


def test_sto_01_nothing_a_living_worker_says_revives_a_deleted_job(jobs: Jobs) -> None:
    """Progress, fields, lines and a result come after the tombstone: none of it is kept, and the worker goes on."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        other_jobs(jobs).delete(job_id)
        attempt.progress(50)
        attempt.annotate(output_dir="gs://b/o")
        attempt.log("line")
        attempt.result({"n": 1})

    assert isinstance(jobs.history(job_id)[-1], JobDeleted)
    assert 3 == versions(jobs, job_id)
    assert jobs.runs.get(job_id) is None
    assert 0 == jobs.runs.list(RunFilter()).total
    assert [] == jobs.run_logs.logs(job_id)
    with pytest.raises(Gone):
        jobs.get(job_id)


def test_sto_01_a_deleted_job_tells_its_worker_to_stop(jobs: Jobs) -> None:
    """Who asks whether to go on is told not to."""
    job_id = jobs.submit("render")

    with jobs.attempt(job_id) as attempt:
        other_jobs(jobs).delete(job_id)

        assert attempt.canceled


def test_sto_02_unknown_gone_and_waiting_are_told_apart(jobs: Jobs) -> None:
    """A random id is not found, a deleted job is gone, a queued one waits."""
    waiting, deleted = jobs.submit("render"), bring(jobs, "deleted")

    assert "queued" == jobs.get(waiting).state
    with pytest.raises(Gone):
        jobs.get(deleted)
    with pytest.raises(NotFound) as unknown:
        jobs.get("no-such-job")
    assert not isinstance(unknown.value, Gone)
    with pytest.raises(NotFound):
        jobs.history("no-such-job")


def test_deleting_with_artifacts_removes_what_the_job_produced(jobs: Jobs) -> None:
    """All blobs in the job's directory go, and no others."""
    job_id = jobs.submit("render", id="song-7")
    for name in ("jobs/song-7/status.json", "jobs/song-7/out/a.wav", "jobs/song-70/status.json"):
        jobs.blobs.put(name, b"x")

    jobs.delete(job_id, artifacts=True)

    assert ["jobs/song-70/status.json"] == [entry.name for entry in jobs.blobs.list("jobs/")]


# Time and order


def test_tim_07_order_is_by_version_whatever_the_clocks_say(jobs: Jobs, clock: Clock) -> None:
    """A worker whose clock is ten minutes behind, then ahead, changes neither order nor state."""
    job_id = jobs.submit("render")
    clock.move(-600)
    with jobs.attempt(job_id) as attempt:
        attempt.progress(50)
        clock.move(1200)
    clock.move(-600)
    jobs.rerun(job_id)

    events = jobs.history(job_id)
    assert [1, 2, 3, 4, 5] == [event.version for event in events]
    assert isinstance(events[-1], JobRequeued)
    assert sorted(events, key=lambda event: event.at) != events
    assert "queued" == jobs.get(job_id).state


def test_status_at_is_the_status_that_was_shown_then(jobs: Jobs, clock: Clock) -> None:
    """Each instant has the state of the last event written by it; before the first there was no job."""
    job_id = jobs.submit("render")
    clock.move(60)
    jobs.cancel(job_id)

    assert "queued" == jobs.status_at(job_id, START).state
    assert "queued" == jobs.status_at(job_id, START + timedelta(seconds=59)).state
    assert "canceled" == jobs.status_at(job_id, START + timedelta(seconds=60)).state
    with pytest.raises(NotFound):
        jobs.status_at(job_id, START - timedelta(seconds=1))


def test_a_command_decides_on_what_the_log_says_not_on_what_this_process_remembers(jobs: Jobs) -> None:
    """Another process brought the job on: a remembered state refuses nothing."""
    job_id = jobs.submit("render")
    jobs.cancel(job_id)
    assert "canceled" == jobs.get(job_id).state
    tell(jobs, job_id, *[lambda **common: JobRequeued(cause="rerun", **common)])

    assert CancelOutcome.CANCELED == jobs.cancel(job_id)
    assert 4 == versions(jobs, job_id)


def test_a_job_that_was_delivered_before_its_record_gets_its_name(jobs: Jobs) -> None:
    """A task may be faster than the submission that it came from; that is then answered as found."""
    with jobs.attempt("song-7"):
        answer = jobs.submit_or_find(Submission(name="render", id="song-7", title="Song 7"))

    assert Submitted("song-7", created=False) == answer
    assert ("render", "Song 7", "succeeded") == (
        jobs.job("song-7").name,
        jobs.get("song-7").title,
        jobs.get("song-7").state,
    )


def test_what_a_caller_does_to_a_job_stays_with_the_caller(jobs: Jobs) -> None:
    """The job is a copy: changing it changes no decision of this process."""
    job_id = jobs.submit("render")

    jobs.job(job_id).state = "succeeded"

    assert "queued" == jobs.get(job_id).state
