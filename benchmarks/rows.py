"""The rows, and what must hold between their contenders. Names are kept: `--compare` finds a row by its name."""

from benchmarks.analytics_rows import ANALYTICS_HOLDS, ANALYTICS_ROWS
from benchmarks.history_rows import HISTORY_HOLDS, HISTORY_ROWS
from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under
from benchmarks.queue_rows import QUEUE_HOLDS, QUEUE_ROWS

_HISTORY_5 = "benchmarks.histories:of_5"
_HISTORY_20 = "benchmarks.histories:of_20"
_INDEX = "benchmarks.pages:index"
_TABLE = "benchmarks.pages:table"
_FEW = Sizes(1000, 10_000, 10_000)
_MANY = Sizes(1, 25, 101)  # short ones: a disk that others use is slow for moments, which then fall into few pairs
_FULL = "FULL: a commit survives a power cut"
_READ = "none: nothing is written"

ROWS: tuple[Row, ...] = (
    Row(
        "append-one",
        "append one event to SQLite",
        "events a repetition, of jobs with 5 each, one commit an event",
        _FULL,
        "what every transition of a job costs its worker",
        Sizes(20, 50, 200),
        (
            Contender(
                "ours", "benchmarks.append:ours_one", "EventLog.append of an event made before, with its job's row"
            ),
            Contender("limit", "benchmarks.append:limit_one", "the same two rows made before, a bare connection"),
            Contender("ours, emitter", "benchmarks.append:emitter_one", "Emitter.change: fold and check besides"),
            Contender(
                "peer", "benchmarks.append:peer_one", "eventsourcing's SQLite recorder, JSON; no row of the state"
            ),
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
            Contender("ours", "benchmarks.append:ours_hundred", "EventLog.append with the rows of their jobs"),
            Contender("limit", "benchmarks.append:limit_hundred", "the same rows made before, a bare connection"),
            Contender("peer", "benchmarks.append:peer_hundred", "eventsourcing's SQLite recorder, JSON"),
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
            Contender("ours", "benchmarks.append:ours_threads", "Emitter.change in each thread; commits are shared"),
            Contender("limit", "benchmarks.append:limit_threads", "8 events a commit in one bare loop"),
            Contender("peer", "benchmarks.append:peer_threads", "eventsourcing's SQLite recorder, JSON"),
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
            Contender("ours", "benchmarks.reading:ours_job", "EventLog.read and fold", prepare=_HISTORY_20),
            Contender("limit", "benchmarks.reading:limit_job", "SELECT and msgspec decode", prepare=_HISTORY_20),
            Contender(
                "peer",
                "benchmarks.reading:peer_job",
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
            Contender("ours", "benchmarks.reading:ours_all", "EventLog.scan and Record.event", prepare=_HISTORY_5),
            Contender("limit", "benchmarks.reading:limit_all", "one SELECT and msgspec decode", prepare=_HISTORY_5),
            Contender(
                "peer",
                "benchmarks.reading:peer_all",
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
            Contender(
                "ours", "benchmarks.projecting:ours", "projector with StatusView on SqliteBlobs", prepare=_HISTORY_5
            ),
            Contender(
                "limit",
                "benchmarks.projecting:limit",
                "bare SELECT, decode, fold, UPSERT, a commit each 1,000 events",
                prepare=_HISTORY_5,
            ),
            Contender(
                "peer",
                "benchmarks.projecting:peer",
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
            Contender(
                "ours",
                "benchmarks.rebuilding:ours",
                "wiring.rebuild of statuses and index, then swapped in",
                prepare=_HISTORY_5,
            ),
            Contender(
                "limit",
                "benchmarks.projecting:limit",
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
            Contender(
                "ours", "benchmarks.pages:ours", "Index.page over files, its chunk read each time", prepare=_INDEX
            ),
            Contender("ours, few", "benchmarks.pages:ours", "the same", prepare=_INDEX, sizes=_FEW),
            Contender(
                "ours, cached", "benchmarks.pages:ours_cached", "Index.page with its cache of 64 chunks", prepare=_INDEX
            ),
            Contender("ours, cached, few", "benchmarks.pages:ours_cached", "the same", prepare=_INDEX, sizes=_FEW),
            Contender("limit", "benchmarks.pages:limit", "a slice of a sorted list in memory"),
            Contender("peer", "benchmarks.pages:peer", "SQLite count(*), LIMIT and OFFSET", prepare=_TABLE),
            Contender("peer, few", "benchmarks.pages:peer", "the same", prepare=_TABLE, sizes=_FEW),
            Contender("peer, sorting", "benchmarks.pages:sorting", "select_ids: the list is sorted each time"),
        ),
    ),
    Row(
        "status-encode",
        "write one status as JSON",
        "statuses",
        _READ,
        "every event that a projector shows",
        Sizes(100, 20_000, 200_000),
        (
            Contender("ours", "benchmarks.statuses:ours_encode", "status.encode: checked, and byte for byte as Go's"),
            Contender("limit", "benchmarks.statuses:limit_encode", "msgspec over a bare Struct"),
            Contender("peer", "benchmarks.statuses:peer_encode", "json over a dataclass"),
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
            Contender("ours", "benchmarks.statuses:ours_decode", "status.decode: as leniently as Go"),
            Contender("limit", "benchmarks.statuses:limit_decode", "msgspec into a bare Struct"),
            Contender("peer", "benchmarks.statuses:peer_decode", "json into a dataclass"),
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
            Contender("ours", "benchmarks.caching:ours", "TTLCache, ids in any spelling"),
            Contender("limit", "benchmarks.caching:limit", "a dict under a lock"),
            Contender("peer", "benchmarks.caching_peer:peer", "cachetools.TTLCache under a lock", needs="cachetools"),
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
            Contender("ours", "benchmarks.guard:ours", "jobs.attempt, in a process new to the job", prepare=_HISTORY_5),
            Contender(
                "ours, again", "benchmarks.guard:ours_again", "jobs.attempt, job seen before", prepare=_HISTORY_5
            ),
            Contender("limit", "benchmarks.guard:limit", "SELECT of its state by key", prepare=_HISTORY_5),
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
            Contender("ours", "benchmarks.imports:ours", "import jobevents; no module of google, typer or rich"),
            Contender("limit", "benchmarks.imports:limit", "pass"),
            Contender("peer", "benchmarks.imports:peer", "import eventsourcing.application"),
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
            Contender(
                "ours", "benchmarks.storage:ours", "events, slots, the run's row and indexes", prepare=_HISTORY_5
            ),
            Contender("limit", "benchmarks.storage:limit", "the stored bodies and chains alone", prepare=_HISTORY_5),
            Contender("peer", "benchmarks.storage:peer", "eventsourcing's SQLite recorder, JSON; no row of the state"),
        ),
        unit="bytes",
    ),
    *ANALYTICS_ROWS,
    *HISTORY_ROWS,
    *QUEUE_ROWS,
)

HOLDS: tuple[Hold, ...] = (
    AtLeast(Place("append-one", "ours"), 0.8, Place("append-one", "limit")),
    AtLeast(Place("read-all", "ours"), 0.4, Place("read-all", "limit")),
    AtLeast(Place("project", "ours"), 40, Place("project", "peer")),
    AtLeast(Place("pages", "ours"), 0.5, Place("pages", "ours, few")),
    Under(Place("rebuild", "ours"), "peak_mb", 300),
    Under(Place("import", "ours"), "seconds", 0.150),
    *ANALYTICS_HOLDS,
    *HISTORY_HOLDS,
    *QUEUE_HOLDS,
)
