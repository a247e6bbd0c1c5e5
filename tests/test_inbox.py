"""Jobs submitted in a caller's own transaction: there when it has committed, never when not; in a file, and in Postgres."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobevents.commands import CancelOutcome
from jobevents.desk import Inbox
from jobevents.errors import Conflict, Gone, InvalidValue, KeyTaken, Misconfigured, NotFound, Unavailable
from jobevents.events import JobQueued, JobSkipped
from jobevents.inbox import Intake
from jobevents.jobs import Jobs
from jobevents.testing import Died
from jobevents.testing.jobqueue_threads import AT_ONCE_S, PATIENCE_S, at_once, waiting
from jobevents.wiring import connect
from tests.clock import Clock
from tests.test_queue import taken

Begin = Callable[[], Any]
"""Open a connection of a user's own, whose transaction begins with its first statement."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty log in a file."""
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.fixture
def jobs(url: str, clock: Clock) -> Iterator[Jobs]:
    """Jobs over an empty log, by the standing clock."""
    with connect(url, clock=clock) as made:
        yield made


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Connections to the file, closed in the end."""
    made = []

    def begin() -> sqlite3.Connection:
        made.append(sqlite3.connect(tmp_path / "jobs.db", check_same_thread=False))
        return made[-1]

    yield begin
    for connection in made:
        connection.close()


def inbox_of(jobs: Jobs) -> Inbox:
    """Return the inbox of a log."""
    assert jobs.desk is not None
    assert jobs.desk.inbox is not None
    return jobs.desk.inbox


def in_inbox(begin: Begin) -> list[tuple[Any, ...]]:
    """Return what is in the inbox: ids, and why they were refused."""
    with closing(begin()) as connection:
        return list(connection.execute("SELECT job_id, refused FROM job_inbox ORDER BY place").fetchall())


def test_a_rollback_leaves_nothing(jobs: Jobs, begin: Begin) -> None:
    """With the user's data goes the job."""
    theirs = begin()
    job_id = jobs.submit("render", connection=theirs)
    theirs.rollback()

    with pytest.raises(NotFound):
        jobs.get(job_id)
    assert ([], []) == (taken(jobs.queue), in_inbox(begin))


def test_a_commit_makes_the_job(jobs: Jobs, begin: Begin) -> None:
    """Asked for by its id it is there, as it was submitted; before the commit nobody sees it."""
    theirs = begin()
    job_id = jobs.submit("render", {"song": 7}, connection=theirs, actor="ann", reason="new", priority=3)
    with pytest.raises(NotFound):
        jobs.get(job_id)

    theirs.commit()

    (event,) = jobs.history(job_id)
    assert isinstance(event, JobQueued)
    assert ({"song": 7}, "ann", "new", 3) == (event.params, event.actor, event.reason, event.priority)
    assert [] == in_inbox(begin)


def test_a_worker_brings_it(url: str, jobs: Jobs, begin: Begin) -> None:
    """Another process that reserves gets the job, though who submitted it does nothing more."""
    theirs = begin()
    job_id = jobs.submit("render", connection=theirs)
    theirs.commit()

    with connect(url, clock=jobs.emitter.clock) as worker:
        assert [job_id] == taken(worker.queue)


def test_a_commit_wakes_a_worker(jobs: Jobs, begin: Begin) -> None:
    """A blocked reserve hears of the commit long before it would look again."""
    with waiting(lambda: jobs.queue.reserve(timeout_s=PATIENCE_S)) as answer:
        theirs = begin()
        job_id = jobs.submit("render", connection=theirs)
        theirs.commit()

        assert [job_id] == [one.run.id for one in answer()]
    assert AT_ONCE_S < PATIENCE_S


@pytest.mark.parametrize("ask", ["cancel", "attempt", "retry", "submit"])
def test_whatever_is_asked_of_it_finds_it(jobs: Jobs, begin: Begin, ask: str) -> None:
    """A committed job is known to every call, the next submit among them."""
    theirs = begin()
    job_id = jobs.submit("render", connection=theirs)
    theirs.commit()

    match ask:
        case "cancel":
            assert CancelOutcome.CANCELED == jobs.cancel(job_id)
        case "attempt":
            with jobs.attempt(job_id) as attempt:
                assert 1 == attempt.number
        case "retry":
            jobs.retry(job_id)
        case "submit":
            jobs.submit("mix")

    assert isinstance(jobs.history(job_id)[0], JobQueued)
    assert [] == in_inbox(begin)


