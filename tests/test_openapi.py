"""The OpenAPI document holds: what it allows is answered as it says, and what it forbids is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobevents import connect
from projections.api import create_app
from tests.api import fill, project
from tests.serving import listening

EXAMPLES = 20  # of each route, beside those that the document itself makes
SCHEMATHESIS = (
    "import sys; from schemathesis.cli import schemathesis; schemathesis(sys.argv[1:], prog_name='schemathesis')"
)


@pytest.mark.slow
def test_no_request_gets_what_the_document_does_not_say(tmp_path: Path) -> None:
    """Schemathesis finds no 5xx, no status, header or body beyond the document, and nothing taken that it forbids.

    That whatever it allows is taken is not asked: it does not say which parameters go together, or which id is a job's.
    """
    with connect(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        fill(jobs)
        project(jobs)
        with listening(create_app(jobs, wait_s=0.02, stream_s=0)) as place:
            command = ["run", f"{place}/openapi.json", f"--max-examples={EXAMPLES}", "--no-color"]
            only = ["--phases=examples,coverage,fuzzing", "--exclude-checks=positive_data_acceptance"]
            done = subprocess.run(
                [sys.executable, "-c", SCHEMATHESIS, *command, *only],
                cwd=tmp_path,
                env={**os.environ, "NO_PROXY": "127.0.0.1"},
                capture_output=True,
                text=True,
                check=False,
            )

    assert 0 == done.returncode, done.stdout + done.stderr
