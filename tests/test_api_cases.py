"""The failures of other systems at the edge of HTTP, each by its id, where no test of lists, doors or pages has it."""

import json
from typing import Any

import pytest

from jobevents.boundary import ERROR_LIMIT, PAYLOAD_LIMIT
from jobevents.ids import sort_key
from jobevents.jobs import Jobs
from tests.api import project
from tests.http import Client

pytest_plugins = ("tests.api_fixtures",)

JSON = {"Content-Type": "application/json"}


def submit(api: Client, text: str) -> Any:
    return api.request("POST", "/api/jobs", content=text.encode(), headers=JSON)


def strictly(text: str) -> Any:
    """Read JSON as a parser does that takes nothing beside it."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "[1e400]"])
def test_dat_03_what_is_no_number_is_refused(value: str, api: Client, jobs: Jobs) -> None:
    """Before anything is written."""
    answer = submit(api, f'{{"command": "render", "params": {{"x": {value}}}}}')

    assert 400 == answer.status_code
    assert [] == list(jobs.log.scan())


def test_dat_03_a_result_that_is_no_number(api: Client, jobs: Jobs) -> None:
    """The job has succeeded all the same, and every answer about it is JSON for a strict parser."""
    with jobs.attempt(jobs.submit("render", id="a")) as attempt:
        attempt.progress(float("nan"))
        attempt.result({"x": float("inf")})

    told = [strictly(api.get(f"/api/jobs/a{path}").text) for path in ("", "/status", "/events")]

    assert ["succeeded", "succeeded"] == [one["state"] for one in told[:2]]
    assert "unstorable" in told[0]["result"]


def test_dat_04_a_long_error(api: Client, jobs: Jobs) -> None:
    """The failure is told with start and end, and what was cut; no answer is longer for it than that."""
    text = "ü" * 5_000_000 + "the end"
    with pytest.raises(OSError, match="the end"), jobs.attempt(jobs.submit("render", id="a")):
        raise OSError(text)
    project(jobs)

    for path in ("/api/jobs/a", "/api/jobs/a/status", "/api/jobs", "/api/jobs/a/events", "/jobs/a", "/"):
        answer = api.get(path)
        assert 200 == answer.status_code
        assert len(answer.content) < 20 * ERROR_LIMIT, path
    assert ("failed", True, True) == (
        (told := api.get("/api/jobs/a/status").json())["state"],
        "bytes cut" in told["error"],
        told["error"].endswith("the end"),
    )


@pytest.mark.parametrize(
    ("size", "status"),
    [(PAYLOAD_LIMIT - 2, 200), (PAYLOAD_LIMIT - 1, 400), (101 * 1024, 400), (1 << 20, 413), (11 << 20, 413)],
)
def test_dat_07_a_large_payload(size: int, status: int, api: Client) -> None:
    """What no transport would carry is refused at once, with the limit, and the size where it was read."""
    answer = submit(api, '{"command": "render", "params": "%s"}' % ("x" * size))

    assert status == answer.status_code
    if status != 200:
        assert f"limit={PAYLOAD_LIMIT if status == 400 else 256 * 1024}" in answer.json()["why"]
        assert f"size={size + 2}" in answer.json()["why"] or status == 413


@pytest.mark.parametrize(
    "job_id",
    [
        "a/b",
        "a\\b",
        "a+b",
        "a%b",
        "a?b",
        "a#b",
        "a&b",
        "a b",
        "a:b",
        "a;b",
        "a'b",
        'a"b',
        ".",
        "..",
        "%2e%2e",
        "a\n",
        "",
    ],
)
def test_dat_11_an_id_that_no_link_could_hold(job_id: str, api: Client) -> None:
    """Is refused as no id, when it is made as when it is asked for."""
    answer = submit(api, json.dumps({"command": "render", "id": job_id}))

    assert (400, "invalid_job_id") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("job_id", ["A", "a_b-C", "0" * 128, "x-20260801-120000-abc"])
def test_dat_11_an_id_that_is_one_is_one_everywhere(job_id: str, api: Client, jobs: Jobs) -> None:
    assert 200 == submit(api, json.dumps({"command": "render", "id": job_id})).status_code
    project(jobs)

    assert [job_id] == [one["job_id"] for one in api.get("/api/jobs").json()["items"]]
    assert f"jobs/{job_id}" in api.get("/").text
    assert [200] * 3 == [api.get(f"{path}/{job_id}").status_code for path in ("/jobs", "/api/jobs", "/api/jobs")]


@pytest.mark.parametrize("query", ["", "queue=default"])
def test_pag_04_the_order_is_that_of_the_times_in_ids(query: str, api: Client, jobs: Jobs) -> None:
    """Whatever their prefixes and widths, whatever order they came in, from the index as from the table; those without last."""
    ids = [
        "b-20260801-120000-1",
        "run-99",
        "z-20260801-115959-1",
        "a-20260801-120000-2",
        "20260801120000-0",
        "c20260801-120001-0",
        "run-101",
        "B-20260801-120000-1",
    ]
    for job_id in ids:
        jobs.submit("render", id=job_id)
    project(jobs)

    expected = sorted(ids, key=lambda job_id: (sort_key(job_id), job_id), reverse=True)
    pages = [
        one["job_id"]
        for page in (1, 2, 3)
        for one in api.get(f"/api/jobs?per_page=3&page={page}&{query}").json()["items"]
    ]
    assert expected == pages
    assert ["run-99", "run-101"] == pages[-2:]
    assert "c20260801-120001-0" == pages[0]
