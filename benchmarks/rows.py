"""The rows, and what must hold between their contenders. Names are kept: `--compare` finds a row by its name."""

from collections.abc import Callable
from typing import Any

from benchmarks.analytics_rows import ANALYTICS_HOLDS, ANALYTICS_ROWS
from benchmarks.cloud_rows import CLOUD_HOLDS, CLOUD_ROWS
from benchmarks.history_rows import HISTORY_HOLDS, HISTORY_ROWS
from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under
from benchmarks.queue_rows import QUEUE_HOLDS, QUEUE_ROWS

_HISTORY_5 = "benchmarks.histories:of_5"
_HISTORY_20 = "benchmarks.histories:of_20"
_INDEX = "benchmarks.pages:index"
_TABLE = "benchmarks.pages:table"
_LISTED = "benchmarks.listing:listed"
_PAINTED = "benchmarks.painting:projected"
_FEW = Sizes(1000, 10_000, 10_000)
_MANY = Sizes(1, 25, 101)  # short ones: a disk that others use is slow for moments, which then fall into few pairs
_FULL = "FULL: a commit survives a power cut"
_READ = "none: nothing is written"


def _contenders_of(module: str) -> Callable[..., Contender]:
    """Return what makes a contender of a module of ours: name, function, what it does, and what else a Contender has."""

    def contender(name: str, function: str, what: str, **more: Any) -> Contender:  # Any: as Contender's
        return Contender(name, f"benchmarks.{module}:{function}", what, **more)

    return contender


_append = _contenders_of("append")
_reading = _contenders_of("reading")
_projecting = _contenders_of("projecting")
_rebuilding = _contenders_of("rebuilding")
_pages = _contenders_of("pages")
_listing = _contenders_of("listing")
_painting = _contenders_of("painting")
_statuses = _contenders_of("statuses")
_caching = _contenders_of("caching")
_caching_peer = _contenders_of("caching_peer")
_guard = _contenders_of("guard")
_imports = _contenders_of("imports")
_storage = _contenders_of("storage")

