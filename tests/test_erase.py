"""Erasure: nothing of what a job said is left, its tombstone stays, and it never comes back."""

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobevents import errors
from jobevents.backends.bloberasures import RIPE_S
from jobevents.backends.blobnames import part_of
from jobevents.emit import By
from jobevents.erasing import Receipt
from jobevents.events import JobDeleted
from jobevents.export import export
from jobevents.jobs import Jobs
from jobevents.restoring import restore
from jobevents.store import RunFilter
from jobevents.wiring import connect, rebuild
from jobevents.wiring_erase import erasing
from projections.verify import verify
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.clock import Clock

SECRET = "Erika-Mustermann"
BY = By(actor="dpo", reason="asked to be forgotten")


@pytest.fixture(params=["memory", "sqlite", "files"])
def logged(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Jobs]:
    """Jobs over each kind of log that needs no server."""
    url = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/jobs.db",
        "files": f"file://{tmp_path}/bucket",
    }[str(request.param)]
    with connect(url, clock=clock, inline=True) as made:
        yield made


def lived(jobs: Jobs) -> str:
    """Have a job say a secret in every way, and end."""
    job_id = jobs.submit("render", {"name": SECRET}, title=SECRET, key=SECRET, max_attempts=2, external=True)
    first = jobs.attempt(job_id, retry_in=lambda _: 0.0)
    first.__enter__()
    first.log(SECRET, name=SECRET)
    first.__exit__(ValueError, ValueError(SECRET), None)
    with jobs.attempt(job_id) as attempt:
        attempt.log(SECRET)
        attempt.annotate(singer=SECRET)
        attempt.progress(50, SECRET)
        attempt.result({"name": SECRET})
    jobs.blobs.put(jobs.blob_name(f"jobs/{job_id}/song.txt"), SECRET.encode())
    return job_id


def finish(jobs: Jobs, job_id: str) -> Receipt:
    """Erase a job, on a bucket an hour after it was asked for."""
    receipt = erasing(jobs).erase(job_id, BY)
    if not receipt.is_done:
        eraser: Any = jobs.log.recorder.eraser  # type: ignore[attr-defined]
        later = eraser._clock.now() + timedelta(seconds=RIPE_S + 1)  # the store's clock is known to some milliseconds
        eraser._clock.now = lambda: later
        receipt = erasing(jobs).erase(job_id, BY)
    assert receipt.is_done
    return receipt


def found_in(directory: Path, text: str) -> list[str]:
    """Grep."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_nothing_is_left_but_the_tombstone(logged: Jobs) -> None:
    """Of events, lines, row, status and artifacts; other jobs are as they were."""
    job_id, other = lived(logged), lived(logged)
    before = logged.history(other)
    told = len(logged.history(job_id))

    receipt = finish(logged, job_id)

    (last,) = logged.history(job_id)
    assert isinstance(last, JobDeleted)
    assert (told + 1, "dpo", "asked to be forgotten", True) == (last.version, last.actor, last.reason, last.artifacts)
    assert (last.version, told, "dpo") == (receipt.tombstone, told, receipt.actor)
    assert re.fullmatch("[0-9a-f]{32}", receipt.chain)
    assert [] == logged.run_logs.logs(job_id)
    assert None is logged.runs.get(job_id)
    assert [] == list(logged.blobs.list(logged.blob_name(f"jobs/{job_id}/")))
    assert before == logged.history(other)
    assert 2 == len(logged.run_logs.logs(other))
    with pytest.raises(errors.Gone):
        logged.get(job_id)


def test_the_receipt_counts_what_went(logged: Jobs) -> None:
    """As the dry run has counted it before, which removes nothing."""
    job_id = lived(logged)
    work = erasing(logged)

    dry = work.look(job_id)
    again = work.look(job_id)
    receipt = work.erase(job_id, BY)

    assert dry == again
    assert (False, 0, len(dry.notes)) == (dry.is_done, dry.tombstone, 0)
    assert (dry.events, dry.lines, dry.blobs) == (receipt.events, receipt.lines, receipt.blobs)
    assert (2, 1) == (receipt.lines, receipt.blobs["artifact"])
    assert receipt.events > 6
    assert any("exports, backups" in note for note in receipt.notes)


def test_a_proof_holds(logged: Jobs) -> None:
    """What is missing below the tombstone is no flaw of the log, as it was asked for."""
    job_id = lived(logged)
    lived(logged)

    finish(logged, job_id)

    report = verify(logged)
    assert [] == [flaw for flaw in report.flaws if flaw.check == "log"]
    assert (1, 1, 2) == (report.erased, report.deleted, report.jobs)


def test_sto_01_a_late_worker_does_not_bring_it_back(logged: Jobs) -> None:
    """STO-01: progress, lines, annotations and the outcome of who was at it; a delivery, and a submission of the same id."""
    job_id = logged.submit("render", {"name": SECRET}, external=True)
    attempt = logged.attempt(job_id)
    attempt.__enter__()
    attempt.progress(10)

    finish(logged, job_id)
    attempt.progress(90, SECRET)
    attempt.annotate(title=SECRET)
    attempt.log(SECRET)
    attempt.result({"name": SECRET})
    attempt.__exit__(None, None, None)

    assert ["JobDeleted"] == [event.type for event in logged.history(job_id)]
    assert [] == logged.run_logs.logs(job_id)
    with pytest.raises(errors.AlreadyCanceled), logged.attempt(job_id):
        pass
    with pytest.raises(errors.Gone):
        logged.submit("render", {"name": SECRET}, id=job_id)
    assert ["JobDeleted"] == [event.type for event in logged.history(job_id)]
    assert [] == list(logged.blobs.list(logged.blob_name(f"jobs/{job_id}/")))


def test_another_process_that_knew_it_does_not_either(tmp_path: Path, clock: Clock) -> None:
    """Whose memory is of before the erasure: its append finds the slot taken, or nothing to go on from."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url, clock=clock) as jobs, connect(url, clock=clock) as other:
        job_id = jobs.submit("render", {"name": SECRET}, external=True)
        other.job(job_id)
        with jobs.attempt(job_id):
            pass
        finish(jobs, job_id)

        with pytest.raises(errors.AlreadyCanceled), other.attempt(job_id):
            pass
        with pytest.raises((errors.Gone, errors.Conflict)):
            other.rerun(job_id)
        with pytest.raises((errors.Gone, errors.Conflict)):
            other.submit("render", id=job_id)

        assert ["JobDeleted"] == [event.type for event in other.history(job_id)]


