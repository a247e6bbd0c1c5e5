"""Claims on the queued runs of a Postgres database, whose workers live on any machine: aged by the database's clock alone.

A claim is a row of a small table: a run is handed out without being written, and its next write removes the claim. Finding,
locking and claiming is one statement, one word with the server. The lock of a run's row, held for as long as that takes, keeps
claims and writes of one run apart; what another has locked is passed over, a user's transaction too.

To plan such a statement takes several times as long as to execute it. So its plan is kept; and lest it be one for a table that
happened to be small, all is ruled out but the indexes that were made for it.
"""
# ruff: noqa: S608  # table names are constants or checked by Tables.named, values are bound

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from jobevents.backends import sqlclaims
from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgressession import Row, Statement
from jobevents.backends.sql import Tables, instant
from jobevents.backends.sqlclaims import CLAIMS, HISTORY_LIMIT
from jobevents.backends.sqlpauses import PAUSES
from jobevents.desk import Claimed, Group
from jobevents.job import QUEUED

PLACE: Final = "place"  # column of runs: the order of first events, since these are written one after the other

DDL: Final = (
    f'CREATE TABLE "{CLAIMS}" (\n'
    '    "run_id" text COLLATE "C" PRIMARY KEY,\n'
    '    "token" text NOT NULL,\n'
    '    "claimed" timestamptz NOT NULL,\n'
    '    "until" timestamptz NOT NULL\n'
    ")"
)

SQL: Final = sqlclaims.ClaimStatements("%s")

OURS: Final = f'"status" = \'{QUEUED}\' AND NOT "external"'
# A claim made a second in the future is of before the server's clock was set back: it would last too long.
_ALIVE: Final = (
    f'"{CLAIMS}"."until" > clock_timestamp() AND "{CLAIMS}"."claimed" <= clock_timestamp() + interval \'1 second\''
)
_GROUP: Final = '"queue", "job_name", "priority"'
_FIRST: Final = f'"priority" DESC, "scheduled_at", "{PLACE}"'
# For one transaction. A claim that a crash of the server takes away is one that ended early: its commit waits for no disk.
_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "jit": "off",  # which what is ruled out would seem to be worth, by what it counts as
    "synchronous_commit": "off",
}
SET: Final[Statement] = (
    "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items()),
    (),
)
_LATER: Final = (
    f'UPDATE "{CLAIMS}" SET "token" = \'\', "until" = clock_timestamp() + make_interval(secs => %s) '
    'WHERE "run_id" = %s AND "token" = %s'
)
_IS_CLAIMED: Final = f'SELECT 1 FROM "{CLAIMS}" WHERE "run_id" = %s AND {_ALIVE}'


def schema_ddl(tables: Tables) -> list[str]:
    """Return what adds claims to the table of runs, whose rows are numbered for it in the order in which they lie there."""
    return [
        DDL,
        f'ALTER TABLE "{tables.runs}" ADD COLUMN "{PLACE}" bigint GENERATED ALWAYS AS IDENTITY',
        sqlclaims.index_ddl(tables, OURS, PLACE),
    ]


