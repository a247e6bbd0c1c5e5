"""A worker of a fleet as a process of its own: it gets every delivery there is, in an order of its own, until all is done."""

import os
import random
import sys
import time
from pathlib import Path

from jobevents import connect
from jobevents.errors import AlreadySucceeded, JobEventsError

LEASE_S = 3.0
DEADLINE_S = 3000.0  # of the whole fleet: 3,000 jobs on a machine that is busy with other things


def job_ids(count: int) -> list[str]:
    """The ids of the fleet's jobs."""
    return [f"song-{n:05d}" for n in range(count)]


def main(url: str, count: int, seed: int, ran: Path) -> int:
    """Deliver every job to ourselves again and again until it has succeeded; note each time a handler gets to its end."""
    rng = random.Random(seed)
    waiting = job_ids(count)
    rng.shuffle(waiting)
    ends = time.monotonic() + DEADLINE_S
    with connect(url, lease_s=LEASE_S, actor=f"worker-{seed}") as jobs, ran.open("a") as file:
        while waiting and time.monotonic() < ends:
            left = []
            for job_id in waiting:
                try:
                    with jobs.attempt(job_id) as attempt:
                        if attempt.number == 1 and rng.random() < 0.1:
                            raise ValueError("the first try fails now and then")
                        file.write(f"{job_id}\n")
                        file.flush()
                except AlreadySucceeded:
                    continue
                except (JobEventsError, ValueError):
                    left.append(job_id)
            waiting = left
            if waiting:
                time.sleep(0.2)
    return 1 if waiting else 0


if __name__ == "__main__":
    code = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    sys.stdout.flush()
    os._exit(code)  # what is left of the bus's threads has had its time in `close`
