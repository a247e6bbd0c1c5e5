"""Worker leases in a Postgres database, whose workers live on any machine: aged by the database's clock alone."""
# ruff: noqa: S608  # the table's name is a constant, values are bound

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from jobevents.backends.postgresdb import PostgresDatabase
from jobevents.backends.postgressession import Row
from jobevents.workers import Lease, Sighting

WORKERS: Final = "job_workers"

DDL: Final = (
    f'CREATE TABLE "{WORKERS}" (\n'
    '    "worker" text COLLATE "C" PRIMARY KEY,\n'
    '    "host" text NOT NULL,\n'
    '    "pid" bigint NOT NULL,\n'
    '    "started_at" timestamptz NOT NULL,\n'
    '    "version" text NOT NULL,\n'
    '    "lease_s" double precision NOT NULL,\n'
    '    "renewed" timestamptz NOT NULL\n'
    ")"
)

_TOLD = "worker, host, pid, started_at, version, lease_s"
_AGE = "greatest(0, extract(epoch FROM clock_timestamp() - renewed))::double precision"
_RENEW = (
    f"INSERT INTO {WORKERS} ({_TOLD}, renewed) VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp()) "
    "ON CONFLICT (worker) DO UPDATE SET host = excluded.host, pid = excluded.pid, started_at = excluded.started_at, "
    "version = excluded.version, lease_s = excluded.lease_s, renewed = excluded.renewed"
)
_ALL = f"SELECT {_TOLD}, {_AGE} FROM {WORKERS} ORDER BY worker"
_SOME = f"SELECT {_TOLD}, {_AGE} FROM {WORKERS} WHERE worker = ANY(%s)"
_DROP = f"DELETE FROM {WORKERS} WHERE worker = %s RETURNING 1"
_DROP_DEAD = f"DELETE FROM {WORKERS} WHERE worker = %s AND {_AGE} >= lease_s RETURNING 1"


class PostgresLeases:
    """The table of leases; each call is one statement."""

    def __init__(self, database: PostgresDatabase) -> None:
        """Use a database whose schema is there."""
        self._database = database

    def renew(self, lease: Lease) -> None:
        told = (lease.worker, lease.host, lease.pid, lease.started_at, lease.version, lease.lease_s)
        self._database.query(_RENEW, told)

    def look(self, workers: Collection[str]) -> Mapping[str, Sighting]:
        if not workers:
            return {}
        return {one.lease.worker: one for one in map(_sighting, self._database.query(_SOME, (sorted(workers),)))}

    def list(self) -> Sequence[Sighting]:
        return [_sighting(row) for row in self._database.query(_ALL)]

    def drop(self, worker: str, *, if_dead: bool = False) -> bool:
        return bool(self._database.query(_DROP_DEAD if if_dead else _DROP, (worker,)))


def _sighting(row: Row) -> Sighting:
    worker, host, pid, started_at, version, lease_s, age_s = row
    lease = Lease(worker=worker, host=host, pid=pid, started_at=started_at, version=version, lease_s=lease_s)
    return Sighting(lease, age_s)
