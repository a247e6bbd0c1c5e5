"""A log whose file is replaced by an older copy while a process goes on: what that process knew is not trusted."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobevents import connect, errors
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.codec import chain_breaks
from jobevents.doctor import examine
from jobevents.events import JobSkipped
from jobevents.jobs import Jobs
from jobevents.log import EventLog, Head
from jobevents.wiring import projector, rebuild
from projections.folding import Folder
from projections.indexview import IndexView
from projections.projector import Projector
from projections.reader import Reader
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents
from tests.histories import JOB, make, queued

Copy = Callable[[], Callable[[], None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log is."""
    return tmp_path / "jobs.db"


@pytest.fixture
def jobs(path: Path) -> Iterator[Jobs]:
    """Return the jobs of a process that goes on."""
    with connect(f"sqlite:///{path}") as jobs:
        yield jobs


@pytest.fixture
def copy(path: Path, jobs: Jobs) -> Copy:
    """Return what copies the log now, and then what puts the copy in its place."""

    def take() -> Callable[[], None]:
        taken = path.with_name("copy.db")
        jobs.log.recorder.file.query("VACUUM INTO ?", (str(taken),))  # type: ignore[attr-defined]  # SQLite's has one

        def put_back() -> None:
            for left in path.parent.glob("jobs.db*"):
                left.unlink()
            taken.rename(path)

        return put_back

    return take


def versions(jobs: Jobs, job_id: str) -> list[int]:
    """Return the versions that are in the log."""
    return [record.version for record in jobs.log.read_raw(job_id)]


def test_lost_events_leave_no_hole(jobs: Jobs, copy: Copy, caplog: pytest.LogCaptureFixture) -> None:
    """What is written next goes on from what is there, not from what was known, and it is said that there was a loss."""
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.fail("a", "broken")
    jobs.retry("a")
    put_back()

    with caplog.at_level(logging.WARNING):
        jobs.cancel("a")

    assert [1, 2] == versions(jobs, "a")
    assert "canceled" == jobs.get("a").state
    assert "history was replaced" in caplog.text


def test_lost_events_are_not_shown(jobs: Jobs, copy: Copy) -> None:
    """A job is shown as the log has it, also where this process has seen more."""
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.fail("a", "broken")
    jobs.submit("mix", id="b")
    put_back()

    assert "queued" == jobs.get("a").state
    with pytest.raises(errors.NotFound):
        jobs.get("b")


def test_other_history_is_no_fork(jobs: Jobs, copy: Copy, path: Path) -> None:
    """Where others have written other events in the place of the lost ones, the next one goes on from theirs."""
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.fail("a", "broken")
    put_back()
    with connect(f"sqlite:///{path}") as others:
        others.skip("a")

    jobs.retry("a")

    assert ["JobQueued", "JobSkipped", "JobRequeued"] == [event.type for event in jobs.history("a")]
    assert [] == chain_breaks(record.data for record in jobs.log.read_raw("a"))


def test_attempt_of_a_lost_start_is_refused(jobs: Jobs, copy: Copy) -> None:
    """Work whose grant was lost does not end as if it had been granted: its outcome is kept beside the history."""
    jobs.submit("mix", id="a")
    put_back = copy()
    with jobs.attempt("a") as attempt:
        put_back()
        attempt.result(1)

    assert ["JobQueued", "TransitionRefused"] == [event.type for event in jobs.history("a")]


@pytest.mark.parametrize("chain", ["", "0" * 32], ids=["missing", "another"])
def test_append_after_what_is_not_there(path: Path, chain: str) -> None:
    """The log itself refuses an event that goes on from one that it has not, and says what may have happened."""
    recorder = SqliteRecorder.open(path)
    log = EventLog(recorder, recorder.translate)
    log.append([queued()])
    head = Head(1, chain) if chain else Head(3, "0" * 32)

    with pytest.raises(errors.Conflict, match="older copy"):
        log.append([make(JobSkipped, version=head.version + 1)], heads={JOB: head})

    assert 1 == log.head(JOB).version
    recorder.close()


def project(jobs: Jobs) -> None:
    """Bring the views up to date."""
    projector(jobs, leased=False).run_once()


def test_views_ahead_of_the_log(jobs: Jobs, copy: Copy) -> None:
    """A projector that finds views of a later log says so, instead of passing over all that is written next."""
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.submit_many([{"name": "mix", "id": name} for name in ("b", "c", "d")])
    project(jobs)
    put_back()
    jobs.submit("mix", id="e")

    with pytest.raises(errors.Corrupt, match=r"ahead of the log.* rebuild"):
        project(jobs)
    troubles = {finding.check: finding.found for finding in examine(jobs) if not finding.ok}
    rebuild(jobs)
    project(jobs)

    assert ["view index"] == list(troubles)
    assert "ahead of the log" in troubles["view index"]
    assert [] == [finding for finding in examine(jobs) if not finding.ok]
    assert ["a", "e"] == sorted(one.job_id for one in Reader(jobs.blobs).page("", 1, 10).items)


def test_log_put_back_under_a_projector(jobs: Jobs, copy: Copy) -> None:
    """A projector that lives through it stops there, and goes on by itself when the views were made anew."""
    now = [0.0]
    alarm = jobs.log.recorder
    assert isinstance(alarm, SqliteRecorder)
    going_on = Projector(
        jobs.log,
        [IndexView(jobs.blobs)],
        alarm=alarm,
        blobs=jobs.blobs,
        monotonic=lambda: now[0],
        wait=lambda _: None,
    )
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.submit_many([{"name": "mix", "id": name} for name in ("b", "c")])
    going_on.step()
    put_back()

    going_on.step()
    (held_up,) = going_on.health()
    rebuild(jobs)
    jobs.submit("mix", id="d")
    now[0] += 60
    going_on.run_once()
    (well,) = going_on.health()
    project(jobs)

    assert "ahead of the log" in held_up.error
    assert ("", 2) == (well.error, well.position)
    assert ["a", "d"] == sorted(one.job_id for one in Reader(jobs.blobs).page("", 1, 10).items)


def test_folder_trusts_no_job_of_another_history(jobs: Jobs, copy: Copy) -> None:
    """A job that was folded from events that are lost is folded anew, however short its new history is."""
    folder = Folder(jobs.log)
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.fail("a", "broken")
    jobs.retry("a")
    folder.go_on("a", jobs.log.read_raw("a"))
    put_back()
    jobs.skip("a")

    assert "skipped" == folder.go_on("a", jobs.log.read_raw("a")[1:]).job.state


def test_list_shows_no_lost_jobs(jobs: Jobs, copy: Copy, path: Path, jobevents: CommandLine) -> None:
    """The command line does not list from an index that is ahead of the log, and says why where it has nothing else."""
    jobs.submit("mix", id="a")
    put_back = copy()
    jobs.submit("mix", id="b")
    project(jobs)
    put_back()
    url = f"sqlite:///{path}"

    listed, after = jobevents("list", "--url", url), jobevents("list", "--url", url, "--after", "")

    assert ["a"] == [one["job_id"] for one in listed.json["items"]]
    assert 1 == after.code
    assert "rebuild" in after.err
