"""The archive held against the log: every segment whole, and every event in it as the log has it."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Self

from jobevents.errors import Corrupt
from jobevents.log import Record
from projections.archive import Archive
from projections.checks import Checked
from projections.ledger import Ledger
from projections.proof import Flaw, Proof


class ArchiveCheck:
    """Every archived event, against the event in the log; holds 60 bytes or so an event on disk, to be used in a `with`."""

    is_view = False  # what is archived was final before: nothing of it may come later

    def __init__(self, archive: Archive) -> None:
        """Look at an archive."""
        self.checked = Checked("archive", "events")
        self._archive = archive
        self._flaws: list[Flaw] = []
        self._file = sqlite3.connect("", isolation_level=None)  # "": a file of SQLite's own, removed when it is closed
        self._file.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384;"
            "CREATE TABLE archived (job_id TEXT, version INTEGER, hash BLOB, PRIMARY KEY (job_id, version)) WITHOUT ROWID;"
            "BEGIN;"
        )

    def begin(self, ledger: Ledger) -> None:
        """Read every segment once; what is wrong with one is told in the end."""
        try:
            segments = self._archive.segments()
        except Corrupt as error:
            self._flaws.append(Flaw("archive", "unreadable", str(error)))
            return
        for segment in segments:
            try:
                records = self._archive.read(segment)
            except Corrupt as error:
                self._flaws.append(Flaw("archive", "unreadable", str(error)))
                continue
            put = "INSERT OR REPLACE INTO archived VALUES (?, ?, ?)"
            self._file.executemany(put, ((one.job_id, one.version, _hash(one)) for one in records))

    def examine(self, proofs: Sequence[Proof]) -> Iterator[Flaw]:
        """Hold what is archived of each job against its history."""
        for proof in proofs:
            stored = {one.version: _hash(one) for one in proof.records}
            select = "SELECT version, hash FROM archived WHERE job_id = ? ORDER BY version"
            for version, found in self._file.execute(select, (proof.job_id,)).fetchall():
                self.checked.looked_at += 1
                if version not in stored:
                    yield Flaw(
                        "archive", "stray", "it is archived, and the log does not have it", proof.job_id, version
                    )
                elif stored[version] != found:
                    yield Flaw(
                        "archive", "differs", "it is archived otherwise than the log has it", proof.job_id, version
                    )

    def finish(self, ledger: Ledger, *, whole: bool) -> Iterable[Flaw]:
        """Find archived jobs that the log does not know, and say which segments cannot be read."""
        yield from self._flaws
        if whole:
            for (job_id,) in self._file.execute("SELECT DISTINCT job_id FROM archived"):
                if not ledger.knows(job_id):
                    yield Flaw("archive", "stray", "it is archived, and the log does not know it", job_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _hash(record: Record) -> bytes:
    return blake2b(record.data, digest_size=16).digest()
