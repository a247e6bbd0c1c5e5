"""The rows of queues: ours beside bare loops and the queues that a user would pick, and what must hold between them."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under, Unit

_THREADS = 10  # handlers at once in a process over SQLite: what a runner of ours has unless told
_CONCURRENCY = 10  # over Postgres: what SAQ's workers have unless told


class _Queue(NamedTuple):
    """A contender, in whichever of the rows."""

    name: str
    what: str  # how durable its commits are, and how sure it is that a job is done
    told: Mapping[str, str | int]
    needs: str = ""
    is_apart: bool = True  # its jobs can be worked on in another process than that which submits them
    batches: bool = False  # it can submit several jobs in one transaction


class _Kind(NamedTuple):
    """What a row measures, whatever the database."""

    name: str
    target: str  # a function of benchmarks.queueing
    what: str
    size: str
    why: str
    sizes: Sizes
    told: Mapping[str, str | int] = {}
    who: Callable[[_Queue], bool] = lambda _: True
    unit: Unit = "s"
    repetitions: Sizes = Sizes(tiny=1, small=3, full=11)


_WAITING = "jobs a repetition, all of them waiting"
_HANDLED = Sizes(20, 2000, 20_000)
_KINDS = (
    _Kind(
        "submit",
        "submitting",
        "submit one job",
        "jobs a repetition, a transaction each",
        "how much longer a request takes that submits one",
        Sizes(5, 60, 2000),
    ),
    _Kind(
        "submit-hundred",
        "submitting",
        "submit one of a hundred jobs in one transaction",
        "jobs a repetition",
        "imports, and jobs that fan out",
        Sizes(5, 1000, 20_000),
        told={"together": 100},
        who=lambda one: one.batches,
    ),
    _Kind("jobs", "handling", "run one job that does nothing", _WAITING, "what a worker process gets done", _HANDLED),
    _Kind(
        "jobs-four",
        "handling",
        "run one job that does nothing, in four processes",
        _WAITING,
        "several workers on one database",
        _HANDLED,
        told={"processes": 4},
        who=lambda one: one.is_apart,
    ),
    _Kind(
        "backlog",
        "handling_of_many",
        "run one job of very many",
        "jobs that wait, of which a repetition runs one in 200",
        "the morning after a night without workers",
        Sizes(200, 200_000, 200_000),
        who=lambda one: one.batches,
        repetitions=Sizes(1, 3, 5),
    ),
    _Kind(
        "latency",
        "beginning",
        "have an idle worker in another process begin a job",
        "seconds that it has idled at first; one job a repetition",
        "what a person waits for who started it",
        Sizes(0, 2, 5),
        who=lambda one: one.is_apart,
        repetitions=Sizes(2, 100, 1000),
    ),
    _Kind(
        "idle",
        "idling",
        "have a worker wait",
        "seconds that it waits",
        "what a service with nothing to do costs",
        Sizes(0, 5, 10),
        unit="cores",
        repetitions=Sizes(1, 3, 5),
    ),
)

_OURS = "JobRunner: two events and a row a job, its start durable before its handler"
_BARE = "bare loop of one thread: the same promise, a commit for as many jobs as run at once"


def _sqlite(
    name: str, queue: str, durability: str, what: str, needs: str = "", *, is_apart: bool = True, batches: bool = False
) -> _Queue:
    told: dict[str, str | int] = {"queue": queue, "durability": durability, "threads": _THREADS}
    return _Queue(name, f"{durability.upper()}; {what}", told, needs, is_apart, batches)


def _postgres(name: str, queue: str, what: str, needs: str = "", *, batches: bool = False) -> _Queue:
    return _Queue(name, what, {"queue": queue, "threads": _CONCURRENCY}, needs, batches=batches)


_ON_SQLITE = (
    _sqlite("ours", "ours", "full", _OURS, batches=True),
    _sqlite("ours, normal", "ours", "normal", _OURS, batches=True),
    _sqlite("limit", "bare", "full", _BARE, batches=True),
    _sqlite("limit, normal", "bare", "normal", _BARE, batches=True),
    _sqlite("huey", "huey", "full", "deleted when it is handed out: nothing is acknowledged", "huey"),
    _sqlite("litequeue", "litequeue", "normal", "popped, then marked as done", "litequeue", batches=True),
    _sqlite("litequeue, full", "litequeue", "full", "popped, then marked as done", "litequeue", batches=True),
    _sqlite("persist-queue", "persist", "full", "got, then acknowledged", "persistqueue", is_apart=False),
)
_ON_POSTGRES = (
    _postgres("ours", "ours", _OURS, batches=True),
    _postgres("limit", "bare", _BARE, batches=True),
    _postgres("procrastinate", "procrastinate", "fetched, then marked as done", "procrastinate", batches=True),
    _postgres("dbos", "dbos", "workflows without steps; polled each 10 ms, not each second", "dbos"),
    _postgres("saq", "saq", "fetched, then deleted", "saq"),
)


def _row(kind: _Kind, database: Literal["sqlite", "postgres"], queues: tuple[_Queue, ...], durability: str) -> Row:
    contenders = tuple(
        Contender(
            one.name,
            f"benchmarks.queueing:{kind.target}",
            one.what,
            needs=one.needs,
            told={**one.told, **kind.told},
        )
        for one in queues
        if kind.who(one)
    )
    return Row(
        f"{database}-{kind.name}",
        kind.what,
        kind.size,
        durability,
        kind.why,
        kind.sizes,
        contenders,
        kind.unit,
        kind.repetitions,
        "postgres" if database == "postgres" else "",
    )


QUEUE_ROWS = (
    *(
        _row(
            kind,
            "sqlite",
            _ON_SQLITE,
            f"FULL: a commit survives a power cut; NORMAL: a crash of the process. {_THREADS} threads a process",
        )
        for kind in _KINDS
    ),
    *(
        _row(
            kind,
            "postgres",
            _ON_POSTGRES,
            f"fsync and synchronous_commit are on: a commit survives a power cut. {_CONCURRENCY} at once a process",
        )
        for kind in _KINDS
    ),
)


def _hold(
    row: str, times: float, than: str, *, ours: str = "ours", by: Literal["pairs", "median", "p99"] = "pairs"
) -> Hold:
    return AtLeast(Place(row, ours), times, Place(row, than), by)


QUEUE_HOLDS: tuple[Hold, ...] = (
    _hold("sqlite-jobs", 1.5, "huey"),
    _hold("sqlite-jobs", 2, "litequeue", ours="ours, normal"),
    AtLeast(Place("sqlite-backlog", "ours, normal"), 0.8, Place("sqlite-jobs", "ours, normal")),
    Under(Place("sqlite-latency", "ours"), "median", 0.010),
    Under(Place("sqlite-idle", "ours"), "median", 0.01),
    _hold("postgres-submit", 1.5, "procrastinate"),
    _hold("postgres-jobs", 4, "procrastinate"),
    _hold("postgres-jobs", 1.5, "dbos"),
    _hold("postgres-latency", 1, "procrastinate", by="median"),
    _hold("postgres-latency", 1, "procrastinate", by="p99"),
    Under(Place("postgres-idle", "ours"), "median", 0.01),
)
