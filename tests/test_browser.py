"""The dashboard in a real browser: what an operator does with it, by mouse, by keyboard, on a phone, and when things go wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.sync_api import BrowserContext, Page, expect

from jobevents import Registry, connect, wiring
from jobevents.jobs import Jobs
from projections.api import create_app
from projections.ui.render import TABS
from tests.api import fill
from tests.browser import Served, Watched, served
from tests.test_ui_list import ACTIVE

pytest_plugins = ("tests.browser_fixtures",)

pytestmark = pytest.mark.slow

PAGES = [path for _, path in TABS]


def rows(page: Page) -> Any:
    """The rows of the list."""
    return page.locator("tr[data-id]")


def test_list_search_and_back(watched: Watched, site: Served, log: Jobs) -> None:
    """Suggestions complete a search, the address has it, the list shows what matches, and Back shows what was before."""
    past = fill(log)
    page = watched.page
    watched.go(site.place)
    expect(rows(page)).to_have_count(3)

    page.locator("#q").click()
    page.keyboard.type("sta")
    expect(page.locator("#suggestions li").first).to_contain_text("state:")
    page.keyboard.press("Tab")
    page.keyboard.type("fai")
    expect(page.locator("#suggestions li").first).to_contain_text("failed")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=state(:|%3A)failed"))

    expect(rows(page)).to_have_count(1)
    expect(page.locator(f"#row-{past.failed}")).to_contain_text("no space")
    page.go_back()
    expect(rows(page)).to_have_count(3)
    page.locator("#rail").get_by_role("link", name=re.compile("succeeded")).click()
    expect(rows(page)).to_have_count(1)
    page.locator("#q").fill("duration:soon")
    page.locator("#q").press("Enter")
    expect(page.get_by_role("alert").filter(has_text="no length of time")).to_be_visible()


def test_it_changes_while_a_worker_runs(watched: Watched, site: Served, log: Jobs) -> None:
    """A row follows its job from queued to its end without a reload, newer jobs are counted, and no row moves away."""
    job_id = log.submit("render", title="Song 7")
    page = watched.page
    watched.go(site.place)
    row = page.locator(f"#row-{job_id}")
    expect(row).to_contain_text("queued")
    page.evaluate("window.loadedOnce = true")
    page.locator(f"#row-{job_id} .pick-one").check()

    with log.attempt(job_id, worker="w1") as attempt:
        attempt.progress(40, "mixing")
        expect(row).to_contain_text("40 % mixing")
        newer = log.submit("render", id="render-20991231-235959-aaaaaaaaaaaa")
        expect(page.get_by_role("link", name="1 new, show")).to_be_visible()
        expect(page.locator(f"#row-{newer}")).to_have_count(0)
    expect(row).to_contain_text("succeeded")
    expect(page.locator(f"#row-{job_id} .pick-one")).to_be_checked()

    assert page.evaluate("window.loadedOnce")
    page.get_by_role("link", name="1 new, show").click()
    expect(page.locator(f"#row-{newer}")).to_be_visible()


def test_it_looks_when_there_is_more(watched: Watched, site: Served, log: Jobs) -> None:
    """While nothing happens a page asks for nothing; the log's stream says when something does, and it is there at once."""
    job_id = log.submit("render")
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response(lambda answer: "top=" in answer.url):  # what came before the stream was open
        watched.go(site.place)
    expect(page.locator("#live-state")).to_have_attribute("title", "This page changes as things happen")
    streams = [one for one in asked if "api/stream" in one]
    asked.clear()
    page.wait_for_timeout(1500)  # it would look every second
    silent = list(asked)

    log.cancel(job_id)
    expect(page.locator(f"#row-{job_id}")).to_contain_text("canceled", timeout=900)

    assert ([f"{site.place}api/stream?brief=yes"], []) == (streams, silent)


def test_a_log_that_cannot_be_followed_is_looked_at(watched: Watched, tmp_path: Path) -> None:
    """Where events have no one order a page looks again by itself, as often as was chosen."""
    with connect(f"file://{tmp_path}/log") as log, served(create_app(log)) as site:
        job_id = log.submit("render")
        watched.go(f"{site.place}jobs/{job_id}")
        expect(watched.page.locator("#live-state")).to_have_attribute("title", "This page looks again by itself")
        log.cancel(job_id)
        expect(watched.page.locator(".head .state")).to_contain_text("canceled")


