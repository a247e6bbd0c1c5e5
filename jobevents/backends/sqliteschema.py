"""The schema of the SQLite log: its DDL, its version, and the migration that runs only when asked to (behaviour T9)."""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

import sqlite3
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobevents.backends import (
    sqlcensus,
    sqlerasures,
    sqlexternal,
    sqliteclaims,
    sqliteinbox,
    sqliteleases,
    sqlitepauses,
)
from jobevents.backends.sql import DEFAULT_TABLES, Tables, table_ddl, time_text
from jobevents.backends.sqliteerrors import BUSY, migrate_command, primary_code, translate
from jobevents.backends.sqlitefile import LOCK_TIMEOUT_S, SqliteFile, connect, make_private, real_path
from jobevents.diskfaults import EMPTY
from jobevents.errors import Misconfigured

EVENTS: Final = "job_events"
TRACKING: Final = "job_tracking"
SCHEMA: Final = "job_schema"
EXTERNAL: Final = '"external" = 1'

_TYPES = {"text": "TEXT", "int": "INTEGER", "number": "NUMERIC", "bool": "INTEGER", "time": "TEXT", "json": "TEXT"}


def _first(tables: Tables) -> list[str]:
    return [
        # AUTOINCREMENT: no id is given out twice, not even that of a deleted row, so that no reader passes over an event.
        f'CREATE TABLE "{EVENTS}" (\n'
        '    "notification_id" INTEGER PRIMARY KEY AUTOINCREMENT,\n'
        '    "originator_id" TEXT NOT NULL,\n'
        '    "originator_version" INTEGER NOT NULL,\n'
        '    "topic" TEXT NOT NULL,\n'
        '    "state" BLOB NOT NULL,\n'
        '    UNIQUE ("originator_id", "originator_version")\n'
        ")",
        f'CREATE TABLE "{TRACKING}" (\n'
        '    "application_name" TEXT PRIMARY KEY,\n'
        '    "notification_id" INTEGER NOT NULL\n'
        ") WITHOUT ROWID",
        *table_ddl(tables, _TYPES, without={"deadline"}),
    ]


def _with_leases(tables: Tables) -> list[str]:
    return [sqliteleases.DDL, f'ALTER TABLE "{tables.runs}" ADD COLUMN "deadline" TEXT']


def _with_claims(tables: Tables) -> list[str]:
    return [sqliteclaims.DDL, sqlitepauses.DDL, sqliteclaims.index_ddl(tables)]


def _with_inbox(_: Tables) -> list[str]:
    return [sqliteinbox.DDL]


MIGRATIONS: Mapping[int, Callable[[Tables], list[str]]] = {
    1: _first,
    2: _with_leases,
    3: _with_claims,
    4: _with_inbox,
    5: sqlcensus.index_ddl,
    6: lambda tables: [sqlexternal.index_ddl(tables, EXTERNAL)],
    7: lambda _: [sqlerasures.ddl(_TYPES)],
}
"""Schema version -> the statements that lead to it from the one before."""

VERSION: Final = max(MIGRATIONS)
_RECORD = f'CREATE TABLE IF NOT EXISTS "{SCHEMA}" ("version" INTEGER PRIMARY KEY, "applied_at" TEXT NOT NULL)'


def ddl(tables: Tables = DEFAULT_TABLES) -> str:
    """Return the whole schema as SQL, for those who apply it themselves; it records its version like `migrate`."""
    statements = [_RECORD]
    for version, steps in MIGRATIONS.items():
        statements += steps(tables)
        statements.append(f"INSERT INTO \"{SCHEMA}\" VALUES ({version}, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))")
    return ";\n\n".join(["PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE", *statements, "COMMIT"]) + ";\n"


def migrate(
    path: Path | str,
    *,
    tables: Tables = DEFAULT_TABLES,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> list[int]:
    """Bring a file's schema up to date, the file and its directory made if missing; return the versions applied.

    One transaction: all steps or none. Of several at once, one applies them and the others find nothing left to do.

    Raises:
        Misconfigured: the file's schema is newer than this program.
        Unavailable, PermissionDenied, Corrupt: see `translate`; the file is as it was.
    """
    file = real_path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        make_private(file)
        connection = connect(file, "rwc", lock_timeout_s=lock_timeout_s)
        try:
            use_write_ahead_log(connection, lock_timeout_s)
            return _apply(connection, file, tables)
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise translate(error, file) from error


def _apply(connection: sqlite3.Connection, path: Path, tables: Tables) -> list[int]:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_RECORD)
    found = connection.execute(f'SELECT max("version") FROM "{SCHEMA}"').fetchone()[0] or 0
    if found > VERSION:
        connection.rollback()
        raise _newer(path, found)
    missing = [version for version in MIGRATIONS if version > found]
    for version in missing:
        for statement in MIGRATIONS[version](tables):
            connection.execute(statement)
        connection.execute(f'INSERT INTO "{SCHEMA}" VALUES (?, ?)', (version, time_text(datetime.now(UTC))))
    connection.execute("COMMIT")
    return missing


def use_write_ahead_log(connection: sqlite3.Connection, lock_timeout_s: float) -> None:
    """Switch the file to WAL, for good. SQLite does not wait for others that do the same to a new file, so we do."""
    deadline = time.monotonic() + lock_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def prepare(file: SqliteFile, *, tables: Tables, create: bool) -> None:
    """Make the schema in a file that is missing or holds nothing, and refuse one whose schema is not this program's.

    Raises:
        Misconfigured: the schema is older (run `jobevents migrate`), newer (upgrade), or has other table names.
        Unavailable, PermissionDenied, Corrupt: see `translate`; the file is as it was.
    """
    path = file.path
    if _is_blank(file):
        if not create:
            if path.exists():
                raise EMPTY.error(path, "no tables")
            raise Misconfigured(
                f"there is no database path={path}: is the path right? make one with `{migrate_command(path)}`"
            )
        migrate(path, tables=tables, lock_timeout_s=file.lock_timeout_s)
    found = recorded_version(file)
    if found > VERSION:
        raise _newer(path, found)
    if found < VERSION:
        raise Misconfigured(
            f"database has an older schema path={path} found={found} needed={VERSION}: run `{migrate_command(path)}`"
        )
    _check_tables(file, tables)


def recorded_version(file: SqliteFile) -> int:
    """Return the version of the file's schema, 0 when it has none of ours."""
    if not file.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (SCHEMA,)):
        return 0
    return file.query(f'SELECT max("version") FROM "{SCHEMA}"')[0][0] or 0


def _is_blank(file: SqliteFile) -> bool:
    try:
        if not file.path.stat().st_size:
            return True
    except FileNotFoundError:
        return True
    except OSError as error:
        raise translate(error, file.path) from error
    return not file.query("SELECT 1 FROM sqlite_master LIMIT 1")


def _check_tables(file: SqliteFile, tables: Tables) -> None:
    there = {name for (name,) in file.query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    missing = [name for name in tables if name not in there]
    if missing:
        raise Misconfigured(
            f"database lacks a table path={file.path} missing={', '.join(missing)}: "
            "give the table names that it was made with"
        )


def _newer(path: Path, found: int) -> Misconfigured:
    return Misconfigured(
        f"database has a newer schema path={path} found={found} known={VERSION}: upgrade jobevents to use this file"
    )
