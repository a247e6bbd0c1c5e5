"""The demo: a real job for each file under a path, run by four workers, with what goes wrong in production done on purpose.

One file appears only after its first try has failed, one job is canceled while it runs, one delivery comes twice. At the end
every promise is checked against the history.
"""

import hashlib
import itertools
import queue
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobevents.blobs import Blobs
from jobevents.errors import Canceled, InvalidValue, Refused
from jobevents.events import JobStarted
from jobevents.job import RUNNING, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name

WORKERS = 4
CHUNK = 256 * 1024  # bytes read between two looks at the cancel
SUBMIT_BATCH = 500  # jobs in one transaction
TRIES = 2
PATIENCE_S = 30.0  # how long the job that is to be canceled waits for it


class Summary(msgspec.Struct):
    """What the demo did, and whether every promise held."""

    jobs: int = 0
    states: dict[str, int] = {}
    events: int = 0
    handler_calls: int = 0
    refused_deliveries: int = 0
    bytes_read: int = 0
    lines: int = 0
    compressed_to: float = 0.0  # compressed size as a part of the size
    seconds: float = 0.0
    promises: dict[str, bool] = {}
    retried_job: str = ""
    canceled_job: str = ""
    doubled_job: str = ""

    @property
    def held(self) -> bool:
        """Tell whether every promise held."""
        return all(self.promises.values())