def test_cancel_says_what_it_appends_and_why(watched: Watched, site: Served, log: Jobs) -> None:
    """The button names the event, the reason is kept with who asked, and the page follows."""
    job_id = log.submit("render")
    page = watched.page
    watched.go(f"{site.place}jobs/{job_id}")

    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#act-appends")).to_contain_text("JobCanceled")
    expect(page.locator("#act-reason")).to_have_value("cancel by anonymous")
    page.locator("#act-reason").fill("customer withdrew")
    page.locator("#act-go").click()

    expect(page.locator(".head .state")).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    last = log.history(job_id)[-1]
    assert ("JobCanceled", "anonymous", "customer withdrew") == (last.type, last.actor, last.reason)


def test_a_new_run_later_and_with_other_params(watched: Watched, site: Served, log: Jobs) -> None:
    """Params are edited as JSON, larger than any number of a script too, and the time is that of the viewer's zone."""
    job_id = log.submit("render", {"song": 9007199254740993, "takes": [1]})
    log.cancel(job_id)
    page = watched.page
    watched.go(f"{site.place}jobs/{job_id}")

    page.get_by_role("button", name="Run as new job").click()
    page.locator("#act-params").fill(page.locator("#act-params").input_value().replace("1\n", "2,\n"))
    page.locator("#act-at").fill("2031-05-06T07:08:09")
    page.locator("#act-go").click()
    expect(page.locator("#act-said")).to_contain_text("The params are no JSON")
    page.locator("#act-params").fill(page.locator("#act-params").input_value().replace("2,", "2"))
    page.locator("#act-go").click()
    expect(page.locator("#act-said")).to_contain_text("It is job render-")

    made = log.job((page.locator("#act-said").inner_text()).removeprefix("It is job ").strip())
    assert {"song": 9007199254740993, "takes": [2]} == made.params
    assert "2031-05-05T22:08:09+00:00" == str(made.scheduled_at and made.scheduled_at.isoformat())


def test_many_are_retried_with_a_reason(watched: Watched, site: Served, log: Jobs) -> None:
    """All that match are chosen and counted before, told after, and each has the reason."""
    failed = []
    for n in range(30):
        failed.append(log.submit("render", title=f"Song {n}"))
        with pytest.raises(OSError, match="no space"), log.attempt(failed[-1]):
            raise OSError("no space")
    log.submit("mix")
    page = watched.page
    watched.go(site.place + "?q=state:failed")

    page.locator("#pick-all").check()
    expect(page.locator("#bulk-count")).to_have_text("25 jobs selected")
    page.get_by_role("button", name="Select all 30 jobs that match").click()
    page.locator("#bulk").get_by_role("button", name="Retry").click()
    expect(page.locator("#act-said")).to_contain_text("It would be done to 30 jobs")
    page.locator("#act-reason").fill("disk was cleaned")
    page.locator("#act-go").click()
    expect(page.locator("#act-said")).to_contain_text("30 jobs done")
    page.locator("#act-close").click()

    expect(page.locator("#bulk")).to_be_hidden()
    assert {("queued", "disk was cleaned")} == {(log.get(one).state, log.history(one)[-1].reason) for one in failed}


def test_a_queue_is_paused_with_a_reason(watched: Watched, site: Served, log: Jobs) -> None:
    """Who paused it, and why, is there for everybody; it is resumed by the same button."""
    log.submit("render", queue="slow")
    page = watched.page
    watched.go(site.place + "queues")
    row = page.locator("tr[data-row]").filter(has_text="slow")
    row.get_by_role("button", name="Pause").click()
    page.locator("#act-reason").fill("disk is full")
    page.locator("#act-go").click()

    expect(row).to_contain_text("paused by anonymous: disk is full")
    assert [("queue", "slow", "disk is full")] == [(one.kind, one.name, one.reason) for one in log.paused()]
    row.get_by_role("button", name="Resume").click()
    page.locator("#act-go").click()
    expect(row).to_contain_text("handed out")


def test_the_time_slider(watched: Watched, site: Served, log: Jobs) -> None:
    """Drawn back, the whole page is as it was after that event, the address says so, and Back to now leads to now."""
    past = fill(log)
    page = watched.page
    watched.go(f"{site.place}jobs/{past.done}")
    expect(page.locator(".head .state")).to_contain_text("succeeded")

    page.locator("#at").focus()
    for version in reversed(range(2, len(log.history(past.done)))):
        page.keyboard.press("ArrowLeft")
        page.wait_for_url(re.compile(rf"at={version}\b"))
    expect(page.locator(".head .state")).to_contain_text("running")
    expect(page.get_by_role("status").filter(has_text="As of event #2")).to_be_visible()
    expect(page.locator("tr[data-row]")).to_have_count(2)
    expect(page.locator("#at")).to_be_focused()
    page.reload()
    expect(page.locator(".head .state")).to_contain_text("running")
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(".head .state")).to_contain_text("succeeded")


