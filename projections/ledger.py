"""The ledger of a proof: what has to be known of all jobs at once, on disk, so that memory does not grow with history.

A private SQLite file that its own process alone sees and that is gone when it is closed: about 60 bytes an event and a job.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from jobevents.events import Event

CACHE_KIB = 32_768  # memory for its pages, and for sorting

UNKNOWN = "?"  # in place of a letter: the job cannot be folded
ABSENT = "-"  # in place of a letter: deleted, or not there yet

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE jobs (id TEXT PRIMARY KEY, letters TEXT) WITHOUT ROWID;
CREATE TABLE events (id TEXT, job_id TEXT, version INTEGER);
CREATE TABLE entries (sequence TEXT, id TEXT, letter TEXT);
"""


class Line(NamedTuple):
    """A job in the ledger."""

    job_id: str
    letters: str = ABSENT  # any of which the index may have for it


class Entry(NamedTuple):
    """A place in the index."""

    sequence: str
    job_id: str
    letter: str  # of the state that it says


class Repeated(NamedTuple):
    """An event id that is there more than once."""

    event_id: str
    places: list[tuple[str, int]]  # job and version


class Ledger:
    """What was seen of each job, event and place in the index. Use it as a context manager; for one thread."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # "": a file of SQLite's own, removed when it is closed
        self._file.executescript(f"PRAGMA cache_size = -{CACHE_KIB};{_SCHEMA}BEGIN;")

    def add_jobs(self, lines: Iterable[Line]) -> None:
        """Enter jobs, each once."""
        self._file.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?)", lines)

    def add_events(self, events: Iterable[Event]) -> None:
        """Enter events."""
        self._file.executemany("INSERT INTO events VALUES (?, ?, ?)", ((e.id, e.job_id, e.version) for e in events))

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Enter places in the index."""
        self._file.executemany("INSERT INTO entries VALUES (?, ?, ?)", entries)

    def forget_entries(self) -> None:
        """Take out all places in the index."""
        self._file.execute("DELETE FROM entries")

    def knows(self, job_id: str) -> bool:
        """Tell whether a job was entered."""
        return self._file.execute("SELECT 1 FROM jobs WHERE id = ?", (job_id,)).fetchone() is not None

    def repeated(self) -> Iterator[Repeated]:
        """Yield the event ids that were entered more than once."""
        twice = "SELECT id FROM events GROUP BY id HAVING count(*) > 1"
        for (event_id,) in self._file.execute(twice).fetchall():
            found = self._file.execute("SELECT job_id, version FROM events WHERE id = ? ORDER BY 1, 2", (event_id,))
            yield Repeated(event_id, found.fetchall())

    def not_indexed(self, sequence: str) -> Iterator[tuple[str, str]]:
        """Yield (job, letters) of those that should be in a sequence of the index and are not."""
        yield from self._file.execute(
            "SELECT id, letters FROM jobs WHERE instr(letters, ?) = 0 AND instr(letters, ?) = 0 "
            "AND id NOT IN (SELECT id FROM entries WHERE sequence = ?)",
            (ABSENT, UNKNOWN, sequence),
        )

    def wrongly_indexed(self, sequence: str, *, whole: bool) -> Iterator[tuple[str, str, str]]:
        """Yield (job, letter it says, letters it may say) of entries; ABSENT for a job that should not be there.

        Args:
            whole: all jobs were entered, so that one that is not known should not be there.
        """
        join = "LEFT JOIN" if whole else "JOIN"
        yield from self._file.execute(
            f"SELECT entries.id, entries.letter, coalesce(letters, :absent) FROM entries {join} jobs USING (id) "  # noqa: S608  # constants
            "WHERE sequence = :sequence AND instr(coalesce(letters, :absent), entries.letter) = 0 "
            "AND instr(coalesce(letters, ''), :unknown) = 0",
            {"absent": ABSENT, "sequence": sequence, "unknown": UNKNOWN},
        )

    def entries_apart(self, left: str, right: str) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield (job, letter in one sequence, letter in the other) where they are not the same; None: it is not there."""
        yield from self._file.execute(
            "SELECT id, max(CASE WHEN sequence = ? THEN letter END) AS one, max(CASE WHEN sequence = ? THEN letter END) "
            "AS other FROM entries GROUP BY id HAVING one IS NOT other ORDER BY id",
            (left, right),
        )

    def listed_apart(self, sequence: str) -> Iterator[tuple[str, str]]:
        """Yield (job, letter) that stand in a sequence and not in that of their state, or the other way round, or twice."""
        yield from self._file.execute(
            "SELECT id, letter FROM entries GROUP BY id, letter "
            "HAVING sum(sequence = ?) <> 1 OR sum(sequence <> ?) <> 1",
            (sequence, sequence),
        )

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
