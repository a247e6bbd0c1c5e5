"""Pages of statuses: what is shown, what is left out and said to be, and when a page is an error."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import Canceled, Corrupt, InvalidValue, NotFound, PermissionDenied, Unavailable
from jobevents.job import Job
from jobevents.records import status_bytes, status_name
from jobevents.status import Status
from jobevents.testing.faults import Call, FailingBlobs
from projections.indexview import IndexView
from projections.paging import PageMeta, adjust_item_count, select_ids
from projections.reader import LeftOut, Reader
from tests.records import Story

IDS = [f"job-20260101-0000{n:02d}-{n:012x}" for n in range(30)]
NEWEST = IDS[::-1]


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def save(blobs: Blobs, job: Job, prefix: str = "") -> None:
    blobs.put(f"{prefix}/{status_name(job.job_id)}".lstrip("/"), status_bytes(job))


def shown(blobs: Blobs, ids: list[str], *, prefix: str = "", states: str = "queued", **fields: Any) -> None:
    """Store the jobs in both views."""
    jobs = [Job(job_id=i, version=1, state=states, updated_at="2026-01-01T00:00:00Z", **fields) for i in ids]
    for job in jobs:
        save(blobs, job, prefix)
    view = IndexView(blobs, prefix)
    view.take(jobs, view.position() + 1)
    view.flush(everything=True)


def refusing(blobs: Blobs, errors: dict[str, Exception]) -> FailingBlobs:
    """Blobs in which reading the statuses of these jobs raises."""

    def before(call: Call) -> None:
        for job_id, error in errors.items():
            if call == Call("get", status_name(job_id)):
                raise error

    return FailingBlobs(blobs, before=before)


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
def test_a_page_has_its_statuses_in_order(kind: str, tmp_path: Path) -> None:
    """On every store a page is the statuses of the ids that select_ids chooses, below the prefix."""
    stores: dict[str, Callable[[], Blobs]] = {
        "memory": MemoryBlobs,
        "files": lambda: FileBlobs(tmp_path / "blobs"),
        "sqlite": lambda: SqliteBlobs(tmp_path / "blobs.db"),
    }
    blobs = stores[kind]()
    shown(blobs, IDS, prefix="tenant")

    page = Reader(blobs, "tenant").page("queued", 2, 7)

    ids, meta = select_ids(IDS, 2, 7)
    assert (ids, meta, []) == ([status.job_id for status in page.items], page.meta, page.left_out)
    blobs.close()


def test_statuses_have_the_service_s_type(blobs: MemoryBlobs) -> None:
    """Items are of the record type, service fields included."""
    shown(blobs, IDS[:1], fields={"output_dir": "gs://out"})

    items = Reader(blobs, type=Story).page().items

    assert [
        Story(job_id=IDS[0], state="queued", output_dir="gs://out", updated_at="2026-01-01T00:00:00Z", version=1)
    ] == items


def test_a_type_that_is_no_record_is_refused(blobs: MemoryBlobs) -> None:
    """A frozen or nested type is refused where the reader is made."""
    with pytest.raises(TypeError):
        Reader(blobs, type=dict)  # type: ignore[type-var]  # what is tested


def test_a_page_encodes_flat(blobs: MemoryBlobs) -> None:
    """As JSON a page is the items, the ten keys of the meta, and what was left out."""
    shown(blobs, IDS[:2])
    blobs.delete(status_name(IDS[0]))

    told = msgspec.json.encode(Reader(blobs).page("", 1, 20))

    item = f'{{"job_id":"{IDS[1]}","state":"queued","updated_at":"2026-01-01T00:00:00Z","version":1}}'
    meta = msgspec.json.encode(adjust_item_count(select_ids(IDS[:2], 1, 20)[1], 1)).decode()[1:-1]
    gone = f'{{"job_id":"{IDS[0]}","reason":"gone: deleted meanwhile, or its status is not written yet"}}'
    assert f'{{"items":[{item}],{meta},"left_out":[{gone}]}}' == told.decode()


def test_an_empty_page_is_empty(blobs: MemoryBlobs) -> None:
    """Without jobs a page is what an empty list's is: no items, no error."""
    page = Reader(blobs).page("failed", 3, 20)

    assert ([], select_ids([], 3, 20)[1], []) == (page.items, page.meta, page.left_out)
    assert b'{"items":[],"page":3,' == msgspec.json.encode(page)[:21]


