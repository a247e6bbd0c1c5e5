"""Captures: the jobs of a window in one file, opened read-only, redacted, kept as a test; and a worked incident."""

import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents import connect, incident
from jobevents.assertions import RunChanges, RunError
from jobevents.capture import GONE, capture
from jobevents.errors import Corrupt, InvalidValue, JobEventsError, Misconfigured, NotFound, PermissionDenied
from jobevents.events import EVENT_TYPES, Event, JobQueued, JobStarted, JobSucceeded
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.linefile import read_lines
from jobevents.records import status_bytes
from jobevents.store import JobLog
from projections.replay import fold_into, replay
from projections.verify import verify
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture
from tests.histories import AT, make
from tests.test_export import DAMAGE, resealed, rewritten, swap

pytest_plugins = ("jobevents.testing.captures",)

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["memory://", "memory://?log=blobs"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Jobs over a log with one order, and over one without."""
    with connect(request.param) as made:
        yield made


def live(jobs: Jobs, job_id: str, *minutes: int) -> None:
    """A job that is queued, started and done at minutes after the start; fewer minutes: it has not come so far."""
    steps: list[tuple[type[Event], dict[str, Any]]] = [
        (JobQueued, {"name": "render", "params": {"secret": job_id}, "title": f"title of {job_id}"}),
        (JobStarted, {"attempt": 1, "worker": "w1"}),
        (JobSucceeded, {"start": 2, "result": 7}),
    ]
    for version, (minute, (cls, fields)) in enumerate(zip(minutes, steps, strict=False), 1):
        jobs.log.append([make(cls, job_id, version, at=AT + minute * MINUTE, **fields)])


def taken(jobs: Jobs, path: Path, begin: int, end: int, **options: Any) -> dict[str, int]:
    """Job -> how many of its events are in a capture of a window of minutes."""
    capture(jobs, path, since=AT + begin * MINUTE, until=AT + end * MINUTE, **options)
    with connect(str(path)) as opened:
        return {job_id: len(opened.history(job_id)) for job_id in {one.job_id for one in opened.log.scan()}}


def test_a_window_has_the_jobs_that_were_at_work_in_it(jobs: Jobs, tmp_path: Path) -> None:
    """With all that came before, and nothing that came after: a job that waited or ran through the whole window, too."""
    live(jobs, "before", 0, 1, 2)
    live(jobs, "into", 5, 6, 11)
    live(jobs, "within", 12, 13, 14)
    live(jobs, "out-of", 15, 18, 25)
    live(jobs, "through", 1, 2, 40)
    live(jobs, "waiting", 3)
    live(jobs, "after", 21, 22, 23)

    found = taken(jobs, tmp_path / "a.jev", 10, 20)

    assert {"into": 3, "within": 3, "out-of": 2, "through": 2, "waiting": 1} == found
    assert {"before": 3} == taken(jobs, tmp_path / "b.jev", 10, 20, only=["before"])
    with pytest.raises(NotFound):
        taken(jobs, tmp_path / "c.jev", 60, 70, only=["nobody"])
    assert {"a.jev", "b.jev"} == {one.name for one in tmp_path.iterdir()}


def test_a_window_without_jobs_or_sense_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    """Before anything is written; a file that is there is not replaced unasked."""
    live(jobs, "a", 0, 1, 2)
    (tmp_path / "mine.jev").write_text("mine")

    for name, begin, end, refused in (
        ("a.jev", 10, 20, NotFound),
        ("a.jev", 5, 1, InvalidValue),
        ("a.zip", 0, 1, InvalidValue),
        ("mine.jev", 0, 1, InvalidValue),
    ):
        with pytest.raises(refused):
            taken(jobs, tmp_path / name, begin, end)

    assert ["mine.jev"] == [one.name for one in tmp_path.iterdir()]


def test_an_opened_capture_shows_what_the_log_had(tmp_path: Path) -> None:
    """The same bytes, statuses and lines; proved, and listed."""
    with connect("memory://") as jobs:
        ids = [jobs.submit("render", title=f"song {n}") for n in range(3)]
        with jobs.attempt(ids[0]) as attempt:
            attempt.log("half done")
        capture(jobs, tmp_path / "a.jev", since=datetime.now().astimezone() - MINUTE, until=jobs.emitter.clock())
        with connect(str(tmp_path / "a.jev")) as opened:
            assert [one.data for one in jobs.log.scan()] == [one.data for one in opened.log.scan()]
            assert [status_bytes(jobs.job(one)) for one in ids] == [status_bytes(opened.job(one)) for one in ids]
            assert jobs.run_logs.logs(ids[0]) == opened.run_logs.logs(ids[0])
            assert verify(jobs).root == verify(opened).root
            assert verify(opened).is_right


WRITES: dict[str, Callable[[Jobs, str], object]] = {
    "submit": lambda jobs, _: jobs.submit("render"),
    "cancel": lambda jobs, job_id: jobs.cancel(job_id),
    "delete": lambda jobs, job_id: jobs.delete(job_id),
    "attempt": lambda jobs, job_id: jobs.attempt(job_id).__enter__(),
    "pause": lambda jobs, _: jobs.pause(queue="default"),
    "log line": lambda jobs, job_id: jobs.run_logs.append_logs(
        [JobLog(run_id=job_id, seq=1, attempt=1, at=AT, level="info", message="x")]
    ),
    "store": lambda jobs, job_id: jobs.store.request_cancel(job_id, "ana", ""),
    "status": lambda jobs, job_id: jobs.statuses().save(job_id, msgspec.structs.replace(jobs.get(job_id), title="x")),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_capture_is_read_only(tmp_path: Path, write: str) -> None:
    """Whatever would write is refused, says what to do instead, and changes nothing."""
    with connect("memory://") as jobs:
        live(jobs, "a", 0)
        capture(jobs, tmp_path / "a.jev", since=AT, until=AT)
    with connect(str(tmp_path / "a.jev")) as opened:
        before = [(one.cursor, one.data) for one in opened.log.scan()]

        with pytest.raises(PermissionDenied, match="import the file into a log of your own"):
            WRITES[write](opened, "a")

        assert before == [(one.cursor, one.data) for one in opened.log.scan()]
        assert [] == opened.run_logs.logs("a")


@pytest.mark.parametrize("option", [{"blobs": "memory://"}, {"inline": True}])
def test_a_capture_has_views_of_its_own(tmp_path: Path, option: dict[str, Any]) -> None:
    """So that opening one never writes over live ones."""
    incident.write(tmp_path / "a.jev")

    with pytest.raises(Misconfigured, match="shown as it is"):
        connect(str(tmp_path / "a.jev"), **option)


def filled(kind: Any, name: str) -> Any:
    """A value of a field's type that tells a secret wherever it can."""
    text = str(kind)
    if "RunChanges" in text:
        error = RunError(code="secret", message="secret", fields={"a": "secret"}, stack="secret", tail=["secret"])
        texts = {"triggered_by", "idem_key", "progress_message", "worker_id", "canceled_by", "cancel_reason"}
        return RunChanges(params="secret", result="secret", error=error, **dict.fromkeys(texts, "secret"))
    if name in ("fields", "changes", "record"):
        return {"note": "secret", "title": "secret", "attempts": 3}
    if "tuple" in text:
        return ("secret",)
    return {"a": "secret"} if kind is Any else "secret"


KNOWN = {"type", "job_id", "version", "id", "at", "chain"}
PLAIN = {
    **dict.fromkeys(("name", "queue", "command", "kind", "tried", "state", "trigger", "replay_of", "root_id"), "kept"),
    **dict.fromkeys(("scheduled_at", "deadline", "retry_at"), AT),
    **dict.fromkeys(("priority", "max_attempts", "attempt", "start", "percent"), 1),
    **dict.fromkeys(("external", "late", "artifacts", "forced"), True),
    "cause": "lost",
}  # fmt: skip


def test_what_is_redacted_tells_nothing(tmp_path: Path) -> None:
    """Of every type of event, every field that a person or a handler may fill; log lines, too. What happened stays."""
    with connect("memory://") as jobs:
        for name, cls in EVENT_TYPES.items():
            fields = {one.name: one.type for one in msgspec.structs.fields(cls) if one.name not in KNOWN}
            values = {one: PLAIN.get(one) or filled(kind, one) for one, kind in fields.items()}
            event = make(cls, f"job-{name}", **values)
            jobs.log.append([event], rows=[fold([event])] if cls is JobQueued else [])
        secret = JobLog(
            run_id="job-JobQueued", seq=1, attempt=1, at=AT, level="info", message="secret", attrs={"a": "secret"}
        )
        jobs.run_logs.append_logs([secret])
        ids = [f"job-{name}" for name in EVENT_TYPES]

        done = capture(jobs, tmp_path / "a.jev", since=AT, until=AT, only=ids, redact=True)
        open_ = capture(jobs, tmp_path / "b.jev", since=AT, until=AT, only=ids)

    lines = list(read_lines(tmp_path / "a.jev"))
    assert (len(EVENT_TYPES), 1, {}) == (done.events, done.lines, done.left_out)
    assert not [line for line in lines if b"secret" in line]
    assert any(b"secret" in line for line in read_lines(tmp_path / "b.jev"))
    assert done.digest != open_.digest
    assert sum(b'"kept"' in line for line in lines) > 5


def test_redacted_names_are_the_same_throughout_and_chains_hold(tmp_path: Path) -> None:
    """Who did what can be followed without knowing who it was; two captures give them different names."""
    names = []
    with connect("memory://", actor="ana") as jobs:
        first, second = jobs.submit("render", title="mine", key="k"), jobs.submit("mix", actor="ben")
        jobs.cancel(second, reason="wrong song")
        for name in ("a.jev", "b.jev"):
            capture(jobs, tmp_path / name, since=jobs.emitter.clock() - MINUTE, until=jobs.emitter.clock(), redact=True)
            with connect(str(tmp_path / name)) as opened:
                events = [*opened.history(first), *opened.history(second)]
                names.append([event.actor for event in events])
                assert verify(opened).is_right
                assert (GONE, GONE) == (opened.get(first).title, events[-1].reason)
                assert "canceled" == opened.get(second).state

    assert names[0][0] == names[0][2] != names[0][1]
    assert not set(names[0]) & set(names[1])


@pytest.mark.parametrize("damage", [*DAMAGE, "forged", "swapped under a forged end"])
def test_a_file_of_a_stranger_can_do_no_harm(jobs: Jobs, tmp_path: Path, damage: str) -> None:
    """Damaged, forged, with a path for a job, nested or long without end: an error of ours, and no file but itself."""
    for n in range(3):
        live(jobs, f"render-{n}", 0, 1, 2)
    with jobs.attempt(jobs.submit("render", params={"a": 1})) as attempt:
        attempt.log("done: boom")
    capture(jobs, tmp_path / "a.jev", since=AT, until=jobs.emitter.clock())

    def forged(lines: list[bytes]) -> list[bytes]:
        return resealed([one.replace(b'"title of render-0"', b'"title of nobody"') for one in lines])

    changes = {**DAMAGE, "forged": forged, "swapped under a forged end": lambda lines: resealed(swap(lines))}
    lines = list(read_lines(tmp_path / "a.jev"))
    assert lines != changes[damage](list(lines))
    changed = rewritten(tmp_path / "a.jev", changes[damage]).rename(tmp_path / "b.jev")

    with pytest.raises((Corrupt, InvalidValue)):
        connect(str(changed))

    assert {"a.jev", "b.jev"} == {one.name for one in tmp_path.iterdir()}


def test_a_capture_that_swells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is packed small and large unpacked is not held in memory."""
    zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    monkeypatch.setattr("jobevents.wiring.CAPTURE_LIMIT", 1_000_000)
    (tmp_path / "a.jev").write_bytes(zstd.compress(b" " * 100 + b"\n" * 30_000_000))
    incident.write(tmp_path / "b.jev")
    long = [*read_lines(tmp_path / "b.jev")]
    (tmp_path / "c.jev").write_bytes(zstd.compress(b"\n".join([long[0], *([long[1]] * 5000)])))

    for name in ("a.jev", "c.jev", "nowhere.jev"):
        with pytest.raises((JobEventsError, OSError)):
            connect(str(tmp_path / name))


COMMANDS = re.findall(r"^    \$ jobevents (.*)$", incident.__doc__ or "", re.MULTILINE)
SAYS = {
    "list": "succeeded",
    "why settle-20261128-091400-a1": "app-7 was lost",
    "show settle": "running",
    "events mail": "TransitionRefused",
    "sql --report guard-savings": "JobSucceeded",
    "why render": "came too late",
    "sql --report retries": "settle",
    'sql "SELECT': "lost",
    "verify": "root",
}


def test_the_worked_incident_is_explained_by_the_commands_that_it_names(jobevents: CommandLine) -> None:
    """Every command of its text runs on its capture, and says what the text says."""
    import shlex

    written = jobevents(*shlex.split(COMMANDS[0]), at_terminal=True)
    assert "$ jobevents why settle-20261128-091400-a1 --url incident.jev" in written.out
    said = {one: jobevents(*shlex.split(one), at_terminal=True) for one in COMMANDS[1:] if not one.startswith("open")}

    assert {0} == {told.code for told in said.values()}
    assert {} == {
        one: told.out
        for one, told in said.items()
        if not any(one.startswith(begins) and text in told.out for begins, text in SAYS.items())
    }
    assert "open incident.jev" == COMMANDS[-1]


def test_the_worked_incident_is_a_regression_test(jobevents_capture: Callable[[Path], Jobs], tmp_path: Path) -> None:
    """As its users would write one: the fixture opens it, a view of one's own is folded from it."""
    incident.write(tmp_path / "incident.jev")

    class Bookings:
        def __init__(self) -> None:
            self.booked = 0

        def apply(self, event: Event) -> None:
            if isinstance(event, JobSucceeded) and event.job_id == incident.SETTLE:
                self.booked += event.result["booked"]

        def result(self) -> int:
            return self.booked

    jobs = jobevents_capture(tmp_path / "incident.jev")

    assert "succeeded" == jobs.get(incident.SETTLE).state
    assert 1200 == fold_into(Bookings(), replay(jobs)).result


@pytest.mark.slow
def test_open_serves_a_capture_read_only(tmp_path: Path) -> None:
    """The API of `serve` on the file; nothing can be written, and the file stays as it is."""
    pytest.importorskip("uvicorn")
    incident.write(tmp_path / "#1 incident.jev")
    before = (tmp_path / "#1 incident.jev").read_bytes()
    process = start("open", "#1 incident.jev", "--port", "0", cwd=tmp_path)
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        root = re.search(r"http://[\d.:]+", told)
        assert root, told
        found = msgspec.json.decode(_get(f"{root[0]}/api/jobs"))
        page = _get(root[0])
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(f"{root[0]}/api/jobs/{incident.RENDER}/cancel", data=b"{}")
    finally:
        process.terminate()
        process.communicate(timeout=60)

    assert {incident.SETTLE, incident.MAIL, incident.RENDER} == {one["job_id"] for one in found["items"]}
    refused.value.close()
    assert incident.SETTLE.encode() in page
    assert refused.value.code in (403, 404, 405)
    assert before == (tmp_path / "#1 incident.jev").read_bytes()


def _get(url: str, data: bytes | None = None) -> bytes:
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, data=data, timeout=20) as reply:
                return bytes(reply.read())
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_the_command_line_captures(jobevents: CommandLine, tmp_path: Path) -> None:
    """With a window, or some jobs; what is wrong is 2, and nobody at work 1."""
    job_id = jobevents("submit", "--create", "render", "--title", "secret").json["job_id"]

    told = jobevents("capture", "a.jev", "--from", "-1h")
    red = jobevents("capture", "b.jev", "--from", "-1h", "--redact", "--jobs", job_id, at_terminal=True)
    wrong = [
        ("capture", "a.jev", "--from", "-1h"),
        ("capture", "c.jev"),
        ("capture", "c.jev", "--from", "@3"),
        ("capture", "c.jev", "--from", "yesterday"),
        ("open", "nowhere.jev"),
    ]

    assert (0, 1, False) == (told.code, told.json["jobs"], told.json["redacted"])
    assert "1 event of 1 job, 0 log lines in b.jev: jobevents open b.jev" in red.out
    assert "secret" == jobevents("show", job_id, "--url", "a.jev").json["title"]
    assert GONE == jobevents("show", job_id, "--url", "b.jev").json["title"]
    assert [2] * len(wrong) == [jobevents(*one).code for one in wrong]
    assert 1 == jobevents("capture", "c.jev", "--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z").code
    assert 1 == jobevents("submit", "render", "--url", "a.jev").code
