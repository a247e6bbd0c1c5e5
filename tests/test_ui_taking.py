"""How the list is arranged and taken away: its columns and order, as a file, as a command and as SQL."""

import csv
import io
import json
import re
from html import unescape
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from jobevents import connect
from jobevents.blobs import MemoryBlobs
from jobevents.errors import Unavailable
from jobevents.jobs import Jobs
from projections.api import create_app, search
from projections.query import query
from projections.ui import columns, copying, exporting
from tests.api import Past, fill, project
from tests.bloblogs import bucket_jobs
from tests.clock import START, Clock
from tests.failinglog import FailingRecorder, failing_jobs
from tests.http import Client, client_of
from tests.serving import listening
from tests.test_api_unreadable import WHY, teleport
from tests.test_ui_list import ids_of

pytest_plugins = ("tests.api_fixtures",)


def headings(text: str) -> list[str]:
    """The columns of the list, by what stands above them."""
    return [
        re.sub(r"<[^>]+>|[↑↓]", "", unescape(one)).strip() for one in re.findall(r"<th scope=\"col\".*?</th>", text)
    ]


def test_columns_are_chosen_and_kept(api: Client, past: Past) -> None:
    """Each link of the menu shows, hides or moves one column; the browser keeps the choice, and goes back to its list."""
    usual = ["State", "Job", "Kind", "Queue", "Try", "Queued", "Took", "Worker"]
    page = api.get("/?q=state:failed").text
    links = {unescape(one) for one in re.findall(r'href="\./(columns[^"]+)"', page)}
    (hide_kind,) = [one for one in links if "shown=queue.tries.at.took.worker&" in one]

    answer = api.get("/" + hide_kind)
    kept = api.get("/?q=state:failed")
    moved = api.get("/columns?shown=worker.key.nothing.worker&back=x%0d%0aSet-Cookie:y").headers["location"]

    assert usual == headings(page)
    assert (303, "./?q=state%3Afailed#columns") == (answer.status_code, answer.headers["location"])
    assert all(part in answer.headers["set-cookie"] for part in ("HttpOnly", "SameSite=Strict", "Max-Age"))
    assert [one for one in usual if one != "Kind"] == headings(kept.text)
    assert "\n" not in moved
    assert "\r" not in moved
    assert ["State", "Job", "Worker", "Key"] == headings(api.get("/").text)
    assert [past.waiting, past.failed, past.done] == ids_of(api.get("/"))


@pytest.mark.parametrize(
    "cookie", ["", "jobevents_columns=", "jobevents_columns=none", '=;"', "jobevents_columns=\x00"]
)
def test_a_cookie_of_anybody_is_no_error(cookie: str, api: Client, past: Past) -> None:
    """Whatever a browser sends, the list is there."""
    answer = api.get("/", headers={"Cookie": cookie.encode()})

    assert 200 == answer.status_code
    assert headings(answer.text)[:2] == ["State", "Job"]


def test_every_column_can_be_shown_anywhere() -> None:
    """From any choice each link of the menu leads to another, in which every column is once."""
    start = columns.wanted("")
    for _ in range(4):
        found = columns.choices(start)
        assert {one.name for one in columns.COLUMNS} == {one.column.name for one in found}
        for one in found:
            for text in filter(None, (one.toggled, one.earlier, one.later)):
                names = [shown.name for shown in columns.wanted(text)]
                assert len(names) == len(set(names))
                assert text == columns.written(columns.wanted(text))
        start = columns.wanted(found[-1].toggled)
    assert () == columns.wanted("none")


@pytest.mark.parametrize(("order", "expected"), [("oldest", "done failed waiting"), ("ended", "failed done")])
def test_a_list_is_sorted_where_the_log_can(order: str, expected: str, api: Client, past: Past) -> None:
    """The order is in the address and in every link that goes on from there, and the heading says it."""
    answer = api.get(f"/?order={order}&per_page=10")

    assert [getattr(past, name) for name in expected.split()] == ids_of(answer)
    assert f"order={order}" in unescape(answer.text).partition('id="rail"')[2].partition("</nav>")[0]
    if order == "oldest":
        assert 'aria-sort="ascending"' in answer.text


