"""Export and import: every event into one file and back into any log, its bytes and the root hash the same."""

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents import cloudevents, codec, connect, wiring
from jobevents.assertions import RunError
from jobevents.blobs import MemoryBlobs
from jobevents.capture import capture
from jobevents.emit import By
from jobevents.errors import Conflict, Corrupt, InvalidValue
from jobevents.events import Event, JobQueued
from jobevents.export import Totals, export
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.linefile import FRAME, read_lines
from jobevents.log import EventLog, Record
from jobevents.restoring import Restored, restore
from jobevents.status import State, Status
from jobevents.testing.strategies import histories
from projections.index import Index
from projections.indexview import IndexView
from projections.rebuild import MemoryPositions
from projections.status import StatusView
from projections.verify import verify
from tests.cli import CommandLine, start
from tests.cli import jobevents as jobevents  # a fixture
from tests.clock import Clock
from tests.histories import AT
from tests.index_model import listed
from tests.jobstates import LIVES, bring
from tests.projecting import UNKNOWN

pytest_plugins = ("tests.postgres",)

URL = "sqlite:///{}?synchronous=normal"
LATER = datetime(2100, 1, 1, tzinfo=UTC)
NAMES = ["all.jsonl", "all.jsonl.zst"]


@pytest.fixture(params=NAMES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where an export goes: plain, then compressed."""
    return tmp_path / request.param


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """A job in every state, with log lines."""
    with connect("memory://", actor="ana") as made:
        first = made.submit("render")
        for life in LIVES:
            bring(made, life, title=f"=1+1 {life}", params={"n": 2**63 - 1, "text": "ü\u2028\n"}, key=life)
        with made.attempt(first) as attempt:
            attempt.log("begun", lines=3)
            attempt.log("done", level="warn")
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Jobs]:
    """An empty log elsewhere, whose clock and zone are others."""
    tokyo = timezone(timedelta(hours=9))
    with connect(URL.format(tmp_path / "other.db"), clock=lambda: datetime(2031, 1, 1, tzinfo=tokyo)) as made:
        yield made


def take(jobs: Jobs, path: Path, **options: Any) -> Restored:
    return restore(jobs.emitter, jobs.run_logs, path, **options)


def digest(log: EventLog) -> str:
    found = codec.Digest()
    for record in log.scan():
        found.add(record.job_id, record.version, record.data)
    return found.hex()


def content(log: EventLog) -> dict[tuple[str, int], bytes]:
    return {(one.job_id, one.version): one.data for one in log.scan()}


def lines_of(jobs: Jobs) -> list[Any]:
    return [line for job_id in sorted({one.job_id for one in jobs.log.scan()}) for line in jobs.run_logs.logs(job_id)]


def rows_of(jobs: Jobs) -> dict[str, Any]:
    found = {job_id: jobs.runs.get(job_id) for job_id in {one.job_id for one in jobs.log.scan()}}
    return {job_id: row for job_id, row in found.items() if row}


def rewritten(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> Path:
    """A plain copy of a file with its lines changed."""
    copy = path.with_name("changed.jsonl")
    copy.write_bytes(b"".join(line + b"\n" for line in change(list(read_lines(path)))))
    return copy


def test_an_import_gives_the_same_bytes_rows_lines_and_root(jobs: Jobs, other: Jobs, file: Path) -> None:
    """Into another backend, under another clock: nothing of a log is lost, and nothing is added."""
    written = export(jobs, file)

    report = take(other, file)

    assert [one.data for one in jobs.log.scan()] == [one.data for one in other.log.scan()]
    assert rows_of(jobs) == rows_of(other)
    assert lines_of(jobs) == lines_of(other)
    assert written.digest == report.digest == digest(other.log) == digest(jobs.log)
    assert (len(content(jobs.log)), 0, 2) == (report.events, report.refused, report.lines)


def test_two_exports_of_one_history_are_the_same_bytes(jobs: Jobs, other: Jobs, file: Path) -> None:
    """An export of what was imported is the file that it came from."""
    export(jobs, file)
    take(other, file)
    second = file.with_name(f"second-{file.name}")

    export(other, second)

    assert file.read_bytes() == second.read_bytes()


def test_each_line_is_a_cloud_event(jobs: Jobs, file: Path) -> None:
    """CloudEvents 1.0 in JSON: the required attributes, ids that are unique, and the stored event as data."""
    export(jobs, file)

    found = [msgspec.json.decode(line) for line in read_lines(file)]

    assert all({"specversion", "id", "source", "type"} <= one.keys() for one in found)
    assert all(name.isalnum() and name.islower() for one in found for name in one if name != "data_base64")
    assert len(found) == len({(one["source"], one["id"]) for one in found})
    events = [one for one in found if "sequence" in one]
    assert [msgspec.json.decode(one.data) for one in jobs.log.scan()] == [one["data"] for one in events]
    assert all(one["time"] == one["data"]["at"] for one in events)


def test_what_this_version_cannot_read_is_moved_all_the_same(jobs: Jobs, other: Jobs, file: Path) -> None:
    """PRJ-09: an event of a type unknown here keeps its bytes and its place, and the job is shown as it was before it."""
    job_id = jobs.submit("render", id="a")
    body = UNKNOWN
    data = codec.seal(body, codec.link(jobs.log.head(job_id).chain, body))
    jobs.log.recorder.insert_events([StoredEvent(job_id, 2, "JobPaused", data)])
    export(jobs, file)

    report = take(other, file)

    assert content(jobs.log) == content(other.log)
    assert (0, ["a"]) == (report.refused, list(report.unreadable))
    row = other.runs.get("a")
    assert row is not None
    assert "queued" == row.status


def test_a_second_import_passes_over_what_is_there(jobs: Jobs, other: Jobs, file: Path) -> None:
    """Compared byte for byte; what has happened since in the log that was written to stays."""
    export(jobs, file)
    take(other, file)
    waiting = next(job_id for job_id, row in rows_of(other).items() if row.status == "queued" and row.attempt == 1)
    other.cancel(waiting)

    again = take(other, file)

    assert (0, len(content(jobs.log)), 0) == (again.events, again.known, again.refused)
    assert "canceled" == other.get(waiting).state


def test_a_job_with_another_history_is_refused_and_stops_nobody(jobs: Jobs, other: Jobs, file: Path) -> None:
    """What is there is never replaced, and the report says where the two part."""
    first = next(iter(jobs.log.scan())).job_id
    other.submit("export", id=first)
    export(jobs, file)

    report = take(other, file)

    assert (1, [first]) == (report.refused, list(report.reasons))
    assert "another history is there" in report.reasons[first]
    assert content(jobs.log).keys() - content(other.log).keys() <= {(first, n) for n in range(2, 9)}
    assert "export" == other.job(first).name


def test_a_key_that_went_from_job_to_job_is_no_obstacle(jobs: Jobs, other: Jobs, file: Path) -> None:
    """Also where a file has the jobs in another order, as an export of a log without one order may."""
    for _ in range(3):
        with jobs.attempt(jobs.submit("render", key="one-at-a-time")):
            pass
    jobs.submit("render", key="one-at-a-time")
    export(jobs, file)

    def backwards(lines: list[bytes]) -> list[bytes]:
        by_job: dict[str, list[bytes]] = {}
        for line in lines[1:-1]:
            by_job.setdefault(cloudevents.read(line).subject, []).append(line)
        return [lines[0], *itertools.chain.from_iterable(reversed(list(by_job.values()))), lines[-1]]

    report = take(other, rewritten(file, backwards))

    assert 0 == report.refused
    assert content(jobs.log) == content(other.log)
    assert rows_of(jobs) == rows_of(other)


def test_a_key_that_a_living_job_holds_is_said(jobs: Jobs, other: Jobs, file: Path) -> None:
    """A job of the file that would need it is refused, with what to do."""
    other.submit("render", key="queued")
    export(jobs, file)

    report = take(other, file)

    assert 1 == report.refused
    assert ["an unfinished job holds its idempotency key: end that one, then import again"] == list(
        report.reasons.values()
    )


def places(lines: list[bytes]) -> tuple[int, int]:
    """Where the second and the third event of one job are."""
    third = next(n for n, line in enumerate(lines) if b'"sequence":"0000000003"' in line)
    job = cloudevents.read(lines[third]).subject.encode()
    return next(n for n, line in enumerate(lines) if b'"sequence":"0000000002"' in line and job in line), third


def swap(lines: list[bytes]) -> list[bytes]:
    """Two events of one job in each other's place."""
    second, third = places(lines)
    lines[second], lines[third] = lines[third], lines[second]
    return lines


def without_second(lines: list[bytes]) -> list[bytes]:
    second, _ = places(lines)
    return [*lines[:second], *lines[second + 1 :]]


DAMAGE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "an event is altered": lambda lines: [one.replace(b"boom", b"calm") for one in lines],
    "the last event is altered": lambda lines: [
        *lines[:-2],
        lines[-2].replace(b'"start":2', b'"start":3'),
        lines[-1],
    ],
    "an event is missing": without_second,
    "an event is doubled": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "an event is of another job": lambda lines: [
        one.replace(b'"subject":"render', b'"subject":"tender') for one in lines
    ],
    "a line is no JSON": lambda lines: [*lines[:3], lines[3][:-9], *lines[4:]],
    "a line is nested without end": lambda lines: [*lines[:3], b"[" * 100_000, *lines[4:]],
    "an event is nested too deep": lambda lines: [
        *lines[:2],
        lines[1].replace(b'"params":{', b'"params":{"x":' + b"[" * 200 + b"]" * 200 + b","),
        *lines[2:],
    ],
    "a job has a path for a name": lambda lines: [one.replace(b"render-", b"../../") for one in lines],
    "there is something behind the end": lambda lines: [*lines, lines[1]],
    "a line is longer than any": lambda lines: [*lines[:3], b"x" * 2_000_000, *lines[3:]],
    "a log line is altered": lambda lines: [one.replace(b'"message":"d', b'"message":"g') for one in lines],
    "a log line belongs to no job": lambda lines: [one.replace(b'"run_id":"', b'"run_id":"/') for one in lines],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_was_changed_is_refused_before_anything_is_written(
    jobs: Jobs, other: Jobs, tmp_path: Path, damage: str
) -> None:
    """Whatever was done to it, the log it would have gone into is as it was."""
    whole = tmp_path / "all.jsonl"
    export(jobs, whole)
    changed = rewritten(whole, DAMAGE[damage])
    assert whole.read_bytes() != changed.read_bytes()

    with pytest.raises((Corrupt, InvalidValue)):
        take(other, changed)

    assert {} == content(other.log)


def forged(**fields: Any) -> list[bytes]:
    """A file of one job whose first event says what we would never have written, its chain and its end in order."""
    said = {"job_id": "a", "version": 1, "id": "1", "at": "2026-11-29T12:00:00Z", "name": "render", **fields}
    event = {"type": "JobQueued", **said}
    body = msgspec.json.encode(event)
    record = Record("1", "a", 1, event["type"], codec.seal(body, codec.link(codec.NO_CHAIN, body)))
    totals = Totals()
    totals.add(record)
    begin = cloudevents.Begin(format=cloudevents.FORMAT, through="1", kind="capture", logs=True)
    return [cloudevents.of_begin(begin), cloudevents.of_record(record), cloudevents.of_end(totals.end())]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"title": "x" * 1025}, "title is too long"),
        ({"params": "x" * 65_536}, "params is too large"),
        ({"params": [[]] * 30_000}, "params is too large"),
        ({"type": "JobSucceeded", "start": 0, "result": [[]] * 30_000}, "result is too large"),
        ({"type": "JobRecorded", "state": "failed", "run": {"result": [[]] * 30_000}}, "result is too large"),
        ({"type": "JobRecorded", "state": "failed", "run": {"queue": "a\x1b[2J"}}, "queue holds a control character"),
        ({"type": "JobRecorded", "state": "failed", "run": {"attempt": -1}}, "attempt must be"),
        ({"name": "a\x1b[2J"}, "name holds a control character"),
        ({"name": ""}, "name is required"),
        ({"queue": "x" * 256}, "queue is too long"),
        ({"key": "a\nb"}, "key holds a control character"),
        ({"trigger": "\x7f"}, "trigger holds a control character"),
        ({"priority": 2**15}, "priority must be"),
        ({"max_attempts": -1}, "max_attempts must be"),
        ({"scheduled_at": "0001-01-01T00:00:00+05:00"}, "scheduled_at"),
        ({"at": "9999-12-31T23:59:59-05:00"}, "at"),
        ({"actor": "x" * 256}, "actor is too long"),
        ({"reason": "ü" * 1025}, "reason is too long"),
        ({"trace": "x" * 256}, "trace is too long"),
        ({"type": "JobStarted", "attempt": 1, "worker": "x" * 256}, "worker is too long"),
        ({"type": "JobStarted", "attempt": 2**31}, "attempt must be"),
        ({"type": "JobStarted", "attempt": 1, "deadline": "0001-01-01T00:00:00+05:00"}, "deadline"),
        ({"type": "JobProgressed", "start": 1, "percent": 1, "message": "x" * 1025}, "message is too long"),
        ({"type": "JobAnnotated", "title": "x" * 1025}, "title is too long"),
        ({"type": "JobAnnotated", "fields": {"x": "y" * 65_536}}, "fields is too large"),
        ({"type": "JobFailed", "error": "x" * 16_385}, "error is too long"),
        ({"type": "JobFailed", "error": "", "kind": "x" * 256}, "kind is too long"),
        ({"type": "JobFailed", "error": "", "traceback": "x" * 32_769}, "traceback is too long"),
        ({"type": "JobFailed", "error": "", "tail": ["x" * 65_536]}, "tail is too large"),
        (
            {"type": "TransitionRefused", "start": 0, "tried": "x", "state": "y", "detail": "x" * 1025},
            "detail is too long",
        ),
        ({"type": "JobRecorded", "state": "failed", "changes": {"x": "y" * 65_536}}, "changes is too large"),
        ({"type": "JobRecorded", "state": "failed", "run": {"cancel_reason": "x" * 2049}}, "cancel_reason is too long"),
        (
            {"type": "JobRecorded", "state": "x", "run": {"error": {"message": "x" * 16_385}}},
            "error message is too long",
        ),
        ({"type": "JobImported", "state": "failed", "record": {"x": "y" * 65_536}}, "record is too large"),
    ],
)
def test_an_event_beyond_our_limits_is_refused_with_its_line(
    other: Jobs, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    """What no submit takes comes in by no file either: nothing is written, and the error says where and why."""
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in forged(**fields)))

    with pytest.raises(Corrupt, match=rf"line=2 .*{says}") as caught:
        take(other, path)

    assert str(caught.value).isprintable()
    assert {} == content(other.log)


