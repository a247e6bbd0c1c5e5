"""Queries on a page: what they find is what may be read, and whatever they ask for, the server goes on."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from jobevents import connect
from jobevents.errors import InvalidValue
from jobevents.jobs import Jobs
from projections import confined
from projections.api import create_app
from projections.api.access import Anonymous
from projections.api.masking import Mask
from projections.tables import Tables
from projections.ui import sqlpage
from tests.api import fill
from tests.http import Client, client_of
from tests.test_api_unreadable import teleport

pytestmark = pytest.mark.slow  # each query starts a process, which takes half a second


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Jobs, Client]]:
    """Jobs with a past and a secret, which no test changes."""
    with connect("memory://") as jobs, client_of(create_app(jobs)) as api:
        past = fill(jobs)
        jobs.submit("login", {"password": "hunter2", "song": 9007199254740993}, id="login-20260801-120000-dddddddddddd")
        teleport(jobs, past.waiting)
        yield jobs, api


def ask(api: Client, sql: str) -> Any:
    return api.request("POST", "/sql", json={"sql": sql})


def test_rows_as_people_read_them(served: tuple[Jobs, Client]) -> None:
    """Times, numbers and NULL, several tables at once; and how many jobs are shown only in part."""
    _, api = served

    found = ask(
        api,
        "SELECT j.name, count(*) AS n, max(a.outcome) AS outcome, CAST(min(j.created_at) AS DATE) AS day, max(a.deadline_s) AS d "
        "FROM jobs j JOIN events e USING (job_id) LEFT JOIN (SELECT *, NULL AS deadline_s FROM attempts) a USING (job_id) "
        "WHERE j.name <> 'mix' GROUP BY ALL ORDER BY n DESC, outcome",
    ).json()

    assert ["name", "n", "outcome", "day", "d"] == found["columns"]
    assert [["render", "8"], ["login", "1"]] == [row[:2] for row in found["rows"]]
    assert [None, None] == [row[4] for row in found["rows"]]
    assert (False, 1) == (found["has_more"], found["unreadable"])


def test_what_is_masked_is_not_to_be_found(served: tuple[Jobs, Client]) -> None:
    """Neither read, nor asked for, in any table: it never comes to the query."""
    _, api = served
    seen = ask(
        api,
        "SELECT CAST(params AS VARCHAR) AS said FROM jobs WHERE name = 'login' "
        "UNION ALL SELECT CAST(data AS VARCHAR) FROM events WHERE job_id LIKE 'login%' "
        "UNION ALL SELECT coalesce(damaged, '') FROM events",
    )
    asked = ask(
        api,
        "SELECT job_id FROM jobs WHERE CAST(params AS VARCHAR) LIKE '%hunter2%' "
        "UNION ALL SELECT job_id FROM events WHERE CAST(data AS VARCHAR) LIKE '%hunter%' OR damaged LIKE '%s3cr3t%'",
    )

    assert 200 == seen.status_code
    assert "hunter2" not in seen.text
    assert "s3cr3t" not in seen.text
    assert 2 == seen.text.count("[masked]")
    assert 2 == seen.text.count("9007199254740993")
    assert [] == asked.json()["rows"]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT nope FROM jobs", "nope"),
        ("DELETE FROM jobs", "one query that reads"),
        ("SELECT * FROM read_text('/etc/passwd')", "no files"),
        ("SELECT * FROM read_blob('/proc/self/environ')", "no files"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "one query that reads"),
        ("ATTACH '/tmp/jobs.db' (TYPE sqlite)", "one query that reads"),
        ("SELECT length(repeat('x', 4000000000))", "memory"),
        ("SELECT DATE 'infinity' AS \"end\"", "column='end': have the query CAST it"),
        ("SELECT '\ud800'", "not understood"),
        ("x" * (sqlpage.LIMIT + 1), "too long"),
    ],
)
def test_what_no_page_answers(sql: str, why: str, served: tuple[Jobs, Client]) -> None:
    """It says why not, and the next one is answered."""
    _, api = served

    refused = api.request("POST", "/sql", content=b'{"sql": ' + json_text(sql).encode() + b"}", headers=JSON)

    assert refused.status_code in (400, 503), refused.text
    assert why in refused.text


JSON = {"Content-Type": "application/json"}


def json_text(text: str) -> str:
    return '"' + text.encode("unicode_escape").decode().replace("\\x", "\\u00").replace('"', '\\"') + '"'


def test_a_query_without_an_end_is_ended(served: tuple[Jobs, Client]) -> None:
    """After its time the process is gone, another query is refused until then, and answered after."""
    jobs, api = served
    refusals: list[int] = []

    def meanwhile() -> None:
        refusals.append(ask(api, "SELECT 1").status_code)

    other = threading.Timer(0.4, meanwhile)
    other.start()
    with pytest.raises(InvalidValue, match="took longer than 1 s"):
        confined.run(jobs, Mask(), "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", seconds=1)
    other.join()

    assert [503] == refusals
    assert [["1"]] == ask(api, "SELECT 1").json()["rows"]


def test_many_rows_are_cut_and_said_to_be(served: tuple[Jobs, Client]) -> None:
    _, api = served

    found = ask(api, "SELECT range, repeat('y', 5000) FROM range(1001)").json()

    assert (confined.ROWS, True, confined.CELL) == (len(found["rows"]), found["has_more"], len(found["rows"][0][1]))


def test_wide_rows_are_cut_before_they_fill_the_server(served: tuple[Jobs, Client]) -> None:
    """As many as may be said, whatever is in each."""
    _, api = served
    cells = ", ".join(f"repeat('y', 5000) AS c{number}" for number in range(confined.COLUMNS + 1))

    answer = ask(api, f"SELECT {cells} FROM range(500)")
    found = answer.json()

    assert (confined.SAID // (confined.CELL * confined.COLUMNS), True) == (len(found["rows"]), found["has_more"])
    assert len(answer.content) < 2 * confined.SAID


def test_temporary_files_are_bounded(served: tuple[Jobs, Client]) -> None:
    _, api = served

    found = ask(api, "SELECT current_setting('max_temp_directory_size')").json()

    assert [["488.2 MiB"]] == found["rows"]


def test_a_query_ends_with_who_asked() -> None:
    """A server that is killed leaves no process behind, not even one that sleeps."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "projections.confined", str(theirs.fileno())]
    with theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as child:
        theirs.close()
        with Connection(ours.detach()) as connection, connect("memory://") as jobs:
            connection.recv_bytes()
            connection.send_bytes(b"SELECT sleep_ms(60000)")
            for name in ("events", "jobs", "attempts", "logs"):
                connection.send_bytes(Tables(jobs).stream(name).schema.serialize().to_pybytes())

        ended = child.wait(10)

    assert 1 == ended


