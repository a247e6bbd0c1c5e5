"""Workers and projectors killed at random, again and again: `python -m tests.crash_loop DIR SEED KILLS`.

A process of its own: it forks them from itself, warm and without threads or open files, so that a start costs milliseconds.
A watcher reads all statuses all the while. Prints one JSON document with what was found.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jobevents import connect, wiring
from jobevents.blobs import FileBlobs
from jobevents.errors import JobEventsError
from jobevents.job import DELETED, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes
from projections import adoption, indexview, inline, projector, status  # noqa: F401 - warm, before the first fork
from projections.index import Index
from tests.projecting import stored

LIVES_S = (0.05, 0.4)  # how long the next victim has
DEADLINE_S = 120.0


def open_jobs(directory: Path) -> Jobs:
    return connect(f"sqlite:///{directory}/jobs.db", blobs=FileBlobs(directory / "blobs"))


def work(directory: Path, seed: int) -> None:
    """Do to random jobs whatever may be done to jobs, until killed."""
    rng = random.Random(seed)
    with open_jobs(directory) as jobs:
        known = sorted({record.job_id for record in jobs.log.scan()})
        while True:
            if len(known) < 5 or rng.random() < 0.3:
                known.append(jobs.submit("render", {"n": rng.random()}))
            with suppress(JobEventsError):
                act(jobs, rng, rng.choice(known))


def act(jobs: Jobs, rng: random.Random, job_id: str) -> None:
    match rng.randrange(8):
        case 0:
            jobs.cancel(job_id)
        case 1:
            jobs.retry(job_id)
        case 2:
            jobs.rerun(job_id)
        case 3 if rng.random() < 0.2 and jobs.get(job_id).is_final():
            jobs.delete(job_id)
        case _:
            with suppress(ZeroDivisionError), jobs.attempt(job_id, deadline_s=0.05) as attempt:
                for percent in range(0, 100, 25):
                    attempt.progress(percent)
                attempt.annotate(output_dir=f"gs://x/{rng.randrange(9)}")
                if rng.random() < 0.3:
                    raise ZeroDivisionError


def project(directory: Path) -> None:
    """Project into both views, without a lease: two of them are at it at once."""
    with open_jobs(directory) as jobs:
        wiring.projector(jobs, leased=False).run(threading.Event())


def watch(directory: Path) -> None:
    """Read every status over and over, until told to end; note each that went back."""
    versions: dict[str, int] = {}
    looks, back = 0, []
    while not (directory / "stop").exists():
        looks += 1
        for path in (directory / "blobs" / "jobs").glob("*/status.json"):
            with suppress(FileNotFoundError):
                version = json.loads(path.read_bytes())["version"]
                if version < versions.get(path.parent.name, 0):
                    back.append(f"{path.parent.name} {versions[path.parent.name]} {version}")
                versions[path.parent.name] = version
        time.sleep(0.005)
    (directory / "watched").write_text(json.dumps({"looks": looks, "went_back": back}))


def start(call: Callable[[], None]) -> int:
    """Fork, and return the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        call()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def kill(pid: int) -> int:
    """Kill a child, and return how it ended: 0 when it was alive until then."""
    os.kill(pid, signal.SIGKILL)
    _, ended = os.waitpid(pid, 0)
    return 0 if os.WIFSIGNALED(ended) else os.waitstatus_to_exitcode(ended)


def main(directory: Path, seed: int, kills: int) -> dict[str, Any]:
    """Kill `kills` times, then let one projector catch up, and compare."""
    rng = random.Random(seed)
    os.waitpid(start(lambda: open_jobs(directory).close()), 0)
    watcher = start(partial(watch, directory))
    roles: list[Callable[[], None]] = [partial(work, directory, seed), partial(project, directory)] * 2
    alive = [start(role) for role in roles]
    died = []
    deadline = time.monotonic() + DEADLINE_S
    for n in range(kills):
        time.sleep(rng.uniform(*LIVES_S))
        victim = rng.randrange(len(alive))
        died.append(kill(alive[victim]))
        if victim % 2 == 0:
            roles[victim] = partial(work, directory, seed + n + 1)
        alive[victim] = start(roles[victim])
        if time.monotonic() > deadline:
            break
    died += [kill(pid) for pid in alive]
    found = compare(directory)
    (directory / "stop").touch()
    os.waitpid(watcher, 0)
    return {**found, **json.loads((directory / "watched").read_text()), "died_by_themselves": sum(map(bool, died))}


def compare(directory: Path) -> dict[str, Any]:
    """Catch up, and hold every status against the fold of its history, and the index against the jobs."""
    with open_jobs(directory) as jobs:
        wiring.projector(jobs, leased=False).run_once()
        folds = {job_id: fold(jobs.log.read(job_id)) for job_id in {record.job_id for record in jobs.log.scan()}}
        differ = [
            job_id
            for job_id, job in folds.items()
            if stored(jobs.blobs, job_id) != (None if job.state == DELETED else status_bytes(job))
        ]
        living = {job_id for job_id, job in folds.items() if job.state != DELETED}
        index, cursor, listed = Index(jobs.blobs), "", []
        while True:
            page = index.after(cursor, 200)
            listed += page.ids
            cursor = page.cursor
            if not cursor:
                break
        by_state: dict[str, int] = {}
        for job_id in living:
            by_state[folds[job_id].state] = by_state.get(folds[job_id].state, 0) + 1
        counts = {state: count for state, count in index.counts().items() if count and state != "all"}
        return {
            "jobs": len(folds),
            "deleted": len(folds) - len(living),
            "events": int(jobs.log.last_cursor()),
            "differ": differ,
            "index_is_jobs": sorted(listed) == sorted(living),
            "index_counts_are_states": counts == by_state,
        }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
