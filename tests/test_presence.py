"""This process among the workers: its lease, the thread that renews it, and whom it takes for dead."""

import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from jobevents import errors
from jobevents.events import JobStarted
from jobevents.presence import IDLE_NAMES, Presence
from jobevents.pulse import Pulse
from jobevents.status import State
from jobevents.store import Held
from jobevents.telemetry import Counts
from jobevents.wiring import connect
from jobevents.workers import Lease, MemoryLeases, Sighting
from tests.clock import Clock
from tests.working import LEASE_S, machine, told

WAIT_S = 20  # far beyond what any of this takes


class BrokenLeases(MemoryLeases):
    """Leases in memory whose store fails when told."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(monotonic=clock.monotonic)
        self.clock = clock
        self.is_broken = False
        self.slow_s = 0.0
        self.renewed: list[str] = []

    def renew(self, lease: Lease) -> None:
        self.clock.move(self.slow_s)
        if self.is_broken:
            raise errors.Unavailable("the store is away")
        self.renewed.append(lease.worker)
        super().renew(lease)

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        return super().look(workers)

    def list(self) -> Sequence[Sighting]:
        return super().list()


@pytest.fixture
def leases(clock: Clock) -> BrokenLeases:
    """A store of leases by the clock."""
    return BrokenLeases(clock)


@pytest.fixture
def presence(leases: BrokenLeases, clock: Clock) -> Iterator[Presence]:
    """A process among the workers."""
    made = Presence(leases, clock=clock, counts=Counts(), monotonic=clock.monotonic)
    yield made
    made.close()


def test_nothing_is_begun_before_the_first_attempt(presence: Presence, leases: BrokenLeases) -> None:
    """A process that only submits and reads has no lease and no thread."""
    before = {thread.name for thread in threading.enumerate()}

    assert ([], False) == (list(leases.list()), "jobevents-lease" in before)


def test_a_lease_says_who_works(presence: Presence, leases: BrokenLeases, clock: Clock) -> None:
    """Host, process and start are those of this process."""
    worker = presence.enter("job", "w1")
    presence.vouch("w1")

    lease = leases.list()[0].lease

    assert (worker, os.getpid(), clock(), LEASE_S) == (lease.worker, lease.pid, lease.started_at, lease.lease_s)
    assert worker.startswith(f"w1-{os.getpid()}-")


def test_a_start_is_vouched_for_by_a_young_lease(presence: Presence, leases: BrokenLeases, clock: Clock) -> None:
    """A process that was frozen renews before it starts a job; one whose thread runs writes nothing more."""
    presence.enter("a")
    presence.vouch()
    clock.move(10)
    presence.vouch()
    young = len(leases.renewed)
    clock.move(100)
    presence.vouch()

    assert (1, 2) == (young, len(leases.renewed))


def test_no_start_without_a_lease(tmp_path: Path) -> None:
    """A lease that cannot be renewed grants nothing: the task is to be delivered again."""
    with machine("memory", tmp_path) as workers:
        leases = BrokenLeases(workers.steady)
        process = workers.start(leases=leases)
        job_id = process.submit("render")
        leases.is_broken = True

        with pytest.raises(errors.Unavailable, match="the store is away"), process.attempt(job_id):
            pytest.fail("the handler must not run")

        assert ["JobQueued"] == told(process.history(job_id))


def test_without_a_lease_the_work_may_run_ungranted(tmp_path: Path) -> None:
    """With `on_unreadable="run"` it runs, and its late start and outcome are appended at its end."""
    with machine("memory", tmp_path) as workers:
        leases = BrokenLeases(workers.steady)
        process = workers.start(leases=leases)
        job_id = process.submit("render")
        leases.is_broken = True

        with process.attempt(job_id, worker="w1", on_unreadable="run") as attempt:
            assert not attempt.granted

        started = process.history(job_id)[1]
        assert isinstance(started, JobStarted)
        assert (True, "w1") == (started.late, started.worker.split("-")[0])
        assert State.SUCCEEDED == process.get(job_id).state


def test_renewals_go_on_after_trouble(
    presence: Presence, leases: BrokenLeases, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is away is asked again soon, counted each time and logged once; then all is as before."""
    presence.enter("job")
    presence.vouch()
    leases.is_broken = True

    waits = [presence.beat() for _ in range(3)]
    leases.is_broken = False
    waits.append(presence.beat())

    assert [2.5, 2.5, 2.5, 10.0] == waits
    assert {"lease_renewals_failed": 3} == presence._counts.snapshot()
    assert 1 == len([one for one in caplog.records if one.levelno >= logging.WARNING])


