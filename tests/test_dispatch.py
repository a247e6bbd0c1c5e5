"""Dispatch: an external job that begins to wait is handed to the user's task queue, and nothing that was lost stays lost."""

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from jobevents import errors
from jobevents.backends.cloudtasks import EMULATOR, CloudTasksDispatch, task_id
from jobevents.dispatch import Dispatcher
from jobevents.events import JobQueued
from jobevents.jobs import Jobs
from jobevents.status import Status
from jobevents.tasks import Task
from jobevents.wiring import connect
from tests.bloblogs import index
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.clock import Clock
from tests.cloudtasks_server import CloudTasksServer

QUEUE = "projects/p/locations/l/queues/q"
URL = "https://jobs.example"
ACCOUNT = "push@p.iam.gserviceaccount.com"


class TaskQueue:
    """A task queue of the user's that keeps what it is handed, or is away."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.asked = 0
        self.is_away = False
        self.poison = ""  # a job that it never takes

    def __call__(self, task: Task) -> None:
        self.asked += 1
        if self.is_away or task.job_id == self.poison:
            raise OSError("the task queue is away")
        self.tasks.append(task)

    @property
    def made(self) -> list[tuple[str, int]]:
        """Job and version of all tasks."""
        return [(task.job_id, task.version) for task in self.tasks]


@pytest.fixture
def queue() -> TaskQueue:
    """A task queue."""
    return TaskQueue()


@pytest.fixture(params=["memory", "sqlite", "blobs"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of log."""
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/jobs.db?synchronous=normal",
        "blobs": "memory://?log=blobs",
    }[str(request.param)]


@pytest.fixture
def served(log_url: str, queue: TaskQueue, clock: Clock) -> Iterator[Jobs]:
    """Jobs whose external ones are handed to the queue."""
    with connect(log_url, dispatch=queue, clock=clock) as made:
        yield made


def sweeper(jobs: Jobs, queue: TaskQueue, clock: Clock, **options: Any) -> Dispatcher:
    """Make a dispatcher of another process."""
    return Dispatcher(
        jobs.emitter, jobs.runs, queue, jobs.counts, blobs=jobs.blobs, monotonic=clock.monotonic, **options
    )


def test_an_external_job_is_handed_over_after_its_event(served: Jobs, queue: TaskQueue, clock: Clock) -> None:
    """With its kind, its queue and when it is due; the event is in the log already."""
    due = clock() + timedelta(hours=1)

    job_id = served.submit("render", {"secret": 7}, queue="songs", at=due, external=True)

    assert [Task(job_id=job_id, version=1, name="render", queue="songs", due=due, attempt=1)] == queue.tasks
    assert 1 == served.counts.snapshot()["dispatched"]


def test_other_jobs_are_not(served: Jobs, queue: TaskQueue) -> None:
    """What our own queue hands out, what runs, and what a record says."""
    served.submit("render")
    with served.attempt("job-of-a-task"):
        pass
    served.statuses().save("of-a-service", Status(state="queued"))

    assert [] == queue.tasks


def test_each_time_that_it_waits_again_is_another_task(served: Jobs, queue: TaskQueue, clock: Clock) -> None:
    """A retry, a rerun, a snooze, a failure with tries left; all of them in order, each once."""
    job_id = served.submit("render", max_attempts=2, external=True)
    with pytest.raises(errors.Snooze), served.attempt(job_id):
        raise errors.Snooze(60)
    with pytest.raises(ValueError, match="no"), served.attempt(job_id, retry_in=lambda _: 5.0):
        raise ValueError("no")
    served.retry(job_id)
    with served.attempt(job_id):
        pass
    served.rerun(job_id)

    assert [(job_id, version) for version in (1, 3, 5, 6, 9)] == queue.made
    assert [60.0, 5.0] == [(task.due - clock()).total_seconds() for task in queue.tasks[1:3]]


def test_a_batch_is_handed_over_whole(served: Jobs, queue: TaskQueue) -> None:
    """Each of its external jobs."""
    ids = served.submit_many([{"name": "render", "external": n % 2 == 0} for n in range(10)])

    assert [(job_id, 1) for job_id in ids[::2]] == queue.made


