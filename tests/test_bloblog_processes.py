"""Real processes on one log of objects: of those that race one is granted, one gets a key, and a killed one leaves no half."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobevents import codec
from jobevents.errors import Conflict
from jobevents.wiring import connect
from tests.racers import Racers
from tests.test_attempt import race_for_starts
from tests.test_commands import submit_keys

pytest_plugins = ("tests.gcs",)
pytestmark = pytest.mark.slow  # each process is started anew


@pytest.fixture(params=["files", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty log that several processes open: of files, and in a bucket."""
    if request.param == "files":
        return f"file://{tmp_path}"
    return f"gs://{request.getfixturevalue('gcs_bucket')}/team"


@pytest.fixture
def racers(url: str) -> Iterator[Racers]:
    """Four processes that find the emulator, since they are started after it."""
    with Racers(4) as started:
        yield started


def test_of_twenty_races_between_processes_each_has_one_winner(racers: Racers, url: str) -> None:
    """Four processes ask for each job at once: one create decides, and one is granted."""
    with connect(url) as jobs:
        ids = jobs.submit_many([{"name": "render"}] * 20)

        won = racers.run(race_for_starts, url, ids)

        assert sorted(ids) == sorted(job_id for one in won for job_id in one)
        assert {2} == {len(jobs.history(job_id)) for job_id in ids}


def test_a_key_is_one_jobs_between_processes(racers: Racers, url: str) -> None:
    """Four processes submit with each of ten keys at once: all are told the same job, and there is no other."""
    answers = racers.run(submit_keys, url, 10)

    assert 1 == len({tuple(one) for one in answers})
    with connect(url) as jobs:
        assert 10 == len({record.job_id for record in jobs.log.scan()})


def append_for_ever(url: str) -> None:
    """Append to ten jobs in turn until the process is killed."""
    with connect(url) as jobs:
        for turn in range(1_000_000):
            job_id = f"job-{turn % 10}"
            with suppress(Conflict):
                jobs.submit("render", {"turn": turn}, id=job_id)
            jobs.cancel(job_id)
            jobs.rerun(job_id, actor=str(os.getpid()))
            Path(os.environ["PROGRESS_FILE"]).write_text(str(turn))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills so here")
def test_killed_writers_leave_whole_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice a process is killed while it appends: every history is whole and goes on."""
    url = f"file://{tmp_path}/log"
    told = tmp_path / "told"
    monkeypatch.setenv("PROGRESS_FILE", str(told))
    for least in (11, 17):
        told.unlink(missing_ok=True)
        process = multiprocessing.get_context("spawn").Process(target=append_for_ever, args=(url,))
        process.start()
        while not (told.exists() and int(told.read_text() or 0) >= least):
            assert process.is_alive()
        process.kill()
        process.join(20)

    with connect(url) as jobs:
        for number in range(10):
            job_id = f"job-{number}"
            raw = jobs.log.read_raw(job_id)
            assert [] == codec.chain_breaks(record.data for record in raw)
            assert list(range(1, len(raw) + 1)) == [record.version for record in raw]
            if jobs.get(job_id).state == "canceled":
                jobs.rerun(job_id)
            assert "canceled" == jobs.cancel(job_id)
