"""The log on Cloud Storage with 45 ms to it and 20 ms to Pub/Sub: appends, and how soon and dearly a status follows."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, IncompleteRead
from itertools import count, pairwise
from typing import Any, ClassVar
from urllib.parse import quote

from benchmarks.cloud_prices import PRICES
from benchmarks.far import PUBSUB_S, STORAGE_S, TOPIC, Far, calls_to
from benchmarks.model import Done, Repeat, Setting, Work
from jobevents import wiring_bus
from jobevents.backends.gcs import GcsBlobs
from jobevents.blobs import utc_now
from jobevents.cloud import Bucket
from jobevents.emit import By
from jobevents.events import JobAnnotated
from jobevents.jobs import Jobs
from jobevents.records import status_name
from jobevents.status import decode
from projections.sweeper import Terms

BURST = 20  # transitions
EVENTS_EACH = 4  # queued, started, progressed, succeeded
_WAIT_S = 60.0
_ASIDE = {"A list", "A ctl", "B ctl", "A index", "B index", "A workers", "B workers"}  # by time, not by transition


class Place:
    """A bucket of its own, far away."""

    def __init__(self, setting: Setting) -> None:
        told = json.loads(setting.url)
        self.bucket: str = told.pop("bucket")
        self.far = Far(**told)
        self.topic = f"{TOPIC}-{self.bucket}"
        os.environ["PUBSUB_EMULATOR_HOST"] = f"127.0.0.1:{self.far.pubsub}"

    def blobs(self, kind: type[GcsBlobs] = GcsBlobs, *, threads: int = 16, near: bool = False) -> GcsBlobs:
        """Return the bucket, 45 ms away; `near`: at once, for what is only got ready."""
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{self.far.near if near else self.far.storage}"
        return kind(self.bucket, threads=threads)

    def jobs(self, blobs: GcsBlobs, *, topic: bool = True) -> Jobs:
        """Open the log in the bucket, as `connect` does but for its look at a real bucket's settings."""
        jobs = Bucket(blobs, once=blobs.once()).jobs(clock=utc_now)
        if topic:
            wiring_bus.publish(jobs, f"pubsub://{self.topic}")
        return jobs

    def status(self, job_id: str) -> int:
        """Return the version that a job's status shows; 0 without one. Asked at once, not through the proxy."""
        with closing(HTTPConnection("127.0.0.1", self.far.near, timeout=10)) as connection:
            connection.request("GET", f"/storage/v1/b/{self.bucket}/o/{quote(status_name(job_id), safe='')}?alt=media")
            reply = connection.getresponse()
            try:
                data = reply.read()
            except IncompleteRead:  # the emulator's file is being replaced
                return 0
        return decode(data).version if reply.status == 200 else 0

    def wait_for(self, job_id: str, version: int, *, seconds: float = _WAIT_S) -> None:
        """Return when a job's status shows a version."""
        ends = time.monotonic() + seconds
        while self.status(job_id) < version:
            if time.monotonic() > ends:
                raise TimeoutError(f"no status of version {version} in {seconds:.0f} s")
            time.sleep(0.002)


class Watched(GcsBlobs):
    """Notes when which status was written."""

    written: ClassVar[list[tuple[str, float]]] = []  # name and monotonic time, of this process

    def put(self, name: str, data: bytes, **options: Any) -> str:  # Any: as GcsBlobs
        generation = super().put(name, data, **options)
        if name.endswith("/status.json"):
            self.written.append((name, time.monotonic()))
        return generation


# appends


@contextmanager
def appending(setting: Setting) -> Iterator[Repeat]:
    """One event a call by Emitter.change, each thread on a job of its own that began before."""
    threads = int(setting.told["threads"])
    place = Place(setting)
    with place.jobs(place.blobs(threads=threads), topic=False) as jobs:
        names = [jobs.submit("render", id=f"song-{number}") for number in range(threads)]

        def one(number: int) -> None:
            jobs.emitter.change(names[number], lambda _: [_note], By())

        yield lambda: lambda: in_threads(threads, setting.size, one)