def test_nothing_is_found_by_grep_in_a_database_file(tmp_path: Path, clock: Clock) -> None:
    """Not in free pages, not in the write-ahead log, not in the blobs beside it; while another process has it open."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url, clock=clock, inline=True) as jobs, connect(url, clock=clock) as other:
        job_id = lived(jobs)
        for n in range(30):
            jobs.submit("render", {"n": n})
        other.job(job_id)
        wal_before = found_in(tmp_path, SECRET)

        receipt = finish(jobs, job_id)

        assert wal_before
        assert [] == found_in(tmp_path, SECRET)
        assert [note for note in receipt.notes if "-wal" in note] == []
        assert 30 == jobs.runs.list(RunFilter()).total
        assert jobs.submit("render")


def test_nothing_is_found_by_grep_in_a_bucket(tmp_path: Path, clock: Clock) -> None:
    """Nor of its keys, lines and locks."""
    with connect(f"file://{tmp_path}/bucket", clock=clock, inline=True) as jobs:
        job_id = lived(jobs)

        finish(jobs, job_id)

        assert [] == found_in(tmp_path, SECRET)


def test_a_reader_who_keeps_an_old_state_is_told_of(tmp_path: Path, clock: Clock) -> None:
    """Whoever reads an old state keeps the write-ahead log from being emptied: the receipt says so, and again helps."""
    with connect(f"sqlite:///{tmp_path}/jobs.db?lock_timeout_s=0.2", clock=clock) as jobs:
        job_id = lived(jobs)
        reader = sqlite3.connect(tmp_path / "jobs.db")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM job_events").fetchone()

        held = erasing(jobs).erase(job_id, BY)
        reader.rollback()
        again = erasing(jobs).erase(job_id, BY)
        reader.close()

        assert any("erase once more" in note for note in held.notes)
        assert not any("erase once more" in note for note in again.notes)
        assert (held.tombstone, held.chain, held.at) == (again.tombstone, again.chain, again.at)
        assert [] == found_in(tmp_path, SECRET)


def test_views_lose_it_too(tmp_path: Path, clock: Clock) -> None:
    """Parked copies and what a rebuild keeps; the projector, which was behind, goes on over the gap."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url, clock=clock) as jobs:
        job_id, other = lived(jobs), lived(jobs)
        rebuild(jobs)
        jobs.rerun(job_id)
        rebuild(jobs)
        jobs.blobs.put(f"parked/v1/status/{part_of(job_id)}/{job_id}/0000000003.json", SECRET.encode())

        receipt = finish(jobs, job_id)
        after = [entry.name for entry in jobs.blobs.list("") if job_id in entry.name]
        rebuild(jobs)

        assert (1, 1) == (receipt.blobs["parked copy"], receipt.blobs["status"])
        assert receipt.blobs["rebuilt status"] >= 1
        assert [] == after
        assert [other] == [run.id for run in jobs.runs.list(RunFilter()).runs]
        assert [] == [one for one in verify(jobs).flaws if one.job_id == job_id]


