"""The composition root of the bus: what the events of a log go out by, and the projector that comes to know of them by it."""

from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobevents.boundary import hide_password, split_url
from jobevents.errors import Misconfigured
from jobevents.workers import identity, new_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobevents.bus import Bus, Publisher
    from jobevents.events import Event
    from jobevents.job import Job
    from jobevents.jobs import Jobs
    from jobevents.log import Record
    from jobevents.relay import Relay
    from jobevents.telemetry import Counts
    from projections.positions import Positions
    from projections.service import ProjectorService
    from projections.sweeper import Terms
    from projections.unplacedbuild import UnplacedBuilder

SCHEME = "pubsub://"
UNTOLD_ROTATION_S = 60.0  # in which all of a log is listed that has no bus: new jobs are found by nothing else


def split_topic(url: str) -> tuple[str, str]:
    """Return a log's URL without its option `topic`, and that: `projects/p/topics/t`, or "" where there is none.

    Raises:
        Misconfigured: the option is given twice, or is empty.
    """
    if not isinstance(url, str) or "topic=" not in url:
        return url, ""
    bare, _, query = url.partition("?")  # the rest stays letter by letter, as urlunsplit would not have it
    options = query.split("&")
    topics = [unquote(one.removeprefix("topic=")) for one in options if one.startswith("topic=")]
    if not topics:
        return url, ""
    if len(topics) > 1 or not topics[0]:
        raise Misconfigured(f"one topic, please url={hide_password(url)!r}; write ?topic=projects/PROJECT/topics/TOPIC")
    rest = "&".join(one for one in options if not one.startswith("topic="))
    return f"{bare}?{rest}" if rest else bare, topics[0]


def open_bus(url: str, counts: "Counts | None" = None) -> "Bus":
    """Return the bus behind `pubsub://projects/p/topics/t`, or a topic's name alone; one in memory for `memory://`.

    Raises:
        Misconfigured: there is no such bus.
    """
    if url.startswith((SCHEME, "projects/")):
        from jobevents.backends.pubsub import PubSubBus

        return PubSubBus(url.removeprefix(SCHEME), counts=counts)
    if split_url(url).scheme == "memory":
        from jobevents.bus import InProcessBus

        return InProcessBus(counts=counts)
    raise Misconfigured(f"no bus for this URL url={url!r}; write pubsub://projects/PROJECT/topics/TOPIC")


def publish(jobs: "Jobs", bus: "Bus | str") -> None:
    """Have every event of the log go out by a bus: from a kept place where the log has one sequence, else after each append.

    Args:
        bus: one that is opened here is closed with the jobs.

    Raises:
        Misconfigured: there is no such bus, or the log cannot keep a place.
    """
    if isinstance(bus, str):
        name, bus = bus.removeprefix(SCHEME), open_bus(bus, jobs.counts)
        jobs.at_close(bus.close)
    else:
        name = str(getattr(bus, "topic", "bus"))
    jobs.bus = bus
    publisher = bus.publisher()
    jobs.at_close(_ending(publisher))
    if jobs.log.ordered:
        _relay(jobs, name, publisher)
    else:
        jobs.observe(_Direct(publisher))


def _ending(one: "Publisher | Relay") -> "Callable[[], None]":
    """Return what closes it, and leaves it to its log and counters what was not sent."""

    def end() -> None:
        one.close()

    return end


def _relay(jobs: "Jobs", name: str, publisher: "Publisher") -> None:
    from jobevents.lease import RoleLease
    from jobevents.relay import Relay
    from projections.positions import TrackedPositions
    from projections.projector import Follower

    recorder = jobs.log.recorder
    if not isinstance(recorder, Follower):
        raise Misconfigured("this log keeps no places: its events cannot be relayed to a bus")
    role = f"relay-{blake2b(name.encode(), digest_size=4).hexdigest()}"
    jobs.relay = Relay(
        jobs.log,
        publisher,
        TrackedPositions(recorder),
        f"bus:{name}",
        alarm=recorder,
        role=lambda: RoleLease(jobs.blobs, role, new_identity("relay"), prefix=jobs.prefix),
        counts=jobs.counts,
    )
    jobs.observe(jobs.relay, close=_ending(jobs.relay))


