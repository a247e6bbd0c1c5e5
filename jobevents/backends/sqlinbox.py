"""The inbox in a SQL database: its table and statements, and the connections of callers by which it is written.

A caller's connection is one of the driver, of SQLAlchemy (a Connection or a Session) or of Django.
"""
# ruff: noqa: S608  # the table's name is a constant, values are bound

from collections.abc import Mapping
from typing import Any, Final

from jobevents.backends.sql import Kind
from jobevents.errors import Misconfigured

INBOX: Final = "job_inbox"


def ddl(types: Mapping[Kind, str]) -> str:
    """Return what creates the table, given the types of a rising number, of text and of bytes."""
    return (
        f'CREATE TABLE "{INBOX}" (\n'
        f'    "place" {types["rising"]} PRIMARY KEY{types["rises"]},\n'
        f'    "job_id" {types["text"]} NOT NULL,\n'
        f'    "event" {types["bytes"]} NOT NULL,\n'
        f'    "refused" {types["text"]}\n'
        ")"
    )


class InboxStatements:
    """The statements over the table."""

    def __init__(self, mark: str = "?", schema: str = "") -> None:
        """Write them down; `mark` is what the driver puts a parameter in place of, `schema` where the table is."""
        table = f'"{schema}"."{INBOX}"' if schema else f'"{INBOX}"'
        self.put = f'INSERT INTO {table} ("job_id", "event") VALUES ({mark}, {mark})'
        self.pending = (
            f'SELECT "place", "job_id", "event" FROM {table} WHERE "refused" IS NULL ORDER BY "place" LIMIT {mark}'
        )
        self.drop = f'DELETE FROM {table} WHERE "place" = {mark}'
        self.refuse = f'UPDATE {table} SET "refused" = {mark} WHERE "place" = {mark} AND "refused" IS NULL'


def run_by(connection: Any, driver: type[Any], statement: str, values: tuple[object, ...]) -> None:
    """Run a statement in the transaction of a caller's connection (Any: of any of these libraries, none of them imported).

    SQLAlchemy is asked to run it itself: it commits no transaction that it did not see begin.

    Raises:
        Misconfigured: it is no such connection, or one of another driver.
    """
    found = connection
    if not isinstance(found, driver) and callable(getattr(found, "connection", None)):  # a Session
        found = found.connection()
    if hasattr(found, "exec_driver_sql"):
        if isinstance(found.connection.driver_connection, driver):
            found.exec_driver_sql(statement, values)
            return
    elif hasattr(found, "ensure_connection"):  # Django
        found.ensure_connection()
        found = found.connection
    if not isinstance(found, driver):
        raise Misconfigured(
            f"connection is none that this log can use type={type(connection).__module__}.{type(connection).__qualname__}: "
            f"give a {driver.__module__}.{driver.__qualname__}, or one of SQLAlchemy or Django over it"
        )
    found.execute(statement, values)