@pytest.mark.parametrize(
    ("address", "why"),
    [("/?q=song", "goes from the newest on"), ("/?as_of=%401", "the past is listed newest first")],
)
def test_where_there_is_one_order_it_says_why(address: str, why: str, api: Client, past: Past) -> None:
    """The choice is disabled with the reason; asked for all the same, it is refused."""
    answer = api.get(address)

    assert re.search(rf'<select [^>]*name="order" data-submit disabled title="[^"]*{why}', answer.text, re.IGNORECASE)
    assert "aria-sort" not in answer.text
    assert 'role="alert"' in api.get(f"{address}&order=oldest").text


def test_a_log_without_a_table_sorts_nothing(clock: Clock) -> None:
    """The reason stands at the disabled choice, and at the columns that a row here cannot have."""
    with bucket_jobs(MemoryBlobs(), clock) as jobs, client_of(create_app(jobs)) as api:
        answer = api.get("/")

    assert 200 == answer.status_code
    assert re.search(r"data-submit disabled title=\"This log keeps no table", answer.text)
    assert "made of the job&#39;s status alone" in answer.text


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_list_is_exported_whole(api: Client, past: Past, jobs: Jobs) -> None:
    """Each format has all that match, newest first, with the same values; nothing is run by a spreadsheet."""
    evil = jobs.submit(
        "render", title='=HYPERLINK("http://x")', key="@k", actor="-2+3", id="render-20260801-100000-dddddddddddd"
    )
    project(jobs)

    answers = {format: api.get(f"/export?q=command:render&format={format}") for format in exporting.FORMATS}

    expected = [past.failed, past.done, evil]
    lines = [json.loads(line) for line in answers["jsonl"].text.splitlines()]
    table = pq.read_table(io.BytesIO(answers["parquet"].content)).to_pylist()
    cells = rows_of(answers["csv"].text)
    assert {200} == {one.status_code for one in answers.values()}
    for rows in (lines, table, cells):
        assert expected == [row["job_id"] for row in rows]
        assert list(exporting.COLUMNS) == list(rows[0])
    assert ("""'=HYPERLINK("http://x")""", "'@k", "'-2+3") == tuple(
        cells[2][one] for one in ("title", "key", "queued_by")
    )
    assert ("""=HYPERLINK("http://x")""", "@k", "-2+3") == tuple(lines[2][one] for one in ("title", "key", "queued_by"))
    assert [row["title"] for row in lines] == [row["title"] for row in table]
    assert START == table[0]["queued_at"]
    assert "attachment" in answers["csv"].headers["content-disposition"]
    assert exporting.FORMATS["csv"] == answers["csv"].headers["content-type"]


@pytest.mark.parametrize("text", ["state:failed", "no space", "state:skipped", ""])
def test_an_export_has_what_the_list_has(text: str, api: Client, past: Past) -> None:
    """Searches that look through rows too, and one that finds nothing has the line of names alone."""
    exported = rows_of(api.get("/export", params={"q": text}).text)

    assert ids_of(api.get("/", params={"q": text})) == [row["job_id"] for row in exported]


def test_an_export_of_many_pages(clock: Clock) -> None:
    """Every job is in it once, however many pages they are: of now, of a search through rows, and of the past."""
    with connect("memory://", clock=clock) as jobs, client_of(create_app(jobs)) as api:
        ids = [f"j-20260801-1000{n // 60:02d}-{n:012x}" for n in range(450)]
        for job_id in ids:
            jobs.submit("render", id=job_id)
        for address in ("/export", "/export?q=render", "/export?as_of=%40450"):
            assert sorted(ids, reverse=True) == [row["job_id"] for row in rows_of(api.get(address).text)], address


