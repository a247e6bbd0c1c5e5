"""A queue of runs on Pub/Sub, over the stand-in: the contract as one process sees it, and what several have between them."""

import threading
from collections.abc import Callable, Iterator

import pytest

from jobevents import errors
from jobevents.backends.pubsubqueue import PubSubQueue
from jobevents.events import JobSucceeded
from jobevents.queue import JobQueue
from jobevents.registry import Registry
from jobevents.runner import JobRunner
from jobevents.testing import JobQueueContract
from jobevents.testing.clock import Clock
from jobevents.testing.runs import Elapse, run
from jobevents.wiring import connect
from tests.pubsub_server import PubSubServer
from tests.runners import Gate, Runners

pytest_plugins = ("tests.pubsub",)
pytestmark = pytest.mark.filterwarnings("ignore:a log in memory behind a queue")  # which is what these tests are about

QUEUES = ("default", "slow", "odd", "nothing")


class TestPubSubQueue(JobQueueContract):
    """What every queue promises, of what one process has pulled."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def queue(self, pubsub_server: PubSubServer, topic: str, clock: Clock) -> Iterator[JobQueue]:
        made = PubSubQueue(topic, QUEUES, create=True, clock=clock, monotonic=clock.monotonic)
        yield made
        made.close()

    @pytest.fixture
    def elapse(self, clock: Clock) -> Elapse:
        return clock.move


Open = Callable[[], PubSubQueue]


@pytest.fixture
def open_queue(pubsub_server: PubSubServer, topic: str) -> Iterator[Open]:
    """Opens the queue, as a process of its own would."""
    opened: list[PubSubQueue] = []

    def one() -> PubSubQueue:
        opened.append(PubSubQueue(topic, create=True))
        return opened[-1]

    yield one
    for queue in opened:
        queue.close()


def test_what_one_enqueues_another_reserves(open_queue: Open) -> None:
    """Once."""
    first, second = open_queue(), open_queue()
    first.enqueue(run())

    (reservation,) = second.reserve(timeout_s=5)
    reservation.ack()

    assert [] == first.reserve(timeout_s=0)


def test_what_is_given_back_at_the_close_goes_to_another(open_queue: Open) -> None:
    """Without waiting for a deadline."""
    first, second = open_queue(), open_queue()
    first.enqueue(run())
    assert 1 == len(first)  # pulled, and not reserved

    first.close()

    assert ["a"] == [one.run.id for one in second.reserve(timeout_s=5)]


def test_a_queue_that_is_not_there_is_told_of(pubsub_server: PubSubServer, topic: str, open_queue: Open) -> None:
    """When it is opened, and when a run names another."""
    with pytest.raises(errors.NotFound):
        PubSubQueue(topic)
    with pytest.raises(errors.NotFound, match="no such queue name='slow'"):
        open_queue().enqueue(run(queue="slow"))


def test_a_message_that_is_no_run_is_let_go(pubsub_server: PubSubServer, topic: str, open_queue: Open) -> None:
    """It would come again for ever."""
    queue = open_queue()
    pubsub_server.inject(f"{topic}-default", b"[[[", {"place": "x"})
    queue.enqueue(run())

    assert ["a"] == [one.run.id for one in queue.reserve(limit=5, timeout_s=0)]
    assert 1 == pubsub_server.waiting(f"{topic.replace('/topics/', '/subscriptions/')}-default")


def test_pub_sub_that_is_away_is_unavailable(pubsub_server: PubSubServer, open_queue: Open) -> None:
    """A run that cannot be published is told of, and one that can be later is not lost."""
    queue = open_queue()
    pubsub_server.unavailable()
    with pytest.raises(errors.Unavailable):
        queue.enqueue(run())
    pubsub_server.unavailable(False)
    queue.enqueue(run())

    assert ["a"] == [one.run.id for one in queue.reserve(timeout_s=5)]


def test_what_it_cannot_do(open_queue: Open) -> None:
    """A run that another process has pulled is neither counted nor removed; nor is there an order between the two."""
    first, second = open_queue(), open_queue()
    first.enqueue(run())
    assert 1 == len(second)

    assert (0, False) == (len(first), first.remove("a"))
    assert second.remove("a")


def test_what_was_held_for_later_is_brought_again(open_queue: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that held it is gone before its time: the runner of another finds it in the log."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)
    registry = Registry()
    registry.job("render")(lambda ctx: None)
    with connect("memory://") as jobs:
        dead = open_queue()
        JobRunner(jobs, registry, queue=dead)
        job_id = jobs.submit("render", delay=0.3)
        dead.close()
        runners = Runners(jobs, open_queue())
        with JobRunner(jobs, registry, queue=runners.queue):
            (job,) = runners.ended(job_id)

    assert "succeeded" == job.state


def test_a_runner_works_off_jobs_by_it(
    pubsub_server: PubSubServer, open_queue: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each succeeds once, also where messages come twice and acknowledgements are lost."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)
    pubsub_server.copies, pubsub_server.lost_acks = 2, 10
    queue = open_queue()
    registry = Registry()
    done: list[str] = []

    @registry.job("render", max_attempts=3, backoff=lambda attempt, job_id: 0.05)
    def render(ctx: object) -> None:
        done.append(ctx.job_id)  # type: ignore[attr-defined]
        if len(done) % 5 == 0:
            raise OSError("by chance")

    with connect("memory://") as jobs:
        runners = Runners(jobs, queue)
        runner = JobRunner(jobs, registry, queue=queue)
        ids = jobs.submit_many([{"name": "render", "max_attempts": 3}] * 30)
        with runner:
            ended = runners.ended(*ids)
        succeeded = [sum(isinstance(one, JobSucceeded) for one in jobs.history(job_id)) for job_id in ids]

    assert {"succeeded"} == {job.state for job in ended}
    assert [1] * 30 == succeeded
    assert set(ids) == set(done)


def test_del_02_a_lease_is_shorter_than_the_work(open_queue: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """DEL-02: the worker lives and its message is kept from others, so nobody else begins, though three leases end meanwhile."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)
    gate = Gate()
    with connect("memory://", lease_s=0.3) as jobs:
        runners = Runners(jobs, open_queue())
        runners.registry.job("render")(gate)
        for _ in range(2):
            runners.start(queue=open_queue())
        job_id = jobs.submit("render")
        gate.wait_until_entered()

        threading.Event().wait(1.0)  # three leases
        gate.opened.set()
        [job] = runners.ended(job_id)
        runners.stop()

    assert ("succeeded", 1, 1) == (job.state, job.starts, gate.calls)