def test_the_log_goes_on_by_itself(watched: Watched, site: Served, log: Jobs) -> None:
    """Lines come while the job runs, each once; the search hides the others; an event opens as JSON."""
    job_id = log.submit("render")
    page = watched.page
    lines = page.locator("#lines li[data-seq]")
    with log.attempt(job_id, worker="w1") as attempt:
        attempt.log("begun")
        watched.go(f"{site.place}jobs/{job_id}")
        expect(lines).to_have_count(1)
        attempt.log("mixing", level="warn", track=3)
        expect(lines).to_have_count(2)
        page.locator("#log-q").fill("MIX")
        expect(lines.filter(visible=True)).to_have_count(1)
        expect(page.locator("#log-found")).to_have_text("1 line")
        page.locator("#log-q").fill("")
    expect(page.locator(".head .state")).to_contain_text("succeeded")
    page.locator("#e1 summary").click()
    expect(page.locator("#e1 .eventjson")).to_contain_text('"type": "JobQueued"')
    expect(lines).to_have_count(2)


def test_times_are_the_viewers(watched: Watched, site: Served, log: Jobs) -> None:
    """Times are in the browser's zone, with UTC on hover, or in UTC where that is chosen."""
    job_id = log.submit("render")
    page = watched.page
    watched.go(f"{site.place}jobs/{job_id}")

    shown = page.locator("#e1 time").first
    at = log.history(job_id)[0].at
    assert f"{(at.hour + 9) % 24:02}:{at.minute:02}" in shown.inner_text()
    assert re.search(rf"Asia/Tokyo\n.*T?{at.hour:02}:{at.minute:02}.* UTC", shown.get_attribute("title") or "")
    page.get_by_role("button", name="Times in Asia/Tokyo").click()
    assert f"{at.hour:02}:{at.minute:02}" in shown.inner_text()
    page.reload()
    expect(page.get_by_role("button", name="Times in UTC")).to_be_visible()
    page.keyboard.press("z")
    expect(shown).to_contain_text(f"{(at.hour + 9) % 24:02}:{at.minute:02}")


def test_dark_light_and_system(watched: Watched, site: Served, new_context: Callable[..., BrowserContext]) -> None:
    """`t` turns through the themes, and the choice is there on the next page before anything is painted."""
    page = watched.page
    watched.go(site.place)

    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    page.keyboard.press("t")
    dark = ground()
    page.reload(wait_until="commit")
    page.wait_for_selector("body")
    assert dark == ground() != light
    page.keyboard.press("t")
    assert light == ground()
    other = new_context(color_scheme="dark").new_page()
    other.goto(site.place)
    assert dark == other.evaluate("getComputedStyle(document.body).backgroundColor")


def test_by_keyboard_alone(watched: Watched, site: Served, log: Jobs) -> None:
    """Search, rows, selection, help and refresh need no mouse, and focus is to be seen."""
    past = fill(log)
    page = watched.page
    watched.go(site.place)

    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("jk")
    expect(page.locator("#q")).to_have_value("jk")
    page.locator("#q").fill("")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.closest('tr')?.dataset.id")
    assert past.failed == focused
    assert "none" != page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("x")
    expect(page.locator(f"#row-{past.failed} .pick-one")).to_be_checked()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    with page.expect_response(lambda answer: "top=" in answer.url):
        page.keyboard.press("r")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(past.failed))


def test_on_a_phone(new_context: Callable[..., BrowserContext], site: Served, log: Jobs) -> None:
    """At 360 pixels no page is wider than the screen, and what is done most can be done."""
    past = fill(log)
    wiring.projector(log, leased=False).run_once()
    page = Watched(new_context(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True).new_page())
    for path in [*PAGES, f"jobs/{past.done}", f"jobs/{past.failed}", "?q=state:queued"]:
        page.go(site.place + path)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 360, path
    page.page.get_by_role("link", name=past.waiting).or_(page.page.locator(f"#row-{past.waiting} a.job")).first.tap()
    page.page.wait_for_url(re.compile(past.waiting))
    expect(page.page.get_by_role("button", name="Cancel")).to_be_in_viewport()
    assert [] == page.faults


