"""Blobs in a table of a Postgres database."""
# ruff: noqa: S608  # the table's name is a constant, values are bound

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from jobevents import errors
from jobevents.backends.postgresdb import BEGIN, COMMIT, PostgresDatabase
from jobevents.backends.postgressession import Row, Session, Statement
from jobevents.blobs import (
    ABSENT,
    Blob,
    BlobEntry,
    by_directory,
    check_generation,
    check_metadata,
    check_name,
    check_prefix,
)

BLOBS: Final = "job_blobs"

DDL: Final = (
    f'CREATE TABLE "{BLOBS}" (\n'
    '    "name" text COLLATE "C" PRIMARY KEY,\n'
    '    "generation" text NOT NULL,\n'
    '    "data" bytea NOT NULL,\n'
    '    "content_type" text NOT NULL,\n'
    '    "cache_control" text NOT NULL,\n'
    '    "metadata" json NOT NULL,\n'
    '    "stored_at" timestamptz NOT NULL\n'
    ")"
)

_PAGE_SIZE = 500
_COLUMNS = "(name, generation, data, content_type, cache_control, metadata, stored_at)"
_VALUES = "(%s, %s, %s, %s, %s, %s, clock_timestamp())"
_CREATE = f"INSERT INTO {BLOBS} {_COLUMNS} VALUES {_VALUES} ON CONFLICT (name) DO NOTHING RETURNING generation"
_PUT = (
    f"INSERT INTO {BLOBS} {_COLUMNS} VALUES {_VALUES} ON CONFLICT (name) DO UPDATE SET {_COLUMNS} = "
    "(excluded.name, excluded.generation, excluded.data, excluded.content_type, excluded.cache_control, "
    "excluded.metadata, excluded.stored_at) RETURNING generation"
)
_REPLACE = f"UPDATE {BLOBS} SET {_COLUMNS} = {_VALUES} WHERE name = %s AND generation = %s RETURNING generation"
_GENERATION = f"SELECT generation FROM {BLOBS} WHERE name = %s"
_DELETE = f"DELETE FROM {BLOBS} WHERE name = %s RETURNING 1"
_DELETE_IF = f"DELETE FROM {BLOBS} WHERE name = %s AND generation = %s RETURNING 1"
_OURS = f"SELECT name, generation FROM {BLOBS} WHERE name = ANY(%s)"


class PostgresBlobs:
    """Blobs as rows of one table, each write one statement; safe between threads, processes and forks.

    A generation is a text that the writer makes up, so that a write whose reply was lost is known when it is met again.
    """

    min_write_interval_s = 0.0

    def __init__(self, database: PostgresDatabase) -> None:
        """Use a database whose schema is there; closing the blobs closes it."""
        self._database = database

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        check_name(name)
        query = f"SELECT data, generation, metadata, stored_at FROM {BLOBS} WHERE name = %s"
        if if_changed is not None:  # the data of what has not changed stays there
            query = query.replace("data,", "CASE WHEN generation <> %s THEN data END,", 1)
        rows = self._database.query(query, (name,) if if_changed is None else (if_changed, name))
        if not rows:
            raise errors.NotFound(f"no such blob name={name!r}")
        data, generation, metadata, stored_at = rows[0]
        if data is None:
            return None
        return Blob(data, generation, msgspec.json.decode(metadata, type=dict[str, str]), stored_at)

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        row = self._row(name, data, content_type, cache_control, metadata)
        statement, values = (_PUT, row) if if_generation is None else self._conditional(row, if_generation)
        mine: str = row[1]
        while not self._database.query(statement, values):
            there = self._generation(name)
            if there == mine:  # the reply of an earlier try was lost
                break
            check_generation(name, if_generation, there)
        return mine

    def put_many(
        self,
        puts: Iterable[tuple[str, bytes, str, Mapping[str, str]]],
        *,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
    ) -> list[str | None]:
        """Put each (name, data, if_generation, metadata) in one transaction.

        Returns the generations, None where another was stored than `if_generation`: that one was not written.

        Raises: as `put`, but for Conflict; nothing was written.
        """
        rows = [(self._row(put[0], put[1], content_type, cache_control, put[3]), put[2]) for put in puts]
        in_order = sorted(
            rows, key=lambda one: str(one[0][0])
        )  # two such writers never wait for each other in a circle
        puts_and_found = [*(self._conditional(*one) for one in in_order), (_OURS, ([row[0] for row, _ in rows],))]

        def put_all(connection: Session) -> dict[str, str]:
            *_, found, _ = connection.send([BEGIN, *puts_and_found, COMMIT])
            return dict(found)

        stored = self._database.write(put_all) if rows else {}
        return [row[1] if stored.get(row[0]) == row[1] else None for row, _ in rows]

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        check_name(name)
        if if_generation is None:
            return bool(self._database.query(_DELETE, (name,)))
        if self._database.query(_DELETE_IF, (name, if_generation)):
            return True
        there = self._generation(name)
        if there is not None:
            check_generation(name, if_generation, there)
        return False

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        check_prefix(prefix, start)
        return by_directory(self._entries(prefix, start), prefix, delimiter)

    def close(self) -> None:
        self._database.close()

    def _row(
        self, name: str, data: bytes, content_type: str, cache_control: str, metadata: Mapping[str, str] | None
    ) -> Row:
        check_name(name)
        kept = msgspec.json.encode(check_metadata(name, metadata)).decode()
        return name, os.urandom(12).hex(), bytes(data), content_type, cache_control, kept

    @staticmethod
    def _conditional(row: Row, if_generation: str) -> Statement:
        return (_CREATE, row) if if_generation == ABSENT else (_REPLACE, (*row, row[0], if_generation))

    def _generation(self, name: str) -> str | None:
        rows = self._database.query(_GENERATION, (name,))
        return rows[0][0] if rows else None

    def _entries(self, prefix: str, start: str) -> Iterator[BlobEntry]:
        """Read pages of the name index, which is in UTF-8 byte order; no transaction stays open between them."""
        query = f"SELECT name, generation, length(data) FROM {BLOBS} WHERE name {{}} %s ORDER BY name LIMIT %s"
        after, comparison = max(prefix, start, key=str.encode), ">="
        while True:
            rows = self._database.query(query.format(comparison), (after, _PAGE_SIZE))
            for name, generation, size_bytes in rows:
                if not name.startswith(prefix):
                    return
                yield BlobEntry(name, generation, size_bytes)
            if len(rows) < _PAGE_SIZE:
                return
            after, comparison = rows[-1][0], ">"