def test_an_event_at_our_limits_is_taken(other: Jobs, tmp_path: Path) -> None:
    """To the byte."""
    path = tmp_path / "a.jsonl"
    most = {"title": "x" * 1024, "params": "x" * 65_534, "queue": "ü" * 127, "key": "x" * 255, "priority": -(2**15)}
    path.write_bytes(b"".join(line + b"\n" for line in forged(**most, max_attempts=2**15 - 1)))

    assert (1, 0, {}) == ((done := take(other, path)).events, done.refused, done.unreadable)


def test_whatever_is_written_here_is_taken_there(other: Jobs, tmp_path: Path) -> None:
    """One rule for every way in: of far too much, the API keeps what an import takes, and no file of ours is refused."""
    much = "ü" * 100_000
    by = {"actor": much, "reason": much}
    with connect("memory://", clock=Clock()) as jobs:
        failed, running = (jobs.submit("render", title=much, max_attempts=3, **by) for _ in range(2))
        with suppress(OSError), jobs.attempt(failed, worker="ü" * 100) as attempt:
            attempt.progress(1, much)
            attempt.annotate(title=much, command="ü" * 100, one=much, two=much)
            for _ in range(20):
                attempt.log(much)
            raise OSError(much)
        jobs.retry(failed, **by)
        jobs.fail(failed, much, kind=much, **by)
        jobs.attempt(running).__enter__()
        jobs.cancel(running, **by)
        run = jobs.store.get(running)
        error = RunError(code=much, message=much, stack=much)
        jobs.store.update(msgspec.structs.replace(run, status="failed", error=error, progress_message=much))
        records = jobs.statuses()
        for state in (State.RUNNING, State.FAILED, "stuck"):
            records.save("song-7", Status(job_id="song-7", state=state, title=much, command=much, error=much))
        saved = records.get("song-7")
        export(jobs, tmp_path / "all.jsonl")
        written = content(jobs.log)

    done = take(other, tmp_path / "all.jsonl")

    assert (0, {}) == (done.refused, done.unreadable)
    assert written == content(other.log)
    assert "bytes cut" in saved.error
    assert saved.error.startswith("ü")