def test_nobody_is_judged_after_an_outage(tmp_path: Path) -> None:
    """While nobody could renew, nobody is dead for it: not before a lease has passed since (no mass death)."""
    with machine("memory", tmp_path) as workers:
        leases = BrokenLeases(workers.steady)
        first, second = workers.start(leases=leases), workers.start(leases=leases)
        job_id, other = first.submit("render", max_attempts=2), second.submit("render")
        first.attempt(job_id).__enter__()
        second.attempt(other).__enter__()
        leases.is_broken = True
        workers.elapse(2 * LEASE_S, first, second)
        leases.is_broken = False
        second.presence.beat()

        during = second.reap().requeued
        first_is_back = first.presence.beat() and second.reap().requeued
        workers.elapse(LEASE_S, second)

        assert (0, 0, 1) == (during, first_is_back, second.reap().requeued)


def test_no_lease_is_dropped_after_an_outage(tmp_path: Path) -> None:
    """What ran out while nobody could renew is left where it is."""
    with machine("memory", tmp_path) as workers:
        leases = BrokenLeases(workers.steady)
        first, second = workers.start(leases=leases), workers.start(leases=leases)
        for process in (first, second):
            process.attempt(process.submit("render")).__enter__()
        leases.is_broken = True
        workers.elapse(2 * LEASE_S, first, second)
        leases.is_broken = False
        second.presence.beat()

        second.reap()

        assert 2 == len(second.workers())


def test_a_renewal_that_took_long_is_trouble(presence: Presence, leases: BrokenLeases, clock: Clock) -> None:
    """A store that answers late keeps others from renewing too."""
    held = [Held("job", "other-1-a", 2, is_overdue=False)]
    presence.enter("job")
    leases.slow_s = LEASE_S / 2
    presence.vouch()
    leases.slow_s = 0

    during = presence.lost(held)
    clock.move(LEASE_S)

    assert ([], ["job"]) == (list(during), list(presence.lost(held)))


def test_names_without_an_attempt_are_let_go_of(presence: Presence, leases: BrokenLeases) -> None:
    """A caller that names each request a worker does not make leases for ever."""
    for n in range(IDLE_NAMES + 5):
        presence.enter(f"job{n}", f"request{n}")
        presence.vouch(f"request{n}")
        if n:
            presence.leave(f"job{n}", f"request{n}")

    presence.beat()

    names = {one.lease.worker.split("-")[0] for one in leases.list()}
    assert {"request0"} | {f"request{n}" for n in range(5, IDLE_NAMES + 5)} == names


def test_a_close_drops_the_lease(presence: Presence, leases: BrokenLeases) -> None:
    """When no attempt is under way nothing is left, threads included."""
    presence.enter("job")
    presence.vouch()
    presence.leave("job")

    presence.close()
    presence.close()

    assert ([], False) == (list(leases.list()), any(t.name == "jobevents-lease" for t in threading.enumerate()))


def test_a_close_amid_an_attempt_leaves_its_lease(presence: Presence, leases: BrokenLeases) -> None:
    """Its work may go on; the lease runs out, and the job is taken for lost."""
    presence.enter("job")
    presence.vouch()

    presence.close()

    assert 1 == len(leases.list())


