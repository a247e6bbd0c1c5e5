"""The promises of RunTable and LogTable, and of writing a row with its events, for every backend that has them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import IntegrityError, Tracking

from jobevents.backends.memory import MemoryRecorder
from jobevents.backends.sqlite import SqliteRecorder
from jobevents.errors import Conflict, KeyTaken
from jobevents.events import (
    CancelRequested,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobStarted,
    JobSucceeded,
)
from jobevents.job import fold
from jobevents.store import JobLog, JobRun, RunError, RunFilter, run_of
from tests.histories import AT, JOB, blank, ids, make, queued, stored, write

Recorder = SqliteRecorder | MemoryRecorder


@pytest.fixture(params=["memory", "sqlite"])
def recorder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorder]:
    made = MemoryRecorder() if request.param == "memory" else SqliteRecorder.open(tmp_path / "jobs.db")
    yield made
    made.close()


def line(seq: int, run_id: str = JOB, **fields: Any) -> JobLog:
    return JobLog(**{"run_id": run_id, "seq": seq, "attempt": 1, "at": AT, "level": "info", "message": "m", **fields})


def listed(recorder: Recorder, **fields: Any) -> list[str]:
    return [run.id for run in recorder.runs.list(RunFilter(**fields)).runs]


def minutes(n: int) -> datetime:
    return AT + timedelta(minutes=n)


def test_row_holds_every_field_of_the_job(recorder: Recorder) -> None:
    """What went into the events comes out of the row, values and types."""
    write(
        recorder,
        queued(
            params={"song": 7, "ö": [1.5, None, True]},
            queue="slow",
            key="k-7",
            trigger="replay",
            actor="ann",
            scheduled_at=minutes(1),
            max_attempts=3,
            priority=4,
            replay_of="old",
            root_id="first",
        ),
        make(JobStarted, version=2, attempt=1, worker="w1", at=minutes(2)),
        make(JobProgressed, version=3, start=2, percent=40.5, message="mixing", at=minutes(3)),
        make(CancelRequested, version=4, actor="bob", reason="wrong song", at=minutes(4)),
        make(JobSucceeded, version=5, start=2, result={"url": "x"}, at=minutes(5)),
    )

    assert JobRun(
        id=JOB,
        job_name="render",
        queue="slow",
        params={"song": 7, "ö": [1.5, None, True]},
        status="succeeded",
        trigger="replay",
        triggered_by="ann",
        idem_key="k-7",
        attempt=1,
        max_attempts=3,
        scheduled_at=minutes(1),
        started_at=minutes(2),
        finished_at=minutes(5),
        duration_ms=180_000,
        progress=40.5,
        progress_message="mixing",
        result={"url": "x"},
        worker_id="w1",
        cancel_requested_at=minutes(4),
        canceled_by="bob",
        cancel_reason="wrong song",
        replay_of="old",
        root_id="first",
        created_at=AT,
        updated_at=minutes(5),
        priority=4,
    ) == recorder.runs.get(JOB)


def test_row_is_what_run_of_makes(recorder: Recorder) -> None:
    """A table gives the same run as the pure function, whatever the state."""
    job = write(recorder, queued(), make(JobStarted, version=2, attempt=1, worker="w"))
    job = write(recorder, make(JobFailed, version=3, start=2, error="no disk", kind="OSError", retry_at=AT), job=job)

    assert run_of(job) == recorder.runs.get(JOB)
    assert RunError(code="OSError", message="no disk") == run_of(job).error


def test_json_has_the_keys_of_m2_in_order(recorder: Recorder) -> None:
    """Behaviour M2: these keys stand there always, in this order; the others only when they say something."""
    write(recorder, queued())

    run = msgspec.json.decode(msgspec.json.encode(recorder.runs.get(JOB)))

    always = (
        "id job_name queue status trigger attempt max_attempts scheduled_at duration_ms progress created_at updated_at"
    )
    assert always.split() == [key for key in run if key != "root_id"]


def test_every_key_of_m2_is_a_field() -> None:
    """Behaviour M2: the order of all keys; ours come after them."""
    m2 = """
        id job_name queue params status trigger triggered_by idem_key attempt max_attempts scheduled_at started_at
        finished_at duration_ms progress progress_message result error worker_id capture_logs cancel_requested_at
        canceled_by cancel_reason replay_of root_id created_at updated_at
    """

    assert [*m2.split(), "priority", "external"] == list(JobRun.__struct_fields__)


@pytest.mark.parametrize(
    ("events", "attempt"),
    [
        ([], 1),
        ([make(JobStarted, version=2, attempt=1)], 1),
        ([make(JobStarted, version=2, attempt=1), make(JobFailed, version=3, start=2, error="e", retry_at=AT)], 2),
        ([make(JobStarted, version=2, attempt=1), make(JobFailed, version=3, start=2, error="e")], 1),
    ],
    ids=["queued", "running", "waiting for its second try", "failed"],
)
def test_attempt_is_the_try_under_way_or_the_next_one(recorder: Recorder, events: list[Any], attempt: int) -> None:
    """Running and final rows show their try, a queued one the try to come."""
    write(recorder, queued(), *events)

    run = recorder.runs.get(JOB)

    assert run is not None
    assert attempt == run.attempt


def test_job_nobody_queued_has_a_row(recorder: Recorder) -> None:
    """A stream that begins with JobStarted has a row without a name."""
    write(recorder, make(JobStarted, attempt=1, worker="w"))

    run = recorder.runs.get(JOB)

    assert run is not None
    assert ("", "running", AT) == (run.job_name, run.status, run.scheduled_at)


def test_record_with_a_time_that_is_none_has_a_row(recorder: Recorder) -> None:
    """A foreign record's odd `updated_at` does not keep its job out of the table."""
    write(recorder, make(JobRecorded, state="paused", changes={"updated_at": "yesterday"}))

    run = recorder.runs.get(JOB)

    assert run is not None
    assert "paused" == run.status


