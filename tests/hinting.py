"""A log without one sequence to be projected from hints and sweeps, with one time for all of it that is moved by hand."""

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobevents import connect
from jobevents.blobs import Blobs
from jobevents.bus import Bus, InProcessBus, Notice, Publisher, notice_of
from jobevents.errors import JobEventsError, NotFound, Unavailable
from jobevents.events import Event
from jobevents.job import DELETED, Job, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from projections.adoption import Adoption
from projections.arrears import Arrears
from projections.hints import Hints
from projections.index import Index
from projections.indexcensus import IndexCensus
from projections.indexview import IndexView
from projections.inflow import Inflow
from projections.inlet import Inlet
from projections.mending import Mender, look_at_status
from projections.projector import Projector
from projections.rebuild import MemoryPositions
from projections.service import ProjectorService
from projections.status import StatusView
from projections.sweeper import Sweeper, Terms
from projections.unplaced import UnplacedIndex
from tests.fake_time import FakeTime
from tests.projecting import START

SUBSCRIPTION = "projector"


class Outages(Publisher):
    """A publisher that can be down, and counts what was handed to it."""

    def __init__(self, bus: Bus) -> None:
        self._inner = bus.publisher()
        self.is_down = False
        self.is_mute = False  # says that it has it, and has not: a crash between append and publish
        self.sent: list[Notice] = []

    def publish(self, notices: Sequence[Notice]) -> None:
        if not self.is_down and not self.is_mute:
            self.sent += notices
            self._inner.publish(notices)

    def deliver(self, notices: Sequence[Notice]) -> None:
        if self.is_down:
            raise Unavailable("Pub/Sub is down")
        self.sent += notices
        self._inner.deliver(notices)

    def flush(self, deadline_s: float) -> int:
        return 0

    def close(self, deadline_s: float = 5.0) -> int:
        return 0


class Clouded:
    """Jobs whose log gives no order across jobs, a bus in memory, and blobs; every append is published at once."""

    def __init__(self, url: str = "memory://?log=blobs") -> None:
        self.time = FakeTime()
        self.bus = InProcessBus(ack_deadline_s=20, monotonic=self.time.clock)
        self.publisher = Outages(self.bus)
        self.jobs: Jobs = connect(url, clock=self.now, actor="ana")
        self.blobs: Blobs = self.jobs.blobs
        self.jobs.observe(self._publish)
        self.replicas: list[Replica] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.time.now - 1000)

    def _publish(self, job: Job, events: Sequence[Event]) -> None:
        self.publisher.publish([notice_of(event) for event in events])

    def replica(self, **options: Any) -> "Replica":
        made = Replica(self, **options)
        self.replicas.append(made)
        return made

    def work(self, job_id: str) -> None:
        """Queue a job and run it to its end: four events."""
        self.jobs.submit("render", id=job_id)
        with self.jobs.attempt(job_id) as attempt:
            attempt.progress(50, "half")

    def expected(self, job_id: str) -> bytes | None:
        job = fold(self.jobs.log.read(job_id))
        return None if job.state == DELETED else status_bytes(job)

    def stored(self, job_id: str) -> bytes | None:
        try:
            blob = self.blobs.get(status_name(job_id))
        except NotFound:
            return None
        assert blob is not None
        return bytes(blob.data)

    def job_ids(self) -> list[str]:
        return sorted({record.job_id for record in self.jobs.log.scan()})

    def events(self) -> list[tuple[str, int]]:
        return sorted((record.job_id, record.version) for record in self.jobs.log.scan())

    def indexed(self) -> list[str]:
        index, ids, page = Index(self.blobs), [], 1
        while True:
            found, meta = index.page("", page, 200)
            ids += found
            if page >= meta.total_pages:
                return sorted(ids)
            page += 1

    def is_right(self) -> bool:
        """Tell whether every status is the fold of the log, and the index has the jobs that there are."""
        ids = self.job_ids()
        living = [one for one in ids if self.expected(one) is not None]
        return all(self.expected(one) == self.stored(one) for one in ids) and living == self.indexed()

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        self.jobs.close()
        self.bus.close()