def test_a_backlog_does_not_hide_it(jobs: Jobs, begin: Begin) -> None:
    """A job of a higher priority is handed out before all that waited already."""
    jobs.submit_many([{"name": "render"}] * 5)
    theirs = begin()
    job_id = jobs.submit("render", priority=9, connection=theirs)
    theirs.commit()

    assert [job_id] == taken(jobs.queue, limit=1)


def test_an_open_transaction_waits_for_nothing(jobs: Jobs, begin: Begin) -> None:
    """Who has a transaction open submits into it, by an id too, though other jobs wait in the inbox."""
    other = begin()
    jobs.submit("render", connection=other)
    other.commit()
    theirs = begin()

    job_ids = [jobs.submit("render", id=job_id, connection=theirs) for job_id in ("a", "b")]
    theirs.commit()

    assert sorted(job_ids) == [one for one in sorted(taken(jobs.queue)) if one in job_ids]


def test_two_drainers_bring_it_once(url: str, jobs: Jobs, begin: Begin) -> None:
    """Several processes that look at once make one history of each job, and none is told of an error."""
    theirs = begin()
    job_ids = [jobs.submit("render", connection=theirs) for _ in range(30)]
    theirs.commit()

    with connect(url) as one, connect(url) as other:
        at_once([partial(made.get, job_ids[-1]) for made in (jobs, one, other)])

    assert {1} == {len(jobs.history(job_id)) for job_id in job_ids}
    assert [] == in_inbox(begin)