@contextmanager
def uploading(setting: Setting) -> Iterator[Repeat]:
    """The bare client: the same bytes, created where there is nothing, with a checksum."""
    from google.cloud.storage import Client  # type: ignore[attr-defined, unused-ignore]  # has no types

    threads = int(setting.told["threads"])
    place = Place(setting)
    numbers = count()
    with closing(place.blobs(threads=threads)) as blobs:  # for its pool, as large as the threads
        bucket = blobs._bucket
        assert isinstance(bucket.client, Client)

        def one(_: int) -> None:
            blob = bucket.blob(f"bare/{next(numbers)}")
            blob.upload_from_string(_BODY, "application/json", if_generation_match=0, checksum="crc32c", retry=None)

        yield lambda: lambda: in_threads(threads, setting.size, one)


@contextmanager
def waiting(setting: Setting) -> Iterator[Repeat]:
    """As many threads that do nothing but wait 45 ms: what the latency alone lets through."""
    threads = int(setting.told["threads"])
    yield lambda: lambda: in_threads(threads, setting.size, lambda _: time.sleep(STORAGE_S))


_BODY = b"{" + b"x" * 600 + b"}"  # an event's size


def _note(**told: Any) -> JobAnnotated:  # Any: an event's fields
    return JobAnnotated(start=0, fields={"tempo": 120}, **told)


def in_threads(threads: int, size: int, one: Callable[[int], object]) -> int:
    """Do `one` so often in so many threads at once, each with its number."""
    errors: list[Exception] = []

    def run(number: int) -> None:
        try:
            for _ in range(number, size, threads):
                one(number)
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return size


# statuses


@contextmanager
def projecting(place: Place, blobs: GcsBlobs, *, swept: bool = False) -> Iterator[Jobs]:
    """Jobs that publish, and the projector's service beside them in this process.

    Args:
        swept: wait until it has gone through the whole log once, as it does where its subscription is new.
    """
    with place.jobs(blobs) as jobs:
        service = wiring_bus.service(jobs, create=True, leased=False)
        running = threading.Thread(target=service.run)
        running.start()
        try:
            _warm_up(place, jobs)
            while swept and service.condition().complete_through is None:
                time.sleep(0.05)
            yield jobs
        finally:
            service.stop()
            running.join()


def _warm_up(place: Place, jobs: Jobs) -> None:
    """Wait until messages come: what is sent before there is a subscription is left to the sweep."""
    ends = time.monotonic() + _WAIT_S
    for number in count():
        with suppress(TimeoutError):
            place.wait_for(jobs.submit("render", id=f"first-{number}"), 1, seconds=3.0)
            return
        if time.monotonic() > ends:
            raise TimeoutError(f"no message came in {_WAIT_S:.0f} s")


@contextmanager
def emitting(setting: Setting) -> Iterator[Repeat]:
    """From the call that submits a job to its status, with a projector that has nothing else to do."""
    place = Place(setting)
    numbers = count()
    with projecting(place, place.blobs()) as jobs:

        def work() -> int:
            for _ in range(setting.size):
                place.wait_for(jobs.submit("render", id=f"song-{next(numbers)}"), 1)
            return setting.size

        yield lambda: work


@contextmanager
def calling(setting: Setting) -> Iterator[Repeat]:
    """The calls alone, one after the other: floor, create, floor, message, event, status."""

    def work() -> int:
        for _ in range(setting.size):
            time.sleep(5 * STORAGE_S + PUBSUB_S)
        return setting.size

    yield lambda: work


@contextmanager
def bursting(setting: Setting) -> Iterator[Repeat]:
    """Twenty transitions of one job as fast as they are appended; `told` says what of it is the figure."""
    place = Place(setting)
    numbers = count()
    with projecting(place, place.blobs(Watched)) as jobs:

        def work() -> Done:
            job_id = jobs.submit("render", id=f"song-{next(numbers)}")
            for _ in range(BURST - 1):
                jobs.emitter.change(job_id, lambda _: [_note], By())
            began = time.monotonic()
            place.wait_for(job_id, BURST)
            late_s = time.monotonic() - began
            time.sleep(STORAGE_S * 2)  # the reply of the last write is under way
            times = [at for name, at in Watched.written if name == status_name(job_id)]
            return Done(
                1, figure={"late": late_s, "rate": _rate(times), "writes": len(times)}[str(setting.told["figure"])]
            )

        yield lambda: work


