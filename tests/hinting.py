"""A log without one sequence to be projected from hints and sweeps, with one time for all of it that is moved by hand."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from jobevents import connect
from jobevents.blobs import Blobs
from jobevents.bus import Bus, InProcessBus, Notice, Publisher, notice_of
from jobevents.errors import NotFound, Unavailable
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