@pytest.mark.parametrize("width", [360, 1280])
def test_a_title_without_a_space_widens_no_page(
    new_context: Callable[..., BrowserContext], site: Served, log: Jobs, width: int
) -> None:
    """Nor does a kind of job, a reason or a value."""
    long = "x" * 250
    job_id = log.submit(long, {long: long}, title="t" * 1000, actor=long)
    log.cancel(job_id, actor=long, reason=long)
    page = new_context(viewport={"width": width, "height": 800}).new_page()
    for path in ("", f"jobs/{job_id}", "audit"):
        page.goto(f"{site.place}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path


def test_a_server_that_goes_away_and_comes_back(watched: Watched, site: Served, log: Jobs) -> None:
    """While nobody answers the page says since when it is stale; when the server is back it goes on by itself."""
    job_id = log.submit("render")
    page = watched.page
    watched.go(site.place)
    site.stop()
    expect(page.locator("#stale")).to_contain_text("Stale since")
    expect(page.locator("#stale")).to_contain_text("the server cannot be reached")
    expect(page.locator("#live-state")).to_contain_text("stale")

    log.cancel(job_id)
    site.start()

    expect(page.locator("#stale")).to_be_hidden(timeout=20_000)
    expect(page.locator(f"#row-{job_id}")).to_contain_text("canceled")
    watched.faults = [one for one in watched.faults if "ERR_CONNECTION" not in one]


def test_a_hidden_tab_asks_nothing(watched: Watched, site: Served, log: Jobs) -> None:
    """Hidden, a page pauses; shown again, it looks at once."""
    job_id = log.submit("render")
    page = watched.page
    watched.go(site.place)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    hide = "(is) => {Object.defineProperty(document, 'hidden', {get: () => is, configurable: true});"
    page.evaluate(hide + "document.dispatchEvent(new Event('visibilitychange'));}", True)
    expect(page.locator("#live-state")).to_contain_text("hidden")
    page.wait_for_timeout(200)  # what was under way
    asked.clear()
    page.wait_for_timeout(1300)
    silent = list(asked)
    log.cancel(job_id)
    page.evaluate(hide + "document.dispatchEvent(new Event('visibilitychange'));}", False)

    expect(page.locator(f"#row-{job_id}")).to_contain_text("canceled")
    assert [] == silent


def test_below_a_prefix(watched: Watched, log: Jobs) -> None:
    """Mounted in another app, everything works below its prefix."""
    past = fill(log)
    outer = FastAPI()
    outer.mount("/ops/jobs", create_app(log))
    page = watched.page
    with served(outer) as site:
        watched.go(site.place + "ops/jobs")
        page.locator(f"#row-{past.done} a.job").click()
        expect(page.locator("#lines li[data-seq]")).to_have_count(1)
        page.get_by_role("link", name="Audit").click()
        expect(page.locator("tr[data-row]").first).to_be_visible()
        assert f"{site.place}ops/jobs/audit" == page.url


def test_sec_01_nothing_that_people_write_runs(watched: Watched, site: Served, log: Jobs) -> None:
    """With markup in every text of a job, no script runs on any page, the policy has nothing to forbid, and texts are exact."""
    job_id = log.submit("render", {ACTIVE: ACTIVE}, title=ACTIVE, queue=ACTIVE, key=ACTIVE, actor=ACTIVE, reason=ACTIVE)
    with pytest.raises(OSError, match="onerror"):
        _fail_actively(log, job_id)
    log.pause(queue=ACTIVE, actor=ACTIVE, reason=ACTIVE)
    page = watched.page
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error('policy ' + e.violatedDirective))"
    )
    for path in [*PAGES, f"jobs/{job_id}", f"jobs/{job_id}?view=json", f"jobs/{job_id}?with={job_id}", "?state=failed"]:
        watched.go(site.place + path)
        page.wait_for_function("document.querySelector('#lines .next') === null || document.querySelector('#lines li')")
        assert "owned" not in page.title().replace(ACTIVE, "")
        assert 0 == page.locator("img").count()
    watched.go(site.place)
    expect(page.locator(f"#row-{job_id} a.job")).to_have_text(ACTIVE)
    watched.go(f"{site.place}jobs/{job_id}")
    expect(page.locator("h1")).to_have_text(ACTIVE)
    expect(page.locator("#lines .msg")).to_have_text(ACTIVE)
    page.locator("#q, #log-q").first.fill(ACTIVE)
    watched.go(site.place + "?q=" + "%22%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%22")
    expect(page.locator("#q")).to_have_value('"<img src=x onerror=alert(1)>"')


