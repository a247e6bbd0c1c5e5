"""What was erased of a log in a Postgres database."""

from collections.abc import Iterator
from datetime import datetime

from jobevents.backends import sqlerasures
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgresruns import MARK
from jobevents.backends.postgresschema import EVENTS
from jobevents.backends.postgressession import Session
from jobevents.backends.sql import Tables, time_text
from jobevents.codec import deleted_before
from jobevents.erasure import Erased

PAGE = 500  # tombstones in one read
_LEFT = (
    "Postgres keeps the bytes of deleted rows in the tables' files until VACUUM FULL of job_events, job_runs, job_run_logs and "
    "job_blobs, and in its write-ahead log, replicas and backups until those are let go"
)


class PostgresErasures:
    """An Eraser over a Postgres database; each erasure is one transaction."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        """Use a database whose schema is there."""
        self._database = database
        self._sql = sqlerasures.ErasureStatements(tables, EVENTS, MARK)

    def get(self, job_id: str) -> int:
        """Return the version below which all was erased; 0 for none."""
        rows = self._database.query(self._sql.get, (job_id,))
        return int(rows[0][0]) if rows else 0

    def record(self, job_id: str) -> Erased | None:
        """Return what is kept of an erasure."""
        return sqlerasures.erased_from(self._database.query(self._sql.record, (job_id,)))

    def erase(self, erased: Erased) -> int:
        """Delete the events below the tombstone and what else the tables have; see `Eraser.erase`."""

        def work(connection: Session) -> int:
            with connection.transaction():
                connection.execute(self._sql.keep, sqlerasures.row_of(erased, time_text))
                count = connection.execute(self._sql.events, (erased.job_id, erased.version)).rowcount
                for statement in self._sql.others:
                    connection.execute(statement, (erased.job_id,))
                return count

        return self._database.write(work)

    def wait_s(self, job_id: str) -> float:
        """Return 0: at once."""
        return 0.0

    def unfinished(self) -> Iterator[str]:
        """Yield nothing: an erasure is one transaction."""
        return iter(())

    def deleted(self, before: datetime) -> Iterator[str]:
        """Yield the deleted jobs, a page of tombstones at a time; see `Eraser.deleted`."""
        place = 0
        while rows := self._database.query(self._sql.tombstones, (place, PAGE)):
            place = rows[-1][0]
            yield from deleted_before((bytes(row[1]) for row in rows), before, self.get)

    def scrub(self) -> list[str]:
        """Say what is left to whoever runs the database: that takes its owner, and locks its tables."""
        return [_LEFT]
