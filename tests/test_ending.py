"""A turn, the ends of runs and the starts of others in one transaction: none is lost or told wrongly for another's sake."""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from jobevents.ending import Ending
from jobevents.errors import AppendUnknown, Unavailable
from jobevents.execution import Execution, Executor
from jobevents.jobs import Jobs
from jobevents.queue import Reservation
from jobevents.registry import Registry
from jobevents.store import run_of
from jobevents.turn import Turn, take
from tests.clock import Clock
from tests.failinglog import FailingRecorder, failing_jobs
from tests.runners import PATIENCE_S, Runners


class Bench(NamedTuple):
    """Jobs over a log that counts its appends and fails on command, and what runs them."""

    jobs: Jobs
    recorder: FailingRecorder
    executor: Executor

    def turn(self, endings: Sequence[Ending], reservations: Sequence[Reservation]) -> Turn:
        """Take a turn."""
        return take(self.executor, self.jobs.emitter, endings, reservations)

    def submitted(self, amount: int = 1, name: str = "render") -> list[Reservation]:
        """Submit jobs, and return them as a queue hands them out."""
        ids = [self.jobs.submit(name) for _ in range(amount)]
        return [self.reserved(job_id) for job_id in ids]

    def reserved(self, job_id: str) -> Reservation:
        """Return a job as a queue hands it out, whatever has become of it."""
        return Reservation(run_of(self.jobs.job(job_id)), lambda error, delay_s: None)

    def recorder_row(self, job_id: str) -> Reservation:
        """Return a job as the table of runs has it, which knows of what this process does not."""
        run = self.jobs.runs.get(job_id)
        assert run is not None
        return Reservation(run, lambda error, delay_s: None)

    def ended(self, amount: int = 1) -> list[Ending]:
        """Run jobs to their ends, which are not recorded."""
        begun = self.turn([], self.submitted(amount)).begun
        self.recorder.appends.clear()
        return [self.end(execution) for _, execution in begun]

    def end(self, execution: Execution) -> Ending:
        """Have a handler run to its end, which is not recorded."""
        ending = self.executor.handle(execution).ending
        assert ending is not None
        return ending

    def kinds(self, *job_ids: str) -> list[list[str]]:
        """Return the types of the events of jobs."""
        return [[event.type for event in self.jobs.history(job_id)] for job_id in job_ids]


@pytest.fixture
def bench(clock: Clock) -> Iterator[Bench]:
    """See Bench; of the kind "alone" one job may run at once."""
    registry = Registry()
    registry.job("render")(lambda ctx: ctx.job_id)
    registry.job("alone", max_concurrent=1)(lambda ctx: ctx.job_id)
    jobs, recorder = failing_jobs(clock)
    with jobs:
        yield Bench(jobs, recorder, Executor(jobs, registry, monotonic=lambda: 0.0))


def left(turn: Turn) -> tuple[int, int, int, int]:
    """Return how much a turn leaves to do, of each sort."""
    return len(turn.begun), len(turn.unrecorded), len(turn.alone), len(turn.doubted)


def test_ends_and_starts_share_an_append(bench: Bench) -> None:
    """Two ends and three starts, each job's state as if they had come one by one."""
    endings = bench.ended(2)
    ids = [ending.wanted.job_id for ending in endings]
    reserved = bench.submitted(3)
    bench.recorder.appends.clear()

    turn = bench.turn(endings, reserved)

    assert [5] == bench.recorder.appends
    assert (3, 0, 0, 0) == left(turn)
    assert [("succeeded", job_id) for job_id in ids] == [(job.state, job.result) for job in map(bench.jobs.job, ids)]
    assert ["running"] * 3 == [bench.jobs.get(one.run.id).state for one in reserved]
    assert [None, None] == [ending.record() for ending in endings]
    assert [5] == bench.recorder.appends, "an end is recorded once"


