"""The page of one job, as the server makes it, and the pure parts that it is made of."""

import contextlib
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobevents import Registry
from jobevents.events import CancelRequested, Event, JobFailed, JobQueued, JobRequeued, JobStarted, JobSucceeded
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.testing.strategies import histories
from projections.api import create_app
from projections.api.access import READ_ONLY, ROLES, Identity
from projections.api.search import Search, parse
from projections.ui import actions
from projections.ui.diagram import diagram
from projections.ui.history import rows_of
from projections.ui.timeline import WIDTH, timeline
from projections.ui.words import terminal
from tests.api import Past
from tests.clock import Clock
from tests.http import Client, client_of
from tests.test_ui_list import ACTIVE

pytest_plugins = ("tests.api_fixtures",)

START = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
ANA = Identity("ana", frozenset(ROLES))
ROUTES = {
    ("POST", "/api/jobs/{job_id}/cancel"),
    ("POST", "/api/jobs/{job_id}/retry"),
    ("POST", "/api/jobs/{job_id}/rerun"),
    ("DELETE", "/api/jobs/{job_id}"),
}


def text_of(answer: Any) -> str:
    """What a person reads of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_it_says_what_became_of_a_job_and_why(api: Client, past: Past) -> None:
    """State, story, start, result, annotations and events are on the page of a job."""
    answer = api.get(f"/jobs/{past.done}")

    said = text_of(answer)
    assert 200 == answer.status_code
    for text in ("Song 7", "It succeeded", "Try 1 succeeded", "JobProgressed", "gs://songs/7", "181", "w1"):
        assert text in said
    assert "error" in text_of(api.get(f"/jobs/{past.failed}")).lower()
    assert "no space" in text_of(api.get(f"/jobs/{past.failed}"))
    assert "Traceback" in text_of(api.get(f"/jobs/{past.failed}"))


def test_a_number_is_shown_exactly(api: Client, jobs: Jobs) -> None:
    """Integers that no double holds, and all else of a payload, are there as they are."""
    job_id = jobs.submit("render", {"big": 9007199254740993, "list": [None, True, {"a": "x"}], "empty": {}})

    assert 2 == api.get(f"/jobs/{job_id}").text.count("9007199254740993")


def test_the_page_as_of_an_event(api: Client, past: Past) -> None:
    """After any of its events the page shows what was known then, offers no command, and says that it is the past."""
    first, second = (text_of(api.get(f"/jobs/{past.done}?at={version}")) for version in (1, 2))

    assert "It is queued" in first
    assert "JobSucceeded" not in first
    assert "It is running" in second
    assert "As of event #2" in second
    assert "this page shows the past" in second
    assert 404 == api.get(f"/jobs/{past.done}?at=99").status_code


def test_it_answers_with_nothing_where_nothing_is_new(api: Client, past: Past, jobs: Jobs) -> None:
    """A page that looks again costs a read of the job's end alone, until something happened."""
    seen = jobs.job(past.failed).version

    nothing = api.get(f"/jobs/{past.failed}?seen={seen}")
    jobs.retry(past.failed, actor="ana")
    more = api.get(f"/jobs/{past.failed}?seen={seen}")

    assert (204, b"", 200) == (nothing.status_code, nothing.content, more.status_code)


def test_two_jobs_beside_each_other(api: Client, past: Past) -> None:
    """It says where the ways of two jobs part; an id that is none, or of no job, is told in its place."""
    said = text_of(api.get(f"/jobs/{past.done}?with={past.failed}"))

    assert "They went the same way for 2 events; then the other had JobFailed" in said
    assert "no such job" in text_of(api.get(f"/jobs/{past.done}?with=nothing"))
    assert 200 == api.get(f"/jobs/{past.done}", params={"with": "../x"}).status_code


def test_a_deleted_job_keeps_its_page(api: Client, past: Past, jobs: Jobs) -> None:
    """Its events stay to be seen, with who deleted it; nothing can be done to it any more."""
    jobs.delete(past.done, actor="ana", reason="asked for by the customer")

    answer = api.get(f"/jobs/{past.done}")

    assert 200 == answer.status_code
    assert "deleted" in text_of(answer)
    assert "asked for by the customer" in text_of(answer)
    assert 5 == len(re.findall(r"<button[^>]* data-act [^>]*disabled", answer.text))


