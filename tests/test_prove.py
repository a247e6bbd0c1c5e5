"""The command by which users prove the contracts on a database of theirs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobevents.backends.gcs import GcsBlobs

pytest_plugins = ("tests.gcs",)

FEW = "test_every_field_comes_back or test_a_due_run_is_delivered or test_read_gives_what_was_appended"


def prove(directory: Path, *arguments: str, bare: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a few of the shipped tests in a directory that knows nothing of ours.

    Args:
        bare: with no other plugin than ours, which takes a third of the time; else as users type it.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "jobevents.testing", "-k", FEW]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if bare else os.environ
    command += ["-p", "jobevents.pytest_plugin"] if bare else []
    return subprocess.run(
        [*command, *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(("url", "bare"), [("memory://", True), ("sqlite:///data/any.db?synchronous=normal", False)])
def test_the_contracts_run_where_they_are_told_to(tmp_path: Path, url: str, *, bare: bool) -> None:
    """A test of the log, one of the store and one of the queue pass, and leave nothing behind."""
    done = prove(tmp_path, "--jobevents-url", url, bare=bare)

    assert (0, True) == (done.returncode, "3 passed" in done.stdout), done.stdout
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_log_is_proved_on_blobs(tmp_path: Path) -> None:
    """In files as in a bucket: the log's test passes, those of rows and queues say that there are none, nothing is left."""
    done = prove(tmp_path, "--jobevents-url", f"file://{tmp_path}/jobs", "-rs")

    assert (0, True) == (done.returncode, "1 passed, 2 skipped" in done.stdout), done.stdout
    assert "keeps no rows" in done.stdout
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_log_is_proved_in_a_bucket(tmp_path: Path, gcs_bucket: str, gcs_blobs: GcsBlobs) -> None:
    """A prefix of a bucket of theirs, which is empty again afterwards."""
    done = prove(tmp_path, "--jobevents-url", f"gs://{gcs_bucket}/team", "-rs")

    assert (0, True) == (done.returncode, "1 passed, 2 skipped" in done.stdout), done.stdout
    assert [] == list(gcs_blobs.list(""))


def test_without_a_url_nothing_is_proved(tmp_path: Path) -> None:
    """The tests are skipped, and say what is missing."""
    done = prove(tmp_path, "-rs")

    assert (True, True) == ("3 skipped" in done.stdout, "--jobevents-url sqlite:///" in done.stdout), done.stdout
