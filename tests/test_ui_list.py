"""The page of all jobs, as the server makes it: what it shows, what it admits, and that nothing in it is ever markup."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.errors import Corrupt, Unavailable
from jobevents.jobs import Jobs
from jobevents.testing.faults import Call, FailingBlobs
from projections.api import create_app
from projections.api.access import READ_ONLY, Identity, NotIdentified
from projections.api.shapes import Filter
from projections.ui.assets import STATIC
from projections.ui.pages import PAGES
from projections.ui.suggest import suggest
from tests.api import Past, address, fill, project
from tests.http import Client, client_of

pytest_plugins = ("tests.api_fixtures",)

ACTIVE = """<img src=x onerror="document.title='owned'"></td><script>document.title='owned'</script>{{ 7*7 }}&amp;'"""


def ids_of(answer: httpx.Response) -> list[str]:
    """The jobs that a page shows, in their order."""
    return re.findall(r'<tr id="row-[^"]+" data-id="([^"]+)"', answer.text)


def find(api: Client, text: str, **more: Any) -> httpx.Response:
    """Look for something."""
    return api.get("/", params={"q": text, **more})


@pytest.mark.parametrize("route", PAGES, ids=[one.name for one in PAGES])
def test_no_page_may_run_what_is_in_it(route: Any, api: Client, past: Past) -> None:
    """Every page and file, found or not, forbids inline script and style, and says what it is."""
    answer = api.get(address(route.path, past))

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert None is re.search(r"""<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:""", answer.text)


def test_it_lists_the_newest_first(api: Client, past: Past, jobs: Jobs) -> None:
    """All jobs are there with their states and counts."""
    project(jobs)

    answer = api.get("/")

    assert (200, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert [past.waiting, past.failed, past.done] == ids_of(answer)
    assert "1–3 of 3" in answer.text
    assert "no space" in answer.text
    assert "Song 7" in answer.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state:failed", ["failed"]),
        ("queue:slow", ["waiting"]),
        ("command:render", ["failed", "done"]),
        ("id:mix-2026", ["waiting"]),
        ("worker:W2", ["failed"]),
        ("error:space", ["failed"]),
        ("duration:>=0ms", ["failed", "done"]),
        ("args.song:7", ["done"]),
        ("args.song:9 state:succeeded", []),
        ("args.song.deep:7", []),
        ("duration:>1h", []),
        ('"SONG 7"', ["done"]),
        ("song render", ["done"]),
        ("state:failed song", []),
        ("after:2026-01-01 before:2099-01-01", ["waiting", "failed", "done"]),
        ("before:2000-01-01", []),
    ],
)
def test_what_a_search_finds(text: str, expected: list[str], api: Client, past: Past, jobs: Jobs) -> None:
    """Each key finds what it says, on a log that has what it needs; on another the page says why not, and is no empty list."""
    project(jobs)

    answer = find(api, text)

    if jobs.desk is None and text != "state:failed":
        assert 400 == answer.status_code
        assert "keeps no table of runs" in answer.text
        assert "<table" not in answer.text
    else:
        assert [getattr(past, name) for name in expected] == ids_of(answer)


def test_what_jobs_were_given(api: Client, jobs: Jobs) -> None:
    """`args.…` finds params at any depth, and offers those that there are; what is masked is neither found nor offered."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    params = {
        "user": {"name": "Ana Maria", "id": 9007199254740993},
        "parts": [{"a.b": True}, None],
        "password": "hunter2",
    }
    job_id = jobs.submit("render", params)
    jobs.submit("render", [1, 2])

    for text in (
        "args.user.name:ANA",
        'args.user.name:"ana maria"',
        "args.user.id:9007199254740993",
        "args.parts.0.a.b:true",
    ):
        assert [job_id] == ids_of(find(api, text)), text
    for text in (
        "args.user.id:900",
        "args.parts.2:null",
        "args.user:ana",
        "args.password:hunter2",
        "args.password:hunter",
    ):
        assert [] == ids_of(find(api, text)), text
    offered = api.get("/suggest", params={"text": "args.user"}).json()["items"]
    assert ["args.user.id:", "args.user.name:"] == [one["label"] for one in offered]
    names = api.get("/suggest", params={"text": "args.user.name:"}).json()["items"]
    assert ['args.user.name:"Ana Maria"'] == [one["text"].strip() for one in names]
    assert "hunter2" not in api.get("/suggest", params={"text": "args.password:"}).text


def test_who_did_it(api: Client, past: Past, jobs: Jobs) -> None:
    """`actor:` finds who queued a job and who canceled one."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    jobs.cancel(past.waiting, actor="bob")
    mine = jobs.submit("render", actor="carla")

    assert [past.waiting] == ids_of(find(api, "actor:bob"))
    assert [mine] == ids_of(find(api, "actor:carla"))