def test_no_start_after_a_close(presence: Presence) -> None:
    """What is closed grants nothing any more."""
    presence.close()
    presence.enter("job")

    with pytest.raises(errors.Unavailable, match="jobs are closed"):
        presence.vouch()


@pytest.mark.parametrize("lease_s", [0.0, -1.0, 0.01, 1e9, float("nan")])
def test_a_lease_has_a_sensible_length(lease_s: float) -> None:
    """What cannot work is refused when the jobs are opened."""
    with pytest.raises(errors.Misconfigured, match="lease_s must be seconds"):
        connect("memory://", lease_s=lease_s)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_a_worker_of_its_own(tmp_path: Path) -> None:
    """It has its own identity, lease and thread; the parent's attempt and lease stay the parent's."""
    with connect(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as jobs:
        mine, its = jobs.submit("render"), jobs.submit("render")
        with jobs.attempt(mine):
            child = os.fork()
            if not child:
                with jobs.attempt(its) as attempt:
                    attempt.result([thread.name for thread in threading.enumerate() if "lease" in thread.name])
                jobs.close()
                os._exit(0)
            assert 0 == os.waitpid(child, 0)[1]

            workers = [jobs.job(job_id).worker for job_id in (mine, its)]
            assert 2 == len(set(workers))
            assert f"-{child}-" in workers[1]
            assert ["jobevents-lease"] == jobs.job(its).result
            assert [workers[0]] == [one.worker for one in jobs.workers()]


@pytest.mark.slow
def test_a_busy_handler_and_a_blocked_loop_keep_their_lease(tmp_path: Path) -> None:
    """The lease is renewed by a thread of its own: neither computing nor blocking takes the job away."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    with connect(url, lease_s=3.0) as jobs, connect(url, lease_s=3.0) as others:
        job_id = jobs.submit("render")
        with jobs.attempt(job_id):
            until = time.monotonic() + 4
            while time.monotonic() < until:
                sum(range(1000))  # computes without a pause
            with pytest.raises(errors.AlreadyRunning), others.attempt(job_id):
                pass
            others.reap()

        assert ["JobQueued", "JobStarted(1)", "JobSucceeded(2)"] == told(jobs.history(job_id))


def test_all_threads_end_with_the_jobs(tmp_path: Path) -> None:
    """After a close there is no thread of ours, and no lease."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    before = set(threading.enumerate())
    with connect(url) as jobs:
        with jobs.attempt(jobs.submit("render")):
            during = {thread.name for thread in threading.enumerate()}
        assert {"jobevents-lease", "jobevents-reaper"} <= during

    assert set() == set(threading.enumerate()) - before
    with connect(url) as jobs:
        assert [] == jobs.workers()


class Heart:
    """Something that beats."""

    def __init__(self) -> None:
        self.beats: list[float] = []
        self.beaten = threading.Event()

    def beat(self) -> float:
        self.beats.append(time.monotonic())
        if len(self.beats) == 3:
            self.beaten.set()
        return 0.001


def test_a_pulse_beats_until_it_is_stopped() -> None:
    """It calls again and again, and not once after a stop that returned."""
    heart = Heart()
    pulse = Pulse("test-pulse", heart.beat, 0.001)
    pulse.start()
    assert heart.beaten.wait(WAIT_S)

    pulse.stop()
    count = len(heart.beats)

    assert count == len(heart.beats)
    assert "test-pulse" not in {thread.name for thread in threading.enumerate()}


def test_a_pulse_ends_with_its_owner() -> None:
    """Who forgets to close leaves no thread behind for ever."""
    heart = Heart()
    pulse = Pulse("test-pulse", heart.beat, 0.001)
    pulse.start()
    assert heart.beaten.wait(WAIT_S)

    del heart
    pulse._thread.join(WAIT_S)

    assert not pulse._thread.is_alive()


def test_a_pulse_that_was_not_started_may_be_stopped() -> None:
    """Nothing to wait for."""
    heart = Heart()
    pulse = Pulse("test-pulse", heart.beat, 0.001)

    pulse.stop()

    assert [] == heart.beats
