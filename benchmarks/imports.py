"""What a process pays for `import jobevents`, in a new interpreter each time."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.model import Repeat, Setting

_CHECKED = """
import sys, jobevents
if any(name.partition(".")[0] in ("google", "grpc", "typer", "rich") for name in sys.modules):
    sys.exit("a library of a vendor or a surface is imported")
"""


@contextmanager
def ours(setting: Setting) -> Iterator[Repeat]:
    """`import jobevents`; ends with an error if that imports a module of Google's, typer or rich."""
    yield _running(_CHECKED, setting.size)


@contextmanager
def limit(setting: Setting) -> Iterator[Repeat]:
    """`pass`: the interpreter alone."""
    yield _running("pass", setting.size)


@contextmanager
def peer(setting: Setting) -> Iterator[Repeat]:
    """`import eventsourcing.application`."""
    yield _running("import eventsourcing.application", setting.size)


def _running(program: str, times: int) -> Repeat:
    def work() -> int:
        for _ in range(times):
            done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
            if done.returncode:
                raise ImportError(done.stderr.strip().splitlines()[-1])
        return times

    return lambda: work