@pytest.mark.parametrize("text", ["state:nothing", "duration:soon", "queue:"])
def test_a_search_that_cannot_be_understood(text: str, api: Client, past: Past) -> None:
    """It is an error with a remedy, and what was typed stays in the field."""
    answer = find(api, text)

    assert 400 == answer.status_code
    assert 'role="alert"' in answer.text
    assert f'value="{text}"' in answer.text
    assert "<table" not in answer.text
    for link in (r'data-live-url="([^"]+)"', r'href="\./(export[^"]+)"'):  # looked for again, it is refused again
        (where, *_) = re.findall(link, answer.text)
        assert 400 == api.get("/" + unescape(where)).status_code


def test_a_list_that_cannot_be_read_is_not_empty() -> None:
    """A store that is down is told as such, with the way to try again; so are counts."""

    def refuse(call: Call) -> None:
        raise Unavailable("the bucket is away")

    with (
        connect("memory://", blobs=FailingBlobs(MemoryBlobs(), before=refuse)) as jobs,
        client_of(create_app(jobs)) as api,
    ):
        fill(jobs)
        answer = api.get("/")

    assert 503 == answer.status_code
    assert "the bucket is away" in answer.text
    assert "Try again" in answer.text
    assert "No jobs yet" not in answer.text


def test_a_part_that_is_missing_is_named(api: Client, past: Past, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read of a page is counted, and named with the reason."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    reads = jobs.get_as

    def broken(type: Any, job_id: str) -> Any:
        if job_id == past.failed:
            raise Corrupt("chain is broken")
        return reads(type, job_id)

    monkeypatch.setattr(jobs, "get_as", broken)
    answer = find(api, "command:render")

    assert [past.done] == ids_of(answer)
    assert "1 job of this page could not be shown" in answer.text
    assert "chain is broken" in answer.text


def test_rows_do_not_move_away(api: Client, jobs: Jobs) -> None:
    """A page that looks again keeps the rows that it began with, and says how many came since."""
    first = [jobs.submit("render", id=f"render-20260801-1100{n:02}-aaaaaaaaaaaa") for n in range(12)]
    project(jobs)
    live = unescape(re.findall(r'data-live-url="([^"]+)"', api.get("/?per_page=10").text)[0])
    newer = [jobs.submit("render", id=f"render-20260802-1100{n:02}-bbbbbbbbbbbb") for n in range(3)]
    project(jobs)

    again = api.get("/" + live)
    jobs.submit_many([{"name": "render"} for _ in range(20)])
    project(jobs)
    later = api.get("/" + live)

    assert first[:1:-1] == ids_of(again)
    assert "3 new, show" in again.text
    assert first[:1:-1] == ids_of(later)
    assert "10+ new, show" in later.text
    assert newer[::-1] == ids_of(api.get("/?per_page=10"))[:3]


def test_a_search_without_an_index_goes_on_where_it_stopped(
    api: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how far it looked, and its link goes on from there until everything was looked through."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    monkeypatch.setattr("projections.api.sifting.MAX_ROWS", 500)
    ids = jobs.submit_many([{"name": "render", "title": f"Song {n}"} for n in range(1100)])
    text, found, pages = "/?q=song&per_page=200", list[str](), 0

    while text:
        answer = api.get(text)
        found, pages = found + ids_of(answer), pages + 1
        further = re.search(r'href="(\?[^"]+)">Look further', answer.text)
        text = "/" + unescape(further[1]) if further else ""

    assert sorted(ids) == sorted(found)
    assert len(found) == len(set(found))
    assert "That is all" in answer.text
    assert 6 == pages


def test_sec_01_what_people_write_is_text(api: Client, jobs: Jobs) -> None:
    """Markup in a title, an error, a queue, a search and a wrong address is shown as it is, once escaped."""
    job_id = jobs.submit("render", title=ACTIVE, queue=ACTIVE, actor=ACTIVE)
    with pytest.raises(OSError, match="onerror"), jobs.attempt(job_id):
        raise OSError(ACTIVE)
    project(jobs)

    for answer in (api.get("/"), find(api, ACTIVE), find(api, f"state:{ACTIVE}"), api.get(f"/?nothing={ACTIVE}")):
        assert "<img src=x" not in answer.text
        assert "document.title='owned'</script>" not in answer.text
        assert "&amp;lt;" not in answer.text
    assert "&lt;img src=x" in api.get("/").text
    assert "49" not in re.findall(r'class="job"[^>]*>([^<]*)', api.get("/").text)[0]


def test_files_are_kept_by_browsers(api: Client, past: Past) -> None:
    """A file's address names what it holds, and may be kept for a year; an address of another version has none."""
    found = re.findall(r'(?:src|href)="(\./static/[^"]+)"', api.get("/").text)

    answers = [api.get("/" + path.removeprefix("./")) for path in found]
    stale = api.get("/static/0123456789abcdef/app.css")

    assert len(found) > 4
    assert {200} == {one.status_code for one in answers}
    assert {"public, max-age=31536000, immutable"} == {one.headers["cache-control"] for one in answers}
    assert {"text/css; charset=utf-8", "text/javascript; charset=utf-8", "image/svg+xml"} == {
        one.headers["content-type"] for one in answers
    }
    assert (404, "no-store") == (stale.status_code, stale.headers["cache-control"])
    assert 404 == api.get("/static/../pages.py").status_code


def test_below_a_prefix(jobs: Jobs, past: Past) -> None:
    """Mounted anywhere, no link of a page leads out of it."""
    outer = FastAPI()
    outer.mount("/ops/jobs", create_app(jobs))
    project(jobs)

    with client_of(outer) as api:
        text = api.get("/ops/jobs/").text
        links = re.findall(r'(?:src|href|action)="([^"]*)"', text)
        deep = api.get("/ops/jobs/static/a%2Fb/nothing").text

    assert [] == [link for link in links if link.startswith(("/", "http", "../"))]
    assert "no such file" in deep


def test_without_the_dashboard(jobs: Jobs) -> None:
    """An app may be the API alone."""
    with client_of(create_app(jobs, ui=False)) as api:
        assert [404, 200] == [api.get("/").status_code, api.get("/api/features").status_code]


def test_an_empty_log_teaches_the_next_command(api: Client, jobs: Jobs) -> None:
    """Where nothing was ever submitted, the page says how to."""
    project(jobs)
    assert "jobevents submit" in api.get("/").text


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40), page=st.text(max_size=8), cursor=st.text(max_size=10), top=st.text(max_size=10))
def test_no_parameter_breaks_it(text: str, page: str, cursor: str, top: str, api: Client, past: Past) -> None:
    """Whatever an address says, the page is no fault of the server's."""
    answer = api.get("/", params={"q": text, "page": page, "cursor": cursor, "top": top})

    assert answer.status_code in (200, 400, 404), answer.text