def test_a_query_sees_nothing_of_the_server(served: tuple[Jobs, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its environment nor its files: the settings of the query's process are closed."""
    monkeypatch.setenv("JOBEVENTS_URL", "postgresql://u:s3cr3t@h/db")
    _, api = served

    found = ask(api, "SELECT value FROM duckdb_settings()")

    assert "s3cr3t" not in found.text
    assert socket.gethostname() not in found.text


def test_the_page_says_why_it_cannot_be_used(served: tuple[Jobs, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of the role, of the packages, or of a system that holds bounds."""
    jobs, api = served
    with client_of(create_app(jobs, access=Anonymous(name="eve", read_only=True))) as other:
        reader = other.get("/sql").text
    usual = api.get("/sql?q=SELECT+1").text
    monkeypatch.setattr("projections.ui.analytics._NEEDED", ("duckdb_of_nobody",))
    bare, refused = api.get("/sql").text, ask(api, "SELECT 1")
    monkeypatch.setattr("sys.platform", "win32")
    foreign = api.get("/sql").text

    assert "eve has not the role admin" in reader
    assert ">SELECT 1</textarea>" in usual
    assert "Queries cannot be run here" not in usual
    assert "pip install" in bare
    assert 500 == refused.status_code
    assert "only Linux" in foreign


def test_a_page_of_another_site_asks_nothing(served: tuple[Jobs, Client]) -> None:
    """What a browser sends unasked is refused before it costs anything."""
    _, api = served

    answer = api.request("POST", "/sql", json={"sql": "SELECT 1"}, headers={"Sec-Fetch-Site": "cross-site"})

    assert 403 == answer.status_code
