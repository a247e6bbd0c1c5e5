"""Lists over HTTP: pages by number and by cursor, from the index and from the table, with what they cost."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from jobevents import Status, connect, wiring
from jobevents.blobs import MemoryBlobs
from jobevents.jobs import Jobs
from jobevents.records import status_name
from jobevents.testing.faults import Call, FailingBlobs
from projections.api import create_app
from projections.api.listing import MAX_LAG
from projections.health import read_health
from projections.indexview import IndexView
from projections.sequences import Sizes
from tests.api import Past, project
from tests.bloblogs import bucket_jobs
from tests.clock import Clock
from tests.http import Client, client_of

pytest_plugins = ("tests.api_fixtures",)

KEYS = ["page", "per_page", "total", "total_pages", "has_prev", "has_next", "prev_page", "next_page", "from", "to"]


def submit(jobs: Jobs, count: int, *, first: int = 0, **options: Any) -> list[str]:
    """Queue jobs, each made a second after the one before; newest last."""
    numbers = range(first, first + count)
    ids = [f"j-20260801-{10 + n // 3600:02d}{n // 60 % 60:02d}{n % 60:02d}-{n:012x}" for n in numbers]
    for job_id in ids:
        jobs.submit("render", id=job_id, **options)
    return ids


def ids_in(answer: Any) -> list[str]:
    assert 200 == answer.status_code, answer.text
    return [one["job_id"] for one in answer.json()["items"]]


def followed(api: Client, query: str = "") -> Iterator[list[str]]:
    """Follow the cursors to the end."""
    cursor = ""
    while True:
        answer = api.get(f"/api/jobs?cursor={cursor}&{query}")
        yield ids_in(answer)
        cursor = answer.json()["cursor"]
        if not cursor:
            return


@pytest.fixture(params=["index", "table"])
def source(request: pytest.FixtureRequest) -> str:
    """Where lists come from."""
    return str(request.param)


def test_a_page_has_the_shape_of_the_kit(api: Client, jobs: Jobs, source: str) -> None:
    """The items and the ten keys of PageMeta in their order (behaviour S34), from wherever the list comes."""
    ids = submit(jobs, 25)
    if source == "index":
        project(jobs)

    answer = api.get("/api/jobs?page=2")

    body = answer.json()
    assert ["items", *KEYS] == list(body)[:11]
    assert [2, 20, 25, 2, True, False, 1, 3, 21, 25] == [body[key] for key in KEYS]
    assert ids[4::-1] == ids_in(answer)
    assert str(jobs.log.last_cursor()) == answer.headers["x-position"]


def test_no_jobs(api: Client) -> None:
    """Without jobs the items are an empty list, and never null."""
    body = api.get("/api/jobs").json()

    assert ([], 0, "") == (body["items"], body["total"], body["cursor"])


@pytest.mark.parametrize(
    ("query", "page", "per_page"),
    [
        ("page=0", 1, 20),
        ("page=-3", 1, 20),
        ("page=two", 1, 20),
        ("page=", 1, 20),
        ("page=1000000000000", 2, 20),
        (f"page={'9' * 5000}", 2, 20),
        ("per_page=1000000000", 1, 200),
        ("per_page=-1", 1, 200),
        ("per_page=0", 1, 200),
        ("per_page=7&page=3", 3, 7),
    ],
)
def test_pag_08_pages_that_nobody_has(
    query: str, page: int, per_page: int, api: Client, jobs: Jobs, source: str
) -> None:
    """A page that is no number is the first, one past the end the last; an answer never has more than 200 rows."""
    submit(jobs, 25)
    if source == "index":
        project(jobs)

    body = api.get(f"/api/jobs?{query}").json()

    assert (page, per_page) == (body["page"], body["per_page"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=failed", [1]),
        ("state=queued", [3, 2, 0]),
        ("queue=slow", [3, 2]),
        ("queue=slow&state=failed", []),
        ("command=mix", [3]),
        ("command=render&queue=slow", [2]),
        ("since=2026-08-01T12:02:00Z", [3, 2]),
        ("until=2026-08-01T12:00:30Z", [0]),
        ("since=2026-08-01T12:01:00Z&until=2026-08-01T14:02:00%2B02:00", [2, 1]),
        ("q=b", [3]),
        ("q=a-1", [1]),
    ],
)
def test_filters(query: str, expected: list[int], api: Client, jobs: Jobs, clock: Clock, source: str) -> None:
    """Each filter and their combinations, by page and by cursor, whether there is an index or not."""
    wanted = [
        ("a-0", "render", "default"),
        ("a-1", "render", "default"),
        ("a-2", "render", "slow"),
        ("b-3", "mix", "slow"),
    ]
    for job_id, name, queue in wanted:
        jobs.submit(name, id=job_id, queue=queue)
        clock.move(60)
    jobs.fail("a-1", "no disk")
    if source == "index":
        project(jobs)

    shown = [f"{'b' if n == 3 else 'a'}-{n}" for n in expected]
    assert shown == ids_in(api.get(f"/api/jobs?{query}"))
    assert shown == [one for part in followed(api, f"per_page=1&{query}") for one in part]


@pytest.mark.parametrize("query", ["", "queue=default", "state=queued"])
def test_pag_01_cursors_show_each_job_once(query: str, api: Client, jobs: Jobs, source: str) -> None:
    """While newer jobs come and older ones go, whatever is there throughout is seen exactly once."""
    ids = submit(jobs, 40)
    if source == "index":
        project(jobs)
    seen: list[str] = []
    for number, part in enumerate(followed(api, f"per_page=9&{query}")):
        seen += part
        submit(jobs, 3, first=1000 + 3 * number)
        jobs.delete(ids[number])
        if source == "index":
            project(jobs)

    throughout = set(ids[10:])
    assert len(seen) == len(set(seen))
    assert throughout <= set(seen)


def test_pag_02_equals_at_the_border(api: Client, jobs: Jobs, source: str) -> None:
    """Jobs of one second, in no order, come once each."""
    ids = [f"j-20260801-120000-{n * 7919 % 50:012x}" for n in range(50)]
    for job_id in ids:
        jobs.submit("render", id=job_id)
    if source == "index":
        project(jobs)

    seen = [
        one for part in followed(api, "per_page=7&queue=default" if source == "table" else "per_page=7") for one in part
    ]

    assert sorted(ids, reverse=True) == seen


def test_pag_05_one_bad_record(clock: Clock) -> None:
    """A status that cannot be read is left out of its page and named, with the reason; the others are shown."""
    blobs = MemoryBlobs(clock=clock)
    with connect("memory://", blobs=blobs, clock=clock) as jobs, client_of(create_app(jobs)) as api:
        ids = submit(jobs, 5)
        project(jobs)
        blobs.put(status_name(ids[1]), b"{not json")
        blobs.delete(status_name(ids[2]))

        body = api.get("/api/jobs?per_page=5").json()

    assert [ids[4], ids[3], ids[0]] == [one["job_id"] for one in body["items"]]
    assert [ids[2], ids[1]] == [one["job_id"] for one in body["left_out"]]
    assert all(one["reason"] for one in body["left_out"])
    assert (5, 1, 3) == (body["total"], body["from"], body["to"])


def test_a_list_says_how_fresh_it_is(api: Client, jobs: Jobs, clock: Clock) -> None:
    """A list from an index that is a little behind says up to when it has everything; who waits gets what they wrote."""
    submit(jobs, 2)
    project(jobs)
    through = next(one.complete_through for one in read_health(jobs.blobs) if one.view == "index")
    late = submit(jobs, 1, first=100)
    position = jobs.log.last_cursor()

    before = api.get("/api/jobs")
    clock.move(60)
    project(jobs)
    after = api.get(f"/api/jobs?wait_for={position}")

    assert (through, 2) == (datetime.fromisoformat(before.headers["x-complete-through"]), before.json()["total"])
    assert (late[0], "2026-08-01T12:01:00Z") == (ids_in(after)[0], after.headers["x-complete-through"])


def test_a_dead_projector_hides_nothing(api: Client, jobs: Jobs) -> None:
    """An index that has fallen far behind is passed over where there is a table."""
    submit(jobs, 2)
    project(jobs)
    jobs.submit_many([{"name": "render", "id": f"x-{n}"} for n in range(MAX_LAG + 1)])

    assert MAX_LAG + 3 == api.get("/api/jobs").json()["total"]


def test_an_index_that_is_left_alone_hides_nothing(api: Client, jobs: Jobs, clock: Clock) -> None:
    """Where nobody projects any more, the newest jobs are listed all the same, as they are now."""
    (first,) = submit(jobs, 1)
    project(jobs)
    (late,) = submit(jobs, 1, first=100)
    jobs.cancel(first)
    clock.move(60)

    listed = {one["job_id"]: one["state"] for one in api.get("/api/jobs").json()["items"]}

    assert {late: "queued", first: "canceled"} == listed


def test_statuses_that_are_behind_the_index(api: Client, jobs: Jobs, clock: Clock) -> None:
    """A page is as fresh as the older of both, as the answer says, and nothing old is shown for long."""
    (job_id,) = submit(jobs, 1)
    project(jobs)
    stored = int(jobs.log.last_cursor() or 0)
    jobs.cancel(job_id)
    began = clock()
    clock.move(5)
    wiring.projector(jobs, ["index"], leased=False).run_once()

    soon = api.get("/api/jobs")
    clock.move(60)
    later = api.get("/api/jobs")

    assert (began, str(stored)) == (
        datetime.fromisoformat(soon.headers["x-complete-through"]),
        soon.headers["x-position"],
    )
    assert ["canceled"] == [one["state"] for one in later.json()["items"]]
    assert str(jobs.log.last_cursor()) == later.headers["x-position"]


def test_an_index_of_another_log(jobs: Jobs, clock: Clock) -> None:
    """Without a table, an index that is ahead of the log is an error that says what to do."""
    with connect("memory://", blobs=jobs.blobs, clock=clock) as other, client_of(create_app(other)) as api:
        submit(jobs, 3)
        project(jobs)
        submit(other, 1)
        other.desk = None
        answer = api.get("/api/jobs")

    assert (500, "corrupt") == (answer.status_code, answer.json()["code"])
    assert "jobevents rebuild" in answer.json()["why"]


def test_without_index_and_table(clock: Clock) -> None:
    """Where there is neither, the answer says how to get an index."""
    with connect("memory://", clock=clock) as jobs, client_of(create_app(jobs)) as api:
        submit(jobs, 1)
        jobs.desk = None
        answer = api.get("/api/jobs")

    assert 404 == answer.status_code
    assert "jobevents project" in answer.json()["why"]


class Song(Status):
    """A service's record."""

    output_dir: str = ""


