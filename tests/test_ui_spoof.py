"""Text that people chose shows as what it is, however long, deep or deceitful, and a page of it stays small."""

import time
from html import unescape
from typing import Any

import pytest

from jobevents.jobs import Jobs
from projections.ui.words import json_text, plain
from tests.http import Client
from tests.test_ui_job import text_of

pytest_plugins = ("tests.api_fixtures",)

UNSEEN = [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]


@pytest.mark.parametrize("code", UNSEEN, ids=hex)
def test_unseen_characters_are_shown(code: int) -> None:
    """As their number; in JSON as an escape, which is the same value."""
    assert f"a[U+{code:04X}]b" == plain(f"a{chr(code)}b")
    assert f'"a\\u{code:04x}b"' == json_text(f"a{chr(code)}b")


def test_other_writing_is_left_as_it_is() -> None:
    assert "שלום مرحبا Ärger 1\u202f000 東京" == plain("שלום مرحبا Ärger 1\u202f000 東京")


def test_nobody_passes_for_somebody_else(api: Client, jobs: Jobs) -> None:
    """No page has an unseen character, whether in a title, an actor, a reason, a name or a value."""
    evil = "ana\u202e\u2066bob\u200b\ufeff"
    job_id = jobs.submit("render", {evil: [evil]}, title=f"title {evil}", actor=evil, key=evil)
    jobs.cancel(job_id, actor=evil, reason=evil)
    if jobs.desk is not None:
        jobs.pause(queue="slow", actor=evil, reason=evil)

    for path in ("/", "/?q=ana", f"/jobs/{job_id}", f"/jobs/{job_id}?view=json", "/audit", "/queues", "/overview"):
        answer = api.get(path)
        assert 200 == answer.status_code or (jobs.desk is None and "q=" in path), path
        assert not {chr(code) for code in UNSEEN} & set(unescape(answer.text)), path
    if jobs.log.ordered:
        assert job_id in api.get("/audit", params={"actor": "ana[U+202E]"}).text
    assert "ana[U+202E][U+2066]bob[U+200B][U+FEFF]" in text_of(api.get(f"/jobs/{job_id}"))


def test_a_form_sends_back_what_was_typed(api: Client) -> None:
    assert 'value="a\u200bb"' in api.get("/audit", params={"actor": "a\u200bb"}).text


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "params",
    [[[]] * 20_000, {f"k{number}": {} for number in range(6000)}, [[1] * 100] * 200, deep(95)],
    ids=["lists", "objects", "both", "deep"],
)
def test_a_large_value_is_cut_and_can_be_had_whole(api: Client, jobs: Jobs, params: Any) -> None:
    """The page is small and soon there; the whole is there as JSON, and that it was cut is said."""
    job_id = jobs.submit("render", params)

    began = time.perf_counter()
    answer = api.get(f"/jobs/{job_id}")

    assert 200 == answer.status_code
    assert time.perf_counter() - began < 2
    assert answer.text.count('class="tree"') + answer.text.count('class="leaf"') <= 2000
    assert "Not all of it is shown" in answer.text
    assert json_text(params) in unescape(answer.text)


def test_a_small_value_is_shown_whole(api: Client, jobs: Jobs) -> None:
    job_id = jobs.submit("render", {"songs": [{"n": number} for number in range(400)]})

    answer = api.get(f"/jobs/{job_id}")

    assert 400 == answer.text.count('class="leaf"')
    assert "Not all of it is shown" not in answer.text
