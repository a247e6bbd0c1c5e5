"""The schema of the Postgres log: its DDL, its version, and the migration that runs only when asked to (behaviour T9)."""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from eventsourcing.utils import strtobool

from jobevents.backends import (
    postgresblobs,
    postgresclaims,
    postgresinbox,
    postgresleases,
    postgrespauses,
    sqlcensus,
    sqlerasures,
    sqlexternal,
)
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgressession import Session
from jobevents.backends.postgresurl import where
from jobevents.backends.sql import DEFAULT_TABLES, Tables, table_ddl
from jobevents.errors import Misconfigured

EVENTS: Final = "job_events"
TRACKING: Final = "job_tracking"
SCHEMA: Final = "job_schema"
EXTERNAL: Final = '"external"'

_TEXT = 'text COLLATE "C"'  # by byte order, as everywhere else
# json, not jsonb: that one refuses U+0000, and neither keeps the order of keys nor the spelling of numbers
_TYPES = {
    "text": _TEXT,
    "int": "bigint",
    "number": "double precision",
    "bool": "boolean",
    "time": "timestamptz",
    "json": "json",
}


def _first(tables: Tables) -> list[str]:
    return [
        f'CREATE TABLE "{EVENTS}" (\n'
        '    "notification_id" bigint GENERATED ALWAYS AS IDENTITY UNIQUE,\n'
        f'    "originator_id" {_TEXT} NOT NULL,\n'
        '    "originator_version" bigint NOT NULL,\n'
        f'    "topic" {_TEXT} NOT NULL,\n'
        '    "state" bytea NOT NULL,\n'
        '    PRIMARY KEY ("originator_id", "originator_version")\n'
        ")",
        f'CREATE TABLE "{TRACKING}" (\n'
        f'    "application_name" {_TEXT} PRIMARY KEY,\n'
        '    "notification_id" bigint NOT NULL\n'
        ")",
        *table_ddl(tables, _TYPES),
        postgresleases.DDL,
        postgresblobs.DDL,
    ]


def _with_claims(tables: Tables) -> list[str]:
    return [postgrespauses.DDL, *postgresclaims.schema_ddl(tables)]


def _with_inbox(_: Tables) -> list[str]:
    return [postgresinbox.DDL]


MIGRATIONS: Mapping[int, Callable[[Tables], list[str]]] = {
    1: _first,
    2: _with_claims,
    3: _with_inbox,
    4: sqlcensus.index_ddl,
    5: lambda tables: [sqlexternal.index_ddl(tables, EXTERNAL)],
    6: lambda _: [sqlerasures.ddl(_TYPES)],
}
"""Schema version -> the statements that lead to it from the one before."""

VERSION: Final = max(MIGRATIONS)
_RECORD = f'CREATE TABLE IF NOT EXISTS "{SCHEMA}" ("version" bigint PRIMARY KEY, "applied_at" timestamptz NOT NULL DEFAULT now())'
_FOUND = f'SELECT max("version") FROM "{SCHEMA}"'