def test_slices_show_every_job_once(blobs: MemoryBlobs) -> None:
    """Cursor to cursor, all statuses come once, newest first; those that cannot be read are named in their slice."""
    shown(blobs, IDS)
    reader = Reader(refusing(blobs, {IDS[3]: Unavailable("later")}))

    items, left_out, cursor = [], [], ""
    while True:
        found = reader.after(cursor, 7)
        items += [status.job_id for status in found.items]
        left_out += found.left_out
        cursor = found.cursor
        if not cursor:
            break

    assert [job_id for job_id in NEWEST if job_id != IDS[3]] == items
    assert [LeftOut(IDS[3], "later")] == left_out


def test_a_status_that_has_changed_is_shown_at_once(blobs: MemoryBlobs) -> None:
    """What is held in memory is never older than the blob."""
    shown(blobs, IDS[:2])
    reader = Reader(blobs)
    reader.page()

    save(blobs, Job(job_id=IDS[0], version=2, state="running", updated_at="2026-01-01T00:00:01Z"))

    assert ["queued", "running"] == [status.state for status in reader.page().items]


def test_a_status_that_has_not_changed_is_not_decoded_again(
    blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second page asks the store for changes alone; another copy is handed out, so that callers share nothing."""
    shown(blobs, IDS[:2])
    reader = Reader(blobs)
    first = reader.page()
    first.items[0].title = "mine"
    monkeypatch.setattr("projections.reader.decode", None)

    second = reader.page()

    assert ["", ""] == [status.title for status in second.items]


def test_statuses_in_memory_are_bounded(blobs: MemoryBlobs) -> None:
    """No more than so many statuses are held; the others are read again."""
    shown(blobs, IDS)
    reader = Reader(blobs, cached_statuses=5)

    assert NEWEST == [status.job_id for status in reader.page("", 1, 30).items]
    assert NEWEST == [status.job_id for status in reader.page("", 1, 30).items]
    assert 5 == len(reader._cache)


def test_statuses_are_read_at_the_same_time(blobs: MemoryBlobs) -> None:
    """Ten statuses are read at a time, so that a page of a distant store takes a tenth."""
    shown(blobs, IDS[:10])
    together = threading.Barrier(10)

    def before(call: Call) -> None:
        if call.name.endswith("status.json"):
            together.wait(30)

    assert 10 == len(Reader(FailingBlobs(blobs, before=before)).page().items)


def test_a_page_that_is_given_up_raises(blobs: MemoryBlobs) -> None:
    """`stop` ends a page and its error comes through."""
    shown(blobs, IDS)

    def stop() -> None:
        raise Canceled("enough")

    with pytest.raises(Canceled):
        Reader(blobs).page(stop=stop)


def test_pag_05_one_bad_record_leaves_the_others(blobs: MemoryBlobs, caplog: pytest.LogCaptureFixture) -> None:
    """PAG-05: of ten, one cut, one in an unknown state, one missing, one of wrong types, one 403: six are shown, four named."""
    ids = IDS[:10]
    shown(blobs, ids)
    blobs.put(status_name(ids[1]), b'{"job_id":"')
    blobs.put(
        status_name(ids[3]),
        b'{"job_id":"%s","state":"rendering","updated_at":"2026-01-01T00:00:00Z"}' % ids[3].encode(),
    )
    blobs.delete(status_name(ids[5]))
    blobs.put(status_name(ids[7]), b'{"job_id":7,"state":[],"updated_at":{}}')
    reader = Reader(refusing(blobs, {ids[9]: PermissionDenied("403")}))

    with caplog.at_level(logging.WARNING):
        page = reader.page("", 1, 20)

    assert [ids[n] for n in (8, 6, 4, 3, 2, 0)] == [status.job_id for status in page.items]
    assert "rendering" == page.items[3].state
    assert [ids[n] for n in (9, 7, 5, 1)] == [left.job_id for left in page.left_out]
    assert ["403", "gone"] == [page.left_out[0].reason, page.left_out[2].reason[:4]]
    assert all("unreadable" in page.left_out[n].reason for n in (1, 3))
    assert (1, 6, 10, 1) == (page.from_, page.to, page.total, page.total_pages)
    assert 4 == len(caplog.records)
    assert all(ids[n] in caplog.text for n in (9, 7, 5, 1))


@pytest.mark.parametrize("error", [Unavailable, PermissionDenied, Corrupt])
def test_pag_05_a_page_of_which_nothing_can_be_read_is_an_error(error: type[Exception], blobs: MemoryBlobs) -> None:
    """PAG-05: when all fail for one reason the page is that error, with the count and the first causes."""
    shown(blobs, IDS[:5])
    reader = Reader(refusing(blobs, {job_id: error("store says no") for job_id in IDS}))

    with pytest.raises(
        error,
        match=rf"count=5 first causes: job_id='{IDS[4]}' store says no; .*{IDS[2]}' store says no; .* cursor=\S+$",
    ):
        reader.page()
    with pytest.raises(error, match="count=2"):
        reader.after("", 2)


def test_a_page_that_fails_for_several_reasons_can_be_tried_again(blobs: MemoryBlobs) -> None:
    """Where one failure may pass, the page's error is that one; an error that is none of ours counts as such."""
    shown(blobs, IDS[:3])
    reader = Reader(refusing(blobs, {IDS[0]: OSError("disk"), IDS[1]: NotFound("gone"), IDS[2]: OSError("disk")}))
    mixed = Reader(
        refusing(blobs, {IDS[0]: Corrupt("bad"), IDS[1]: PermissionDenied("403"), IDS[2]: Unavailable("503")})
    )

    with pytest.raises(Unavailable, match="count=3"):
        reader.page()
    with pytest.raises(Unavailable, match="503"):
        mixed.page()


def test_a_page_whose_jobs_are_gone_is_no_error(blobs: MemoryBlobs) -> None:
    """Jobs that were deleted before the index was written are left out by name: nothing failed."""
    shown(blobs, IDS[:2])
    for job_id in IDS[:2]:
        blobs.delete(status_name(job_id))

    page = Reader(blobs).page()

    assert ([], 0, 0, 2) == (page.items, page.from_, page.to, page.total)
    assert NEWEST[-2:] == [left.job_id for left in page.left_out]


def test_an_index_that_cannot_be_read_is_an_error(blobs: MemoryBlobs) -> None:
    """Trouble with the index itself comes through as it is."""
    shown(blobs, IDS)

    with pytest.raises(Unavailable):
        Reader(FailingBlobs(blobs, at=1)).page()
    with pytest.raises(InvalidValue):
        Reader(blobs).page("no state")
    with pytest.raises(InvalidValue):
        Reader(blobs).after("no cursor")


def test_get_reads_one_status(blobs: MemoryBlobs) -> None:
    """A single status is the blob's; without one it is NotFound."""
    shown(blobs, IDS[:1], title="Song")
    reader = Reader(blobs)

    assert "Song" == reader.get(IDS[0]).title
    with pytest.raises(NotFound):
        reader.get(IDS[1])


def test_counts_come_with_the_pages(blobs: MemoryBlobs) -> None:
    """A reader tells how many jobs are in each state."""
    shown(blobs, IDS, states="failed")

    counts = Reader(blobs).counts()

    assert (30, 30, 0) == (counts["all"], counts["failed"], counts["queued"])


def test_meta_is_a_page_meta(blobs: MemoryBlobs) -> None:
    """The place of a page can be had as paging tells it, for links and further adjusting."""
    shown(blobs, IDS[:3])

    assert isinstance(Reader(blobs).page().meta, PageMeta)
    assert isinstance(Reader(blobs).page().items[0], Status)
