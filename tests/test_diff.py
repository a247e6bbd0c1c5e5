"""What differs and since when: a build beside the live views, promoted or dropped; views mended; two jobs side by side."""

from datetime import timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents import connect, wiring, wiring_builds
from jobevents.errors import InvalidValue, NotFound
from jobevents.events import Event, JobAnnotated, JobFailed, JobProgressed, JobQueued, JobStarted, JobSucceeded
from jobevents.job import DELETED, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from jobevents.testing.strategies import histories
from projections.bulk import Bulk
from projections.diff import Field, JobDiff, ViewsDiff, diff_indexes, diff_jobs, diff_statuses
from projections.rebuild import list_kept
from projections.statusswap import Place
from projections.verify import verify
from tests.clock import Clock
from tests.histories import make
from tests.jobstates import LIVES, bring, tell
from tests.tampering import Memory, altered
from tests.test_verify import put_status


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong here stays wrong: nothing is on its way."""
    monkeypatch.setattr("projections.secondlook.PATIENCE_S", 0.0)


@pytest.fixture
def lived(jobs: Jobs) -> Jobs:
    """A job of each life, one that ran to its end, and both views."""
    for life in LIVES:
        bring(jobs, life)
    job_id = jobs.submit("render", id="night-1", title="Song 7", actor="ana")
    tell(jobs, job_id, partial(JobStarted, attempt=1, actor="w1"))
    tell(jobs, job_id, partial(JobAnnotated, title="Song 8"), partial(JobSucceeded, start=2))
    project(jobs)
    return jobs


def project(jobs: Jobs) -> None:
    wiring.projector(jobs, leased=False).run_once()


def compare(jobs: Jobs, left: str, right: str) -> tuple[list[JobDiff], ViewsDiff]:
    """What differs between the views below two prefixes."""
    total = ViewsDiff()
    places = [Place(f"{root}/jobs/" if root else "jobs/") for root in (left, right)]
    with Bulk(jobs.blobs) as bulk:
        found = list(diff_statuses(jobs.log, jobs.blobs, bulk, *places, total, lambda: None))
    return found + list(diff_indexes(jobs.blobs, left, right)), total


def beside(jobs: Jobs) -> str:
    return f"rebuild/{wiring_builds.build_beside(jobs).build}"


def live(jobs: Jobs) -> dict[str, bytes]:
    """All live blobs of views."""
    return {entry.name: jobs.blobs.get(entry.name).data for entry in jobs.blobs.list("jobs/")}  # type: ignore[union-attr]


def test_a_build_of_right_views_is_the_same(lived: Jobs) -> None:
    """It stands beside the live views, which stay as they are."""
    before = live(lived)

    found, total = compare(lived, "", beside(lived))

    assert ([], ViewsDiff(compared=len(LIVES))) == (found, total)
    assert before == live(lived)


def test_what_differs_is_told_with_the_event_since_which(lived: Jobs) -> None:
    """A field and the event that made it so, for a status that is behind, and for one that says what no event said."""
    build = beside(lived)
    put_status(lived, "night-1", version=2)
    spoilt = next(job_id for job_id in ids(lived) if lived.get(job_id).state == "failed")
    name = status_name(spoilt)
    lived.blobs.put(name, live(lived)[name].replace(b'"boom"', b'"bang"'))

    found, total = compare(lived, "", build)

    assert ViewsDiff(compared=len(LIVES), differ=1, moved=1) == total
    assert [JobDiff(spoilt, "differs", "right", 3, 3, [Field("error", "bang", "boom", 3, "JobFailed")])] == found


def ids(jobs: Jobs) -> list[str]:
    return sorted({record.job_id for record in jobs.log.scan() if record.type == "JobQueued"} - deleted(jobs))


def deleted(jobs: Jobs) -> set[str]:
    return {record.job_id for record in jobs.log.scan() if record.type == "JobDeleted"}


def test_fields_that_came_with_several_events(lived: Jobs) -> None:
    """Of a status that is wrong in several ways, each field has its own event."""
    build = beside(lived)
    put_status(lived, "night-1", version=2)
    name = status_name("night-1")
    lived.blobs.put(name, live(lived)[name].replace(b'"render"', b'"mix"'))

    (found,) = compare(lived, "", build)[0]

    assert {"command": 1, "state": 4, "title": 3} == {field.name: field.version for field in found.fields}
    assert {("mix", "render"), ("running", "succeeded"), ("Song 7", "Song 8")} == {
        (f.left, f.right) for f in found.fields
    }


def test_jobs_that_are_only_on_one_side(lived: Jobs) -> None:
    build = beside(lived)
    lived.blobs.delete(status_name("night-1"))
    ghost = b'{"job_id":"ghost-1","state":"running","updated_at":"2026-07-26T12:00:31Z","version":5}'
    lived.blobs.put(status_name("ghost-1"), ghost)

    found, total = compare(lived, "", build)

    assert [("ghost-1", "only-left", "right"), ("night-1", "only-right", "right")] == [
        (one.job_id, one.kind, one.logged) for one in found
    ]
    assert (1, 1, 0) == (total.only_left, total.only_right, total.differ)


@pytest.mark.parametrize(("spoilt", "logged"), [(("",), "right"), (("new",), "left"), (("", "new"), "")])
def test_which_of_the_two_the_log_bears_out(lived: Jobs, spoilt: tuple[str, ...], logged: str) -> None:
    """Whichever was spoilt, the live view or the build, or both, is told apart by the log."""
    build = beside(lived)
    for where in spoilt:
        name = f"{build}/{status_name('night-1')}" if where else status_name("night-1")
        data = lived.blobs.get(name).data  # type: ignore[union-attr]
        lived.blobs.put(name, data.replace(b'"Song 8"', b'"Song 9"' if where else b'"Song 7"'))

    (found,) = compare(lived, "", build)[0]

    assert ("differs", logged) == (found.kind, found.logged)


def test_an_index_that_differs(lived: Jobs) -> None:
    """A job that came since the build was made is only in the live index, and its status has moved on."""
    build = beside(lived)
    lived.submit("render", id="new-1")
    lived.retry(next(one for one in ids(lived) if lived.get(one).state == "failed"))
    project(lived)

    found, total = compare(lived, "", build)

    index = {(one.fields[0].left, one.fields[0].right) for one in found if one.kind == "index"}
    assert ({("queued", None), ("queued", "failed")}, 1) == (index, total.moved)


def test_a_build_is_promoted_up_to_date_and_rolled_back(lived: Jobs) -> None:
    """What came since it was made is in it when it is swapped in; a roll-back puts back what it replaced."""
    kept = wiring_builds.build_beside(lived)
    name = status_name("night-1")
    wrong = live(lived)[name].replace(b'"Song 8"', b'"Song 9"')
    lived.blobs.put(name, wrong)
    lived.submit("render", id="new-1")
    project(lived)

    report = wiring_builds.promote(lived, kept.build)

    assert (1, len(LIVES)) == (report.replaced, report.same)
    assert verify(lived).is_right
    assert [] == list_kept(lived.blobs)
    assert wiring.roll_back(lived, kept.build)
    assert wrong == live(lived)[name]
    with pytest.raises(NotFound, match="rebuild --beside"):
        wiring_builds.promote(lived, kept.build)


def test_a_build_of_one_view_is_promoted_alone(lived: Jobs) -> None:
    kept = wiring_builds.build_beside(lived, ["index"])
    lived.blobs.delete(status_name("night-1"))

    report = wiring_builds.promote(lived, kept.build)

    assert (0, len(LIVES)) == (report.statuses, report.indexed)
    assert status_name("night-1") not in live(lived)


def test_a_build_is_dropped_and_no_other(lived: Jobs, clock: Clock) -> None:
    """Dropped, nothing is left of it; a rebuild leaves those that are kept, too."""
    first = wiring_builds.build_beside(lived)
    clock.now += timedelta(days=1)
    second = wiring_builds.build_beside(lived)
    clock.now += timedelta(days=1)
    wiring.rebuild(lived)
    assert [first.build, second.build] == [one.build for one in list_kept(lived.blobs)]

    wiring_builds.drop(lived, first.build)

    assert [second] == list_kept(lived.blobs)
    assert [] == list(lived.blobs.list(f"rebuild/{first.build}/"))
    with pytest.raises(NotFound):
        wiring_builds.drop(lived, first.build)


def test_only_what_is_wrong_is_mended(lived: Jobs) -> None:
    """A status behind, one missing, one of no job, one that says something else: right again, and no other was written."""
    others = [next(one for one in ids(lived) if lived.get(one).state == state) for state in ("queued", "failed")]
    put_status(lived, "night-1", version=2)
    lived.blobs.delete(status_name(others[0]))
    lived.blobs.put(
        status_name(others[1]), live(lived)[status_name(others[1])].replace(b'"attempts":', b'"attempts":9')
    )
    ghost = b'{"job_id":"ghost-1","state":"running","updated_at":"2026-07-26T12:00:31Z","version":5}'
    lived.blobs.put(status_name("ghost-1"), ghost)
    before = generations(lived)

    mended = wiring_builds.mend(lived, verify(lived))

    after = generations(lived)
    assert (3, 1, 0) == (mended.replaced, mended.removed, mended.indexed)
    assert verify(lived).is_right
    wrong = {status_name(one) for one in ("night-1", "ghost-1", *others)}
    assert wrong == {name for name in {**before, **after} if before.get(name) != after.get(name)}
    assert 2 == wiring.roll_back(lived, mended.build)  # not the status that was behind: what is newer stays
    assert ghost == live(lived)[status_name("ghost-1")]


def generations(jobs: Jobs) -> dict[str, str]:
    return {entry.name: entry.generation for entry in jobs.blobs.list("jobs/")}


def test_an_index_is_mended(lived: Jobs) -> None:
    lived.blobs.put(
        "index/v1/MANIFEST.json", msgspec.json.encode({"position": int(lived.log.last_cursor()), "code": 1})
    )
    assert {"absent"} == {flaw.kind for flaw in verify(lived).flaws}

    assert len(LIVES) == wiring_builds.mend(lived, verify(lived)).indexed

    assert verify(lived).is_right


def test_what_puts_the_log_in_doubt_is_left_alone(clock: Clock) -> None:
    """A status made of a history that was rewritten, and one of a job whose history is not right, are evidence."""
    with connect("memory://", clock=clock, actor="ana") as jobs:
        for job_id in ("a-1", "b-1"):
            jobs.submit("render", id=job_id)
            tell(jobs, job_id, partial(JobStarted, attempt=1, actor="w1"))
            tell(jobs, job_id, partial(JobSucceeded, start=2, actor="w1"))
        project(jobs)
        Memory(jobs).replace("a-1", 3, altered(jobs, "a-1", 3, sealed=True))
        Memory(jobs).replace("b-1", 2, altered(jobs, "b-1", 2))
        jobs.blobs.delete(status_name("b-1"))
        before = generations(jobs)

        with pytest.raises(InvalidValue, match="puts the log itself in doubt"):
            wiring_builds.mend(jobs, verify(jobs))

        assert before == generations(jobs)


@given(histories(min_size=2), st.data())
def test_the_event_that_is_named_is_the_one_since_which_history_says_so(
    events: list[Event], data: st.DataObject
) -> None:
    """A field's event is the one with which the job came to say what the right side says, for the last time; it says so after
    it, and did not before."""
    if fold(events).state == DELETED:
        return
    with connect("memory://") as jobs:
        for event in events:
            jobs.log.append([msgspec.structs.replace(event, id=f"{event.version}")])
        behind = msgspec.json.decode(status_bytes(fold(events[: data.draw(st.integers(1, len(events)))])))
        jobs.blobs.put("left/jobs/job-1/status.json", msgspec.json.encode({**behind, "title": "by hand"}))
        jobs.blobs.put("right/jobs/job-1/status.json", status_bytes(fold(events)))

        found, total = compare(jobs, "left", "right")

    says = [msgspec.json.decode(status_bytes(fold(events[:n]))) for n in range(1, len(events) + 1)]
    assert 1 == total.differ
    for field in found[0].fields:
        assert field.right == says[-1].get(field.name) == says[field.version - 1].get(field.name)
        assert field.version == 1 or says[field.version - 2].get(field.name) != field.right
        assert field.type == events[field.version - 1].type


queued = partial(make, JobQueued, version=1, name="render")


def test_two_jobs_part_where_they_did_not_do_the_same() -> None:
    """What they were given, progress, and who did it do not count; the first event that they do not share is told."""
    left = [
        queued("a", params={"song": 7}, actor="ana"),
        make(JobStarted, "a", 2, attempt=1, worker="w1"),
        make(JobProgressed, "a", 3, start=2, percent=40),
        make(JobSucceeded, "a", 4, start=2, result={"n": 1}),
    ]
    right = [
        queued("b", params={"song": 8}, actor="bob"),
        make(JobStarted, "b", 2, attempt=1, worker="w2"),
        make(JobFailed, "b", 3, start=2, error="disk full", kind="OSError"),
    ]

    found = diff_jobs(left, right)

    assert (2, left[3], right[2]) == (found.same, found.left, found.right)
    told = {field.name: (field.left, field.right) for field in found.fields}
    assert ("succeeded", "failed") == told["state"]
    assert ({"song": 7}, {"song": 8}) == told["params"]
    assert {"job_id", "worker", "chain"}.isdisjoint(told)


def test_a_job_is_the_same_as_itself_and_longer_than_its_past() -> None:
    events = [queued("a"), make(JobStarted, "a", 2, attempt=1)]

    assert (2, None, None, []) == tuple(
        getattr(diff_jobs(events, events), name) for name in ("same", "left", "right", "fields")
    )
    assert (1, events[1], None) == tuple(
        getattr(diff_jobs(events, events[:1]), name) for name in ("same", "left", "right")
    )
