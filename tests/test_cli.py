"""The command line: tables for people, JSON for programs, exit codes, and errors that say what to do."""

import io
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import httpx
import msgspec
import pytest
from eventsourcing.persistence import StoredEvent

from jobevents import cli, connect
from jobevents.doctor import examine
from jobevents.status import Status
from jobevents.store import RunFilter
from tests.cli import COMMAND, READING, WRITING, CommandLine, commands, start
from tests.cli import jobevents as jobevents  # a fixture
from tests.projecting import UNKNOWN

URL = "sqlite:///jobs.db?synchronous=normal"
BIG = 2**53 + 1
NASTY = "[red]x[/red] [/] \\[bold]y \x1b]0;title\x07\x1b[2J line\r\nfake \u2028 \u202e \x9b31m"

OF_ONE_JOB = (
    "show",
    "events",
    "logs",
    "cancel",
    "retry",
    "rerun",
    "delete",
    "parked show",
    "parked discard",
    "parked requeue",
)


@pytest.fixture
def jobs(jobevents: CommandLine) -> None:
    """Three jobs in the file of JOBEVENTS_URL, all projected: queued, failed, succeeded."""
    with connect(URL, actor="ana") as opened:
        for n in (1, 2, 3):
            opened.submit("render", {"song": n}, id=f"song-{n}", title=f"Song {n}", reason="first listen")
        with pytest.raises(OSError, match="disk"), opened.attempt("song-2"):
            raise OSError("disk full")
        with opened.attempt("song-3") as attempt:
            attempt.log("mixing")
            attempt.result({"seconds": 181})
    assert 0 == jobevents("project", "--once").code


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("args", READING + WRITING, ids=" ".join)
def test_a_pipe_gets_one_json_document(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """Every command answers a program in JSON, and says nothing beside it."""
    told = jobevents(*args)

    assert (0, "") == (told.code, told.err)
    assert isinstance(told.json, dict | list)
    assert 1 == told.out.count("\n")


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("args", READING + WRITING, ids=" ".join)
def test_a_terminal_gets_text(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """Every command answers a person in text."""
    told = jobevents(*args, at_terminal=True)

    assert (0, "") == (told.code, told.err)
    assert told.out.strip()
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(told.out)


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("args", READING + WRITING, ids=" ".join)
def test_a_terminal_gets_json_where_that_is_asked_for(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """--json is what a pipe gets."""
    told = jobevents(*args, "--json", at_terminal=True)

    assert isinstance(told.json, dict | list)


@pytest.mark.usefixtures("jobs")
def test_a_table_fits_its_terminal(jobevents: CommandLine) -> None:
    """Rows are cut at the right edge, ids are not cut, and nothing is padded."""
    told = jobevents("list", at_terminal=True)

    lines = told.out.splitlines()
    assert ["song-1", "song-2", "song-3"] == sorted(line.split()[0] for line in lines[1:4])
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines[:4])


@pytest.mark.usefixtures("jobs")
def test_a_history_says_who_and_why(jobevents: CommandLine) -> None:
    """Actor and reason stand in the table of events."""
    told = jobevents("events", "song-1", at_terminal=True)

    assert re.search(r"^1 .* JobQueued +ana +first listen ", told.out, re.MULTILINE)


def test_version_is_that_of_the_package(jobevents: CommandLine) -> None:
    """What a report of a fault begins with."""
    told = jobevents("--version")

    assert (0, f"jobevents {version('jobevents')}\n") == (told.code, told.out)


def test_submit_answers_with_the_id_everywhere(jobevents: CommandLine) -> None:
    """A script reads the id from the same JSON that a person sees."""
    told = jobevents("submit", "--create", "render", '{"song": 7}', "--id", "song-7", at_terminal=True)

    assert {"job_id": "song-7", "created": True} == told.json
    assert {"job_id": "song-7", "created": False} == jobevents("submit", "render", '{"song": 7}', "--id", "song-7").json


WRONG = {
    ("nonsense",): (2, "No such command"),
    ("list", "--page", "x"): (2, "--page"),
    ("list", "--state", "bogus"): (2, "use one of queued, running"),
    ("list", "--after", "nonsense"): (2, "not a cursor"),
    ("list", "--after", "", "--page", "2"): (2, "--after goes with --state alone"),
    ("list", "--url", "nonsense://x"): (2, "use one of memory://, sqlite:///"),
    ("list", "--url", "/data/jobs.db"): (2, "use one of memory://, sqlite:///"),
    ("list", "--url", "sqlite:///.."): (2, "name a file in it"),
    ("show", "nobody"): (1, "no such job"),
    ("cancel", "nobody"): (1, "no such job"),
    ("retry", "song-3"): (
        1,
        "only a failed job is tried again, and this one is succeeded: to run it once more, rerun it",
    ),
    ("rerun", "song-1"): (1, "only a job that has ended is run again, and this one is queued"),
    ("rerun", "song-1", "--as-new"): (1, "only a finished job"),
    ("rerun", "song-3", "--as-new", "--params", "{song: 7}"): (2, "quote them"),
    ("rerun", "song-3", "--params", "{}"): (2, "run it as a new job to give it others"),
    ("rerun", "song-3", "--at", "2026-08-01T12:00:00"): (2, "has no time zone"),
    ("retry", "song-1", "--at", "tomorrow"): (2, "no ISO 8601 time"),
    ("retry", "song-1", "--at", "2026-08-01T12:00:00Z", "--delay", "5"): (2, "give at or delay, not both"),
    ("submit", "render", "{song: 7}"): (2, "quote them"),
    ("submit", "render", "--at", "2026-08-01T12:00:00"): (2, "has no time zone"),
    ("submit", "render", "--at", "tomorrow"): (2, "no ISO 8601 time"),
    ("submit", "render", '{"song": 8}', "--id", "song-1"): (1, "use a fresh id"),
    ("submit", ""): (2, "name is required"),
    ("parked", "show", "song-1"): (1, "see jobevents parked list"),
    ("parked", "requeue"): (2, "give a job id, or --all"),
    ("project", "--once", "--view", "bogus"): (2, "use one of status, index"),
    ("rebuild", "--view", "bogus"): (2, "use one of status, index"),
    ("rebuild", "--roll-back", "20260801-120000-000000"): (1, "no build to roll back"),
    ("rebuild", "--roll-back", ""): (2, "not the name of a build"),
    ("import", "nowhere"): (2, "no such directory"),
    ("import", "gs://bucket"): (2, "name the directory"),
    ("import", "nonsense://x/jobs"): (2, "use one of memory://"),
    ("demo", "nowhere"): (2, "give a directory with files"),
    ("demo", ".", "--dir", "jobs.db/below"): (1, "jobs.db"),
    ("migrate", "--url", "memory://"): (2, "has no tables"),
    ("submit", "render", "--url", "sqlite:////dev/null/jobs.db"): (2, "/dev/null"),
}


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_an_error_says_what_to_do(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """On standard error alone, without a traceback; 2 for a wrong use, 1 for what failed."""
    code, hint = WRONG[args]

    told = jobevents(*args)

    assert (code, "") == (told.code, told.out)
    assert hint in re.sub(r"[│╭╮╰╯─\s]+", " ", told.err)
    assert "Traceback" not in told.err


@pytest.mark.usefixtures("jobs")
def test_a_cancel_that_comes_too_late_is_an_exit_1(jobevents: CommandLine) -> None:
    """The answer is on standard output all the same."""
    told = jobevents("cancel", "song-3")

    assert (1, {"job_id": "song-3", "outcome": "already final"}) == (told.code, told.json)


def test_the_url_comes_from_the_environment(jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBEVENTS_URL is what --url is without; without both, the error names both."""
    jobevents("submit", "--create", "render", "--id", "song-1")

    there = jobevents("show", "song-1")
    elsewhere = jobevents("show", "song-1", "--url", "sqlite:///other.db")
    monkeypatch.delenv("JOBEVENTS_URL")
    nowhere = jobevents("show", "song-1")

    assert [0, 2, 2] == [there.code, elsewhere.code, nowhere.code]
    assert "--url" in nowhere.err
    assert "JOBEVENTS_URL" in nowhere.err


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    "job_id",
    ["a/b", "a\\b", "a+b", "a%b", "a?b", "a#b", "a&b", "a b", "a:b", "a;b", "a'b", 'a"b', "..", "%2e%2e", "a\nb", "ü"],
)
def test_dat_11_an_id_is_refused_with_one_error_everywhere(jobevents: CommandLine, job_id: str) -> None:
    """Every command that takes an id, and `submit --id`, refuses a special one alike, before any I/O."""
    calls = [(*command.split(), job_id) for command in OF_ONE_JOB] + [("submit", "render", "--id", job_id)]

    told = [jobevents(*call) for call in calls]

    assert {2} == {one.code for one in told}
    assert 1 == len({one.err for one in told})
    assert "give 1 to 128 of A-Z a-z 0-9 - _" in told[0].err


@pytest.mark.parametrize(
    "args",
    [("list",), ("list", "--job", "[b]x"), ("show", "song-1"), ("events", "song-1"), ("logs", "song-1")],
    ids=" ".join,
)
def test_sec_12_text_drives_no_terminal(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """Markup is shown as it is, and no control character or change of direction reaches the screen."""
    with connect(URL) as jobs:
        jobs.submit("[b]x", NASTY, id="song-1", title=NASTY, actor=NASTY, reason=NASTY)
        attempt = jobs.attempt("song-1", worker="[u]w")
        with suppress(ValueError), attempt:
            attempt.annotate(note=NASTY)
            attempt.log(NASTY)
            raise ValueError(NASTY)

    told = jobevents(*args, at_terminal=True)

    assert 0 == told.code
    assert "[red]x[/red] [/] \\[bold]y" in told.out or "[b]x" in told.out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", told.out)


def test_sec_12_a_record_of_another_service_drives_no_terminal(jobevents: CommandLine, tmp_path: Path) -> None:
    """Nor does what was imported: states are open text, and records hold what they like."""
    record = {"state": NASTY, "title": NASTY, "command": NASTY, "error": NASTY, NASTY: NASTY, "nested\x1b[2J": {}}
    (tmp_path / "jobs" / "old-1").mkdir(parents=True)
    (tmp_path / "jobs" / "old-1" / "status.json").write_bytes(msgspec.json.encode(record))

    told = [
        jobevents(*args, at_terminal=True)
        for args in (("import", "--create", "jobs"), *READING[:1], ("show", "old-1"), ("events", "old-1"))
    ]

    assert [0] * 4 == [one.code for one in told]
    for one in told:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", one.out + one.err)


def test_sec_12_an_error_drives_no_terminal(jobevents: CommandLine) -> None:
    """What an error repeats is shown as text."""
    told = jobevents("list", "--state", NASTY)

    assert 2 == told.code
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", told.err)
    assert "[red]x[/red] [/]" in told.err


def test_integers_beyond_2_53_are_exact(jobevents: CommandLine) -> None:
    """They go in and come out as the same JSON number, and are shown in full."""
    jobevents("submit", "--create", "render", f'{{"n": {BIG}}}', "--id", "song-1")

    assert BIG == jobevents("show", "song-1").json["params"]["n"]
    assert BIG == jobevents("events", "song-1").json[0]["params"]["n"]
    assert str(BIG) in jobevents("show", "song-1", at_terminal=True).out


@pytest.mark.parametrize(
    ("zone", "local"), [("Asia/Tokyo", "2026-08-01 21:30:00+0900"), ("America/St_Johns", "2026-08-01 10:00:00-0230")]
)
def test_tim_01_people_see_their_time_and_programs_utc(
    jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch, zone: str, local: str
) -> None:
    """The same instant in any spelling is one instant, in any zone of the process."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for number, at in enumerate(["2026-08-01T12:30:00Z", "2026-08-01T21:30:00+09:00", "2026-08-01T10:00:00-02:30"]):
            jobevents("submit", "--create", "render", "--id", f"song-{number}", "--at", at)

        shown = [jobevents("show", f"song-{number}", at_terminal=True).out for number in range(3)]
        told = [jobevents("show", f"song-{number}").json["scheduled_at"] for number in range(3)]
    finally:
        monkeypatch.undo()
        time.tzset()

    assert ["2026-08-01T12:30:00Z"] * 3 == told
    assert all(local in one for one in shown)


def test_the_end_of_the_calendar_is_shown(jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time that has no local name is shown in UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        jobevents("submit", "--create", "render", "--id", "song-1", "--at", "9999-12-31T23:59:59Z")
        told = jobevents("show", "song-1", at_terminal=True)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert 0 == told.code
    assert "9999-12-31T23:59:59" in told.out


@pytest.mark.usefixtures("jobs")
def test_a_job_is_listed_at_once(jobevents: CommandLine) -> None:
    """The index is a moment behind; what was just submitted is in the list all the same."""
    jobevents("submit", "--create", "render", "--id", "song-9")

    told = jobevents("list", "--state", "queued").json

    assert {"song-1", "song-9"} == {one["job_id"] for one in told["items"]}


@pytest.mark.usefixtures("jobs")
def test_table_and_index_give_the_same_page(jobevents: CommandLine) -> None:
    """Before and after the projector has come by, page by page."""

    def pages() -> list[object]:
        return [
            jobevents("list", "--state", state, "--per-page", "2", "--page", page).json
            for state in ("", "queued")
            for page in ("1", "2", "9")
        ]

    for n in range(4, 9):
        jobevents("submit", "--create", "render", "--id", f"song-{n}")
    before = pages()
    jobevents("project", "--once")

    assert before == pages()


@pytest.mark.usefixtures("jobs")
def test_cursors_show_every_job_once(jobevents: CommandLine) -> None:
    """Following the cursors to the end gives all jobs, each once."""
    seen, cursor = [], ""
    while True:
        told = jobevents("list", "--after", cursor, "--per-page", "2").json
        seen += [one["job_id"] for one in told["items"]]
        cursor = told["cursor"]
        if not cursor:
            break

    assert ["song-3", "song-2", "song-1"] == seen


def test_a_jobs_lines_are_shown_in_order(jobevents: CommandLine) -> None:
    """All of them, or a part."""
    with connect(URL) as jobs:
        jobs.submit("render", id="song-1")
        with jobs.attempt("song-1") as attempt:
            for n in range(5):
                attempt.log(f"line {n}")

    told = jobevents("logs", "song-1")
    after = told.json[1]["seq"]
    part = jobevents("logs", "song-1", "--after-seq", str(after), "--limit", "2")

    assert [f"line {n}" for n in range(5)] == [line["message"] for line in told.json]
    assert ["line 2", "line 3"] == [line["message"] for line in part.json]


@pytest.mark.parametrize("name", commands())
def test_every_option_is_explained(jobevents: CommandLine, name: str) -> None:
    """--help says what a command does and what each of its options and arguments is for."""
    told = jobevents(*name.split(), "--help", at_terminal=True)

    assert 0 == told.code
    assert (commands()[name].help or "").strip()
    assert [] == [param.name for param in commands()[name].params if not getattr(param, "help", "")]


@pytest.mark.usefixtures("jobs")
def test_doctor_is_content(jobevents: CommandLine) -> None:
    """Where all is well every finding is ok."""
    told = jobevents("doctor")

    assert 0 == told.code
    assert {"versions", "log readable", "rows are folds", "blobs writable", "view status", "view index"} <= {
        one["check"] for one in told.json if one["ok"]
    }


def findings(jobevents: CommandLine) -> tuple[int, dict[str, str]]:
    """Exit code of doctor, and what it found to be bad."""
    told = jobevents("doctor")
    return told.code, {one["check"]: one["found"] for one in told.json if not one["ok"]}


@pytest.mark.usefixtures("jobs")
def test_doctor_finds_a_row_that_is_not_the_fold(jobevents: CommandLine) -> None:
    """A row changed by hand is named."""
    with closing(sqlite3.connect("jobs.db")) as connection, connection:
        connection.execute("UPDATE job_runs SET status = 'succeeded' WHERE id = 'song-2'")
    connection.close()

    code, found = findings(jobevents)

    assert 1 == code
    assert "song-2" in found["rows are folds"]


def test_doctor_finds_an_old_row_that_is_not_the_fold(jobevents: CommandLine) -> None:
    """An unfinished job is looked at behind any number of newer ones, and it says of how many it looked at how many."""
    with connect(URL) as jobs:
        old = jobs.submit("render", id="render-20200101-000000-0123456789ab")
        for _ in range(100):
            jobs.skip(jobs.submit("render"))
    with connect(URL) as jobs:
        findings = {one.check: one.found for one in examine(jobs)}
        jobs.log.recorder.file.query("UPDATE job_runs SET status = 'running'  WHERE id = ?", (old,))  # type: ignore[attr-defined]
        bad = {one.check: one.found for one in examine(jobs) if not one.ok}

    looked = re.match(
        r"(\d+) of 101 jobs looked at: the newest, unfinished ones, others by chance", findings["rows are folds"]
    )
    assert looked is not None
    assert 21 <= int(looked[1]) <= 41  # chance may take those that are looked at anyhow
    assert {"rows are folds"} == set(bad)
    assert old in bad["rows are folds"]


@pytest.mark.usefixtures("jobs")
def test_doctor_finds_a_projector_that_lags(jobevents: CommandLine) -> None:
    """Events that wait for a projector that has not been seen for long are named, with what to run."""
    name = next(Path("jobs-blobs/ctl/v1/projector").glob("status.json"))
    health = msgspec.json.decode(name.read_bytes())
    name.write_bytes(msgspec.json.encode({**health, "heartbeat": datetime(2020, 1, 1, tzinfo=UTC)}))
    jobevents("submit", "--create", "render")

    code, found = findings(jobevents)

    assert 1 == code
    assert "run jobevents project" in found["view status"]


@pytest.mark.usefixtures("jobs")
def test_doctor_finds_parked_jobs(jobevents: CommandLine) -> None:
    """A job that a view could not take is counted, with what to look at."""
    poison("song-1")
    jobevents("project", "--once")

    code, found = findings(jobevents)

    assert 1 == code
    assert "see jobevents parked list --view status" in found["view status"]


def poison(job_id: str) -> None:
    """Put an event into the log that nobody can fold."""
    with connect(URL) as jobs:
        version = len(jobs.log.read_raw(job_id)) + 1
        jobs.log.recorder.insert_events([StoredEvent(job_id, version, "JobPaused", UNKNOWN)])


@pytest.mark.usefixtures("jobs")
def test_a_rebuild_reports_what_it_could_not_fold(jobevents: CommandLine) -> None:
    """Exit 1, the job's id, and what to do to see why."""
    poison("song-1")

    told = jobevents("rebuild", at_terminal=True)

    assert 1 == told.code
    assert "1 job could not be folded, left as they are: song-1" in told.out
    assert "jobevents parked list" in told.out


@pytest.mark.usefixtures("jobs")
def test_a_rebuild_says_how_to_take_it_back(jobevents: CommandLine) -> None:
    """What it prints at the end can be typed."""
    Path("jobs-blobs/jobs/song-1/status.json").write_bytes(b"{")
    told = jobevents("rebuild", at_terminal=True)
    last = told.out.splitlines()[-1]

    back = jobevents(*last.split("jobevents ")[1].split())

    assert "3 statuses: 2 as the log says already, 1 replaced" in told.out
    assert (0, ["build", "restored"]) == (back.code, sorted(back.json))


def test_the_printed_ddl_makes_a_file_that_connect_opens(jobevents: CommandLine, tmp_path: Path) -> None:
    """Teams that own their tables run it themselves; nothing is left to migrate then."""
    ddl = jobevents("migrate", "--print").out
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.executescript(ddl)
    connection.close()

    with connect(URL, create=False) as jobs:
        job_id = jobs.submit("render")
        assert isinstance(jobs.get(job_id), Status)
    assert "nothing to do" in jobevents("migrate").err


def test_migrate_makes_a_file_once(jobevents: CommandLine) -> None:
    """It may be repeated: the second time there is nothing to do."""
    first, second = jobevents("migrate"), jobevents("migrate")

    assert [0, 0] == [first.code, second.code]
    assert "the log is new, and ready; applied schema steps 1, 2" in first.err
    assert "nothing to do" in second.err
    assert 0 == jobevents("list").code


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with a space, with files, and with what can be no file of the demo."""
    place = tmp_path / "my files"
    (place / "below").mkdir(parents=True)
    (place / "a.txt").write_text("one\ntwo\n")
    (place / "below" / "[b] ü.txt").write_text("three\n")
    os.mkfifo(place / "fifo")
    (place / "dangling").symlink_to("nowhere")
    return place


def test_the_demo_works_on_real_files(jobevents: CommandLine, files: Path) -> None:
    """Paths with spaces work, pipes and dangling links are passed over, and every promise is held."""
    told = jobevents("demo", str(files), "--dir", "kept here", "--once")

    assert 0 == told.code, told.err
    assert 4 == told.json["jobs"]
    assert all(told.json["promises"].values())


def test_the_demo_says_what_to_type_next(jobevents: CommandLine, files: Path) -> None:
    """What it prints can be pasted into a shell, also where the directory has a space."""
    told = jobevents("demo", str(files), "--dir", "kept here", "--once", at_terminal=True)
    typed = [line.strip() for line in told.out.splitlines() if line.startswith(("  export", "  jobevents"))]
    script = "; ".join(["set -e", f'jobevents() {{ {sys.executable} -m jobevents "$@"; }}', *typed])

    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)},
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert 4 == len(typed)
    assert "JobSucceeded" in done.stdout


def test_the_demo_has_a_file_that_cannot_be_read(jobevents: CommandLine, files: Path) -> None:
    """Its job fails after the second try, and every promise is held all the same."""
    unreadable = files / "a-unreadable"
    if os.geteuid():
        unreadable.write_text("x")
        unreadable.chmod(0)
    else:
        unreadable.symlink_to("/proc/self/mem")  # a regular file whose first byte root cannot read either

    told = jobevents("demo", str(files), "--once")

    assert 0 == told.code
    assert {"succeeded": 3, "failed": 1, "canceled": 1} == told.json["states"]


def test_the_demo_needs_files(jobevents: CommandLine, tmp_path: Path) -> None:
    """An empty directory is a wrong use, and leaves no database behind."""
    (tmp_path / "empty").mkdir()

    told = jobevents("demo", "empty", "--dir", "kept")

    assert 2 == told.code
    assert "give a directory with files" in told.err
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_ctrl_c_ends_the_demo(tmp_path: Path) -> None:
    """A message, exit code 130, no traceback; what ran is given back, and the log is whole."""
    files = tmp_path / "files"
    files.mkdir()
    for n in range(300):  # far more than are done until the signal comes; each costs the disk two waits to submit
        (files / f"{n}.txt").write_text(f"{n}\n" * 50)
    process = start("demo", str(files), "--dir", "kept", "--once", cwd=tmp_path)
    database = tmp_path / "kept" / "jobs.db"
    deadline = time.monotonic() + 60
    while not _has_started(database) and time.monotonic() < deadline:
        time.sleep(0.02)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (130, "") == (process.returncode, out)
    assert "error: interrupted; what was written until now is kept\n" == err
    with connect(f"sqlite:///{database}", create=False) as jobs:
        assert [] == jobs.runs.list(RunFilter(statuses=("running",))).runs


@pytest.mark.slow
def test_the_demo_goes_on_to_be_watched(tmp_path: Path, files: Path) -> None:
    """After its promises it goes on, with the dashboard, also where its port is taken; Ctrl-C is the way to end it well."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = start("demo", str(files), "--dir", "kept", "--port", port, cwd=tmp_path)
        assert process.stdout is not None
        assert process.stderr is not None
        place = process.stderr.readline().split()[-1]
        told = process.stdout.readline()
        page = httpx.get(place, trust_env=False)
        with connect(f"sqlite:///{tmp_path}/kept/jobs.db", create=False) as jobs:
            deadline = time.monotonic() + 60
            while jobs.runs.list(RunFilter(statuses=("succeeded",))).total <= 4 and time.monotonic() < deadline:
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (0, True) == (process.returncode, msgspec.json.decode(told + out)["held"])
    assert 200 == page.status_code
    assert port not in place
    assert "Ctrl-C to stop" in err
    with connect(f"sqlite:///{tmp_path}/kept/jobs.db", create=False) as jobs:
        assert [] == jobs.runs.list(RunFilter(statuses=("running",))).runs


def _has_started(database: Path) -> bool:
    if not database.exists():
        return False
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return bool(connection.execute("SELECT count(*) FROM job_runs WHERE status = 'running'").fetchone()[0])
    except sqlite3.Error:
        return False
    finally:
        connection.close()


@pytest.mark.usefixtures("jobs")
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`jobevents list | head` says nothing about the pipe."""
    process = start("list", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    err = process.stderr.read()
    process.stderr.close()

    assert "" == err
    assert process.wait(60)


@pytest.mark.parametrize("option", ["--after-seq", "--limit"])
@pytest.mark.parametrize("number", ["-1", str(2**63)])
def test_a_number_that_no_column_holds_is_a_wrong_use(jobevents: CommandLine, option: str, number: str) -> None:
    """It is told with the option's name, and the database is not asked."""
    jobevents("submit", "--create", "render", "--id", "song-7")

    told = jobevents("logs", "song-7", f"{option}={number}")

    assert 2 == told.code
    assert option in told.err


def test_a_terminal_that_knows_only_ascii_shows_the_rest_as_escapes(
    jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LANG=C, or a service's log: a title with umlauts is no reason to fail."""
    jobevents("submit", "--create", "render", "--id", "song-7", "--title", "Höhe")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)

    told = jobevents("list", at_terminal=True)

    assert 0 == told.code
    assert b"H\\xf6he" in shown.buffer.getvalue()


def test_without_standard_output_it_works_all_the_same(tmp_path: Path) -> None:
    """`>&-` in a shell, or a daemon that closed it: what was asked for is done, and nothing fails."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    line = [*COMMAND, "submit", "--create", "render", "--id", "song-7", "--url", url]

    done = subprocess.run(["/bin/sh", "-c", '"$@" >&-', "sh", *line], stderr=subprocess.PIPE, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    with connect(url) as jobs:
        assert "queued" == jobs.get("song-7").state


@pytest.mark.usefixtures("jobs")
def test_statuses_that_were_removed_are_not_said_to_be_up_to_date(jobevents: CommandLine) -> None:
    """Their position is in the database: it says that they are stored. A rebuild makes them anew."""
    shutil.rmtree("jobs-blobs")

    told = jobevents("project", "--once")

    assert 1 == told.code
    assert "jobevents rebuild" in told.err
    assert 0 == jobevents("rebuild").code
    assert 0 == jobevents("project", "--once").code
    assert "succeeded" == msgspec.json.decode(Path("jobs-blobs/jobs/song-3/status.json").read_bytes())["state"]