def test_26_a_write_under_way_is_gone_by_the_next_pass(clock: Clock) -> None:
    """Faults 26 and 32: what lands below the floor after all is found, and removed by whoever finishes erasures."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        job_id = lived(jobs)
        finish(jobs, job_id)
        eraser: Any = jobs.log.recorder.eraser  # type: ignore[attr-defined]
        zombie = f"log/v1/{part_of(job_id)}/{job_id}/0000000003.json"
        jobs.blobs.put(zombie, SECRET.encode())

        assert [job_id] == list(eraser.unfinished())
        erasing(jobs).erase(job_id, BY)

        assert [] == list(eraser.unfinished())
        assert ["JobDeleted"] == [event.type for event in jobs.history(job_id)]
        with pytest.raises(errors.Gone):
            jobs.submit("render", id=job_id)


def test_on_a_bucket_the_events_wait_an_hour(clock: Clock) -> None:
    """The floor first: who writes now must be able to see it before slots are emptied."""
    with connect("memory://?log=blobs", clock=clock) as jobs:
        job_id = lived(jobs)

        receipt = erasing(jobs).erase(job_id, BY)

        assert not receipt.is_done
        assert receipt.ripe_at is not None
        assert 3590 < (receipt.ripe_at - clock()).total_seconds() <= 3600
        assert receipt.events < len(jobs.history(job_id))
        assert receipt.tombstone == jobs.log.recorder.floors.get(job_id)  # type: ignore[attr-defined]


def test_a_job_that_never_was_cannot_be_erased(logged: Jobs) -> None:
    """A mistyped id shows."""
    with pytest.raises(errors.NotFound, match="no such job"):
        erasing(logged).erase("render-1", BY)


def test_what_it_was_is_not_known_any_more(logged: Jobs, clock: Clock) -> None:
    """At no time, and after no event."""
    job_id = lived(logged)
    then = clock()
    clock.move(60)
    finish(logged, job_id)

    for when in (then, 1):
        with pytest.raises(errors.Gone):
            logged.status_at(job_id, when)


def test_an_export_has_the_tombstone_and_an_import_keeps_the_gap(tmp_path: Path, clock: Clock) -> None:
    """And an older export brings nothing back."""
    with connect(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as jobs:
        job_id = lived(jobs)
        old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
        export(jobs, old)
        finish(jobs, job_id)
        export(jobs, new)
        restore(jobs.emitter, jobs.run_logs, old)
        assert ["JobDeleted"] == [event.type for event in jobs.history(job_id)]

    assert SECRET.encode() not in new.read_bytes()
    with connect("memory://", clock=clock) as copy:
        restore(copy.emitter, copy.run_logs, new)
        assert ["JobDeleted"] == [event.type for event in copy.history(job_id)]
        with pytest.raises(errors.Gone):
            copy.submit("render", id=job_id)


def test_the_command_says_first_and_does_then(jobevents: CommandLine, tmp_path: Path) -> None:
    """A dry run by default; --yes removes, and prints a receipt."""
    with connect("sqlite:///jobs.db?synchronous=normal") as jobs:
        job_id = lived(jobs)

    dry = jobevents("erase", job_id, "--json")
    shown = jobevents("erase", job_id, at_terminal=True)
    done = jobevents("erase", job_id, "--yes", "--reason", "asked", "--json")
    told = jobevents("events", job_id, "--json")

    assert [0, 0, 0] == [dry.code, shown.code, done.code]
    assert (False, True) == (dry.json["is_done"], done.json["is_done"])
    assert dry.json["events"] == done.json["events"] > 0
    assert "nothing was removed; do it with --yes" in shown.err
    assert ["JobDeleted"] == [event["type"] for event in json.loads(told.out)]
    assert "asked" == done.json["reason"]
    assert [] == found_in(tmp_path, SECRET)


def test_old_histories_go_with_a_purge(jobevents: CommandLine) -> None:
    """Those of jobs deleted so long ago; counted first."""
    with connect("sqlite:///jobs.db?synchronous=normal") as jobs:
        gone, kept = lived(jobs), lived(jobs)
        jobs.delete(gone)

    dry = jobevents("purge", "--history-days", "0", "--json")
    young = jobevents("purge", "--history-days", "1", "--yes", "--json")
    done = jobevents("purge", "--history-days", "0", "--yes", "--json")
    again = jobevents("purge", "--history-days", "0", "--yes", "--json")

    assert [1, 0, 1, 0] == [
        dry.json["would_erase"],
        young.json["erased"],
        done.json["erased"],
        again.json["erased"],
    ]
    with connect("sqlite:///jobs.db?synchronous=normal") as jobs:
        assert ["JobDeleted"] == [event.type for event in jobs.history(gone)]
        assert len(jobs.history(kept)) > 3


@pytest.mark.parametrize("args", [["erase"], ["erase", "render-1", "--unfinished"]])
def test_a_command_that_names_nothing_is_used_wrongly(jobevents: CommandLine, args: list[str]) -> None:
    """It says what to name."""
    told = jobevents(*args)

    assert 2 == told.code
    assert "name the job, or give --unfinished" in told.err
