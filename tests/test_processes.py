"""Processes that share one SQLite file."""

import os
from pathlib import Path

import pytest

from jobevents import connect
from jobevents.store import RunFilter
from tests.lives import Lives

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.mark.slow
def test_sto_05_processes_share_a_file_and_see_no_lock(tmp_path: Path) -> None:
    """Two submit, three work, one lists slowly, one holds the lock for two seconds: no error, no job lost or done twice."""
    path, total = tmp_path / "jobs.db", 2000
    url = f"sqlite:///{path}"
    connect(url).close()
    everyone = [
        *[("submit", {"url": url, "count": total // 2, "threads": 5})] * 2,
        *[("work", {"url": url, "total": total, "threads": 5})] * 3,
        ("look", {"url": url, "path": str(path), "total": total}),
        ("hold", {"path": str(path), "seconds": 2}),
    ]

    with Lives() as lives:
        lives.start(*everyone)
        heard = lives.hear_until("ended", len(everyone))

    said = {
        what: [one.rest for one in heard if one.what == what] for what in ("failed", "submitted", "worked", "listed")
    }
    assert [] == said["failed"]
    assert total == len(said["submitted"])
    assert sorted(said["submitted"]) == sorted(said["worked"])
    assert [[True]] * len(said["listed"]) == said["listed"]
    with connect(url) as jobs:
        assert total == jobs.runs.list(RunFilter(statuses=("succeeded",))).total