def test_no_such_job(api: Client) -> None:
    """A page that is not there says so in HTML, whatever stands in its place."""
    for path, status in (("/jobs/nothing", 404), ("/jobs/..%2f..%2fx", 400), ("/jobs/%3Cscript%3E", 400)):
        answer = api.get(path)
        assert (status, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
        assert "<script>" not in answer.text


def test_its_log(api: Client, past: Past) -> None:
    """Lines come by themselves, each once; after the last there is nothing, and the text is plain."""
    first = api.get(f"/jobs/{past.done}/lines?after_seq=0").text
    last = re.findall(r"after_seq=(\d+)", first)[-1]

    assert "begun" in first
    assert 204 == api.get(f"/jobs/{past.done}/lines?after_seq={last}").status_code
    text = api.get(f"/jobs/{past.done}/log.txt")
    assert "text/plain; charset=utf-8" == text.headers["content-type"]
    assert "attachment" in text.headers["content-disposition"]
    assert text.text.endswith("info  #1 begun\n")


def test_sec_01_nothing_of_a_job_is_markup(api: Client, jobs: Jobs) -> None:
    """What people and handlers wrote is shown as it is, once escaped, on every page of the job."""
    job_id = jobs.submit(
        "render",
        {ACTIVE: [ACTIVE]},
        title=ACTIVE,
        queue=ACTIVE,
        key=ACTIVE,
        actor=ACTIVE,
        reason=ACTIVE,
        max_attempts=2,
    )
    with pytest.raises(OSError, match="onerror"):
        _run_into_it(jobs, job_id)

    for path in ("", "?view=json", "?view=full", "?at=2", f"?with={job_id}", "/lines", "/event?version=1"):
        answer = api.get(f"/jobs/{job_id}{path}")
        assert 200 == answer.status_code, path
        assert "<img src=x" not in answer.text, path
        assert "&amp;lt;" not in answer.text, path
        assert "&lt;img src=x" in answer.text, path
    assert "<img src=x" in api.get(f"/jobs/{job_id}/log.txt").text


def _run_into_it(jobs: Jobs, job_id: str) -> None:
    with jobs.attempt(job_id, worker="w1") as attempt:
        attempt.progress(3, ACTIVE)
        attempt.annotate(output_dir=ACTIVE)
        attempt.log(ACTIVE, attr=ACTIVE)
        raise OSError(ACTIVE)


# what the page is made of


def made(*kinds: tuple[type[Event], float, dict[str, Any]]) -> list[Event]:
    """A history of such events, so many seconds after its start."""
    return [
        kind(job_id="j", version=place, id=str(place), at=START + timedelta(seconds=at), **fields)
        for place, (kind, at, fields) in enumerate(kinds, 1)
    ]


RETRIED = made(
    (JobQueued, 0, {"name": "render", "scheduled_at": START + timedelta(seconds=5), "max_attempts": 2}),
    (JobStarted, 8, {"attempt": 1}),
    (JobFailed, 18, {"error": "no", "start": 2, "retry_at": START + timedelta(seconds=48)}),
    (JobStarted, 50, {"attempt": 2}),
    (JobSucceeded, 51, {"start": 4}),
    (JobRequeued, 60, {"cause": "rerun"}),
)


def test_where_the_time_went() -> None:
    """Each stretch is told apart: for later, waiting, running, until the next try, at rest."""
    bar = timeline(RETRIED, START + timedelta(seconds=61))

    assert [
        ("queued", 5),
        ("waiting", 3),
        ("running", 10),
        ("backoff", 30),
        ("waiting", 2),
        ("running", 1),
        ("ended", 9),
        ("waiting", 1),
    ] == [(part.kind, part.ms / 1000) for part in bar.parts]
    assert 11_000 == bar.totals["running"]


@given(histories())
def test_the_bar_holds_all_of_any_history(events: list[Event]) -> None:
    """Its parts follow each other without a gap, fill it, and add up to the totals."""
    bar = timeline(events, max(event.at for event in events) + timedelta(seconds=1))

    for part, after in zip(bar.parts, bar.parts[1:], strict=False):
        assert abs(part.x + part.width - after.x) < 0.1
    if bar.parts:
        assert abs(bar.parts[-1].x + bar.parts[-1].width - WIDTH) < 0.5
    assert abs(sum(part.ms for part in bar.parts) - sum(bar.totals.values())) < 1
    assert all(0 <= mark.x <= WIDTH for mark in bar.marks)


@given(histories())
def test_the_picture_ends_where_the_job_is(events: list[Event]) -> None:
    """One box is the current one, it is the state that the fold comes to, and each way names real events."""
    picture = diagram(events)
    state = fold(events).state

    current = [box.state for box in picture.boxes if box.current]
    assert 1 == len(current)
    assert current[0] in (state, "other")
    taken = [version for way in picture.ways for version in way.taken]
    assert len(taken) == len(set(taken))
    assert set(taken) <= {event.version for event in events}


@given(histories())
def test_every_event_has_a_row(events: list[Event]) -> None:
    """In full each event is a row; compact rows leave none out."""
    full, compact = (rows_of(events, is_compact=is_compact) for is_compact in (False, True))

    assert [event.version for event in events] == [row.version for row in full]
    assert [event.version for event in events] == [
        version for row in compact for version in range(row.first, row.version + 1)
    ]


def test_buttons_say_what_they_append() -> None:
    """A button can be pressed where the state, the caller's role and the server allow it; otherwise it says why not."""
    waiting, ended = fold(RETRIED[:1]), fold(RETRIED[:5])

    def open_of(job: Any, caller: Identity = ANA, routes: Any = ROUTES, *, is_past: bool = False) -> list[str]:
        found = actions.of_job(job, caller, routes, is_past=is_past, is_masked=False)
        assert all(one.appends and one.reason for one in found)
        return [one.name for one in found if not one.disabled]

    assert ["cancel", "retry", "delete"] == open_of(waiting)
    assert ["rerun", "rerun-as-new", "delete"] == open_of(ended)
    assert [] == open_of(ended, Identity("bob", READ_ONLY))
    assert [] == open_of(ended, routes=())
    assert [] == open_of(ended, is_past=True)
    running = [*RETRIED[:1], JobStarted(job_id="j", version=2, id="2", at=START, attempt=1, worker="w1")]
    asked = [*running, CancelRequested(job_id="j", version=3, id="3", at=START)]
    assert ["cancel", "delete"] == open_of(fold(running))
    assert ["cancel", "force-cancel", "delete"] == open_of(fold(asked))
    found = actions.of_job(ended, Identity("bob", READ_ONLY), ROUTES, is_past=False, is_masked=False)
    why = actions.reasons(found)
    assert ("not while it is succeeded", ["Cancel", "Retry"]) in why
    assert ("bob has not the role delete", ["Delete"]) in why


def test_masked_params_are_not_edited(api: Client, jobs: Jobs) -> None:
    """What is not shown would be lost: a new run has the old params, or comes from elsewhere."""
    plain, secret = (jobs.submit("render", params) for params in ({"song": 7}, {"password": "hunter2"}))
    for job_id in (plain, secret):
        jobs.cancel(job_id)

    pages = [api.get(f"/jobs/{job_id}").text for job_id in (plain, secret)]

    assert [True, False] == ['data-params=""' in page for page in pages]
    assert "some of them are masked" in pages[1]
    assert not any("hunter2" in page for page in pages)


def test_how_long_its_kind_took_lately(api: Client, jobs: Jobs, clock: Clock) -> None:
    """The runs of its kind up to it are drawn by their time and outcome; of one run there is no trend."""
    if jobs.desk is None:
        pytest.skip("the log keeps no table of runs")
    ids = []
    for number, seconds in enumerate((10, 40, 20)):
        ids.append(jobs.submit("render", id=f"render-20260801-11000{number}-aaaaaaaaaaaa"))
        with contextlib.suppress(OSError), jobs.attempt(ids[-1]):
            clock.move(seconds)
            if seconds == 40:
                raise OSError("no space")

    said = [text_of(api.get(f"/jobs/{job_id}")) for job_id in ids]
    page = api.get(f"/jobs/{ids[2]}").text

    assert "Its last runs" not in said[0]
    assert "half of 2 took 10 s or less, none more than 40 s" in said[1]
    assert "half of 3 took 20 s or less, none more than 40 s" in said[2]
    assert re.search(r'class="good" d="M0,16v-4h3v4zM8,16v-8h3v8z"/><path class="bad" d="M4,16v-16h3v16z"', page)


def test_the_kind_leads_to_its_jobs_whatever_its_name(api: Client, jobs: Jobs) -> None:
    """A comma, a quote or a backslash in it is nothing to the search."""
    name = 're"nd,e\\r'
    page = api.get(f"/jobs/{jobs.submit(name)}").text

    [link] = re.findall(r'Jobs</a> › <a href="[^"]*\?q=([^"]+)">', page)

    assert Search(command=name) == parse(unquote(link), START)


def test_what_was_made_of_a_job_and_when_its_kind_is_due(jobs: Jobs, past: Past, clock: Clock) -> None:
    """A finished job leads to its new runs, and to those of these; one of a periodic kind says when that is due again."""
    registry = Registry()
    registry.job("render", schedule="0 3 * * *")(print)
    with client_of(create_app(jobs, registry=registry)) as api:
        page, waiting = api.get(f"/jobs/{past.done}").text, api.get(f"/jobs/{past.waiting}").text

        assert "2026-08-02T03:00:00" in page
        assert "Next by schedule" not in waiting
        if jobs.desk is None:
            return
        clock.move(60)
        again = jobs.rerun(past.done, as_new=True)
        with jobs.attempt(again):
            clock.move(1)
        once_more = jobs.rerun(again, as_new=True)
        after = api.get(f"/jobs/{past.done}").text
        [search] = re.findall(r'<a href="[^"]*\?q=([^"]+)">look for all', after)
        assert "New runs of it" not in page + waiting
        assert f'<dd><a href="{again}">' in after
        assert once_more not in after
        found = api.get(f"/api/search?q={search}").json()["items"]

    assert {past.done, again, once_more} == {one["job_id"] for one in found}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mno space\x1b[0m left", '<span class="a-bad a-strong">no space</span> left'),
        ("\x1b[32m<b>ok\x1b[39m & on", '<span class="a-good">&lt;b&gt;ok</span> &amp; on'),
        ("\x1b[2J\x1b]0;title\x07\x1b[38;5;31mplain\x1b[K", "plain"),
        ("a\x1b", "a\x1b"),
        ("␛[33mold␛[0m␛]0;title␇ new", '<span class="a-warn">old</span> new'),
        ("\x1b[31m\u202ex\x1b[m", '<span class="a-bad">[U+202E]x</span>'),
    ],
)
def test_a_line_of_a_log_as_a_terminal_shows_it(line: str, shown: str) -> None:
    """Colours and weights are kept, other orders are not, and markup is text."""
    assert shown == str(terminal(line))


@given(st.text(st.sampled_from("\x1b␛[]0139;m<&\x07␇ab\u202e")))
def test_no_line_is_markup(line: str) -> None:
    """Whatever orders are in it, nothing but our own spans comes of it, and each is closed."""
    shown = str(terminal(line))
    bare = re.sub(r'<span class="[a-z -]+">|</span>', "", shown)

    assert "<" not in bare
    assert shown.count("<span") == shown.count("</span>")
    letters = [one for one in bare.replace("&amp;", "&") if one in "ab"]
    assert [one for one in line if one in "ab"] == letters or re.search(
        r"[\x1b␛][\[\]]", line
    )  # or they are of an order


def test_a_coloured_line_of_a_job(api: Client, jobs: Jobs) -> None:
    """Its page has the colours, its text file the line as it is stored."""
    job_id = jobs.submit("render")
    with jobs.attempt(job_id) as attempt:
        attempt.log("\x1b[31mno space\x1b[0m left <b>")

    assert '<span class="a-bad">no space</span> left &lt;b&gt;' in api.get(f"/jobs/{job_id}/lines").text
    assert "no space" in api.get(f"/jobs/{job_id}/log.txt").text
