"""Blobs in SQLite: between processes, over forks, and files that are none."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.errors import Corrupt, Misconfigured

_COUNT = """
import sys
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.errors import Conflict
blobs, left = SqliteBlobs(sys.argv[1]), 50
while left:
    try:
        blob = blobs.get("count")
        blobs.put("count", b"%d" % (int(blob.data) + 1), if_generation=blob.generation)
        left -= 1
    except LookupError:
        try:
            blobs.put("count", b"0", if_generation="0")
        except Conflict:
            pass
    except Conflict:
        pass
blobs.close()
"""

_FORK = """
import os, sys, threading
from jobevents.backends.sqlblobs import SqliteBlobs
blobs = SqliteBlobs(sys.argv[1])
threads = [threading.Thread(target=blobs.put, args=(f"thread/{n}", b"1")) for n in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
children = []
for n in range(3):
    child = os.fork()
    if child == 0:
        for turn in range(20):
            blobs.put(f"child/{n}/{turn}", b"1", if_generation="0")
        blobs.close()
        os._exit(0)
    children.append(child)
for turn in range(20):
    blobs.put(f"parent/{turn}", b"1", if_generation="0")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(codes, len(list(blobs.list(""))), len({e.generation for e in blobs.list("")}))
blobs.close()
"""

_FORK_IN_MEMORY = """
import os
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.errors import Misconfigured
blobs = SqliteBlobs(":memory:")
blobs.put("a", b"1")
if os.fork() == 0:
    try:
        blobs.get("a")
    except Misconfigured:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.wait()[1]), blobs.get("a").data)
blobs.close()
"""


def _run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def test_processes_that_open_a_new_file_together(tmp_path: Path) -> None:
    """Four processes that make the file and count in it at once lose nothing."""
    path = str(tmp_path / "blobs.db")

    counting = [subprocess.Popen([sys.executable, "-c", _COUNT, path]) for _ in range(4)]

    assert [0, 0, 0, 0] == [process.wait(120) for process in counting]
    with closing(SqliteBlobs(path)) as blobs:
        blob = blobs.get("count")
        assert blob is not None
        assert b"200" == blob.data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_open_their_own(tmp_path: Path) -> None:
    """Children and parent go on writing after a fork, each by connections of its own, and nothing is lost."""
    assert "[0, 0, 0] 84 84" == _run(_FORK, str(tmp_path / "blobs.db"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_memory_does_not_cross_a_fork() -> None:
    """A child is told that the database in its parent's memory is not its own; the parent goes on."""
    assert "7 b'1'" == _run(_FORK_IN_MEMORY)


def test_generations_go_on_after_reopening(tmp_path: Path) -> None:
    """A generation does not come back, also when the newest blob was deleted before the file was opened again."""
    path = tmp_path / "new" / "blobs.db"
    with closing(SqliteBlobs(path)) as blobs:
        first = blobs.put("a", b"1")
        blobs.delete("a")

    with closing(SqliteBlobs(path)) as blobs:
        assert first != blobs.put("a", b"1")


def test_tables_are_apart(tmp_path: Path) -> None:
    """Two tables of one file are two stores."""
    path = tmp_path / "blobs.db"
    with closing(SqliteBlobs(path, table="one")) as one, closing(SqliteBlobs(path, table="two")) as two:
        one.put("a", b"1")

        assert [] == list(two.list(""))


def test_table_name_is_checked(tmp_path: Path) -> None:
    """A table's name is letters, digits and underscores, and nothing that SQL would read otherwise."""
    with pytest.raises(Misconfigured, match="table="):
        SqliteBlobs(tmp_path / "blobs.db", table="a; DROP TABLE b")


def test_file_that_is_no_database(tmp_path: Path) -> None:
    """A file of something else is Corrupt, and left as it is."""
    path = tmp_path / "blobs.db"
    path.write_bytes(b"something else " * 100)

    with pytest.raises(Corrupt, match=r"blobs\.db"):
        SqliteBlobs(path)

    assert b"something else " * 100 == path.read_bytes()