def service(
    jobs: "Jobs",
    subscription: str = "",
    *,
    create: bool = False,
    dead_letter: str = "",
    leased: bool = True,
    terms: "Terms | None" = None,
) -> "ProjectorService":
    """Return a projector into status and index for a log without one sequence, kept where the log is.

    Args:
        subscription: of the log's topic; by default the topic's name with `-projector`. Without a topic, the sweep alone finds
            what is new: all of the log is then listed every minute.
        create: make topic and subscription where they are not there.
        dead_letter: topic for messages that were delivered a hundred times, of a subscription that is made here.
        leased: let one process at a time sweep.
        terms: how often, and at what cost.

    Raises:
        Misconfigured: the log has one sequence, by which it is projected; or there is a subscription and no topic.
    """
    from jobevents.lease import RoleLease
    from projections.adoption import Adoption
    from projections.arrears import Arrears
    from projections.hints import Hints
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

    if jobs.log.ordered:
        raise Misconfigured("this log has one sequence, and is projected by it: leave out the subscription")
    if subscription and jobs.bus is None:
        raise Misconfigured("a subscription needs its topic: write ?topic=projects/PROJECT/topics/TOPIC in the URL")
    blobs, prefix, emitter, counts = jobs.blobs, jobs.prefix, jobs.emitter, jobs.counts
    adopt, inflow = Adoption(emitter), Inflow(jobs.log)
    publisher = jobs.bus.publisher() if jobs.bus else None
    arrears = Arrears(publisher, jobs.log, blobs, prefix, counts=counts) if publisher else None
    inlet = Inlet(
        jobs.log,
        inflow,
        look=lambda job_id: look_at_status(blobs, prefix, job_id),
        arrears=arrears,
        counts=counts,
    )
    statuses = StatusView(
        blobs,
        prefix,
        positions=MemoryPositions(),
        adopt=adopt,
        adopt_deletes=jobs.adopt_deletes,
        counts=counts,
        told=lambda job_id: inflow.taken(job_id).version,
        on_deleted=inlet.catch_up,
    )
    jobs.at_close(statuses.close)
    sweeper = Sweeper(
        inlet,
        jobs.log.recorder,  # type: ignore[arg-type]  # a log without one sequence lists itself by parts
        IndexCensus(blobs, prefix),
        blobs,
        prefix,
        mend=Mender(blobs, prefix, emitter, adopt=adopt, adopt_deletes=jobs.adopt_deletes, counts=counts),
        stored=lambda: made.stored(),
        arrears=arrears,
        lease=RoleLease(blobs, "sweeper", identity(), prefix=prefix) if leased else None,
        terms=terms or (Terms() if jobs.bus else Terms(rotation_s=UNTOLD_ROTATION_S)),
        counts=counts,
    )
    projector = Projector(
        inflow,
        [statuses, UnplacedIndex(IndexView(blobs, prefix), on_lost=sweeper.hurry)],
        alarm=inflow,
        blobs=blobs,
        prefix=prefix,
        holder=identity(),
        counts=counts,
        recall=emitter.recall,
        complete_through=sweeper.complete_through,
    )
    hints = None
    if jobs.bus is not None:
        name = subscription or f"{getattr(jobs.bus, 'topic', '').rpartition('/')[2]}-projector"
        hints = Hints(
            jobs.bus.subscriber(name, create=create, dead_letter=dead_letter),
            inlet,
            stored=lambda: made.stored(),
            counts=counts,
            watched=statuses.watches,
            on_lost=sweeper.hurry,
        )
    made = ProjectorService(projector, inflow, sweeper, hints, counts=counts)
    return made


def builder(
    jobs: "Jobs", build: str, threads: int, *, everything: "Callable[[], Iterator[Record]]"
) -> "UnplacedBuilder":
    """Return what makes builds over a log without one sequence; close it.

    Args:
        everything: reads all histories from wherever that is cheapest.

    Raises:
        InvalidValue: no build has such a name.
    """
    from projections.arrears import Arrears
    from projections.indexview import IndexView
    from projections.unplaced import UnplacedIndex
    from projections.unplacedbuild import UnplacedBuilder

    return UnplacedBuilder(
        jobs.emitter,
        jobs.blobs,
        jobs.prefix,
        build,
        everything=everything,
        live_index=lambda: UnplacedIndex(IndexView(jobs.blobs, jobs.prefix)),
        arrears=Arrears(None, jobs.log, jobs.blobs, jobs.prefix, counts=jobs.counts) if jobs.bus else None,
        threads=threads,
    )


def live_positions(jobs: "Jobs") -> "Positions":
    """Return where the positions of live views are kept; of a log without one sequence they are each process's own."""
    from projections.positions import TrackedPositions, Tracker
    from projections.rebuild import MemoryPositions

    recorder = jobs.log.recorder
    return TrackedPositions(recorder) if jobs.log.ordered and isinstance(recorder, Tracker) else MemoryPositions()


class _Direct:
    """Publishes what this process appends; what gets lost on the way is found and published by the sweeper."""

    def __init__(self, publisher: "Publisher") -> None:
        from jobevents.bus import notice_of

        self._publisher = publisher
        self._notice_of = notice_of

    def __call__(self, job: "Job", events: "Sequence[Event]") -> None:
        self._publisher.publish([self._notice_of(event) for event in events])