# suggestions

VALUES = {"state": [("failed", "3 jobs"), ("queued", "")], "queue": [("slow lane", ""), ("default", "")]}
CAN = {name: Filter(True, "") for name in ("queue", "command", "q", "since", "until")}


def test_suggestions() -> None:
    """Keys come first, then their values, quoted where they must be; what was given is not offered again."""

    def texts(text: str) -> list[str]:
        return [one.text for one in suggest(text, len(text), VALUES, CAN)]

    assert ["state:"] == texts("sta")
    assert ["state:failed "] == texts("state:fa")
    assert ['state:failed queue:"slow lane" '] == texts('state:failed queue:"slow')
    assert "state:failed state:" not in texts("state:failed ")
    assert ["-state:"] == texts("-sta")
    assert ["-state:failed,queued "] == texts("-state:failed,q")
    assert ['queue:a,"slow lane" '] == texts("queue:a,slow")
    assert [] == texts("-dur")
    assert ["state:failed x"] == [one.text for one in suggest("state: x", 6, VALUES, CAN)][:1]


def test_either_of_two_states_is_no_state_of_the_rail(api: Client, past: Past) -> None:
    """Neither `all` nor one of them is shown as chosen, and another takes the place of both."""
    page = api.get("/", params={"q": "state:failed,queued -state:canceled song"}).text

    rail = page[page.index("<h2") : page.index("</ul>")]
    assert "aria-current" not in rail
    assert 'href="?q=state%3Arunning%20song"' in rail


