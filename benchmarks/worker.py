"""One contender in this process: `python -m benchmarks.worker TARGET SIZE OWN PREPARED TOLD URL` repeats for each line it reads.

Each answer is a line of JSON on the standard output. Standard library only: it also runs where only a peer is installed.
"""

import gc
import json
import os
import resource
import sys
import time
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from benchmarks.model import Done, Repeat, Setting


def main() -> None:
    """Set the contender up, repeat once uncounted, then measure a repetition for each line on the standard input."""
    target, size, own, prepared, told, url = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a contender prints is no answer
    function = load(target)
    setting = Setting(int(size), Path(own), Path(prepared), json.loads(told), url)
    made: AbstractContextManager[Repeat] | None = function(setting)
    if made is None:  # a prepare function: all is done
        _say(answers, {})
        return
    with made as repeat:
        _measure(repeat)
        _say(answers, {})
        for _ in sys.stdin:
            _say(answers, _measure(repeat))


def load(target: str) -> Any:  # whatever the module has under that name
    """Return the function that "module:function" names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _measure(repeat: Repeat) -> dict[str, float]:
    work = repeat()
    gc.collect()
    cpu_s, started = _cpu_s(), time.perf_counter()
    did = work()
    seconds, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_s
    done = did if isinstance(did, Done) else Done(did)
    answer = {"amount": done.amount, "seconds": seconds, "cpu_s": cpu_s + done.cpu_s, "peak_mb": _peak_mb()}
    if done.figure is not None:
        answer["figure"] = done.figure
    if done.settle is not None:
        answer["lost"], answer["doubled"] = done.settle()
    return answer


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_mb() -> float:
    """Return the most memory that this process ever held; Linux counts the parent's in ru_maxrss (signal->maxrss)."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1024**2


def _say(answers: TextIO, answer: dict[str, float]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