def test_unknown_job_has_no_row(recorder: Recorder) -> None:
    """Get of an id never seen is None."""
    assert recorder.runs.get("nobody") is None


def test_row_of_a_higher_version_stays(recorder: Recorder) -> None:
    """A late writer's copy never replaces a newer row."""
    older = write(recorder, queued())
    write(recorder, make(JobStarted, version=2, attempt=1), job=older)

    recorder.insert_events([], rows=[older])

    run = recorder.runs.get(JOB)
    assert run is not None
    assert "running" == run.status


def test_refused_event_writes_no_row(recorder: Recorder) -> None:
    """Events and rows are one unit: when the event's place is taken, the row stays as it was."""
    job = write(recorder, queued())

    with pytest.raises(IntegrityError):
        recorder.insert_events([blank()], rows=[fold([make(JobStarted, version=2, attempt=1)], job)])

    assert run_of(job) == recorder.runs.get(JOB)


def test_refused_tracking_writes_no_row(recorder: Recorder) -> None:
    """Tracking is in the same unit too."""
    recorder.insert_tracking(Tracking("view", 5))

    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(queued())], rows=[fold([queued()])], tracking=Tracking("view", 5))

    assert (None, []) == (recorder.runs.get(JOB), recorder.select_events(JOB))


def test_taken_key_is_refused_with_its_holder(recorder: Recorder) -> None:
    """KeyTaken names the unfinished job that holds the key, and nothing of the call is written."""
    write(recorder, queued("first", key="k"))

    with pytest.raises(KeyTaken) as caught:
        write(recorder, queued("second", key="k"))

    assert ("first", "k") == (caught.value.job_id, caught.value.key)
    assert (None, []) == (recorder.runs.get("second"), recorder.select_events("second"))