def test_a_job_that_cannot_be_read_has_its_line(api: Client, past: Past, jobs: Jobs) -> None:
    """Nothing is missing from an export in silence."""
    teleport(jobs, past.waiting)

    rows = rows_of(api.get("/export").text)

    assert 3 == len(rows)
    assert [(past.waiting, True)] == [(row["job_id"], WHY in row["left_out"]) for row in rows if row["left_out"]]


class Tired(FailingRecorder):
    """Reads no event after so many reads."""

    left = 1_000_000

    def _pass(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unavailable("the disk is on fire")
        super()._pass()


def test_an_export_that_breaks_off_is_not_taken_for_whole(clock: Clock) -> None:
    """What fails at once is refused with the reason; what fails later breaks the transfer off."""
    jobs, recorder = failing_jobs(clock, Tired)
    assert isinstance(recorder, Tired)
    for n in range(800):
        jobs.submit("render", id=f"j-20260801-1{n // 600}{n // 60 % 10}0{n % 60:02d}-{n:012x}")
    with listening(create_app(jobs)) as place, httpx.Client(base_url=place, trust_env=False) as client:
        recorder.left = 0
        refused = client.get("/export?q=command:render")
        recorder.left = 1300
        answer = client.send(client.build_request("GET", "/export?q=command:render"), stream=True)
        begun = answer.status_code
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()

    assert (503, 200) == (refused.status_code, begun)
    assert "the disk is on fire" in refused.text


def test_without_analytics_there_is_no_parquet(monkeypatch: pytest.MonkeyPatch, api: Client, past: Past) -> None:
    """The menu says what to install, and so does the refusal."""
    monkeypatch.setattr("projections.ui.analytics._NEEDED", ("pyarrow_of_nobody",))

    menu, refused, other = api.get("/").text, api.get("/export?format=parquet"), api.get("/export")

    assert "pip install &#39;jobevents[analytics]&#39;" in menu
    assert 500 == refused.status_code
    assert "pyarrow_of_nobody" in refused.text
    assert 3 == len(rows_of(other.text))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", "jobevents list"),
        ("state:failed command:render queue:slow", "jobevents list --state failed --job render --queue slow"),
        ('worker:w1 args.song:7 "no space"', """jobevents list 'worker:w1 args.song:7 "no space"'"""),
        ("-state:failed", "jobevents list -- -state:failed"),
        ('command:"it\'s"', """jobevents list --job 'it'"'"'s'"""),
    ],
)
def test_the_same_as_a_command(text: str, command: str) -> None:
    assert command == copying.as_command(search.parse(text, START))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state:failed",
        "queue:slow",
        "id:mix-2026",
        "worker:W2",
        "actor:ana",
        "error:space",
        "duration:>=0ms",
        "args.song:7",
        "duration:>1h",
        '"SONG 7"',
        "song render",
        "it's",
        "after:2026-01-01 before:2099-01-01",
        "before:2000-01-01",
        "state:other",
        "state:failed,succeeded",
        "-state:other,failed",
        "command:mix,render -queue:slow",
        "-error:space",
        "-worker:w1,w2 -actor:nobody",
        "-args.song:7",
        '-"song 7"',
        "id:mix,render -id:mix",
        "root:render-20260801-110000-aaaaaaaaaaaa",
        "-root:render-20260801-110000-aaaaaaaaaaaa",
    ],
)
def test_the_same_as_sql(text: str, filled: tuple[Jobs, Client]) -> None:
    """The query finds the jobs that the list shows."""
    jobs, api = filled
    wanted = search.parse(text, START)

    with query(jobs, copying.as_sql(wanted, START)) as answer:
        found = [row["job_id"] for row in answer.rows()]

    assert sorted(ids_of(api.get("/", params={"q": text}))) == sorted(found)


@pytest.fixture(scope="module")
def filled() -> Any:
    """Jobs with a past, which no test changes."""
    with connect("memory://", clock=Clock(START), actor="ana") as jobs, client_of(create_app(jobs)) as api:
        fill(jobs)
        project(jobs)
        yield jobs, api