def test_a_crash_before_the_inbox_is_emptied_doubles_nothing(
    url: str, jobs: Jobs, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is in the log and the row still in the inbox: the next one to look finds its own event, whatever followed it."""

    def die(*_: object) -> None:
        raise Died

    theirs = begin()
    job_id = jobs.submit("render", connection=theirs)
    theirs.commit()
    monkeypatch.setattr(inbox_of(jobs), "drop", die)
    with pytest.raises(Died):
        jobs.get(job_id)

    with connect(url) as after:
        with after.attempt(job_id):
            pass
        rest = len(in_inbox(begin))
        bring(after)

        assert (1, []) == (rest, in_inbox(begin))
        assert ["JobQueued", "JobStarted", "JobSucceeded"] == [event.type for event in after.history(job_id)]


def bring(jobs: Jobs) -> int:
    """Drain the inbox."""
    fetch = jobs.emitter.fetch
    assert fetch is not None
    return fetch()


def test_a_key_that_another_got_first_is_told(jobs: Jobs, begin: Begin) -> None:
    """Of two jobs with one key the second to come is there, skipped, and its history says which one was before it."""
    theirs = begin()
    late = jobs.submit("render", {"song": 8}, key="k", connection=theirs)
    theirs.commit()
    other = begin()
    later = jobs.submit("render", {"song": 9}, key="k2", connection=other)
    other.commit()
    early = keep_out(jobs, lambda: jobs.submit("render", {"song": 7}, key="k"))

    assert ("queued", "skipped", "queued") == tuple(jobs.job(one).state for one in (early, late, later))
    last = jobs.history(late)[-1]
    assert isinstance(last, JobSkipped)
    assert early in last.reason


def keep_out(jobs: Jobs, call: Callable[[], str]) -> str:
    """Make a call of a process that knows nothing of the inbox yet."""
    intake, jobs._intake = jobs._intake, None
    try:
        return call()
    finally:
        jobs._intake = intake


def test_an_id_that_another_got_first_is_told(jobs: Jobs, begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """A job that can be none stays in the inbox with the reason, is logged once and counted, and is in nobody's way."""
    theirs = begin()
    jobs.submit("render", {"song": 8}, id="a", connection=theirs)
    theirs.commit()
    keep_out(jobs, lambda: jobs.submit("render", {"song": 7}, id="a"))
    theirs = begin()
    behind = jobs.submit("render", connection=theirs)
    theirs.commit()

    counts = bring(jobs), bring(jobs)

    ((job_id, refused),) = in_inbox(begin)
    assert ("a", True, (1, 0)) == (job_id, bool(refused), counts)
    assert (1, 1) == (jobs.counts.snapshot()["inbox_refused"], len(caplog.records))
    assert "queued" == jobs.get(behind).state


def test_the_same_job_twice_is_one(jobs: Jobs, begin: Begin) -> None:
    """An id that was submitted as the same job is that job, before the commit and after."""
    theirs = begin()
    jobs.submit("render", {"song": 7}, id="a", connection=theirs)
    theirs.commit()
    keep_out(jobs, lambda: jobs.submit("render", {"song": 7}, id="a"))
    bring(jobs)
    again = jobs.submit("render", {"song": 7}, id="a", connection=begin())

    assert ("a", 1, []) == (again, len(jobs.history("a")), in_inbox(begin))


def test_what_is_known_before_is_said_before(jobs: Jobs, begin: Begin) -> None:
    """A key or an id that is taken when the job is submitted is answered there and then, and nothing is written."""
    holder = jobs.submit("render", {"song": 7}, key="k")
    jobs.submit("render", id="a")
    jobs.submit("render", id="b")
    jobs.delete("b")
    submit = partial(jobs.submit, "render", connection=begin())

    assert holder == submit({"song": 7}, key="k")
    with pytest.raises(KeyTaken):
        submit({"song": 8}, key="k")
    with pytest.raises(Conflict):
        submit({"song": 8}, id="a")
    with pytest.raises(Gone):
        submit(id="b")
    with pytest.raises(InvalidValue):
        submit(max_attempts=0)
    assert [] == in_inbox(begin)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_it_can_be_awaited(jobs: Jobs, begin: Begin, ends: str) -> None:
    """From asyncio, too: in the caller's transaction, whose end decides, while the loop goes on."""

    async def work() -> str:
        return await jobs.aio.submit("render", {"song": 7}, connection=theirs)

    theirs = begin()
    job_id = asyncio.run(work())
    before = taken(jobs.queue)
    getattr(theirs, ends)()

    assert [] == before
    assert ([job_id] if ends == "commit" else []) == taken(jobs.queue)


def test_a_connection_of_another_thread_is_misconfigured(tmp_path: Path) -> None:
    """Those of sqlite3 are one thread's: the message says what to make it with, and the user's transaction is as it was."""
    path = tmp_path / "jobs.db"
    with connect(f"sqlite:///{path}") as jobs, closing(sqlite3.connect(path)) as theirs:
        with pytest.raises(Misconfigured, match="check_same_thread=False"):
            asyncio.run(jobs.aio.submit("render", connection=theirs))

        assert not theirs.in_transaction


def test_a_closed_connection_is_misconfigured(jobs: Jobs, begin: Begin) -> None:
    """It is told apart from a database that is away: no other try changes it."""
    theirs = begin()
    theirs.close()

    with pytest.raises((Misconfigured, Unavailable), match="closed"):
        jobs.submit("render", connection=theirs)


@pytest.mark.parametrize("connection", [object(), 7, Path()])
def test_no_connection_is_misconfigured(jobs: Jobs, connection: object) -> None:
    """What cannot run a statement is refused, and the message says what can."""
    with pytest.raises(Misconfigured, match="connection is none that this log can use"):
        jobs.submit("render", connection=connection)


def test_memory_has_no_transactions_of_others() -> None:
    """A log in memory refuses any connection."""
    with connect("memory://") as jobs, pytest.raises(Misconfigured, match="leave out connection"):
        jobs.submit("render", connection=object())


def test_a_job_that_was_begun_before_gets_its_name(jobs: Jobs, begin: Begin) -> None:
    """A delivery that came before the commit had a job without a name: it is that job."""
    with jobs.attempt("a"):
        pass
    jobs.submit("render", {"song": 7}, id="a", connection=(theirs := begin()))
    theirs.commit()

    bring(jobs)

    assert ("render", "succeeded", []) == (jobs.job("a").name, jobs.job("a").state, in_inbox(begin))


def test_what_is_no_event_is_refused(jobs: Jobs, begin: Begin) -> None:
    """Bytes that somebody put there stop nobody."""
    inbox_of(jobs).put(theirs := begin(), "a", b"{}")
    behind = jobs.submit("render", connection=theirs)
    theirs.commit()

    assert "queued" == jobs.get(behind).state
    assert ["a"] == [job_id for job_id, refused in in_inbox(begin) if refused]


def test_intake_is_made_once(jobs: Jobs) -> None:
    """Who drains within a drain does nothing."""
    assert isinstance(jobs._intake, Intake)
    assert 0 == jobs._intake.drain()