def test_who_cannot_be_in_it_holds_up_nobody(bench: Bench) -> None:
    """One that has ended already, one of no known kind, one with a limit, one twice: each is left, and tells by itself."""
    (ending,) = bench.ended()
    (fits,) = bench.submitted()
    (limited,) = bench.submitted(name="alone")
    (unknown,) = bench.submitted(name="nobody's")
    (done,) = bench.submitted()
    bench.executor.execute(done)
    again = bench.reserved(done.run.id)
    twice = bench.reserved(fits.run.id)

    turn = bench.turn([ending], [again, fits, limited, unknown, twice])

    assert (1, 0, 4, 0) == left(turn)
    assert "succeeded" == bench.jobs.get(ending.wanted.job_id).state
    assert [True] * 4 == [bench.executor.execute(one) for one in turn.alone]
    ids = [one.run.id for one in (done, limited, unknown, fits)]
    assert ["succeeded", "succeeded", "failed", "running"] == [bench.jobs.get(job_id).state for job_id in ids]
    assert ["JobQueued", "JobStarted"] == bench.kinds(fits.run.id)[0]


def test_what_is_canceled_instead_of_begun_is_only_to_be_acknowledged(bench: Bench) -> None:
    """A cancel was asked for of a start that was lost since: the turn cancels the job."""
    job_id = bench.jobs.submit("render", max_attempts=2)
    lost = bench.jobs.attempt(job_id).__enter__()
    bench.jobs.cancel(job_id)
    lost.leave()

    turn = bench.turn([], [bench.reserved(job_id)])

    assert ((0, 0, 0, 0), [job_id]) == (left(turn), [one.job_id for one in turn.over])
    assert "canceled" == bench.jobs.job(job_id).state
    assert [] == bench.jobs.presence._life.names[""].running


def test_an_end_that_is_refused_is_told_in_it(bench: Bench) -> None:
    """Another start has the job by now: the late outcome is told, and does not hold up the next."""
    ((_, execution),) = bench.turn([], bench.submitted()).begun
    ending = bench.end(execution)
    execution.attempt.give_back()
    other = bench.jobs.attempt(execution.attempt.job_id).__enter__()

    turn = bench.turn([ending], bench.submitted())

    assert (1, 0, 0, 0) == left(turn)
    assert "TransitionRefused" == bench.kinds(other.job_id)[0][-1]
    assert other.start == bench.jobs.job(other.job_id).start


def test_the_same_job_again_is_no_next(bench: Bench) -> None:
    """A queue that hands out a run twice: its end goes first, and then refuses it."""
    (ending,) = bench.ended()

    turn = bench.turn([ending], [bench.reserved(ending.wanted.job_id)])
    bench.executor.execute(turn.alone[0])

    assert (0, 0, 1, 0) == left(turn)
    assert [["JobQueued", "JobStarted", "JobSucceeded"]] == bench.kinds(ending.wanted.job_id)


def test_an_end_makes_room_for_a_start_with_a_limit(bench: Bench) -> None:
    """What is left to be started by itself comes after the end that was in the turn."""
    (first,) = bench.submitted(name="alone")
    ending = bench.executor.run(first).ending
    assert ending is not None

    turn = bench.turn([ending], bench.submitted(name="alone"))
    bench.executor.execute(turn.alone[0])

    assert "succeeded" == bench.jobs.get(turn.alone[0].run.id).state


def test_a_taken_slot_fails_the_turn_and_nobody_in_it(bench: Bench) -> None:
    """Another process has canceled one of the jobs, which this one does not know: all are left, and come to their own."""
    endings = bench.ended(2)
    canceled, fits = bench.submitted(2)
    known = bench.jobs.job(canceled.run.id)
    bench.jobs.cancel(canceled.run.id)
    bench.jobs.emitter._forget(canceled.run.id)
    bench.jobs.emitter.remember(known)

    turn = bench.turn(endings, [canceled, fits])

    assert (0, 2, 2, 0) == left(turn)
    assert [None, None] == [ending.record() for ending in turn.unrecorded]
    assert [True, True] == [bench.executor.execute(one) for one in turn.alone]
    assert ["canceled", "succeeded"] == [bench.jobs.get(one.run.id).state for one in (canceled, fits)]


def test_a_lost_reply_is_found_out(bench: Bench) -> None:
    """What is in the log after all is neither written again nor refused: all go on."""
    (ending,) = bench.ended()
    reserved = bench.submitted(2)

    with bench.recorder.losing_replies(1):
        turn = bench.turn([ending], reserved)
    endings = [find_out().ending for _, find_out in turn.doubted]

    assert (0, 1, 0, 2) == left(turn)
    assert [None] * 3 == [one.record() for one in [ending, *endings] if one is not None]
    ids = [ending.wanted.job_id, *(one.run.id for one in reserved)]
    assert [["JobQueued", "JobStarted", "JobSucceeded"]] * 3 == bench.kinds(*ids)


