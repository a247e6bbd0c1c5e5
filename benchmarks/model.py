"""What is measured: rows of contenders, and the ratios between them that must hold. Plain data, standard library only."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.tally import Verdict

Scale = Literal["tiny", "small", "full"]
Unit = Literal["s", "bytes", "cores", "calls", "$"]  # a time, a size, how much of a core is taken, how many, a price
SCALES: tuple[Scale, ...] = ("tiny", "small", "full")  # tiny only shows that every row runs


class Done(NamedTuple):
    """What a timed work did, where a number does not say all."""

    amount: float  # operations, or in a row of sizes the size
    figure: float | None = None  # what it measured itself, instead of its time by the amount
    cpu_s: float = 0.0  # of processes that go on
    settle: Callable[[], Verdict] | None = None  # called afterwards, untimed: what became of its jobs


Work: TypeAlias = Callable[[], float | Done]
"""What is timed; it returns the number of operations that it did, or in a row of sizes the size."""

Repeat: TypeAlias = Callable[[], Work]
"""Gets one repetition ready, untimed, and returns what is timed."""


class Setting(NamedTuple):
    """What a contender is given."""

    size: int  # how much, in the unit that its row names
    own: Path  # an empty directory
    prepared: Path  # the directory that its `prepare` filled
    told: Mapping[str, str | int] = {}  # what the contender's row tells it besides
    url: str = ""  # of an empty Postgres database, or where an empty bucket is as JSON, if the row is about one


class Sizes(NamedTuple):
    """A size for each scale."""

    tiny: int
    small: int
    full: int


class Contender(NamedTuple):
    """One way to do what a row is about, measured in a process of its own."""

    name: str  # within its row: `ours`, `limit`, `peer`, or one of these and how it differs
    target: str  # "module:function", a context manager: Setting -> Repeat
    what: str  # what it does, for people
    sizes: Sizes | None = None  # its row's, if not given
    prepare: str = ""  # "module:function": Setting -> None; fills `prepared`, once a run and size
    needs: str = ""  # a distribution that the project does not depend on: measured in an environment of its own
    told: Mapping[str, str | int] = {}  # what its target is told besides


class Row(NamedTuple):
    """Contenders that do the same, measured in turns."""

    name: str  # short; never changed, since `--compare` finds rows by it
    what: str  # one operation
    size: str  # of what and how many: "{size}" is put in
    durability: str  # what has been promised when an operation returns
    why: str  # what a user feels of it
    sizes: Sizes
    contenders: tuple[Contender, ...]
    unit: Unit = "s"
    repetitions: Sizes = Sizes(tiny=1, small=5, full=11)  # of each contender, in turns
    server: Literal["", "postgres", "cloud"] = ""  # what its contenders need


class Place(NamedTuple):
    """A contender of a row."""

    row: str
    contender: str

    def __str__(self) -> str:
        """Return it as it is written: `row/contender`."""
        return f"{self.row}/{self.contender}"


class AtLeast(NamedTuple):
    """A contender must be at least `times` as fast as another."""

    fast: Place
    times: float
    than: Place
    by: Literal["pairs", "fastest", "median", "p99"] = "pairs"  # the middle of neighbouring pairs; else each one's own


class Under(NamedTuple):
    """A contender must stay under a bound."""

    place: Place
    what: Literal[
        "seconds", "median", "most", "peak_mb"
    ]  # the fastest repetition, since noise only adds; the middle, the greatest figure; the process's peak memory
    bound: float


Hold: TypeAlias = AtLeast | Under


class Reading(NamedTuple):
    """One repetition, as it was measured."""

    figure: float  # in the row's unit
    cpu_s: float  # an operation, all threads and child processes


class Result(NamedTuple):
    """What came of a contender."""

    contender: Contender
    size: int
    readings: tuple[Reading, ...] = ()
    peak_mb: float = 0.0  # most memory its process ever held
    error: str = ""  # why there are no more readings
    is_missing: bool = False  # it is a peer that is not installed
    verdict: Verdict | None = None  # in a row of jobs: what became of them in all repetitions