def test_one_key_twice_in_a_call_is_refused(recorder: Recorder) -> None:
    """The first of the call holds the key against the second; neither is written."""
    both = [queued("first", key="k"), queued("second", key="k")]

    with pytest.raises(KeyTaken) as caught:
        recorder.insert_events([stored(event) for event in both], rows=[fold([event]) for event in both])

    assert "first" == caught.value.job_id
    assert recorder.runs.get("first") is None


def test_key_is_free_when_its_job_is_final(recorder: Recorder) -> None:
    """Behaviour T18: a finished job never holds a key."""
    write(recorder, queued("first", key="k"), make(JobCanceled, "first", 2))

    write(recorder, queued("second", key="k"))

    assert "second" == recorder.runs.find_active("render", "k")


def test_key_is_free_when_its_job_is_deleted(recorder: Recorder) -> None:
    """A deleted job holds nothing."""
    write(recorder, queued("first", key="k"), make(JobDeleted, "first", 2))

    assert recorder.runs.find_active("render", "k") is None
    write(recorder, queued("second", key="k"))


def test_key_may_pass_on_in_one_call(recorder: Recorder) -> None:
    """Rows are written in their order: one that lets the key go, then one that takes it."""
    held = write(recorder, queued("first", key="k"))
    gone, taker = make(JobDeleted, "first", 2), queued("second", key="k")

    recorder.insert_events([stored(gone), stored(taker)], rows=[fold([gone], held), fold([taker])])

    assert "second" == recorder.runs.find_active("render", "k")


def test_late_row_does_not_claim_its_old_key(recorder: Recorder) -> None:
    """A stale copy of a row changes nothing, though its key is another's by now."""
    stale = write(recorder, queued("first", key="k"))
    write(recorder, make(JobCanceled, "first", 2), job=stale)
    write(recorder, queued("second", key="k"))

    recorder.insert_events([], rows=[stale])

    assert "second" == recorder.runs.find_active("render", "k")


def test_key_belongs_to_one_kind_of_job(recorder: Recorder) -> None:
    """Two kinds of job may use the same key at once."""
    write(recorder, queued("a", key="k", name="render"))
    write(recorder, queued("b", key="k", name="master"))

    assert ["a", "b"] == [recorder.runs.find_active(name, "k") for name in ("render", "master")]


def test_own_key_is_no_conflict(recorder: Recorder) -> None:
    """A job that holds a key may go on."""
    write(recorder, queued(key="k"), make(JobStarted, version=2, attempt=1))

    assert recorder.runs.find_active("render", "k") == JOB


def test_empty_key_is_no_key(recorder: Recorder) -> None:
    """Any number of jobs have none, and it finds nobody."""
    write(recorder, queued("a"))
    write(recorder, queued("b"))

    assert recorder.runs.find_active("render", "") is None


def test_deleted_job_leaves_neither_row_nor_lines(recorder: Recorder) -> None:
    """The tombstone takes both away in its own transaction."""
    job = write(recorder, queued())
    recorder.run_logs.append_logs([line(1)])

    write(recorder, make(JobDeleted, version=2), job=job)

    assert (None, []) == (recorder.runs.get(JOB), recorder.run_logs.logs(JOB))


def test_late_lines_of_a_deleted_job_are_dropped(recorder: Recorder) -> None:
    """A worker that writes on does not bring a part of the job back (STO-01)."""
    write(recorder, queued(), make(JobDeleted, version=2))

    recorder.run_logs.append_logs([line(1), line(1, "other")])

    assert [0, 1] == [len(recorder.run_logs.logs(run_id)) for run_id in (JOB, "other")]


def test_list_is_newest_first_by_the_time_in_the_id(recorder: Recorder) -> None:
    """Behaviour S21: by sort key descending, then id descending; ids without a key come last."""
    expected = ["b-20260727-000000-0", "c-20260726-000000-0", "a-20260726-000000-0", "zz", "b_", "b-"]
    for job_id in sorted(expected):
        write(recorder, queued(job_id))

    assert expected == listed(recorder)


