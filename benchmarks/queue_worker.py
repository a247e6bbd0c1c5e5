"""One worker process of a contender: `python -m benchmarks.queue_worker QUEUE DIRECTORY URL DURABILITY THREADS`.

It says `ready`, works from the line `go` on until its input ends, and answers `cpu` with the seconds it has taken.
"""

import os
import sys
import threading
import time
from pathlib import Path

from benchmarks.queueing import Place, open_queue
from benchmarks.tally import Tally


def main() -> None:
    """Work, and leave without the farewells of a library that waits at exit."""
    name, directory, url, durability, threads = sys.argv[1:]
    place = Place(Path(directory), url, durability, int(threads))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    tally = Tally(place.directory / "tally")
    queue = open_queue(name, place)
    going, stop = threading.Event(), threading.Event()

    def say(line: str) -> None:
        answers.write(f"{line}\n")
        answers.flush()

    def listen() -> None:
        for line in sys.stdin:
            if line == "cpu\n":
                say(f"{time.process_time()}")
            else:
                going.set()
        stop.set()
        going.set()

    threading.Thread(target=listen, daemon=True).start()
    say("ready")
    going.wait()
    if not stop.is_set():
        queue.work(tally.record, stop)
    queue.close()
    os._exit(0)


if __name__ == "__main__":
    main()