def _fail_actively(log: Jobs, job_id: str) -> None:
    with log.attempt(job_id, worker="w1") as attempt:
        attempt.progress(3, ACTIVE)
        attempt.annotate(output_dir=ACTIVE)
        attempt.log(ACTIVE, attr=ACTIVE)
        raise OSError(ACTIVE)


def test_the_chart_is_drawn_and_leads_to_the_list(watched: Watched, site: Served, log: Jobs) -> None:
    """What ended is drawn; drawn over with the mouse, a stretch of it is a search."""
    fill(log)
    page = watched.page
    watched.go(site.place + "overview")
    canvas = page.locator("#chart canvas")
    expect(canvas).to_be_visible()
    over = page.locator("#chart .u-over").bounding_box()
    assert over is not None

    page.mouse.move(over["x"] + over["width"] * 0.5, over["y"] + 20)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] * 0.98, over["y"] + 40, steps=4)
    page.mouse.up()

    page.wait_for_url(re.compile("after"))
    expect(page.locator("#q")).to_have_value(re.compile("after:.* before:"))


def test_no_page_keeps_anybody_out(axe: str, new_context: Callable[..., BrowserContext], log: Jobs) -> None:
    """axe-core finds no serious violation on any page in either theme, menus and dialogs included."""
    past = fill(log)
    running = log.submit("render", title="Under way")
    registry = Registry()
    registry.job("settle", schedule="0 3 * * 1-5 Europe/Rome")(print)
    wiring.projector(log, leased=False).run_once()
    page = Watched(new_context(color_scheme="light", reduced_motion="reduce").new_page())
    found: dict[str, list[str]] = {}
    job_pages = [f"jobs/{past.failed}?at=2&view=json&with={past.done}", f"jobs/{running}"]
    with log.attempt(running) as attempt, served(create_app(log, registry=registry)) as site:
        attempt.progress(30, "mixing")
        for path in [*PAGES, *job_pages, "?q=state:nothing"]:
            page.go(site.place + path)
            if not path:
                page.page.locator("#pick-all").check()
                page.page.evaluate("for (const menu of document.querySelectorAll('.menu')) menu.open = true")
            if path.endswith(running):
                page.page.get_by_role("button", name="Cancel").click()
            page.page.evaluate(axe)  # by the protocol of the debugger, which the policy of the page does not hold
            for theme in ("light", "dark"):
                page.page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
                found[f"{path} {theme}"] = _violations(page.page)

    assert {} == {path: faults for path, faults in found.items() if faults}


def _violations(page: Page) -> list[str]:
    said = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false, iframes: false})")
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in said["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def test_without_scripts(new_context: Callable[..., BrowserContext], site: Served, log: Jobs) -> None:
    """A browser that runs none shows lists and jobs, searches, and goes back in time."""
    past = fill(log)
    page = new_context(java_script_enabled=False).new_page()
    page.goto(site.place)
    expect(rows(page)).to_have_count(3)
    page.locator("#q").fill("state:failed")
    page.get_by_role("button", name="Search").click()
    expect(rows(page)).to_have_count(1)
    page.goto(f"{site.place}jobs/{past.done}")
    page.get_by_role("link", name="One event back").click()
    expect(page.locator(".head .state")).to_contain_text("running")


def test_a_query_in_sql(watched: Watched, site: Served, log: Jobs) -> None:
    """It is run by the keyboard, its rows are shown as text, and it can be kept; what is wrong with it is said."""
    log.submit("render", title=ACTIVE)
    page = watched.page
    watched.go(site.place + "sql")
    page.locator("#query").fill("SELECT title, 1 AS n, NULL AS nothing FROM jobs")
    page.locator("#query").press("Control+Enter")

    expect(page.locator("#sql-found tbody td")).to_have_text([ACTIVE, "1", "NULL"], timeout=30_000)
    expect(page.locator("#sql-said")).to_contain_text("1 row in")
    page.get_by_role("button", name="Keep this one").click()
    page.locator("#query").fill("SELECT nope")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#sql-said")).to_contain_text("nope", timeout=30_000)
    expect(page.locator("#sql-found")).to_be_hidden()
    page.locator("#sql-kept").select_option(label="SELECT title, 1 AS n, NULL AS nothing FROM jobs")
    expect(page.locator("#query")).to_have_value("SELECT title, 1 AS n, NULL AS nothing FROM jobs")
