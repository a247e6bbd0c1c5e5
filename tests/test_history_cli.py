"""The commands that read history, as an operator types them: at a terminal of 80 columns, and in a pipe."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from jobevents import connect
from jobevents.events import CancelRequested, JobCanceled, JobFailed, JobSkipped, JobStarted
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.jobstates import LIVES, bring, tell

URL = "sqlite:///jobs.db?synchronous=normal"
VIEW = """
class Durations:
    def __init__(self):
        self.seen = 0

    def apply(self, event):
        if event.type == "JobFailed":
            raise ValueError("no failures, please")
        self.seen += 1

    def result(self):
        return {"seen": self.seen}


kept = []


def keep(event):
    kept.append(event)


number = 7
"""


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong here stays wrong: nothing is on its way."""
    monkeypatch.setattr("projections.secondlook.PATIENCE_S", 0.0)


@pytest.fixture
def job_id(jobevents: CommandLine) -> str:
    """A job that was started, asked to stop, and stopped, in a log with one of every life."""
    with connect(URL, actor="ana") as jobs:
        for life in LIVES:
            bring(jobs, life)
        made = jobs.submit("render", reason="nightly")
        tell(jobs, made, partial(JobStarted, attempt=1, worker="w1"), CancelRequested)
        tell(jobs, made, partial(JobCanceled, start=2))
    return made


def test_why_is_read_at_a_glance(jobevents: CommandLine, job_id: str) -> None:
    """At a terminal: the job and its state, the reason in a sentence, then event by event, within 80 columns."""
    told = jobevents("why", job_id, at_terminal=True)

    lines = told.out.splitlines()
    assert (0, f"{job_id}  canceled") == (told.code, lines[0])
    assert lines[1].startswith("It was canceled at ")
    assert "#1" in told.out
    assert "ana queued render: nightly." in told.out
    assert "the cancel won." in told.out
    assert max(map(len, lines[1:-1])) <= 80


def test_why_in_a_pipe_is_the_sentences(jobevents: CommandLine, job_id: str) -> None:
    """For programs: each sentence with what it is about, its event and the state after it."""
    told = jobevents("why", job_id).json

    assert ["state", "wanted", "started", "cancel", "ended", "sum"] == [one["kind"] for one in told]
    assert ["canceled", "queued", "running", "running", "canceled", "canceled"] == [one["state"] for one in told]


def test_why_it_was_so_then(jobevents: CommandLine, job_id: str) -> None:
    """As of an event, only what was known then is told."""
    told = jobevents("why", job_id, "--as-of", "#2").json

    assert ["state", "wanted", "started"] == [one["kind"] for one in told if one["kind"] != "sum"]
    assert "running" == told[0]["state"]


def test_why_escapes_what_others_wrote(jobevents: CommandLine) -> None:
    """A text of a worker moves no cursor and is no markup of ours."""
    with connect(URL) as jobs:
        made = jobs.submit("render")
        tell(jobs, made, partial(JobStarted, attempt=1))
        tell(jobs, made, partial(JobFailed, start=2, error="\x1b[2J[red]gone[/red]"))

    told = jobevents("why", made, at_terminal=True)

    assert "\x1b" not in told.out
    assert "[red]gone[/red]" in told.out


def test_show_as_of(jobevents: CommandLine, job_id: str) -> None:
    """A job as it was after an event, at a place in the log or at an instant; each says after which event that is."""
    assert "running" == jobevents("show", job_id, "--as-of", "#3").json["state"]
    told = jobevents("show", job_id, "--as-of", "#2", at_terminal=True)
    assert "as of #2: after event 2 of 4" in told.out
    last = jobevents("events", job_id).json[-1]["at"]
    assert "canceled" == jobevents("show", job_id, "--as-of", last).json["state"]
    assert (1, True) == ((bad := jobevents("show", job_id, "--as-of", "-1h")).code, "no such job then" in bad.err)
    assert 2 == jobevents("show", job_id, "--as-of", "yesterday").code


def test_list_as_of(jobevents: CommandLine, job_id: str) -> None:
    """The list of another moment: jobs of then in their states of then, counted, and said to be of then."""
    now = jobevents("list", "--as-of", "2100-01-01T00:00Z").json
    assert jobevents("list").json["total"] == now["total"] == len(LIVES)

    assert 1 == jobevents("list", "--as-of", "@1").json["total"]
    assert ["running"] == [
        one["state"] for one in jobevents("list", "--as-of", "@3", "--state", "running").json["items"]
    ]
    told = jobevents("list", "--as-of", "@3", at_terminal=True)
    assert "of 2 jobs as of @3" in told.out
    assert "no such jobs as of -1d" in jobevents("list", "--as-of", "-1d", at_terminal=True).out
    assert 2 == jobevents("list", "--as-of", "#3").code
    assert 2 == jobevents("list", "--as-of", "@3", "--after", "").code