def test_del_12_a_job_that_kills_who_takes_it_is_given_up(
    pubsub_server: PubSubServer, open_queue: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEL-12: its message comes again each time; after its tries it has failed, and the others are run."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)
    called: list[str] = []
    registry = Registry()
    registry.job("render", backoff=lambda attempt, job_id: 0.0)(lambda ctx: called.append(ctx.job_id))
    with connect("memory://", lease_s=0.3) as jobs:
        dying = open_queue()
        JobRunner(jobs, registry, queue=dying)
        poison, other = jobs.submit("render", max_attempts=3), jobs.submit("render")
        for _ in range(3):
            taken = dying.reserve(limit=5, timeout_s=0)  # one request, and no thread that pulls for a dead process
            assert poison in [one.run.id for one in taken]
            jobs.attempt(poison, deadline_s=0).__enter__()  # and the process is gone
            dying.close()
            pubsub_server.expire()
            dying = open_queue()
        dying.close()
        runners = Runners(jobs, open_queue())
        with JobRunner(jobs, registry, queue=runners.queue):
            given_up, ran = runners.ended(poison, other)

    assert ("failed", "WorkerLost", 3) == (given_up.state, given_up.error_kind, given_up.starts)
    assert ("succeeded", [other]) == (ran.state, called)


def test_del_14_a_job_that_was_not_enqueued_is_so_in_time(
    pubsub_server: PubSubServer, open_queue: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEL-14: Pub/Sub is away when it is submitted: the job is kept, its key answers with it, and it is run when it is back."""
    monkeypatch.setattr("jobevents.runner.RESERVE_S", 0.05)
    monkeypatch.setattr("jobevents.foreign.SWEEP_S", 0.05)
    monkeypatch.setattr("jobevents.trouble.FIRST_S", 0.05)
    registry = Registry()
    registry.job("render")(lambda ctx: None)
    with connect("memory://") as jobs:
        runners = Runners(jobs, open_queue())
        with JobRunner(jobs, registry, queue=runners.queue):
            pubsub_server.unavailable()
            job_id = jobs.submit("render", key="song-7")
            assert job_id == jobs.submit("render", key="song-7")
            pubsub_server.unavailable(False)
            [job] = runners.ended(job_id)

    assert ("succeeded", 1) == (job.state, job.starts)