def test_a_task_queue_that_is_away_fails_no_submit(
    served: Jobs, queue: TaskQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, counted, and after the first asked no more by those who submit; what waits is handed over later."""
    queue.is_away = True
    with caplog.at_level(logging.WARNING):
        ids = [served.submit("render", external=True) for _ in range(20)]

    assert ["queued"] * 20 == [served.job(job_id).state for job_id in ids]
    assert 1 == len([one for one in caplog.records if "handing jobs to the task queue failed" in one.message])
    assert queue.asked < 20
    queue.is_away = False
    served.close()
    assert sorted((job_id, 1) for job_id in ids) == sorted(queue.made)


def test_what_is_never_taken_is_in_nobody_s_way(served: Jobs, queue: TaskQueue) -> None:
    """The others are handed over when the queue is back."""
    queue.is_away = True
    ids = [served.submit("render", external=True) for _ in range(3)]
    queue.is_away, queue.poison = False, ids[0]
    dispatcher = served.dispatcher
    assert dispatcher is not None

    dispatcher._retry()
    dispatcher._retry()

    assert {(ids[1], 1), (ids[2], 1)} == set(queue.made)


@pytest.mark.parametrize("log_url", ["memory", "sqlite"], indirect=True)
def test_a_crash_between_event_and_task_loses_nothing(log_url: str, queue: TaskQueue, clock: Clock) -> None:
    """DEL-14: a pass finds what is due for a minute and was never started, by the name that its task would have had."""
    with connect(log_url, clock=clock) as jobs:  # without dispatch: as if it had died after each append
        lost = jobs.submit("render", external=True)
        again = jobs.submit("render", external=True, max_attempts=2)
        with pytest.raises(ValueError, match="no"), jobs.attempt(again, retry_in=lambda _: 5.0):
            raise ValueError("no")
        later = jobs.submit("render", external=True, delay=3600)
        jobs.submit("render")
        started = jobs.submit("render", external=True)
        jobs.attempt(started).__enter__()
        other = sweeper(jobs, queue, clock)

        before = other.sweep()
        clock.move(90)
        found, at_once = other.sweep(), other.sweep()

        assert (0, 2, 0) == (before, found, at_once)
        assert {(lost, 1), (again, 3)} == set(queue.made)
        clock.move(3600)
        assert 3 == other.sweep()
        assert (later, 1) in queue.made


def test_a_job_given_back_by_the_reaper_is_handed_over(served: Jobs, queue: TaskQueue, clock: Clock) -> None:
    """Its worker died: it waits again, and gets another task."""
    job_id = served.submit("render", external=True)
    served.attempt(job_id, deadline_s=5).__enter__()
    clock.move(10)
    if served.desk is None:
        with served.attempt(job_id):  # this log has no index yet that the reaper could look at: a delivery finds it
            pass
        assert [(job_id, 1)] == queue.made[:1]
        return

    served.reap()

    assert [(job_id, 1), (job_id, 3)] == queue.made


@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_a_pass_goes_on_where_the_one_before_ended(
    log_url: str, queue: TaskQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait; and one that the queue does not take does not stop those after it for good."""
    monkeypatch.setattr("jobevents.dispatch.PAGE", 3)
    monkeypatch.setattr("jobevents.dispatch.LOOKED_AT", 6)
    with connect(log_url, clock=clock) as jobs:
        ids = sorted(jobs.submit_many([{"name": "render", "external": True}] * 20))
        clock.move(90)
        queue.poison = ids[4]
        other = sweeper(jobs, queue, clock)

        with pytest.raises(OSError, match="away"):
            other.sweep()
        rest = [other.sweep() for _ in range(4)]

        assert [6, 6, 3, 0] == rest
        assert {(job_id, 1) for job_id in ids} - {(ids[4], 1)} == set(queue.made)


@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_one_process_at_a_time_makes_the_passes(log_url: str, queue: TaskQueue, clock: Clock) -> None:
    """The other takes over when the first is gone."""
    with connect(log_url, clock=clock) as jobs:
        jobs.submit("render", external=True)
        clock.move(90)
        first, second = (sweeper(jobs, queue, clock, again_s=0.0) for _ in range(2))
        for dispatcher in (first, second, first, second):
            clock.move(15)
            dispatcher.beat()

        assert 2 == len(queue.made)
        for _ in range(3):
            clock.move(15)
            second.beat()
        assert 2 < len(queue.made)


def test_the_thread_hands_over_what_was_lost(log_url: str, clock: Clock) -> None:
    """Jobs opened with a dispatch look by themselves."""
    came = threading.Event()
    tries = iter([False, True])

    def dispatch(task: Task) -> None:
        if not next(tries):
            raise OSError("away")
        came.set()

    with connect(log_url, dispatch=dispatch, clock=clock) as jobs:
        jobs.submit("render", external=True)

        assert came.wait(20)


def test_what_was_lost_on_a_log_of_objects_is_found_by_its_index(queue: TaskQueue, clock: Clock) -> None:
    """Of the jobs that its index says are queued, each is read by the dispatcher once in a while."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        lost, later = jobs.submit("render", external=True), jobs.submit("render", external=True, delay=3600)
        done = jobs.submit("render", external=True)
        index(jobs)
        with jobs.attempt(done):
            pass
        clock.move(90)
        other = sweeper(jobs, queue, clock)

        found = [other.sweep(), other.sweep()]

        assert ([1, 0], [(lost, 1)]) == (found, queue.made)
        clock.move(4000)
        assert 2 == other.sweep()
        assert (later, 1) in queue.made


def test_without_a_dispatch_nothing_can_be_asked_for() -> None:
    """It says what to do."""
    with connect("memory://") as jobs, pytest.raises(errors.Misconfigured, match="give connect a dispatch="):
        jobs.redispatch()


def test_the_pass_takes_its_index(tmp_path: Path) -> None:
    """A million jobs of the other kind do not slow it down."""
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        runs: Any = jobs.runs
        plan = runs._file.query(f"EXPLAIN QUERY PLAN {runs._undelivered}", ("", "9", 1))

    assert "USING INDEX job_runs_undelivered" in str(plan)


# Cloud Tasks


@pytest.fixture(scope="module")
def stand_in() -> Iterator[CloudTasksServer]:
    """The stand-in, listening."""
    server = CloudTasksServer()
    yield server
    server.close()


@pytest.fixture
def server(stand_in: CloudTasksServer, monkeypatch: pytest.MonkeyPatch) -> CloudTasksServer:
    """The stand-in with one empty queue, named in the environment."""
    stand_in.reset()
    stand_in.queues.add(QUEUE)
    monkeypatch.setenv(EMULATOR, stand_in.host)
    return stand_in


@pytest.fixture
def cloud_tasks(server: CloudTasksServer) -> Iterator[CloudTasksDispatch]:
    """Dispatch to that queue."""
    made = CloudTasksDispatch(QUEUE, f"{URL}/", ACCOUNT)
    yield made
    made.close()


def task(job_id: str = "render-1", version: int = 1, delay_s: float = 0.0, queue: str = "default") -> Task:
    """A task that is due after a while."""
    due = datetime.now(UTC) + timedelta(seconds=delay_s)
    return Task(job_id=job_id, version=version, name="render", queue=queue, due=due, attempt=1)


def test_a_task_is_a_request_to_the_push_endpoint(server: CloudTasksServer, cloud_tasks: CloudTasksDispatch) -> None:
    """With a token for it, and nothing of the job but its id, its kind and the event's version."""
    cloud_tasks(task("render-1", 4))

    (made,) = server.tasks.values()
    http = made.http_request
    assert f"{QUEUE}/tasks/{task_id(task('render-1', 4))}" == made.name
    assert made.name.endswith("-render-1-4")
    assert f"{URL}/tasks/render-1" == http.url
    assert b'{"job":"render-1","version":4,"name":"render"}' == http.body
    assert {"Content-Type": "application/json"} == dict(http.headers)
    assert (ACCOUNT, URL) == (http.oidc_token.service_account_email, http.oidc_token.audience)
    assert 600 == made.dispatch_deadline.seconds
    assert not made.HasField("schedule_time")


def test_a_task_waits_until_its_job_is_due(server: CloudTasksServer, cloud_tasks: CloudTasksDispatch) -> None:
    """To the microsecond; what is due in more than 29 days is left to the pass that finds it due."""
    wanted = task("soon", delay_s=3600)
    cloud_tasks(wanted)
    cloud_tasks(task("far", delay_s=40 * 86400))

    (made,) = server.tasks.values()
    assert wanted.due == made.schedule_time.ToDatetime(UTC)


def test_a_task_that_is_there_is_a_success(server: CloudTasksServer, cloud_tasks: CloudTasksDispatch) -> None:
    """Also one that was done lately, and one whose reply was lost; another version is another task."""
    lost = iter([True, False, False])
    server.lose_reply = lambda: next(lost, False)
    with pytest.raises(errors.Unavailable, match=r"cannot make a task queue=.* job_id=render-1"):
        cloud_tasks(task())
    cloud_tasks(task())
    server.done.add(next(iter(server.tasks)))
    server.tasks.clear()
    cloud_tasks(task())
    cloud_tasks(task(version=2))

    assert ["-render-1-2"] == [name[-11:] for name in server.tasks]
    assert {"ALREADY_EXISTS": 2, "OK": 1, "UNAVAILABLE": 1} == dict(server.calls)


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.Misconfigured, "there is no such queue"),
        (grpc.StatusCode.PERMISSION_DENIED, errors.PermissionDenied, "grant roles/cloudtasks.enqueuer"),
        (grpc.StatusCode.UNAUTHENTICATED, errors.PermissionDenied, "grant roles/cloudtasks.enqueuer"),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidValue, "fails as told"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.Unavailable, "fails as told"),
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable, "fails as told"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.Unavailable, "fails as told"),
    ],
)
def test_what_cloud_tasks_says_is_said_in_our_words(
    server: CloudTasksServer, cloud_tasks: CloudTasksDispatch, code: Any, error: type[Exception], says: str
) -> None:
    """One request, one answer: nothing is tried again behind our back."""
    server.fail = lambda: code

    with pytest.raises(error, match=says):
        cloud_tasks(task())

    assert 1 == server.calls.total()