def ddl(schema: str = "public", tables: Tables = DEFAULT_TABLES) -> str:
    """Return the whole schema as SQL, for those who apply it themselves; it records its version like `migrate`."""
    statements = ["BEGIN"]
    if schema != "public":
        statements.append(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    statements += [f'SET LOCAL search_path TO "{schema}"', _RECORD]
    for version, steps in MIGRATIONS.items():
        statements += steps(tables)
        statements.append(f'INSERT INTO "{SCHEMA}" ("version") VALUES ({version})')
    return ";\n\n".join([*statements, "COMMIT"]) + ";\n"


def lock_key(schema: str, what: str) -> int:
    """Return the key of an advisory lock, which is the database's: each schema has its own."""
    return (0x6A6F6273 << 32) | zlib.crc32(f"{schema}.{what}".encode())  # "jobs", then which of them


def migrate(database: PostgresDatabase, *, tables: Tables = DEFAULT_TABLES) -> list[int]:
    """Bring the schema up to date, itself made if missing; return the versions applied.

    One transaction: all steps or none. Of several at once, one applies them and the others find nothing left to do.

    Raises:
        Misconfigured: the schema is newer than this program, or the database is not in UTF-8.
        Unavailable, PermissionDenied: see `translate`; the database is as it was.
    """
    check_encoding(database)
    schema = database.target.schema

    def apply(connection: Session) -> list[int]:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(schema, "migrate"),))
            if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
                connection.execute(f'CREATE SCHEMA "{schema}"')
            if not connection.execute("SELECT to_regclass(%s)", (f'"{SCHEMA}"',)).fetchall()[0][0]:
                connection.execute(_RECORD)
            found = connection.execute(_FOUND).fetchall()[0][0] or 0
            if found > VERSION:
                raise _newer(database, found)
            missing = [version for version in MIGRATIONS if version > found]
            for version in missing:
                for statement in MIGRATIONS[version](tables):
                    connection.execute(statement)
                connection.execute(f'INSERT INTO "{SCHEMA}" ("version") VALUES (%s)', (version,))
        return missing

    return database.write(apply)


def check(database: PostgresDatabase, *, tables: Sequence[str] = DEFAULT_TABLES) -> None:
    """Refuse a database whose schema is not this program's; nothing is made or changed.

    Raises:
        Misconfigured: the schema is not there or older (run `jobevents migrate`), newer (upgrade), has other table names, or
            has the library's database functions on, which lose events to readers.
        Unavailable, PermissionDenied: see `translate`.
    """
    url = database.target.shown
    place = f"{where(database.target)} schema={database.target.schema}"
    there = {name for (name,) in database.query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}
    if SCHEMA not in there:
        raise Misconfigured(f"database has no tables of ours {place}: run `jobevents migrate --url {url}`")
    found = database.query(_FOUND)[0][0] or 0
    if found > VERSION:
        raise _newer(database, found)
    if found < VERSION:
        raise Misconfigured(
            f"database has an older schema {place} found={found} needed={VERSION}: run `jobevents migrate --url {url}`"
        )
    missing = [name for name in tables if name not in there]
    if missing:
        raise Misconfigured(
            f"database lacks a table {place} missing={', '.join(missing)}: give the table names that it was made with"
        )
    check_encoding(database)
    check_functions(database)


def check_encoding(database: PostgresDatabase) -> None:
    """Refuse a database that cannot hold every text.

    Raises:
        Misconfigured: its encoding is not UTF8.
    """
    encoding = database.query("SELECT current_setting('server_encoding')")[0][0]
    if encoding != "UTF8":
        raise Misconfigured(
            f"database is not in UTF-8 {where(database.target)} encoding={encoding}: make one with "
            "`createdb --encoding=UTF8 --template=template0`"
        )


def check_functions(database: PostgresDatabase) -> None:
    """Refuse eventsourcing's database functions: they insert without the lock that keeps ids in order of commit.

    Raises:
        Misconfigured: they are asked for by the environment, or there over our table.
    """
    if strtobool(os.environ.get("POSTGRES_ENABLE_DB_FUNCTIONS") or "no"):
        raise Misconfigured(
            "POSTGRES_ENABLE_DB_FUNCTIONS is on, and such functions lose events to readers: unset it for this process"
        )
    found = database.query(
        "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace "
        "AND proname LIKE %s AND prosrc LIKE %s",
        ("es\\_insert\\_events%", f"%{EVENTS}%"),
    )
    if found:
        raise Misconfigured(
            f"database has eventsourcing's functions over our table {where(database.target)} "
            f"function={database.target.schema}.{found[0][0]}: drop it, since such functions lose events to readers"
        )


def _newer(database: PostgresDatabase, found: int) -> Misconfigured:
    return Misconfigured(
        f"database has a newer schema {where(database.target)} schema={database.target.schema} found={found} "
        f"known={VERSION}: upgrade jobevents to use it"
    )
