"""SQL over history: the tables are the folds, in any format, whatever the texts, and nothing is written."""

import csv
import io
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from jobevents import connect
from jobevents.errors import InvalidValue, Unavailable
from jobevents.events import Event, JobFailed, JobQueued, JobRequeued, JobStarted, JobSucceeded, TransitionRefused
from jobevents.export import export
from jobevents.job import DELETED, fold
from jobevents.jobs import Jobs
from jobevents.restoring import restore
from jobevents.testing.strategies import histories
from projections.csvtext import exact_text, safe_text
from projections.query import _CLOSED, _SETTINGS, query, report
from projections.reports import REPORTS
from projections.starts import starts_of
from projections.tables import BATCH, Tables
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.histories import AT, make, queued
from tests.jobstates import LIVES, bring

duckdb = pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
pytest_plugins = ("tests.postgres",)

MINUTE = timedelta(minutes=1)
TABLES = ("events", "jobs", "attempts")


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with connect("memory://", actor="ana") as made:
        yield made


def rows(jobs: Jobs, sql: str, **options: Any) -> list[dict[str, Any]]:
    with query(jobs, sql, **options) as answer:
        return answer.rows()


def asked(jobs: Jobs, name: str, **options: Any) -> list[dict[str, Any]]:
    with report(jobs, name, **options) as answer:
        return answer.rows()


def write(jobs: Jobs, *events: Event) -> None:
    """Append events of one job, with its row."""
    jobs.log.append(events, rows=[fold([*jobs.log.read(events[0].job_id), *events])])


def live(jobs: Jobs, job_id: str, *steps: tuple[type[Event], int, dict[str, Any]]) -> None:
    """Write a history: type, minutes after the start, fields."""
    write(
        jobs,
        *(
            make(cls, job_id, n, at=AT + minutes * MINUTE, **fields)
            for n, (cls, minutes, fields) in enumerate(steps, 1)
        ),
    )


def several() -> st.SearchStrategy[list[list[Event]]]:
    """Histories of a few jobs."""
    one = st.integers(0, 3).flatmap(lambda n: histories(job_id=f"job-{n}"))
    return st.lists(one, max_size=4, unique_by=lambda events: events[0].job_id)


@pytest.mark.slow
@settings(max_examples=15)
@given(made=several())
def test_the_tables_are_the_folds(made: list[list[Event]]) -> None:
    """Every event with its bytes, every job that is not deleted as it folds, every start once."""
    with connect("memory://") as jobs:
        for events in made:
            write(jobs, *events)
        stored = {(one.job_id, one.version): one.data.decode() for one in jobs.log.scan()}
        folded = {events[0].job_id: fold(jobs.log.read(events[0].job_id)) for events in made}

        tables = Tables(jobs)  # DuckDB has its own tests, and takes most of the time of one
        events, named, attempts = (tables.stream(name).reader().read_all().to_pylist() for name in TABLES)
        assert stored == {(one["job_id"], one["version"]): one["data"] for one in events}
        found = {one["job_id"]: one for one in named}
        assert {job_id for job_id, job in folded.items() if job.state != DELETED} == found.keys()
        for job_id, row in found.items():
            job = folded[job_id]
            same = ("state", "name", "title", "starts", "version", "error", "worker", "started_at", "finished_at")
            assert [getattr(job, name) for name in same] == [row[name] for name in same]
            assert msgspec.json.decode(row["fields"]) == job.fields
        assert len({(one["job_id"], one["start"]) for one in attempts}) == len(attempts)
        running = {one["job_id"] for one in attempts if one["outcome"] == "running"}
        assert {job_id for job_id, job in folded.items() if job.state == "running"} == running