@pytest.mark.parametrize(
    ("queue", "url", "account", "more", "says"),
    [
        ("q", URL, ACCOUNT, {}, "write projects/PROJECT/locations/LOCATION/queues/QUEUE"),
        (QUEUE, "jobs.example", ACCOUNT, {}, "write https://host"),
        (QUEUE, f"{URL}?a=1", ACCOUNT, {}, "write https://host"),
        (QUEUE, URL, "push", {}, "write its email"),
        (QUEUE, URL, ACCOUNT, {"deadline_s": 3600}, "deadline_s must be 15 to 1800"),
    ],
)
def test_what_cannot_be_is_refused_at_once(queue: str, url: str, account: str, more: Any, says: str) -> None:
    """Before anything is submitted."""
    with pytest.raises(errors.Misconfigured, match=says):
        CloudTasksDispatch(queue, url, account, **more)


def test_a_url_opens_cloud_tasks(server: CloudTasksServer) -> None:
    """By its options; the same job submitted again makes no second task."""
    with connect(
        "memory://", dispatch=f"cloudtasks://{QUEUE}?url={URL}&service_account={ACCOUNT}&audience=a&deadline_s=60"
    ) as jobs:
        job_id = jobs.submit("render", id="render-1", external=True)
        jobs.submit("render", id=job_id, external=True)

    (made,) = server.tasks.values()
    assert ("a", 60) == (made.http_request.oidc_token.audience, made.dispatch_deadline.seconds)
    assert {"OK": 1} == dict(server.calls)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"cloudtasks://{QUEUE}", "no task queue for this URL"),
        (f"cloudtasks://{QUEUE}?url={URL}&service_account={ACCOUNT}&colour=red", "no task queue for this URL"),
        (f"sqs://{QUEUE}?url={URL}&service_account={ACCOUNT}", "no task queue for this URL"),
        (f"cloudtasks://{QUEUE}?url={URL}&service_account={ACCOUNT}&deadline_s=x", "no number of seconds"),
        (7, "dispatch must be called with a Task"),
    ],
)
def test_a_dispatch_that_cannot_be_is_refused(url: Any, says: str) -> None:
    """By connect, and it says what to write."""
    with pytest.raises(errors.Misconfigured, match=says):
        connect("memory://", dispatch=url)


def test_the_names_of_tasks_do_not_follow_each_other(clock: Clock) -> None:
    """Cloud Tasks slows down where they do."""
    ids = [task_id(task(f"render-20261129-1200{n:02d}-0123456789ab")) for n in range(50)]

    assert sorted(ids) != ids
    assert 50 == len({one[:8] for one in ids})


def test_the_command_line_hands_over_what_it_submits(
    server: CloudTasksServer, jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the queue that JOBEVENTS_DISPATCH names."""
    monkeypatch.setenv("JOBEVENTS_DISPATCH", f"cloudtasks://{QUEUE}?url={URL}&service_account={ACCOUNT}")

    told = jobevents("submit", "--create", "render", "--external", "--id", "render-1")

    assert (0, ["-render-1-1"]) == (told.code, [name[-11:] for name in server.tasks])


def test_the_history_says_nothing_of_tasks(served: Jobs, queue: TaskQueue) -> None:
    """A dispatch is no transition."""
    job_id = served.submit("render", external=True)

    assert [JobQueued] == [type(event) for event in served.history(job_id)]
