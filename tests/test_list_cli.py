"""The commands that list and show jobs: the typed search, what cannot be read, and jobs that only seem to run."""

from collections.abc import Iterator

import pytest
from eventsourcing.persistence import StoredEvent

from jobevents import connect
from jobevents.jobs import Jobs
from jobevents.status import Status
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.projecting import UNKNOWN

URL = "sqlite:///jobs.db?synchronous=normal"


@pytest.fixture
def log(jobevents: CommandLine) -> Iterator[Jobs]:
    """Two failed jobs in a queue of their own, ten that wait in another."""
    with connect(URL) as jobs:
        for number in range(2):
            jobs.submit("render", id=f"bad-{number}", queue="mix", title=f"Song {number}", actor="ana")
            with pytest.raises(OSError, match="timeout"), jobs.attempt(f"bad-{number}"):
                raise OSError(f"timeout of server {number}")
        for number in range(10):
            jobs.submit("settle", id=f"new-{number}")
        yield jobs


def ids(jobevents: CommandLine, *args: str) -> list[str]:
    """The jobs that a list has."""
    return [one["job_id"] for one in jobevents("list", *args).json["items"]]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("state:failed queue:mix error:timeout", ["bad-1", "bad-0"]),
        ("error:'server 1'", []),
        ('error:"server 1"', ["bad-1"]),
        ("song", ["bad-1", "bad-0"]),
        ("id:bad-0", ["bad-0"]),
        ("command:render", ["bad-1", "bad-0"]),
        ("actor:ana duration:<1h", ["bad-1", "bad-0"]),
        ("before:-1d", []),
        ("state:failed,canceled -error:nothing", ["bad-1", "bad-0"]),
        ("-queue:default,slow", ["bad-1", "bad-0"]),
        ("state:failed -timeout", []),
    ],
)
def test_a_search_finds_what_the_dashboard_finds(jobevents: CommandLine, search: str, expected: list[str]) -> None:
    """By the same words."""
    assert sorted(expected) == sorted(ids(jobevents, "--", search))


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("args", [("state:other queue:mix",), ("--state", "other", "--queue", "mix")], ids=" ".join)
def test_a_state_of_open_text_in_a_queue(jobevents: CommandLine, log: Jobs, args: tuple[str, ...]) -> None:
    """It is looked for in the table, which knows the texts and not their common name."""
    store = log.statuses()
    store.save("bad-0", Status(state="paused"))

    assert ["bad-0"] == ids(jobevents, *args)
    assert ["bad-0"] == ids(jobevents, *args, "--as-of", "-0s")


@pytest.mark.usefixtures("log")
def test_a_search_and_options_go_together(jobevents: CommandLine) -> None:
    """An option says what the search does not."""
    assert ["bad-1"] == ids(jobevents, "error:timeout", "--queue", "mix", "--per-page", "1")


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("stat:failed",), "did you mean state"),
        (("foo:bar",), 'put it in quotes: "foo:bar"'),
        (("state:done",), "use one of queued"),
        (("duration:30s",), "write >30s"),
        (("state:failed", "--state", "queued"), "give one of both"),
        (("error:timeout", "--page", "2"), "go on with --after"),
        (("error:timeout", "--as-of", "-1m"), "--as-of goes with state, command, queue and --page alone"),
        (("id:bad", "--after", ""), "use --page"),
    ],
)
def test_a_search_that_cannot_be_is_refused(jobevents: CommandLine, args: tuple[str, ...], hint: str) -> None:
    """With what would be understood; exit 2."""
    told = jobevents("list", *args)

    assert (2, "") == (told.code, told.out)
    assert hint in told.err


@pytest.mark.usefixtures("log")
def test_a_search_says_how_far_it_looked(jobevents: CommandLine) -> None:
    """It goes on where it stopped, and says when there is no more."""
    first = jobevents("list", "timeout", "--per-page", "1")
    rest = jobevents("list", "timeout", "--after", first.json["cursor"])
    said = jobevents("list", "no such words", at_terminal=True).out

    assert 12 == first.json["looked"] + rest.json["looked"]
    assert ("", 2) == (rest.json["cursor"], len(first.json["items"]) + len(rest.json["items"]))
    assert "no such jobs: 12 jobs were looked through, and there are no others" in said
    assert "go on with --after" in jobevents("list", "timeout", "--per-page", "1", at_terminal=True).out


@pytest.mark.parametrize("args", [(), ("--queue", "mix"), ("timeout",)], ids=" ".join)
def test_a_job_that_cannot_be_read_is_left_out_and_named(
    jobevents: CommandLine, log: Jobs, args: tuple[str, ...]
) -> None:
    """The others are listed; it is told of once, and counted."""
    log.log.recorder.insert_events([StoredEvent("bad-0", 4, "JobPaused", UNKNOWN.replace(b'"a"', b'"bad-0"'))])

    told, shown = jobevents("list", *args), jobevents("list", *args, at_terminal=True)

    assert 0 == told.code
    assert "bad-1" in [one["job_id"] for one in told.json["items"]]
    assert ["bad-0"] == [one["job_id"] for one in told.json["left_out"]]
    assert 1 == shown.err.count("left out: bad-0: ")
    assert "jobs left out, since they cannot be read: 1; see jobevents verify" in shown.err


def test_a_job_whose_worker_is_lost_is_told_wherever_it_runs(jobevents: CommandLine, log: Jobs) -> None:
    """In lists, alone, why, among the queues and while it is followed: it is running, and nobody works on it."""
    log.attempt("new-3").__enter__()
    alive = jobevents("list", "--state", "running", at_terminal=True).out
    log.presence.leases.drop(log.job("new-3").worker)

    listed, shown, queues = jobevents("list"), jobevents("show", "new-3"), jobevents("queues")
    people = {
        args[0]: jobevents(*args, at_terminal=True)
        for args in (
            ("list", "--state", "running"),
            ("show", "new-3"),
            ("why", "new-3"),
            ("queues",),
            ("list", "settle"),
        )
    }

    assert "lost" not in alive
    assert ["new-3"] == [one["job_id"] for one in listed.json["lost"]]
    assert "the worker has no lease" in shown.json["lost"]["why"]
    assert [("default", 1, 1), ("mix", 0, 0)] == [(one["queue"], one["running"], one["lost"]) for one in queues.json]
    assert "running, lost" in people["list"].out
    assert "running, lost" in people["show"].out
    assert "jobevents workers --reap" in people["show"].err
    assert "nobody is known to work on it" in people["why"].out
    assert "1 (1 lost)" in people["queues"].out
    assert "dead" in jobevents("workers", at_terminal=True).out


def test_who_follows_a_lost_job_is_told(jobevents: CommandLine, log: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may ever come: it is said once, with what to do."""
    log.attempt("new-3").__enter__()
    log.presence.leases.drop(log.job("new-3").worker)
    looks = iter(range(4))

    def wait(_: float) -> None:
        if next(looks) == 3:
            with connect(URL) as other:
                other.cancel("new-3")
                other.reap()

    monkeypatch.setattr("jobevents.cli_keep.time.sleep", wait)
    monkeypatch.setattr("jobevents.cli_keep.WORKER_S", 0.0)

    told = jobevents("tail", "new-3", at_terminal=True)

    assert 0 == told.code
    assert 1 == told.err.count("new-3: worker lost: the worker has no lease")
    assert "no lines" not in told.out
    assert "jobevents workers --reap" in told.err