def _rate(times: Sequence[float]) -> float:
    """Return how many writes a second there were where they were closest; 0 for a single one."""
    gaps = [after - before for before, after in pairwise(times)]
    return 1 / min(gaps) if gaps else 0.0


@contextmanager
def constant(setting: Setting) -> Iterator[Repeat]:
    """What was promised, as a number."""
    figure = int(setting.told["thousandths"]) / 1000
    yield lambda: lambda: Done(1, figure=figure)


# operations


@contextmanager
def operating(setting: Setting) -> Iterator[Repeat]:
    """Jobs of four events, submitted by one process and run by another, with a projector: what a transition costs.

    What comes by time and not by transition is not counted: the index, the sweep, worker leases; nor two reads of the floor of
    each new job.
    """
    place = Place(setting)
    numbers = count()
    with projecting(place, place.blobs(), swept=True) as jobs, place.jobs(place.blobs()) as worker:

        def live(_: int) -> None:
            job_id = jobs.submit("render", id=f"song-{next(numbers)}")
            place.wait_for(job_id, 1)
            with worker.attempt(job_id) as attempt:
                attempt.progress(50, "half")
            place.wait_for(job_id, EVENTS_EACH)

        def work() -> Done:
            before = calls_to(place.far.calls)
            done = EVENTS_EACH * in_threads(min(8, setting.size), setting.size, live)
            time.sleep(STORAGE_S * 2)  # replies under way
            spent = calls_to(place.far.calls) - before
            spent["B floor"] -= 2 * setting.size
            return Done(done, figure=_spent(spent, str(setting.told["figure"])) / done)

        yield lambda: work


def _spent(calls: Counter[str], figure: str) -> float:
    """Return operations of a class, or the dollars for a million times as much."""
    by_class: Counter[str] = Counter()
    for name, times in calls.items():
        if name not in _ASIDE:
            by_class[name.partition(" ")[0]] += times
    if figure != "$":
        return by_class[figure]
    return sum(PRICES[kind] * times for kind, times in by_class.items())


# throughput


@contextmanager
def projected(setting: Setting) -> Iterator[Repeat]:
    """Events that wait, each with its message, brought into status and index by the service."""
    place = Place(setting)
    numbers = count()
    with place.jobs(place.blobs(near=True)) as near, projecting(place, place.blobs()):

        def repeat() -> Work:
            names = [f"song-{next(numbers)}" for _ in range(max(1, setting.size // EVENTS_EACH))]
            return partial(_written, place, near, names)

        yield repeat


def _written(place: Place, near: Jobs, names: Sequence[str]) -> int:
    """Write jobs and wait for their statuses."""
    numbers = iter(names)
    lock = threading.Lock()

    def one(_: int) -> None:
        with lock:
            name = next(numbers)
        write(near, name)

    in_threads(1, len(names), one)
    for name in names:
        place.wait_for(name, EVENTS_EACH)
    return len(names) * EVENTS_EACH


def write(jobs: Jobs, job_id: str) -> None:
    """Append a job of four events."""
    jobs.submit("render", id=job_id)
    for _ in range(EVENTS_EACH - 1):
        jobs.emitter.change(job_id, lambda _: [_note], By())


@contextmanager
def caught_up(setting: Setting) -> Iterator[Repeat]:
    """A log without a message: listed, read and folded into status and index by one sweep, with no budget to keep to."""
    place = Place(setting)
    rounds = count()
    with place.jobs(place.blobs(near=True), topic=False) as near:

        def repeat() -> Work:
            round_ = next(rounds)
            jobs = max(1, setting.size // EVENTS_EACH)
            for number in range(jobs):
                write(near, f"song-{round_}-{number}")
            return partial(_swept, place, jobs * EVENTS_EACH)

        yield repeat


def _swept(place: Place, events: int) -> int:
    with place.jobs(place.blobs(), topic=False) as jobs:
        wiring_bus.service(jobs, leased=False, terms=Terms(operations_s=1e9)).run_once()
    return events
