"""The rows of the log on Cloud Storage, 45 ms away, with Pub/Sub 20 ms away; and what must hold of them."""

from benchmarks.cloud_prices import CLAIMED
from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under, Unit

_FAR = "an emulator: a create has been acknowledged"
_READ = "none of its own: a status can be written again"


def _contender(name: str, function: str, what: str, **told: str | int) -> Contender:
    return Contender(name, f"benchmarks.cloud:{function}", what, told=told)


def _appends(threads: int, limit: Contender, *others: Contender, sizes: Sizes) -> Row:
    return Row(
        f"cloud-append-{threads}",
        f"append one event to the log on Cloud Storage, from {threads} threads at once",
        "events a repetition, of all threads",
        _FAR,
        "what a transition costs a stateless worker, and how many it can make",
        sizes,
        (
            _contender("ours", "appending", "Emitter.change in each thread, on jobs that are there", threads=threads),
            limit,
            *others,
        ),
        repetitions=Sizes(1, 15, 41),  # short ones, some of which meet no noise
        server="cloud",
    )


def _bare(name: str, threads: int) -> Contender:
    return _contender(name, "uploading", "google-cloud-storage: the same bytes, create-only, crc32c", threads=threads)


def _burst(name: str, what: str, figure: str, unit: Unit, limit: Contender) -> Row:
    return Row(
        name,
        what,
        "job a repetition, with 20 transitions as fast as they are appended",
        _READ,
        "a bucket allows one write a second of one name",
        Sizes(1, 1, 1),
        (_contender("ours", "bursting", "a projector that hears of them by Pub/Sub", figure=figure), limit),
        unit,
        Sizes(1, 3, 11),
        "cloud",
    )


def _operations(name: str, what: str, figure: str, unit: Unit, limit: Contender) -> Row:
    return Row(
        name,
        what,
        "jobs a repetition, of 4 events each; what comes by time aside (index, sweep, leases), and two reads of a floor a job",
        _READ,
        "what the bill is made of",
        Sizes(1, 24, 240),
        (_contender("ours", "operating", "a submitter, a worker, a projector", figure=figure), limit),
        unit,
        Sizes(1, 3, 5),
        "cloud",
    )


def _promised(what: str, figure: float) -> Contender:
    return _contender("limit", "constant", what, thousandths=round(figure * 1000))


_EVENTS = "events a repetition, of jobs with 4 each"

CLOUD_ROWS: tuple[Row, ...] = (
    _appends(
        16,
        _contender("limit", "waiting", "16 / latency", threads=16),
        _bare("client", 16),
        sizes=Sizes(16, 160, 320),
    ),
    _appends(64, _bare("limit", 64), sizes=Sizes(64, 320, 640)),
    Row(
        "cloud-status",
        "submit one job and have its status",
        "jobs a repetition, one after the other",
        _READ,
        "how late a dashboard is",
        Sizes(1, 1, 1),
        (
            _contender("ours", "emitting", "by Pub/Sub and the projector's service"),
            _contender("limit", "calling", "five storage calls and one message, one after the other"),
        ),
        repetitions=Sizes(1, 40, 200),
        server="cloud",
    ),
    _burst(
        "cloud-burst",
        "have the last of 20 transitions in the status, after it was appended",
        "late",
        "s",
        _promised("a second's wait, and its write", 1.1),
    ),
    _burst(
        "cloud-burst-rate",
        "write one status: how many a second where they were closest",
        "rate",
        "calls",
        _promised("what a bucket allows", 1.0),
    ),
    _burst(
        "cloud-burst-writes",
        "write the status of one job with 20 transitions: how often",
        "writes",
        "calls",
        _promised("one a second, while they are appended and after", 3),
    ),
    _operations(
        "cloud-operations-a",
        "make one transition: operations of class A (put, list)",
        "A",
        "calls",
        _promised("the event, and a status for two of them", 1.5),
    ),
    _operations(
        "cloud-operations-b",
        "make one transition: operations of class B (get)",
        "B",
        "calls",
        _promised("what the cost line has for reads", 2.1),
    ),
    _operations(
        "cloud-cost",
        "make a million transitions: their storage operations at list price",
        "$",
        "$",
        _promised("the cost line: $8.4, less the messages", CLAIMED),
    ),
    Row(
        "cloud-project",
        "bring one event into status and index, by its message",
        _EVENTS,
        _READ,
        "how many workers a projector can follow",
        Sizes(4, 1200, 12_000),
        (
            _contender("ours", "projected", "the projector's service, one replica"),
            _contender("limit", "waiting", "a read of each event, 16 at once", threads=16),
        ),
        repetitions=Sizes(1, 2, 3),
        server="cloud",
    ),
    Row(
        "cloud-catch-up",
        "bring one event of the log alone into status and index",
        _EVENTS,
        _READ,
        "views that were lost, and a projector that was away",
        Sizes(4, 2000, 100_000),
        (
            _contender(
                "ours", "caught_up", "a sweep of the whole log without a budget: 256 lists, however small it is"
            ),
            _contender("limit", "waiting", "a read of each event, 16 at once", threads=16),
        ),
        repetitions=Sizes(1, 1, 1),
        server="cloud",
    ),
)

CLOUD_HOLDS: tuple[Hold, ...] = (
    AtLeast(Place("cloud-append-16", "ours"), 0.7, Place("cloud-append-16", "limit")),
    Under(Place("cloud-burst", "ours"), "most", 2.1),
    Under(Place("cloud-burst-rate", "ours"), "most", 1.0),
    Under(Place("cloud-cost", "ours"), "median", CLAIMED),
)