def test_service_fields_are_shown(jobs: Jobs, source: str) -> None:
    """An app that was given the service's record shows its fields in lists."""
    (job_id,) = submit(jobs, 1)
    with jobs.attempt(job_id) as attempt:
        attempt.annotate(output_dir="gs://songs/7")
    if source == "index":
        project(jobs)

    with client_of(create_app(jobs, record=Song)) as api:
        (item,) = api.get("/api/jobs").json()["items"]

    assert "gs://songs/7" == item["output_dir"]


@pytest.mark.parametrize("query", ["page=1", "page=17", "page=99999", "state=failed&page=2", "state=queued&cursor="])
def test_what_a_page_costs(query: str, clock: Clock) -> None:
    """Any page of any state reads the manifest, asks once more for changes, and reads two chunks and its statuses."""
    read: list[str] = []

    def note(call: Call) -> None:
        if call.method == "get":
            read.append(str(call.name))

    blobs = MemoryBlobs(clock=clock)
    with connect("memory://", blobs=blobs, clock=clock, inline=True) as jobs:
        ids = submit(jobs, 400)
        for job_id in ids[::3]:
            jobs.fail(job_id, "no disk")
        view = IndexView(blobs, sizes=Sizes(least=20, fill=40, most=80))
        view.take([jobs.emitter.load(job_id) for job_id in ids], int(jobs.log.last_cursor()))
        view.flush(everything=True)
    with connect("memory://", blobs=FailingBlobs(blobs, before=note), clock=clock) as copy:
        copy.desk = None
        copy.log.last_cursor = lambda: str(view.position())  # type: ignore[method-assign]  # a log of the same length
        with client_of(create_app(copy)) as api:
            answer = api.get(f"/api/jobs?per_page=20&{query}")

    kinds = [name.split("/")[-1] if "MANIFEST" in name or "status" in name else "chunk" for name in read]
    assert len(ids_in(answer)) == kinds.count("status.json")
    assert 2 >= kinds.count("chunk") > 0
    assert {"MANIFEST.json", "chunk", "status.json"} == set(kinds)
    assert 2 == kinds.count("MANIFEST.json")


