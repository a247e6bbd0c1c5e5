"""How far each job is in something, on disk, so that memory does not grow with history."""

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Self


class Heights:
    """The highest version seen of each job: a private SQLite file that is gone when it is closed. For one thread."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # "": a file of SQLite's own, removed when it is closed
        self._file.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384;"
            "CREATE TABLE heights (job_id TEXT PRIMARY KEY, version INTEGER) WITHOUT ROWID; BEGIN;"
        )

    def add(self, found: Mapping[str, int]) -> None:
        """Enter jobs and versions; the highest version counts."""
        put = "INSERT INTO heights VALUES (?, ?) ON CONFLICT (job_id) DO UPDATE SET version = max(version, excluded.version)"
        self._file.executemany(put, found.items())

    def version(self, job_id: str) -> int:
        """Return how far a job is; 0: it is not there."""
        found = self._file.execute("SELECT version FROM heights WHERE job_id = ?", (job_id,)).fetchone()
        return found[0] if found else 0

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield every job and its version, by id."""
        yield from self._file.execute("SELECT job_id, version FROM heights ORDER BY job_id")

    def any(self) -> bool:
        """Tell whether a job was entered."""
        return self._file.execute("SELECT 1 FROM heights LIMIT 1").fetchone() is not None

    def close(self) -> None:
        """Remove it; any number of times."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