ROWS: tuple[Row, ...] = (
    Row(
        "append-one",
        "append one event to SQLite",
        "events a repetition, of jobs with 5 each, one commit an event",
        _FULL,
        "what every transition of a job costs its worker",
        Sizes(20, 50, 200),
        (
            _append(
                "ours", "ours_one", "EventLog.append of an event made before, with what it changes of its job's row"
            ),
            _append("limit", "limit_one", "two whole rows made before, a bare connection"),
            _append("ours, emitter", "emitter_one", "Emitter.change: fold and check besides"),
            _append("peer", "peer_one", "eventsourcing's SQLite recorder, JSON; no row of the state"),
        ),
        repetitions=_MANY,
    ),
    Row(
        "append-hundred",
        "append one of a hundred events that share a commit",
        "events a repetition",
        _FULL,
        "imports, and the submission of many jobs",
        Sizes(200, 5000, 50_000),
        (
            _append("ours", "ours_hundred", "EventLog.append with the rows of their jobs"),
            _append("limit", "limit_hundred", "the same rows made before, a bare connection"),
            _append("peer", "peer_hundred", "eventsourcing's SQLite recorder, JSON"),
        ),
    ),
    Row(
        "append-threads",
        "append one event to SQLite, from 8 threads at once",
        "events a repetition, of all threads",
        _FULL,
        "a worker process with several jobs at a time",
        Sizes(40, 400, 1600),
        (
            _append("ours", "ours_threads", "Emitter.change in each thread; commits are shared"),
            _append("limit", "limit_threads", "8 events a commit in one bare loop"),
            _append("peer", "peer_threads", "eventsourcing's SQLite recorder, JSON"),
        ),
        repetitions=_MANY,
    ),
    Row(
        "read-job",
        "read one job of 20 events and fold it",
        "events in the log, of jobs with 20 each",
        _READ,
        "a job that this process has not seen yet: a guard, a command, a page of details",
        Sizes(2000, 20_000, 200_000),
        (
            _reading("ours", "ours_job", "EventLog.read and fold", prepare=_HISTORY_20),
            _reading("limit", "limit_job", "SELECT and msgspec decode", prepare=_HISTORY_20),
            _reading(
                "peer",
                "peer_job",
                "eventsourcing's repository.get of an Aggregate",
                prepare="benchmarks.histories:aggregates_of_20",
                sizes=Sizes(2000, 4000, 20_000),
            ),
        ),
    ),
    Row(
        "read-all",
        "read one event of the whole log, decoded",
        "events in the log",
        _READ,
        "rebuilds, replays and exports",
        Sizes(2000, 50_000, 1_000_000),
        (
            _reading("ours", "ours_all", "EventLog.scan and Record.event", prepare=_HISTORY_5),
            _reading("limit", "limit_all", "one SELECT and msgspec decode", prepare=_HISTORY_5),
            _reading(
                "peer",
                "peer_all",
                "eventsourcing's select_notifications and JSON mapper",
                prepare="benchmarks.histories:aggregates_of_20",
                sizes=Sizes(2000, 4000, 20_000),
            ),
        ),
    ),
    Row(
        "project",
        "project one event into a view, from the beginning of the log",
        "events in the log, of jobs with 5 each",
        "FULL: what is stored, and how far, survives a power cut",
        "how far what people see is behind, and how soon a view is there again",
        Sizes(1000, 20_000, 200_000),
        (
            _projecting("ours", "ours", "projector with StatusView on SqliteBlobs", prepare=_HISTORY_5),
            _projecting(
                "limit",
                "limit",
                "bare SELECT, decode, fold, UPSERT, a commit each 1,000 events",
                prepare=_HISTORY_5,
            ),
            _projecting(
                "peer",
                "peer",
                "eventsourcing's ProjectionRunner, counting, from memory",
                sizes=Sizes(20, 200, 2000),
            ),
        ),
    ),
    Row(
        "rebuild",
        "rebuild both views from the log: one event of it",
        "events in the log, of jobs with 5 each",
        "FULL: each batch",
        "a view that was lost, or new code of one; in a container of half a gigabyte",
        Sizes(1000, 100_000, 1_000_000),
        (
            _rebuilding(
                "ours",
                "ours",
                "wiring.rebuild of statuses and index, then swapped in",
                prepare=_HISTORY_5,
            ),
            _projecting(
                "limit",
                "limit",
                "bare SELECT, decode, fold, UPSERT; all jobs in memory, nothing compared",
                prepare=_HISTORY_5,
            ),
        ),
    ),
    Row(
        "pages",
        "one page of 50 ids of any state, at any depth",
        "ids in the index; few: 10,000",
        _READ,
        "what a list costs, however long the history is",
        Sizes(5000, 1_000_000, 1_000_000),
        (
            _pages("ours", "ours", "Index.page over files, its chunk read each time", prepare=_INDEX),
            _pages("ours, few", "ours", "the same", prepare=_INDEX, sizes=_FEW),
            _pages("ours, cached", "ours_cached", "Index.page with its cache of 64 chunks", prepare=_INDEX),
            _pages("ours, cached, few", "ours_cached", "the same", prepare=_INDEX, sizes=_FEW),
            _pages("limit", "limit", "a slice of a sorted list in memory"),
            _pages("peer", "peer", "SQLite count(*), LIMIT and OFFSET", prepare=_TABLE),
            _pages("peer, few", "peer", "the same", prepare=_TABLE, sizes=_FEW),
            _pages("peer, sorting", "sorting", "select_ids: the list is sorted each time"),
        ),
    ),
    Row(
        "list-http",
        "answer one page of 50 jobs, any page of any state, over the API",
        "jobs in the index; few: 10,000",
        _READ,
        "what the dashboard and other programs wait for, however long the history is",
        Sizes(2000, 100_000, 1_000_000),
        (
            _listing("ours", "ours", "GET /api/jobs: index and statuses in files", prepare=_LISTED),
            _listing("limit", "limit", "the page's 50 status files read and joined, ids known", prepare=_LISTED),
            _listing("ours, few", "ours", "the same", prepare=_LISTED, sizes=_FEW),
        ),
    ),
    Row(
        "list-paint",
        "show the list of the dashboard in a browser: until its content is painted",
        "events of the log, of jobs with 5 each; few: 10,000 jobs",
        _READ,
        "what somebody waits for who opens the dashboard, however long the history is",
        Sizes(500, 250_000, 5_000_000),
        (
            _painting("ours", "ours", "GET / over a log in SQLite with its views", prepare=_PAINTED),
            _painting("ours, few", "ours", "the same", prepare=_PAINTED, sizes=Sizes(500, 50_000, 50_000)),
            _painting("limit", "limit", "the same bytes from memory", prepare=_PAINTED),
        ),
        repetitions=Sizes(1, 9, 15),
    ),
    Row(
        "status-encode",
        "write one status as JSON",
        "statuses",
        _READ,
        "every event that a projector shows",
        Sizes(100, 20_000, 200_000),
        (
            _statuses("ours", "ours_encode", "status.encode: checked, and byte for byte as Go's"),
            _statuses("limit", "limit_encode", "msgspec over a bare Struct"),
            _statuses("peer", "peer_encode", "json over a dataclass"),
        ),
    ),
    Row(
        "status-decode",
        "read one status from JSON",
        "statuses",
        _READ,
        "every row of a page",
        Sizes(100, 20_000, 200_000),
        (
            _statuses("ours", "ours_decode", "status.decode: as leniently as Go"),
            _statuses("limit", "limit_decode", "msgspec into a bare Struct"),
            _statuses("peer", "peer_decode", "json into a dataclass"),
        ),
    ),
    Row(
        "cache",
        "one read or write of the cache, ten reads a write",
        "reads and writes a repetition, of 10,000 held values",
        "none: memory",
        "every row of a page that was shown before",
        Sizes(110, 110_000, 1_100_000),
        (
            _caching("ours", "ours", "TTLCache, ids in any spelling"),
            _caching("limit", "limit", "a dict under a lock"),
            _caching_peer("peer", "peer", "cachetools.TTLCache under a lock", needs="cachetools"),
        ),
    ),
    Row(
        "guard",
        "refuse one delivery of a job that has succeeded",
        "events in the log, of jobs with 5 each",
        _READ,
        "a task queue delivers at least once",
        Sizes(500, 50_000, 500_000),
        (
            _guard("ours", "ours", "jobs.attempt, in a process new to the job", prepare=_HISTORY_5),
            _guard("ours, again", "ours_again", "jobs.attempt, job seen before", prepare=_HISTORY_5),
            _guard("limit", "limit", "SELECT of its state by key", prepare=_HISTORY_5),
        ),
    ),
    Row(
        "import",
        "start Python and import the package",
        "starts a repetition",
        _READ,
        "every command, and every cold start of a container",
        Sizes(1, 3, 10),
        (
            _imports("ours", "ours", "import jobevents; no module of google, typer or rich"),
            _imports("limit", "limit", "pass"),
            _imports("peer", "peer", "import eventsourcing.application"),
        ),
    ),
    Row(
        "bytes",
        "one job of 5 events in its file",
        "events in the log",
        _FULL,
        "what a year of history takes",
        Sizes(500, 50_000, 500_000),
        (
            _storage("ours", "ours", "events, slots, the run's row and indexes", prepare=_HISTORY_5),
            _storage("limit", "limit", "the stored bodies and chains alone", prepare=_HISTORY_5),
            _storage("peer", "peer", "eventsourcing's SQLite recorder, JSON; no row of the state"),
        ),
        unit="bytes",
    ),
    *ANALYTICS_ROWS,
    *HISTORY_ROWS,
    *QUEUE_ROWS,
    *CLOUD_ROWS,
)

HOLDS: tuple[Hold, ...] = (
    AtLeast(Place("append-one", "ours"), 0.8, Place("append-one", "limit")),
    AtLeast(Place("read-all", "ours"), 0.4, Place("read-all", "limit")),
    AtLeast(Place("project", "ours"), 40, Place("project", "peer")),
    AtLeast(Place("pages", "ours"), 0.5, Place("pages", "ours, few")),
    AtLeast(Place("list-http", "ours"), 0.5, Place("list-http", "ours, few")),
    AtLeast(Place("list-paint", "ours"), 0.7, Place("list-paint", "ours, few")),
    Under(Place("rebuild", "ours"), "peak_mb", 300),
    Under(Place("import", "ours"), "seconds", 0.150),
    *ANALYTICS_HOLDS,
    *HISTORY_HOLDS,
    *QUEUE_HOLDS,
    *CLOUD_HOLDS,
)
