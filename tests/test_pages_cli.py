"""A large history through the command line: imported, indexed, and any page of it read for the manifest and two chunks.

50,000 jobs; `JOBEVENTS_PAGES_JOBS=200000` makes it four times as many.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from jobevents import cli, wiring
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blob, BlobEntry, MemoryBlobs

pytestmark = pytest.mark.slow

JOBS = int(os.environ.get("JOBEVENTS_PAGES_JOBS", "50000"))
FAILED = JOBS * 3 // 4
PER_PAGE = 50
START = datetime(2020, 1, 1, tzinfo=UTC)


class Counted(SqliteBlobs):
    """Blobs that count what is read of which kind, and every listing."""

    reads: list[str]

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        blob = super().get(name, if_changed=if_changed)
        if blob is not None:
            kind = "manifest" if name.endswith("MANIFEST.json") else "chunk" if "/chunk/" in name else "status"
            self.reads.append(kind)
        return blob

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        self.reads.append("listing")
        return super().list(prefix, start=start, delimiter=delimiter)


class History:
    """What was there before, by state newest first, and the command line on what it was brought into."""

    def __init__(self, directory: Path) -> None:
        rng = random.Random(1)
        others = ("succeeded", "succeeded", "succeeded", "canceled", "running")
        states = ["failed"] * FAILED + [others[n % 5] for n in range(JOBS - FAILED)]
        rng.shuffle(states)
        self.url = f"sqlite:///{directory}/jobs.db?synchronous=normal"
        self.source = MemoryBlobs()
        self.live = Counted(directory / "blobs.db")
        self.live.reads = []
        self.ids: dict[str, list[str]] = {"": [], "failed": []}
        for number, state in enumerate(states):
            at = START + timedelta(seconds=37 * number)
            job_id = f"comp-{at:%Y%m%d-%H%M%S}-{rng.getrandbits(48):012x}"
            record = {"job_id": job_id, "state": state, "attempts": 1, "updated_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
            self.source.put(f"jobs/{job_id}/status.json", msgspec.json.encode(record))
            self.ids[""].append(job_id)
            if state == "failed":
                self.ids["failed"].append(job_id)
        for ids in self.ids.values():
            ids.reverse()

    def run(self, *args: str) -> Any:
        """Call the command line; return what it answers."""
        self.live.reads.clear()
        done = CliRunner().invoke(cli.app, [*args, "--url", self.url], catch_exceptions=False)
        assert 0 == done.exit_code, done.output
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """200,000 records, 150,000 of failed jobs, imported and indexed by the commands for that."""
    made = History(tmp_path_factory.mktemp("pages"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "connect", partial(wiring.connect, blobs=made.live))
        patch.setattr(wiring, "open_blobs", lambda url: (made.source, "jobs"))
        report = made.run("import", "gs://old/jobs", "--create")
        assert (JOBS, 0) == (report["imported"], report["unreadable"])
        health = made.run("project", "--once")
        assert [JOBS, JOBS] == [one["position"] for one in health]
        yield made
    made.live.close()


def assert_cheap(history: History, shown: int) -> None:
    """The last call read the manifest once, two chunks at most, the statuses that it shows, and listed nothing."""
    reads = Counter(history.live.reads)
    assert {"manifest": 1, "status": shown} == {kind: count for kind, count in reads.items() if kind != "chunk"}
    assert reads["chunk"] <= 2


@pytest.mark.parametrize("state", ["", "failed"])
@pytest.mark.parametrize("place", ["first", "middle", "last", "past the end"])
def test_a_page_costs_the_manifest_and_two_chunks(history: History, state: str, place: str) -> None:
    """Any page of any state is the right one, and reads no more than these and the statuses that it shows."""
    ids = history.ids[state]
    pages = -(-len(ids) // PER_PAGE)
    page = {"first": 1, "middle": pages // 2, "last": pages, "past the end": pages + 7}[place]

    told = history.run("list", "--state", state, "--page", str(page), "--per-page", str(PER_PAGE))

    shown = min(page, pages)
    expected = ids[(shown - 1) * PER_PAGE : shown * PER_PAGE]
    assert expected == [one["job_id"] for one in told["items"]]
    assert (len(ids), pages, shown) == (told["total"], told["total_pages"], told["page"])
    assert_cheap(history, len(expected))


def test_a_slice_costs_the_same(history: History) -> None:
    """Going on from a cursor in the middle reads the manifest and two chunks too."""
    first = history.run("list", "--state", "failed", "--after", "", "--per-page", "200")

    told = history.run("list", "--state", "failed", "--after", first["cursor"], "--per-page", "200")

    assert history.ids["failed"][200:400] == [one["job_id"] for one in told["items"]]
    assert_cheap(history, 200)


def test_a_second_import_of_all_is_quick_and_adds_nothing(history: History) -> None:
    """What is known is passed over without a read of its record."""
    told = history.run("import", "gs://old/jobs")

    assert (0, JOBS) == (told["imported"], told["known"])