def test_list_filters(recorder: Recorder) -> None:
    """Behaviour T17: by kind, any of the states, trigger and queue, all at once."""
    write(recorder, queued("a"))
    write(recorder, queued("b", name="master", trigger="schedule"))
    write(recorder, queued("c", queue="slow"), make(JobStarted, "c", 2, attempt=1))

    assert ["c", "a"] == listed(recorder, job="render")
    assert ["b", "a"] == listed(recorder, statuses=("queued", "failed"))
    assert ["b"] == listed(recorder, trigger="schedule")
    assert ["c"] == listed(recorder, queue="slow")
    assert [] == listed(recorder, queue="slow", statuses=("queued",))


def test_list_takes_the_instants_at_both_ends(recorder: Recorder) -> None:
    """Behaviour T17: from and to are inclusive."""
    for n in range(4):
        write(recorder, queued(f"j{n}", at=minutes(n)))

    assert ["j2", "j1"] == listed(recorder, from_=minutes(1), to=minutes(2))


def test_list_pages(recorder: Recorder) -> None:
    """Behaviour T17: the total counts all matches; a page past the end is empty."""
    for n in range(5):
        write(recorder, queued(f"j{n}"))

    pages = [recorder.runs.list(RunFilter(page=n, per_page=2)) for n in (1, 3, 4)]

    assert [["j4", "j3"], ["j0"], []] == [[run.id for run in page.runs] for page in pages]
    assert [(5, 1, 2), (5, 3, 2), (5, 4, 2)] == [(page.total, page.page, page.per_page) for page in pages]


@pytest.mark.parametrize(("page", "per_page"), [(0, 50), (-1, 50), (7, 0), (1, -1)])
def test_odd_page_numbers_mean_the_first_or_all(recorder: Recorder, page: int, per_page: int) -> None:
    """A page below 1 is the first; without a size all are on one."""
    for n in range(3):
        write(recorder, queued(f"j{n}"))

    assert ["j2", "j1", "j0"] == listed(recorder, page=page, per_page=per_page)


def test_running_ids_are_sorted_and_of_one_kind(recorder: Recorder) -> None:
    """Behaviour T19."""
    for job_id in ("b", "c", "a"):
        write(recorder, queued(job_id), make(JobStarted, job_id, 2, attempt=1))
    write(recorder, queued("d"))
    write(recorder, queued("e", name="master"), make(JobStarted, "e", 2, attempt=1))

    assert ["a", "b", "c"] == list(recorder.runs.running_ids("render"))


def test_lines_come_back_whole_and_ascending_across_attempts(recorder: Recorder) -> None:
    """Behaviour T23, T33: order is by seq, whatever the order they were written in."""
    written = [line(1_000_000, attempt=2, attrs={"a": [1, {"b": None}]}), line(2), line(1, level="warn", message="ö\n")]

    recorder.run_logs.append_logs(written)

    assert written[::-1] == recorder.run_logs.logs(JOB)


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [(0, 0, [1, 2, 3]), (1, 0, [2, 3]), (0, 2, [1, 2]), (1, 1, [2]), (3, 5, []), (0, -1, [1, 2, 3])],
)
def test_lines_after_a_seq(recorder: Recorder, after: int, limit: int, expected: list[int]) -> None:
    """Behaviour T23: seq above the cursor, at most `limit`, 0 or less for all."""
    recorder.run_logs.append_logs([line(seq) for seq in (1, 2, 3)])

    assert expected == [found.seq for found in recorder.run_logs.logs(JOB, after, limit)]


def test_no_lines_are_a_no_op(recorder: Recorder) -> None:
    """Behaviour T22."""
    recorder.run_logs.append_logs([])

    assert [] == recorder.run_logs.logs(JOB)