def test_a_table_may_be_read_twice(jobs: Jobs) -> None:
    """Joined with itself, a table is the same each time, as of the start of the query."""
    for n in range(BATCH // 2 + 10):
        write(jobs, queued(f"job-{n:05}"), make(JobStarted, f"job-{n:05}", 2, attempt=1))

    sql = "SELECT count(*) n FROM events a JOIN events b ON a.job_id = b.job_id AND b.version = a.version + 1"

    assert [{"n": BATCH // 2 + 10}] == rows(jobs, sql)


def test_a_query_sees_nothing_that_comes_after_it_began(jobs: Jobs) -> None:
    """PAG-01: what is appended while it reads is in none of its tables."""
    bring(jobs, "queued")

    with query(jobs, "SELECT (SELECT count(*) FROM events) e, (SELECT count(*) FROM jobs) j") as answer:
        jobs.submit("render")
        assert [{"e": 1, "j": 1}] == answer.rows()


def test_how_attempts_end(jobs: Jobs) -> None:
    """Each start with its outcome, how long it waited from when it was due, and how long it took."""
    live(
        jobs,
        "a",
        (JobQueued, 0, {"name": "render"}),
        (JobStarted, 2, {"attempt": 1, "worker": "w1"}),
        (JobFailed, 5, {"start": 2, "error": "boom", "kind": "OSError", "retry_at": AT + 10 * MINUTE}),
        (JobStarted, 11, {"attempt": 2, "worker": "w2"}),
        (JobRequeued, 20, {"start": 4, "cause": "lost"}),
        (JobStarted, 21, {"attempt": 3, "worker": "w3"}),
        (JobSucceeded, 30, {"start": 6}),
        (TransitionRefused, 31, {"start": 4, "tried": "JobSucceeded", "state": "succeeded"}),
    )

    found = rows(jobs, "SELECT outcome, waited_ms, duration_ms, worker, error FROM attempts ORDER BY start")

    assert [
        ("retried", 120_000, 180_000, "w1", "boom"),
        ("lost", 60_000, 540_000, "w2", ""),
        ("succeeded", 60_000, 540_000, "w3", ""),
    ] == [tuple(one.values()) for one in found]
    assert found == [{key: getattr(one, key) for key in found[0]} for one in starts_of(jobs.log.read("a"))]


@pytest.fixture
def history(jobs: Jobs) -> Jobs:
    """Three kinds of jobs on two days around midnight."""
    late = 11 * 60 + 40  # minutes: shortly before midnight
    for n in range(4):
        live(
            jobs,
            f"render-{n}",
            (JobQueued, 0, {"name": "render"}),
            (JobStarted, 1, {"attempt": 1, "worker": "w1"}),
            (JobSucceeded, 3 + n, {"start": 2}),
        )
    for n in range(3):
        live(
            jobs,
            f"mix-{n}",
            (JobQueued, late, {"name": "mix", "queue": "slow"}),
            (JobStarted, late, {"attempt": 1, "worker": "w2"}),
            (JobFailed, late + 15 * n, {"start": 2, "error": "boom", "kind": "OSError"}),
        )
    live(jobs, "cut-1", (JobQueued, 0, {"name": "cut"}), (JobStarted, 5, {"attempt": 1, "worker": "w9"}))
    refused = {"start": 2, "tried": "JobFailed", "state": "succeeded"}
    write(jobs, make(TransitionRefused, "render-0", 4, at=AT + 9 * MINUTE, **refused))
    return jobs


EXPECTED: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "failures-per-day": (
        {},
        [
            {"day": "2026-07-26", "name": "mix", "failures": 2, "jobs": 2, "lost": 0, "most_often": "OSError"},
            {"day": "2026-07-27", "name": "mix", "failures": 1, "jobs": 1, "lost": 0, "most_often": "OSError"},
        ],
    ),
    "stuck": (
        {"now": AT + 90 * MINUTE},
        [{"job_id": "cut-1", "name": "cut", "worker": "w9", "running_s": 85 * 60}],
    ),
    "durations": (
        {},
        [
            {"name": "mix", "outcome": "failed", "attempts": 3, "p50_ms": 900_000, "most_ms": 1_800_000},
            {"name": "render", "outcome": "succeeded", "attempts": 4, "p50_ms": 180_000, "most_ms": 300_000},
        ],
    ),
    "waits": (
        {},
        [
            {"queue": "default", "name": "cut", "attempts": 1, "p95_ms": 300_000},
            {"queue": "default", "name": "render", "attempts": 4, "p95_ms": 60_000},
            {"queue": "slow", "name": "mix", "attempts": 3, "p95_ms": 0},
        ],
    ),
    "retries": (
        {},
        [
            {"name": "cut", "jobs": 1, "attempts": 1, "retried": 0, "failed": 0},
            {"name": "mix", "jobs": 3, "attempts": 3, "retried": 0, "failed": 3, "most_often": "OSError"},
            {"name": "render", "jobs": 4, "attempts": 4, "failed": 0},
        ],
    ),
    "guard-savings": ({}, [{"name": "render", "met": "succeeded", "tried": "JobFailed", "refused": 1, "jobs": 1}]),
    "sla": (
        {"within": 4 * MINUTE, "now": AT + 12 * 60 * MINUTE},
        [
            {"name": "cut", "jobs": 1, "within": 0, "beyond": 1, "percent": 0.0},
            {"name": "mix", "jobs": 3, "within": 0, "beyond": 3, "percent": 0.0},
            {"name": "render", "jobs": 4, "within": 2, "beyond": 2, "percent": 50.0},
        ],
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_answers_its_question(history: Jobs, name: str) -> None:
    """Each of the named ones, on a history whose answers are known."""
    options, expected = EXPECTED[name]

    found = asked(history, name, **options)

    shown = [msgspec.to_builtins(one, builtin_types=()) for one in found]
    assert expected == [{key: one[key] for key in wanted} for one, wanted in zip(shown, expected, strict=True)]


def test_tim_06_a_local_day_may_have_25_hours(jobs: Jobs) -> None:
    """TIM-06: an event each half hour around the night when clocks go back; each is in one day, and none in two."""
    began = datetime(2026, 10, 24, 20, tzinfo=UTC)  # 23:00 in Helsinki
    write(jobs, make(JobQueued, "a", 1, at=began, name="render"))
    write(jobs, *(make(JobRequeued, "a", n, at=began + (n - 1) * 30 * MINUTE, cause="retry") for n in range(2, 57)))

    sql = "SELECT CAST(CAST(written_at AS DATE) AS VARCHAR) AS day, count(*) n FROM events GROUP BY 1 ORDER BY 1"

    assert [("2026-10-24", 2), ("2026-10-25", 50), ("2026-10-26", 4)] == [
        tuple(one.values()) for one in rows(jobs, sql, zone="Europe/Helsinki")
    ]


ACTIVE = ["=1+1", "+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", " =1", "  -2", "\u3000=1", "\uff1d1+1", "\n@x"]
HARMLESS = ["'=1+1", "''", "a=1", 'say "x", y\nz', "ü\u2028", "", "1", "1,5", "true", "null", "\U0001f600"]


@pytest.mark.parametrize("text", [*ACTIVE, *HARMLESS])
def test_sec_10_no_text_is_a_formula_in_a_csv(jobevents: CommandLine, tmp_path: Path, text: str) -> None:
    """SEC-10: a title that a spreadsheet would run opens as text, comes back whole, and is exact in JSON and in Parquet."""
    with connect("sqlite:///jobs.db?synchronous=normal") as jobs:
        jobs.submit("render", title=text, id="a")
    ask = "SELECT title, version - 5 AS number FROM jobs"

    told = jobevents("sql", ask, "--format", "csv", "--out", "a.csv")
    jobevents("sql", ask, "--out", "a.parquet")
    lines = jobevents("sql", ask)

    assert (0, "") == (told.code, told.out)
    [_, (cell, number)] = csv.reader(io.StringIO((tmp_path / "a.csv").read_bytes().decode(), newline=""))
    assert text == exact_text(cell)
    assert not cell.lstrip() or cell.lstrip()[0] not in "=+-@\uff1d\uff0b\uff0d\uff20"
    assert "-4" == number
    assert {"title": text, "number": -4} == lines.json
    assert [{"title": text, "number": -4}] == pq.read_table(tmp_path / "a.parquet").to_pylist()


@pytest.mark.parametrize(
    "start", ["\0", "\u200b", "\ufeff", "\u200e", "\x1b", "\u202e", "\xad", "\u2060 ", "\x85\u180e"]
)
@pytest.mark.parametrize("sign", "=+-@\u2212\ufe63\uff1d")
def test_what_is_not_seen_hides_no_formula(start: str, sign: str) -> None:
    """A reader that leaves such characters out finds text all the same."""
    assert f"'{start}{sign}1" == safe_text(f"{start}{sign}1")
    assert f"'{sign}1" == safe_text(f"{sign}1")
    assert f"{start}1{sign}1" == safe_text(f"{start}1{sign}1")


@given(text=st.text())
def test_a_cell_gives_its_text_back(text: str) -> None:
    """Any text at all."""
    assert text == exact_text(safe_text(text))


def test_dat_12_integers_beyond_2_to_53_are_exact(jobs: Jobs, jobevents: CommandLine) -> None:
    """DAT-12: in params, as JSON numbers, and summed beyond 64 bits."""
    with connect("sqlite:///jobs.db?synchronous=normal") as there:
        there.submit_many([{"name": "render", "params": {"n": 2**63 - 1}}] * 2)

    told = jobevents("sql", "SELECT sum(CAST(params ->> '$.n' AS HUGEINT)) AS n, any_value(params) AS p FROM jobs")

    assert f'{{"n":{2**64 - 2},"p":{{"n":{2**63 - 1}}}}}\n' == told.out


def test_prj_09_what_cannot_be_read_is_said_and_hides_nothing(jobs: Jobs) -> None:
    """PRJ-09: an event unknown here, and bytes that are none: their rows are there, their jobs as they were before."""
    bring(jobs, "succeeded", id="a")
    bring(jobs, "queued", id="b")
    unknown = b'{"type":"JobPaused","job_id":"a","version":4,"id":"x","at":"2026-07-26T12:00:31Z"}'
    jobs.log.recorder.insert_events([StoredEvent("a", 4, "JobPaused", unknown)])
    jobs.log.recorder.insert_events([StoredEvent("b", 2, "JobStarted", b'{"type":"JobSta\xff')])

    with query(jobs, "SELECT job_id, state FROM jobs ORDER BY job_id") as answer:
        found = answer.rows()
        assert {"a", "b"} == answer.unreadable.keys()
    last = rows(jobs, "SELECT type, written_at, data, damaged FROM events ORDER BY cursor DESC LIMIT 2")

    assert [{"job_id": "a", "state": "succeeded"}, {"job_id": "b", "state": "queued"}] == found
    assert ["JobStarted", None, None, '{"type":"JobSta\ufffd'] == list(last[0].values())
    assert (datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC), None) == (last[1]["written_at"], last[1]["damaged"])


@pytest.mark.parametrize(
    "sql",
    [
        "selec",
        "SELECT nope FROM events",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x(a INT)",
        "COPY (SELECT 1) TO 'x.csv'",
        "SELECT * FROM answer",
        "SELECT CAST(type AS INT) FROM events",
        "ATTACH 'x.db'",
        "SET threads = 1",
        "EXPLAIN COPY (SELECT 1) TO 'x.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "explain\n(analyze, format json) copy (select 1) to 'x.csv'",
        "EXPLAIN ANALYZE CREATE TABLE x(a INT)",
        "/* */ EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "EXPLAIN /* /* */ SELECT 1 -- */ ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "EXPLAIN ANALYZE SELECT 1; COPY (SELECT 1) TO 'x.csv'",
        "SELECT * FROM read_text('mine.csv')",
        "SELECT * FROM read_blob('mine.csv')",
        "SELECT * FROM read_csv('mine.csv')",
        "SELECT * FROM 'mine.csv'",
        "SELECT * FROM glob('*')",
        "SELECT * FROM read_text('http://127.0.0.1:9/')",
        "SELECT * FROM query('SELECT * FROM ''mine.csv''')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM ''mine.csv'''))",
        "SELECT * FROM (DESCRIBE 'mine.csv')",
        "SELECT * FROM enable_logging(storage='file', storage_path='log')",
        "SELECT * FROM enable_profiling(format='json', save_location='profile')",
        "SELECT getenv('PATH')",
        "WITH gone AS (DELETE FROM jobs RETURNING *) SELECT * FROM gone",
        "EXPORT DATABASE 'mine'",
        "RESET enable_external_access",
        "INSTALL httpfs",
        "LOAD httpfs",
        "",
    ],
)
def test_a_query_that_cannot_be_run_is_refused(
    jobs: Jobs, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With DuckDB's own words, nothing written, no file read, also where it is explained; a variable of Python is no table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("a\n1\n")
    answer = jobs.submit("render")
    assert answer

    with pytest.raises(InvalidValue):
        rows(jobs, sql)

    assert ["mine.csv"] == [one.name for one in tmp_path.iterdir()]


def test_no_function_of_duckdb_opens_a_file_or_an_address(tmp_path: Path) -> None:
    """Whatever this version of it has: as queries run, with all that is closed for them, each is asked for both."""
    (tmp_path / "mine.csv").write_text("s3cr3t,b\n1,2\n")
    with socket.create_server(("127.0.0.1", 0)) as listener, duckdb.connect(config=_SETTINGS) as connection:
        listener.setblocking(False)
        for setting in _CLOSED:
            connection.execute(setting)
        functions = (
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
        )
        names = {name for (name,) in connection.execute(functions).fetchall()}
        said = []
        for name in names:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.csv"
            for place in (tmp_path / "mine.csv", tmp_path / "*", tmp_path / "new", url):
                for asked in (f"'{place}'", f"['{place}']"):
                    with suppress(duckdb.Error):
                        found = str(connection.execute(f"SELECT * FROM {name}({asked})").fetchmany(100))
                        said.append(found.replace(str(place), ""))  # some say what they were given
        with pytest.raises(BlockingIOError):
            listener.accept()

    assert {"read_csv", "read_blob", "glob", "enable_logging"} <= names
    assert "s3cr3t" not in "".join(said)
    assert "mine.csv" not in "".join(said)
    assert ["mine.csv"] == [one.name for one in tmp_path.iterdir()]


@pytest.mark.parametrize(
    "how", ["EXPLAIN", "explain analyze", " EXPLAIN (FORMAT json)", "EXPLAIN\n(ANALYZE, FORMAT json)"]
)
def test_a_query_may_be_explained(jobs: Jobs, how: str) -> None:
    """Its plan is told as DuckDB tells it."""
    jobs.submit("render")

    [plan] = rows(jobs, f"{how} SELECT count(*) FROM jobs")

    assert "ARROW_SCAN" in plan["explain_value"].upper()


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ("events", "cursor > 5 AND cursor <= 20"),
        ("events", "type = 'JobStarted' OR version = 1"),
        ("events", "type <> 'JobQueued' AND job_id IN ('render-0', 'mix-1')"),
        ("events", "written_at >= TIMESTAMPTZ '2026-07-26 23:00:00+00' AND actor = ''"),
        ("events", "data ->> '$.start' = '2'"),
        ("events", "damaged IS NULL"),
        ("jobs", "state = 'running' AND started_at < TIMESTAMPTZ '2026-07-27 00:00:00+00'"),
        ("jobs", "finished_at IS NULL OR duration_ms BETWEEN 120000 AND 180000"),
        ("jobs", "NOT external AND progress IS NULL AND name LIKE 'm%'"),
        ("jobs", "params ->> '$.song' IS NULL AND refused = 1"),
        ("jobs", "deadline IS NOT NULL"),
        ("attempts", "outcome IN ('failed', 'lost') AND waited_ms < 60000"),
        ("attempts", "late OR error_kind = 'OSError' AND ended_at > TIMESTAMPTZ '2026-07-26 23:59:00+00'"),
        ("attempts", "error IS DISTINCT FROM 'boom' AND start >= 2"),
    ],
)
def test_what_a_query_asks_for_is_what_it_is_given(history: Jobs, table: str, where: str) -> None:
    """Rows and columns that are left out before they are made are those that the whole table would have lost, too."""
    whole = rows(
        history, f"WITH t AS MATERIALIZED (SELECT * FROM {table}) SELECT job_id FROM t WHERE {where} ORDER BY 1"
    )

    assert whole == rows(history, f"SELECT job_id FROM {table} WHERE {where} ORDER BY 1")
    assert [{"n": len(whole)}] == rows(history, f"SELECT count(*) n FROM {table} WHERE {where}")


def test_a_query_makes_nothing_that_it_does_not_name(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a history with a payload of any size, only what is asked for is read from the log."""
    bring(jobs, "queued")
    asked_for: list[set[str]] = []
    columns = jobs.log.columns
    monkeypatch.setattr(jobs.log, "columns", lambda names, **how: asked_for.append(set(names)) or columns(names, **how))

    rows(jobs, "SELECT type, count(*) FROM events WHERE version > 0 GROUP BY ALL")
    rows(jobs, "SELECT max(written_at) FROM events")

    assert [{"type", "version"}, {"data"}] == asked_for


def test_a_query_that_is_larger_than_memory_goes_to_disk(jobs: Jobs) -> None:
    """Files that DuckDB itself needs are no files of the query."""
    jobs.submit("render")
    sql = "SELECT repeat('x', 100) || n AS text FROM range(500_000) made(n), jobs ORDER BY hash(n), n"

    with query(jobs, sql, memory_mb=64) as answer:
        assert 500_000 == sum(batch.num_rows for batch in answer.batches())


def test_trouble_of_the_log_is_not_taken_for_the_querys(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that cannot be read in the middle: its own error, and no rows that look like all."""
    for n in range(BATCH + 1):
        write(jobs, queued(f"job-{n:05}"))
    select = jobs.log.recorder.select_notifications

    def failing(start: int, *args: Any, **options: Any) -> Any:
        if start > 10:
            raise Unavailable("the disk is gone")
        return select(start, *args, **options)

    monkeypatch.setattr(jobs.log.recorder, "select_notifications", failing)

    with pytest.raises(Unavailable, match="the disk is gone"):
        rows(jobs, "SELECT count(*) FROM events")


def test_log_lines_are_a_table(jobs: Jobs) -> None:
    """Every line of every job, in pages."""
    for n in range(2):
        with jobs.attempt(jobs.submit("render", id=f"job-{n}")) as attempt:
            for line in range(1100):
                attempt.log(f"line {line}", n=line)

    found = rows(jobs, "SELECT job_id, count(*) n, max(CAST(attrs ->> '$.n' AS INT)) m FROM logs GROUP BY 1 ORDER BY 1")

    assert [("job-0", 1100, 1099), ("job-1", 1100, 1099)] == [tuple(one.values()) for one in found]


@pytest.mark.services
def test_every_backend_gives_the_same_answers(jobs: Jobs, postgres_url: str, tmp_path: Path) -> None:
    """Imported into SQLite and Postgres, a history answers every question alike."""
    for life in LIVES:
        bring(jobs, life, params={"life": life})
    export(jobs, tmp_path / "all.jsonl")
    tables = ("jobs", "attempts", "logs")
    events = "SELECT * EXCLUDE (cursor) FROM events ORDER BY ALL"
    questions = [events, *(f"SELECT * FROM {table} ORDER BY ALL" for table in tables)]
    now = datetime(2040, 1, 1, tzinfo=UTC)
    expected = [*(rows(jobs, one) for one in questions), *(asked(jobs, name, now=now) for name in REPORTS)]

    for url in (postgres_url, f"sqlite:///{tmp_path}/a.db?synchronous=normal", "memory://?log=blobs"):
        with connect(url) as there:
            restore(there.emitter, there.run_logs, tmp_path / "all.jsonl")
            found = [*(rows(there, one) for one in questions), *(asked(there, name, now=now) for name in REPORTS)]

            assert expected == found


def test_the_command_line_asks(jobevents: CommandLine, tmp_path: Path) -> None:
    """A table at a terminal, JSON lines in a pipe, files by their names, and what is wrong is 2."""
    jobevents("submit", "--create", "render", "--title", "[red]x", "--id", "a")
    ask = "SELECT job_id, title FROM jobs"

    table = jobevents("sql", ask, at_terminal=True)
    piped = jobevents("sql", ask)
    empty = jobevents("sql", "SELECT 1 WHERE false", at_terminal=True)
    written = jobevents("sql", ask, "--out", "a.jsonl")
    named = jobevents("sql", "--report", "sla", "--within", "5m")

    assert "job_id  title\na       [red]x\n" == table.out.replace(" \n", "\n")
    assert '{"job_id":"a","title":"[red]x"}\n' == piped.out
    assert (0, "") == (empty.code, empty.out)
    assert "no rows" in empty.err
    assert "1 rows in a.jsonl" in written.err
    assert piped.out == (tmp_path / "a.jsonl").read_text()
    assert ("render", 1) == (named.json["name"], named.json["still_in_time"])
    wrong = [
        ("sql",),
        ("sql", ask, "--report", "sla"),
        ("sql", "--report", "nope"),
        ("sql", "--report", "waits", "--within", "5m"),
        ("sql", "--report", "sla", "--within", "soon"),
        ("sql", ask, "--within", "5m"),
        ("sql", ask, "--out", "a.xls"),
        ("sql", ask, "--format", "parquet"),
        ("sql", "SELECT nope FROM jobs"),
        ("sql", ask, "--zone", "Nowhere/At_All"),
    ]
    assert [2] * len(wrong) == [jobevents(*one).code for one in wrong]


def test_a_query_that_fails_leaves_the_file_that_was_there(jobevents: CommandLine, tmp_path: Path) -> None:
    """Files are replaced whole, or not at all."""
    jobevents("submit", "--create", "render")
    (tmp_path / "a.csv").write_text("mine")

    told = jobevents("sql", "SELECT CAST(type AS INT) FROM events", "--out", "a.csv")

    assert 2 == told.code
    assert "mine" == (tmp_path / "a.csv").read_text()
    assert ["a.csv"] == [one.name for one in tmp_path.iterdir() if "a.csv" in one.name]


def test_a_link_that_was_planted_is_not_followed(
    jobevents: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write to the directory, and even guesses the name of the unfinished file, has nothing else overwritten."""
    jobevents("submit", "--create", "render")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".a.csv.part").symlink_to(tmp_path / "mine")

    assert 0 == jobevents("sql", "SELECT 1", "--out", "a.csv").code
    for suffix in ("csv", "parquet"):
        (tmp_path / f".part-guessed.{suffix}").symlink_to(tmp_path / "mine")
        monkeypatch.setattr("jobevents.files.new_token", lambda: "guessed")
        assert 0 != jobevents("sql", "SELECT 1", "--out", f"b.{suffix}").code

    assert "mine" == (tmp_path / "mine").read_text()


def test_a_missing_extra_is_one_clear_sentence(tmp_path: Path) -> None:
    """Without DuckDB the command says what to install."""
    run = "import sys; sys.modules['duckdb'] = None; sys.argv = ['jobevents', 'sql', 'SELECT 1', '--url', 'memory://'];"
    done = subprocess.run(
        [sys.executable, "-c", f"{run} from jobevents.cli import main; main()"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 2 == done.returncode
    assert "python -m pip install 'jobevents[analytics]'" in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())
