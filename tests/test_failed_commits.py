"""A COMMIT that fails since the disk does: what SQLite then keeps, and what comes back when all processes are killed.

The system itself refuses to sync, from a moment on and for good, by a filter of system calls in a process of its own.
"""

import platform
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobevents import errors
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.backends.sqlite import SqliteRecorder
from tests.histories import blank

WAIT_S = 20
_SYNCS = {"x86_64": (74, 75), "aarch64": (82, 83)}  # fsync, fdatasync: asm/unistd_64.h, asm-generic/unistd.h
_EIO = 5  # errno.h
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _SYNCS,
    reason="system calls are refused here by no filter of ours",
)


def refuse_to_sync() -> None:
    """Have fsync and fdatasync fail in this thread, and those it begins, for good."""
    import ctypes
    import struct

    fsync, fdatasync = _SYNCS[platform.machine()]
    instructions = [  # linux/filter.h: code, jump if so, jump if not, value
        (0x20, 0, 0, 0),  # load the number of the call
        (0x15, 1, 0, fsync),
        (0x15, 0, 1, fdatasync),
        (0x06, 0, 0, 0x00050000 | _EIO),  # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


_PRELUDE = """
import os, signal, sys, threading, time
from jobevents import errors
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.backends.sqlite import SqliteRecorder
from tests.histories import StoredEvent, blank
from tests.test_failed_commits import refuse_to_sync

def refused(write):
    try:
        write()
    except errors.Unavailable as error:
        assert "disk" in str(error), error
    else:
        sys.exit("it was written")
"""
_ALONE = """
recorder = SqliteRecorder.open(sys.argv[1])
recorder.insert_events([blank("first")])
refuse_to_sync()
refused(lambda: recorder.insert_events([StoredEvent("second", 1, "t", bytes(50_000))]))
assert [] == recorder.select_events("second")
"""
_QUEUED = """
recorder = SqliteRecorder.open(sys.argv[1])
recorder.insert_events([blank("first")])
held, let_go = threading.Event(), threading.Event()

def hold(cursor):
    held.set()
    let_go.wait(20)
    raise LookupError

def before():
    try:
        recorder.file.write(hold)
    except LookupError:
        pass

def behind():
    refuse_to_sync()
    refused(lambda: recorder.insert_events([StoredEvent("second", 1, "t", bytes(50_000))]))
    done.append(True)

done = []
first, second = threading.Thread(target=before), threading.Thread(target=behind)
first.start()
held.wait(20)
second.start()
while recorder.file._group.is_idle:
    time.sleep(0.001)
let_go.set()
first.join(), second.join()
assert done, "its own error is above"
"""
_BLOBS = """
blobs = SqliteBlobs(sys.argv[1])
blobs.put("first", b"1")
refuse_to_sync()
refused(lambda: blobs.put("second", bytes(50_000)))
assert ["first"] == [entry.name for entry in blobs.list("")]
"""
_KILLED = "os.kill(os.getpid(), signal.SIGKILL)\n"


def run_and_kill(script: str, path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _PRELUDE + script + _KILLED, str(path)], capture_output=True, text=True, timeout=WAIT_S
    )
    if "no filter of system calls" in result.stderr:
        pytest.skip("this machine lets no process filter its system calls")
    assert (-9, "") == (result.returncode, result.stderr)


@pytest.mark.parametrize("script", [_ALONE, _QUEUED], ids=["alone", "queued"])
def test_append_that_was_refused_stays_so_when_all_are_killed(tmp_path: Path, script: str) -> None:
    """What a caller was told is not written is not in the file, nor does it come back by SQLite's own recovery."""
    path = tmp_path / "jobs.db"

    run_and_kill(script, path)

    with closing(SqliteRecorder.open(path)) as recorder:
        assert [] == recorder.select_events("second")
        assert [1] == [event.originator_version for event in recorder.select_events("first")]
        assert [2] == recorder.insert_events([blank("third")])


def test_blob_that_was_refused_stays_so_when_all_are_killed(tmp_path: Path) -> None:
    """The same holds for the table of blobs."""
    path = tmp_path / "blobs.db"

    run_and_kill(_BLOBS, path)

    with closing(SqliteBlobs(path)) as blobs:
        assert ["first"] == [entry.name for entry in blobs.list("")]
        with pytest.raises(errors.NotFound):
            blobs.get("second")


_FULL_IN_COMMIT = """
import resource
recorder = SqliteRecorder.open(sys.argv[1])
recorder.insert_events([blank("first")])
limit = os.stat(sys.argv[1] + "-wal").st_size + 40_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for _ in range(2):
    refused(lambda: recorder.insert_events([StoredEvent("second", 1, "t", bytes(50_000))]))
assert [2] == recorder.insert_events([blank("small")]), "what there is room for is written"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert [3] == recorder.insert_events([StoredEvent("second", 1, "t", bytes(50_000))])
"""


def test_writes_after_a_commit_without_room_are_kept(tmp_path: Path) -> None:
    """SQLite undoes it by itself; what is written on is neither lost nor mixed with what was refused."""
    path = tmp_path / "jobs.db"

    run_and_kill(_FULL_IN_COMMIT, path)

    with closing(SqliteRecorder.open(path)) as recorder:
        assert {"first": 1, "small": 1, "second": 1} == {
            name: len(recorder.select_events(name)) for name in ("first", "small", "second")
        }