def test_a_replay_in_a_pipe_is_the_logs_own_bytes(jobevents: CommandLine, job_id: str) -> None:
    """A line an event, byte for byte as it is stored."""
    with connect(URL) as jobs:
        stored = [record.data.decode() for record in jobs.log.scan()]

    assert stored == jobevents("replay").out.splitlines()
    assert stored[2:5] == jobevents("replay", "--since", "@2", "--until", "@5").out.splitlines()
    one = jobevents("replay", "--job", job_id, "--type", "JobCanceled").out.splitlines()
    assert [job_id] == [msgspec.json.decode(line)["job_id"] for line in one]
    assert "JobCanceled" in jobevents("replay", "--job", job_id, at_terminal=True).out


def test_history_into_a_view_of_ones_own(jobevents: CommandLine, job_id: str, tmp_path: Path) -> None:
    """A class is made, an object or a function taken; what it raises at ends it, or is named and passed over."""
    (tmp_path / "own_views.py").write_text(VIEW)

    stopped = jobevents("replay", "--view", "own_views:Durations")
    assert 1 == stopped.code
    assert "type=JobFailed error=ValueError: no failures, please" in stopped.err

    went_on = jobevents("replay", "--view", "own_views:Durations", "--go-on")
    assert 1 == went_on.code
    assert "passed over: " in went_on.err
    with connect(URL) as jobs:
        total = int(jobs.log.last_cursor())
    assert {"events": total - 2, "troubles": 2, "result": {"seen": total - 2}} == went_on.json

    kept = jobevents("replay", "--view", "own_views:keep", "--type", JobSkipped.__name__, at_terminal=True)
    assert (0, True) == (kept.code, kept.out.startswith("1 event into own_views:keep"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:x", "no such module"),
        ("own_views:Nope", "no such view"),
        ("own_views:number", "takes no events"),
    ],
)
def test_a_view_that_is_none(jobevents: CommandLine, tmp_path: Path, job_id: str, name: str, says: str) -> None:
    (tmp_path / "own_views.py").write_text(VIEW)

    told = jobevents("replay", "--view", name)

    assert (2, True) == (told.code, says in told.err)


def test_verify_at_a_terminal(jobevents: CommandLine, job_id: str) -> None:
    """What is right is one line each, with counts; nothing is wider than 80 columns."""
    jobevents("project", "--once")

    told = jobevents("verify", at_terminal=True)

    assert 0 == told.code
    assert max(map(len, told.out.splitlines())) <= 80
    assert [["ok", "log"], ["ok", "rows"], ["ok", "status"], ["ok", "index"]] == [
        line.split()[:2] for line in told.out.splitlines() if line.startswith("ok")
    ]
    assert jobevents("verify").json["root"] == told.out.split()[-1]