def test_lines_written_twice_are_there_once(recorder: Recorder) -> None:
    """After an unknown outcome a batch may be sent again; what is there already stays as it is."""
    recorder.run_logs.append_logs([line(1)])

    recorder.run_logs.append_logs([line(1, message="other"), line(2)])

    assert [line(1), line(2)] == recorder.run_logs.logs(JOB)


def test_tim_02_one_instant_in_three_spellings(recorder: Recorder) -> None:
    """TIM-02: jobs made at one instant, written in three zones, are equal in order, filters and what comes back."""
    spellings = ["2026-07-26T13:30:00-08:00", "2026-07-26T22:30:00+01:00", "2026-07-26T21:30:00+00:00"]
    for n, text in enumerate(spellings):
        when = datetime.fromisoformat(text)
        write(recorder, queued(f"j{n}", at=when, scheduled_at=when))
    instant = datetime.fromisoformat(spellings[2])

    runs = recorder.runs.list(RunFilter(from_=instant, to=datetime.fromisoformat(spellings[0]))).runs

    assert ["j2", "j1", "j0"] == [run.id for run in runs]
    assert {instant} == {time for run in runs for time in (run.created_at, run.scheduled_at, run.updated_at)}
    assert all(run.created_at.utcoffset() == timedelta(0) for run in runs)


def test_tim_03_fractions_of_any_width(recorder: Recorder) -> None:
    """TIM-03: cutoffs follow the instants, however many digits a fraction has."""
    micros = [0, 100_000, 150_000, 500_000, 500_001, 999_999]
    for n, micro in enumerate(micros):
        write(recorder, queued(f"j{n}", at=AT.replace(microsecond=micro)))

    until = [len(listed(recorder, to=AT.replace(microsecond=micro))) for micro in micros]
    since = [len(listed(recorder, from_=AT.replace(microsecond=micro))) for micro in micros]

    assert ([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]) == (until, since)


def test_naive_time_is_refused(recorder: Recorder) -> None:
    """TIM-01: a time without a zone means two things; nothing is written."""
    naive = datetime(2026, 7, 26, 12, 0)

    with pytest.raises(ValueError, match="zone"):
        recorder.run_logs.append_logs([line(1, at=naive)])
    with pytest.raises(ValueError, match="zone"):
        recorder.runs.list(RunFilter(to=naive))


def test_subscription_takes_up_where_asked_and_waits_for_more(recorder: Recorder) -> None:
    """Events after the cursor come first, then new ones."""
    recorder.insert_events([blank(version=1), blank(version=2)])
    with recorder.subscribe(gt=1) as tail:
        second = next(tail)
        recorder.insert_events([blank(version=3)])
        third = next(tail)

    assert [2, 3] == ids([second, third])


def test_filtered_subscription_passes_over_other_topics(recorder: Recorder) -> None:
    """Only the topics asked for come, past thousands of others."""
    recorder.insert_events([blank(version=n) for n in range(1, 1200)])
    with recorder.subscribe(topics=["wanted"]) as tail:
        recorder.insert_events([blank(version=1200, topic="wanted")])

        assert 1200 == next(tail).id


def test_close_ends_subscriptions(recorder: Recorder) -> None:
    """An iteration over a closed recorder stops."""
    tail = recorder.subscribe()

    recorder.close()

    assert [] == list(tail)


def test_conflict_translates(recorder: Recorder) -> None:
    """The library's IntegrityError is a Conflict to callers; our own errors come back as they are."""
    ours = KeyTaken("taken", job_id="j", key="k")

    assert Conflict is type(recorder.translate(IntegrityError("taken")))
    assert ours is recorder.translate(ours)


def test_unknown_keywords_are_passed_over(recorder: Recorder) -> None:
    """As the library's recorders do."""
    assert [1] == recorder.insert_events([blank()], something="else")


def test_first_event_makes_a_job_queued() -> None:
    """The histories of these tests begin as jobs do."""
    assert isinstance(queued(), JobQueued)