def test_a_record_larger_than_a_payload_is_refused(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    """With its size, before anything is written; an annotation is dropped with a warning, since the work goes on."""

    class Song(Status):
        lyrics: str = ""

    with pytest.raises(InvalidValue, match=r"record is too large size=6.* limit=65536"):
        jobs.statuses(Song).save("song-7", Song(job_id="song-7", state=State.RUNNING, lyrics="x" * 65_536))
    with jobs.attempt(jobs.submit("render")) as attempt:
        attempt.annotate(**{f"f{n}": "x" * 8000 for n in range(9)})
    assert "fields is too large size=7" in caplog.text


def test_many_small_values_count_by_the_memory_that_they_take(other: Jobs, tmp_path: Path) -> None:
    """A file may be held to what it takes when it is opened, which is far more than its bytes."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in forged(params=[[]] * 20_000)))

    with pytest.raises(Corrupt, match="larger than is taken"):
        take(other, path, at_most=500_000)
    assert 1 == take(other, path, at_most=2_000_000).events


def test_jobs_with_large_payloads_are_brought_in_whole(jobs: Jobs, other: Jobs, tmp_path: Path) -> None:
    """Batches are smaller then, and such a job is read again for each: the histories are the same."""
    many = [jobs.submit("render", params=[[]] * 15_000) for _ in range(5)]
    for _ in range(2):
        for job_id in many:
            with jobs.attempt(job_id) as attempt:
                attempt.result([[]] * 15_000)
            jobs.rerun(job_id)
    export(jobs, tmp_path / "a.jsonl")

    done = take(other, tmp_path / "a.jsonl")

    assert (0, {}) == (done.refused, done.unreadable)
    assert content(jobs.log) == content(other.log)
    assert rows_of(jobs) == rows_of(other)


def resealed(lines: list[bytes]) -> list[bytes]:
    """The lines with an end that fits them: what a forger would write."""
    totals = Totals()
    for line in map(cloudevents.read, lines[1:-1]):
        if line.is_event:
            totals.add(cloudevents.to_record(line))
        else:
            totals.add_line(cloudevents.to_log_line(line))
    return [*lines[:-1], cloudevents.of_end(totals.end())]


@pytest.mark.parametrize("damage", ["an event is altered", "an event is missing", "an event is doubled", "swapped"])
def test_a_chain_that_does_not_fit_is_found_under_a_forged_end(
    jobs: Jobs, other: Jobs, tmp_path: Path, damage: str
) -> None:
    """The hash of the file may be made to fit; the chain of each job may not, and such jobs go no further than it does."""
    whole = tmp_path / "all.jsonl"
    export(jobs, whole)
    changed = rewritten(whole, lambda lines: resealed({**DAMAGE, "swapped": swap}[damage](lines)))

    report = take(other, changed)

    assert content(other.log).items() <= content(jobs.log).items()
    doubled = damage == "an event is doubled"
    assert doubled or report.refused
    assert doubled == (content(other.log) == content(jobs.log))


@pytest.mark.parametrize("name", NAMES)
def test_a_packed_file_that_is_damaged_or_swells_is_refused(jobs: Jobs, other: Jobs, tmp_path: Path, name: str) -> None:
    """Bytes that are no file of ours, a file that is larger unpacked than is taken: a clear error, and little memory."""
    good = tmp_path / name
    export(jobs, good)
    bomb = tmp_path / f"bomb-{name}"
    packed = bomb.suffix == ".zst"
    if packed:
        zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        bomb.write_bytes(zstd.compress(b"\n".join([b"{}" + b" " * 1000] * 20_000)))
    else:
        bomb.write_bytes(b"{}\n" * 1000)
    torn = tmp_path / f"torn-{name}"
    torn.write_bytes(good.read_bytes()[:200] + b"\xff\x00" * 300 + good.read_bytes()[800:])

    for bad in (bomb, torn, tmp_path):
        with pytest.raises((InvalidValue, Corrupt, OSError)):
            take(other, bad, at_most=1_000_000)
    with pytest.raises(Corrupt, match="larger than is taken"):
        take(other, good, at_most=1000)

    assert {} == content(other.log)


def test_a_file_that_was_cut_short_is_no_import_unless_asked_for(jobs: Jobs, other: Jobs, file: Path) -> None:
    """It lacks its last line, however it ends; what there is of it can be taken."""
    export(jobs, file)
    file.write_bytes(file.read_bytes()[:-40])

    with pytest.raises(InvalidValue, match="cut short"):
        take(other, file)
    assert {} == content(other.log)
    if file.suffix == ".zst":  # all of it is one frame
        return
    report = take(other, file, partial=True)

    assert not report.is_whole
    assert content(other.log) == content(jobs.log)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("all.jsonl", 20_000), ("all.jsonl.zst", 8_000)])
def test_exp_01_an_export_goes_on_where_it_was_cut_while_jobs_are_written_and_purged(
    tmp_path: Path, name: str, size: int
) -> None:
    """EXP-01: 20,000 events, each up to the start position once, whatever is appended and purged; cut anywhere, resumed."""
    file, whole = tmp_path / name, tmp_path / f"whole-{name}"
    with connect(URL.format(tmp_path / "jobs.db"), actor="ana") as jobs:
        while int(jobs.log.last_cursor() or 0) < size:
            ids = jobs.submit_many([{"name": "render", "params": {"n": random.random()}} for _ in range(1000)])
            jobs.emitter.change_each(ids[:400], lambda _: LIVES["succeeded"], By(actor="w"))
        last = jobs.log.last_cursor()
        before = content(jobs.log)
        stop = threading.Event()
        writer = threading.Thread(target=_write_and_purge, args=(jobs, stop))
        writer.start()
        try:
            with pytest.raises(_Stopped):
                export(jobs, file, on_progress=_stop_at(size * 9 // 20))
            for cut in (file.stat().st_size - 7, file.stat().st_size // 3, 11):
                with file.open("r+b") as opened:
                    opened.truncate(cut)
                with pytest.raises(_Stopped):
                    export(jobs, file, resume=True, on_progress=_stop_at(size * 3 // 4))
            told = export(jobs, file, resume=True)
            twice = export(jobs, file, resume=True)
        finally:
            stop.set()
            writer.join()
        export(jobs, whole)
        begin = cloudevents.to_begin(cloudevents.read(next(read_lines(file))))
        events = [line for line in map(cloudevents.read, read_lines(file)) if line.is_event]
        assert int(jobs.log.last_cursor()) > int(last)

    assert int(last) <= int(begin.through)
    assert [str(n) for n in range(1, int(begin.through) + 1)] == [line.cursor for line in events]
    assert before.items() <= {(line.subject, int(line.sequence)): bytes(line.data) for line in events}.items()
    assert 0 < told.resumed_after < told.events
    assert (told.digest, told.events) == (twice.digest, twice.resumed_after)


class _Stopped(Exception):
    pass


def _stop_at(position: int) -> Callable[[int, int], None]:
    def on_progress(at: int, _: int) -> None:
        if at >= position:
            raise _Stopped

    return on_progress


def _write_and_purge(jobs: Jobs, stop: threading.Event) -> None:
    while not stop.wait(0.02):
        jobs.submit("render")
        if not random.randrange(9):
            jobs.store.purge(LATER, LATER)


def test_a_log_that_was_replaced_by_an_older_copy_is_not_gone_on_with(jobs: Jobs, other: Jobs, tmp_path: Path) -> None:
    """A file that says it goes further than the log does cannot be of it."""
    file = tmp_path / "all.jsonl"
    export(jobs, file)
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:9]) + b"\n")
    other.submit("render")

    with pytest.raises(Conflict, match="of another log"):
        export(other, file, resume=True)


def test_strict_leaves_no_half_file(jobs: Jobs, file: Path) -> None:
    """An event that cannot be read, or a stop in the middle: no file is there, nor one beside; without it, there is one."""
    jobs.log.recorder.insert_events([StoredEvent(jobs.submit("render", id="a"), 2, "JobPaused", UNKNOWN)])

    with pytest.raises(Corrupt):
        export(jobs, file, strict=True)
    assert [] == list(file.parent.iterdir())

    export(jobs, file)
    assert [file] == list(file.parent.iterdir())


def test_a_link_that_was_planted_is_not_followed(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither under the name that used to be guessed, nor under one that is."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in (".a.part.jsonl", ".b.part.jev"):
        (tmp_path / name).symlink_to(mine)
    export(jobs, tmp_path / "a.jsonl", strict=True)
    capture(jobs, tmp_path / "b.jev", since=AT - timedelta(days=9999), until=LATER)

    monkeypatch.setattr("jobevents.files.new_token", lambda: "guessed")
    for suffix in (".jsonl", ".jev"):
        (tmp_path / f".part-guessed{suffix}").symlink_to(mine)
    with pytest.raises(FileExistsError):
        export(jobs, tmp_path / "c.jsonl", strict=True)
    with pytest.raises(FileExistsError):
        capture(jobs, tmp_path / "d.jev", since=AT - timedelta(days=9999), until=LATER)

    assert "mine" == mine.read_text()


def test_a_file_that_is_there_is_not_replaced_unasked(jobs: Jobs, file: Path) -> None:
    """Not even by a strict export."""
    file.write_text("mine")

    for options in ({}, {"strict": True}):
        with pytest.raises(InvalidValue, match="there already"):
            export(jobs, file, **options)
    assert "mine" == file.read_text()
    with pytest.raises(InvalidValue, match="not an export"):
        export(jobs, file, resume=True)

    export(jobs, file, overwrite=True, strict=True)
    assert b"mine" not in file.read_bytes()


def test_frames_are_whole_lines(tmp_path: Path) -> None:
    """A compressed file of several megabytes is a row of frames, of which losing the last one loses nothing before it."""
    file = tmp_path / "all.jsonl.zst"
    with connect("memory://") as jobs:
        blob = {"text": "".join(random.Random(7).choices("abcdefgh", k=60_000))}
        jobs.submit_many([{"name": "render", "params": {**blob, "n": n}} for n in range(80)])
        export(jobs, file)
        whole = list(read_lines(file))
        file.write_bytes(file.read_bytes()[:-10])
        told = export(jobs, file, resume=True)

    assert told.resumed_after >= 80 - 2 * FRAME // 60_000
    assert whole == list(read_lines(file))


class Live:
    """Statuses grown from hints that come late, early and twice; an index, whose way is the log's, from doubled ones."""

    def __init__(self) -> None:
        self.blobs = MemoryBlobs()

    def take(self, prefixes: Sequence[Sequence[Event]], rng: random.Random) -> None:
        """Give every state that each job was in."""
        statuses = StatusView(self.blobs, positions=MemoryPositions(), threads=1)
        index = IndexView(self.blobs)
        shuffled = [*prefixes, *prefixes]
        rng.shuffle(shuffled)
        for place, prefix in enumerate(shuffled, 1):
            statuses.take([fold(prefix)], place)
            if place % 3 == 0:
                statuses.flush(everything=True)
        for place, prefix in enumerate(prefixes, 1):
            index.take([fold(prefix)], place)
            index.take([fold(prefix)], place)
            index.flush(everything=place % 3 == 0)
        for view in (statuses, index):
            view.flush(everything=True)
        statuses.close()


def shown(blobs: Any) -> tuple[dict[str, bytes], list[str]]:
    """Every status, and the index read to its end."""
    statuses = {entry.name: blobs.get(entry.name).data for entry in blobs.list("jobs/")}
    return statuses, listed(Index(blobs))


@pytest.mark.slow
@settings(max_examples=20)
@given(data=st.data())
def test_exp_03_live_equals_exported_imported_and_rebuilt(data: st.DataObject, tmp_path_factory: Any) -> None:
    """EXP-03: the live fold of a shuffled, doubled stream, and a rebuild of what was imported elsewhere, byte for byte."""
    directory = tmp_path_factory.mktemp("exp03")
    made = [_with_own_keys(data.draw(histories(job_id=f"job-{n}"), label=f"job-{n}")) for n in range(3)]
    urls = [URL.format(directory / "a.db"), "memory://", "memory://?log=blobs"]
    same_everywhere(made, data.draw(st.randoms()), directory, urls)


def _with_own_keys(events: list[Event]) -> list[Event]:
    """Return them with idempotency keys that no other job holds: a log takes no two unfinished jobs of one key."""
    return [
        msgspec.structs.replace(one, key=f"{one.job_id} {one.key}") if isinstance(one, JobQueued) and one.key else one
        for one in events
    ]


def same_everywhere(made: list[list[Event]], rng: random.Random, directory: Path, urls: Sequence[str]) -> None:
    live = Live()
    with connect("memory://", clock=lambda: datetime(2026, 7, 26, tzinfo=UTC)) as jobs:
        for events in interleaved(made, rng):
            jobs.log.append(events, rows=[fold([*jobs.log.read(events[0].job_id), *events])])
        live.take([jobs.log.read(one.job_id, until=one.version) for one in jobs.log.scan()], rng)
        export(jobs, directory / "all.jsonl.zst")
        roots = {verify(jobs).root}
    expected = shown(live.blobs)

    for place, url in enumerate(urls):
        zone = timezone(timedelta(hours=-9 + 5 * place))
        blobs = None if "log=blobs" in url else MemoryBlobs()
        with connect(url, blobs=blobs, clock=lambda at=zone: datetime(2040, 2, 3, tzinfo=at)) as there:
            report = take(there, directory / "all.jsonl.zst")
            wiring.rebuild(there, threads=1)

            proved = verify(there)
            roots.add(proved.root)
            assert (0, digest(there.log)) == (report.refused, report.digest)
            assert expected == shown(there.blobs)
    assert 1 == len(roots)


def interleaved(made: list[list[Event]], rng: random.Random) -> Iterator[list[Event]]:
    waiting = [list(events) for events in made]
    while waiting := [events for events in waiting if events]:
        one = rng.choice(waiting)
        yield [one.pop(0)]


@pytest.mark.parametrize("name", NAMES)
def test_a_log_on_blobs_is_moved_there_and_back(jobs: Jobs, other: Jobs, tmp_path: Path, name: str) -> None:
    """A log without one order over all jobs: the same root, gone on with, and imported again into one that has."""
    export(jobs, tmp_path / "a.jsonl")
    with connect("memory://?log=blobs") as bucket:
        first = take(bucket, tmp_path / "a.jsonl")
        export(bucket, tmp_path / name, logs=False)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        export(bucket, tmp_path / name, logs=False, resume=True)
        again = take(bucket, tmp_path / name)

    report = take(other, tmp_path / name)

    assert whole == (tmp_path / name).read_bytes()
    assert (0, 0, 0) == (first.refused, again.refused, again.events)
    assert (0, first.digest) == (report.refused, report.digest)
    assert content(jobs.log) == content(other.log)


@pytest.mark.services
def test_exp_03_over_postgres(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXP-03 through Postgres and SQLite, in a process of another time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        rng = random.Random(20260726)
        made = [_example(rng, n) for n in range(40)]
        same_everywhere(made, rng, tmp_path, [postgres_url, URL.format(tmp_path / "a.db")])
    finally:
        monkeypatch.undo()
        time.tzset()


def _example(rng: random.Random, number: int) -> list[Event]:
    """A history of a job, as a worker would have written it."""
    at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(minutes=rng.randrange(120))
    job_id = f"c-2026102{number % 10}-120031-{number:012x}"
    events: list[Event] = []
    for draft in (lambda **common: JobQueued(name="render", **common), *LIVES[rng.choice(list(LIVES))]):
        events.append(
            draft(
                job_id=job_id,
                version=len(events) + 1,
                id=f"{number}-{len(events)}",
                at=at,
            )
        )
    return events


def test_the_command_line_exports_and_imports(jobevents: CommandLine, tmp_path: Path) -> None:
    """A pair of commands; what is wrong is 2, what was refused 1, and standard output is a file too."""
    job_id = jobevents("submit", "--create", "render", '{"song": 7}').json["job_id"]

    first = jobevents("export", "all.jsonl.zst")
    again = jobevents("export", "all.jsonl.zst")
    back = jobevents("import", "--create", "all.jsonl.zst", "--url", "sqlite:///b.db")
    told = jobevents("import", "--create", "all.jsonl.zst", "--url", "sqlite:///b.db", at_terminal=True)
    Path("torn.jsonl").write_bytes(b'{"spec')
    torn = jobevents("import", "--create", "torn.jsonl", "--url", "sqlite:///c.db")

    assert (0, 1, 1) == (first.code, first.json["events"], first.json["jobs"])
    assert 2 == again.code
    assert (0, 1, first.json["digest"]) == (back.code, back.json["events"], back.json["digest"])
    assert "0 events imported, 1 known before, 0 log lines" in told.out
    assert 2 == torn.code
    assert jobevents("events", job_id).json == jobevents("events", job_id, "--url", "sqlite:///b.db").json


def test_an_export_goes_through_a_pipe(tmp_path: Path) -> None:
    """`jobevents export -` writes the file to standard output, and what is told to standard error."""
    url = URL.format(tmp_path / "jobs.db")
    with connect(url) as jobs:
        jobs.submit("render", id="a")
        export(jobs, tmp_path / "all.jsonl")
    process = start("export", "-", "--url", url, cwd=tmp_path)

    out, err = process.communicate(timeout=60)

    assert ((tmp_path / "all.jsonl").read_text(), 0) == (out, process.returncode)
    assert "1 event of 1 job" in err
