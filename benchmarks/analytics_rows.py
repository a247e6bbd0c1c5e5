"""The rows of analysis: queries and exports over all of a history, and what must hold between them."""

from benchmarks.model import AtLeast, Contender, Hold, Place, Row, Sizes, Under

_HISTORY_5 = "benchmarks.histories:of_5"
_READ = "none: nothing is written"
_SIZES = Sizes(1000, 100_000, 1_000_000)

ANALYTICS_ROWS: tuple[Row, ...] = (
    Row(
        "sql",
        "a query over all of history: one event of it",
        "events in the log, of jobs with 5 each",
        _READ,
        "a question that no row-per-job system can answer, in a container of half a gigabyte",
        _SIZES,
        (
            Contender(
                "ours", "benchmarks.analytics:ours_grouped", "events grouped by type and day", prepare=_HISTORY_5
            ),
            Contender("limit", "benchmarks.reading:limit_all", "one SELECT and msgspec decode", prepare=_HISTORY_5),
            Contender(
                "ours, attempts",
                "benchmarks.analytics:ours_report",
                "the report durations: every job folded",
                prepare=_HISTORY_5,
            ),
            Contender(
                "ours, sorted",
                "benchmarks.analytics:ours_sorted",
                "every event whole, sorted: by way of temporary files",
                prepare=_HISTORY_5,
            ),
        ),
        repetitions=Sizes(1, 3, 3),
    ),
    Row(
        "export",
        "export all of history to a file: one event of it",
        "events in the log, of jobs with 5 each",
        "fsync at the end",
        "moving to another database, and keeping a copy",
        _SIZES,
        (
            Contender(
                "ours", "benchmarks.analytics:ours_export", "CloudEvents lines and the root hash", prepare=_HISTORY_5
            ),
            Contender("limit", "benchmarks.analytics:limit_export", "the bytes alone, as they are", prepare=_HISTORY_5),
        ),
        repetitions=Sizes(1, 3, 3),
    ),
)

ANALYTICS_HOLDS: tuple[Hold, ...] = (
    AtLeast(Place("sql", "ours"), 0.3, Place("sql", "limit")),
    Under(Place("sql", "ours"), "peak_mb", 300),
    Under(Place("sql", "ours, attempts"), "peak_mb", 300),
    Under(Place("sql", "ours, sorted"), "peak_mb", 512),
    Under(Place("export", "ours"), "peak_mb", 300),
)
