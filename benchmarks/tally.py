"""The tally of handler calls: one file to which every worker process of a contender adds a record, which nothing can lose.

Standard library only: it is kept where only a peer is installed, too.
"""

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<qq")  # number of the job, monotonic nanoseconds of the call
_LOOK_S = 0.0005


class Verdict(NamedTuple):
    """What became of submitted jobs."""

    lost: int  # neither handled nor waiting
    doubled: int  # calls beyond the first of a job


class Tally:
    """The file, for one process. Safe for threads: a record is one write at the end of a file."""

    def __init__(self, path: Path) -> None:
        """Open it, made if missing."""
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def record(self, number: int) -> None:
        """Say that the handler of a job is called now."""
        os.write(self._file, _RECORD.pack(number, time.monotonic_ns()))

    def count(self) -> int:
        """Return how many calls there were."""
        return os.fstat(self._file).st_size // _RECORD.size

    def wait_for(self, calls: int, timeout_s: float) -> None:
        """Return when there were so many calls.

        Raises:
            TimeoutError: there were not in time.
        """
        give_up = time.monotonic() + timeout_s
        while self.count() < calls:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.count()} of {calls} jobs were handled in {timeout_s:g} s")
            time.sleep(_LOOK_S)

    def calls(self, after: int = 0) -> Sequence[tuple[int, int]]:
        """Return job and time of each call but the first ones."""
        return list(_RECORD.iter_unpack(self._path.read_bytes()[after * _RECORD.size :]))

    def verdict(self, submitted: int, waiting: int) -> Verdict:
        """Return what became of all jobs submitted until now, of which so many wait still."""
        numbers = [number for number, _ in self.calls()]
        handled = len(set(numbers))
        return Verdict(submitted - handled - waiting, len(numbers) - handled)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