def files_under(path: Path) -> list[Path]:
    """Return the regular files under `path`, sorted; `path` itself when it is one.

    Raises:
        InvalidValue: there are none.
    """
    found = (
        [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    )
    if not found:
        raise InvalidValue(f"no files under the path path={path}; give a directory with files")
    return found


class Demo:
    """One run of the demo over one set of files."""

    def __init__(self, jobs: Jobs, files: Iterable[Path], scratch: Path) -> None:
        self._jobs = jobs
        self._files = [str(path) for path in files]
        self._late = scratch / "appears-after-the-first-try.txt"
        self._slow = scratch / "canceled-while-it-runs.bin"
        self._deliveries: queue.Queue[str | None] = queue.Queue()
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._left = 0
        self._all_done = threading.Event()
        self._is_stopping = threading.Event()
        self._on_done: Callable[[], None] = lambda: None

    @property
    def total(self) -> int:
        """How many jobs there will be: one a file, and two of our own."""
        return len(self._files) + 2

    def run(self, on_done: Callable[[], None] = lambda: None) -> Summary:
        """Submit, work, check; `on_done` is called after each job that has come to rest."""
        began = time.monotonic()
        self._on_done = on_done
        self._late.unlink(missing_ok=True)
        self._slow.write_bytes(b"waits for its cancel\n")
        ids = self._submit()
        retried, canceled = ids[-2], ids[-1]
        self._left = len(ids)
        threads = [threading.Thread(target=self._work, name=f"demo-worker-{n}", daemon=True) for n in range(WORKERS)]
        for job_id in [canceled, *ids[:-1]]:
            self._deliveries.put(job_id)
        try:
            for thread in threads:
                thread.start()
            self._cancel_once_running(canceled)
            while not self._all_done.wait(0.2):  # in steps, so that Ctrl-C is heard
                pass
            doubled = next(job_id for job_id in ids if self._jobs.get(job_id).state == "succeeded")
            self._deliveries.put(doubled)  # the queue delivers a finished job once more
        except BaseException:
            self._is_stopping.set()
            raise
        finally:
            for _ in threads:
                self._deliveries.put(None)
            for thread in threads:
                thread.join(PATIENCE_S)
        summary = self._summary(ids, doubled)
        summary.retried_job, summary.canceled_job, summary.doubled_job = retried, canceled, doubled
        summary.seconds = time.monotonic() - began
        return summary

    def _submit(self) -> list[str]:
        wanted = [*self._files, str(self._late), str(self._slow)]
        ids: list[str] = []
        for first in range(0, len(wanted), SUBMIT_BATCH):
            batch = wanted[first : first + SUBMIT_BATCH]
            submissions = [{"name": "measure", "params": {"path": p}, "title": Path(p).name} for p in batch]
            ids += self._jobs.submit_many(submissions, actor="demo", reason="shows what jobevents keeps")
        return ids

    def _cancel_once_running(self, job_id: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self._jobs.log.subscribe() as feed:
            for record in feed:
                if (record.job_id == job_id and record.type == "JobStarted") or time.monotonic() > deadline:
                    break
        self._jobs.cancel(job_id, actor="demo operator", reason="too expensive")

    def _work(self) -> None:
        """Take deliveries as a worker of a task queue would: what is refused is acknowledged, what failed comes again."""
        while (job_id := self._deliveries.get()) is not None and not self._is_stopping.is_set():
            try:
                with self._jobs.attempt(job_id) as attempt:
                    self._handle(attempt)
            except Refused:
                with self._lock:
                    self._refused[job_id] += 1
                continue
            except Canceled:
                pass
            except OSError:
                if attempt.number < TRIES:
                    if attempt.params["path"] == str(self._late):
                        self._late.write_text("here now\n", encoding="utf-8")
                    self._jobs.retry(job_id, actor="demo", reason="the file could not be read")
                    self._deliveries.put(job_id)
                    continue
            self._done()

    def _handle(self, attempt: Any) -> None:
        """Measure one file: the handler."""
        with self._lock:
            self._calls[attempt.job_id] += 1
        path = Path(attempt.params["path"])
        attempt.log(f"reading {path.name}")

        def check() -> None:
            attempt.check()
            if self._is_stopping.is_set():
                raise SystemExit("the demo was interrupted")  # given back, as by any worker that is told to end

        attempt.result(measure(path, check, lambda percent: attempt.progress(percent, path.name)))
        if path == self._slow:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                check()
                time.sleep(0.02)

    def _done(self) -> None:
        with self._lock:
            self._left -= 1
            left = self._left
        self._on_done()
        if not left:
            self._all_done.set()

    def _summary(self, ids: list[str], doubled: str) -> Summary:
        summary = Summary(jobs=len(ids), handler_calls=self._calls.total(), refused_deliveries=self._refused.total())
        states: Counter[str] = Counter()
        starts: Counter[str] = Counter()
        statuses_right, compressed = True, 0
        for job_id in ids:
            history = self._jobs.history(job_id)
            job = fold(history)
            states[job.state] += 1
            starts[job_id] = sum(isinstance(event, JobStarted) for event in history)
            statuses_right &= status_bytes(job) == _stored(self._jobs.blobs, self._jobs.blob_name(status_name(job_id)))
            summary.events += len(history)
            if job.result:
                summary.bytes_read += job.result["size_bytes"]
                summary.lines += job.result["lines"]
                compressed += job.result["compressed_bytes"]
        summary.states = dict(states)
        summary.compressed_to = compressed / summary.bytes_read if summary.bytes_read else 0.0
        retried, canceled = self._jobs.get(ids[-2]), self._jobs.get(ids[-1])
        summary.promises = {
            "every job came to rest": RUNNING not in states and "queued" not in states,
            "every status.json is the fold of its history": statuses_right,
            "every start in the history is one call of the handler": +starts == +self._calls,
            "the file that appeared late was read at the second try": (retried.state, retried.attempts)
            == ("succeeded", 2),
            "the canceled job is canceled": canceled.state == "canceled",
            "the doubled delivery was refused": self._refused[doubled] == 1,
        }
        return summary


def go_on(jobs: Jobs, files: Sequence[Path], stop: threading.Event, *, pause_s: float = 1.0) -> None:
    """Submit a job for a file every now and then, and do it slowly, so that there is something to watch, until told to stop.

    Every seventh fails at its first try, as if the disk were full, and is retried; none is left running at the end.
    """
    for number, path in enumerate(itertools.cycle(files), 1):
        if stop.is_set():
            return
        job_id = jobs.submit(
            "measure", {"path": str(path)}, title=path.name, max_attempts=TRIES, actor="demo", reason="goes on"
        )
        try:
            _do_slowly(jobs, job_id, path, number, stop, pause_s)
        except OSError as error:
            jobs.retry(job_id, actor="demo", reason=f"after {error}")
            try:
                _do_slowly(jobs, job_id, path, 0, stop, pause_s)
            except OSError:
                continue  # recorded as failed
            except (Canceled, Refused):
                continue
        except (Canceled, Refused):
            continue


def _do_slowly(jobs: Jobs, job_id: str, path: Path, number: int, stop: threading.Event, pause_s: float) -> None:
    with jobs.attempt(job_id, worker="demo") as attempt:
        attempt.log(f"reading {path.name}")
        for percent in (20, 40, 60, 80):
            stop.wait(pause_s / 4)
            attempt.check()
            attempt.progress(percent, path.name)
        if number and number % 7 == 0:
            raise OSError("no space left on device, the demo says")
        attempt.result(measure(path, attempt.check, lambda _: None))


def measure(path: Path, check: Callable[[], None], progress: Callable[[float], None]) -> dict[str, Any]:
    """Read a file and return its SHA-256, size, line count and how small it compresses; `check` is called between chunks."""
    digest, packer = hashlib.sha256(), zlib.compressobj()
    size = lines = packed = 0
    total = path.stat().st_size
    for chunk in _chunks(path):
        check()
        digest.update(chunk)
        packed += len(packer.compress(chunk))
        size += len(chunk)
        lines += chunk.count(b"\n")
        if size < total:
            progress(100 * size / total)
    packed += len(packer.flush())
    return {"sha256": digest.hexdigest(), "size_bytes": size, "lines": lines, "compressed_bytes": packed}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _stored(blobs: Blobs, name: str) -> bytes:
    blob = blobs.get(name)
    return blob.data if blob is not None else b""
