"""What was erased of a log in a SQL database: its table and statements, in the dialect that SQLite and Postgres share."""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from jobevents.backends.sql import Kind, Row, Tables, instant
from jobevents.backends.sqlclaims import CLAIMS
from jobevents.backends.sqlinbox import INBOX
from jobevents.codec import TOMBSTONE
from jobevents.erasure import Erased
from jobevents.store import NEVER

ERASURES: Final = "job_erasures"


def ddl(types: Mapping[Kind, str]) -> str:
    """Return what creates the table, given a column type for each kind."""
    return (
        f'CREATE TABLE "{ERASURES}" (\n'
        f'    "job_id" {types["text"]} PRIMARY KEY,\n'
        f'    "version" {types["int"]} NOT NULL,\n'
        f'    "chain" {types["text"]} NOT NULL,\n'
        f'    "at" {types["time"]} NOT NULL,\n'
        f'    "actor" {types["text"]} NOT NULL,\n'
        f'    "reason" {types["text"]} NOT NULL\n'
        ")"
    )


class ErasureStatements:
    """The statements; `mark` is what the driver puts a parameter in place of."""

    def __init__(self, tables: Tables, events: str, mark: str = "?") -> None:
        """Write them down; `events` is the table of events."""
        runs, logs = (f'"{name}"' for name in tables)
        marks = ", ".join([mark] * 6)
        self.get = f'SELECT "version" FROM "{ERASURES}" WHERE "job_id" = {mark}'
        self.record = (
            f'SELECT "job_id", "version", "chain", "at", "actor", "reason" FROM "{ERASURES}" WHERE "job_id" = {mark}'
        )
        self.keep = f'INSERT INTO "{ERASURES}" VALUES ({marks}) ON CONFLICT ("job_id") DO NOTHING'
        self.events = f'DELETE FROM "{events}" WHERE "originator_id" = {mark} AND "originator_version" < {mark}'
        self.tombstones = (
            f'SELECT "notification_id", "state" FROM "{events}" WHERE "notification_id" > {mark} AND "topic" = \'{TOMBSTONE}\' '
            f'ORDER BY "notification_id" LIMIT {mark}'
        )
        self.others = (  # beside the tombstone's own doing, which these repeat
            f'DELETE FROM {runs} WHERE "id" = {mark}',
            f'DELETE FROM {logs} WHERE "run_id" = {mark}',
            f'DELETE FROM "{CLAIMS}" WHERE "run_id" = {mark}',
            f'DELETE FROM "{INBOX}" WHERE "job_id" = {mark}',
        )


def row_of(erased: Erased, time: Any) -> tuple[Any, ...]:  # Any: what the driver takes for a time
    """Return the row of an erasure."""
    return erased.job_id, erased.version, erased.chain, time(erased.at), erased.actor, erased.reason


def erased_from(rows: Sequence[Row]) -> Erased | None:
    """Return the erasure of a row; None when there is none."""
    if not rows:
        return None
    job_id, version, chain, at, actor, reason = rows[0]
    when: datetime = instant(at) or NEVER
    return Erased(job_id, version, chain, when, actor, reason)