def test_what_cannot_be_used_is_offered_with_the_reason() -> None:
    """A key that the log cannot filter by is shown disabled, and says why."""
    found = suggest("que", 3, VALUES, {**CAN, "queue": Filter(False, "no table")})

    assert [(True, "no table")] == [(one.disabled, one.about) for one in found]


def test_suggestions_of_a_log(api: Client, past: Past, jobs: Jobs) -> None:
    """The values are those that there are."""
    project(jobs)
    found = api.get("/suggest", params={"text": "queue:", "caret": "6"}).json()["items"]

    assert (["default", "slow"] if jobs.desk is not None else []) == sorted(one["label"] for one in found)


def test_a_wrong_address(api: Client) -> None:
    """A browser gets a page that says so, a program the answer of the API."""
    shown = api.get("/nowhere/at/all", headers={"accept": "text/html,*/*"})
    told = api.get("/nowhere/at/all")

    assert (404, "text/html; charset=utf-8") == (shown.status_code, shown.headers["content-type"])
    assert 'href="../../"' in shown.text
    assert (404, "no_such_place") == (told.status_code, told.json()["code"])


class Door:
    """Knows who calls by a header; all but `nobody` may look."""

    is_open = False

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        if "x-caller" not in headers:
            raise NotIdentified("no x-caller")
        return Identity(headers["x-caller"], READ_ONLY if headers["x-caller"] != "nobody" else frozenset())


def test_who_is_not_let_in_is_told_so_by_a_whole_page() -> None:
    """A stranger gets the files that the refusal needs, which are the same for everybody, and no others are there."""
    with connect("memory://") as jobs, client_of(create_app(jobs, access=Door())) as api:
        refused = api.get("/")
        loads = re.findall(r'(?:href|src)="\./(static/[^"]+)"', refused.text)
        files = [api.get(f"/{one}") for one in loads]
        other = api.get("/static/0000000000000000/app.css")
        robots = api.get("/robots.txt")

    assert 401 == refused.status_code
    assert {200} == {one.status_code for one in files}
    assert {"app.css", "app.js", "theme.js"} <= {one.rpartition("/")[2] for one in loads}
    assert 404 == other.status_code
    assert "Disallow: /" in robots.text


def test_who_may_only_look_is_told_so() -> None:
    """Buttons are there, cannot be pressed, and say which role is missing."""
    with connect("memory://") as jobs, client_of(create_app(jobs, access=Door())) as api:
        past = fill(jobs)
        answer = api.get(f"/jobs/{past.waiting}", headers={"x-caller": "ana"})

    assert "ana has not the role cancel" in answer.text
    assert len(re.findall(r"data-act [^>]*disabled", answer.text)) == 5


def test_other_peoples_scripts_come_with_their_licences() -> None:
    """Each vendored script says its version in its name, and has its licence beside it."""
    vendor = STATIC / "vendor"
    names = {re.split(r"-(?:ext-)?\d", path.name)[0] for path in vendor.glob("*.js")}

    assert {"htmx", "idiomorph", "uplot"} == names
    assert all(re.search(r"-\d+\.\d+\.\d+\.min\.(js|css)$", path.name) for path in vendor.glob("*.min.*"))
    assert all("permission" in (vendor / f"{name}-LICENSE.txt").read_text("utf-8").lower() for name in names)


def test_the_same_page_as_json(api: Client, past: Past, jobs: Jobs) -> None:
    """A list links to what the API says of the same page, with the same filters."""
    project(jobs)
    text = "state:failed" if jobs.desk is None else "state:failed command:render after:2026-01-01"

    link = unescape(re.findall(r'href="\./(api/jobs[^"]+)"', find(api, text, per_page=10).text)[0])

    assert [past.failed] == [one["job_id"] for one in api.get("/" + link).json()["items"]]
