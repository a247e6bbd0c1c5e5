"""Measure rows: every contender in its own process, their repetitions in turns, A B A B, so that noise meets all alike."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import peers
from benchmarks.model import Contender, Reading, Result, Row, Scale, Sizes
from benchmarks.servers import NoServer, Servers
from benchmarks.tally import Verdict

ROOT = Path(__file__).resolve().parent.parent
_ENDING_S = 30.0  # to close what it has open
TIMEOUT_S = Sizes(tiny=60, small=300, full=3600)  # of one repetition, or of getting ready


class Crashed(Exception):
    """A contender's process ended, or did not answer in time; says why."""


class Process:
    """A worker process; leave the block to end it."""

    def __init__(self, python: str, arguments: Iterable[str], timeout_s: float) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._timeout_s = timeout_s
        self._late = False
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_ENDING_S)
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def answer(self) -> dict[str, float]:
        """Return the next answer.

        Raises:
            Crashed: there will be none.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout_s, self._give_up)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if line:
            answer: dict[str, float] = json.loads(line)
            return answer
        self._process.wait()
        if self._late:
            raise Crashed(f"gave no answer in {self._timeout_s:.0f} s")
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise Crashed(said[-1] if said else f"exit status {self._process.returncode}")

    def repeat(self) -> dict[str, float]:
        """Return the answer to one repetition.

        Raises:
            Crashed: the process ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self.answer()

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()


def measure(rows: Iterable[Row], scale: Scale, scratch: Path) -> Iterator[tuple[Row, list[Result]]]:
    """Yield each row with what came of its contenders, as soon as it is measured.

    Args:
        scratch: an empty directory on the disk that is to be measured.
    """
    with Servers(scratch) as servers:
        for row in rows:
            yield row, _measure_row(row, scale, scratch, servers)


def size_of(contender: Contender, row: Row, scale: Scale) -> int:
    """Return how much a contender does at a scale."""
    size: int = getattr(contender.sizes or row.sizes, scale)
    return size


def _measure_row(row: Row, scale: Scale, scratch: Path, servers: Servers) -> list[Result]:
    results = {one.name: Result(one, size_of(one, row, scale)) for one in row.contenders}
    with contextlib.ExitStack() as stack:
        running: dict[str, Process] = {}
        for name, result in results.items():
            try:
                url = servers.database(row, result.contender)
                running[name] = stack.enter_context(_start(row, result, scratch, url, getattr(TIMEOUT_S, scale)))
            except (Crashed, peers.Missing, NoServer) as error:
                results[name] = result._replace(error=str(error), is_missing=not isinstance(error, Crashed))
        for _ in range(getattr(row.repetitions, scale)):
            for name, process in list(running.items()):
                try:
                    results[name] = _with(results[name], row, process.repeat())
                except Crashed as error:
                    results[name] = results[name]._replace(error=str(error))
                    del running[name]
    return list(results.values())


@contextlib.contextmanager
def _start(row: Row, result: Result, scratch: Path, url: str, timeout_s: float) -> Iterator[Process]:
    """Start a contender's process, and wait until it is ready."""
    contender, size = result.contender, result.size
    own = scratch / row.name / contender.name.replace(" ", "-")
    own.mkdir(parents=True)
    prepared = own
    if contender.prepare:
        prepared = scratch / f"{contender.prepare.replace(':', '.')}-{size}"
        _prepare(contender.prepare, size, prepared, timeout_s)
    python = peers.python_for(contender)
    arguments = [contender.target, str(size), str(own), str(prepared), json.dumps(contender.told), url]
    with Process(python, arguments, timeout_s) as process:
        process.answer()
        yield process


def _prepare(target: str, size: int, directory: Path, timeout_s: float) -> None:
    """Fill a directory, unless an earlier contender has had it filled."""
    if directory.exists():
        return
    directory.mkdir()
    try:
        arguments = [target, str(size), str(directory), str(directory), "{}", ""]
        with Process(sys.executable, arguments, timeout_s) as process:
            process.answer()
    except Crashed:
        shutil.rmtree(directory)
        raise


def _with(result: Result, row: Row, answer: dict[str, float]) -> Result:
    amount = answer["amount"]
    figure = answer.get("figure", answer["seconds"] / amount if row.unit == "s" else amount)
    reading = Reading(figure, answer["cpu_s"] / amount)
    verdict = result.verdict
    if "lost" in answer:  # each account is of all repetitions until then
        verdict = Verdict(int(answer["lost"]), int(answer["doubled"]))
    return result._replace(readings=(*result.readings, reading), peak_mb=answer["peak_mb"], verdict=verdict)
