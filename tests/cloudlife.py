"""What goes on in a simulated world: workers, people, foreign services, projectors over one log on a bucket; what must hold."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import msgspec

from jobevents import codec, status
from jobevents.backends.bloberasures import RIPE_S
from jobevents.backends.blobfloors import Floors
from jobevents.backends.blobnames import Names
from jobevents.backoff import Backoff
from jobevents.blobs import Blob
from jobevents.bus import notice_of
from jobevents.cloud import Bucket
from jobevents.emit import By
from jobevents.erasing import Erasing
from jobevents.errors import JobEventsError, NotFound
from jobevents.events import Event, JobDeleted, JobFailed, JobSucceeded, TransitionRefused
from jobevents.job import DELETED, SUCCEEDED, Job, fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes, status_name
from jobevents.status import State, Status
from jobevents.times import to_datetime
from projections.adoption import Adoption
from projections.arrears import Arrears
from projections.hints import Hints
from projections.index import Index
from projections.indexcensus import IndexCensus, part_of
from projections.indexview import IndexView
from projections.inflow import Inflow
from projections.inlet import Inlet
from projections.mending import Mender, look_at_status
from projections.projector import Projector
from projections.rebuild import MemoryPositions
from projections.remains import remains
from projections.status import StatusView
from projections.statuswriter import version_of
from projections.sweeper import Sweeper, Terms
from projections.unplaced import UnplacedIndex
from tests.simulation import LIVES_S, Broken, Faults, Process, SimBlobs, SimPublisher, World, one_thread

JOBS = 4  # few, so that all work on the same ones
ERASED_EVERY = 5  # so many worlds have one in which a job is erased
# While an erasure waits, nobody does anything: it would be an hour of the same.
QUIET_S = LIVES_S / 2, LIVES_S / 2 + RIPE_S
NEWEST_CODE = 2
IMPATIENT_S = 6.0  # some give up an append after a try or two: nobody knows then whether it is there


class Life:
    """One world from its first second to its last, and the judgement of it."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        sweeps: bool = True,
        erases: bool | None = None,
        jobs: int = JOBS,
    ) -> None:
        """Let nothing happen yet.

        Args:
            sweeps: something goes through the log, too, and not after messages alone.
            erases: a job is erased; None: in some of the worlds.
        """
        self.world = World(seed, faults or Faults())
        self.sweeps = sweeps
        self.erases = seed % ERASED_EVERY == 0 if erases is None else erases
        self.ends = LIVES_S + RIPE_S if self.erases else LIVES_S
        self.is_erased = not self.erases
        self.ids = [f"job-{number}" for number in range(jobs)]
        self.ran: Counter[str] = Counter()  # handlers that came to their end, by job
        self.labels = 0
        self.is_over = False

    def live(self, judge: "Callable[[Life], None] | None" = None) -> None:
        """Go through it; Broken, or what else was raised, says that something does not hold: of all that must, or by `judge`."""
        world = self.world
        parts = tuple(sorted({part_of(job_id) for job_id in self.ids}))  # the others are empty, and listed for nothing
        with one_thread(world.seed), mock.patch("projections.sweeper.PARTS", parts):
            try:
                self._live()
            finally:
                for process in world.processes:
                    process.kill()
            (judge or Life._judge)(self)

    def _live(self) -> None:
        world = self.world
        world.bus.create("projector")
        for number in range(3):
            world.process(f"worker-{number}", self._worker)
        world.process("person", self._person)
        for number in range(2):
            world.process(f"projector-{number}", self._projector)
        if self.erases:
            world.process("eraser", self._eraser)
        world.at(LIVES_S / 2, lambda: world.process("worker-late", self._worker))
        world.at(LIVES_S / 3, lambda: world.process("projector-late", self._projector))
        world.run(self.ends)
        world.calm()
        self.is_over = True
        world.run()  # what was late, and messages of three days ago
        if not self.is_erased:
            world.process("eraser-last", self._last_eraser)
            world.run()
        last = world.process("projector-last", self._last_projector)
        world.run()
        if not last.has_ended:
            raise Broken("the last projector did not come to its end")

    # who lives in it

    def _open(self, process: Process) -> Jobs:
        world, blobs = process.world, SimBlobs(process)
        patience_s = world.random.choice([30.0, IMPATIENT_S])
        backoff = Backoff(deadline_s=patience_s, sleep=process.sleep, clock=world.monotonic, rng=world.random)
        bucket = Bucket(blobs, backoff=backoff, threads=1, monotonic=world.monotonic)
        jobs = bucket.jobs(clock=process.clock, monotonic=world.monotonic, lease_s=20.0)
        jobs.observe(self._acknowledge)
        jobs.observe(lambda job, events: self._hint(process, events))
        return jobs

    def _acknowledge(self, job: Job, events: Sequence[Event]) -> None:
        for event in events:
            self.world.acknowledged[event.job_id, event.version] = event.id
            if event.id in self.world.ghosts:
                self.world.failed = Broken(f"an event below a floor was acknowledged {event.job_id}#{event.version}")

    def _hint(self, process: Process, events: Sequence[Event]) -> None:
        SimPublisher(process).publish([notice_of(event) for event in events])

    def _label(self, process: Process) -> str:
        """Return what no other operation of this world is named."""
        self.labels += 1
        return f"{process.name}.{self.labels}"

    def _worker(self, process: Process) -> None:
        """Take deliveries of jobs, at random, as a task queue that delivers too often would hand them out."""
        jobs, random = self._open(process), self.world.random
        while not self.is_over:
            self._rest(process, random.expovariate(0.3))
            job_id = random.choice(self.ids)
            label = self._label(process)
            with contextlib.suppress(JobEventsError, _HandlerFailed):
                deadline_s = random.choice([None, 5.0, 30.0])
                patience = Backoff(sleep=process.sleep, clock=self.world.monotonic, rng=random)  # as a runner has it
                with jobs.attempt(job_id, worker=label, deadline_s=deadline_s, patience=patience) as attempt:
                    process.sleep(random.expovariate(0.5))
                    attempt.annotate(title=label)
                    if random.random() < 0.3:
                        raise _HandlerFailed(label)
                    attempt.check()
                    attempt.result({"label": label})
                    process.sleep(random.expovariate(0.5))

    def _person(self, process: Process) -> None:
        """Submit, cancel, retry, rerun and delete; and write a status past the log, as an older service does."""
        jobs, random = self._open(process), self.world.random
        while not self.is_over:
            self._rest(process, random.expovariate(0.5))
            job_id, label = random.choice(self.ids), self._label(process)
            with contextlib.suppress(JobEventsError):
                match random.choices(["submit", "cancel", "retry", "rerun", "foreign", "delete"], [6, 2, 3, 3, 1, 0.3])[
                    0
                ]:
                    case "submit":
                        jobs.submit("render", {"n": 1}, id=job_id, external=True, reason=label)
                    case "cancel":
                        jobs.cancel(job_id, reason=label)
                    case "retry":
                        jobs.retry(job_id, reason=label)
                    case "rerun":
                        jobs.rerun(job_id, reason=label)
                    case "delete":
                        jobs.delete(job_id, reason=label)
                    case _:
                        self._write_past(process, job_id, label)

    def _write_past(self, process: Process, job_id: str, label: str) -> None:
        record = Status(job_id=job_id, state=State.SUCCEEDED, title=label, updated_at=process.clock())
        SimBlobs(process).put(status_name(job_id), status.encode(record))

    def _projector(self, process: Process) -> None:
        """Project until the world is over; who dies is followed by another."""
        self.world.at(20.0, lambda: self._replace(process))
        replica = Replica(self, process, code=self.world.random.choice([1, NEWEST_CODE]))
        while not self.is_over:
            replica.turn(sweeps=self.sweeps)
            self._rest(process, self.world.random.uniform(0.2, 3.0))

    def _rest(self, process: Process, seconds: float) -> None:
        """Let some time pass; and the hour that an erasure waits, where it begins within that."""
        begins, ends = QUIET_S
        if self.erases and begins <= self.world.now + seconds < ends:
            seconds += RIPE_S
        process.sleep(seconds)

    def _eraser(self, process: Process) -> None:
        """Erase a job, and ask again until it is done."""
        work, random = self._erasing(process), self.world.random
        process.sleep(random.uniform(LIVES_S / 4, LIVES_S / 2))
        while not self.is_erased:
            try:
                self._erase(process, work, random.choice(self.ids))
            except NotFound:  # it has not begun
                process.sleep(1.0)

    def _erase(self, process: Process, work: Erasing, job_id: str) -> None:
        while not self.is_erased:
            wait_s = 1.0
            try:
                receipt = work.erase(job_id, By("eraser"))
                self.is_erased = receipt.is_done
                wait_s = work.eraser.wait_s(job_id)
            except NotFound:
                raise
            except JobEventsError:
                pass
            process.sleep(wait_s + self.world.random.expovariate(1))

    def _last_eraser(self, process: Process) -> None:
        """Finish what an eraser that died has begun, as somebody does who asks for what is unfinished."""
        work = self._erasing(process)
        for job_id in work.eraser.unfinished():
            self.is_erased = False
            self._erase(process, work, job_id)

    def _erasing(self, process: Process) -> Erasing:
        jobs = self._open(process)
        return Erasing(jobs.emitter, jobs.run_logs, jobs.blobs, lambda job_id: remains(jobs.blobs, "", job_id))

    def _replace(self, process: Process) -> None:
        if self.is_over:
            return
        if process.has_ended:
            self.world.process(f"{process.name}+", self._projector)
        else:
            self.world.at(20.0, lambda: self._replace(process))

    def _last_projector(self, process: Process) -> None:
        """Bring the world to rest: what the messages still say, and, where it sweeps, what they never said."""
        replica = Replica(self, process, code=NEWEST_CODE)
        for _ in range(3):
            for _ in range(200):
                replica.turn(sweeps=False)
                process.sleep(11.0)
                if replica.is_idle():
                    break
            if self.sweeps:
                replica.sweeper.sweep()
        replica.projector.run_once()

    # what must hold in the end

    def _judge(self) -> None:
        world = self.world
        events = self._events()
        floors = {job_id: self._floor(job_id) for job_id in events}
        for (job_id, version), event_id in world.acknowledged.items():
            kept = {event.version: event.id for event in events.get(job_id, [])}
            if version >= floors[job_id] and kept.get(version) != event_id:
                raise Broken(f"an acknowledged event is lost job_id={job_id} version={version}")
        for job_id, history in events.items():
            self._judge_history(job_id, history, floors[job_id])
            self._judge_status(job_id, fold(history))
            silent = [event.version for event in history if (job_id, event.version) not in world.heard]
            if silent:
                raise Broken(f"an independent subscriber never got job_id={job_id} versions={silent}")
        for name, blob in world.replaced:
            self._judge_replaced(name, blob, events)
        living = sorted(job_id for job_id, history in events.items() if fold(history).state != DELETED)
        indexed = sorted(self._indexed())
        if indexed != living:
            raise Broken(f"the index has other jobs than the log index={indexed} log={living}")

    def judge_what_was_told(self) -> None:
        """Every event of which a message came is in its job's status: for worlds in which nothing else tells of any."""
        told: dict[str, int] = {}
        for job_id, version in self.world.heard:
            told[job_id] = max(version, told.get(job_id, 0))
        for job_id, history in self._events().items():
            blob = self.world._peek(status_name(job_id))
            shown = version_of(blob) if blob is not None else 0
            is_gone = blob is None and fold(history).state == DELETED
            is_foreign = blob is not None and not shown  # what was written last: nobody looks for that here
            if not is_gone and not is_foreign and shown < told.get(job_id, 0):
                raise Broken(f"a message was not heeded job_id={job_id} told={told[job_id]} shown={shown}")

    def _judge_history(self, job_id: str, history: Sequence[Event], floor: int) -> None:
        if [event.version for event in history] != list(range(floor or 1, len(history) + (floor or 1))):
            raise Broken(f"a history has a hole, or more than is above its floor job_id={job_id} floor={floor}")
        if floor:
            self._judge_erased(job_id, history)
        ended = {(event.start, event.type) for event in history if isinstance(event, JobSucceeded | JobFailed)}
        for event in history:
            if isinstance(event, TransitionRefused) and (event.start, event.tried) in ended:
                raise Broken(f"somebody was refused what he had done himself job_id={job_id} version={event.version}")
        seen: Counter[str] = Counter()
        for event in history:
            for label in (getattr(event, "title", ""), str((getattr(event, "result", None) or {}).get("label", ""))):
                if label and event.actor != "foreign":
                    seen[f"{event.type} {label}"] += 1
            if event.reason.count(".") == 1 and event.reason.startswith("person"):
                seen[f"{event.type} {event.reason}"] += 1
        doubled = [what for what, times in seen.items() if times > 1]
        if doubled:
            raise Broken(f"a transition was written twice job_id={job_id} what={doubled}")

    def _judge_erased(self, job_id: str, history: Sequence[Event]) -> None:
        """Of an erased job there is its tombstone, its floor, and the mark that its end was published."""
        if [event.type for event in history] != [JobDeleted.__name__]:
            raise Broken(f"an erased job has more than its tombstone job_id={job_id} history={history}")
        names = [entry.name for entry in self.world.store.list("") if f"/{job_id}/" in f"{entry.name}/"]
        left = [name for name in names if not name.startswith(("log/", "ctl/"))]
        if left:
            raise Broken(f"something is left of an erased job job_id={job_id} names={left}")

    def _judge_status(self, job_id: str, job: Job) -> None:
        blob = self.world._peek(status_name(job_id))
        expected = None if job.state == DELETED else status_bytes(job)
        found = None if blob is None else bytes(blob.data)
        if job.state == SUCCEEDED and blob is not None and not version_of(blob):
            return  # nobody looks at a job that is done until something happens to it, or `verify` is asked
        if found != expected:
            raise Broken(f"a status is not the fold of the log job_id={job_id} found={found!r} expected={expected!r}")

    def _judge_replaced(self, name: str, blob: Blob, events: Mapping[str, Sequence[Event]]) -> None:
        """What another service wrote is a fact, told before ours took its place; or it is refused, or of a job's past."""
        record = status.decode(blob.data)
        history = events[record.job_id]
        told = [event for event in history if event.actor == "foreign"]
        if any(record.title in str(msgspec.to_builtins(event)) for event in told):
            return
        is_refused = any(isinstance(event, TransitionRefused | JobDeleted) for event in history)
        if not is_refused and to_datetime(record.updated_at) >= history[0].at:
            raise Broken(f"a foreign record was replaced in silence name={name} record={blob.data!r}")

    def _floor(self, job_id: str) -> int:
        return Floors(self.world.store, Names()).get(job_id)

    def _events(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for entry in self.world.store.list("log/"):
            blob = self.world._peek(entry.name)
            assert blob is not None
            event = codec.decode(blob.data)
            found.setdefault(event.job_id, []).append(event)
        return found

    def _indexed(self) -> Sequence[str]:
        try:
            return Index(self.world.store).page("", 1, 200)[0]
        except NotFound:
            return []


class _HandlerFailed(Exception):
    """The work of a handler did not come off."""


class Replica:
    """One projector: messages, sweep and views in turns, in one greenlet."""

    def __init__(self, life: Life, process: Process, *, code: int) -> None:
        world = life.world
        blobs = SimBlobs(process)
        jobs = life._open(process)
        counts, monotonic, sleep = jobs.counts, world.monotonic, process.sleep
        self.inflow = Inflow(jobs.log)
        arrears = Arrears(SimPublisher(process), jobs.log, blobs, counts=counts, monotonic=monotonic)
        adopt = Adoption(jobs.emitter)
        self.status = StatusView(
            blobs,
            on_deleted=lambda job_id: inlet.catch_up(job_id),
            told=lambda job_id: self.inflow.taken(job_id).version,
            positions=MemoryPositions(),
            adopt=adopt,
            counts=counts,
            code=code,
            threads=1,
            monotonic=monotonic,
            sleep=sleep,
        )
        index = UnplacedIndex(IndexView(blobs, monotonic=monotonic), on_lost=lambda: self.sweeper.hurry())
        self.projector = Projector(
            self.inflow,
            [self.status, index],
            alarm=self.inflow,
            blobs=blobs,
            counts=counts,
            recall=jobs.emitter.recall,
            clock=process.clock,
            monotonic=monotonic,
            wait=sleep,
            complete_through=lambda: self.sweeper.complete_through(),
        )
        inlet = Inlet(
            jobs.log,
            self.inflow,
            look=lambda job_id: look_at_status(blobs, "", job_id),
            arrears=arrears,
            counts=counts,
        )
        parts: Any = jobs.log.recorder
        self.sweeper = Sweeper(
            inlet,
            parts,
            IndexCensus(blobs, monotonic=monotonic),
            blobs,
            mend=Mender(blobs, "", jobs.emitter, adopt=adopt, counts=counts),
            stored=self._stored,
            arrears=arrears,
            terms=Terms(operations_s=1e9, open_s=20.0, calm_s=40.0),
            counts=counts,
            monotonic=monotonic,
            sleep=sleep,
        )
        self.hints = Hints(
            world.bus.subscriber("projector", create=True),
            inlet,
            stored=self._stored,
            counts=counts,
            watched=self.status.watches,
            on_lost=self.sweeper.hurry,
            threads=1,
            monotonic=monotonic,
            sleep=sleep,
        )

    def _stored(self) -> int:
        return min(self.projector.positions().values())

    def turn(self, *, sweeps: bool) -> None:
        """Pull, read, fold, store what is due; and sweep what is due."""
        self.hints.step(0)
        if sweeps:
            self.sweeper.step()
        self.projector.step()

    def is_idle(self) -> bool:
        """Tell whether everything that was found is stored."""
        return self.hints.is_idle() and not self.inflow.depth()
