"""The Postgres server of the benchmarks: a cluster of their own on a loopback port, started when a row needs it."""

import contextlib
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.model import Contender, Row
from tests.postgres_server import Cluster, NoServer, binaries

__all__ = ["NoServer", "Servers"]


class Servers:
    """At most one cluster; leave the block to end it."""

    def __init__(self, scratch: Path) -> None:
        """Start nothing yet; its files are to lie on the disk of `scratch`."""
        self._scratch = scratch
        self._postgres: Cluster | None = None
        self._ends = contextlib.ExitStack()
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def database(self, row: Row, contender: Contender) -> str:
        """Return the URL of a new database for a contender; "" when its row needs no server.

        Raises:
            NoServer: Postgres is not installed.
        """
        if not row.server:
            return ""
        if self._postgres is None:
            self._postgres = self._start()
        self._made += 1
        name = f"bench_{self._made}"
        with self._postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._postgres.url(database=name)

    def _start(self) -> Cluster:
        # Not below the scratch directory: the server's user may not enter that of root.
        directory = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="jobevents-bench-"))
        cluster = Cluster(binaries(), Path(directory))
        self._ends.callback(cluster.stop, signal.SIGQUIT)
        cluster.make()
        return cluster