def test_verify_says_what_is_wrong_and_what_to_do(jobevents: CommandLine, job_id: str) -> None:
    """Exit 1, the job, the event, and what to do, of the views and of the log itself."""
    jobevents("project", "--once")
    Path("jobs-blobs", "jobs", job_id, "status.json").unlink()
    told = jobevents("verify", at_terminal=True)
    assert 1 == told.code
    assert f"status: absent  {job_id}" in told.out
    assert "it has no status; the log says canceled (#4)" in told.out
    assert "jobevents verify --repair-views" in told.out

    with closing(sqlite3.connect("jobs.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM job_events WHERE originator_id = ? AND originator_version = 2", (job_id,))
    told = jobevents("verify", at_terminal=True)
    assert 1 == told.code
    assert "#2 is missing; the history goes on to #4" in told.out
    assert "restore from a backup" in told.out
    assert "root" not in told.out
    report = jobevents("verify", "--jobs", job_id).json
    assert (False, ["missing"]) == (report["right"], [flaw["kind"] for flaw in report["flaws"]])


def test_an_erased_job_is_on_its_way_out_of_the_index(jobevents: CommandLine, job_id: str) -> None:
    """Until the index is projected it has the job in the state of then, which nobody knows any more; that is no fault."""
    assert 0 == jobevents("project", "--once").code
    assert 0 == jobevents("erase", job_id, "--yes").code

    before = jobevents("verify")
    jobevents("project", "--once")
    after = jobevents("verify")

    assert [(0, True), (0, True)] == [(one.code, one.json["right"]) for one in (before, after)]
    entries = [one["looked_at"] for told in (before, after) for one in told.json["checks"] if one["name"] == "index"]
    assert 1 == entries[0] - entries[1]


def test_a_root_is_kept_and_found_again(jobevents: CommandLine, job_id: str) -> None:
    """A file that says what the log held; nothing is kept of a log that is not right."""
    assert 0 == jobevents("verify", "--write-root", "root.json").code
    kept = Path("root.json").read_bytes()
    with connect(URL) as jobs:
        jobs.submit("render")
    assert 0 == jobevents("verify", "--root", "root.json").code

    with closing(sqlite3.connect("jobs.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM job_events WHERE originator_id = ? AND originator_version = 4", (job_id,))
        connection.execute("DELETE FROM job_runs WHERE id = ?", (job_id,))
    told = jobevents("verify", "--root", "root.json", "--write-root", "root.json", at_terminal=True)
    assert (1, True) == (told.code, "root: differs" in told.out)
    assert kept == Path("root.json").read_bytes()
    assert 2 == jobevents("verify", "--root", "none.json").code
    assert 2 == jobevents("verify", "--root", "root.json", "--sample", "2").code
    assert 3 == jobevents("verify", "--sample", "3").json["jobs"]


@pytest.mark.slow
def test_a_build_beside_is_compared_and_promoted(jobevents: CommandLine, job_id: str) -> None:
    """Made, compared, swapped in and taken back by what each command says to type next."""
    jobevents("project", "--once")
    status = Path("jobs-blobs", "jobs", job_id, "status.json")
    right = status.read_bytes()
    assert 1 == jobevents("diff", "live", "new").code

    build = jobevents("rebuild", "--beside").json["build"]
    assert 0 == jobevents("diff", "live", "new").code
    status.write_bytes(right.replace(b'"canceled"', b'"failed"'))
    told = jobevents("diff", "live", "new", at_terminal=True)
    assert 1 == told.code
    assert "as the log says: new" in told.out
    assert "state  failed → canceled   since #4 JobCanceled" in told.out
    assert f"{len(LIVES)} statuses compared: 1 differ" in told.out
    lines = [msgspec.json.decode(line) for line in jobevents("diff", "live", build).out.splitlines()]
    assert [job_id, 1] == [lines[0]["job_id"], lines[-1]["differences"]]

    assert 1 == jobevents("rebuild", "--promote", build).json["replaced"]
    assert right == status.read_bytes()
    assert 0 == jobevents("rebuild", "--roll-back", build).code
    assert right != status.read_bytes()
    assert "--promote" in jobevents("rebuild", "--beside", at_terminal=True).out
    assert 0 == jobevents("rebuild", "--drop", list_builds()).code
    assert 2 == jobevents("rebuild", "--beside", "--promote", build).code


def list_builds() -> str:
    return next(path.parent.name for path in Path("jobs-blobs", "rebuild").glob("*/BUILD.json"))


def test_views_are_repaired_where_they_differ(jobevents: CommandLine, job_id: str) -> None:
    """Exit 1, since something was wrong; the next verification finds all right."""
    jobevents("project", "--once")
    Path("jobs-blobs", "jobs", job_id, "status.json").unlink()
    assert "jobevents verify --repair-views" in jobevents("verify", at_terminal=True).out

    told = jobevents("verify", "--repair-views", at_terminal=True)

    assert (1, True) == (told.code, "1 status made anew" in told.out)
    assert "jobevents rebuild --roll-back" in told.out
    assert jobevents("verify").json["right"]


def test_two_jobs_side_by_side(jobevents: CommandLine, job_id: str) -> None:
    """Where they part, and what differs now; exit 0 only when nothing does."""
    with connect(URL) as jobs:
        other = bring(jobs, "succeeded")

    told = jobevents("diff", job_id, other, at_terminal=True)

    assert 1 == told.code
    assert "the same in 2 steps, then" in told.out
    assert "A #3" in told.out
    assert "B #3" in told.out
    assert {"state"} <= {field["name"] for field in jobevents("diff", job_id, other).json["fields"]}
    assert 0 == jobevents("diff", job_id, job_id, at_terminal=True).code
    assert (2, 2) == (jobevents("diff", job_id, "live").code, jobevents("diff", "new", job_id).code)
    assert 1 == jobevents("diff", job_id, "no-such-job").code


def test_verify_over_a_log_of_objects(jobevents: CommandLine, tmp_path: Path) -> None:
    """Its projector says through which time it is complete: what came since is on its way, what was before must be there."""
    url = f"file://{tmp_path}/log"
    with connect(url, actor="ana", clock=lambda: datetime.now(UTC) - timedelta(hours=1)) as jobs:
        old = bring(jobs, "failed")
    assert 0 == jobevents("project", "--once", "--url", url).code
    with connect(url, actor="ana") as jobs:
        jobs.submit("render")

    told = jobevents("verify", "--url", url, at_terminal=True)
    assert 0 == told.code
    assert "1 on their way" in told.out

    (tmp_path / "log" / "jobs" / old / "status.json").unlink()
    report = jobevents("verify", "--url", url).json
    assert [("status", "absent", old)] == [(one["check"], one["kind"], one["job_id"]) for one in report["flaws"]]


def test_statuses_of_a_log_of_objects_are_repaired(jobevents: CommandLine, tmp_path: Path) -> None:
    """One by one, as they are of any log."""
    url = f"file://{tmp_path}/log"
    with connect(url, actor="ana", clock=lambda: datetime.now(UTC) - timedelta(hours=1)) as jobs:
        made = [bring(jobs, life) for life in ("failed", "succeeded", "queued")]
    assert 0 == jobevents("project", "--once", "--url", url).code
    failed, succeeded, _ = (tmp_path / "log" / "jobs" / job_id / "status.json" for job_id in made)
    right = succeeded.read_bytes()
    failed.unlink()
    succeeded.write_bytes(right.replace(b'"succeeded"', b'"running"'))

    assert 2 == jobevents("verify", "--repair-views", "--url", url).json["repaired"]["replaced"]

    assert jobevents("verify", "--url", url).json["right"]
    assert right == succeeded.read_bytes()


@pytest.mark.parametrize("damage", ["manifest", "chunk"])
def test_an_index_that_cannot_be_read_is_told_and_mended(jobevents: CommandLine, job_id: str, damage: str) -> None:
    """The log is proved all the same, jobs are listed from the table, and the index is made anew by what the report advises."""
    jobevents("project", "--once")
    index = Path("jobs-blobs", "index", "v1")
    if damage == "manifest":
        (index / "MANIFEST.json").write_bytes(b"garbage")
    else:
        for chunk in (index / "chunk").iterdir():
            chunk.unlink()

    listed, told = jobevents("list"), jobevents("verify", at_terminal=True)
    mended = jobevents("verify", "--repair-views")
    again, after = jobevents("verify"), jobevents("list")

    assert 0 == listed.code
    assert "listed from the table of jobs" in listed.err
    assert "jobevents rebuild --view index" in listed.err
    assert after.json["items"] == listed.json["items"]
    assert 1 == told.code
    assert "index: unreadable" in told.out
    assert re.search(r"ok +log", told.out)
    assert "jobevents verify --repair-views" in told.out
    assert [(1, ""), (0, "")] == [(one.code, one.err) for one in (mended, again)]


def test_what_cannot_be_repaired_is_reported_all_the_same(jobevents: CommandLine, job_id: str) -> None:
    """A log with a hole is evidence: its views are left as they are, and what is wrong is shown."""
    jobevents("project", "--once")
    with closing(sqlite3.connect("jobs.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM job_events WHERE originator_id = ? AND originator_version = 2", (job_id,))

    told = jobevents("verify", "--repair-views", at_terminal=True)

    assert 1 == told.code
    assert "#2 is missing" in told.out
    assert "nothing was repaired: no view can be mended" in told.err


def test_a_record_of_another_service_is_told_as_such(jobevents: CommandLine, job_id: str) -> None:
    """It is not for us to replace it in silence: the projector takes it in."""
    jobevents("project", "--once")
    theirs = b'{"job_id":"%s","state":"failed","attempts":1,"updated_at":"2026-07-26T12:00:31.5Z"}' % job_id.encode()
    Path("jobs-blobs", "jobs", job_id, "status.json").write_bytes(theirs)

    told = jobevents("verify", at_terminal=True)

    assert (1, True) == (told.code, f"status: foreign  {job_id}" in told.out)
    assert "jobevents project --once" in told.out
    assert "--repair-views" not in told.out
