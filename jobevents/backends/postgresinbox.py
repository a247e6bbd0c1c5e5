"""The inbox in a Postgres database."""
# ruff: noqa: S608  # the table's name is a constant, values are bound

from collections.abc import Sequence
from typing import Final

import psycopg

from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgreserrors import translate
from jobevents.backends.sqlinbox import INBOX, InboxStatements, ddl, run_by
from jobevents.desk import Parcel

DDL: Final = ddl(
    {
        "rising": "bigint GENERATED ALWAYS AS IDENTITY",
        "rises": "",
        "text": 'text COLLATE "C"',
        "bytes": "bytea",
    }
)
# Several who drain at once do not wait for each other here.
_DROP: Final = (
    f'DELETE FROM "{INBOX}" WHERE "place" IN '
    f'(SELECT "place" FROM "{INBOX}" WHERE "place" = ANY(%s) ORDER BY "place" FOR UPDATE SKIP LOCKED)'
)


class PostgresInbox:
    """The table of the inbox; its rows are written with a notification that the server sends when they are committed."""

    def __init__(self, database: PostgresDatabase, channels: Sequence[str]) -> None:
        """Use a database whose schema is there; `channels` are told of a commit."""
        self._database = database
        self._sql = InboxStatements("%s", database.target.schema)
        told = ", ".join(["pg_notify(%s, 'inbox')"] * len(channels))
        self._put = f"WITH put AS ({self._sql.put}) SELECT {told}"  # one word with the server
        self._channels = channels

    def put(self, connection: object, job_id: str, body: bytes) -> None:
        try:
            run_by(connection, psycopg.Connection, self._put, (job_id, body, *self._channels))
        except psycopg.Error as error:
            raise translate(error, self._database.target) from error

    def pending(self, limit: int) -> Sequence[Parcel]:
        return [Parcel(*row) for row in self._database.query(self._sql.pending, (limit,))]

    def drop(self, places: Sequence[int]) -> None:
        self._database.query(_DROP, (list(places),))

    def refuse(self, place: int, why: str) -> None:
        self._database.query(self._sql.refuse, (why.replace("\0", "\u2400"), place))