class Replica:
    """One projector on hints and sweeps, driven by hand."""

    def __init__(
        self,
        world: Clouded,
        *,
        terms: Terms | None = None,
        lease: Any = None,
        blobs: Blobs | None = None,
        log: Any = None,
        **options: Any,
    ) -> None:
        self.world = world
        jobs, time = world.jobs, world.time
        blobs = blobs or world.blobs
        self.counts = jobs.counts
        self.inflow = Inflow(log or jobs.log)
        self.arrears = Arrears(world.publisher, jobs.log, blobs, counts=jobs.counts, monotonic=time.clock)
        self.status = StatusView(
            blobs,
            on_deleted=lambda job_id: inlet.catch_up(job_id),
            told=lambda job_id: self.inflow.taken(job_id).version,
            positions=MemoryPositions(),
            adopt=Adoption(jobs.emitter),
            counts=jobs.counts,
            threads=1,
            monotonic=time.clock,
            sleep=time.sleep,
        )
        index = UnplacedIndex(IndexView(blobs, monotonic=time.clock), on_lost=lambda: self.sweeper.hurry())
        self.index = index
        self.projector = Projector(
            self.inflow,
            [self.status, index],
            alarm=self.inflow,
            blobs=blobs,
            counts=jobs.counts,
            recall=jobs.emitter.recall,
            clock=world.now,
            monotonic=time.clock,
            wait=time.sleep,
            complete_through=lambda: self.sweeper.complete_through(),
        )
        inlet = Inlet(
            log or jobs.log,
            self.inflow,
            look=lambda job_id: look_at_status(blobs, "", job_id),
            arrears=self.arrears,
            counts=jobs.counts,
        )
        self.sweeper = Sweeper(
            inlet,
            jobs.log.recorder,  # type: ignore[arg-type]  # lists itself by parts
            IndexCensus(blobs, monotonic=time.clock),
            blobs,
            mend=Mender(blobs, "", jobs.emitter, adopt=Adoption(jobs.emitter), counts=jobs.counts),
            stored=self.stored,
            arrears=self.arrears,
            lease=lease,
            terms=terms or Terms(operations_s=1e9),
            counts=jobs.counts,
            monotonic=time.clock,
            sleep=time.sleep,
        )
        self.subscriber = world.bus.subscriber(SUBSCRIPTION, create=True)
        self.hints = Hints(
            self.subscriber,
            inlet,
            stored=self.stored,
            counts=jobs.counts,
            watched=self.status.watches,
            on_lost=self.sweeper.hurry,
            threads=2,
            monotonic=time.clock,
            sleep=time.sleep,
            **options,
        )
        self.service = ProjectorService(
            self.projector, self.inflow, self.sweeper, self.hints, counts=jobs.counts, monotonic=time.clock
        )

    def stored(self) -> int:
        return min(self.projector.positions().values())

    def turn(self, seconds: float = 0.1) -> None:
        """Pull, fold, store what is due; then so much time passes."""
        self.hints.step(0)
        self.projector.step()
        self.world.time.now += seconds

    def settle(self) -> None:
        """Go on until no message waits and everything found is stored."""
        for _ in range(400):
            self.turn()
            if self.hints.is_idle() and not self.inflow.depth() and not self.subscriber.pull(0, 0):
                return
        raise AssertionError("it does not come to rest")

    def sweep(self) -> int:
        """Go through the whole log, and have what was found stored."""
        found = self.sweeper.sweep()
        self.settle()
        return found

    def close(self) -> None:
        self.hints.close()
        self.sweeper.leave()
        self.status.close()


def analysts(world: Clouded) -> Callable[[], list[tuple[str, int]]]:
    """Subscribe somebody else; return what tells which events they have got, each once."""
    world.bus.create("analysts")
    subscriber = world.bus.subscriber("analysts")

    def got() -> list[tuple[str, int]]:
        taken = subscriber.pull(1_000_000, 0)
        return sorted({(one.notice.job_id, one.notice.version) for one in taken if one.notice})

    return got


def live_through(world: Clouded, rng: random.Random) -> None:
    """Let anything happen to two replicas and their bus, then come to rest, and hold everything against the log."""
    got = analysts(world)
    replicas = [world.replica(terms=Terms(operations_s=1e9)) for _ in range(2)]
    ids = [f"song-{n}" for n in range(8)]
    for job_id in ids:
        world.jobs.submit("render", id=job_id)
    late: list[Notice] = []
    for _ in range(60):
        what = rng.random()
        world.publisher.is_mute = rng.random() < 0.2
        world.publisher.is_down = rng.random() < 0.1
        job_id = rng.choice(ids)
        if what < 0.35:
            _go_on(world, job_id)
        elif what < 0.45 and world.publisher.sent:
            world.bus.publisher().publish(rng.choices(world.publisher.sent, k=5))
        elif what < 0.5 and world.publisher.sent:
            late.append(rng.choice(world.publisher.sent))
        elif what < 0.53:
            world.bus.delete(SUBSCRIPTION)
            world.bus.create(SUBSCRIPTION) if rng.random() < 0.3 else None
        elif what < 0.58:
            replicas[rng.randrange(2)] = world.replica(terms=Terms(operations_s=1e9))  # the one before is dead
            world.time.now += rng.choice([0, 25])
        elif what < 0.62:
            world.jobs.delete(job_id)
        elif what < 0.68:
            rng.choice(replicas).sweeper.hurry()
        elif what < 0.72:
            rng.choice(replicas).sweeper.step()
        else:
            rng.choice(replicas).turn(rng.choice([0.1, 0.5, 3.0]))
    world.publisher.is_mute = world.publisher.is_down = False
    world.bus.publisher().publish(late)
    world.time.now += 60
    for replica in replicas:
        replica.settle()
    world.time.now += 60
    replicas[0].sweep()
    replicas[0].arrears.pay()
    replicas[1].settle()

    assert world.is_right()
    assert set(world.events()) <= set(got())


def _go_on(world: Clouded, job_id: str) -> None:
    """Take a job a step further, if it lives."""
    try:
        if world.jobs.job(job_id).state == "succeeded":
            world.jobs.rerun(job_id)
        else:
            with world.jobs.attempt(job_id):
                pass
    except JobEventsError:
        return
