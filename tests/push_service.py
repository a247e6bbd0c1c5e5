"""A service with a push endpoint, as a process of its own: `python -m tests.push_service URL PORT VERSION KEYS SEED`.

Its handler dies at random: the process is gone, as when its container is out of memory.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn

from jobevents.context import JobContext
from jobevents.push import create_push_app
from jobevents.registry import Registry
from jobevents.tasks import Task
from jobevents.wiring import connect
from tests.tokens import ACCOUNT, AUDIENCE

LEASE_S = 1.0
DEATHS = 0.02  # of all runs


def main(url: str, port: str, version: str, keys: str, seed: str) -> None:
    """Serve until SIGTERM."""
    rng = random.Random(seed)
    registry = Registry()

    @registry.job("render", max_attempts=50, backoff=lambda attempt, job_id: 0.05)
    def render(ctx: JobContext[Any]) -> dict[str, Any]:
        time.sleep(rng.uniform(0.0, 0.02))
        fate = rng.random()
        if fate < DEATHS:
            os.kill(os.getpid(), signal.SIGKILL)
        if fate < 3 * DEATHS:
            raise OSError("by chance")
        with Path(f"{keys}.done").open("a") as done:  # one write of one line: whole, also beside others
            done.write(f"{ctx.job_id} {version}\n")
        return {"version": version}

    def dispatch(task: Task) -> None:
        from jobevents.backends.cloudtasks import CloudTasksDispatch

        queue = CloudTasksDispatch(os.environ["QUEUE"], f"http://127.0.0.1:{port}", ACCOUNT)
        try:
            queue(task)
        finally:
            queue.close()

    with connect(url, dispatch=dispatch, lease_s=LEASE_S, inline=False) as jobs:
        app = create_push_app(
            jobs,
            registry,
            audience=AUDIENCE,
            accounts=ACCOUNT,
            fetch_keys=lambda: json.loads(Path(keys).read_text()),
            most=8,
            grace_s=0.5,
            stop_grace_s=0.5,
        )
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
