"""The rows of history read whole: replayed, proved, listed as it was; beside a decode of the same bytes."""

from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under

_HISTORY_5 = "benchmarks.histories:of_5"
_LIMIT = Contender("limit", "benchmarks.reading:limit_all", "one SELECT and msgspec decode", prepare=_HISTORY_5)
_EVENTS = "events in the log, of jobs with 5 each"
_READ = "none: nothing is written"
_SIZES = Sizes(1000, 100_000, 1_000_000)
_FEW = Sizes(1, 3, 3)

HISTORY_ROWS: tuple[Row, ...] = (
    Row(
        "replay",
        "replay one event of all history",
        _EVENTS,
        _READ,
        "history into a view of one's own, in a container of half a gigabyte",
        _SIZES,
        (Contender("ours", "benchmarks.replaying:replayed", "projections.replay", prepare=_HISTORY_5), _LIMIT),
        repetitions=_FEW,
    ),
    Row(
        "verify",
        "prove one event of all history, with what was made of it",
        _EVENTS,
        _READ,
        "how long it takes to know that nothing was changed",
        _SIZES,
        (
            Contender(
                "ours",
                "benchmarks.replaying:verified",
                "projections.verify: chains, ids, rows, statuses, index, root",
                prepare="benchmarks.replaying:projected",
            ),
            Contender(
                "ours, log alone",
                "benchmarks.replaying:verified",
                "the same, of a log without views",
                prepare=_HISTORY_5,
            ),
            _LIMIT,
        ),
        repetitions=_FEW,
    ),
    Row(
        "as-of",
        "list the jobs of a state as they were: one event of all history",
        _EVENTS,
        _READ,
        "how long a list of another day takes",
        _SIZES,
        (Contender("ours", "benchmarks.replaying:listed", "projections.asof.page", prepare=_HISTORY_5), _LIMIT),
        repetitions=_FEW,
    ),
)

HISTORY_HOLDS: tuple[Hold, ...] = (
    AtLeast(Place("replay", "ours"), 0.3, Place("replay", "limit")),
    *(Under(Place(row.name, "ours"), "peak_mb", 300) for row in HISTORY_ROWS),
)
