"""Jobs over a log on blobs, and a wire to those blobs that loses, delays and refuses on command."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jobevents.backends.blobkeys import AWAIT_S
from jobevents.backoff import Backoff
from jobevents.blobs import Blob, BlobEntry, Blobs
from jobevents.cloud import Bucket
from jobevents.errors import Unavailable
from jobevents.jobs import Jobs
from jobevents.store import RunFilter, RunPage
from jobevents.testing import Clock, Died, LogContract
from projections.indexview import IndexView
from projections.statuswriter import StatusWriter
from tests.fake_time import FakeTime


def bucket_jobs(
    blobs: Blobs, clock: Clock, time: FakeTime | None = None, *, threads: int = 1, prefix: str = "log-1", **options: Any
) -> Jobs:  # Any: options of Jobs
    """Open the log on blobs as another process would; an append's waits take no time."""
    time = time or FakeTime()
    once = options.pop("once", None)
    backoff = Backoff(sleep=time.sleep, clock=time.clock)
    patience = Backoff(deadline_s=AWAIT_S, sleep=time.sleep, clock=time.clock)
    bucket = Bucket(
        blobs, prefix, once=once, backoff=backoff, patience=patience, threads=threads, monotonic=clock.monotonic
    )
    jobs = bucket.jobs(clock=clock, monotonic=clock.monotonic, lease_s=86_400, **options)  # no thread beats in a test
    _opened.append(jobs)
    return jobs


_opened: list[Jobs] = []


def close_buckets() -> None:
    """Close all that was opened; those over a wire that is dead cannot say goodbye."""
    while _opened:
        with contextlib.suppress(Exception, Died):
            _opened.pop().close()


def write_status(jobs: Jobs, job_id: str) -> None:
    """Write a job's status as a projector would."""
    writer = StatusWriter(jobs.blobs, jobs.prefix)
    writer.save(writer.show(jobs.emitter.load(job_id)))


def index(jobs: Jobs) -> None:
    """Bring the index up to what the log has now."""
    view = IndexView(jobs.blobs, jobs.prefix)
    position = view.position() + 1
    seen = {record.job_id for record in jobs.log.scan()}
    view.take([jobs.emitter.load(job_id) for job_id in seen], position)
    view.flush(everything=True)


class BlobLogContract(LogContract):
    """What the log on blobs promises, whatever the blobs are."""

    ordered = False
    whole_calls = False
    keeps_rows = False
    races = 20
    many, at_a_time = 200, 90


class Indexed:
    """A store whose index is brought up to date before each list: on this log, lists are as late as a projector."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._view = IndexView(jobs.blobs, jobs.prefix)
        self._position = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._jobs.store, name)

    def project(self) -> None:
        """Take every job as it is now into the index."""
        self._position += 1
        seen = {record.job_id for record in self._jobs.log.scan()}
        self._view.take([self._jobs.emitter.load(job_id) for job_id in seen], self._position)
        self._view.flush(everything=True)

    def list(self, filter: RunFilter) -> RunPage:
        self.project()
        return self._jobs.store.list(filter)

    def running_ids(self, job: str) -> object:
        self.project()
        return self._jobs.store.running_ids(job)

    def purge(self, *args: object, **options: object) -> int:
        self.project()
        return self._jobs.store.purge(*args, **options)  # type: ignore[arg-type]  # what a store takes


class Held:
    """A write that was cut off from its caller, and is still on its way."""

    def __init__(self) -> None:
        self.writes: list[Callable[[], object]] = []

    def land(self) -> None:
        """Let it arrive, whatever the store says to it."""
        for write in self.writes:
            try:
                write()
            except Exception:  # nobody gets the reply
                continue
        self.writes.clear()


Fault = Callable[[Callable[[], Any]], Any]  # Any: what the call returns


class Wire:
    """Blobs over others; each fault is used up by the first calls that it fits."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self.calls: list[tuple[str, str]] = []
        self._faults: list[tuple[str, str, Fault]] = []

    @property
    def min_write_interval_s(self) -> float:
        return self.blobs.min_write_interval_s

    def refuse(self, method: str, part: str = "", *, times: int = 1, error: Exception | None = None) -> None:
        """Do nothing, and say that the store is away, or what is given."""

        def fault(_: Callable[[], Any]) -> Any:
            raise error or Unavailable("503 injected")

        self._faults += [(method, part, fault)] * times

    def lose_reply(self, method: str, part: str = "", *, times: int = 1) -> None:
        """Do what is asked, and lose the reply."""

        def fault(do: Callable[[], Any]) -> Any:
            do()
            raise Unavailable("reply lost")

        self._faults += [(method, part, fault)] * times

    def hold(self, part: str = "") -> Held:
        """Cut a write off from its caller: it arrives when the test says so."""
        held = Held()

        def fault(do: Callable[[], Any]) -> Any:
            held.writes.append(do)
            raise Unavailable("reply lost")

        self._faults.append(("put", part, fault))
        return held

    def before(self, method: str, part: str, call: Callable[[], object]) -> None:
        """Run `call` first: what somebody else does at that moment."""

        def fault(do: Callable[[], Any]) -> Any:
            call()
            return do()

        self._faults.append((method, part, fault))

    def calm(self) -> None:
        """Forget the faults that were not met."""
        self._faults.clear()

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        found: Blob | None = self._pass("get", name, lambda: self.blobs.get(name, if_changed=if_changed))
        return found

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        generation: str = self._pass(
            "put",
            name,
            lambda: self.blobs.put(
                name,
                data,
                if_generation=if_generation,
                content_type=content_type,
                cache_control=cache_control,
                metadata=metadata,
            ),
        )
        return generation

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        deleted: bool = self._pass("delete", name, lambda: self.blobs.delete(name, if_generation=if_generation))
        return deleted

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        entries: Iterator[BlobEntry] = self._pass(
            "list", prefix, lambda: self.blobs.list(prefix, start=start, delimiter=delimiter)
        )
        return entries

    def close(self) -> None:
        self.blobs.close()

    def _pass(self, method: str, name: str, do: Callable[[], Any]) -> Any:  # Any: what the call returns
        self.calls.append((method, name))
        for place, (kind, part, fault) in enumerate(self._faults):
            if kind == method and part in name:
                del self._faults[place]
                return fault(do)
        return do()
