"""Programs that are started beside ours, and end with it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PARENT = """
import subprocess, sys, time
from jobevents import devcloud
program = [sys.executable, "-c", "import time; print('runs', flush=True); time.sleep(60)"]
child = subprocess.Popen(devcloud.leashed(program), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends a program with its parent")
def test_a_program_ends_with_whoever_started_it() -> None:
    """Killed, it can do nothing about it itself."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())

    parent.kill()
    parent.communicate()

    ends = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < ends, "it goes on alone"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Tell whether a process runs: one that has ended may wait for whoever collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False
