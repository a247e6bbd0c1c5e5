"""The promise that matters most: kill anything at any time, and what people look at is right in the end, and never goes back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KILLS = 100


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_a_hundred_times_every_view_is_right(tmp_path: Path) -> None:
    """Workers and projectors killed a hundred times: each status is the fold, the index is the set of jobs, none went back."""
    run = [sys.executable, "-m", "tests.crash_loop", str(tmp_path), "1", str(KILLS)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT, timeout=200)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert ([], []) == (found["differ"], found["went_back"]), found
    assert found["index_is_jobs"], found
    assert found["index_counts_are_states"], found
    assert 0 == found["died_by_themselves"], done.stderr
    assert found["jobs"] > 20
    assert found["looks"] > 20
