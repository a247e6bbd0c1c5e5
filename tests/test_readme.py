"""README.md: its Python and its commands run in an empty directory; a task is delivered twice to each handler."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from jobevents import JobRunner, State, connect

pytest_plugins = ("tests.gcs",)

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
_block = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Scope = dict[str, Any]  # the names a block leaves behind


def blocks(language: str, having: str = "") -> list[str]:
    """The README's code blocks in a language that hold a text."""
    return [code for kind, code in _block.findall(README) if kind == language and having in code]


def run(code: str) -> Scope:
    """Run a block as a program of its own would, and return what it defined."""
    module = ModuleType("readme")
    exec(compile(code, "README.md", "exec"), module.__dict__)
    return module.__dict__


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Studio(ModuleType):
    """The work that the README's handlers import."""

    def __init__(self) -> None:
        super().__init__("studio")
        self.songs: list[int] = []
        self.error: Exception | None = None

    def mix(self, song: int, progress: Callable[[float], None]) -> int:
        """Do the work once."""
        self.songs.append(song)
        if self.error:
            raise self.error
        progress(50)
        return 181


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Studio:
    """The module `studio`, for the length of a test."""
    studio = Studio()
    monkeypatch.setitem(sys.modules, "studio", studio)
    return studio


Deliver = Callable[[str, dict[str, int]], int]  # a path and a task -> the HTTP status


def _fastapi(scope: Scope) -> Deliver:
    async def post(path: str, task: dict[str, int]) -> int:
        transport = httpx.ASGITransport(scope["app"], raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://readme") as client:
            return (await client.post(path, json=task)).status_code

    return lambda path, task: asyncio.run(post(path, task))


@pytest.fixture
def handler(studio: Studio) -> Iterator[tuple[Scope, Deliver]]:
    """The README's block with a handler, running, and a way to deliver tasks to it."""
    (code,) = blocks("python", "import FastAPI")
    scope = run(code)
    yield scope, _fastapi(scope)
    scope["jobs"].close()


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The first block works a job, refuses its second delivery, and prints state and history."""
    run(blocks("python")[0])["jobs"].close()

    lines = capsys.readouterr().out.splitlines()
    assert "the job has succeeded already" in lines[0]
    assert "succeeded" == lines[1]
    assert ["JobQueued", "JobStarted", "JobProgressed", "JobSucceeded"] == [line.split()[1] for line in lines[2:]]


def test_a_handler_works_once_for_two_deliveries(handler: tuple[Scope, Deliver], studio: Studio) -> None:
    """The second delivery of a done job is acknowledged and the work is not run."""
    scope, deliver = handler

    answers = [deliver("/tasks/song-7", {"song": 7}), deliver("/tasks/song-7", {"song": 7})]

    assert [204, 204] == answers
    assert [7] == studio.songs
    assert State.SUCCEEDED == scope["jobs"].get("song-7").state
    assert {"seconds": 181} == scope["jobs"].job("song-7").result


def test_a_handler_has_a_running_job_delivered_again(handler: tuple[Scope, Deliver], studio: Studio) -> None:
    """A delivery beside a running attempt is answered 503, and the work is not run."""
    scope, deliver = handler

    with scope["jobs"].attempt("song-7"):
        answer = deliver("/tasks/song-7", {"song": 7})

    assert 503 == answer
    assert [] == studio.songs


def test_a_handler_tries_again_what_failed(handler: tuple[Scope, Deliver], studio: Studio) -> None:
    """Work that raises is recorded as failed and answered 500; the next delivery runs it again."""
    scope, deliver = handler
    studio.error = OSError("disk full")
    first = deliver("/tasks/song-7", {"song": 7})
    failed = scope["jobs"].get("song-7")
    studio.error = None

    second = deliver("/tasks/song-7", {"song": 7})

    assert (500, 204) == (first, second)
    assert (State.FAILED, "disk full") == (failed.state, failed.error)
    assert (State.SUCCEEDED, 2) == (scope["jobs"].get("song-7").state, scope["jobs"].get("song-7").attempts)


def test_a_handler_is_short() -> None:
    """A protected handler takes under 20 lines of code."""
    (code,) = blocks("python", "import FastAPI")

    assert 20 > code.count("\n")


def test_the_queue_runs_its_jobs() -> None:
    """The block with the queue takes under 25 lines, and its jobs are run: one that is submitted, and the periodic one."""
    (code,) = blocks("python", "JobRunner")

    scope = run(code)
    jobs = connect("sqlite:///data/jobs.db")
    jobs.use(scope["registry"])
    settled = jobs.submit("settle")
    rendered = jobs.submit("render", {"song": 7})
    with JobRunner(jobs, scope["registry"]), jobs.log.subscribe() as feed:
        ended = {record.job_id for record in islice((one for one in feed if one.type == "JobSucceeded"), 2)}

    assert 25 > code.count("\n")
    assert {settled, rendered} == ended
    assert ({"seconds": 181}, 3) == (jobs.job(rendered).result, jobs.job(rendered).max_attempts)
    assert ["settling"] == [line.message for line in jobs.run_logs.logs(settled)]
    jobs.close()


def test_the_kit_runs_on_a_bucket(gcs_bucket: str) -> None:
    """The block with the kit's records leaves one status.json in the bucket, and works once for two runs."""
    (code,) = blocks("python", "StatusStore")
    assert code.count('"gs://music-bucket/jobs"') == 1
    code = code.replace("gs://music-bucket/jobs", f"gs://{gcs_bucket}/jobs")
    first = run(code)["blobs"]
    written = first.get("jobs/song-7/status.json")

    again = run(code)["blobs"]

    assert b'"state":"succeeded","title":"Song 7"' in written.data
    assert [("jobs/song-7/status.json", written.generation)] == [(e.name, e.generation) for e in again.list("")]
    first.close()
    again.close()


@pytest.mark.parametrize("url", ["memory://", "file:///{here}/kit", "kit", "sqlite:///kit.db"])
def test_the_kit_runs_on_every_store(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The block with the kit's records, with any other URL of the table in it, records the job and guards it."""
    (code,) = blocks("python", "StatusStore")
    scope = run(code.replace("gs://music-bucket/jobs", url.format(here=tmp_path)))

    assert scope["recorder"].already_succeeded("song-7")
    assert ["jobs/song-7/status.json"] == [entry.name for entry in scope["blobs"].list("")]
    assert [] == caplog.records
    scope["blobs"].close()


def test_the_commands_run() -> None:
    """Every command of `jobevents` in the shell blocks succeeds, one after the other, in an empty directory."""
    lines = [line for code in blocks("sh") for line in code.splitlines() if line.startswith(("export ", "jobevents "))]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert "wrong key" in done.stdout


def test_every_make_target_it_names_exists() -> None:
    """`make demo`, `make test` and whatever else the README names are targets of the Makefile."""
    makefile = (Path(__file__).parent.parent / "Makefile").read_text("utf-8")

    named = set(re.findall(r"\bmake ([a-z]+)", "".join(blocks("sh")))) | {"demo"}

    assert set() == {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)}


def test_it_is_as_long_as_it_should_be() -> None:
    """The README has 80 to 140 lines."""
    assert 80 <= len(README.splitlines()) <= 140
