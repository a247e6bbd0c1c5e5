"""The push endpoint as a service: `uvicorn service:app --host 0.0.0.0 --port 8080`.

Write your handlers in place of `render`, or import a registry of yours.
"""

import logging
import os
from typing import Any

from jobevents import Registry, connect
from jobevents.context import JobContext
from jobevents.push import create_push_app

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

registry = Registry()


@registry.job("render", max_attempts=5, timeout=540)
def render(ctx: JobContext[Any]) -> dict[str, Any]:
    """Do the work; `ctx.params` is what was submitted."""
    ctx.progress(50, "half way")
    return {"rendered": ctx.params}


jobs = connect(
    os.environ["JOBEVENTS_URL"],
    dispatch=os.environ.get("JOBEVENTS_DISPATCH") or None,
    actor="push",
)
app = create_push_app(
    jobs,
    registry,
    audience=os.environ["JOBEVENTS_AUDIENCE"],
    accounts=os.environ["JOBEVENTS_ACCOUNT"],
    most=8,
)