def test_what_was_lost_earlier_is_taken_for_no_end_and_no_start(bench: Bench) -> None:
    """Of two jobs the reply to something else was lost before: their end and their start are in no turn, and are written."""
    (_, progressed), (_, other) = bench.turn([], bench.submitted(2)).begun
    with bench.recorder.losing_replies(1):
        progressed.attempt.progress(50)
    ending, another = bench.end(progressed), bench.end(other)
    with bench.recorder.losing_replies(1), pytest.raises(AppendUnknown):
        bench.jobs.submit("render", id="render-20260801-120000-aaaaaaaaaaaa")
    (fits,) = bench.submitted()
    queued = bench.recorder_row("render-20260801-120000-aaaaaaaaaaaa")

    with bench.recorder.losing_replies(1):
        turn = bench.turn([ending, another], [queued, fits])
    ran = [bench.executor.execute(one) for one in turn.alone]
    endings = [*turn.unrecorded, *(find_out().ending for _, find_out in turn.doubted)]

    assert [None] * len(endings) == [one.record() for one in endings if one is not None]
    kinds = bench.kinds(ending.wanted.job_id, another.wanted.job_id, queued.job_id, fits.job_id)
    assert ["JobQueued", "JobStarted", "JobProgressed", "JobSucceeded"] == kinds[0]
    assert [["JobQueued", "JobStarted", "JobSucceeded"]] * 3 == kinds[1:]
    assert ((0, 2, 1, 1), [True]) == (left(turn), ran)


def test_a_log_that_is_away_fails_each_by_itself(bench: Bench) -> None:
    """The end is warned of and counted, the start refused, and nothing is written."""
    (ending,) = bench.ended()
    (reserved,) = bench.submitted()
    ending._patience = bench.jobs.attempt(reserved.run.id)._patience

    with bench.recorder.refusing():
        turn = bench.turn([ending], [reserved])
        assert (0, 1, 1, 0) == left(turn)
        ending.record()
        with pytest.raises(Unavailable):
            bench.executor.run(reserved)

    assert isinstance(ending.error, Unavailable)
    assert 1 == bench.jobs.counts.snapshot()["records_failed"]
    assert [["JobQueued", "JobStarted"], ["JobQueued"]] == bench.kinds(ending.wanted.job_id, reserved.run.id)
    assert [] == bench.jobs.presence._life.names[""].running


@pytest.mark.parametrize("workers", [1, 3])
def test_a_runner_ends_runs_with_the_starts_of_others(workers: int, bench: Bench) -> None:
    """What waits for a thread begins as a run before ends: fewer appends than events; the last end waits for nothing."""
    runners = Runners(bench.jobs)
    runners.registry.job("render")(lambda ctx: ctx.job_id)
    ids = [bench.jobs.submit("render") for _ in range(20)]
    bench.recorder.appends.clear()

    runners.start(workers=workers, prefetch=64)
    ended = runners.ended(*ids)
    runners.stop()

    assert ids == [job.result for job in ended]
    assert 40 == sum(bench.recorder.appends)
    assert len(bench.recorder.appends) <= 20 + workers
    assert max(bench.recorder.appends) <= 2 * workers


def test_one_that_takes_its_time_holds_up_none_begun_with_it(bench: Bench) -> None:
    """After many that were over in an instant, which one thread ran, three wait for each other: each has a thread."""
    runners = Runners(bench.jobs)
    together = threading.Barrier(3)
    runners.registry.job("render")(lambda ctx: None)
    runners.registry.job("meet")(lambda ctx: together.wait(PATIENCE_S))
    runners.start(workers=3, prefetch=64)
    runners.ended(*bench.jobs.submit_many([{"name": "render"}] * 60))

    met = runners.ended(*bench.jobs.submit_many([{"name": "meet"}] * 3))
    runners.stop()

    assert [0, 1, 2] == sorted(job.result for job in met)