class PostgresClaims:
    """The table of claims; each call is one statement."""

    def __init__(
        self, database: PostgresDatabase, tables: Tables, announce: Callable[[], None], *, events: str
    ) -> None:
        """Use a database whose schema is there, with a table `events`; `announce` wakes who waits, in all processes."""
        self._database = database
        self._announce = announce
        self._runs = f'"{tables.runs}"'
        self._history = (
            f"SELECT array_agg(state ORDER BY originator_version) FROM (SELECT state, originator_version FROM {events} "
            f'WHERE originator_id = "found"."id" ORDER BY originator_version LIMIT {HISTORY_LIMIT + 1}) AS "first"'
        )
        self._is_ours = (
            f'{OURS} AND {self._runs}."queue" = "group"."queue" AND {self._runs}."job_name" = "group"."job_name" '
            f'AND {self._runs}."priority" = "group"."priority"'
        )
        self._is_free = f'NOT EXISTS (SELECT 1 FROM "{CLAIMS}" WHERE "run_id" = {self._runs}."id" AND {_ALIVE}'
        self.count = (
            f'SELECT (SELECT count(*) FROM {self._runs} WHERE {OURS}) - (SELECT count(*) FROM "{CLAIMS}" '
            f'JOIN {self._runs} ON "id" = "run_id" WHERE {OURS} AND {_ALIVE})'
        )

    def claim(
        self,
        queues: Sequence[str],
        *,
        limit: int,
        now: datetime,
        lease_s: float,
        token: str,
        full: Collection[Group] = (),
    ) -> Sequence[Claimed]:
        values = (limit, now, float(lease_s), token, *_names(full), *([list(queues)] if queues else ()))
        while True:
            found = self._planned(self.claim_due(some=bool(queues)), *values)
            claimed = [Claimed(job_id, _whole(history or ())) for is_ours, history, job_id in found if is_ours]
            if claimed or not found:  # else another claimed all that we found between our look and our lock: look again
                return claimed

    def claim_due(self, *, some: bool) -> str:
        """Return the statement that claims up to a number of runs, and finds no more in any group.

        Its values: the limit, now, the seconds of the lease, the token; which queues and kinds are full; with `some`, the queues.
        """
        return (
            f"WITH RECURSIVE {self._groups(5, '$7' if some else '')}, "
            f'"found" AS MATERIALIZED (SELECT "due".* FROM "group" CROSS JOIN LATERAL ('
            f'SELECT "id", "priority", "scheduled_at", "{PLACE}" FROM {self._runs} '
            f'WHERE {self._is_ours} AND "scheduled_at" <= $2::timestamptz '
            f'AND {self._is_free} AND "token" <> $4::text) '  # ours: claimed by this very call, whose reply was lost
            f'ORDER BY "scheduled_at", "{PLACE}" LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED) AS "due" '
            f"ORDER BY {_FIRST} LIMIT $1), "
            f'"claimed" AS (INSERT INTO "{CLAIMS}" SELECT "id", $4::text, clock_timestamp(), '
            'clock_timestamp() + make_interval(secs => $3) FROM "found" '
            'ON CONFLICT ("run_id") DO UPDATE SET "token" = excluded."token", "claimed" = excluded."claimed", '
            f'"until" = excluded."until" WHERE "{CLAIMS}"."token" = excluded."token" OR NOT ({_ALIVE}) '
            'RETURNING "run_id") '
            f'SELECT "run_id" IS NOT NULL, ({self._history}), "id" FROM "found" LEFT JOIN "claimed" ON "run_id" = "id" '
            f"ORDER BY {_FIRST}"
        )

    def first_due(self, *, some: bool) -> str:
        """Return the statement that finds when the earliest run is due: one look into each group."""
        return (
            f"WITH RECURSIVE {self._groups(1, '$3' if some else '')} "
            f'SELECT min("first"."scheduled_at") FROM "group" CROSS JOIN LATERAL (SELECT "scheduled_at" FROM {self._runs} '
            f'WHERE {self._is_ours} AND {self._is_free}) ORDER BY "scheduled_at" LIMIT 1) AS "first"'
        )

    def _groups(self, full: int, queues: str) -> str:
        """Return the tables that step from one group of runs that wait to the next, and that leave out what is paused or full.

        Args:
            full: the number of the statement's value that names the queues that are; the next one names the kinds.
            queues: the statement's value that names those to look into; "" for all.
        """
        ours = f"SELECT {_GROUP} FROM {self._runs} WHERE {OURS}"
        if queues:
            first = (
                f'SELECT "one".* FROM (SELECT DISTINCT unnest({queues}::text[])) AS "asked" ("name") CROSS JOIN LATERAL '
                f'({ours} AND "queue" = "asked"."name" ORDER BY "job_name", "priority" LIMIT 1) AS "one"'
            )
            step = (
                f'{ours} AND "queue" = "step"."queue" AND ("job_name", "priority") > ("step"."job_name", "step"."priority") '
                'ORDER BY "job_name", "priority" LIMIT 1'
            )
        else:
            first = f"({ours} ORDER BY {_GROUP} LIMIT 1)"
            step = (
                f'{ours} AND ({_GROUP}) > ("step"."queue", "step"."job_name", "step"."priority") '
                f"ORDER BY {_GROUP} LIMIT 1"
            )
        return (
            f'"step" AS ({first} UNION ALL SELECT "next".* FROM "step" CROSS JOIN LATERAL ({step}) AS "next"), '
            f'"group" AS (SELECT * FROM "step" WHERE NOT EXISTS (SELECT 1 FROM "{PAUSES}" '
            'WHERE ("kind", "name") IN ((\'queue\', "queue"), (\'job\', "job_name"))) '
            f'AND "queue" <> ALL (${full}::text[]) AND "job_name" <> ALL (${full + 1}::text[]))'
        )

    def release(self, job_id: str, token: str, *, delay_s: float) -> None:
        if delay_s > 0:
            self._database.query(_LATER, (float(delay_s), job_id, token))
        else:
            self._database.query(SQL.give_back, (job_id, token))
        self._announce()

    def is_claimed(self, job_id: str) -> bool:
        return bool(self._database.query(_IS_CLAIMED, (job_id,)))

    def next_due(self, queues: Sequence[str], full: Collection[Group] = ()) -> datetime | None:
        values = (*_names(full), *([list(queues)] if queues else ()))
        found: datetime | None = self._planned(self.first_due(some=bool(queues)), *values)[0][0]
        return instant(found)

    def _planned(self, statement: str, *values: object) -> list[Row]:
        return self._database.send([SET, (statement, values)])[1]

    def waiting(self) -> int:
        count: int = self._database.query(self.count)[0][0]
        return count


def _names(groups: Collection[Group]) -> tuple[list[str], list[str]]:
    """Return the names of queues, and those of kinds."""
    return [name for kind, name in groups if kind == "queue"], [name for kind, name in groups if kind == "job"]


def _whole(history: Sequence[bytes]) -> Sequence[bytes]:
    return history if len(history) <= HISTORY_LIMIT else ()