def test_lists_of_the_past(api: Client, jobs: Jobs, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list shows jobs in the states that they had, those deleted since too; a log that is too long for that says so."""
    ids = submit(jobs, 3)
    clock.move(60)
    jobs.fail(ids[0], "no disk")
    jobs.delete(ids[1])

    then = api.get("/api/jobs?as_of=2026-08-01T12:00:30Z&state=queued")
    now = api.get("/api/jobs?state=queued")
    monkeypatch.setattr("projections.api.listing.MAX_PAST", 3)
    refused = api.get("/api/jobs?as_of=-1h")
    features = api.get("/api/features").json()

    assert (ids[::-1], "2026-08-01T12:00:30Z") == (ids_in(then), then.headers["x-complete-through"])
    assert [ids[2]] == ids_in(now)
    assert (400, "cannot_filter") == (refused.status_code, refused.json()["code"])
    assert not features["as_of"]["/api/jobs"]["available"]


def test_a_log_without_one_order() -> None:
    """A log on blobs answers for single jobs, and says what it cannot list."""
    with connect("memory://?log=blobs") as jobs, client_of(create_app(jobs)) as api:
        (job_id,) = submit(jobs, 1)

        paths = [
            "/api/projector",
            "/readyz",
            "/metrics",
            "/api/features",
            f"/api/jobs/{job_id}",
            f"/api/jobs/{job_id}/status",
        ]
        assert [200] * len(paths) == [api.get(path).status_code for path in paths]
        refused = [api.get(f"/api/{what}") for what in ("jobs?queue=default", "jobs?as_of=-1h", "stats", "queues")]

    assert [(400, "cannot_filter")] * 4 == [(one.status_code, one.json()["code"]) for one in refused]


@pytest.mark.parametrize(("order", "expected"), [("newest", "cba"), ("oldest", "abc"), ("ended", "ba"), ("", "cba")])
def test_lists_in_other_orders(order: str, expected: str, api: Client, jobs: Jobs, clock: Clock) -> None:
    """Page by page each job once; a cursor, which goes from the newest on, and the past have no other order."""
    ids = dict(zip("abc", submit(jobs, 3), strict=True))
    for which in "ab":
        clock.move(1)
        jobs.cancel(ids[which])

    pages = [api.get(f"/api/jobs?order={order}&per_page=2&page={page}") for page in (1, 2)][: 1 + (len(expected) > 2)]

    assert [ids[one] for one in expected] == [one for page in pages for one in ids_in(page)]
    assert {len(expected)} == {page.json()["total"] for page in pages}
    if order in ("oldest", "ended"):
        assert {""} == {page.json()["cursor"] for page in pages}
        for other in ("cursor=", "as_of=%231"):
            assert "cannot_filter" == api.get(f"/api/jobs?order={order}&{other}").json()["code"]


def test_a_search_finds_what_pages_find(api: Client, past: Past) -> None:
    """By the same text; an answer that stopped says where to go on, and what cannot be understood is refused with a hint."""

    def found(text: str, **values: str) -> Any:
        return api.get("/api/search", params={"q": text, **values})

    first = found("", limit="2")
    rest = found("", cursor=first.json()["cursor"])

    assert [past.failed, past.done] == ids_in(found("state:failed,succeeded -error:memory"))
    assert [past.failed] == ids_in(found('args.song:8,9 error:"no space"'))
    assert [past.waiting] == ids_in(found("-command:render"))
    assert [] == ids_in(found("state:other queue:slow"))
    assert [past.waiting, past.failed, past.done] == sorted_newest([*ids_in(first), *ids_in(rest)])
    assert (2, 1, "") == (first.json()["looked"], rest.json()["looked"], rest.json()["cursor"])
    assert 200 == api.get("/", params={"q": "state:other queue:slow", "as_of": "-1s"}).status_code
    assert 400 == found("disk OR memory").status_code
    assert "state:failed,canceled" in found("disk OR memory").text


def sorted_newest(ids: list[str]) -> list[str]:
    """Newest first."""
    return sorted(ids, key=lambda one: one.split("-")[2:], reverse=True)


def test_a_log_without_a_table_has_one_order(clock: Clock) -> None:
    """It says so, and so do the features."""
    with bucket_jobs(MemoryBlobs(), clock) as jobs, client_of(create_app(jobs)) as api:
        refused = api.get("/api/jobs?order=oldest").json()
        feature = api.get("/api/features").json()["filters"]["order"]

    assert ("cannot_filter", {"available": False, "reason": refused["why"]}) == (refused["code"], feature)
