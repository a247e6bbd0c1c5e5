"""An event that this version cannot read, such as of a newer one in a rolling upgrade: it hides its own job, and no other."""

from html import unescape

import pytest

from jobevents import codec
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.records import status_name
from tests.api import Past, fill, project
from tests.http import Client

pytest_plugins = ("tests.api_fixtures",)

WHY = "event type unknown to this version type=JobTeleported"


def teleport(jobs: Jobs, job_id: str, type: bytes = b"JobTeleported") -> int:
    """Append an event that a later version knows, with a valid chain; return its version."""
    head = jobs.log.head(job_id)
    version = head.version + 1
    body = b'{"type":"%s","job_id":"%s","version":%d,"id":"x","at":"2026-08-01T12:00:00Z","percent":"s3cr3t"}' % (
        type,
        job_id.encode(),
        version,
    )
    data = codec.seal(body, codec.link(head.chain, body))
    jobs.log.restore([Record("", job_id, version, type.decode(), data)], heads={job_id: head})
    return version


@pytest.mark.parametrize("is_projected", [True, False])
def test_the_other_jobs_are_shown(api: Client, past: Past, jobs: Jobs, is_projected: bool) -> None:
    """Lists and every page go on; the job is named with the reason, or shown as its view last had it."""
    project(jobs)
    teleport(jobs, past.waiting)
    if is_projected:
        project(jobs)

    for path in ("/", "/overview", "/queues", "/workers", "/schedules", "/projector", "/audit", "/api/jobs"):
        assert 200 == api.get(path).status_code, path
    said = unescape(api.get("/").text)
    assert past.done in said
    assert past.waiting in said
    if jobs.log.ordered:
        assert WHY in said


@pytest.mark.parametrize("what", ["event", "status"])
def test_pag_05_a_page_of_nothing_else_is_an_error(api: Client, past: Past, jobs: Jobs, what: str) -> None:
    """By page, by cursor and as a page for people: never empty, with the reason, and with how to go on behind it."""
    project(jobs)
    if what == "event":
        teleport(jobs, past.failed)
    else:
        jobs.blobs.put(jobs.blob_name(status_name(past.failed)), b"{no json")
    queries = [""] if what == "status" else ["&command=render"]  # of the index, whose items are statuses; of the table

    for query in (*queries, *(f"{one}&cursor=" for one in queries)):
        answer = api.get(f"/api/jobs?state=failed{query}")
        assert (500, "corrupt") == (answer.status_code, answer.json()["code"])
        assert past.failed in answer.json()["why"]
        behind = {"state": "failed", "cursor": answer.json()["why"].rpartition("cursor=")[2]}
        assert [] == api.get("/api/jobs", params=behind).json()["items"]
    for search in ("state:failed", "state:failed worker:w2") if what == "event" else ("state:failed",):
        page = api.get("/", params={"q": search})
        assert 500 == page.status_code
        assert past.failed in page.text
        assert "no status of the page could be read" in page.text


def test_a_search_that_looks_at_titles_names_it(api: Client, past: Past, jobs: Jobs) -> None:
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    teleport(jobs, past.waiting)

    answer = api.get("/", params={"q": "Song"})

    assert 200 == answer.status_code
    assert past.done in answer.text
    assert WHY in unescape(answer.text)


def test_the_events_that_can_be_read_are_shown(api: Client, past: Past, jobs: Jobs) -> None:
    """With what cannot, and why; the answers of several requests have each event once."""
    version = teleport(jobs, past.done)

    found = api.get(f"/api/jobs/{past.done}/events").json()
    one = api.get(f"/api/jobs/{past.done}/events?after={version - 1}&limit=1").json()
    after = api.get(f"/api/jobs/{past.done}/events?after={version}").json()

    assert [*range(1, version)] == [event["version"] for event in found["items"]]
    assert [(version, "JobTeleported")] == [(lost["version"], lost["type"]) for lost in found["unreadable"]]
    assert WHY in found["unreadable"][0]["why"]
    assert (version, False, version) == (found["version"], found["has_more"], one["version"])
    assert ([], [], version) == (after["items"], after["unreadable"], after["version"])
    assert "JobTeleported" in api.get(f"/jobs/{past.done}/event?version={version}").text


def test_the_page_of_such_a_job(api: Client, past: Past, jobs: Jobs) -> None:
    """It has all events, the unreadable one with its reason, and leads to how the job was before."""
    version = teleport(jobs, past.done)

    now = api.get(f"/jobs/{past.done}")
    before = api.get(f"/jobs/{past.done}?at={version - 1}")

    assert (200, 200) == (now.status_code, before.status_code)
    said = unescape(now.text)
    assert WHY in said
    assert "1 event of this job cannot be read" in said
    assert "JobSucceeded" in said
    assert f"?at={version - 1}" in said
    assert f"As of event <b>#{version - 1}</b> of {version}" in before.text


def test_a_job_of_which_nothing_can_be_read(api: Client, jobs: Jobs) -> None:
    fill(jobs)
    teleport(jobs, "new-20260801-110009-dddddddddddd")

    answer = api.get("/jobs/new-20260801-110009-dddddddddddd")

    assert 200 == answer.status_code
    assert WHY in unescape(answer.text)


def test_nothing_of_the_bytes_is_told(api: Client, past: Past, jobs: Jobs) -> None:
    """Not by the page of the job, nor where its events are listed or followed: they may hold what is masked."""
    teleport(jobs, past.done, b"JobProgressed")

    for path in (f"/jobs/{past.done}", f"/api/jobs/{past.done}/events", "/api/stream?after=0"):
        answer = api.get(path)
        assert "s3cr3t" not in answer.text, path
        assert "cannot be" in answer.text or not jobs.log.ordered, path
