"""Periodic jobs: one run for each tick, whoever submits it, and one at most for all that were missed."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from jobevents import ids
from jobevents.errors import Unavailable
from jobevents.jobs import Jobs
from jobevents.periodic import LONGEST_S, Ticker, tick_id
from jobevents.registry import Registry
from jobevents.store import RunFilter
from tests.clock import START, Clock
from tests.jobstates import other_jobs
from tests.runners import Runners


class Everything(msgspec.Struct):
    """Params that all have defaults."""

    song: int = 7


@pytest.fixture
def registry() -> Registry:
    """One job that is due every ten minutes."""
    made = Registry()
    made.job("settle", schedule="every 10m", queue="slow", max_attempts=3)(lambda ctx: None)
    return made


def ticks(jobs: Jobs, name: str = "settle") -> list[Any]:
    """Return when the runs of a job were due, in order."""
    return sorted(run.scheduled_at for run in jobs.runs.list(RunFilter(job=name, per_page=0)).runs)


def beat_at(clock: Clock, minutes: float, *tickers: Ticker) -> None:
    """Have tickers beat so many minutes after the start."""
    clock.move((START + timedelta(minutes=minutes) - clock.now).total_seconds())
    for ticker in tickers:
        ticker.beat()


def test_each_tick_is_one_run(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """From the first after the start, when it is due, with the job's own values; it tells that a schedule submitted it."""
    ticker = Ticker(jobs, registry)

    for minutes in (1, 9, 10, 11, 20, 29.9):
        beat_at(clock, minutes, ticker)

    assert [START + timedelta(minutes=10), START + timedelta(minutes=20)] == ticks(jobs)
    run = jobs.runs.list(RunFilter(job="settle")).runs[0]
    assert ("schedule", "schedule", "slow", 3) == (run.trigger, run.triggered_by, run.queue, run.max_attempts)
    assert "every 10m" == jobs.history(run.id)[0].reason


def test_many_processes_submit_a_tick_once(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """The second finds the first one's run, whatever has become of it."""
    tickers = [Ticker(one, registry) for one in (jobs, other_jobs(jobs), other_jobs(jobs))]
    beat_at(clock, 0, *tickers)

    for minutes in (10, 20):
        beat_at(clock, minutes, *tickers)
        with jobs.attempt(tick_id("settle", clock.now)):
            pass
        beat_at(clock, minutes + 1, *tickers)

    assert 2 == len(ticks(jobs))


def test_of_missed_ticks_the_last_is_run(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """Nobody was there for an hour: one run, late."""
    ticker = Ticker(jobs, registry)
    beat_at(clock, 1, ticker)
    beat_at(clock, 10, ticker)

    beat_at(clock, 75, Ticker(jobs, registry))

    assert [START + timedelta(minutes=10), START + timedelta(minutes=70)] == ticks(jobs)


def test_a_new_schedule_begins_with_its_next_tick(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """What was due before anybody knew of it is not run."""
    beat_at(clock, 75, Ticker(jobs, registry))

    assert [] == ticks(jobs)


def test_a_tick_whose_job_was_deleted_is_not_run_again(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """A deleted job never comes back."""
    tickers = Ticker(jobs, registry), Ticker(other_jobs(jobs), registry)
    beat_at(clock, 0, *tickers)
    beat_at(clock, 10, tickers[0])
    jobs.delete(tick_id("settle", clock.now))

    beat_at(clock, 11, tickers[1])

    assert [] == ticks(jobs)


@pytest.mark.parametrize("held", [{"job": "settle"}, {"queue": "slow"}])
def test_a_paused_job_is_not_submitted(jobs: Jobs, clock: Clock, registry: Registry, held: dict[str, str]) -> None:
    """Its ticks do not pile up; after the resume it goes on with the next."""
    ticker = Ticker(jobs, registry)
    beat_at(clock, 0, ticker)
    jobs.pause(**held)
    beat_at(clock, 10, ticker)
    jobs.resume(**held)
    beat_at(clock, 11, ticker)
    beat_at(clock, 20, ticker)

    assert [START + timedelta(minutes=20)] == ticks(jobs)


def test_a_clock_that_is_set_back_repeats_no_tick(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """Its id is that of the run that there was."""
    ticker = Ticker(jobs, registry)
    for minutes in (0, 10, 20, 10, 20, 30):
        beat_at(clock, minutes, ticker, Ticker(jobs, registry))

    assert [START + timedelta(minutes=minutes) for minutes in (10, 20, 30)] == ticks(jobs)


def test_params_of_a_periodic_job_are_its_defaults(jobs: Jobs, clock: Clock) -> None:
    """A Struct is submitted as an empty object."""
    registry = Registry()
    registry.job("settle", schedule="every 10m", params=Everything)(lambda ctx: None)
    ticker = Ticker(jobs, registry)
    beat_at(clock, 0, ticker)
    beat_at(clock, 10, ticker)

    assert {} == jobs.job(tick_id("settle", clock.now)).params


def test_a_wait_is_until_the_next_tick(jobs: Jobs, clock: Clock, registry: Registry) -> None:
    """And half a minute at most, as a clock may be set."""
    ticker = Ticker(jobs, registry)

    assert LONGEST_S == ticker.beat()
    clock.move(590)
    assert 10 == ticker.beat()


def test_a_log_that_fails_is_asked_ever_less(
    jobs: Jobs, clock: Clock, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is submitted when it is there again."""
    ticker = Ticker(jobs, registry)
    beat_at(clock, 0, ticker)
    clock.move(600)

    def failing(*args: Any, **options: Any) -> None:
        raise Unavailable("the disk is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "submit", failing)
        assert 0.5 == ticker.beat()
    ticker.beat()

    assert 1 == len(ticks(jobs))


@pytest.mark.parametrize("name", ["settle", "", "ünïcode and blanks", "x" * 300, "20260101-000000"])
def test_an_id_tells_its_tick(name: str) -> None:
    """Whatever the name: it is an id, and those of two names or ticks differ."""
    one = tick_id(name, START)

    ids.validate(one)
    assert "-20260801-120000-" in one
    assert 3 == len({one, tick_id(name + "!", START), tick_id(name, START + timedelta(seconds=1))})


def test_a_runner_runs_periodic_jobs(runners: Runners) -> None:
    """Each second, by two runners: once each."""
    seen: list[str] = []
    runners.registry.job("settle", schedule="every 1s")(lambda ctx: seen.append(ctx.job_id))
    for _ in range(2):
        runners.start()

    runners.wait(lambda: len(seen) >= 2)

    assert len(set(seen)) == len(seen)
